//! JSON numbers to doubles, correctly rounded.
//!
//! Most numbers in telemetry are short: up to seven characters fit into one 64-bit word, and all their digits are read at once. In a
//! longer number up to 19 digits are collected in an integer. If that integer is at most 2^53 and the power of ten at most 22, both
//! are exact doubles and one operation rounds correctly (Clinger 1990). The standard library reads the rest.

const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21,
    1e22,
];
/// 2^53: every integer up to here is an exact double.
const EXACT_MANTISSA: u64 = 1 << 53;
const MAX_DIGITS: usize = 19;

/// The number that begins at `at`, and where it ends. None when no JSON number (RFC 8259, section 6) begins there.
/// A number too large for a double is an infinity, as in the reference.
#[inline(always)]
pub fn parse(text: &[u8], at: usize) -> Option<(f64, usize)> {
    match parse_short(text, at) {
        Some(found) => Some(found),
        None => parse_long(text, at),
    }
}

/// A word whose eight bytes are all `byte`.
const fn repeat_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// A number that ends within one word. None when it may be longer, or may be no number.
///
/// The word is XORed with `0` characters, so that each digit's byte is its value. Offsets into the word are counted in bits.
#[inline(always)]
fn parse_short(text: &[u8], at: usize) -> Option<(f64, usize)> {
    const POINT: u8 = b'.' ^ b'0';
    const EXPONENT: u8 = b'E' ^ b'0';
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let word = load_8(text, first) ^ repeat_byte(b'0');
    // The top bit of each byte that is not a digit.
    let non_digits = ((word & repeat_byte(0x7f)).wrapping_add(repeat_byte(0x80 - 10)) | word) & repeat_byte(0x80);
    let integer = non_digits.trailing_zeros() & !7;
    if integer == 0 || non_digits == 0 || (integer > 8 && word as u8 == 0) {
        return None;
    }
    let (digits, size, end) = if (word >> integer) as u8 == POINT {
        let after = non_digits & (non_digits - 1);
        let end = after.trailing_zeros() & !7;
        if after == 0 || end == integer + 8 {
            return None;
        }
        let before = (1 << integer) - 1;
        (word & before | word >> 8 & !before, end - 8, end)
    } else {
        (word, integer, integer)
    };
    if (word >> end) as u8 & !0x20 == EXPONENT & !0x20 {
        return None;
    }
    let power = EXACT_POWERS[((size - integer) / 8) as usize & 7];
    let magnitude = parse_8_digits(digits << (64 - size)) as f64 / power;
    let value = f64::from_bits(magnitude.to_bits() | u64::from(negative) << 63);
    Some((value, first + end as usize / 8))
}

/// The value of eight digits, the first in the lowest byte: combines pairs, then fours, then all.
#[inline(always)]
fn parse_8_digits(digits: u64) -> u32 {
    const PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    const FOURS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = digits.wrapping_mul(1 + (10 << 8)) >> 8 & PAIRS;
    let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & FOURS;
    (fours.wrapping_mul(1 + (10_000 << 32)) >> 32) as u32
}

/// The eight bytes that begin at `at`; bytes beyond the end are zero.
#[inline(always)]
fn load_8(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => load_last(text, at),
    }
}

#[inline]
fn load_last(text: &[u8], at: usize) -> u64 {
    let Some(last) = text.last_chunk() else {
        let rest = text.get(at..).unwrap_or_default();
        return rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    };
    let missing = (at + 8 - text.len()) as u32;
    u64::from_le_bytes(*last).checked_shr(missing * 8).unwrap_or(0)
}

/// Digits collected in an integer, how many there are, and where they end.
struct Digits {
    value: u64,
    count: usize,
    end: usize,
}

#[inline]
fn digits(text: &[u8], at: usize, prefix: u64) -> Digits {
    let mut value = prefix;
    let mut end = at;
    while let Some(digit) = digit_at(text, end) {
        value = value.wrapping_mul(10).wrapping_add(digit);
        end += 1;
    }
    Digits {
        value,
        count: end - at,
        end,
    }
}

