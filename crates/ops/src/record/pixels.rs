//! Bare pixels as a PNG without compression, so that columns of images take them like any other image.

use bytes::Bytes;
use forebay_core::{Error, Result};
use png::{BitDepth, ColorType, Compression, Encoder, Filter};

/// An image of `[rows, columns]` or `[rows, columns, channels]` bytes.
pub(super) fn png(shape: &[usize], data: &[u8]) -> Result<Bytes> {
    let (color, rows, columns) = match *shape {
        [rows, columns] | [rows, columns, 1] => (ColorType::Grayscale, rows, columns),
        [rows, columns, 2] => (ColorType::GrayscaleAlpha, rows, columns),
        [rows, columns, 3] => (ColorType::Rgb, rows, columns),
        [rows, columns, 4] => (ColorType::Rgba, rows, columns),
        _ => {
            return Err(Error::unsupported(format!("take an array of shape {shape:?} as an image"))
                .with_hint("take it as an array"));
        }
    };
    let fault =
        |cause| Error::corrupt(format!("take an array of shape {shape:?} as an image")).with_source(cause);
    let side = |length: usize| u32::try_from(length).unwrap_or_default();
    let mut made = Vec::with_capacity(data.len() + rows + 1024);
    let mut encoder = Encoder::new(&mut made, side(columns), side(rows));
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    encoder.set_compression(Compression::NoCompression);
    encoder.set_filter(Filter::NoFilter);
    let mut writer = encoder.write_header().map_err(fault)?;
    writer.write_image_data(data).map_err(fault)?;
    writer.finish().map_err(fault)?;
    Ok(made.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_read_back_and_strange_shapes_are_refused() {
        let png = png(&[2, 3, 3], &[9; 18]).unwrap();
        let header = crate::decode::png::header(&png).unwrap();
        assert_eq!((header.width, header.height), (3, 2));
        for shape in [&[2, 3, 5][..], &[18], &[0, 3, 3], &[2, 3, 4]] {
            assert!(super::png(shape, &[9; 18]).is_err(), "{shape:?}");
        }
    }
}
