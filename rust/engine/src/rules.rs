//! Evaluates a device's rules at one instant. Defined by `domain/rules/reference.py`.
//!
//! Plain rules compare numbers, all at once and without a branch. Timed rules do more, one by one: they wait, cool down, have clear
//! conditions, watch for silence, or compare text. Law: of the rules that fire in one evaluation, none contradicts an earlier one.

use std::ops::Range;

use crate::batch_result::{BatchResult, RuleTransition};
use crate::compiled_rules::{BoundCondition, ConditionTest, NEVER, NO_DEADLINE, PackedRuleHeader, TimedRule};
use crate::device_record::{DeviceRecordHeader, EngineDeviceRecord, ValueKind};
use crate::payload_parser::MetricValue;

const MAX_CHANNEL: u32 = 64;
const CONTRADICTING: [&str; 4] = ["ON", "OFF", "OPEN", "CLOSE"];
const CONTRADICTING_COUNT: u32 = MAX_CHANNEL * CONTRADICTING.len() as u32;

/// The commands that contradict each other, on each channel: numbers 2n and 2n + 1 are a pair. The engine numbers them before all
/// others.
pub(crate) fn contradicting_commands() -> impl Iterator<Item = String> {
    (1..=MAX_CHANNEL).flat_map(|channel| {
        CONTRADICTING.iter().map(move |name| {
            if channel == 1 {
                (*name).to_owned()
            } else {
                format!("{name}#{channel}")
            }
        })
    })
}

/// Which rules an evaluation covers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum AllOrDueRules {
    All,
    /// Timed rules whose deadline has passed; plain rules have no deadline.
    Due,
}

/// One evaluation of a device's rules.
pub struct RuleEvaluationContext<'a> {
    pub at_ms: i64,
    pub kind: AllOrDueRules,
    /// (command, rule) of the rules that have fired in it.
    pub fired: &'a mut Vec<(u32, u32)>,
    pub result: &'a mut BatchResult,
}

impl<'a> RuleEvaluationContext<'a> {
    /// `fired`: a buffer to reuse.
    #[inline]
    pub fn new(at_ms: i64, kind: AllOrDueRules, fired: &'a mut Vec<(u32, u32)>, result: &'a mut BatchResult) -> Self {
        fired.clear();
        Self {
            at_ms,
            kind,
            fired,
            result,
        }
    }
}

/// Evaluates the rules in firing order.
#[inline]
pub fn evaluate(record: &mut EngineDeviceRecord<'_>, evaluation: &mut RuleEvaluationContext<'_>) {
    if record.header.is_all_plain && evaluation.kind == AllOrDueRules::All {
        evaluate_plain(record, evaluation);
    } else {
        evaluate_mixed(record, evaluation);
    }
}

/// One by one, plain and timed rules.
fn evaluate_mixed(record: &mut EngineDeviceRecord<'_>, evaluation: &mut RuleEvaluationContext<'_>) {
    let mut first = 0;
    let mut timed_index = 0;
    for index in 0..record.header.rules() {
        let rule = record.header.rule(record.words, index);
        if rule.is_timed() {
            evaluate_timed(record, (index, timed_index), evaluation);
            timed_index += 1;
            continue;
        }
        let end = first + rule.condition_count();
        if evaluation.kind == AllOrDueRules::All {
            let matched = conditions_match(record, first..end, rule.any());
            if matched != record.header.matched(record.words, index) {
                apply_transition(record, index, matched, evaluation);
            }
        }
        first = end;
    }
    if let Some(rare) = record.header.rare.as_mut() {
        rare.update_deadline();
    }
}

/// All conditions first, one bit each and without a branch; then the rules, which rarely change.
#[inline]
fn evaluate_plain(record: &mut EngineDeviceRecord<'_>, evaluation: &mut RuleEvaluationContext<'_>) {
    let matched = matching_rules(record.header, record.words);
    let mut changed = matched ^ record.header.matched;
    while changed != 0 {
        let index = changed.trailing_zeros() as usize;
        changed &= changed - 1;
        let matched = matched >> index & 1 != 0;
        apply_transition(record, index, matched, evaluation);
    }
}

/// One bit per rule.
#[inline]
fn matching_rules(header: &DeviceRecordHeader, words: &[u64]) -> u64 {
    let values = &words[header.values_offset()..][..header.slots()];
    let thresholds = &words[header.thresholds_offset()..][..header.conditions()];
    let mut satisfied: u64 = 0;
    for (index, &threshold) in thresholds.iter().enumerate() {
        let code = header.condition_code(words, index);
        let value = f64::from_bits(values[usize::from(code >> 3)]);
        let holds = satisfies(code as u8 & 7, value, f64::from_bits(threshold));
        satisfied |= u64::from(holds) << index;
    }
    let mut matched: u64 = 0;
    for (index, &rule) in words[header.rules_offset()..][..header.rules()].iter().enumerate() {
        let rule = PackedRuleHeader::from_bits((rule >> 32) as u32);
        let count = rule.condition_count();
        let all = (1 << count) - 1;
        let of_rule = satisfied & all;
        let matches = if rule.any() { of_rule != 0 } else { of_rule == all };
        matched |= u64::from(matches) << index;
        satisfied = satisfied.checked_shr(count as u32).unwrap_or(0);
    }
    matched
}

