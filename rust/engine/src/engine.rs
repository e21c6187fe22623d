//! The engine: messages in; rows, rule transitions and fired rules out. Defined by `domain/telemetry/reference_engine.py`.
//!
//! Law: timers run in the time of the messages. Before a message is evaluated, the device's timers advance to its arrival.
//!
//! Law: after the service's clock was set, everything that counts from an arrival moves along, so that waits, silences and cooldowns
//! last as long as they would have. Defined by `domain/telemetry/reference_engine.py`.

use std::collections::{HashMap, VecDeque};

use crate::batch_result::BatchResult;
use crate::compiled_rules::{ConditionTest, EngineRule, NEVER, NO_DEADLINE, TimedRule};
use crate::device_record::{DeviceRecordHeader, EngineDeviceRecord};
use crate::device_table::DeviceTable;
use crate::fast_json::ScannedPayload;
use crate::payload_parser::MAX_AHEAD_MS;
use crate::reading_packing::NumberRowPacker;
use crate::rules::{
    AllOrDueRules, RuleEvaluationContext, contradicting_commands, evaluate, report_transition, reset_deadlines,
    skip_judged_deadlines,
};
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
    /// Devices that could not be heard and have not spoken since.
    pub(crate) deaf: HashMap<u32, Deafness>,
    /// Reused buffers.
    pub(crate) scan: ScannedPayload,
    pub(crate) row_writer: NumberRowPacker,
    pub(crate) fired: Vec<(u32, u32)>,
}

/// When a device could not be heard, in Unix ms.
pub(crate) struct Deafness {
    pub(crate) since_ms: i64,
    pub(crate) until_ms: i64,
}

