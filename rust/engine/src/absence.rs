//! When devices could not be heard. Defined by `domain/telemetry/reference_engine.py`.
//!
//! Law: time in which a device could not be heard is not counted as its silence, nor as waiting.

use std::collections::HashMap;

use crate::batch_result::BatchResult;
use crate::compiled_rules::NEVER;
use crate::device_record::{DeviceRecordHeader, EngineDeviceRecord};
use crate::engine::{Deafness, Engine, stop_timers, watches_silence};
use crate::partitions::partition_of;
use crate::rules::{AllOrDueRules, RuleEvaluationContext, report_transition, reset_deadlines};

impl Engine {
    /// From `since_ms` to `until_ms` the devices could not be heard: their timers stand still until `hear`. `partition`: (number,
    /// count), or all. `connected`: by device, since when it has had a connection that is heard; its timers go on at once. Reports
    /// the rules whose wait has moved.
    pub fn deafen(
        &mut self,
        since_ms: i64,
        until_ms: i64,
        partition: Option<(u32, u32)>,
        connected: &HashMap<u32, i64>,
    ) -> BatchResult {
        let mut result = BatchResult::default();
        let is_meant = |number| partition.is_none_or(|(partition, count)| partition_of(number, count) == partition);
        let headers = self.devices.headers().map(|header| header.number);
        let mut numbers: Vec<u32> = headers.filter(|number| is_meant(*number)).collect();
        numbers.sort_unstable();
        for number in numbers {
            let deafness = self.deaf.entry(number).or_insert(Deafness { since_ms, until_ms });
            deafness.until_ms = until_ms;
            let place = self.devices.place(number);
            stop_timers(self.devices.record(place).header);
            if let Some(at_ms) = connected.get(&number) {
                self.hear(number, *at_ms, &mut result);
            }
        }
        result
    }

    /// Every device can be heard again at `at_ms`. Reports the rules whose wait has moved.
    pub fn hear_all(&mut self, at_ms: i64) -> BatchResult {
        let mut result = BatchResult::default();
        let mut numbers: Vec<u32> = self.deaf.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            self.hear(number, at_ms, &mut result);
        }
        self.deaf.shrink_to_fit();
        result
    }

    /// A message that arrived earlier has waited in the log: it shows that the device was heard until then, and not that it is heard
    /// again.
    #[cold]
    pub(crate) fn hear_message(&mut self, device: u32, received_ms: i64, result: &mut BatchResult) {
        let Some(deafness) = self.deaf.get_mut(&device) else { return };
        if received_ms >= deafness.until_ms {
            return self.hear(device, received_ms, result);
        }
        deafness.since_ms = deafness.since_ms.max(received_ms);
        let Some(place) = self.devices.find(device) else { return };
        if let Some(rare) = self.devices.record(place).header.rare.as_mut() {
            rare.update_deadline();
        }
        self.advance(place, received_ms, result);
        stop_timers(self.devices.record(place).header);
    }

    /// The device has spoken at `at_ms`: what it had not said and what had to last goes on from there.
    fn hear(&mut self, device: u32, at_ms: i64, result: &mut BatchResult) {
        let Some(Deafness { since_ms, .. }) = self.deaf.remove(&device) else {
            return;
        };
        let Some(place) = self.devices.find(device) else { return };
        let mut record = self.devices.record(place);
        let resumed_ms = |begun_ms: i64| begun_ms.saturating_add(at_ms.saturating_sub(begun_ms.max(since_ms)).max(0));
        resume_arrivals(record.header, resumed_ms);
        let mut evaluation = RuleEvaluationContext::new(at_ms, AllOrDueRules::Due, &mut self.fired, result);
        resume_waits(&mut record, resumed_ms, &mut evaluation);
        reset_deadlines(&mut record);
        self.timers.schedule(record.header);
        if record.header.newest_ms != NEVER && watches_silence(record.header) {
            self.mark_changed(place);
        }
    }
}

/// Moved arrivals say nothing about the device's clock.
fn resume_arrivals(header: &mut DeviceRecordHeader, resumed_ms: impl Fn(i64) -> i64) {
    if header.newest_ms == NEVER {
        return;
    }
    header.time_by_device = false;
    header.received_ms = resumed_ms(header.received_ms);
    for (_, received_ms) in header.rare.iter_mut().flat_map(|rare| &mut rare.times) {
        *received_ms = resumed_ms(*received_ms);
    }
}

fn resume_waits(
    record: &mut EngineDeviceRecord<'_>,
    resumed_ms: impl Fn(i64) -> i64,
    evaluation: &mut RuleEvaluationContext<'_>,
) {
    for (timed_index, index) in record.timed_rules().into_iter().enumerate() {
        let rare = record.header.rare.as_mut();
        let Some(rule) = rare.and_then(|rare| rare.timed_rules.get_mut(timed_index)) else {
            continue;
        };
        let held_since = resumed_ms(rule.held_since);
        if rule.held_since != NEVER && rule.held_since != held_since {
            rule.held_since = held_since;
            report_transition(record, index, held_since, false, evaluation);
        }
    }
}
