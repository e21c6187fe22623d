//! JSON numbers to doubles, correctly rounded.
//!
//! Telemetry is short: a number whose digits and point are at most seven characters lies in one word, and is read there all digits at
//! once. In a longer one up to 19 digits are gathered into an integer. Where that integer is below 2^53 and the power of ten at most
//! 22, both are exact doubles and one operation rounds correctly (Clinger 1990). The rest goes to the standard library.

const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// 2^53: integers up to here are doubles.
const EXACT_MANTISSA: u64 = 1 << 53;
const MAX_DIGITS: usize = 19;

/// The number that begins at `at`, and where it ends. `None` when no JSON number begins there.
/// What is too large for a double is an infinity, as in the reference.
#[inline(always)]
pub fn scan(text: &[u8], at: usize) -> Option<(f64, usize)> {
    match short(text, at) {
        Some(found) => Some(found),
        None => long(text, at),
    }
}

/// The byte `byte` in each byte of a word.
const fn each(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// A number in one word; none of what may need more, or may be no number.
///
/// In the word a digit is its value: its character's bits without those of `0`. Offsets into it are counted in bits.
#[inline(always)]
fn short(text: &[u8], at: usize) -> Option<(f64, usize)> {
    const POINT: u8 = b'.' ^ b'0';
    const EXPONENT: u8 = b'E' ^ b'0';
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let word = eight(text, first) ^ each(b'0');
    // The top bit of each byte that is no digit.
    let others = ((word & each(0x7f)).wrapping_add(each(0x80 - 10)) | word) & each(0x80);
    let whole = others.trailing_zeros() & !7;
    if whole == 0 || others == 0 || (whole > 8 && word as u8 == 0) {
        return None;
    }
    let (digits, size, end) = if (word >> whole) as u8 == POINT {
        let after = others & (others - 1);
        let end = after.trailing_zeros() & !7;
        if after == 0 || end == whole + 8 {
            return None;
        }
        let before = (1 << whole) - 1;
        (word & before | word >> 8 & !before, end - 8, end)
    } else {
        (word, whole, whole)
    };
    if (word >> end) as u8 & !0x20 == EXPONENT & !0x20 {
        return None;
    }
    let power = EXACT_POWERS[((size - whole) / 8) as usize & 7];
    let magnitude = eight_digits(digits << (64 - size)) as f64 / power;
    let value = f64::from_bits(magnitude.to_bits() | u64::from(negative) << 63);
    Some((value, first + end as usize / 8))
}

/// Eight digits, the first in the lowest byte, as a number: pairs, then fours, then all.
#[inline(always)]
fn eight_digits(digits: u64) -> u32 {
    const PAIRS: u64 = 0x00ff_00ff_00ff_00ff;
    const FOURS: u64 = 0x0000_ffff_0000_ffff;
    let pairs = digits.wrapping_mul(1 + (10 << 8)) >> 8 & PAIRS;
    let fours = pairs.wrapping_mul(1 + (100 << 16)) >> 16 & FOURS;
    (fours.wrapping_mul(1 + (10_000 << 32)) >> 32) as u32
}

/// The eight bytes that begin at `at`; zeros for those beyond the end.
#[inline(always)]
fn eight(text: &[u8], at: usize) -> u64 {
    match text.get(at..).and_then(<[u8]>::first_chunk) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => eight_at_the_end(text, at),
    }
}

#[inline]
fn eight_at_the_end(text: &[u8], at: usize) -> u64 {
    let Some(last) = text.last_chunk() else {
        let rest = text.get(at..).unwrap_or_default();
        return rest
            .iter()
            .rev()
            .fold(0, |word, byte| word << 8 | u64::from(*byte));
    };
    let missing = (at + 8 - text.len()) as u32;
    u64::from_le_bytes(*last)
        .checked_shr(missing * 8)
        .unwrap_or(0)
}

/// Digits gathered into an integer, and how many they were.
struct Digits {
    value: u64,
    count: usize,
    end: usize,
}

