//! The orientation tag of EXIF, found without reading the rest.
//!
//! Every offset is checked against the bytes at hand and no list is walked twice, so hostile metadata costs at most
//! one look at each of its entries. Damaged metadata means "upright", as in Pillow: pixels matter more.

/// Entries of one directory that are looked at; real ones have a few dozen.
const MAX_ENTRIES: usize = 512;

const ORIENTATION_TAG: u16 = 0x0112;
const SHORT: u16 = 3;

/// The orientation stored in a JPEG's EXIF segment, 1 to 8; 1 when there is none.
pub fn jpeg_orientation(payload: &[u8]) -> u8 {
    let mut rest = payload.get(2..).unwrap_or_default();
    while let [0xFF, marker, tail @ ..] = rest {
        match marker {
            // A fill byte before a marker.
            0xFF => rest = &rest[1..],
            // Markers without a length.
            0x01 | 0xD0..=0xD7 => rest = tail,
            // Pixels or the end: metadata lies before.
            0xDA | 0xD9 => break,
            _ => {
                let [high, low, ..] = tail else { break };
                let length = usize::from(u16::from_be_bytes([*high, *low]));
                let Some(body) = tail.get(2..length) else { break };
                if *marker == 0xE1
                    && let Some(tiff) = body.strip_prefix(b"Exif\0\0")
                {
                    return tiff_orientation(tiff);
                }
                rest = &tail[length..];
            }
        }
    }
    1
}

/// The orientation stored in a TIFF structure (the EXIF block of any format), 1 to 8; 1 when there is none.
pub fn tiff_orientation(tiff: &[u8]) -> u8 {
    find(tiff).filter(|value| (1..=8).contains(value)).map_or(1, |value| value as u8)
}

fn find(tiff: &[u8]) -> Option<u16> {
    let big = match tiff.get(..4)? {
        b"MM\0*" => true,
        b"II*\0" => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let bytes = *tiff.get(at..)?.first_chunk::<2>()?;
        Some(if big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    };
    let start = *tiff.get(4..)?.first_chunk::<4>()?;
    let start = if big { u32::from_be_bytes(start) } else { u32::from_le_bytes(start) } as usize;
    let entries = usize::from(u16_at(start)?).min(MAX_ENTRIES);
    let mut at = start.checked_add(2)?;
    for _ in 0..entries {
        if u16_at(at)? == ORIENTATION_TAG && u16_at(at.checked_add(2)?)? == SHORT {
            return u16_at(at.checked_add(8)?);
        }
        at = at.checked_add(12)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A JPEG's first bytes with an EXIF segment that holds one orientation entry.
    pub(crate) fn with_orientation(value: u16, big: bool) -> Vec<u8> {
        let u16s = |v: u16| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let u32s = |v: u32| if big { v.to_be_bytes() } else { v.to_le_bytes() };
        let mut tiff = if big { b"MM\0*".to_vec() } else { b"II*\0".to_vec() };
        tiff.extend(u32s(8));
        tiff.extend(u16s(2));
        for (tag, entry) in [(0x010F, 7), (ORIENTATION_TAG, value)] {
            tiff.extend(u16s(tag));
            tiff.extend(u16s(SHORT));
            tiff.extend(u32s(1));
            tiff.extend(u16s(entry));
            tiff.extend([0, 0]);
        }
        tiff.extend(u32s(0));
        let mut jpeg = vec![0xFF, 0xD8, 0xFF, 0xE0, 0, 4, 0, 0, 0xFF, 0xFF, 0xE1];
        jpeg.extend((2 + 6 + tiff.len() as u16).to_be_bytes());
        jpeg.extend(b"Exif\0\0");
        jpeg.extend(tiff);
        jpeg
    }

    #[test]
    fn both_byte_orders_and_all_values_are_read() {
        for big in [false, true] {
            for value in 0..12 {
                let expected = if (1..=8).contains(&value) { value as u8 } else { 1 };
                assert_eq!(jpeg_orientation(&with_orientation(value, big)), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn damaged_metadata_means_upright_and_never_panics(
            value in 0u16..9, big: bool, cut in 0usize..70, at in 0usize..70, byte: u8,
        ) {
            let mut bytes = with_orientation(value, big);
            if let Some(target) = bytes.get_mut(at) {
                *target = byte;
            }
            bytes.truncate(cut);
            prop_assert!((1..=8).contains(&jpeg_orientation(&bytes)));
            prop_assert!((1..=8).contains(&tiff_orientation(bytes.get(19..).unwrap_or_default())));
        }
    }
}
