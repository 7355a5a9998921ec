//! The ops of audio that are more than a kernel: each draws its parameters and changes a waveform or a spectrum.

pub(crate) mod channels;
pub(crate) mod crop;
pub(crate) mod gain;
pub(crate) mod mix_noise;
pub(crate) mod noise;
pub(crate) mod spec_augment;
pub(crate) mod speed;
