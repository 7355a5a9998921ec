//! Loops over pixels, apart from the ops that decide their parameters.
#![expect(
    clippy::inline_always,
    reason = "the parts of a loop must be inlined into each version of it that `multiversion` compiles"
)]

pub(crate) mod audio;
pub(crate) mod bend;
pub(crate) mod blend;
pub(crate) mod blur;
pub(crate) mod channels;
pub(crate) mod color;
pub(crate) mod erase;
pub(crate) mod levels;
pub(crate) mod mix;
pub(crate) mod normalize;
pub(crate) mod orient;
pub(crate) mod resample;
pub(crate) mod sharpen;
pub(crate) mod tilt;
