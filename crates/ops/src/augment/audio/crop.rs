//! `random_crop`, `center_crop` and `pad` of audio: which part of a waveform is taken, and the silence behind it.

use crate::decode::audio::Waveform;
use forebay_core::recipe::AudioOp;
use forebay_core::rng::Rng;
use std::ops::Range;

/// The samples that a crop to `wanted` takes of `samples`; fewer when there are not as many.
pub(crate) fn part(op: &AudioOp, samples: u64, wanted: u64, rng: &mut Rng) -> Range<u64> {
    let spare = samples.saturating_sub(wanted);
    let start = match op {
        AudioOp::RandomCrop(_) if spare > 0 => rng.below(spare + 1),
        AudioOp::CenterCrop(_) => spare / 2,
        _ => 0,
    };
    start..start + wanted.min(samples)
}

/// Keeps a part, followed by silence up to `wanted`.
pub(crate) fn keep(wave: &mut Waveform, part: &Range<u64>, wanted: u64) {
    for channel in &mut wave.channels {
        channel.truncate(part.end as usize);
        channel.drain(..(part.start as usize).min(channel.len()));
    }
    pad(wave, wanted);
}

/// Silence behind, up to a length.
pub(crate) fn pad(wave: &mut Waveform, wanted: u64) {
    for channel in &mut wave.channels {
        channel.resize(channel.len().max(wanted as usize), 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::SampleId;
    use forebay_core::recipe::Length;
    use std::collections::HashSet;

    #[test]
    fn every_place_is_drawn_and_short_audio_is_taken_whole() {
        let length = Length { samples: Some(4), seconds: None };
        let random = AudioOp::RandomCrop(length.clone());
        let draw = |sample, samples| part(&random, samples, 4, &mut Rng::for_op(1, 0, SampleId(sample), 0));
        let places: HashSet<Range<u64>> = (0..200).map(|sample| draw(sample, 8)).collect();
        assert_eq!(places, (0..5).map(|start| start..start + 4).collect());
        assert_eq!(draw(0, 3), 0..3);
        let center = AudioOp::CenterCrop(length);
        assert_eq!(part(&center, 9, 4, &mut Rng::for_op(1, 0, SampleId(0), 0)), 2..6);
        let mut wave = Waveform { rate: 8000, channels: vec![vec![1.0, 2.0, 3.0]] };
        keep(&mut wave, &(1..3), 4);
        assert_eq!(wave.channels, [vec![2.0, 3.0, 0.0, 0.0]]);
    }
}
