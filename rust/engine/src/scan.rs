//! The fast path: JSON objects of plain values under names the device has reported before, one or an array of them.
//!
//! It reads the payload once, without allocating, and gives up at anything else: new names, new units, escapes, nested values, a name
//! given twice, blanks before a colon, every error. What it gives up on, the general path (`message.rs`) reads from the start; what
//! it accepts, the general path would have accepted with the same result.

use crate::layout::Layout;
use crate::message::MAX_TEXT;
use crate::number;
use crate::punctuation::{ends, expect, opened, skip_space};

#[derive(Debug, Default)]
pub struct Scanned {
    /// (slot, value) in the order of the payload
    pub readings: Vec<(u16, f64)>,
    /// Which of the readings are no numbers, by place.
    pub others: Vec<(usize, Other)>,
    /// The messages of an array.
    pub messages: Vec<Element>,
    /// Where the readings of the present message begin.
    first: usize,
    /// Above all slots of the present message.
    above: usize,
    /// The slot that comes next, if the device repeats itself.
    guess: usize,
}

#[derive(Debug, Clone, Copy)]
pub enum Other {
    Bool(bool),
    /// Where in the payload it lies.
    Text(usize, usize),
}

/// A message of an array: its `ts`, and where its readings and the others among them end.
#[derive(Debug, Clone, Copy)]
pub struct Element {
    pub ts: Option<f64>,
    pub readings: usize,
    pub others: usize,
}

impl Scanned {
    fn clear(&mut self) {
        self.readings.clear();
        self.others.clear();
        self.messages.clear();
    }

    fn begin(&mut self) {
        self.first = self.readings.len();
        self.above = 0;
        self.guess = 0;
    }

    fn is_empty(&self) -> bool {
        self.readings.len() == self.first
    }

    /// None where the slot has a value already, or the value is none.
    #[inline(always)]
    fn put(&mut self, slot: usize, value: f64) -> Option<()> {
        if value.is_infinite() || (slot < self.above && self.has(slot)) {
            return None;
        }
        self.above = self.above.max(slot + 1);
        self.guess = slot + 1;
        self.readings.push((slot as u16, value));
        Some(())
    }

    #[inline]
    fn has(&self, slot: usize) -> bool {
        let readings = &self.readings[self.first..];
        readings
            .iter()
            .any(|(other, _)| usize::from(*other) == slot)
    }
}

/// Fills `scanned` from a payload that is one object; gives the message's `ts`, if it has one.
#[inline]
pub fn scan(payload: &[u8], layout: &Layout, scanned: &mut Scanned) -> Option<Option<f64>> {
    scanned.clear();
    let (ts, end) = object(payload, 0, layout, scanned)?;
    (skip_space(payload, end) == payload.len()).then_some(ts)
}

/// Fills `scanned` from a payload that is an array of objects.
pub fn scan_array(payload: &[u8], layout: &Layout, scanned: &mut Scanned) -> Option<()> {
    scanned.clear();
    let mut at = expect(payload, 0, b'[')?;
    loop {
        let (ts, end) = object(payload, at, layout, scanned)?;
        scanned.messages.push(Element {
            ts,
            readings: scanned.readings.len(),
            others: scanned.others.len(),
        });
        at = skip_space(payload, end) + 1;
        match payload.get(at - 1)? {
            b',' => {}
            b']' => return (skip_space(payload, at) == payload.len()).then_some(()),
            _ => return None,
        }
    }
}

/// The object that begins at `at`, its `ts`, and where it ends.
#[inline(always)]
fn object(
    payload: &[u8],
    at: usize,
    layout: &Layout,
    scanned: &mut Scanned,
) -> Option<(Option<f64>, usize)> {
    let mut at = expect(payload, at, b'{')?;
    let mut head = Head::default();
    scanned.begin();
    loop {
        at = skip_space(payload, at);
        let is_plain = !head.enveloped && !layout.reports_envelope;
        let guessed = if is_plain {
            repeated(payload, at, layout, scanned)
        } else {
            None
        };
        at = match guessed {
            Some(end) => end,
            None => head.member(payload, at, layout, scanned)?,
        };
        let end = ends(payload, at)?;
        at = end.at;
        if end.closed {
            return (!scanned.is_empty()).then_some((head.ts, at));
        }
    }
}

/// What stands in an object beside its readings.
#[derive(Default)]
struct Head {
    ts: Option<f64>,
    enveloped: bool,
}

