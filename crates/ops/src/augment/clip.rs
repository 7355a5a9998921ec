//! `clip`: which frames of a video are taken.

use forebay_core::recipe::{Clip, ClipPlace, ShortVideo};
use forebay_core::rng::Rng;
use forebay_core::{Error, Result};

/// Numbers of the frames that are taken of `count`, which is not 0.
pub(crate) fn pick(clip: &Clip, count: usize, rng: &mut Rng) -> Result<Vec<usize>> {
    let (span, stride) = (clip.span(), u64::from(clip.stride));
    let spare = (count as u64).checked_sub(span);
    let start = match (spare, clip.place) {
        (None, _) if clip.short == ShortVideo::Refuse => {
            let why = format!("take a clip over {span} frames: the video has {count}");
            return Err(Error::corrupt(why).with_hint("`short = \"repeat\"` or `\"loop\"` fills it up"));
        }
        (None, _) | (_, ClipPlace::Start) => 0,
        (Some(spare), ClipPlace::Center) => spare / 2,
        (Some(spare), ClipPlace::Random) => rng.below(spare + 1),
    };
    let last = count as u64 - 1;
    let place = |at: u64| match clip.short {
        ShortVideo::Loop => at % count as u64,
        ShortVideo::Repeat | ShortVideo::Refuse => at.min(last),
    };
    Ok((0..u64::from(clip.frames)).map(|frame| place(start + frame * stride) as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use forebay_core::rng::Rng;
    use proptest::prelude::*;

    fn rng(sample: u64) -> Rng {
        Rng::for_op(1, 0, SampleId(sample), 0)
    }

    fn clip(frames: u32, stride: u32, place: ClipPlace, short: ShortVideo) -> Clip {
        Clip { frames, stride, place, short }
    }

    #[test]
    fn a_clip_lies_where_the_recipe_says() {
        let taken = |place| pick(&clip(3, 2, place, ShortVideo::Repeat), 9, &mut rng(0)).unwrap();
        assert_eq!(taken(ClipPlace::Start), [0, 2, 4]);
        assert_eq!(taken(ClipPlace::Center), [2, 4, 6]);
    }

    #[test]
    fn a_short_video_repeats_its_last_frame_begins_again_or_is_refused() {
        let taken = |short| pick(&clip(5, 2, ClipPlace::Random, short), 4, &mut rng(0));
        assert_eq!(taken(ShortVideo::Repeat).unwrap(), [0, 2, 3, 3, 3]);
        assert_eq!(taken(ShortVideo::Loop).unwrap(), [0, 2, 0, 2, 0]);
        let error = taken(ShortVideo::Refuse).unwrap_err();
        assert!(error.message().contains("9 frames: the video has 4"), "{error}");
    }

    #[test]
    fn random_clips_begin_everywhere_about_equally_often() {
        let clip = clip(2, 3, ClipPlace::Random, ShortVideo::Repeat);
        let mut counts = [0u32; 7];
        for sample in 0..7_000 {
            counts[pick(&clip, 10, &mut rng(sample)).unwrap()[0]] += 1;
        }
        let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 1000.0).powi(2) / 1000.0).sum();
        assert!(chi < 22.5, "chi-square {chi} over 6 degrees of freedom, p < 0.001");
    }

    proptest! {
        #[test]
        fn every_taken_frame_is_there(
            frames in 1u32..40, stride in 1u32..9, count in 1usize..99, sample in 0u64..50, how in 0usize..6,
        ) {
            let place = [ClipPlace::Random, ClipPlace::Center, ClipPlace::Start][how % 3];
            let short = [ShortVideo::Repeat, ShortVideo::Loop][how % 2];
            let clip = clip(frames, stride, place, short);
            let taken = pick(&clip, count, &mut rng(sample)).unwrap();
            prop_assert_eq!(taken.len(), frames as usize);
            prop_assert!(taken.iter().all(|frame| *frame < count));
            if clip.span() <= count as u64 {
                prop_assert!(taken.windows(2).all(|two| two[1] - two[0] == stride as usize));
            }
        }
    }
}
