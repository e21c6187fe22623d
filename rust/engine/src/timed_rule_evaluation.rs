//! Rules that do more than compare numbers: they wait, cool down, have clear conditions, watch for silence, or compare text.

use crate::compiled_rules::{BoundCondition, ConditionTest, NEVER, NO_DEADLINE, TimedRule};
use crate::device_record::EngineDeviceRecord;
use crate::device_record_layout::{DeviceRecordHeader, ValueKind};
use crate::payload_parser::MetricValue;
use crate::rule_evaluation_steps::{AllOrDueRules, RuleEvaluationContext, fire, report_transition, satisfies};

/// Evaluates the rule at `index` in firing order, which is the device's timed rule number `timed_index`.
pub(crate) fn evaluate_timed(
    record: &mut EngineDeviceRecord<'_>,
    (index, timed_index): (usize, usize),
    evaluation: &mut RuleEvaluationContext<'_>,
) {
    let at_ms = evaluation.at_ms;
    let Some(rule) = timed_rule(record.header, timed_index) else {
        return;
    };
    if evaluation.kind == AllOrDueRules::Due && rule.deadline_ms > at_ms {
        return;
    }
    let was_matched = record.header.matched(record.words, index);
    let was_held_since = rule.held_since;
    let (matched, held_since) = next_state(record, rule, was_matched, at_ms);
    let cooldown_ms = rule.cooldown_ms;
    if matched != was_matched {
        record.set_matched(index, matched);
    }
    if matched && !was_matched {
        let last_fired = record.header.last_fired(record.words, index);
        let since_fired_ms = at_ms.saturating_sub(last_fired);
        if cooldown_ms > 0 && last_fired != NEVER && since_fired_ms < cooldown_ms {
            let number = record.header.rule_number(record.words, index);
            let suppressed = (record.header.number, number, at_ms, None);
            evaluation.result.suppressed.push(suppressed);
        } else {
            fire(record, index, evaluation);
        }
    }
    let changed = matched != was_matched;
    if changed || held_since != was_held_since {
        report_transition(record, index, held_since, changed, evaluation);
    }
    if let Some(rule) = timed_rule_mut(record.header, timed_index) {
        rule.held_since = held_since;
    }
    set_deadline(record, index, timed_index, at_ms);
}

fn timed_rule(header: &DeviceRecordHeader, timed_index: usize) -> Option<&TimedRule> {
    header.rare.as_ref()?.timed_rules.get(timed_index)
}

fn timed_rule_mut(header: &mut DeviceRecordHeader, timed_index: usize) -> Option<&mut TimedRule> {
    header.rare.as_mut()?.timed_rules.get_mut(timed_index)
}

/// (matched, held since) after this instant.
fn next_state(record: &EngineDeviceRecord<'_>, rule: &TimedRule, was_matched: bool, at_ms: i64) -> (bool, i64) {
    let holds = |condition: &BoundCondition| condition_holds(record, condition, at_ms);
    let cleared = !rule.clear.is_empty() && rule.clear.iter().all(holds);
    let satisfied = if rule.any {
        rule.conditions.iter().any(holds)
    } else {
        rule.conditions.iter().all(holds)
    };
    if was_matched {
        let matched = if rule.clear.is_empty() { satisfied } else { !cleared };
        return (matched, if matched { rule.held_since } else { NEVER });
    }
    if cleared || !satisfied {
        return (false, NEVER);
    }
    let since = if rule.held_since == NEVER { at_ms } else { rule.held_since };
    if at_ms.saturating_sub(since) < rule.for_ms {
        (false, since)
    } else {
        (true, NEVER)
    }
}

fn condition_holds(record: &EngineDeviceRecord<'_>, bound: &BoundCondition, at_ms: i64) -> bool {
    let Some(slot) = bound.slot else { return false };
    let (header, words) = (&*record.header, &*record.words);
    match &bound.condition.test {
        // The number of a text is NaN, which satisfies nothing.
        ConditionTest::Number(mask, threshold) => satisfies(*mask, header.number_of(words, slot), *threshold),
        ConditionTest::Text { equal, text } => {
            header.kind(slot) == ValueKind::Text
                && matches!(header.value(words, slot), Some(MetricValue::Text(last)) if (*last == **text) == *equal)
        }
        ConditionTest::Silent(silence_ms) => silent_from(record, slot, *silence_ms).is_some_and(|from| from <= at_ms),
    }
}

/// When the slot has been silent for this long; None before its first report.
fn silent_from(record: &EngineDeviceRecord<'_>, slot: usize, silence_ms: i64) -> Option<i64> {
    record.header.value(record.words, slot)?;
    Some(record.header.times(slot).1.saturating_add(silence_ms))
}

/// Sets when time alone may next change the rule, later than `after_ms`; that is NEVER for a rule that was not evaluated yet.
fn set_deadline(record: &mut EngineDeviceRecord<'_>, index: usize, timed_index: usize, after_ms: i64) {
    let matched = record.header.matched(record.words, index);
    let Some(rule) = timed_rule(record.header, timed_index) else {
        return;
    };
    let waits = !matched && rule.held_since != NEVER;
    let wait_ends = waits.then(|| rule.held_since.saturating_add(rule.for_ms));
    let conditions = rule.conditions.iter().chain(&rule.clear);
    let silences = conditions.filter_map(|bound| match bound.condition.test {
        ConditionTest::Silent(silence_ms) => silent_from(record, bound.slot?, silence_ms),
        _ => None,
    });
    let instants = wait_ends.into_iter().chain(silences);
    let deadline = instants.filter(|instant| *instant > after_ms).min();
    let deadline = deadline.unwrap_or(NO_DEADLINE);
    if let Some(rule) = timed_rule_mut(record.header, timed_index) {
        rule.deadline_ms = deadline;
    }
}

/// Sets all deadlines, past ones included, after rules or values were put from outside.
pub fn reset_deadlines(record: &mut EngineDeviceRecord<'_>) {
    for (timed_index, index) in record.timed_rules().into_iter().enumerate() {
        set_deadline(record, index, timed_index, NEVER);
    }
    if let Some(rare) = record.header.rare.as_mut() {
        rare.update_deadline();
    }
}
