//! `mix_noise`: a part of a drawn recording, as far below the signal as was drawn. Silence is mixed with nothing.
//!
//! Recordings are kept as they are stored; the part that is needed is decoded, made mono and given the signal's rate. One
//! that is shorter than the signal is repeated from a drawn place on.

use crate::decode::audio::{Audio, Header, Waveform};
use crate::kernels::audio::sinc::Sinc;
use bytes::Bytes;
use forebay_core::recipe::MixNoise;
use forebay_core::rng::Rng;
use forebay_core::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// Recordings that are ready to be mixed in.
pub(crate) struct Recordings(Vec<Recording>);

struct Recording {
    name: String,
    payload: Bytes,
    header: Header,
}

impl Recordings {
    /// Looks at the header of each, so that what is no recording is found before the first sample.
    pub(crate) fn new(payloads: Vec<(String, Bytes)>) -> Result<Self> {
        let open = |(name, payload): (String, Bytes)| {
            let doing = |error: Error| error.while_doing(format_args!("open noise `{name}`"));
            let header = *Audio::open(&payload).map_err(doing)?.header();
            if header.samples == Some(0) {
                return Err(doing(Error::corrupt("it has no samples")));
            }
            Ok(Recording { name, payload, header })
        };
        let opened = payloads.into_iter().map(open).collect::<Result<Vec<_>>>()?;
        if opened.is_empty() {
            return Err(Error::invalid_config("mix in noise: the dataset has no recordings"));
        }
        Ok(Self(opened))
    }

    /// Mixes noise into a waveform, with the probability of the op. `sinc` gives the change from one rate to another.
    pub(crate) fn apply(
        &self,
        op: &MixNoise,
        wave: &mut Waveform,
        rng: &mut Rng,
        sinc: impl FnOnce(u32, u32) -> Arc<Sinc>,
        max_samples: u64,
    ) -> Result<()> {
        if !rng.chance(op.p) || wave.samples() == 0 {
            return Ok(());
        }
        let recording = &self.0[rng.below(self.0.len() as u64) as usize];
        let [low, high] = op.snr;
        let ratio = 10f64.powf(rng.uniform(low, high) / 10.0);
        let rate = wave.rate;
        let sinc = (recording.header.rate != rate).then(|| sinc(recording.header.rate, rate));
        let noise = recording
            .part(wave.samples() as u64, rng, sinc.as_deref(), max_samples)
            .map_err(|error| error.while_doing(format_args!("mix in noise `{}`", recording.name)))?;
        let signal =
            wave.channels.iter().map(|channel| power(channel)).sum::<f64>() / wave.channels.len() as f64;
        let drawn = power(&noise);
        if drawn > 0.0 {
            let factor = (signal / drawn / ratio).sqrt() as f32;
            for channel in &mut wave.channels {
                channel.iter_mut().zip(&noise).for_each(|(value, noise)| *value += noise * factor);
            }
        }
        Ok(())
    }
}

impl Recording {
    /// So many samples from a drawn place on, at the rate that `sinc` gives.
    fn part(&self, wanted: u64, rng: &mut Rng, sinc: Option<&Sinc>, max_samples: u64) -> Result<Vec<f32>> {
        let audio = Audio::open(&self.payload)?;
        let (whole, samples) = if let Some(samples) = self.header.samples {
            (None, samples)
        } else {
            // Its header does not know its length: all of it tells.
            let all = only_channel(Audio::open(&self.payload)?.decode(max_samples)?);
            let samples = all.len() as u64;
            (Some(all), samples)
        };
        let total = sinc.map_or(samples, |sinc| sinc.len(samples));
        if total == 0 {
            return Err(Error::corrupt("it has no samples"));
        }
        let place = rng.below(if total > wanted { total - wanted + 1 } else { total });
        let part = if total > wanted { place..place + wanted } else { 0..total };
        let needed = sinc.map_or(part.clone(), |sinc| sinc.needs(&part, samples));
        let source = if let Some(all) = whole {
            all[needed.start as usize..needed.end as usize].to_vec()
        } else {
            only_channel(audio.decode_part(needed.clone(), max_samples)?)
        };
        let made = resampled(source, needed.start, &part, sinc);
        if total > wanted {
            return Ok(made);
        }
        Ok(made.iter().copied().cycle().skip(place as usize).take(wanted as usize).collect())
    }
}

/// The mean of all channels.
fn only_channel(mut wave: Waveform) -> Vec<f32> {
    super::channels::mono(&mut wave);
    wave.channels.pop().unwrap_or_default()
}

fn resampled(source: Vec<f32>, at: u64, part: &Range<u64>, sinc: Option<&Sinc>) -> Vec<f32> {
    let Some(sinc) = sinc else { return source };
    let mut made = vec![0.0; (part.end - part.start) as usize];
    sinc.apply(&source, at, part.clone(), &mut made);
    made
}

fn power(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum()
}
