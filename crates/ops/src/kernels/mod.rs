//! Loops over pixels, apart from the ops that decide their parameters.

pub mod color;
pub mod erase;
pub mod normalize;
