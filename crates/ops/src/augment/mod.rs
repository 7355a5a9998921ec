//! The ops, one file each. A file draws its op's parameters and hands them to a kernel or to a geometry.
//!
//! Ops that draw an [`adjustment`] hand it over to be made later; other pixel ops change an [`crate::ImageMut`] of 8-bit channels in place (`apply(&self, image: &mut ImageMut<'_>, rng: &mut
//! Rng)`); geometric ops never see a pixel. `normalize` and an erasing after it take part in the finishing pass,
//! which reads an 8-bit image and writes the row: mirror, arithmetic, layout and element type in one go.

pub(crate) mod adjustment;
mod affine;
pub(crate) mod audio;
mod aug_mix;
mod auto_augment;
mod autocontrast;
pub mod center_crop;
pub(crate) mod clip;
pub mod color_jitter;
mod equalize;
pub mod flip;
mod gaussian_blur;
pub mod grayscale;
pub mod normalize;
pub mod pad;
mod perspective;
mod posterize;
mod rand_augment;
pub mod random_crop;
pub mod random_erasing;
pub mod random_resized_crop;
pub mod resize;
mod sharpness;
mod solarize;
mod space;
mod trivial_augment;
