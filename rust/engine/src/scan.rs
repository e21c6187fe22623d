//! The fast path: JSON objects of plain values under names the device has reported before, one or an array of them.
//!
//! It reads the payload once, without allocating, and gives up at anything else: new names, new units, escapes, nested values, a name
//! given twice, blanks before a colon, every error. What it gives up on, the general path (`message.rs`) reads from the start; what
//! it accepts, the general path would have accepted with the same result.

use crate::layout::Layout;
use crate::message::MAX_TEXT;
use crate::number;

#[derive(Debug, Default)]
pub struct Scanned {
    /// (slot, value) in the order of the payload
    pub readings: Vec<(u16, f64)>,
    /// Which of the readings are no numbers, by place.
    pub others: Vec<(usize, Other)>,
    /// The messages of an array.
    pub messages: Vec<Element>,
    /// Slots of the present message, a bit each.
    taken: u128,
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

    #[inline]
    fn put(&mut self, slot: usize, value: f64) -> Option<()> {
        let bit = 1u128.checked_shl(slot as u32)?;
        if self.taken & bit != 0 || value.is_infinite() {
            return None;
        }
        self.taken |= bit;
        self.readings.push((slot as u16, value));
        Some(())
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
    let mut ts = None;
    let mut enveloped = false;
    scanned.taken = 0;
    loop {
        at = skip_space(payload, at);
        if payload.get(at..)?.starts_with(b"\"ts\"") {
            at = expect(payload, at + 4, b':')?;
            let (value, end) = number::scan(payload, skip_space(payload, at))?;
            ts = Some(value);
            at = end;
        } else if let Some(inside) = opened(payload, at, b'm') {
            if enveloped || scanned.taken != 0 {
                return None;
            }
            enveloped = true;
            at = members(payload, inside, layout, scanned)?;
        } else if let Some(inside) = opened(payload, at, b'u') {
            at = units(payload, inside, layout)?;
        } else if enveloped {
            return None;
        } else {
            at = member(payload, at, layout, scanned)?;
        }
        at = skip_space(payload, at);
        match payload.get(at)? {
            b',' => at += 1,
            b'}' => return (scanned.taken != 0).then_some((ts, at + 1)),
            _ => return None,
        }
    }
}

/// Where the members of `"<letter>": {…}` begin, if that is what begins at `at`.
#[inline]
fn opened(payload: &[u8], at: usize, letter: u8) -> Option<usize> {
    if payload.get(at..at + 3)? != [b'"', letter, b'"'] {
        return None;
    }
    let colon = expect(payload, at + 3, b':')?;
    expect(payload, colon, b'{')
}

#[inline]
fn members(payload: &[u8], at: usize, layout: &Layout, scanned: &mut Scanned) -> Option<usize> {
    let mut at = at;
    loop {
        at = skip_space(payload, at);
        at = skip_space(payload, member(payload, at, layout, scanned)?);
        match payload.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

#[inline(always)]
fn member(payload: &[u8], at: usize, layout: &Layout, scanned: &mut Scanned) -> Option<usize> {
    let last = scanned.readings.last();
    let guess = last.map_or(0, |(slot, _)| usize::from(*slot) + 1);
    let (slot, colon) = layout.key_at(payload, at, guess)?;
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
        let (slot, colon) = layout.key_at(payload, skip_space(payload, at), guess)?;
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

#[inline]
fn expect(payload: &[u8], at: usize, byte: u8) -> Option<usize> {
    let at = skip_space(payload, at);
    (payload.get(at) == Some(&byte)).then_some(at + 1)
}

#[inline]
fn skip_space(payload: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = payload.get(at) {
        at += 1;
    }
    at
}
