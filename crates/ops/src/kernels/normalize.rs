//! The finishing pass: 8-bit pixels, channels last, to the row of a batch, in one go: mirror, arithmetic, layout and
//! element type.
//!
//! Every value is `f32(pixel) * scale + bias` with both operations rounded to `f32`, then rounded once more (to
//! nearest, ties to even) when the row holds 16-bit floats. A fused multiply-add would be a little more exact, but
//! not every machine has it, and a batch must be the same bytes wherever it is made.
//!
//! Loops run over blocks of 32 pixels with constant strides, which compilers turn into vector code; `multiversion`
//! compiles them for the instruction sets found in data centers and picks one at run time. Rows need no alignment.

use crate::image::ImageRef;
use forebay_core::tensor::{Dtype, Layout};
use forebay_core::{Error, Result};
use half::f16;
use multiversion::multiversion;

/// Pixels of a block: enough to fill the widest vectors, small enough to stay in registers and the nearest cache.
const BLOCK: usize = 32;

/// What is done to each channel: multiply, then add.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Affine {
    /// Factor per channel; channels that an image does not have are ignored.
    pub(crate) scale: [f32; 4],
    /// Added per channel.
    pub(crate) bias: [f32; 4],
}

/// Form of the row that is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Finish {
    dtype: Dtype,
    layout: Layout,
    affine: Affine,
}

impl Affine {
    /// Leaves values in `0..=255`.
    pub(crate) const IDENTITY: Self = Self { scale: [1.0; 4], bias: [0.0; 4] };
}

impl Finish {
    /// A pass that writes `dtype` in `layout`, after `affine` when it is given.
    pub(crate) fn new(dtype: Dtype, layout: Layout, affine: Option<Affine>) -> Result<Self> {
        match (dtype, affine) {
            (Dtype::U8, Some(_)) => {
                Err(Error::invalid_config("write normalized values as u8: they lie around zero")
                    .with_hint("ask for f32, f16 or bf16, or leave `normalize` to the device"))
            }
            (Dtype::U8 | Dtype::F16 | Dtype::Bf16 | Dtype::F32, _) => {
                Ok(Self { dtype, layout, affine: affine.unwrap_or(Affine::IDENTITY) })
            }
            _ => Err(Error::unsupported(format!("write an image as {}", dtype.name()))
                .with_hint("images become u8, f16, bf16 or f32")),
        }
    }

    /// Bytes of the row of an image of this size.
    pub(crate) fn row_bytes(&self, width: u32, height: u32, channels: usize) -> usize {
        crate::image::byte_len(width, height, channels) * self.dtype.size()
    }

    /// Writes `image`, left and right exchanged when `mirror`, to `row`.
    ///
    /// # Panics
    /// When `row` is not [`Finish::row_bytes`] long.
    pub(crate) fn run(&self, image: ImageRef<'_>, mirror: bool, row: &mut [u8]) {
        assert_eq!(
            row.len(),
            self.row_bytes(image.width, image.height, image.channels),
            "row of the image's size"
        );
        if row.is_empty() {
            return;
        }
        if (self.dtype, self.layout, mirror) == (Dtype::U8, Layout::Hwc, false) {
            return row.copy_from_slice(image.pixels);
        }
        let pattern = Pattern::new(self.affine, image.channels);
        let mut job = Job { line: image.width as usize, mirror, finish: *self, pattern };
        if !mirror {
            // Nothing depends on where a line ends, so the image is one long line and has only one odd block.
            job.line *= image.height as usize;
        }
        run(&job, image.pixels, image.channels, row);
    }
}

struct Job {
    /// Pixels of a line.
    line: usize,
    mirror: bool,
    finish: Finish,
    pattern: Pattern,
}

/// The arithmetic of interleaved channels, value by value: part `n` of a block is its values from `n * BLOCK` on.
struct Pattern {
    scale: [[f32; BLOCK]; 4],
    bias: [[f32; BLOCK]; 4],
}

