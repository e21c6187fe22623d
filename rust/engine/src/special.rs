//! Rules that do more than compare numbers: they wait, cool down, hold on, listen for silence, or compare text.

use crate::device::{Device, Kind, Record};
use crate::evaluate::{Which, fire, report, satisfies};
use crate::message::Value;
use crate::outcome::Outcome;
use crate::rules::{Check, NEVER, NO_DUE, Special, Test};

/// One special rule: its cell at `index`, the rest of it at `place`.
pub(crate) fn evaluate_special(
    record: &mut Record<'_>,
    (index, place): (usize, usize),
    at_ms: i64,
    which: Which,
    fired: &mut Vec<(u32, u32)>,
    outcome: &mut Outcome,
) {
    let Some(special) = special_of(record.device, place) else {
        return;
    };
    if which == Which::Due && special.due > at_ms {
        return;
    }
    let was = record.device.matched(record.words, index);
    let before = special.held_since;
    let (matched, held_since) = next(record, special, was, at_ms);
    let cooldown_ms = special.cooldown_ms;
    if matched != was {
        record.set_matched(index, matched);
    }
    if matched && !was {
        let last = record.device.last_fired(record.words, index);
        if cooldown_ms > 0 && last != NEVER && at_ms.saturating_sub(last) < cooldown_ms {
            let rule = record.device.rule(record.words, index);
            let held_back = (record.device.number, rule, at_ms, None);
            outcome.suppressed.push(held_back);
        } else {
            fire(record, index, at_ms, fired, outcome);
        }
    }
    if matched != was || held_since != before {
        report(record, index, held_since, matched != was, at_ms, outcome);
    }
    if let Some(special) = special_of_mut(record.device, place) {
        special.held_since = held_since;
    }
    set_due(record, index, place, at_ms);
}

fn special_of(device: &Device, place: usize) -> Option<&Special> {
    device.cold.as_ref()?.specials.get(place)
}

fn special_of_mut(device: &mut Device, place: usize) -> Option<&mut Special> {
    device.cold.as_mut()?.specials.get_mut(place)
}

/// (matched, held since) after this instant.
fn next(record: &Record<'_>, special: &Special, was: bool, at_ms: i64) -> (bool, i64) {
    let all = |checks: &[Check]| checks.iter().all(|check| holds(record, check, at_ms));
    let clear = !special.clear.is_empty() && all(&special.clear);
    let hold = if special.any {
        special
            .conditions
            .iter()
            .any(|check| holds(record, check, at_ms))
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

fn holds(record: &Record<'_>, check: &Check, at_ms: i64) -> bool {
    let Some(slot) = check.slot else { return false };
    let (device, words) = (&*record.device, &*record.words);
    match &check.condition.test {
        // A text's number is NaN, so it satisfies nothing.
        Test::Number(mask, threshold) => satisfies(*mask, f64::from_bits(words[slot]), *threshold),
        Test::Text { equal, text } => {
            device.kind(slot) == Kind::Text
                && matches!(device.value(words, slot), Some(Value::Text(last)) if (*last == **text) == *equal)
        }
        Test::Silent(quiet_ms) => {
            silent_from(record, slot, *quiet_ms).is_some_and(|from| from <= at_ms)
        }
    }
}

/// When a slot's silence is long enough; None before its first report.
fn silent_from(record: &Record<'_>, slot: usize, quiet_ms: i64) -> Option<i64> {
    record.device.value(record.words, slot)?;
    Some(record.device.times(slot).1.saturating_add(quiet_ms))
}

/// When time alone may next change the rule; `after` NEVER for a rule that was not evaluated yet.
fn set_due(record: &mut Record<'_>, index: usize, place: usize, after: i64) {
    let matched = record.device.matched(record.words, index);
    let Some(special) = special_of(record.device, place) else {
        return;
    };
    let waits = !matched && special.held_since != NEVER;
    let reached = waits.then(|| special.held_since.saturating_add(special.for_ms));
    let checks = special.conditions.iter().chain(&special.clear);
    let silences = checks.filter_map(|check| match check.condition.test {
        Test::Silent(quiet_ms) => silent_from(record, check.slot?, quiet_ms),
        _ => None,
    });
    let dues = reached.into_iter().chain(silences);
    let due = dues.filter(|due| *due > after).min().unwrap_or(NO_DUE);
    if let Some(special) = special_of_mut(record.device, place) {
        special.due = due;
    }
}

/// Set all deadlines anew, overdue ones included: after rules or values were put from outside.
pub fn rearm(record: &mut Record<'_>) {
    let shape = record.device.shape.clone();
    let special = shape.cells.iter().enumerate();
    let special = special.filter(|(_, cell)| cell.is_special());
    for (place, (index, _)) in special.enumerate() {
        set_due(record, index, place, NEVER);
    }
    if let Some(cold) = record.device.cold.as_mut() {
        let dues = cold.specials.iter().map(|special| special.due);
        cold.due = dues.min().unwrap_or(NO_DUE);
    }
}
