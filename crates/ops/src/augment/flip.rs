//! `flip`: mirrors with some probability.

use crate::geometry::{Chain, Mirror};
use forebay_core::recipe::Direction;
use forebay_core::rng::Rng;

/// Adds the mirror to a chain, or not.
pub fn apply(p: f64, direction: Direction, chain: &mut Chain, rng: &mut Rng) {
    if rng.chance(p) {
        chain.mirror(Mirror {
            horizontal: direction == Direction::Horizontal,
            vertical: direction == Direction::Vertical,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn the_share_of_mirrored_samples_is_the_probability() {
        for (p, expected) in [(0.0, 0..=0), (1.0, 10_000..=10_000), (0.3, 2_850..=3_150)] {
            let mirrored = (0..10_000).filter(|sample| {
                let mut chain = Chain::new(2, 2);
                let mut rng = Rng::for_op(3, 0, SampleId(*sample), 5);
                apply(p, Direction::Vertical, &mut chain, &mut rng);
                assert!(!chain.get(0).mirror.horizontal);
                chain.get(0).mirror.vertical
            });
            let count = mirrored.count();
            assert!(expected.contains(&count), "{count} of 10000 at p = {p}");
        }
    }
}
