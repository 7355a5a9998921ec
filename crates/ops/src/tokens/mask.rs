//! `mask_tokens`: chooses tokens at random, hides them, and says what they were.

use forebay_core::recipe::tokens::{IGNORED, MaskTokens};
use forebay_core::rng::Rng;

/// Hides tokens and gives the labels: what a chosen token was, and `IGNORED` elsewhere.
pub(super) fn apply(op: &MaskTokens, tokens: &mut [i64], rng: &mut Rng) -> Vec<i64> {
    let is_special = |token: i64| op.special.iter().any(|special| i64::from(*special) == token);
    let label = |token: &mut i64| {
        if is_special(*token) || !rng.chance(op.p) {
            return IGNORED;
        }
        let (label, how) = (*token, rng.unit());
        if how >= op.keep + op.random {
            *token = i64::from(op.mask_id);
        } else if how >= op.keep {
            *token = rng.below(u64::from(op.vocab)) as i64;
        }
        label
    };
    tokens.iter_mut().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;

    #[test]
    fn shares_are_those_asked_for_and_special_tokens_stay() {
        let op = MaskTokens { p: 0.15, mask_id: 4, vocab: 1000, special: vec![7], random: 0.1, keep: 0.1 };
        let original: Vec<i64> = (0..200_000).map(|at| if at % 10 == 0 { 7 } else { 1000 + at }).collect();
        let mut tokens = original.clone();
        let labels = apply(&op, &mut tokens, &mut Rng::for_op(1, 0, SampleId(5), 3));
        let (mut chosen, mut masked, mut random, mut kept) = (0u32, 0u32, 0u32, 0u32);
        for ((token, was), label) in tokens.iter().zip(&original).zip(&labels) {
            if *label == IGNORED {
                assert_eq!(token, was);
                continue;
            }
            assert!(label == was && *was != 7);
            chosen += 1;
            match *token {
                4 => masked += 1,
                token if token == *was => kept += 1,
                token => {
                    assert!((0..1000).contains(&token));
                    random += 1;
                }
            }
        }
        assert!((26_300..27_700).contains(&chosen), "{chosen}");
        assert!((21_000..22_200).contains(&masked), "{masked}");
        assert!((2_450..2_950).contains(&random) && (2_450..2_950).contains(&kept), "{random} {kept}");
    }
}
