//! JSON with exactly one form per value (RFC 8785). Defined by `domain/kernel/canonical_json.py`.

use std::cmp::Ordering;
use std::io::Write;

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

#[cfg(test)]
mod tests {
    use super::{compare_names, write_double, write_string};

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
