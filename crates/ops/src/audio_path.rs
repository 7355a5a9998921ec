//! From the payload of an audio column to its values: what of the file is decoded, then op after op.
//!
//! When a crop comes after nothing but changes of channels and rate, the place is drawn from the header's length, and only
//! what the crop needs is decoded and resampled. The result is that of decoding everything, bit for bit. What the ops do
//! is in [`crate::augment`] and [`crate::kernels`].

use crate::assets::Assets;
use crate::augment::audio::mix_noise::Recordings;
use crate::augment::audio::{channels, crop, gain, noise, spec_augment, speed};
use crate::buffer::BufferPool;
use crate::decode::audio::{Audio, Waveform};
use crate::kernels::audio::fourier::Space;
use crate::kernels::audio::mel::{Filters, cosines, logarithms, multiply};
use crate::kernels::audio::sinc::Sinc;
use crate::kernels::audio::stft::Frames;
use crate::value::{SampleContext, Slot, Tensor, Value};
use bytes::Bytes;
use forebay_core::recipe::{AudioForm, AudioOp, Decode, FieldRecipe, LogUnit, Op, Quality};
use forebay_core::rng::Rng;
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Result};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Pairs of rates whose weights a thread keeps; a dataset has a few.
const MAX_KEPT: usize = 16;

/// A compiled audio column.
pub(crate) struct AudioPath {
    max_samples: u64,
    steps: Vec<Step>,
    /// The step that is a crop for which only part of the file is needed.
    entry: Option<usize>,
    spectrum: Option<Spectrum>,
    masks: Vec<Step>,
    spec: Option<TensorSpec>,
}

struct Step {
    /// Place in the recipe, which keys what it draws.
    key: u64,
    op: AudioOp,
    /// What `mix_noise` mixes in, once it was read.
    recordings: OnceLock<Recordings>,
}

/// What becomes of frames.
struct Spectrum {
    frames: Frames,
    power: u32,
    bins: usize,
    filters: Option<Filters>,
    logarithm: Option<(LogUnit, f64, Option<f64>)>,
    /// Weights of cosines.
    cosines: Option<Vec<f32>>,
}

/// What one thread keeps from sample to sample.
#[derive(Default)]
pub(crate) struct AudioScratch {
    sincs: HashMap<(u32, u32, Quality), Arc<Sinc>>,
    space: Space,
}

impl std::fmt::Debug for AudioScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudioScratch").field("sincs", &self.sincs.len()).finish_non_exhaustive()
    }
}

impl AudioScratch {
    fn sinc(&mut self, from: u32, to: u32, quality: Quality) -> Arc<Sinc> {
        if self.sincs.len() >= MAX_KEPT && !self.sincs.contains_key(&(from, to, quality)) {
            self.sincs.clear();
        }
        let kept = self.sincs.entry((from, to, quality));
        Arc::clone(kept.or_insert_with(|| Arc::new(Sinc::new(from, to, quality))))
    }
}

impl Spectrum {
    fn new(op: &AudioOp, rate: Option<u32>) -> Option<Self> {
        let stft = op.stft()?;
        let (n_fft, power, rate) = (stft.n_fft as usize, stft.power, rate.unwrap_or_default());
        let mut made = Self {
            bins: stft.bins(),
            frames: Frames::new(stft),
            power,
            filters: None,
            logarithm: None,
            cosines: None,
        };
        let bands = match op {
            AudioOp::Mel(op) => Some(op.bands()),
            AudioOp::LogMel(op) => {
                made.logarithm = Some((op.log, op.floor, op.range));
                Some(op.bands())
            }
            AudioOp::Mfcc(op) => {
                // Both libraries look at decibels no further than 80 below the loudest.
                made.logarithm = Some((LogUnit::Db, 1e-10, Some(80.0)));
                made.cosines = Some(cosines(op.n_mfcc as usize, op.n_mels as usize));
                Some(op.bands())
            }
            _ => None,
        };
        if let Some(bands) = bands {
            made.filters = Some(Filters::new(&bands, rate, n_fft));
            made.bins = bands.n_mels as usize;
        }
        Some(made)
    }

    /// Frames in bands in channels, and how many bands and frames.
    fn of(&self, wave: &Waveform, limit: u64, space: &mut Space) -> Result<(Vec<f32>, usize, usize)> {
        let frames = self.frames.count(wave.samples());
        let size = self.bins * frames;
        within(size as u64 * wave.channels.len() as u64, limit)?;
        let mut values = vec![0.0f32; size * wave.channels.len()];
        for (channel, out) in wave.channels.iter().zip(values.chunks_exact_mut(size.max(1))) {
            self.frames.each(channel, space, |first, count, bins| {
                let mut put = |row: usize, lane: &[f32]| {
                    out[row * frames + first..][..count].copy_from_slice(&lane[..count]);
                };
                match &self.filters {
                    Some(filters) => filters.apply(bins, |band, lane| put(band, lane)),
                    None => bins.iter().enumerate().for_each(|(bin, lane)| put(bin, lane)),
                }
            });
        }
        if let Some((unit, floor, range)) = self.logarithm {
            logarithms(&mut values, unit, self.power, floor, range);
        }
        let Some(matrix) = &self.cosines else { return Ok((values, self.bins, frames)) };
        let parts = values.chunks_exact(size.max(1)).map(|channel| multiply(matrix, channel, frames));
        Ok((parts.collect::<Vec<_>>().concat(), matrix.len() / self.bins, frames))
    }
}

