//! Sizes and times as people write and read them. Configuration and messages use these; nothing else parses units.

use crate::{Error, Result};

/// Decimal and binary units by the letter both begin with.
const LETTERS: [char; 6] = ['k', 'm', 'g', 't', 'p', 'e'];
const NAMES: [&str; 7] = ["B", "KB", "MB", "GB", "TB", "PB", "EB"];

/// Reads a number of bytes: `4096`, `10k`, `500MB` (10^6), `64GiB` (2^30), `1.5 GB`. Case does not matter, a space may
/// stand before the unit, `_` between digits. What is left of a byte is dropped.
pub fn parse_bytes(text: &str) -> Result<u64> {
    let fault = |why: String| {
        Error::invalid_config(format!("read size `{text}`: {why}")).with_hint(
            "write a number and a unit, such as `4096`, `500MB` (10^6 bytes each) or `64GiB` (2^30)",
        )
    };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !matches!(c, '0'..='9' | '.' | '_')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start();
    let scale = scale_of(unit).ok_or_else(|| fault(format!("`{unit}` is not a unit of bytes")))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.chars().filter(char::is_ascii_digit).count();
    if digits(whole) + digits(fraction) == 0 || fraction.contains('.') {
        return Err(fault("it does not begin with a number".into()));
    }
    if scale == 1 && digits(fraction) > 0 {
        return Err(fault("a byte has no parts".into()));
    }
    let too_large = || fault("it is beyond 2^64 bytes".into());
    let mut value: u128 = 0;
    for digit in whole.bytes().filter(u8::is_ascii_digit) {
        value = value * 10 + u128::from(digit - b'0');
        if value > u128::from(u64::MAX) {
            return Err(too_large());
        }
    }
    let mut total = value * scale;
    // Nineteen digits behind the point reach below a byte of the largest unit.
    let mut part = scale * 10u128.pow(19);
    let mut parts = 0;
    for digit in fraction.bytes().filter(u8::is_ascii_digit).take(19) {
        part /= 10;
        parts += part * u128::from(digit - b'0');
    }
    total += parts / 10u128.pow(19);
    u64::try_from(total).map_err(|_| too_large())
}

/// Bytes of a unit; `None` for a word that is no unit.
fn scale_of(unit: &str) -> Option<u128> {
    let unit = unit.to_lowercase();
    if matches!(unit.as_str(), "" | "b") {
        return Some(1);
    }
    let mut rest = unit.chars();
    let first = rest.next()?;
    let power = 1 + LETTERS.iter().position(|letter| *letter == first)? as u32;
    match rest.as_str() {
        "" | "b" => Some(1000u128.pow(power)),
        "i" | "ib" => Some(1024u128.pow(power)),
        _ => None,
    }
}

/// A size for people, in decimal units with at most one digit behind the point: `512 B`, `4 KB`, `1.2 MB`.
pub fn format_bytes(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut unit: u128 = 1000;
    for name in &NAMES[1..] {
        let tenths = (u128::from(bytes) * 10 + unit / 2) / unit;
        if tenths < 10_000 {
            return if tenths.is_multiple_of(10) {
                format!("{} {name}", tenths / 10)
            } else {
                format!("{}.{} {name}", tenths / 10, tenths % 10)
            };
        }
        unit *= 1000;
    }
    unreachable!("2^64 bytes are less than 1000 EB")
}

/// A time for people: `3 µs`, `1.2 ms`, `340 ms`, `12.4 s`, `2 min 5 s`, `3 h 20 min`.
pub fn format_seconds(seconds: f64) -> String {
    if !seconds.is_finite() {
        return "unknown time".into();
    }
    if seconds < 0.0 {
        return format!("-{}", format_seconds(-seconds));
    }
    for (limit, scale, unit) in [(0.000_999_95, 1e6, "µs"), (0.999_95, 1e3, "ms"), (59.95, 1.0, "s")] {
        if seconds < limit {
            let value = format!("{:.1}", seconds * scale);
            return format!("{} {unit}", value.strip_suffix(".0").unwrap_or(&value));
        }
    }
    let whole = seconds.round() as u64;
    if whole < 3600 {
        return two_parts(whole / 60, "min", whole % 60, "s");
    }
    let minutes = (seconds / 60.0).round() as u64;
    two_parts(minutes / 60, "h", minutes % 60, "min")
}

fn two_parts(large: u64, large_unit: &str, small: u64, small_unit: &str) -> String {
    if small == 0 {
        format!("{large} {large_unit}")
    } else {
        format!("{large} {large_unit} {small} {small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4096", 4096),
            ("0", 0),
            ("10k", 10_000),
            ("10Ki", 10_240),
            ("500MB", 500_000_000),
            ("500 mb", 500_000_000),
            ("64GiB", 64 << 30),
            ("64gib", 64 << 30),
            ("1.5 GB", 1_500_000_000),
            ("1.5GiB", 3 << 29),
            (".5k", 500),
            ("0.1KiB", 102),
            ("1_000_000", 1_000_000),
            ("  7 B ", 7),
            ("2TiB", 2 << 40),
            ("1PB", 1_000_000_000_000_000),
            ("15.999999999999999999EiB", u64::MAX - 1),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
    }

    #[test]
    fn a_size_that_makes_no_sense_is_named_in_the_error() {
        for text in [
            "",
            "GB",
            "-1",
            "1.2.3GB",
            "1.5",
            "1 parsec",
            "1e9",
            "18446744073709551616",
            "16EiB",
            "_",
            ".",
            "1KBB",
        ] {
            let error = parse_bytes(text).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidConfig);
            assert!(error.message().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_with_one_digit_at_most() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1 KB"),
            (4000, "4 KB"),
            (1_234_567, "1.2 MB"),
            (999_949, "999.9 KB"),
            (999_950, "1 MB"),
            (64 << 30, "68.7 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(format_bytes(bytes), text);
        }
    }

    #[test]
    fn times_are_shown_in_the_unit_that_fits() {
        for (seconds, text) in [
            (0.0, "0 µs"),
            (0.000_003, "3 µs"),
            (0.0012, "1.2 ms"),
            (0.34, "340 ms"),
            (0.99996, "1 s"),
            (12.44, "12.4 s"),
            (59.96, "1 min"),
            (125.0, "2 min 5 s"),
            (3599.7, "1 h"),
            (12_000.0, "3 h 20 min"),
            (-0.5, "-500 ms"),
            (f64::NAN, "unknown time"),
        ] {
            assert_eq!(format_seconds(seconds), text);
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back_to_within_its_last_digit(bytes: u64) {
            let back = parse_bytes(&format_bytes(bytes)).unwrap();
            prop_assert!(back.abs_diff(bytes) as f64 <= bytes as f64 * 0.05 + 0.5, "{bytes} became {back}");
        }

        #[test]
        fn no_text_makes_a_size_panic(text in "[0-9._ kKmMgGiIbBeE-]{0,40}") {
            let _ = parse_bytes(&text);
        }
    }
}
