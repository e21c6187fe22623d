//! A message of numbers, packed word by word before it goes to the arena in one piece. The bytes are those of `packing.rs`.

use crate::packing::{DOUBLE, WHOLE, key, put_varint, zigzag};

/// A message of numbers is packed here before it goes to the arena in one piece: 128 metrics of at most 13 bytes fit, and the word
/// that the last is written with.
pub struct Scratch {
    bytes: [u8; SCRATCH],
    len: usize,
}

const SCRATCH: usize = 2048;

impl Default for Scratch {
    fn default() -> Self {
        Self {
            bytes: [0; SCRATCH],
            len: 0,
        }
    }
}

impl Scratch {
    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// As `put_number` packs it. There must be room; see `SCRATCH`.
    #[inline(always)]
    pub fn put_number(&mut self, key: Key, value: f64) {
        let room = &mut self.bytes[self.len..self.len + ROOM];
        let whole = value as i32;
        let size = usize::from(key.size) & (KEY - 1);
        if f64::from(whole).to_bits() == value.to_bits() && whole != i32::MIN {
            room[..KEY].copy_from_slice(&(key.bytes ^ (DOUBLE ^ WHOLE)).to_le_bytes());
            self.len += size;
            self.put_varint(zigzag(i64::from(whole)));
        } else {
            room[..KEY].copy_from_slice(&key.bytes.to_le_bytes());
            room[size..size + 8].copy_from_slice(&value.to_le_bytes());
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

/// What a double of this metric begins with, ready to be written as one word; the tag is in the lowest bits of its first byte.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    bytes: u64,
    size: u8,
}

/// A word; a key of a 32-bit number has at most five bytes.
const KEY: usize = 8;
/// A key, as a word, and eight bytes of value.
const ROOM: usize = KEY + 8;

impl Key {
    pub fn new(metric: u32) -> Self {
        let mut text = Vec::with_capacity(KEY);
        put_varint(&mut text, key(metric, DOUBLE));
        let size = text.len() as u8;
        text.resize(KEY, 0);
        let bytes = text
            .iter()
            .rev()
            .fold(0, |bytes, byte| bytes << 8 | u64::from(*byte));
        Self { bytes, size }
    }
}

#[cfg(test)]
mod tests {
    use super::{Key, Scratch};
    use crate::packing::put_number;

    #[test]
    fn a_message_of_numbers_is_packed_as_its_numbers_are_one_by_one() {
        let values = [
            21.4,
            -3.0,
            -0.0,
            0.0,
            f64::NAN,
            2147483647.0,
            2147483648.0,
            -2147483648.0,
            1e300,
        ];
        let mut scratch = Scratch::default();
        for metric in [0, 1, 15, 16, 2047, 2048, 262_143, 262_144, u32::MAX] {
            scratch.clear();
            let mut expected = Vec::new();
            for value in values {
                scratch.put_number(Key::new(metric), value);
                put_number(&mut expected, metric, value);
            }
            assert_eq!(scratch.bytes(), expected, "{metric}");
        }
    }
}