impl AudioPath {
    /// Compiles column number `column` of a checked recipe.
    pub(crate) fn compile(column: usize, field: &FieldRecipe) -> Option<Self> {
        let Decode::Audio { max_samples } = field.decode else { return None };
        let (mut steps, mut masks, mut spectrum) = (Vec::new(), Vec::new(), None);
        let mut form = AudioForm::default();
        for (index, op) in field.ops.iter().enumerate() {
            let Op::Audio(op) = op else { continue };
            let key = column as u64 * 1000 + index as u64;
            let step = Step { key, op: op.clone(), recordings: OnceLock::new() };
            match op {
                AudioOp::SpecAugment(_) => masks.push(step),
                _ if op.stft().is_some() => spectrum = Spectrum::new(op, form.rate),
                _ => steps.push(step),
            }
            form = form.after(op);
        }
        let spec = form.shape().map(|shape| TensorSpec { dtype: Dtype::F32, shape });
        Some(Self { max_samples, entry: entry(&steps), steps, spectrum, masks, spec })
    }

    /// Reads what ops need beside samples, unless that was done.
    pub(crate) fn equip(&self, assets: &dyn Assets) -> Result<()> {
        for step in &self.steps {
            if let (AudioOp::MixNoise(op), None) = (&step.op, step.recordings.get()) {
                // Whoever was first has read the same.
                let _ = step.recordings.set(Recordings::new(assets.noise(op)?)?);
            }
        }
        Ok(())
    }

    /// Type and shape of every value, when all have one.
    pub(crate) fn spec(&self) -> Option<TensorSpec> {
        self.spec.clone()
    }

    /// Writes the value of one sample.
    pub(crate) fn prepare(
        &self,
        sample: &SampleContext,
        payload: &Bytes,
        slot: &mut Slot<'_>,
        scratch: &mut AudioScratch,
        pool: &BufferPool,
    ) -> Result<()> {
        let rng = |step: &Step| Rng::for_op(sample.seed, sample.epoch, sample.sample_id, step.key);
        let (mut wave, done) = self.enter(payload, scratch, rng)?;
        for step in &self.steps[done..] {
            self.step(step, &mut wave, &mut rng(step), scratch)?;
        }
        let channels = wave.channels.len();
        let Some(spectrum) = &self.spectrum else {
            let shape = vec![channels, wave.samples()];
            return self.put(shape, wave.channels.iter().map(Vec::as_slice), slot, pool);
        };
        let (mut values, bins, frames) = spectrum.of(&wave, self.max_samples, &mut scratch.space)?;
        for step in &self.masks {
            if let AudioOp::SpecAugment(op) = &step.op {
                spec_augment::apply(op, &mut values, (bins, frames), &mut rng(step));
            }
        }
        self.put(vec![channels, bins, frames], std::iter::once(values.as_slice()), slot, pool)
    }

    /// Decodes the file, or what the first crop needs of it. Says how many steps are done.
    fn enter(
        &self,
        payload: &Bytes,
        scratch: &mut AudioScratch,
        rng: impl Fn(&Step) -> Rng,
    ) -> Result<(Waveform, usize)> {
        let audio = Audio::open(payload)?;
        let header = *audio.header();
        let (Some(entry), Some(samples)) = (self.entry, header.samples) else {
            return Ok((audio.decode(self.max_samples)?, 0));
        };
        let (before, crop) = (&self.steps[..entry], &self.steps[entry]);
        let rates = before.iter().find_map(|step| match step.op {
            AudioOp::Resample { rate, quality } if rate != header.rate => Some((rate, quality)),
            _ => None,
        });
        let sinc = rates.map(|(rate, quality)| scratch.sinc(header.rate, rate, quality));
        let rate = rates.map_or(header.rate, |(rate, _)| rate);
        let total = sinc.as_ref().map_or(samples, |sinc| sinc.len(samples));
        let wanted = length(&crop.op, rate);
        let part = crop::part(&crop.op, total, wanted, &mut rng(crop));
        let needed = sinc.as_ref().map_or(part.clone(), |sinc| sinc.needs(&part, samples));
        let mut wave = audio.decode_part(needed.clone(), self.max_samples)?;
        for step in before {
            match (&step.op, &sinc) {
                (AudioOp::Resample { .. }, Some(sinc)) => {
                    self.resample(&mut wave, sinc, rate, needed.start, part.clone())?;
                }
                (AudioOp::Resample { .. }, None) => {}
                _ => self.step(step, &mut wave, &mut rng(step), scratch)?,
            }
        }
        crop::pad(&mut wave, wanted);
        Ok((wave, entry + 1))
    }