impl Pattern {
    fn new(affine: Affine, channels: usize) -> Self {
        let spread = |values: [f32; 4]| {
            std::array::from_fn(|part| std::array::from_fn(|index| values[(part * BLOCK + index) % channels]))
        };
        Self { scale: spread(affine.scale), bias: spread(affine.bias) }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2", "x86_64+sse4.1"))]
fn run(job: &Job, pixels: &[u8], channels: usize, row: &mut [u8]) {
    match channels {
        1 => by_dtype::<1>(job, pixels, row),
        3 => by_dtype::<3>(job, pixels, row),
        4 => by_dtype::<4>(job, pixels, row),
        _ => unreachable!("images have 1, 3 or 4 channels, not {channels}"),
    }
}

#[inline(always)]
fn by_dtype<const C: usize>(job: &Job, pixels: &[u8], row: &mut [u8]) {
    match job.finish.dtype {
        Dtype::U8 => by_layout::<C, u8>(job, pixels, row),
        Dtype::F16 => by_layout::<C, f16>(job, pixels, row),
        Dtype::Bf16 => by_layout::<C, half::bf16>(job, pixels, row),
        Dtype::F32 => by_layout::<C, f32>(job, pixels, row),
        other => unreachable!("{} was refused by `Finish::new`", other.name()),
    }
}

#[inline(always)]
fn by_layout<const C: usize, E: Element>(job: &Job, pixels: &[u8], row: &mut [u8]) {
    let mut block = [[0u8; C]; BLOCK];
    let (pixels, _) = pixels.as_chunks::<C>();
    let plane = pixels.len() * E::BYTES;
    for (number, line) in pixels.chunks_exact(job.line).enumerate() {
        for start in (0..job.line).step_by(BLOCK) {
            let len = BLOCK.min(job.line - start);
            if job.mirror {
                let end = job.line - start;
                for (to, from) in block.iter_mut().zip(line[end - len..end].iter().rev()) {
                    *to = *from;
                }
            } else {
                block[..len].copy_from_slice(&line[start..start + len]);
            }
            let at = (number * job.line + start) * E::BYTES;
            match job.finish.layout {
                Layout::Chw => planes::<C, E>(&job.finish.affine, &block, len, &mut row[at..], plane),
                Layout::Hwc => {
                    interleaved::<C, E>(&job.pattern, &block, &mut row[at * C..][..len * C * E::BYTES]);
                }
            }
        }
    }
}

/// Writes each channel of a block to its plane; planes are `plane` bytes apart.
#[inline(always)]
fn planes<const C: usize, E: Element>(
    affine: &Affine,
    block: &[[u8; C]; BLOCK],
    len: usize,
    row: &mut [u8],
    plane: usize,
) {
    for channel in 0..C {
        let mut values = [0u8; BLOCK];
        for (value, pixel) in values.iter_mut().zip(block) {
            *value = pixel[channel];
        }
        let target = &mut row[channel * plane..][..len * E::BYTES];
        E::write(&values, affine.scale[channel], affine.bias[channel], target);
    }
}

/// Writes a block as it lies, each channel with its own arithmetic.
#[inline(always)]
fn interleaved<const C: usize, E: Element>(pattern: &Pattern, block: &[[u8; C]; BLOCK], row: &mut [u8]) {
    let (parts, _) = block.as_flattened().as_chunks::<BLOCK>();
    for (part, (values, target)) in parts.iter().zip(row.chunks_mut(BLOCK * E::BYTES)).enumerate() {
        E::write_each(values, &pattern.scale[part], &pattern.bias[part], target);
    }
}

/// An element type a row may have.
trait Element {
    const BYTES: usize;

    /// Writes as many of the finished values as `target` has room for, in native byte order.
    fn store(values: &[f32; BLOCK], target: &mut [u8]);

    #[inline(always)]
    fn write(values: &[u8; BLOCK], scale: f32, bias: f32, target: &mut [u8]) {
        let mut finished = [0f32; BLOCK];
        for (to, from) in finished.iter_mut().zip(values) {
            *to = f32::from(*from) * scale + bias;
        }
        Self::store(&finished, target);
    }

    #[inline(always)]
    fn write_each(values: &[u8; BLOCK], scale: &[f32; BLOCK], bias: &[f32; BLOCK], target: &mut [u8]) {
        let mut finished = [0f32; BLOCK];
        for (index, to) in finished.iter_mut().enumerate() {
            *to = f32::from(values[index]) * scale[index] + bias[index];
        }
        Self::store(&finished, target);
    }
}

impl Element for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    fn store(values: &[f32; BLOCK], target: &mut [u8]) {
        for (to, value) in target.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

impl Element for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn store(values: &[f32; BLOCK], target: &mut [u8]) {
        for (to, value) in target.chunks_exact_mut(2).zip(values) {
            to.copy_from_slice(&f16_bits(*value).to_ne_bytes());
        }
    }
}

impl Element for half::bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    fn store(values: &[f32; BLOCK], target: &mut [u8]) {
        for (to, value) in target.chunks_exact_mut(2).zip(values) {
            // `bf16::from_f32` without its branch for NaN, which finite scales and biases never make.
            let bits = value.to_bits();
            let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
            to.copy_from_slice(&(rounded as u16).to_ne_bytes());
        }
    }
}

impl Element for u8 {
    const BYTES: usize = 1;

    #[inline(always)]
    fn store(values: &[f32; BLOCK], target: &mut [u8]) {
        for (to, value) in target.iter_mut().zip(values) {
            *to = *value as u8;
        }
    }

    #[inline(always)]
    fn write(values: &[u8; BLOCK], _: f32, _: f32, target: &mut [u8]) {
        target.copy_from_slice(&values[..target.len()]);
    }

    #[inline(always)]
    fn write_each(values: &[u8; BLOCK], _: &[f32; BLOCK], _: &[f32; BLOCK], target: &mut [u8]) {
        target.copy_from_slice(&values[..target.len()]);
    }
}

/// `f16::from_f32` for numbers that are not NaN, without a branch, so that blocks of them are done at once.
#[inline(always)]
fn f16_bits(value: f32) -> u16 {
    /// The least magnitude that becomes infinite by its exponent alone, and the least that becomes a normal `f16`.
    const INFINITE: u32 = 0x4780_0000;
    const NORMAL: u32 = 0x3880_0000;
    /// Added to a subnormal, it moves the last bit of an `f16` to the last bit of the sum, which is then rounded.
    const SHIFT: f32 = 0.5;
    let sign = value.to_bits() & 0x8000_0000;
    let magnitude = value.to_bits() ^ sign;
    // Exponents change their bias from 127 to 15; ties go to the even neighbor; a carry is the next exponent.
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + (magnitude >> 13 & 1)) >> 13;
    let subnormal = (f32::from_bits(magnitude) + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits());
    let finite = if magnitude < NORMAL { subnormal } else { normal };
    (if magnitude >= INFINITE { 0x7c00 } else { finite } | sign >> 16) as u16
}

#[cfg(test)]
#[path = "normalize_tests.rs"]
mod tests;