/// A number of any length.
fn parse_long(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let integer = digits(text, first, 0);
    if integer.count == 0 || (integer.count > 1 && text[first] == b'0') {
        return None;
    }
    let mut fraction = Digits { count: 0, ..integer };
    if text.get(integer.end) == Some(&b'.') {
        fraction = digits(text, integer.end + 1, integer.value);
        if fraction.count == 0 {
            return None;
        }
    }
    let mut end = fraction.end;
    let mut exponent = -(fraction.count as i64);
    if let Some(b'e' | b'E') = text.get(end) {
        let (power, after) = exponent_at(text, end + 1)?;
        exponent = exponent.saturating_add(power);
        end = after;
    }
    let exact = integer.count + fraction.count <= MAX_DIGITS && fraction.value <= EXACT_MANTISSA;
    let value = match exact.then(|| scale_exactly(fraction.value, exponent)).flatten() {
        Some(magnitude) if negative => -magnitude,
        Some(magnitude) => magnitude,
        None => parse_with_std(&text[at..end])?,
    };
    Some((value, end))
}

/// An exact double times a power of ten, if that is exact too.
#[inline]
fn scale_exactly(mantissa: u64, exponent: i64) -> Option<f64> {
    let power = EXACT_POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    Some(if exponent < 0 {
        mantissa as f64 / power
    } else {
        mantissa as f64 * power
    })
}

#[cold]
fn parse_with_std(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[inline]
fn digit_at(text: &[u8], at: usize) -> Option<u64> {
    let digit = text.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

#[cold]
fn exponent_at(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(matches!(text.get(at), Some(b'-' | b'+')));
    let mut end = first;
    let mut power: i64 = 0;
    while let Some(digit) = digit_at(text, end) {
        power = power.saturating_mul(10).saturating_add(digit as i64);
        end += 1;
    }
    (end > first).then_some((if negative { -power } else { power }, end))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn numbers_round_as_the_standard_library_rounds_them() {
        let texts = "0 -0 21.4 1e22 1e23 9007199254740993 123456789012345678901234567890 0.1e-5 1E+2 \
            -1.7976931348623157e308 5e-324 2.2250738585072011e-308 1e999";
        for text in texts.split(' ') {
            let expected: f64 = text.parse().unwrap();
            let (value, end) = parse(text.as_bytes(), 0).unwrap();
            assert_eq!((value.to_bits(), end), (expected.to_bits(), text.len()), "{text}");
        }
    }

    /// Text after a number, shorter and longer than a word.
    const SUFFIXES: [&str; 6] = ["", "}", ", ", "} ", ",\"humidity\":1}", "]\u{ff}\u{ff}"];

    #[test]
    fn random_numbers_equal_the_standard_library_wherever_the_text_ends() {
        let mut state: u64 = 88_172_645_463_325_252;
        let mut below = |bound: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % bound
        };
        for round in 0..300_000 {
            let sign = ["", "", "-"][below(3) as usize];
            let size = [10, 100, 10_000, 100_000_000, 1 << 53][below(5) as usize];
            let mut number = format!("{sign}{}", below(size));
            if below(3) > 0 {
                let width = 1 + below(9) as usize;
                number += &format!(".{:0width$}", below(10u64.pow(width as u32)));
            }
            if below(8) == 0 {
                let (e, sign) = (["e", "E"][below(2) as usize], ["", "+", "-"][round % 3]);
                number += &format!("{e}{sign}{}", below(30));
            }
            let before = ["", " ", "{\"a\": "][below(3) as usize];
            let text = format!("{before}{number}{}", SUFFIXES[below(6) as usize]);
            let (value, end) = parse(text.as_bytes(), before.len()).unwrap();
            let expected: f64 = number.parse().unwrap();
            assert_eq!(value.to_bits(), expected.to_bits(), "{text}");
            assert_eq!(end, before.len() + number.len(), "{text}");
        }
    }

    #[test]
    fn text_that_is_not_a_number_is_none_whatever_follows() {
        for text in " - 01 1. .5 +1 1e 1e+ x -x 00 00.5 -.5 1.e5".split(' ') {
            for suffix in SUFFIXES {
                let text = format!("{text}{suffix}");
                assert_eq!(parse(text.as_bytes(), 0), None, "{text}");
            }
        }
        assert_eq!(parse(b"1", 1), None);
        assert_eq!(parse(b"1", 9), None);
    }
}
