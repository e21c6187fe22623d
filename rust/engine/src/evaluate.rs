//! Evaluates a device's rules at one instant. Defined by `domain/rules/reference.py`.

use crate::device_record::DeviceRecord;
use crate::firing::{Evaluation, EvaluationKind, fire, report_transition, satisfies};
use crate::rule_layout::RuleLayout;
use crate::rules::NEVER;
use crate::timed_rules::evaluate_timed;

/// Evaluates the rules in firing order.
#[inline]
pub fn evaluate(record: &mut DeviceRecord<'_>, evaluation: &mut Evaluation<'_>) {
    if record.header.rule_layout.is_all_plain && evaluation.kind == EvaluationKind::All {
        evaluate_plain(record, evaluation);
    } else {
        evaluate_mixed(record, evaluation);
    }
}

/// One by one, plain and timed rules.
fn evaluate_mixed(record: &mut DeviceRecord<'_>, evaluation: &mut Evaluation<'_>) {
    let layout = record.header.rule_layout.clone();
    let mut first = 0;
    let mut timed_index = 0;
    for (index, rule) in layout.rules.iter().enumerate() {
        if rule.is_timed() {
            evaluate_timed(record, (index, timed_index), evaluation);
            timed_index += 1;
            continue;
        }
        let end = first + rule.condition_count();
        if evaluation.kind == EvaluationKind::All {
            let (values, thresholds) = record.words.split_at(layout.slot_count());
            let matched = conditions_match(
                &layout.condition_codes[first..end],
                &thresholds[first..end],
                values,
                rule.any(),
            );
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

/// All conditions first, two bits each and without a branch; then the rules, which rarely change.
#[inline]
fn evaluate_plain(record: &mut DeviceRecord<'_>, evaluation: &mut Evaluation<'_>) {
    let matched = matching_rules(&record.header.rule_layout, record.words);
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
fn matching_rules(layout: &RuleLayout, words: &[u64]) -> u64 {
    let (values, thresholds) = words.split_at(layout.slot_count());
    let (mut not_above, mut not_below) = (0u64, 0u64);
    let thresholds = &thresholds[..layout.condition_codes.len()];
    // From the last to the first, so that the first ends in the lowest bit.
    for (&code, &threshold) in layout.condition_codes.iter().zip(thresholds).rev() {
        let value = f64::from_bits(values[usize::from(code >> 3)]);
        let threshold = f64::from_bits(threshold);
        not_above = not_above << 1 | u64::from(value <= threshold);
        not_below = not_below << 1 | u64::from(value >= threshold);
    }
    // NaN is neither below nor above nor equal, so that a missing value satisfies nothing.
    let masks = &layout.masks;
    let mut satisfied =
        masks.less & not_above & !not_below | masks.greater & not_below & !not_above | masks.equal & not_above & not_below;
    let mut matched: u64 = 0;
    for (index, rule) in layout.rules.iter().enumerate() {
        let count = rule.condition_count();
        let all = (1 << count) - 1;
        let of_rule = satisfied & all;
        let matches = if rule.any() { of_rule != 0 } else { of_rule == all };
        matched |= u64::from(matches) << index;
        satisfied >>= count;
    }
    matched
}

#[inline]
fn conditions_match(codes: &[u16], thresholds: &[u64], values: &[u64], any: bool) -> bool {
    let mut all_hold = true;
    let mut one_holds = false;
    for (&code, &threshold) in codes.iter().zip(thresholds) {
        let value = f64::from_bits(values[usize::from(code >> 3)]);
        let holds = satisfies(code as u8 & 7, value, f64::from_bits(threshold));
        all_hold &= holds;
        one_holds |= holds;
    }
    if any { one_holds } else { all_hold }
}

#[cold]
fn apply_transition(record: &mut DeviceRecord<'_>, index: usize, matched: bool, evaluation: &mut Evaluation<'_>) {
    record.set_matched(index, matched);
    if matched {
        fire(record, index, evaluation);
    }
    report_transition(record, index, NEVER, true, evaluation);
}
