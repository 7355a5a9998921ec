//! Labels are decimal integers written as text, as in the `.cls` members of tar shards.

use forebay_core::tensor::Dtype;
use forebay_core::{Error, Result};
use half::{bf16, f16};

/// The integer, with ASCII white space around it allowed and an optional sign.
pub fn decode(payload: &[u8]) -> Result<i64> {
    let digits = payload.trim_ascii();
    let shown = || {
        format!(
            "{}{}",
            digits[..digits.len().min(32)].escape_ascii(),
            if digits.len() > 32 { ".." } else { "" }
        )
    };
    let text = std::str::from_utf8(digits).map_err(|_| refused(&shown(), "it is not text"))?;
    text.parse().map_err(|cause: std::num::ParseIntError| refused(&shown(), &cause.to_string()))
}

/// Writes a label as one element of a column, or says that it does not fit.
///
/// # Panics
/// When `row` is not one element long.
pub fn write(label: i64, dtype: Dtype, row: &mut [u8]) -> Result<()> {
    // Floats take labels up to their whole-number range; beyond it, neighbors would become one class.
    let whole = |digits: u32| (label.unsigned_abs() <= 1 << digits).then_some(label as f64);
    let written = match dtype {
        Dtype::Bool => (0..=1).contains(&label).then(|| put(row, [label as u8])),
        Dtype::U8 => u8::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::U16 => u16::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::U32 => u32::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::U64 => u64::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::I8 => i8::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::I16 => i16::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::I32 => i32::try_from(label).ok().map(|value| put(row, value.to_ne_bytes())),
        Dtype::I64 => {
            put(row, label.to_ne_bytes());
            return Ok(());
        }
        Dtype::F16 => whole(11).map(|value| put(row, f16::from_f64(value).to_ne_bytes())),
        Dtype::Bf16 => whole(8).map(|value| put(row, bf16::from_f64(value).to_ne_bytes())),
        Dtype::F32 => whole(24).map(|value| put(row, (value as f32).to_ne_bytes())),
        Dtype::F64 => whole(53).map(|value| put(row, value.to_ne_bytes())),
    };
    written.ok_or_else(|| {
        Error::corrupt(format!("write label {label} as {}: it does not fit", dtype.name()))
            .with_hint("ask for a larger `dtype` of the label")
    })
}

/// The label that [`write`] wrote as one element; `None` when there is no such.
pub fn read(dtype: Dtype, element: &[u8]) -> Option<i64> {
    let whole =
        |value: f64| (value.fract() == 0.0 && value.abs() <= (1u64 << 53) as f64).then_some(value as i64);
    match dtype {
        Dtype::Bool | Dtype::U8 => element.first().copied().map(i64::from),
        Dtype::I8 => Some(i8::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::U16 => Some(u16::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::I16 => Some(i16::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::U32 => Some(u32::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::I32 => Some(i32::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::U64 => u64::from_ne_bytes(element.try_into().ok()?).try_into().ok(),
        Dtype::I64 => Some(i64::from_ne_bytes(element.try_into().ok()?)),
        Dtype::F16 => whole(f16::from_ne_bytes(element.try_into().ok()?).to_f64()),
        Dtype::Bf16 => whole(bf16::from_ne_bytes(element.try_into().ok()?).to_f64()),
        Dtype::F32 => whole(f32::from_ne_bytes(element.try_into().ok()?).into()),
        Dtype::F64 => whole(f64::from_ne_bytes(element.try_into().ok()?)),
    }
}

fn put<const N: usize>(row: &mut [u8], value: [u8; N]) {
    row.copy_from_slice(&value);
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
            prop_assert_eq!(decode(format!("{pad}{sign}{value:03}{pad}").as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn labels_are_written_when_they_fit_and_refused_when_they_do_not() {
        let rows: [(Dtype, i64, i64); 8] = [
            (Dtype::Bool, 1, 2),
            (Dtype::U8, 255, 256),
            (Dtype::I8, -128, -129),
            (Dtype::I32, i64::from(i32::MIN), 1 << 31),
            (Dtype::U64, i64::MAX, -1),
            (Dtype::F16, 2048, 2049),
            (Dtype::Bf16, -256, 257),
            (Dtype::F32, 1 << 24, (1 << 24) + 1),
        ];
        for (dtype, fits, too_large) in rows {
            let mut row = vec![0; dtype.size()];
            write(fits, dtype, &mut row).unwrap();
            assert_eq!(read(dtype, &row), Some(fits), "{dtype:?}");
            assert!(write(too_large, dtype, &mut row).is_err(), "{dtype:?} {too_large}");
        }
        let mut row = [0; 8];
        write(-7, Dtype::I64, &mut row).unwrap();
        assert_eq!(i64::from_ne_bytes(row), -7);
        write(i64::MIN + 1, Dtype::I64, &mut row).unwrap();
        assert!(write(i64::MIN, Dtype::F64, &mut row).is_err());
    }

    #[test]
    fn anything_else_is_corrupt() {
        for text in ["", " ", "-", "+-1", "1 2", "1.0", "1_000", "0x10", "٣", "9223372036854775808"] {
            let error = decode(text.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), forebay_core::ErrorKind::Corrupt, "{text:?}");
        }
        let long = decode(&[b'7'; 5000]).unwrap_err();
        assert!(long.message().len() < 120, "a long payload is not repeated in full");
        assert!(decode(b"\xff\n1").is_err());
    }
}