#[inline]
fn digits(text: &[u8], at: usize, before: u64) -> Digits {
    let mut value = before;
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
fn long(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(negative);
    let whole = digits(text, first, 0);
    if whole.count == 0 || (whole.count > 1 && text[first] == b'0') {
        return None;
    }
    let mut fraction = Digits { count: 0, ..whole };
    if text.get(whole.end) == Some(&b'.') {
        fraction = digits(text, whole.end + 1, whole.value);
        if fraction.count == 0 {
            return None;
        }
    }
    let mut end = fraction.end;
    let mut exponent = -(fraction.count as i64);
    if let Some(b'e' | b'E') = text.get(end) {
        let (power, after) = power_of_ten(text, end + 1)?;
        exponent = exponent.saturating_add(power);
        end = after;
    }
    let exact = whole.count + fraction.count <= MAX_DIGITS && fraction.value <= EXACT_MANTISSA;
    let value = match exact
        .then(|| by_a_power(fraction.value, exponent))
        .flatten()
    {
        Some(magnitude) if negative => -magnitude,
        Some(magnitude) => magnitude,
        None => by_the_library(&text[at..end])?,
    };
    Some((value, end))
}

/// An exact double times an exact power of ten, if this one is.
#[inline]
fn by_a_power(mantissa: u64, exponent: i64) -> Option<f64> {
    let power = EXACT_POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    Some(if exponent < 0 {
        mantissa as f64 / power
    } else {
        mantissa as f64 * power
    })
}

#[cold]
fn by_the_library(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[inline]
fn digit_at(text: &[u8], at: usize) -> Option<u64> {
    let digit = text.get(at)?.wrapping_sub(b'0');
    (digit < 10).then_some(u64::from(digit))
}

#[cold]
fn power_of_ten(text: &[u8], at: usize) -> Option<(i64, usize)> {
    let negative = text.get(at) == Some(&b'-');
    let first = at + usize::from(matches!(text.get(at), Some(b'-' | b'+')));
    let mut i = first;
    let mut power: i64 = 0;
    while let Some(digit) = digit_at(text, i) {
        power = power.saturating_mul(10).saturating_add(digit as i64);
        i += 1;
    }
    (i > first).then_some((if negative { -power } else { power }, i))
}

#[cfg(test)]
mod tests {
    use super::scan;

    #[test]
    fn numbers_round_as_the_standard_library_rounds_them() {
        for text in [
            "0",
            "-0",
            "21.4",
            "1e22",
            "1e23",
            "9007199254740993",
            "123456789012345678901234567890",
            "0.1e-5",
            "1E+2",
            "-1.7976931348623157e308",
            "5e-324",
            "2.2250738585072011e-308",
            "1e999",
        ] {
            let expected: f64 = text.parse().unwrap();
            let (value, end) = scan(text.as_bytes(), 0).unwrap();
            assert_eq!(
                (value.to_bits(), end),
                (expected.to_bits(), text.len()),
                "{text}"
            );
        }
    }

    #[test]
    fn what_json_does_not_call_a_number_is_none() {
        for text in [
            "", "-", "01", "1.", ".5", "+1", "1e", "1e+", "x", "-x", "00",
        ] {
            assert_eq!(scan(text.as_bytes(), 0), None, "{text}");
        }
    }

    /// What follows a number, near to it and far from it.
    const BEHIND: [&str; 6] = ["", "}", ", ", "} ", ",\"humidity\":1}", "]\u{ff}\u{ff}"];

    #[test]
    fn every_number_is_read_as_the_standard_library_reads_it_wherever_the_text_ends() {
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
            let text = format!("{before}{number}{}", BEHIND[below(6) as usize]);
            let (value, end) = scan(text.as_bytes(), before.len()).unwrap();
            let expected: f64 = number.parse().unwrap();
            assert_eq!(value.to_bits(), expected.to_bits(), "{text}");
            assert_eq!(end, before.len() + number.len(), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none_whatever_follows() {
        for text in [
            "-", "01", "1.", ".5", "+1", "1e", "1e+", "x", "-x", "00.5", "-.5", "1.e5",
        ] {
            for behind in BEHIND {
                let text = format!("{text}{behind}");
                assert_eq!(scan(text.as_bytes(), 0), None, "{text}");
            }
        }
        assert_eq!(scan(b"1", 1), None);
        assert_eq!(scan(b"1", 9), None);
    }
}
