//! The hash chain of the event log. Defined by `domain/events/hash_chain.py`.
//!
//! What is hashed is canonical JSON, which has exactly one form per value (RFC 8785); that part is defined by
//! `domain/kernel/canonical_json.py`. A hash is shown as lower-case hexadecimal digits.

use std::cmp::Ordering;
use std::io::Write;

use sha2::{Digest, Sha256};

pub type EventHash = [u8; 32];

/// An event as it is hashed, without its data.
pub struct EventHashInput<'a> {
    pub account_id: &'a str,
    pub address: &'a str,
    pub description: &'a str,
    pub device_id: &'a str,
    pub device_name: &'a str,
    pub kind: &'a str,
    pub event_id: &'a str,
    pub position: i64,
    pub sequence: i64,
    pub source: &'a str,
    pub at_ms: i64,
    pub writer: i64,
}

impl EventHashInput<'_> {
    /// In canonical JSON. `write_data` writes the event's data where it belongs.
    pub fn write<E>(&self, out: &mut Vec<u8>, write_data: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        text(out, "{\"accountId\":", self.account_id);
        text(out, ",\"address\":", self.address);
        out.extend_from_slice(b",\"data\":");
        write_data(out)?;
        text(out, ",\"description\":", self.description);
        text(out, ",\"deviceId\":", self.device_id);
        text(out, ",\"deviceName\":", self.device_name);
        text(out, ",\"eventType\":", self.kind);
        text(out, ",\"id\":", self.event_id);
        number(out, ",\"position\":", self.position);
        number(out, ",\"sequence\":", self.sequence);
        text(out, ",\"source\":", self.source);
        number(out, ",\"timestamp\":", self.at_ms);
        number(out, ",\"writer\":", self.writer);
        out.push(b'}');
        Ok(())
    }
}

fn text(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    write_string(out, value);
}

fn number(out: &mut Vec<u8>, name: &str, value: i64) {
    out.extend_from_slice(name.as_bytes());
    write_integer(out, value);
}

/// The hash of a record in canonical JSON: SHA-256 of the hash before it and of the record's digest.
pub fn link(previous: &EventHash, record: &[u8]) -> EventHash {
    let mut both = [0; 64];
    both[..32].copy_from_slice(previous);
    both[32..].copy_from_slice(&Sha256::digest(record));
    Sha256::digest(both).into()
}

/// 2^53: integers beyond it are written as the nearest double.
const EXACT_INTEGERS: u64 = 1 << 53;
/// ECMAScript writes larger numbers, and those below 10^-6, with an exponent.
const MOST_DIGITS: i32 = 21;

/// In quotes; control characters, quotes and backslashes are escaped, nothing else.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    // A Vec takes every write.
    let _ = serde_json::to_writer(out, text);
}

/// Whether JSON can hold this integer exactly; others are given to `write_double`.
pub fn is_exact(value: i64) -> bool {
    value.unsigned_abs() <= EXACT_INTEGERS
}

pub fn write_integer(out: &mut Vec<u8>, value: i64) {
    let _ = serde_json::to_writer(out, &value);
}

/// As ECMAScript's Number.toString: the shortest digits that give the same double. NaN and infinity are null.
pub fn write_double(out: &mut Vec<u8>, value: f64) {
    if !value.is_finite() {
        return out.extend_from_slice(b"null");
    }
    if value == 0.0 {
        return out.push(b'0');
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let shortest = format!("{:e}", value.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits = mantissa.replace('.', "");
    place_point(out, &digits, exponent.parse::<i32>().unwrap_or(0) + 1);
}

/// `digits` with the decimal point after `point` of them.
fn place_point(out: &mut Vec<u8>, digits: &str, point: i32) {
    let count = digits.len() as i32;
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    match point {
        _ if count <= point && point <= MOST_DIGITS => write_text(out, format_args!("{digits}{}", zeros(point - count))),
        1..=MOST_DIGITS => {
            let (whole, fraction) = digits.split_at(point as usize);
            write_text(out, format_args!("{whole}.{fraction}"));
        }
        -5..=0 => write_text(out, format_args!("0.{}{digits}", zeros(-point))),
        _ => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            write_text(out, format_args!("{first}{dot}{rest}e{:+}", point - 1));
        }
    }
}

/// The order of names in an object: by UTF-16 code units, which for ASCII is the order of bytes.
pub fn compare_names(one: &str, other: &str) -> Ordering {
    if one.is_ascii() && other.is_ascii() {
        return one.cmp(other);
    }
    one.encode_utf16().cmp(other.encode_utf16())
}

fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A Vec takes every write.
    let _ = out.write_fmt(text);
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Fills `digits`, two for each byte.
pub fn write_hex(bytes: &[u8], digits: &mut [u8]) {
    for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// None unless `text` is 64 hexadecimal digits.
pub fn parse_hash(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{compare_names, link, write_double, write_string};

    /// Of `hashlib.sha256(bytes(32) + hashlib.sha256(b"{}").digest())`.
    #[test]
    fn a_link_covers_the_hash_before_and_the_digest() {
        let linked = link(&[0; 32], b"{}");
        assert_eq!(linked[..4], LINK_OF_EMPTY);
        assert_ne!(linked, link(&[1; 32], b"{}"));
    }

    const LINK_OF_EMPTY: [u8; 4] = [0x96, 0x1a, 0xf6, 0x72];

    fn written(value: f64) -> String {
        let mut out = Vec::new();
        write_double(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    /// From RFC 8785, appendix B.
    #[test]
    fn doubles_have_the_form_of_ecmascript() {
        let cases = [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x7fff_ffff_ffff_ffff, "null"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
        ];
        for (bits, text) in cases {
            assert_eq!(written(f64::from_bits(bits)), text);
        }
    }

    #[test]
    fn strings_escape_what_json_demands() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"\\\n\u{8}\u{1f}\u{7f}é");
        assert_eq!(out, "\"a\\\"\\\\\\n\\b\\u001f\u{7f}é\"".as_bytes());
    }

    #[test]
    fn a_surrogate_pair_comes_before_the_end_of_the_basic_plane() {
        assert!(compare_names("\u{1f600}", "\u{fb33}").is_lt());
        assert!(compare_names("a", "b").is_lt());
    }
}
