//! One evaluation of a device's rules at one instant. Defined by `domain/rules/reference.py`.

use crate::device::Device;
use crate::outcome::{Edge, Outcome};
use crate::rules::{HEAD_ANY, NEVER, NO_DUE};
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
    device: &mut Device,
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    fired.clear();
    if device.is_all_plain && which == Which::All {
        return evaluate_plain(device, at_ms, fired, outcome);
    }
    let slots = device.layout.len();
    let mut first = 0;
    let mut special = 0;
    for index in 0..device.cells.len() {
        let cell = &device.cells[index];
        if cell.is_special() {
            evaluate_special(device, index, special, at_ms, which, fired, outcome);
            special += 1;
            continue;
        }
        let end = first + cell.count();
        if which == Which::All {
            let (values, thresholds) = device.floats.split_at(slots);
            let matched = plain(
                &device.ops[first..end],
                &thresholds[first..end],
                values,
                cell.any(),
            );
            if matched != cell.matched() {
                turn_plain(device, index, matched, at_ms, fired, outcome);
            }
        }
        first = end;
    }
    if let Some(cold) = device.cold.as_mut() {
        cold.due = cold
            .specials
            .iter()
            .map(|special| special.due)
            .min()
            .unwrap_or(NO_DUE);
    }
}

/// All conditions first, a bit each and without a branch; then the rules, which seldom turn.
#[inline]
fn evaluate_plain(
    device: &mut Device,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let (values, thresholds) = device.floats.split_at(device.layout.len());
    let (ops, heads) = device.ops.split_at(thresholds.len());
    let mut hold: u64 = 0;
    for (place, (&op, &threshold)) in ops.iter().zip(thresholds).enumerate() {
        let holds = satisfies(op as u8 & 7, values[usize::from(op >> 3)], threshold);
        hold |= u64::from(holds) << place;
    }
    let mut matched: u64 = 0;
    for (place, &head) in heads.iter().enumerate() {
        let count = head & !HEAD_ANY;
        let wanted = (1 << count) - 1;
        let satisfied = hold & wanted;
        let matches = if head & HEAD_ANY != 0 {
            satisfied != 0
        } else {
            satisfied == wanted
        };
        matched |= u64::from(matches) << place;
        hold >>= count;
    }
    let mut turns = matched ^ device.matched;
    while turns != 0 {
        let index = turns.trailing_zeros() as usize;
        turns &= turns - 1;
        let matched = !device.cells[index].matched();
        turn_plain(device, index, matched, at_ms, fired, outcome);
    }
}

#[inline]
fn plain(ops: &[u16], thresholds: &[f64], values: &[f64], any: bool) -> bool {
    let mut all_hold = true;
    let mut one_holds = false;
    for (&op, &threshold) in ops.iter().zip(thresholds) {
        let hold = satisfies(op as u8 & 7, values[usize::from(op >> 3)], threshold);
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
    device: &mut Device,
    index: usize,
    matched: bool,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    device.set_matched(index, matched);
    if matched {
        fire(device, index, at_ms, fired, outcome);
    }
    report(device, index, NEVER, true, at_ms, outcome);
}

/// Fire, unless a rule before it fires at once with the same or the opposite command.
pub(crate) fn fire(
    device: &mut Device,
    index: usize,
    at_ms: i64,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let cell = &mut device.cells[index];
    let command = cell.command();
    let opposite = match command {
        ON => OFF,
        OFF => ON,
        other => other,
    };
    match fired
        .iter()
        .find(|(other, _)| *other == command || *other == opposite)
    {
        Some((_, winner)) => {
            outcome
                .suppressed
                .push((device.number, cell.rule, at_ms, Some(*winner)))
        }
        None => {
            cell.last_fired = at_ms;
            fired.push((command, cell.rule));
            outcome.fired.push((device.number, cell.rule, at_ms));
        }
    }
}

pub(crate) fn report(
    device: &Device,
    index: usize,
    held_since: i64,
    turned: bool,
    at_ms: i64,
    outcome: &mut Outcome,
) {
    let cell = &device.cells[index];
    outcome.edges.push(Edge {
        device: device.number,
        rule: cell.rule,
        at_ms,
        matched: cell.matched(),
        held_since: (held_since != NEVER).then_some(held_since),
        last_fired: (cell.last_fired != NEVER).then_some(cell.last_fired),
        turned,
    });
}
