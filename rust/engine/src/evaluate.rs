//! One evaluation of a device's rules at one instant. Defined by `domain/rules/reference.py`.

use crate::device::Record;
use crate::outcome::{Edge, Outcome};
use crate::rules::{NEVER, NO_DUE};
use crate::shape::Shape;
use crate::special::evaluate_special;

/// Handles of the two commands that contradict each other, given out by the engine before all others.
pub const ON: u32 = 0;
pub const OFF: u32 = 1;

/// Which rules an evaluation looks at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those with a deadline up to the instant; plain rules have none.
    Due,
}

/// Evaluate in firing order. `fired` is scratch space: (command, rule) of what fires at once.
#[inline]
pub fn evaluate(
    record: &mut Record<'_>,
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    fired.clear();
    if record.device.shape.is_all_plain && which == Which::All {
        evaluate_plain(record, at_ms, fired, outcome);
    } else {
        evaluate_mixed(record, at_ms, which, fired, outcome);
    }
}

/// One by one, special rules among the plain.
fn evaluate_mixed(
    record: &mut Record<'_>,
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let shape = record.device.shape.clone();
    let mut first = 0;
    let mut special = 0;
    for (index, cell) in shape.cells.iter().enumerate() {
        if cell.is_special() {
            evaluate_special(record, (index, special), at_ms, which, fired, outcome);
            special += 1;
            continue;
        }
        let end = first + cell.count();
        if which == Which::All {
            let (values, rest) = record.words.split_at(shape.slots());
            let matched = plain(
                &shape.ops[first..end],
                &rest[first..end],
                values,
                cell.any(),
            );
            if matched != record.device.matched(record.words, index) {
                turn_plain(record, index, matched, at_ms, fired, outcome);
            }
        }
        first = end;
    }
    if let Some(cold) = record.device.cold.as_mut() {
        let dues = cold.specials.iter().map(|special| special.due);
        cold.due = dues.min().unwrap_or(NO_DUE);
    }
}

/// All conditions first, two bits each and without a branch; then the rules, which seldom turn.
#[inline]
fn evaluate_plain(
    record: &mut Record<'_>,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let matched = plainly_matched(&record.device.shape, record.words);
    let mut turns = matched ^ record.device.matched;
    while turns != 0 {
        let index = turns.trailing_zeros() as usize;
        turns &= turns - 1;
        let matched = matched >> index & 1 != 0;
        turn_plain(record, index, matched, at_ms, fired, outcome);
    }
}

#[inline]
fn plainly_matched(shape: &Shape, words: &[u64]) -> u64 {
    let (values, thresholds) = words.split_at(shape.slots());
    let (mut not_above, mut not_below) = (0u64, 0u64);
    let thresholds = &thresholds[..shape.ops.len()];
    // From the last to the first, so that the first ends in the lowest bit.
    for (&op, &threshold) in shape.ops.iter().zip(thresholds).rev() {
        let value = f64::from_bits(values[usize::from(op >> 3)]);
        let threshold = f64::from_bits(threshold);
        not_above = not_above << 1 | u64::from(value <= threshold);
        not_below = not_below << 1 | u64::from(value >= threshold);
    }
    // NaN is neither below nor above nor equal, so that a missing value satisfies nothing.
    let planes = &shape.planes;
    let mut hold = planes.less & not_above & !not_below
        | planes.greater & not_below & !not_above
        | planes.equal & not_above & not_below;
    let mut matched: u64 = 0;
    for (place, cell) in shape.cells.iter().enumerate() {
        let count = cell.count();
        let wanted = (1 << count) - 1;
        let satisfied = hold & wanted;
        let matches = if cell.any() {
            satisfied != 0
        } else {
            satisfied == wanted
        };
        matched |= u64::from(matches) << place;
        hold >>= count;
    }
    matched
}

#[inline]
fn plain(ops: &[u16], thresholds: &[u64], values: &[u64], any: bool) -> bool {
    let mut all_hold = true;
    let mut one_holds = false;
    for (&op, &threshold) in ops.iter().zip(thresholds) {
        let value = f64::from_bits(values[usize::from(op >> 3)]);
        let hold = satisfies(op as u8 & 7, value, f64::from_bits(threshold));
        all_hold &= hold;
        one_holds |= hold;
    }
    if any { one_holds } else { all_hold }
}

/// Whether comparing the two has an outcome that the mask names. NaN is neither below nor above nor equal, and names none.
#[inline]
pub(crate) fn satisfies(mask: u8, value: f64, threshold: f64) -> bool {
    let outcome = u8::from(value <= threshold) | u8::from(value >= threshold) << 1;
    mask << 1 >> outcome & 1 != 0
}

#[cold]
fn turn_plain(
    record: &mut Record<'_>,
    index: usize,
    matched: bool,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    record.set_matched(index, matched);
    if matched {
        fire(record, index, at_ms, fired, outcome);
    }
    report(record, index, NEVER, true, at_ms, outcome);
}

/// Fire, unless a rule before it fires at once with the same or the opposite command.
pub(crate) fn fire(
    record: &mut Record<'_>,
    index: usize,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let command = record.device.shape.cells[index].command();
    let (device, rule) = (
        record.device.number,
        record.device.rule(record.words, index),
    );
    let opposite = match command {
        ON => OFF,
        OFF => ON,
        other => other,
    };
    let mut before = fired.iter();
    match before.find(|(other, _)| *other == command || *other == opposite) {
        Some((_, winner)) => outcome
            .suppressed
            .push((device, rule, at_ms, Some(*winner))),
        None => {
            record.set_fired(index, at_ms);
            fired.push((command, rule));
            outcome.fired.push((device, rule, at_ms));
        }
    }
}

pub(crate) fn report(
    record: &Record<'_>,
    index: usize,
    held_since: i64,
    turned: bool,
    at_ms: i64,
    outcome: &mut Outcome,
) {
    let (device, words) = (&*record.device, &*record.words);
    let last_fired = device.last_fired(words, index);
    outcome.edges.push(Edge {
        device: device.number,
        rule: device.rule(words, index),
        at_ms,
        matched: device.matched(words, index),
        held_since: (held_since != NEVER).then_some(held_since),
        last_fired: (last_fired != NEVER).then_some(last_fired),
        turned,
    });
}
