//! Where a recipe may be cut, so that what its beginning makes is kept and only the rest is done every epoch.
//!
//! A cut lies after decoding or after an op, never after one that draws chance: its result differs between epochs.
//! Nor is a cut offered where the whole recipe gives other bits than its two halves. Geometry folds (see
//! `docs/design/image-path.md`): a crop after a resize resamples only its window, and the resampler rounds
//! by the largest weight of what it makes. Normalizing is the end: its result is four times as large and cheap to make.

use super::check::fixed_size;
use super::{Decode, FieldRecipe, GaussianBlur, Op, Posterize, Recipe, Sharpness, Solarize};
use crate::{Error, Result};

/// A place in the recipe of one column at which its value may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// `decode`, or the name of the last op before the cut.
    pub name: &'static str,
    /// Ops done before the cut.
    pub ops: usize,
    /// Bytes of the pixels of every sample, when the recipe alone decides them.
    pub pixel_bytes: Option<u64>,
}

/// The name of the cut right after decoding.
const DECODE: &str = "decode";

impl FieldRecipe {
    /// The cuts of this column, in order. Only images have any: other values are as large as their payloads.
    pub fn cuts(&self) -> Vec<Cut> {
        let Decode::Image { mode, .. } = self.decode else { return Vec::new() };
        let fixed = self.ops.iter().take_while(|op| may_be_kept(op)).count();
        (0..=fixed)
            .filter(|ops| is_exact(&self.ops[..*ops], &self.ops[*ops..]))
            .map(|ops| Cut {
                name: ops.checked_sub(1).map_or(DECODE, |last| self.ops[last].name()),
                ops,
                pixel_bytes: fixed_size(&self.ops[..ops])
                    .map(|(height, width)| u64::from(height) * u64::from(width) * mode.channels() as u64),
            })
            .collect()
    }
}

impl Recipe {
    /// The cuts of every column. A column whose field feeds another one too has none: its payload is needed anyway.
    pub fn cuts(&self) -> Vec<Vec<Cut>> {
        let is_shared = |at: usize| {
            let others = self.fields.iter().enumerate().filter(|(other, _)| *other != at);
            let mut others = others.map(|(_, other)| other);
            others.any(|other| self.fields[at].alternatives().any(|name| other.reads(name)))
        };
        // Who follows draws the geometry from the image as it is stored, and does it to what is stored.
        let is_tied = |at: usize| {
            self.followed(at).is_some()
                || (0..self.fields.len()).any(|other| self.followed(other) == Some(at))
        };
        let cuts = |(at, field): (usize, &FieldRecipe)| {
            let mut cuts = if is_shared(at) { Vec::new() } else { field.cuts() };
            cuts.retain(|cut| cut.ops == 0 || !is_tied(at));
            cuts
        };
        self.fields.iter().enumerate().map(cuts).collect()
    }

    /// Every name at which some column may be cut, the earliest first.
    pub fn cut_names(&self) -> Vec<&'static str> {
        let mut cuts: Vec<Cut> = self.cuts().into_iter().flatten().collect();
        cuts.sort_by_key(|cut| cut.ops);
        let mut names: Vec<&'static str> = Vec::new();
        for cut in cuts {
            if !names.contains(&cut.name) {
                names.push(cut.name);
            }
        }
        names
    }

    /// The cut of every column at `name`: after the last op of this name that can be cut after. `None` for columns that
    /// have no such place; an error when no column has.
    pub fn cut_at(&self, name: &str) -> Result<Vec<Option<Cut>>> {
        let cuts: Vec<Option<Cut>> =
            self.cuts().into_iter().map(|cuts| cuts.into_iter().rev().find(|cut| cut.name == name)).collect();
        if cuts.iter().any(Option::is_some) {
            return Ok(cuts);
        }
        let fields = || self.fields.iter().flat_map(|field| &field.ops);
        let why = match fields().find(|op| op.name() == name) {
            None => "no column has such a step",
            Some(op) if op.is_random() => "its result is drawn anew every epoch",
            Some(_) => "what follows it is folded into it, or chance was drawn before it",
        };
        let offered = self.cut_names();
        let hint = if offered.is_empty() {
            "this recipe can be cached as \"bytes\" only".to_owned()
        } else {
            format!("this recipe can be cached at \"bytes\", \"auto\", \"{}\"", offered.join("\", \""))
        };
        Err(Error::invalid_config(format!("cache the recipe at `{name}`: {why}")).with_hint(hint))
    }
}

/// Whether the result of an op is the same every epoch, and pixels.
fn may_be_kept(op: &Op) -> bool {
    // A mirror waits for the finishing pass, past resizes and changes of color: a cut would do it earlier.
    let mirrors = matches!(op, Op::Flip { p, .. } if *p > 0.0);
    let called = op.function().is_some();
    !op.is_random() && !mirrors && !called && !matches!(op, Op::Normalize { .. })
}

