//! The engine: messages in; rows, rule transitions and fired rules out. Defined by `domain/telemetry/engine/reference_engine.py`.

use std::collections::{HashMap, VecDeque};

use crate::batch_result::BatchResult;
use crate::compiled_rules::{EngineRule, NEVER};
use crate::device_table::DeviceTable;
use crate::fast_json::ScannedPayload;
use crate::number_row_packer::NumberRowPacker;
use crate::rule_evaluation::evaluate;
use crate::rule_evaluation_steps::{AllOrDueRules, OFF, ON, RuleEvaluationContext};
use crate::timed_rule_evaluation::reset_deadlines;
use crate::timer_queue::TimerQueue;

/// How many messages ahead their devices are brought into the cache, once the devices have outgrown it.
pub(crate) const PREFETCH_AHEAD: usize = 8;

pub struct Engine {
    pub(crate) devices: DeviceTable,
    commands: HashMap<String, u32>,
    /// Numbers of the devices that differ from their last checkpoint.
    pub(crate) changed: VecDeque<u32>,
    pub(crate) timers: TimerQueue,
    /// When the service's clock was set last, as it has shown since; and the first arrival that messages have which arrived
    /// shortly before, by the clock as it was.
    pub(crate) clock_set_ms: i64,
    pub(crate) old_stamps_from_ms: i64,
    /// Of the batch being ingested: a later time of a value is not believed.
    pub(crate) believed_until_ms: i64,
    /// Reused buffers.
    pub(crate) scan: ScannedPayload,
    pub(crate) row_writer: NumberRowPacker,
    pub(crate) fired: Vec<(u32, u32)>,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            devices: DeviceTable::default(),
            commands: HashMap::from([("ON".to_owned(), ON), ("OFF".to_owned(), OFF)]),
            changed: VecDeque::new(),
            timers: TimerQueue::default(),
            clock_set_ms: NEVER,
            old_stamps_from_ms: NEVER,
            believed_until_ms: i64::MAX,
            scan: ScannedPayload::default(),
            row_writer: NumberRowPacker::default(),
            fired: Vec::new(),
        }
    }
}

/// Devices and metrics are given by their numbers in the database, times in Unix milliseconds.
impl Engine {
    /// For `EngineRule::command`.
    pub fn command_number(&mut self, name: &str) -> u32 {
        let next = self.commands.len() as u32;
        *self.commands.entry(name.to_owned()).or_insert(next)
    }

    /// Replaces the device's rules.
    pub fn put_rules(&mut self, device: u32, mut specs: Vec<EngineRule>) {
        specs.sort_by_key(|spec| (spec.priority, spec.rule));
        let place = self.devices.place(device);
        let place = self.devices.put_rules(place, &specs);
        self.reset_deadlines(place);
    }

    pub fn drop_device(&mut self, device: u32) {
        if self.devices.find(device).is_some() {
            self.changed.retain(|changed| *changed != device);
            self.devices.remove(device);
        }
    }

    /// Whether `BatchResult::watched` has the device's readings.
    pub fn watch(&mut self, device: u32, on: bool) {
        let place = self.devices.place(device);
        self.devices.record(place).header.watched = on;
    }

    pub fn set_metric(&mut self, number: u32, name: &str) {
        self.devices.metrics.name(number, name);
    }

    /// Evaluates the rules whose deadline has passed.
    pub fn tick(&mut self, now_ms: i64) -> BatchResult {
        let mut result = BatchResult::default();
        for number in self.timers.take_due(&mut self.devices, now_ms) {
            let place = self.devices.place(number);
            let mut record = self.devices.record(place);
            let mut evaluation = RuleEvaluationContext::new(now_ms, AllOrDueRules::Due, &mut self.fired, &mut result);
            evaluate(&mut record, &mut evaluation);
            self.timers.schedule(record.header);
        }
        result
    }

    /// When to call `tick`.
    pub fn next_timer_ms(&mut self) -> Option<i64> {
        self.timers.next_deadline(&mut self.devices)
    }

    #[inline]
    pub(crate) fn mark_changed(&mut self, place: u32) {
        let header = self.devices.record(place).header;
        if !header.changed {
            header.changed = true;
            self.changed.push_back(header.number);
        }
    }

    pub(crate) fn reset_deadlines(&mut self, place: u32) {
        let mut record = self.devices.record(place);
        reset_deadlines(&mut record);
        self.timers.schedule(record.header);
    }
}
