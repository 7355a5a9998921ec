//! Small integers packed by bits: runs and groups of eight (levels, numbers of dictionary entries), and differences.

use forebay_core::{Error, Result};

/// `count` integers of `width` bits, as runs of one value and groups of eight. Gives how many bytes were read.
///
/// ```text
/// varint n   n even: n/2 times one value of ceil(width/8) bytes   n odd: n/2 groups of eight values of width bits
/// ```
pub(super) fn hybrid(bytes: &[u8], width: u32, count: usize, to: &mut Vec<u32>) -> Result<usize> {
    if width > 32 {
        return Err(Error::corrupt(format!("integers of {width} bits are packed as small ones")));
    }
    let (mut at, end) = (0, to.len() + count);
    to.reserve(count);
    while to.len() < end {
        let head = varint(bytes, &mut at)?;
        let left = end - to.len();
        if head & 1 == 0 {
            let bytes_each = width.div_ceil(8) as usize;
            let mut value = [0; 4];
            value[..bytes_each].copy_from_slice(bytes.get(at..at + bytes_each).ok_or_else(cut_off)?);
            at += bytes_each;
            let times = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            if times == 0 {
                return Err(Error::corrupt("a run of packed integers is empty"));
            }
            to.resize(to.len() + times.min(left), u32::from_le_bytes(value));
        } else {
            let groups = usize::try_from(head >> 1).unwrap_or(usize::MAX);
            let length = groups.checked_mul(width as usize).ok_or_else(cut_off)?;
            // The last group of some writers ends where the values do.
            let packed = &bytes[at..at.saturating_add(length).min(bytes.len())];
            let values = groups.saturating_mul(8).min(left);
            if values == 0 || (values as u64 * u64::from(width)).div_ceil(8) > packed.len() as u64 {
                return Err(cut_off());
            }
            let mut reader = Bits { bytes: packed, at: 0 };
            to.extend((0..values).map(|_| reader.take(width) as u32));
            at += packed.len();
        }
    }
    Ok(at)
}

/// As many integers as told, each told as the difference from the one before. Gives how many bytes were read.
///
/// ```text
/// varint block size   varint miniblocks in a block   varint count   zigzag first
/// block: zigzag least difference   u8 width of each miniblock   the miniblocks' differences, less the least
/// ```
pub(super) fn deltas(bytes: &[u8], most: usize, to: &mut Vec<i64>) -> Result<usize> {
    let damaged = || Error::corrupt("its differences are damaged");
    let mut at = 0;
    let block = varint(bytes, &mut at)?;
    let minis = varint(bytes, &mut at)?;
    let count = usize::try_from(varint(bytes, &mut at)?).map_err(|_| damaged())?;
    let first = zigzag(varint(bytes, &mut at)?);
    let per_mini =
        block.checked_div(minis).filter(|per| *per > 0 && per.is_multiple_of(8) && block <= 1 << 24);
    let (Some(per_mini), Ok(minis)) = (per_mini, usize::try_from(minis)) else { return Err(damaged()) };
    if count > most {
        return Err(Error::corrupt(format!("it tells {count} values where there are at most {most}")));
    }
    if count == 0 {
        return Ok(at);
    }
    to.reserve(count);
    let (mut value, mut left) = (first, count - 1);
    to.push(value);
    while left > 0 {
        let least = zigzag(varint(bytes, &mut at)?);
        let widths = bytes.get(at..at.saturating_add(minis)).ok_or_else(cut_off)?;
        at += minis;
        for width in widths {
            if left == 0 {
                break;
            }
            if *width > 64 {
                return Err(damaged());
            }
            let length = (per_mini as usize / 8) * usize::from(*width);
            let packed = bytes.get(at..at.saturating_add(length)).ok_or_else(cut_off)?;
            at += length;
            let mut reader = Bits { bytes: packed, at: 0 };
            for _ in 0..left.min(per_mini as usize) {
                let step = reader.take(u32::from(*width)) as i64;
                value = value.wrapping_add(least).wrapping_add(step);
                to.push(value);
                left -= 1;
            }
        }
    }
    Ok(at)
}

pub(super) fn varint(bytes: &[u8], at: &mut usize) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or_else(cut_off)?;
        *at += 1;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Ok(value);
        }
    }
    Err(Error::corrupt("an integer is too long"))
}

fn zigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Bits from the lowest of the first byte on. Behind the end they are zero.
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Bits<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next `width` bits, at most 64.
    pub(super) fn take(&mut self, width: u32) -> u64 {
        let (first, shift) = (self.at / 8, self.at % 8);
        self.at += width as usize;
        if width == 0 {
            return 0;
        }
        let mut wide = [0u8; 16];
        let from = &self.bytes[first.min(self.bytes.len())..];
        let length = from.len().min(9);
        wide[..length].copy_from_slice(&from[..length]);
        let value = (u128::from_le_bytes(wide) >> shift) as u64;
        if width == 64 { value } else { value & ((1 << width) - 1) }
    }
}

pub(super) fn cut_off() -> Error {
    Error::corrupt("its values are cut off")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_and_groups_read_as_the_format_describes_them() {
        let mut found = Vec::new();
        // The format's own example: 0 to 7 in three bits each; then five times 6.
        let bytes = [3, 0b1000_1000, 0b1100_0110, 0b1111_1010, 10, 6];
        assert_eq!(hybrid(&bytes, 3, 13, &mut found).unwrap(), 6);
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn differences_read_as_the_format_describes_them() {
        // 7, 5, 3, 1, 2, 3, 4, 5: least difference -2, the others in two bits.
        let mut bytes = vec![128, 1, 4, 8, 14, 3, 2, 0, 0, 0];
        let steps = [0u16, 0, 0, 3, 3, 3, 3];
        let packed = steps.iter().rev().fold(0u16, |all, step| all << 2 | step);
        bytes.extend(packed.to_le_bytes());
        bytes.extend([0; 6]);
        let mut found = Vec::new();
        assert_eq!(deltas(&bytes, 8, &mut found).unwrap(), bytes.len());
        assert_eq!(found, [7, 5, 3, 1, 2, 3, 4, 5]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_integers_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..60), width in 0u32..40, count in 0usize..300,
        ) {
            let (mut small, mut large) = (Vec::new(), Vec::new());
            if hybrid(&bytes, width, count, &mut small).is_ok() {
                prop_assert_eq!(small.len(), count);
            }
            let _ = deltas(&bytes, count, &mut large);
            prop_assert!(large.len() <= count.max(1));
        }
    }
}
