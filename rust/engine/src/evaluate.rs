//! One evaluation of a device's rules at one instant. Defined by `domain/rules/reference.py`.

use crate::device::{Device, Kind};
use crate::outcome::{Edge, Outcome};
use crate::rules::{Check, EQUAL, GREATER, HEAD_ANY, LESS, NEVER, NO_DUE, Special, Test};

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
pub fn evaluate(device: &mut Device, at_ms: i64, which: Which, fired: &mut Vec<(u32, u32)>, outcome: &mut Outcome) {
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
            let matched = plain(&device.ops[first..end], &thresholds[first..end], values, cell.any());
            if matched != cell.matched() {
                turn_plain(device, index, matched, at_ms, fired, outcome);
            }
        }
        first = end;
    }
    if let Some(cold) = device.cold.as_mut() {
        cold.due = cold.specials.iter().map(|special| special.due).min().unwrap_or(NO_DUE);
    }
}

/// All conditions first, a bit each and without a branch; then the rules, which seldom turn.
#[inline]
fn evaluate_plain(device: &mut Device, at_ms: i64, fired: &mut Vec<(u32, u32)>, outcome: &mut Outcome) {
    let (values, thresholds) = device.floats.split_at(device.layout.len());
    let (ops, heads) = device.ops.split_at(thresholds.len());
    let mut hold: u64 = 0;
    for (place, (&op, &threshold)) in ops.iter().zip(thresholds).enumerate() {
        let holds = op as u8 & 7 & comparison(values[usize::from(op >> 3)], threshold) != 0;
        hold |= u64::from(holds) << place;
    }
    let mut matched: u64 = 0;
    for (place, &head) in heads.iter().enumerate() {
        let count = head & !HEAD_ANY;
        let wanted = (1 << count) - 1;
        let satisfied = hold & wanted;
        let matches = if head & HEAD_ANY != 0 { satisfied != 0 } else { satisfied == wanted };
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
        let hold = op as u8 & 7 & comparison(values[usize::from(op >> 3)], threshold) != 0;
        all_hold &= hold;
        one_holds |= hold;
    }
    if any { one_holds } else { all_hold }
}

/// The outcome as a bit; none for NaN.
#[inline]
fn comparison(value: f64, threshold: f64) -> u8 {
    LESS * u8::from(value < threshold) | EQUAL * u8::from(value == threshold) | GREATER * u8::from(value > threshold)
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
fn fire(device: &mut Device, index: usize, at_ms: i64, fired: &mut Vec<(u32, u32)>, outcome: &mut Outcome) {
    let cell = &mut device.cells[index];
    let command = cell.command();
    let opposite = match command {
        ON => OFF,
        OFF => ON,
        other => other,
    };
    match fired.iter().find(|(other, _)| *other == command || *other == opposite) {
        Some((_, winner)) => outcome.suppressed.push((device.number, cell.rule, at_ms, Some(*winner))),
        None => {
            cell.last_fired = at_ms;
            fired.push((command, cell.rule));
            outcome.fired.push((device.number, cell.rule, at_ms));
        }
    }
}

fn report(device: &Device, index: usize, held_since: i64, turned: bool, at_ms: i64, outcome: &mut Outcome) {
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

fn evaluate_special(
    device: &mut Device,
    index: usize,
    place: usize,
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let Some(special) = device.cold.as_ref().and_then(|cold| cold.specials.get(place)) else { return };
    if which == Which::Due && special.due > at_ms {
        return;
    }
    let was = device.cells[index].matched();
    let before = special.held_since;
    let (matched, held_since) = next(device, special, was, at_ms);
    let cooldown_ms = special.cooldown_ms;
    if matched != was {
        device.set_matched(index, matched);
    }
    if matched && !was {
        let last = device.cells[index].last_fired;
        if cooldown_ms > 0 && last != NEVER && at_ms.saturating_sub(last) < cooldown_ms {
            outcome.suppressed.push((device.number, device.cells[index].rule, at_ms, None));
        } else {
            fire(device, index, at_ms, fired, outcome);
        }
    }
    if matched != was || held_since != before {
        report(device, index, held_since, matched != was, at_ms, outcome);
    }
    if let Some(special) = device.cold.as_mut().and_then(|cold| cold.specials.get_mut(place)) {
        special.held_since = held_since;
    }
    set_due(device, index, place, at_ms);
}

/// (matched, held since) after this instant.
fn next(device: &Device, special: &Special, was: bool, at_ms: i64) -> (bool, i64) {
    let all = |checks: &[Check]| checks.iter().all(|check| holds(device, check, at_ms));
    let clear = !special.clear.is_empty() && all(&special.clear);
    let hold = if special.any {
        special.conditions.iter().any(|check| holds(device, check, at_ms))
    } else {
        all(&special.conditions)
    };
    if was {
        let stays = if special.clear.is_empty() { hold } else { !clear };
        return (stays, if stays { special.held_since } else { NEVER });
    }
    if clear || !hold {
        return (false, NEVER);
    }
    let since = if special.held_since == NEVER { at_ms } else { special.held_since };
    if at_ms.saturating_sub(since) < special.for_ms { (false, since) } else { (true, NEVER) }
}

fn holds(device: &Device, check: &Check, at_ms: i64) -> bool {
    let Some(slot) = check.slot else { return false };
    match &check.condition.test {
        // A text's number is NaN, so it satisfies nothing.
        Test::Number(mask, threshold) => mask & comparison(device.floats[slot], *threshold) != 0,
        Test::Text { equal, text } => {
            device.kind(slot) == Kind::Text
                && matches!(device.value(slot), Some(crate::message::Value::Text(last)) if (*last == **text) == *equal)
        }
        Test::Silent(quiet_ms) => silent_from(device, slot, *quiet_ms).is_some_and(|from| from <= at_ms),
    }
}

/// When a slot's silence is long enough; None before its first report.
fn silent_from(device: &Device, slot: usize, quiet_ms: i64) -> Option<i64> {
    device.value(slot)?;
    Some(device.times(slot).1.saturating_add(quiet_ms))
}

/// When time alone may next change the rule; `after` NEVER for a rule that was not evaluated yet.
fn set_due(device: &mut Device, index: usize, place: usize, after: i64) {
    let matched = device.cells[index].matched();
    let Some(special) = device.cold.as_ref().and_then(|cold| cold.specials.get(place)) else { return };
    let waits = !matched && special.held_since != NEVER;
    let reached = waits.then(|| special.held_since.saturating_add(special.for_ms));
    let silences = special.conditions.iter().chain(&special.clear).filter_map(|check| match check.condition.test {
        Test::Silent(quiet_ms) => silent_from(device, check.slot?, quiet_ms),
        _ => None,
    });
    let due = reached.into_iter().chain(silences).filter(|due| *due > after).min().unwrap_or(NO_DUE);
    if let Some(special) = device.cold.as_mut().and_then(|cold| cold.specials.get_mut(place)) {
        special.due = due;
    }
}

/// Set all deadlines anew, overdue ones included: after rules or values were put from outside.
pub fn rearm(device: &mut Device) {
    let mut place = 0;
    for index in 0..device.cells.len() {
        if device.cells[index].is_special() {
            set_due(device, index, place, NEVER);
            place += 1;
        }
    }
    if let Some(cold) = device.cold.as_mut() {
        cold.due = cold.specials.iter().map(|special| special.due).min().unwrap_or(NO_DUE);
    }
}
