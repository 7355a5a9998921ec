//! Labels are decimal integers written as text, as in the `.cls` members of tar shards.

use forebay_core::{Error, Result};

/// The integer, with ASCII white space around it allowed and an optional sign.
pub fn parse(bytes: &[u8]) -> Result<i64> {
    let digits = bytes.trim_ascii();
    let shown = || format!("{}{}", digits[..digits.len().min(32)].escape_ascii(), if digits.len() > 32 { ".." } else { "" });
    let text = std::str::from_utf8(digits).map_err(|_| refused(&shown(), "it is not text"))?;
    text.parse().map_err(|cause: std::num::ParseIntError| refused(&shown(), &cause.to_string()))
}

fn refused(shown: &str, why: &str) -> Error {
    Error::corrupt(format!("decode label `{shown}`: {why}"))
        .with_hint("labels are decimal integers; take the field as text or json for anything else")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_integer_is_read_back(value: i64, plus: bool, pad in "[ \t\r\n]{0,3}") {
            let sign = if plus && value >= 0 { "+" } else { "" };
            prop_assert_eq!(parse(format!("{pad}{sign}{value:03}{pad}").as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn anything_else_is_corrupt() {
        for text in ["", " ", "-", "+-1", "1 2", "1.0", "1_000", "0x10", "٣", "9223372036854775808"] {
            let error = parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), forebay_core::ErrorKind::Corrupt, "{text:?}");
        }
        let long = parse(&[b'7'; 5000]).unwrap_err();
        assert!(long.message().len() < 120, "a long payload is not repeated in full");
        assert!(parse(b"\xff\n1").is_err());
    }
}