    fn step(
        &self,
        step: &Step,
        wave: &mut Waveform,
        rng: &mut Rng,
        scratch: &mut AudioScratch,
    ) -> Result<()> {
        let op = &step.op;
        match op {
            AudioOp::Mono {} => channels::mono(wave),
            AudioOp::Stereo {} => channels::stereo(wave)?,
            AudioOp::Resample { rate, quality } if *rate != wave.rate => {
                let sinc = scratch.sinc(wave.rate, *rate, *quality);
                self.resample(wave, &sinc, *rate, 0, 0..sinc.len(wave.samples() as u64))?;
            }
            AudioOp::RandomCrop(_) | AudioOp::CenterCrop(_) => {
                let wanted = length(op, wave.rate);
                let part = crop::part(op, wave.samples() as u64, wanted, rng);
                crop::keep(wave, &part, wanted);
            }
            AudioOp::Pad(_) => crop::pad(wave, length(op, wave.rate)),
            AudioOp::Gain { db } => gain::apply(*db, wave, rng),
            AudioOp::Speed { factors } => {
                if let Some((from, to)) = speed::draw(factors, wave.rate, rng) {
                    let sinc = scratch.sinc(from, to, Quality::Fast);
                    let rate = wave.rate;
                    self.resample(wave, &sinc, rate, 0, 0..sinc.len(wave.samples() as u64))?;
                }
            }
            AudioOp::Noise { snr, p } => noise::apply(*snr, *p, wave, rng),
            AudioOp::MixNoise(op) => {
                let recordings = step
                    .recordings
                    .get()
                    .ok_or_else(|| Error::internal("mix in noise: its recordings were not read before"))?;
                let sinc = |from, to| scratch.sinc(from, to, Quality::Fast);
                recordings.apply(op, wave, rng, sinc, self.max_samples)?;
            }
            AudioOp::Resample { .. }
            | AudioOp::Spectrogram(_)
            | AudioOp::Mel(_)
            | AudioOp::LogMel(_)
            | AudioOp::Mfcc(_)
            | AudioOp::SpecAugment(_) => {}
        }
        Ok(())
    }

    /// Gives a waveform, of which the samples from `at` on are there, another rate in `part`.
    fn resample(&self, wave: &mut Waveform, sinc: &Sinc, rate: u32, at: u64, part: Range<u64>) -> Result<()> {
        let samples = part.end - part.start;
        within(samples.saturating_mul(wave.channels.len() as u64), self.max_samples)?;
        for channel in &mut wave.channels {
            let mut made = vec![0.0; samples as usize];
            sinc.apply(channel, at, part.clone(), &mut made);
            *channel = made;
        }
        wave.rate = rate;
        Ok(())
    }

    fn put<'a>(
        &self,
        shape: Vec<usize>,
        parts: impl Iterator<Item = &'a [f32]>,
        slot: &mut Slot<'_>,
        pool: &BufferPool,
    ) -> Result<()> {
        let spec = TensorSpec { dtype: Dtype::F32, shape };
        let write = |row: &mut [u8]| {
            let (places, _) = row.as_chunks_mut::<4>();
            places.iter_mut().zip(parts.flatten()).for_each(|(place, value)| *place = value.to_ne_bytes());
        };
        match slot {
            Slot::Row(row) if self.spec.as_ref() == Some(&spec) => write(row),
            Slot::Row(_) => {
                let why = format!("audio became {:?}, where its recipe promised {:?}", spec.shape, self.spec);
                return Err(Error::internal(why));
            }
            Slot::Value(place) => {
                let mut data = pool.take(spec.bytes());
                write(data.as_mut_slice());
                **place = Some(Value::Tensor(Tensor { spec, data }));
            }
        }
        Ok(())
    }
}

/// The crop before which nothing is done but to channels and, once, to the rate.
fn entry(steps: &[Step]) -> Option<usize> {
    let mut resampled = false;
    for (at, step) in steps.iter().enumerate() {
        match step.op {
            AudioOp::Mono {} | AudioOp::Stereo {} => {}
            AudioOp::Resample { .. } if !resampled => resampled = true,
            AudioOp::RandomCrop(_) | AudioOp::CenterCrop(_) => return Some(at),
            _ => return None,
        }
    }
    None
}

fn length(op: &AudioOp, rate: u32) -> u64 {
    match op {
        AudioOp::RandomCrop(length) | AudioOp::CenterCrop(length) | AudioOp::Pad(length) => {
            length.at(Some(rate)).unwrap_or_default()
        }
        _ => 0,
    }
}

fn within(values: u64, limit: u64) -> Result<()> {
    if values <= limit {
        return Ok(());
    }
    Err(Error::exhausted(format!("prepare audio: {values} values are more than {limit}"))
        .with_hint("raise `max_samples`, or put a crop first"))
}

#[cfg(test)]
#[path = "audio_path/tests.rs"]
mod tests;

#[cfg(test)]
#[path = "audio_path/part_tests.rs"]
mod part_tests;
