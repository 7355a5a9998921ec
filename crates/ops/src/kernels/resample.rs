//! Executing a geometry: cut, resample and frame one 8-bit image. Mirrors are left to the caller, because the
//! finishing pass makes them for nothing.

use crate::geometry::{Border, Geometry, Grid};
use crate::image::{Image, ImageRef, Rect};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3, U8x4};
use fast_image_resize::{FilterType, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use forebay_core::recipe::Filter;
use forebay_core::{Error, Result};

/// Memory of the resampler, reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    resizer: Resizer,
    inner: Image,
}

impl Resampler {
    /// Writes what `geometry` makes of a source to `target`. `piece` holds the pixels `covered` of that source, at
    /// least those that are needed.
    ///
    /// # Panics
    /// When `target` is not as long as the result, or `covered` lacks a needed pixel.
    pub(crate) fn run(
        &mut self,
        piece: ImageRef<'_>,
        covered: Rect,
        geometry: &Geometry,
        target: &mut [u8],
    ) -> Result<()> {
        let (width, height) = (geometry.width(), geometry.height());
        let channels = piece.channels;
        let stride = width as usize * channels;
        assert_eq!(target.len(), stride * height as usize, "a target of {width}x{height}x{channels}");
        if geometry.window.is_empty() {
            target.fill(geometry.border.value);
            return Ok(());
        }
        if geometry.border.is_empty() {
            return self.window(piece, covered, geometry, target);
        }
        let mut inner = std::mem::take(&mut self.inner);
        inner.reshape(geometry.window.width, geometry.window.height, channels);
        let made = self.window(piece, covered, geometry, inner.pixels_mut());
        frame(&inner, geometry.border, target);
        self.inner = inner;
        made
    }

    fn window(
        &mut self,
        piece: ImageRef<'_>,
        covered: Rect,
        geometry: &Geometry,
        target: &mut [u8],
    ) -> Result<()> {
        let Geometry { visible, window, .. } = *geometry;
        let Some(grid) = geometry.grid else {
            let x = visible.x + window.x - covered.x;
            let y = visible.y + window.y - covered.y;
            piece.copy_rect(Rect { x, y, ..window }, target);
            return Ok(());
        };
        let filter = match grid.filter {
            Filter::Nearest => {
                nearest(piece, covered, geometry, grid, target);
                return Ok(());
            }
            Filter::Bilinear => FilterType::Bilinear,
            Filter::Bicubic => FilterType::CatmullRom,
            Filter::Lanczos => FilterType::Lanczos3,
        };
        match piece.channels {
            1 => self.convolve::<U8>(piece, covered, geometry, filter, target),
            3 => self.convolve::<U8x3>(piece, covered, geometry, filter, target),
            4 => self.convolve::<U8x4>(piece, covered, geometry, filter, target),
            other => Err(Error::internal(format!("resample an image: {other} channels"))),
        }
    }

    fn convolve<P: PixelTrait + InnerPixel>(
        &mut self,
        piece: ImageRef<'_>,
        covered: Rect,
        geometry: &Geometry,
        filter: FilterType,
        target: &mut [u8],
    ) -> Result<()> {
        let fault = |cause: &dyn std::fmt::Display| Error::internal(format!("resample an image: {cause}"));
        let Geometry { visible, window, .. } = *geometry;
        // Only visible pixels take part: a crop before the resize hides the rest, as if it were not there.
        let left = visible.x.max(covered.x);
        let top = visible.y.max(covered.y);
        let width = visible.right().min(covered.right()) - left;
        let height = visible.bottom().min(covered.bottom()) - top;
        let source = TypedImageRef::<P>::from_buffer(piece.width, piece.height, piece.pixels)
            .map_err(|e| fault(&e))?;
        let source = TypedCroppedImage::from_ref(&source, left - covered.x, top - covered.y, width, height)
            .map_err(|e| fault(&e))?;
        let mut target =
            TypedImage::<P>::from_buffer(window.width, window.height, target).map_err(|e| fault(&e))?;

        let (step_x, step_y) = geometry.step();
        let start =
            |window: u32, step: f64, hidden: u32| (f64::from(window) * step - f64::from(hidden)).max(0.0);
        let x = start(window.x, step_x, left - visible.x);
        let y = start(window.y, step_y, top - visible.y);
        let extent = |window: u32, step: f64, start: f64, limit: u32| {
            (f64::from(window) * step).min(f64::from(limit) - start)
        };
        let across = extent(window.width, step_x, x, width);
        let down = extent(window.height, step_y, y, height);
        let options =
            ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter)).crop(x, y, across, down);
        self.resizer.resize_typed(&source, &mut target, &options).map_err(|e| fault(&e))
    }
}

/// The pixel under each grid point's centre. In integers, so that a window of a grid has the very pixels that the
/// whole grid has there.
fn nearest(piece: ImageRef<'_>, covered: Rect, geometry: &Geometry, grid: Grid, target: &mut [u8]) {
    let Geometry { visible, window, .. } = *geometry;
    let channels = piece.channels;
    let under = |at: u32, grid: u32, visible: u32| {
        ((2 * u64::from(at) + 1) * u64::from(visible) / (2 * u64::from(grid))) as usize
    };
    let (offset_x, offset_y) =
        ((visible.x as usize, covered.x as usize), (visible.y as usize, covered.y as usize));
    for (line, y) in target.chunks_exact_mut(window.width as usize * channels).zip(window.y..) {
        let row = under(y, grid.height, visible.height) + offset_y.0 - offset_y.1;
        for (pixel, x) in line.chunks_exact_mut(channels).zip(window.x..) {
            let column = under(x, grid.width, visible.width) + offset_x.0 - offset_x.1;
            let start = (row * piece.width as usize + column) * channels;
            pixel.copy_from_slice(&piece.pixels[start..start + channels]);
        }
    }
}

/// Copies `inner` into the middle of `target` and fills the rest.
fn frame(inner: &Image, border: Border, target: &mut [u8]) {
    let channels = inner.channels();
    let row = inner.width() as usize * channels;
    let (left, right) = (border.left as usize * channels, border.right as usize * channels);
    let stride = left + row + right;
    let above = border.top as usize * stride;
    let below = above + inner.height() as usize * stride;
    target[..above].fill(border.value);
    target[below..].fill(border.value);
    let lines = target[above..below].chunks_exact_mut(stride);
    for (line, source) in lines.zip(inner.pixels().chunks_exact(row)) {
        line[..left].fill(border.value);
        line[left..left + row].copy_from_slice(source);
        line[left + row..].fill(border.value);
    }
}
