//! The binary form of readings and checkpoints in the database. Defined by `domain/telemetry/packing.py`, described in
//! docs/explanation/engine.md.
//!
//! A message of numbers, which most are, is packed by `NumberRowPacker` word by word in a buffer of its own and then copied in one
//! piece. Law: it writes the same bytes as `put_number`.

use crate::payload_parser::MetricValue;

const TAG_FALSE: u64 = 0;
const TAG_TRUE: u64 = 1;
const TAG_DOUBLE: u64 = 2;
const TAG_TEXT: u64 = 3;
const TAG_INTEGER: u64 = 4;
/// First byte of a row whose device reported a later time.
const REPORTED: u8 = 5;
/// Before the values of a checkpoint that rules do not see.
const LATER: u8 = 6;
const CHECKPOINT_VERSION: u8 = 1;

/// A metric's latest value, with its time and its arrival, as a checkpoint has it.
#[derive(Debug, PartialEq)]
pub struct LatestValue<'a> {
    pub metric: u32,
    pub value: MetricValue<'a>,
    pub ts_ms: i64,
    pub received_ms: i64,
    pub unit: Option<&'a str>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct UnpackError(pub &'static str);

#[inline]
pub fn put_number(out: &mut Vec<u8>, metric: u32, value: f64) {
    let integer = value as i32;
    // Bits differ for -0.0, fractions and values outside i32; the format excludes -2^31.
    if f64::from(integer).to_bits() == value.to_bits() && integer != i32::MIN {
        put_varint(out, key(metric, TAG_INTEGER));
        put_varint(out, zigzag(i64::from(integer)));
    } else {
        put_varint(out, key(metric, TAG_DOUBLE));
        out.extend_from_slice(&value.to_le_bytes());
    }
}