impl Default for Engine {
    fn default() -> Self {
        Self {
            devices: DeviceTable::default(),
            commands: contradicting_commands().zip(0..).collect(),
            changed: VecDeque::new(),
            timers: TimerQueue::default(),
            clock_set_ms: NEVER,
            old_stamps_from_ms: NEVER,
            believed_until_ms: i64::MAX,
            deaf: HashMap::new(),
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
            self.deaf.remove(&device);
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

    /// A message arrived at `at_ms`: evaluates what was due before, each rule at its time. A deadline of the same millisecond is
    /// judged with the message.
    #[inline]
    pub(crate) fn advance(&mut self, place: u32, at_ms: i64, result: &mut BatchResult) {
        let rare = self.devices.header(place).rare.as_ref();
        if rare.is_some_and(|rare| rare.deadline_ms < at_ms) {
            self.evaluate_until(place, at_ms, result);
        }
    }

    #[cold]
    fn evaluate_until(&mut self, place: u32, at_ms: i64, result: &mut BatchResult) {
        let mut record = self.devices.record(place);
        skip_judged_deadlines(&mut record, at_ms);
        while let Some(due_ms) = record.header.rare.as_ref().map(|rare| rare.deadline_ms)
            && due_ms < at_ms
        {
            let mut evaluation = RuleEvaluationContext::new(due_ms, AllOrDueRules::Due, &mut self.fired, result);
            evaluate(&mut record, &mut evaluation);
        }
        self.timers.schedule(record.header);
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
        if self.deaf.contains_key(&record.header.number) {
            stop_timers(record.header);
        }
        self.timers.schedule(record.header);
    }
}

pub(crate) fn stop_timers(header: &mut DeviceRecordHeader) {
    if let Some(rare) = header.rare.as_mut() {
        rare.deadline_ms = NO_DEADLINE;
    }
}

/// How long before the clock was set a message may have arrived that is ingested after it.
const MAX_QUEUED_MS: i64 = 600_000;

impl Engine {
    /// The clock was set by `step_ms`, to `now_ms`. Reports the rules whose times have moved.
    pub fn shift_clock(&mut self, step_ms: i64, now_ms: i64) -> BatchResult {
        let mut result = BatchResult::default();
        self.clock_set_ms = now_ms;
        self.old_stamps_from_ms = now_ms.saturating_sub(step_ms).saturating_sub(MAX_QUEUED_MS);
        self.timers.shift(step_ms);
        for deafness in self.deaf.values_mut() {
            deafness.since_ms = deafness.since_ms.saturating_add(step_ms);
            deafness.until_ms = deafness.until_ms.saturating_add(step_ms);
        }
        let mut numbers: Vec<u32> = self.devices.headers().map(|header| header.number).collect();
        numbers.sort_unstable();
        for number in numbers {
            let place = self.devices.place(number);
            let mut record = self.devices.record(place);
            shift_arrivals(record.header, step_ms, now_ms);
            let mut evaluation = RuleEvaluationContext::new(now_ms, AllOrDueRules::Due, &mut self.fired, &mut result);
            shift_rules(&mut record, step_ms, &mut evaluation);
            if record.header.newest_ms != NEVER && watches_silence(record.header) {
                self.mark_changed(place);
            }
        }
        result
    }
}

/// The times of readings stay: they are stored, or the device's.
fn shift_arrivals(header: &mut DeviceRecordHeader, step_ms: i64, now_ms: i64) {
    if header.newest_ms != NEVER {
        header.received_ms = header.received_ms.saturating_add(step_ms);
    }
    if header.newest_ms > now_ms {
        header.rare_mut();
    }
    let Some(rare) = header.rare.as_mut() else { return };
    for (_, received_ms) in &mut rare.times {
        *received_ms = received_ms.saturating_add(step_ms);
    }
    if header.newest_ms > now_ms {
        // The newest time is of the clock as it was: not believed.
        rare.late_since_ms = now_ms.saturating_sub(MAX_AHEAD_MS);
    } else if rare.late_since_ms != NEVER {
        rare.late_since_ms = rare.late_since_ms.saturating_add(step_ms);
    }
    for deadline_ms in [&mut rare.deadline_ms, &mut rare.queued_ms] {
        if *deadline_ms != NO_DEADLINE {
            *deadline_ms = deadline_ms.saturating_add(step_ms);
        }
    }
}

fn shift_rules(record: &mut EngineDeviceRecord<'_>, step_ms: i64, evaluation: &mut RuleEvaluationContext<'_>) {
    for (timed_index, index) in record.timed_rules().into_iter().enumerate() {
        let last_fired = record.header.last_fired(record.words, index);
        let Some(rule) = record
            .header
            .rare
            .as_mut()
            .and_then(|rare| rare.timed_rules.get_mut(timed_index))
        else {
            continue;
        };
        let cools_down = is_cooling_down(rule, last_fired, evaluation.at_ms.saturating_sub(step_ms));
        let waits = rule.held_since != NEVER;
        if waits {
            rule.held_since = rule.held_since.saturating_add(step_ms);
        }
        if rule.deadline_ms != NO_DEADLINE {
            rule.deadline_ms = rule.deadline_ms.saturating_add(step_ms);
        }
        for time_ms in [&mut rule.evaluated_ms, &mut rule.since] {
            if *time_ms != NEVER {
                *time_ms = time_ms.saturating_add(step_ms);
            }
        }
        let held_since = rule.held_since;
        if cools_down {
            record.set_last_fired(index, last_fired.saturating_add(step_ms));
        }
        if waits || cools_down {
            report_transition(record, index, held_since, false, evaluation);
        }
    }
}

fn is_cooling_down(rule: &TimedRule, last_fired: i64, at_ms: i64) -> bool {
    rule.cooldown_ms > 0 && last_fired != NEVER && at_ms.saturating_sub(last_fired) < rule.cooldown_ms
}

pub(crate) fn watches_silence(header: &DeviceRecordHeader) -> bool {
    let timed_rules = header.rare.iter().flat_map(|rare| &rare.timed_rules);
    let mut conditions = timed_rules.flat_map(|rule| rule.conditions.iter().chain(&rule.clear));
    conditions.any(|bound| matches!(bound.condition.test, ConditionTest::Silent(_)))
}
