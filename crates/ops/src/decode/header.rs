//! What an image says about itself before it is decoded, and the check that keeps a small lie from taking much memory.

use forebay_core::{Error, Result};

/// Width and height as the first bytes of an image claim them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

impl ImageHeader {
    /// Number of pixels.
    pub fn pixels(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Refuses empty images and images of more than `max_pixels`, before anything is allocated for them.
    pub fn check(self, format: &str, max_pixels: u64) -> Result<()> {
        let Self { width, height } = self;
        if width == 0 || height == 0 {
            return Err(Error::corrupt(format!("decode {format}: the size is {width}x{height}")));
        }
        if self.pixels() > max_pixels {
            let message = format!(
                "decode {format} of {width}x{height}: {} pixels are more than max_pixels = {max_pixels}",
                self.pixels()
            );
            return Err(Error::exhausted(message).with_hint("raise `max_pixels` of the image if it is meant to be so large"));
        }
        Ok(())
    }
}

/// Gives `buffer` exactly `len` bytes, or an error instead of an abort when memory is short.
pub(super) fn resize(buffer: &mut Vec<u8>, len: usize, format: &str) -> Result<()> {
    let missing = len.saturating_sub(buffer.len());
    buffer
        .try_reserve_exact(missing)
        .map_err(|cause| Error::exhausted(format!("decode {format}: take {len} bytes of memory")).with_source(cause))?;
    buffer.resize(len, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn the_limit_is_inclusive_and_sizes_near_u32_max_do_not_wrap() {
        let check = |width, height, max| ImageHeader { width, height }.check("png", max).map_err(|e| e.kind());
        assert_eq!(check(10, 10, 100), Ok(()));
        assert_eq!(check(10, 10, 99), Err(ErrorKind::Exhausted));
        assert_eq!(check(0, 10, 100), Err(ErrorKind::Corrupt));
        assert_eq!(check(u32::MAX, u32::MAX, u64::from(u32::MAX)), Err(ErrorKind::Exhausted));
    }
}
