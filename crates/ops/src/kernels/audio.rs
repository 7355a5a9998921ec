//! Loops over samples: the rate changed, the Fourier transform, bands of a mel scale.
//!
//! Sums run in an order that does not depend on the machine, so results are the same bits wherever they are made.

pub(crate) mod fourier;
pub(crate) mod mel;
pub(crate) mod sinc;
pub(crate) mod stft;
