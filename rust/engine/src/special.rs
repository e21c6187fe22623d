//! Rules that do more than compare numbers: they wait, cool down, hold on, listen for silence, or compare text.

use crate::device::{Device, Kind};
use crate::evaluate::{Which, fire, report, satisfies};
use crate::message::Value;
use crate::outcome::Outcome;
use crate::rules::{Check, NEVER, NO_DUE, Special, Test};

/// One special rule: its cell at `index`, the rest of it at `place`.
pub(crate) fn evaluate_special(
    device: &mut Device,
    index: usize,
    place: usize,
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let Some(special) = device
        .cold
        .as_ref()
        .and_then(|cold| cold.specials.get(place))
    else {
        return;
    };
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
            outcome
                .suppressed
                .push((device.number, device.cells[index].rule, at_ms, None));
        } else {
            fire(device, index, at_ms, fired, outcome);
        }
    }
    if matched != was || held_since != before {
        report(device, index, held_since, matched != was, at_ms, outcome);
    }
    if let Some(special) = device
        .cold
        .as_mut()
        .and_then(|cold| cold.specials.get_mut(place))
    {
        special.held_since = held_since;
    }
    set_due(device, index, place, at_ms);
}

/// (matched, held since) after this instant.
fn next(device: &Device, special: &Special, was: bool, at_ms: i64) -> (bool, i64) {
    let all = |checks: &[Check]| checks.iter().all(|check| holds(device, check, at_ms));
    let clear = !special.clear.is_empty() && all(&special.clear);
    let hold = if special.any {
        special
            .conditions
            .iter()
            .any(|check| holds(device, check, at_ms))
    } else {
        all(&special.conditions)
    };
    if was {
        let stays = if special.clear.is_empty() {
            hold
        } else {
            !clear
        };
        return (stays, if stays { special.held_since } else { NEVER });
    }
    if clear || !hold {
        return (false, NEVER);
    }
    let since = if special.held_since == NEVER {
        at_ms
    } else {
        special.held_since
    };
    if at_ms.saturating_sub(since) < special.for_ms {
        (false, since)
    } else {
        (true, NEVER)
    }
}

fn holds(device: &Device, check: &Check, at_ms: i64) -> bool {
    let Some(slot) = check.slot else { return false };
    match &check.condition.test {
        // A text's number is NaN, so it satisfies nothing.
        Test::Number(mask, threshold) => satisfies(*mask, device.floats[slot], *threshold),
        Test::Text { equal, text } => {
            device.kind(slot) == Kind::Text
                && matches!(device.value(slot), Some(Value::Text(last)) if (*last == **text) == *equal)
        }
        Test::Silent(quiet_ms) => {
            silent_from(device, slot, *quiet_ms).is_some_and(|from| from <= at_ms)
        }
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
    let Some(special) = device
        .cold
        .as_ref()
        .and_then(|cold| cold.specials.get(place))
    else {
        return;
    };
    let waits = !matched && special.held_since != NEVER;
    let reached = waits.then(|| special.held_since.saturating_add(special.for_ms));
    let silences = special
        .conditions
        .iter()
        .chain(&special.clear)
        .filter_map(|check| match check.condition.test {
            Test::Silent(quiet_ms) => silent_from(device, check.slot?, quiet_ms),
            _ => None,
        });
    let due = reached
        .into_iter()
        .chain(silences)
        .filter(|due| *due > after)
        .min()
        .unwrap_or(NO_DUE);
    if let Some(special) = device
        .cold
        .as_mut()
        .and_then(|cold| cold.specials.get_mut(place))
    {
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
        cold.due = cold
            .specials
            .iter()
            .map(|special| special.due)
            .min()
            .unwrap_or(NO_DUE);
    }
}