pub fn put_value(out: &mut Vec<u8>, metric: u32, value: &MetricValue<'_>) {
    match value {
        MetricValue::Number(value) => put_number(out, metric, *value),
        MetricValue::Bool(value) => put_varint(out, key(metric, if *value { TAG_TRUE } else { TAG_FALSE })),
        MetricValue::Text(text) => {
            put_varint(out, key(metric, TAG_TEXT));
            put_varint(out, text.len() as u64);
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Begins a row whose device reported a time that is this much after the row's.
pub fn put_ahead(out: &mut Vec<u8>, ahead_ms: i64) {
    out.push(REPORTED);
    put_varint(out, zigzag(ahead_ms));
}

/// How far the reported time is after the row's, if the row has one, and its readings in the order of the message.
pub fn decode_row(packed: &[u8]) -> Result<(Option<i64>, PackedReadingIterator<'_>), UnpackError> {
    let mut cursor = PackedBytesReader { data: packed };
    let mut ahead_ms = None;
    if packed.first() == Some(&REPORTED) {
        cursor.take(1)?;
        ahead_ms = Some(cursor.signed()?);
    }
    Ok((ahead_ms, PackedReadingIterator { cursor }))
}

/// CRC-32 as a signed 32-bit integer.
pub fn digest(packed: &[u8]) -> i32 {
    crc32fast::hash(packed).cast_signed()
}

pub fn put_checkpoint_header(out: &mut Vec<u8>, newest_ms: i64) {
    out.push(CHECKPOINT_VERSION);
    put_varint(out, zigzag(newest_ms));
}

pub fn put_checkpoint_entry(out: &mut Vec<u8>, newest_ms: i64, entry: &LatestValue<'_>) {
    put_value(out, entry.metric, &entry.value);
    put_varint(out, zigzag(entry.ts_ms - newest_ms));
    put_varint(out, zigzag(entry.received_ms - newest_ms));
    put_varint(out, entry.unit.map_or(0, |unit| unit.len() as u64 + 1));
    out.extend_from_slice(entry.unit.unwrap_or("").as_bytes());
}

/// Of the values of a later time than those before, which rules see.
pub fn begin_later(out: &mut Vec<u8>) {
    out.push(LATER);
}

/// The time of the newest message, the metrics, and their later values that rules do not see.
type DecodedCheckpoint<'a> = (i64, Vec<LatestValue<'a>>, Vec<LatestValue<'a>>);

pub fn read_checkpoint(checkpoint: &[u8]) -> Result<DecodedCheckpoint<'_>, UnpackError> {
    let mut cursor = PackedBytesReader { data: checkpoint };
    if cursor.take(1)? != [CHECKPOINT_VERSION] {
        return Err(UnpackError("this version does not read this checkpoint"));
    }
    let newest_ms = cursor.signed()?;
    let (mut metrics, mut later) = (Vec::new(), Vec::new());
    let mut is_later = false;
    while !cursor.data.is_empty() {
        if !is_later && cursor.data[0] == LATER {
            cursor.take(1)?;
            is_later = true;
        }
        let (metric, value) = cursor.reading()?;
        let ts_ms = newest_ms.wrapping_add(cursor.signed()?);
        let received_ms = newest_ms.wrapping_add(cursor.signed()?);
        let unit = match cursor.varint()? {
            0 => None,
            size => Some(cursor.text(size - 1)?),
        };
        let of = if is_later { &mut later } else { &mut metrics };
        of.push(LatestValue {
            metric,
            value,
            ts_ms,
            received_ms,
            unit,
        });
    }
    Ok((newest_ms, metrics, later))
}

pub struct PackedReadingIterator<'a> {
    cursor: PackedBytesReader<'a>,
}

impl<'a> Iterator for PackedReadingIterator<'a> {
    type Item = Result<(u32, MetricValue<'a>), UnpackError>;

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
fn key(metric: u32, tag: u64) -> u64 {
    u64::from(metric) << 3 | tag
}

fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

struct PackedBytesReader<'a> {
    data: &'a [u8],
}

impl<'a> PackedBytesReader<'a> {
    fn take(&mut self, size: u64) -> Result<&'a [u8], UnpackError> {
        let split = usize::try_from(size).ok().and_then(|size| self.data.split_at_checked(size));
        let (part, rest) = split.ok_or(UnpackError("packed readings end in the middle of a value"))?;
        self.data = rest;
        Ok(part)
    }

    fn text(&mut self, size: u64) -> Result<&'a str, UnpackError> {
        std::str::from_utf8(self.take(size)?).map_err(|_| UnpackError("packed readings hold text that is not UTF-8"))
    }

    fn varint(&mut self) -> Result<u64, UnpackError> {
        let mut number = 0u128;
        for shift in (0..70).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u128::from(byte & 0x7f) << shift;
            if byte < 0x80 && number <= u128::from(u64::MAX) {
                return Ok(number as u64);
            }
        }
        Err(UnpackError("packed readings hold a number that is too long"))
    }

    fn signed(&mut self) -> Result<i64, UnpackError> {
        let zigzag = self.varint()?;
        Ok((zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed())
    }

    fn reading(&mut self) -> Result<(u32, MetricValue<'a>), UnpackError> {
        let key = self.varint()?;
        let metric = u32::try_from(key >> 3).map_err(|_| UnpackError("a metric number is too large"))?;
        let value = match key & 7 {
            TAG_FALSE => MetricValue::Bool(false),
            TAG_TRUE => MetricValue::Bool(true),
            TAG_DOUBLE => {
                let bytes = self
                    .take(8)?
                    .try_into()
                    .map_err(|_| UnpackError("a double has eight bytes"))?;
                MetricValue::Number(f64::from_le_bytes(bytes))
            }
            TAG_TEXT => {
                let size = self.varint()?;
                MetricValue::Text(self.text(size)?.into())
            }
            TAG_INTEGER => MetricValue::Number(self.signed()? as f64),
            _ => return Err(UnpackError("packed readings hold an unknown tag")),
        };
        Ok((metric, value))
    }
}

/// A buffer with room for 128 metrics of at most 13 bytes, and for the word that the last one is written with.
pub struct NumberRowPacker {
    bytes: [u8; CAPACITY],
    len: usize,
}

const CAPACITY: usize = 2048;

impl Default for NumberRowPacker {
    fn default() -> Self {
        Self {
            bytes: [0; CAPACITY],
            len: 0,
        }
    }
}