fn conditions_match(record: &EngineDeviceRecord<'_>, conditions: Range<usize>, any: bool) -> bool {
    let (header, words) = (&*record.header, &*record.words);
    let mut holds = conditions.map(|index| {
        let code = header.condition_code(words, index);
        let threshold = f64::from_bits(words[header.thresholds_offset() + index]);
        satisfies(code as u8 & 7, header.number_of(words, usize::from(code >> 3)), threshold)
    });
    if any {
        holds.any(|holds| holds)
    } else {
        holds.all(|holds| holds)
    }
}

#[cold]
fn apply_transition(
    record: &mut EngineDeviceRecord<'_>,
    index: usize,
    matched: bool,
    evaluation: &mut RuleEvaluationContext<'_>,
) {
    record.set_matched(index, matched);
    if matched {
        fire(record, index, evaluation);
    }
    report_transition(record, index, NEVER, true, evaluation);
}

/// Evaluates the rule at `index` in firing order, which is the device's timed rule number `timed_index`.
fn evaluate_timed(
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

/// The instants, past and to come, at which time alone may change the rule.
fn deadlines(record: &EngineDeviceRecord<'_>, index: usize, rule: &TimedRule) -> impl Iterator<Item = i64> {
    let waits = !record.header.matched(record.words, index) && rule.held_since != NEVER;
    let wait_ends = waits.then(|| rule.held_since.saturating_add(rule.for_ms));
    let conditions = rule.conditions.iter().chain(&rule.clear);
    let silences = conditions.filter_map(|bound| match bound.condition.test {
        ConditionTest::Silent(silence_ms) => silent_from(record, bound.slot?, silence_ms),
        _ => None,
    });
    wait_ends.into_iter().chain(silences)
}

/// Sets when time alone may next change the rule, later than `after_ms`; that is NEVER for a rule that was not evaluated yet.
fn set_deadline(record: &mut EngineDeviceRecord<'_>, index: usize, timed_index: usize, after_ms: i64) {
    let Some(rule) = timed_rule(record.header, timed_index) else {
        return;
    };
    let deadline = deadlines(record, index, rule).filter(|instant| *instant > after_ms).min();
    if let Some(rule) = timed_rule_mut(record.header, timed_index) {
        rule.deadline_ms = deadline.unwrap_or(NO_DEADLINE);
        rule.evaluated_ms = after_ms;
    }
}

/// Of a rule that was not evaluated since it was put, earlier instants may be judged already: its deadline becomes the last one
/// before `until_ms`, or the time since when there is the rule, if that is later.
pub fn skip_judged_deadlines(record: &mut EngineDeviceRecord<'_>, until_ms: i64) {
    for (timed_index, index) in record.timed_rules().into_iter().enumerate() {
        let rule = timed_rule(record.header, timed_index).filter(|rule| rule.evaluated_ms == NEVER);
        let past = rule.and_then(|rule| {
            let past = deadlines(record, index, rule).filter(|instant| *instant < until_ms);
            past.max().map(|instant| instant.max(rule.since))
        });
        if let (Some(past), Some(rule)) = (past, timed_rule_mut(record.header, timed_index)) {
            rule.deadline_ms = past;
        }
    }
    if let Some(rare) = record.header.rare.as_mut() {
        rare.update_deadline();
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

/// Whether the mask includes the outcome of the comparison. A comparison with NaN has no outcome.
#[inline]
fn satisfies(mask: u8, value: f64, threshold: f64) -> bool {
    let outcome = u8::from(value <= threshold) | u8::from(value >= threshold) << 1;
    mask << 1 >> outcome & 1 != 0
}

/// Fires the rule, unless an earlier rule has fired with the same or the opposite command.
fn fire(record: &mut EngineDeviceRecord<'_>, index: usize, evaluation: &mut RuleEvaluationContext<'_>) {
    let RuleEvaluationContext { at_ms, result, .. } = evaluation;
    let at_ms = *at_ms;
    let command = record.header.rule(record.words, index).command();
    let device = record.header.number;
    let rule = record.header.rule_number(record.words, index);
    let opposite = if command < CONTRADICTING_COUNT { command ^ 1 } else { command };
    let mut earlier = evaluation.fired.iter();
    match earlier.find(|(other, _)| *other == command || *other == opposite) {
        Some((_, winner)) => result.suppressed.push((device, rule, at_ms, Some(*winner))),
        None => {
            record.set_last_fired(index, at_ms);
            evaluation.fired.push((command, rule));
            result.fired.push((device, rule, at_ms));
        }
    }
}

/// `changed`: the rule began or ceased to match.
pub(crate) fn report_transition(
    record: &EngineDeviceRecord<'_>,
    index: usize,
    held_since: i64,
    changed: bool,
    evaluation: &mut RuleEvaluationContext<'_>,
) {
    let (header, words) = (&*record.header, &*record.words);
    let last_fired = header.last_fired(words, index);
    evaluation.result.transitions.push(RuleTransition {
        device: header.number,
        rule: header.rule_number(words, index),
        at_ms: evaluation.at_ms,
        matched: header.matched(words, index),
        held_since: (held_since != NEVER).then_some(held_since),
        last_fired: (last_fired != NEVER).then_some(last_fired),
        changed,
    });
}