impl Head {
    /// Where the member at `at` ends, whatever it is.
    fn member(
        &mut self,
        payload: &[u8],
        at: usize,
        layout: &Layout,
        scanned: &mut Scanned,
    ) -> Option<usize> {
        if payload.get(at..)?.starts_with(b"\"ts\"") {
            let begin = expect(payload, at + 4, b':')?;
            let (value, end) = number::scan(payload, skip_space(payload, begin))?;
            self.ts = Some(value);
            return Some(end);
        }
        if let Some(inside) = opened(payload, at, b'm') {
            if self.enveloped || !scanned.is_empty() {
                return None;
            }
            self.enveloped = true;
            return members(payload, inside, layout, scanned);
        }
        if let Some(inside) = opened(payload, at, b'u') {
            return units(payload, inside, layout);
        }
        if self.enveloped {
            return None;
        }
        member(payload, at, layout, scanned)
    }
}

#[inline]
fn members(payload: &[u8], at: usize, layout: &Layout, scanned: &mut Scanned) -> Option<usize> {
    let mut at = at;
    loop {
        at = skip_space(payload, at);
        at = match repeated(payload, at, layout, scanned) {
            Some(end) => end,
            None => member(payload, at, layout, scanned)?,
        };
        let end = ends(payload, at)?;
        at = end.at;
        if end.closed {
            return Some(at);
        }
    }
}

/// Where the member at `at` ends, if it is a number under the name that was guessed.
#[inline(always)]
fn repeated(payload: &[u8], at: usize, layout: &Layout, scanned: &mut Scanned) -> Option<usize> {
    let slot = scanned.guess;
    let colon = layout.key_of(payload, at, slot)?;
    let (value, end) = number::scan(payload, skip_space(payload, colon))?;
    scanned.put(slot, value)?;
    Some(end)
}

fn member(payload: &[u8], at: usize, layout: &Layout, scanned: &mut Scanned) -> Option<usize> {
    let (slot, colon) = layout.key_at(payload, at)?;
    let begin = skip_space(payload, colon);
    let Some((value, end)) = number::scan(payload, begin) else {
        return other(payload, begin, slot, scanned);
    };
    scanned.put(slot, value)?;
    Some(end)
}

/// A value that is no number.
#[inline(never)]
fn other(payload: &[u8], at: usize, slot: usize, scanned: &mut Scanned) -> Option<usize> {
    let rest = payload.get(at..)?;
    let (other, value, end) = if rest.starts_with(b"true") {
        (Other::Bool(true), 1.0, at + 4)
    } else if rest.starts_with(b"false") {
        (Other::Bool(false), 0.0, at + 5)
    } else {
        let end = text(payload, at)?;
        (Other::Text(at + 1, end), f64::NAN, end + 1)
    };
    scanned.others.push((scanned.readings.len(), other));
    scanned.put(slot, value)?;
    Some(end)
}

/// Where the text whose quote is at `at` ends; None if it is anything but plain.
fn text(payload: &[u8], at: usize) -> Option<usize> {
    if payload.get(at) != Some(&b'"') {
        return None;
    }
    let rest = &payload[at + 1..];
    let ends = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let size = rest.iter().position(ends)?;
    let plain = rest[size] == b'"'
        && (size <= MAX_TEXT
            || std::str::from_utf8(&rest[..size]).ok()?.chars().count() <= MAX_TEXT)
        && (rest[..size].is_ascii() || std::str::from_utf8(&rest[..size]).is_ok());
    plain.then_some(at + 1 + size)
}

/// Units that are those known already, and so change nothing.
fn units(payload: &[u8], at: usize, layout: &Layout) -> Option<usize> {
    // Where `u` may also be a metric, the two could be one key given twice.
    if layout.reports_u {
        return None;
    }
    let mut at = at;
    let mut guess = 0;
    loop {
        let key = skip_space(payload, at);
        let guessed = layout.key_of(payload, key, guess);
        let (slot, colon) = match guessed {
            Some(colon) => (guess, colon),
            None => layout.key_at(payload, key)?,
        };
        let begin = skip_space(payload, colon);
        let end = text(payload, begin)?;
        if layout.slots[slot].unit.as_deref()?.as_bytes() != &payload[begin + 1..end] {
            return None;
        }
        guess = slot + 1;
        at = skip_space(payload, end + 1) + 1;
        match payload.get(at - 1)? {
            b',' => {}
            b'}' => return Some(at),
            _ => return None,
        }
    }
}
