//! After the service's clock was set: everything that counts from an arrival moves along, so that waits, silences and cooldowns last
//! as long as they would have. Defined by `domain/telemetry/engine/reference_device_state.py`.

use crate::batch_result::BatchResult;
use crate::compiled_rules::{ConditionTest, NEVER, NO_DEADLINE, TimedRule};
use crate::device_record::EngineDeviceRecord;
use crate::device_record_layout::DeviceRecordHeader;
use crate::engine::Engine;
use crate::payload_parser::MAX_AHEAD_MS;
use crate::rule_evaluation_steps::{AllOrDueRules, RuleEvaluationContext, report_transition};

/// How long before the clock was set a message may have arrived that is ingested after it.
const MAX_QUEUED_MS: i64 = 600_000;

impl Engine {
    /// The clock was set by `step_ms`, to `now_ms`. Reports the rules whose times have moved.
    pub fn shift_clock(&mut self, step_ms: i64, now_ms: i64) -> BatchResult {
        let mut result = BatchResult::default();
        self.clock_set_ms = now_ms;
        self.old_stamps_from_ms = now_ms.saturating_sub(step_ms).saturating_sub(MAX_QUEUED_MS);
        self.timers.shift(step_ms);
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

fn watches_silence(header: &DeviceRecordHeader) -> bool {
    let timed_rules = header.rare.iter().flat_map(|rare| &rare.timed_rules);
    let mut conditions = timed_rules.flat_map(|rule| rule.conditions.iter().chain(&rule.clear));
    conditions.any(|bound| matches!(bound.condition.test, ConditionTest::Silent(_)))
}
