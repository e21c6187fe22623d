//! How readings lie in the database. Defined by `domain/telemetry/packing.py`, described in docs/engine.md.

use crate::message::Value;

const FALSE: u64 = 0;
const TRUE: u64 = 1;
pub(crate) const DOUBLE: u64 = 2;
const TEXT: u64 = 3;
pub(crate) const WHOLE: u64 = 4;
const LATEST_VERSION: u8 = 1;

/// A metric's entry in a checkpoint.
#[derive(Debug, PartialEq)]
pub struct LatestMetric<'a> {
    pub metric: u32,
    pub value: Value<'a>,
    pub ts_ms: i64,
    pub heard_ms: i64,
    pub unit: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable(pub &'static str);

#[inline]
pub fn put_number(out: &mut Vec<u8>, metric: u32, value: f64) {
    let whole = value as i32;
    // Equal bits leave out -0.0, fractions and all that i32 cannot hold; -2^31 is outside by definition.
    if f64::from(whole).to_bits() == value.to_bits() && whole != i32::MIN {
        put_varint(out, key(metric, WHOLE));
        put_varint(out, zigzag(i64::from(whole)));
    } else {
        put_varint(out, key(metric, DOUBLE));
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub fn put_value(out: &mut Vec<u8>, metric: u32, value: &Value<'_>) {
    match value {
        Value::Number(value) => put_number(out, metric, *value),
        Value::Bool(value) => put_varint(out, key(metric, if *value { TRUE } else { FALSE })),
        Value::Text(text) => {
            put_varint(out, key(metric, TEXT));
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// CRC-32 as a signed 32-bit integer.
pub fn digest(packed: &[u8]) -> i32 {
    crc32fast::hash(packed).cast_signed()
}

pub fn put_latest_head(out: &mut Vec<u8>, newest_ms: i64) {
    out.push(LATEST_VERSION);
    put_varint(out, zigzag(newest_ms));
}

pub fn put_latest(out: &mut Vec<u8>, newest_ms: i64, entry: &LatestMetric<'_>) {
    put_value(out, entry.metric, &entry.value);
    put_varint(out, zigzag(entry.ts_ms - newest_ms));
    put_varint(out, zigzag(entry.heard_ms - newest_ms));
    put_varint(out, entry.unit.map_or(0, |unit| unit.len() as u64 + 1));
    out.extend_from_slice(entry.unit.unwrap_or("").as_bytes());
}

/// The newest time and the metrics of a checkpoint.
pub fn read_latest(latest: &[u8]) -> Result<(i64, Vec<LatestMetric<'_>>), Unreadable> {
    let mut cursor = Cursor { data: latest };
    if cursor.take(1)? != [LATEST_VERSION] {
        return Err(Unreadable("this is no checkpoint that this version reads"));
    }
    let newest_ms = cursor.signed()?;
    let mut metrics = Vec::new();
    while !cursor.data.is_empty() {
        let (metric, value) = cursor.reading()?;
        let ts_ms = newest_ms.wrapping_add(cursor.signed()?);
        let heard_ms = newest_ms.wrapping_add(cursor.signed()?);
        let unit = match cursor.varint()? {
            0 => None,
            size => Some(cursor.text(size - 1)?),
        };
        metrics.push(LatestMetric {
            metric,
            value,
            ts_ms,
            heard_ms,
            unit,
        });
    }
    Ok((newest_ms, metrics))
}

/// The readings of a packed row, in the order of the message.
pub fn readings(packed: &[u8]) -> Readings<'_> {
    Readings {
        cursor: Cursor { data: packed },
    }
}

pub struct Readings<'a> {
    cursor: Cursor<'a>,
}

impl<'a> Iterator for Readings<'a> {
    type Item = Result<(u32, Value<'a>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.cursor.data.is_empty() {
            return None;
        }
        let reading = self.cursor.reading();
        if reading.is_err() {
            self.cursor.data = &[];
        }
        Some(reading)
    }
}

#[inline]
pub(crate) fn key(metric: u32, tag: u64) -> u64 {
    u64::from(metric) << 3 | tag
}

pub(crate) fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct Cursor<'a> {
    data: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn take(&mut self, size: u64) -> Result<&'a [u8], Unreadable> {
        let cut = usize::try_from(size)
            .ok()
            .and_then(|size| self.data.split_at_checked(size));
        let (part, rest) = cut.ok_or(Unreadable("packed readings end in the middle of a value"))?;
        self.data = rest;
        Ok(part)
    }

    fn text(&mut self, size: u64) -> Result<&'a str, Unreadable> {
        std::str::from_utf8(self.take(size)?)
            .map_err(|_| Unreadable("packed readings hold text that is not UTF-8"))
    }

    fn varint(&mut self) -> Result<u64, Unreadable> {
        let mut number = 0u128;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 && number <= u128::from(u64::MAX) {
                return Ok(number as u64);
            }
        }
        Err(Unreadable("packed readings hold a number that is too long"))
    }

    fn signed(&mut self) -> Result<i64, Unreadable> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    fn reading(&mut self) -> Result<(u32, Value<'a>), Unreadable> {
        let key = self.varint()?;
        let metric =
            u32::try_from(key >> 3).map_err(|_| Unreadable("a metric number is too large"))?;
        let value = match key & 7 {
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            DOUBLE => {
                let bytes = self
                    .take(8)?
                    .try_into()
                    .map_err(|_| Unreadable("a double has eight bytes"))?;
                Value::Number(f64::from_le_bytes(bytes))
            }
            TEXT => {
                let size = self.varint()?;
                Value::Text(self.text(size)?.into())
            }
            WHOLE => Value::Number(self.signed()? as f64),
            _ => return Err(Unreadable("packed readings hold an unknown tag")),
        };
        Ok((metric, value))
    }
}

#[cfg(test)]
mod tests {
    use super::{put_value, readings};
    use crate::message::Value;

    #[test]
    fn readings_come_back_as_they_went_in() {
        let values = [
            Value::Number(21.4),
            Value::Number(-3.0),
            Value::Number(-0.0),
            Value::Number(2147483648.0),
            Value::Number(-2147483648.0),
            Value::Bool(true),
            Value::Bool(false),
            Value::Text("é".into()),
        ];
        let mut packed = Vec::new();
        for (i, value) in values.iter().enumerate() {
            put_value(&mut packed, i as u32 * 1000, value);
        }
        let back: Vec<_> = readings(&packed).map(Result::unwrap).collect();
        for (i, value) in values.into_iter().enumerate() {
            assert_eq!(back[i], (i as u32 * 1000, value));
        }
        for cut in 1..packed.len() {
            let _ = readings(&packed[..cut]).count();
        }
    }
}
