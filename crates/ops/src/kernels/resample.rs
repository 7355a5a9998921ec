//! Executing a geometry: cut, resample and frame one 8-bit image. Mirrors are left to the caller, because the
//! finishing pass makes them for nothing.

use crate::geometry::{Border, Geometry, Grid};
use crate::image::{Image, ImageRef, Rect};
use fast_image_resize::images::{TypedCroppedImage, TypedImage, TypedImageRef};
use fast_image_resize::pixels::{InnerPixel, U8, U8x3, U8x4};
use fast_image_resize::{FilterType, MulDiv, PixelTrait, ResizeAlg, ResizeOptions, Resizer};
use forebay_core::recipe::Filter;
use forebay_core::{Error, Result};

/// Grid points that are counted one by one; a longer side comes only from an image like a needle.
const MAX_STEPS: u32 = 1 << 22;

/// Memory of the resampler, reused from image to image.
#[derive(Debug, Default)]
pub(crate) struct Resampler {
    resizer: Resizer,
    inner: Image,
    between: Image,
    opaque: Image,
    columns: Vec<usize>,
    rows: Vec<usize>,
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
                self.nearest(piece, covered, geometry, grid, target);
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

    fn nearest(
        &mut self,
        piece: ImageRef<'_>,
        covered: Rect,
        geometry: &Geometry,
        grid: Grid,
        target: &mut [u8],
    ) {
        let Geometry { visible, window, .. } = *geometry;
        let channels = piece.channels;
        under(&mut self.columns, visible.width, grid.width, window.x, window.width);
        under(&mut self.rows, visible.height, grid.height, window.y, window.height);
        for (line, row) in target.chunks_exact_mut(window.width as usize * channels).zip(&self.rows) {
            let row = row + visible.y as usize - covered.y as usize;
            for (pixel, column) in line.chunks_exact_mut(channels).zip(&self.columns) {
                let column = column + visible.x as usize - covered.x as usize;
                let start = (row * piece.width as usize + column) * channels;
                pixel.copy_from_slice(&piece.pixels[start..start + channels]);
            }
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
        let Geometry { visible, window, .. } = *geometry;
        // Only visible pixels take part: a crop before the resize hides the rest, as if it were not there.
        let left = visible.x.max(covered.x);
        let top = visible.y.max(covered.y);
        let width = visible.right().min(covered.right()) - left;
        let height = visible.bottom().min(covered.bottom()) - top;
        let view = Rect { x: left - covered.x, y: top - covered.y, width, height };

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
        let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(filter));

        if filter == FilterType::Bilinear {
            let size = (window.width, window.height);
            return pass::<P>(
                &mut self.resizer,
                piece,
                view,
                &options.crop(x, y, across, down),
                size,
                target,
            );
        }
        // Filters with negative lobes overshoot and are clipped between the passes, so the order of passes shows.
        // Pillow goes across first, this library down. Its pass over both axes also counts below zero where the
        // first pixel of a row has a weight of nothing, which only filters with lobes have. So: one axis a pass.
        let options = options.use_alpha(false);
        let (piece, view) = if piece.channels == 4 {
            self.opaque.reshape(view.width, view.height, 4);
            piece.copy_rect(view, self.opaque.pixels_mut());
            multiply_by_alpha(self.opaque.pixels_mut(), view.width, view.height)?;
            (self.opaque.as_ref(), Rect::of_size(view.width, view.height))
        } else {
            (piece, view)
        };
        self.between.reshape(window.width, height, piece.channels);
        let options_across = options.crop(x, 0.0, across, f64::from(height));
        let between = self.between.pixels_mut();
        pass::<P>(&mut self.resizer, piece, view, &options_across, (window.width, height), between)?;
        let options_down = options.crop(0.0, y, f64::from(window.width), down);
        let between = self.between.as_ref();
        let view = Rect::of_size(window.width, height);
        pass::<P>(&mut self.resizer, between, view, &options_down, (window.width, window.height), target)?;
        if piece.channels == 4 { divide_by_alpha(target, window.width, window.height) } else { Ok(()) }
    }
}

/// Colors weighted by how much of them is seen, so that hidden ones do not bleed into their neighbours.
fn multiply_by_alpha(pixels: &mut [u8], width: u32, height: u32) -> Result<()> {
    let mut image = TypedImage::<U8x4>::from_buffer(width, height, pixels).map_err(|e| fault(&e))?;
    MulDiv::new().multiply_alpha_inplace_typed(&mut image).map_err(|e| fault(&e))
}

fn divide_by_alpha(pixels: &mut [u8], width: u32, height: u32) -> Result<()> {
    let mut image = TypedImage::<U8x4>::from_buffer(width, height, pixels).map_err(|e| fault(&e))?;
    MulDiv::new().divide_alpha_inplace_typed(&mut image).map_err(|e| fault(&e))
}

fn fault(cause: &dyn std::fmt::Display) -> Error {
    Error::internal(format!("resample an image: {cause}"))
}

fn pass<P: PixelTrait + InnerPixel>(
    resizer: &mut Resizer,
    source: ImageRef<'_>,
    view: Rect,
    options: &ResizeOptions,
    (width, height): (u32, u32),
    target: &mut [u8],
) -> Result<()> {
    let source =
        TypedImageRef::<P>::from_buffer(source.width, source.height, source.pixels).map_err(|e| fault(&e))?;
    let source = TypedCroppedImage::from_ref(&source, view.x, view.y, view.width, view.height);
    let source = source.map_err(|e| fault(&e))?;
    let mut target = TypedImage::<P>::from_buffer(width, height, target).map_err(|e| fault(&e))?;
    resizer.resize_typed(&source, &mut target, options).map_err(|e| fault(&e))
}

/// The source pixels under the grid points `start..start + len`. Steps are added up from the first grid point, as
/// Pillow does, so that ties fall to the same side and a window has the very pixels that the whole grid has there.
fn under(found: &mut Vec<usize>, visible: u32, grid: u32, start: u32, len: u32) {
    found.clear();
    let last = visible.saturating_sub(1) as usize;
    if grid > MAX_STEPS {
        let exact = |at: u32| (2 * u64::from(at) + 1) * u64::from(visible) / (2 * u64::from(grid));
        found.extend((start..start + len).map(|at| (exact(at) as usize).min(last)));
        return;
    }
    let step = f64::from(visible) / f64::from(grid);
    let mut centre = step * 0.5;
    for at in 0..start + len {
        if at >= start {
            found.push((centre as usize).min(last));
        }
        centre += step;
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
