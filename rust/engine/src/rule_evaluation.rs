//! Evaluates a device's rules at one instant. Defined by `domain/rules/reference_rules.py`.

use std::ops::Range;

use crate::compiled_rules::{NEVER, PackedRuleHeader};
use crate::device_record::EngineDeviceRecord;
use crate::device_record_layout::DeviceRecordHeader;
use crate::rule_evaluation_steps::{AllOrDueRules, RuleEvaluationContext, fire, report_transition, satisfies};
use crate::timed_rule_evaluation::evaluate_timed;

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
