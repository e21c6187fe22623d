//! What the evaluation of plain and of timed rules shares: comparing, firing, and reporting a changed rule.

use crate::batch_result::{BatchResult, RuleTransition};
use crate::compiled_rules::NEVER;
use crate::device_record::EngineDeviceRecord;

/// Numbers of the two commands that contradict each other; the engine assigns them before all others.
pub const ON: u32 = 0;
pub const OFF: u32 = 1;

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

/// Whether the mask includes the outcome of the comparison. A comparison with NaN has no outcome.
#[inline]
pub(crate) fn satisfies(mask: u8, value: f64, threshold: f64) -> bool {
    let outcome = u8::from(value <= threshold) | u8::from(value >= threshold) << 1;
    mask << 1 >> outcome & 1 != 0
}

/// Fires the rule, unless an earlier rule has fired with the same or the opposite command.
pub(crate) fn fire(record: &mut EngineDeviceRecord<'_>, index: usize, evaluation: &mut RuleEvaluationContext<'_>) {
    let RuleEvaluationContext { at_ms, result, .. } = evaluation;
    let at_ms = *at_ms;
    let command = record.header.rule(record.words, index).command();
    let device = record.header.number;
    let rule = record.header.rule_number(record.words, index);
    let opposite = match command {
        ON => OFF,
        OFF => ON,
        other => other,
    };
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
