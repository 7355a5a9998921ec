//! Images laid over each other, each with its share.

/// Adds `share` of `levels` to `sums`.
pub(crate) fn add(sums: &mut [f32], levels: &[u8], share: f32) {
    for (sum, level) in sums.iter_mut().zip(levels) {
        *sum += share * f32::from(*level);
    }
}

/// What the sums are as levels: cut, as torchvision's AugMix does.
pub(crate) fn write(sums: &[f32], levels: &mut [u8]) {
    for (sum, level) in sums.iter().zip(levels) {
        *level = *sum as u8;
    }
}
