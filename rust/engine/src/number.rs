//! JSON numbers to doubles, correctly rounded.
//!
//! Up to 19 digits are gathered into an integer. Where that integer is below 2^53 and the power of ten at most 22, both are exact
//! doubles and one operation rounds correctly (Clinger 1990); telemetry is nearly always there. The rest goes to the standard library.

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
    let mut i = at;
    let negative = text.get(i) == Some(&b'-');
    i += usize::from(negative);
    let first = i;
    let mut mantissa: u64 = 0;
    while let Some(digit) = digit_at(text, i) {
        mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
        i += 1;
    }
    let whole = i - first;
    if whole == 0 || (whole > 1 && text[first] == b'0') {
        return None;
    }
    let mut digits = whole;
    let mut exponent: i64 = 0;
    if text.get(i) == Some(&b'.') {
        let fraction = i + 1;
        i = fraction;
        while let Some(digit) = digit_at(text, i) {
            mantissa = mantissa.wrapping_mul(10).wrapping_add(digit);
            i += 1;
        }
        if i == fraction {
            return None;
        }
        digits += i - fraction;
        exponent = -((i - fraction) as i64);
    }
    if let Some(b'e' | b'E') = text.get(i) {
        let (power, end) = power_of_ten(text, i + 1)?;
        exponent = exponent.saturating_add(power);
        i = end;
    }
    if digits <= MAX_DIGITS && mantissa <= EXACT_MANTISSA && exponent.unsigned_abs() <= 22 {
        let power = EXACT_POWERS[exponent.unsigned_abs() as usize];
        let magnitude = mantissa as f64;
        let value = if exponent < 0 {
            magnitude / power
        } else {
            magnitude * power
        };
        return Some((if negative { -value } else { value }, i));
    }
    Some((by_the_library(&text[at..i])?, i))
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
}