/// Whether the ops before and after a cut, done one half after the other, give the bits of the whole.
fn is_exact(before: &[Op], after: &[Op]) -> bool {
    // A change of pixels ends all folding, when it is certain.
    let change = |op: &Op| match op {
        Op::Grayscale { p }
        | Op::Equalize { p }
        | Op::Autocontrast { p }
        | Op::GaussianBlur(GaussianBlur { p, .. })
        | Op::Solarize(Solarize { p, .. })
        | Op::Posterize(Posterize { p, .. })
        | Op::Sharpness(Sharpness { p, .. }) => *p >= 1.0,
        Op::ColorJitter { .. } | Op::Affine(_) => true,
        _ => false,
    };
    let open = before.iter().rposition(change).map_or(before, |last| &before[last + 1..]);
    let resizes = |op: &Op| matches!(op, Op::Resize { .. } | Op::RandomResizedCrop { .. });
    let crops =
        |op: &Op| matches!(op, Op::CenterCrop { .. } | Op::RandomCrop { .. } | Op::RandomResizedCrop { .. });
    let pads = |op: &Op| matches!(op, Op::Pad { .. });
    if open.iter().any(resizes) {
        return !after.iter().any(crops);
    }
    // Cutting and framing move pixels as they are; only a resize that looks across the cut would see it.
    !open.iter().any(|op| crops(op) || pads(op)) || !after.iter().any(resizes)
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_recipe;
    use super::*;
    use proptest::prelude::*;

    fn names(ops: &str) -> Vec<&'static str> {
        let recipe = format!(r#"[{{"field": "jpg", "decode": "image", "ops": [{ops}]}}]"#);
        Recipe::from_json(&recipe).unwrap().cut_names()
    }

    const CROP: &str = r#"{"op": "center_crop", "size": 224}"#;
    const RESIZE: &str = r#"{"op": "resize", "size": 256}"#;
    const RANDOM: &str = r#"{"op": "random_resized_crop", "size": 224}"#;
    const NORMALIZE: &str = r#"{"op": "normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}"#;
    const DELAY: &str = r#"{"op": "delay", "seconds": 0.1}"#;
    const GRAY: &str = r#"{"op": "grayscale"}"#;
    const FLIP: &str = r#"{"op": "flip"}"#;

    #[test]
    fn cuts_lie_where_both_halves_give_the_bits_of_the_whole() {
        let join = |ops: &[&str]| ops.join(",");
        let cases: [(&[&str], &[&str]); 12] = [
            (&[], &["decode"]),
            (&[RANDOM, FLIP, NORMALIZE], &["decode"]),
            (&[RESIZE, CROP, NORMALIZE], &["decode", "center_crop"]),
            (&[RESIZE, CROP, FLIP], &["decode", "center_crop"]),
            (&[RESIZE, RANDOM], &["decode"]),
            (&[CROP, RESIZE], &["decode", "resize"]),
            (&[DELAY, RANDOM, DELAY], &["decode", "delay"]),
            (&[RESIZE, GRAY, RANDOM], &["decode", "grayscale"]),
            (&[r#"{"op": "flip", "p": 1}"#, CROP], &["decode"]),
            (&[RESIZE, r#"{"op": "equalize", "p": 1}"#, RANDOM], &["decode", "equalize"]),
            (&[RESIZE, r#"{"op": "affine", "degrees": [9, 9]}"#, RANDOM], &["decode", "affine"]),
            (&[r#"{"op": "gaussian_blur", "kernel": 3}"#], &["decode"]),
        ];
        for (ops, expected) in cases {
            assert_eq!(names(&join(ops)), expected, "{ops:?}");
        }
    }

    #[test]
    fn a_refused_cut_says_why_and_what_is_offered() {
        let recipe = |ops: &str| {
            let recipe = format!(r#"[{{"field": "jpg", "decode": "image", "ops": [{ops}]}}]"#);
            Recipe::from_json(&recipe).unwrap()
        };
        let train = recipe(&[RESIZE, RANDOM, FLIP].join(","));
        for (name, why) in [
            ("flip", "drawn anew"),
            ("random_resized_crop", "drawn anew"),
            ("resize", "folded"),
            ("crop", "no column"),
        ] {
            let error = train.cut_at(name).unwrap_err();
            assert!(error.message().contains(why), "{error}");
            assert!(error.hint().unwrap_or_default().contains("\"decode\""), "{error:?}");
        }
        let cut = recipe(&[RESIZE, CROP].join(",")).cut_at("center_crop").unwrap();
        assert_eq!(cut, [Some(Cut { name: "center_crop", ops: 2, pixel_bytes: Some(224 * 224 * 3) })]);
    }

    #[test]
    fn a_field_that_feeds_two_columns_is_not_cut() {
        let recipe = r#"[{"field": "jpg;png", "name": "a", "decode": "image"},
                         {"field": "png", "name": "b", "decode": "bytes"},
                         {"field": "left", "decode": "image"}]"#;
        let cuts = Recipe::from_json(recipe).unwrap().cuts();
        assert_eq!(cuts.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
    }

    #[test]
    fn what_is_followed_and_what_follows_is_kept_as_decoded_only() {
        let ops = [RESIZE, CROP].join(",");
        let text = format!(
            r#"[{{"field": "jpg", "decode": "image", "ops": [{ops}]}},
                {{"field": "mask", "decode": "image", "follow": "jpg"}},
                {{"field": "json", "decode": "boxes", "follow": "jpg"}}]"#
        );
        let cuts = Recipe::from_json(&text).unwrap().cuts();
        let names: Vec<Vec<&str>> =
            cuts.iter().map(|cuts| cuts.iter().map(|cut| cut.name).collect()).collect();
        assert_eq!(names, [vec!["decode"], vec!["decode"], vec![]]);
    }

    proptest! {
        #[test]
        fn p067_nothing_random_comes_before_a_cut(recipe in any_recipe()) {
            for (field, cuts) in recipe.fields.iter().zip(recipe.cuts()) {
                for cut in cuts {
                    let before = &field.ops[..cut.ops];
                    prop_assert!(!before.iter().any(Op::is_random));
                    prop_assert!(!before.iter().any(|op| op.name() == "normalize"));
                    prop_assert!(recipe.cut_at(cut.name).is_ok());
                }
            }
        }
    }
}
