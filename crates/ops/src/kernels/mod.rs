//! Loops over pixels, apart from the ops that decide their parameters.

pub(crate) mod channels;
pub(crate) mod color;
pub(crate) mod erase;
pub(crate) mod normalize;
pub(crate) mod orient;
pub(crate) mod resample;
