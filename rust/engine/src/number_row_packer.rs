//! Packs a message of numbers in a buffer of its own, word by word; the row is then copied in one piece. Same bytes as `reading_packing.rs`.

use crate::reading_packing::{TAG_DOUBLE, TAG_INTEGER, key, put_varint, zigzag};

/// Room for 128 metrics of at most 13 bytes, and for the word that the last one is written with.
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

    /// Same bytes as `reading_packing::put_number`. Panics beyond `CAPACITY`.
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

/// The key of this metric's doubles as `reading_packing.rs` encodes it, as one word; the tag is in the lowest bits of the first byte.
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
    use super::{EncodedMetricKey, NumberRowPacker};
    use crate::reading_packing::put_number;

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
