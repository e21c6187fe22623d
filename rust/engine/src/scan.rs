//! The fast path: a JSON object of plain numbers under names the device has reported before.
//!
//! It reads the payload once, without allocating, and gives up (`None`) at anything else: text, booleans, units, arrays, new names,
//! escapes, a name given twice, blanks before a colon, every error. What it gives up on, the general path (`message.rs`) reads from
//! the start; what it accepts, the general path would have accepted with the same result.

use crate::layout::Layout;
use crate::number;

#[derive(Debug, Default)]
pub struct Numbers {
    /// (slot, value) in the order of the message
    pub readings: Vec<(u16, f64)>,
    taken: u128,
}

impl Numbers {
    fn clear(&mut self) {
        self.readings.clear();
        self.taken = 0;
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

/// Fills `numbers`; gives the message's `ts`, if it has one.
#[inline]
pub fn scan(payload: &[u8], layout: &Layout, numbers: &mut Numbers) -> Option<Option<f64>> {
    numbers.clear();
    let mut at = expect(payload, 0, b'{')?;
    let mut ts = None;
    let mut enveloped = false;
    loop {
        at = skip_space(payload, at);
        let rest = payload.get(at..)?;
        if rest.starts_with(b"\"ts\"") {
            at = expect(payload, at + 4, b':')?;
            let (value, end) = number::scan(payload, skip_space(payload, at))?;
            ts = Some(value);
            at = end;
        } else if let Some(inside) = envelope(payload, at) {
            if enveloped || !numbers.readings.is_empty() {
                return None;
            }
            enveloped = true;
            at = members(payload, inside, layout, numbers)?;
        } else if enveloped {
            return None;
        } else {
            at = member(payload, at, layout, numbers)?;
        }
        at = skip_space(payload, at);
        match payload.get(at)? {
            b',' => at += 1,
            b'}' => break,
            _ => return None,
        }
    }
    (skip_space(payload, at + 1) == payload.len() && !numbers.readings.is_empty()).then_some(ts)
}

/// Where the members of `"m": {…}` begin, if that is what begins at `at`.
#[inline]
fn envelope(payload: &[u8], at: usize) -> Option<usize> {
    if !payload[at..].starts_with(b"\"m\"") {
        return None;
    }
    let colon = expect(payload, at + 3, b':')?;
    expect(payload, colon, b'{')
}

#[inline]
fn members(payload: &[u8], at: usize, layout: &Layout, numbers: &mut Numbers) -> Option<usize> {
    let mut at = at;
    loop {
        at = skip_space(payload, at);
        at = skip_space(payload, member(payload, at, layout, numbers)?);
        match payload.get(at)? {
            b',' => at += 1,
            b'}' => return Some(at + 1),
            _ => return None,
        }
    }
}

#[inline(always)]
fn member(payload: &[u8], at: usize, layout: &Layout, numbers: &mut Numbers) -> Option<usize> {
    let guess = numbers
        .readings
        .last()
        .map_or(0, |(slot, _)| usize::from(*slot) + 1);
    let (slot, colon) = layout.key_at(payload, at, guess)?;
    let (value, end) = number::scan(payload, skip_space(payload, colon))?;
    numbers.put(slot, value)?;
    Some(end)
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