impl NumberRowPacker {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Same bytes as the function `put_number`. Panics beyond `CAPACITY`.
    #[inline(always)]
    pub fn put_number(&mut self, key: EncodedMetricKey, value: f64) {
        let entry = &mut self.bytes[self.len..self.len + MAX_ENTRY];
        let integer = value as i32;
        let size = usize::from(key.size) & (KEY_WORD - 1);
        if f64::from(integer).to_bits() == value.to_bits() && integer != i32::MIN {
            entry[..KEY_WORD].copy_from_slice(&(key.bytes ^ (TAG_DOUBLE ^ TAG_INTEGER)).to_le_bytes());
            self.len += size;
            self.put_varint(zigzag(i64::from(integer)));
        } else {
            entry[..KEY_WORD].copy_from_slice(&key.bytes.to_le_bytes());
            entry[size..size + 8].copy_from_slice(&value.to_le_bytes());
            self.len += size + 8;
        }
    }

    #[inline]
    fn put_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes[self.len] = number as u8 | 0x80;
            self.len += 1;
            number >>= 7;
        }
        self.bytes[self.len] = number as u8;
        self.len += 1;
    }
}

/// The encoded key of this metric's doubles, as one word; the tag is in the lowest bits of the first byte.
#[derive(Debug, Clone, Copy)]
pub struct EncodedMetricKey {
    bytes: u64,
    size: u8,
}

/// Bytes written for a key; the key of a 32-bit number has at most five.
const KEY_WORD: usize = 8;
/// A key word and eight bytes of value.
const MAX_ENTRY: usize = KEY_WORD + 8;

impl EncodedMetricKey {
    pub fn new(metric: u32) -> Self {
        let mut encoded = Vec::with_capacity(KEY_WORD);
        put_varint(&mut encoded, key(metric, TAG_DOUBLE));
        let size = encoded.len() as u8;
        encoded.resize(KEY_WORD, 0);
        let bytes = encoded.iter().rev().fold(0, |bytes, byte| bytes << 8 | u64::from(*byte));
        Self { bytes, size }
    }
}

#[cfg(test)]
mod tests {
    use super::{EncodedMetricKey, NumberRowPacker, decode_row, put_ahead, put_number, put_value};

    use crate::payload_parser::MetricValue;

    #[test]
    fn readings_survive_packing_and_unpacking() {
        let numbers = [21.4, -3.0, -0.0, 2147483648.0, -2147483648.0].map(MetricValue::Number);
        let mut values = numbers.to_vec();
        values.extend([true, false].map(MetricValue::Bool));
        values.push(MetricValue::Text("é".into()));
        let mut packed = Vec::new();
        for (i, value) in values.iter().enumerate() {
            put_value(&mut packed, i as u32 * 1000, value);
        }
        let back: Vec<_> = decode_row(&packed).unwrap().1.map(Result::unwrap).collect();
        for (i, value) in values.into_iter().enumerate() {
            assert_eq!(back[i], (i as u32 * 1000, value));
        }
        for split in 1..packed.len() {
            let _ = decode_row(&packed[..split]).unwrap().1.count();
        }
        let mut late = Vec::new();
        put_ahead(&mut late, 3_600_000);
        assert_eq!(decode_row(&late).unwrap().0, Some(3_600_000));
        assert!(decode_row(&late[..1]).is_err());
    }

    #[test]
    fn the_bytes_equal_those_of_packing_one_by_one() {
        let max = 2f64.powi(31);
        let values = [21.4, -3.0, -0.0, 0.0, f64::NAN, max - 1.0, max, -max, 1e300];
        let mut writer = NumberRowPacker::default();
        for metric in [0, 1, 15, 16, 2047, 2048, 262_143, 262_144, u32::MAX] {
            writer.clear();
            let mut expected = Vec::new();
            for value in values {
                writer.put_number(EncodedMetricKey::new(metric), value);
                put_number(&mut expected, metric, value);
            }
            assert_eq!(writer.bytes(), expected, "{metric}");
        }
    }
}
