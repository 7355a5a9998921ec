//! Looking at a few samples before a cache is filled: how large values are, and what making them costs.
//!
//! Runs on the thread that chooses what is resident, beside the first fetches. Samples are read once more for it,
//! spread evenly over the dataset.

use super::values::{KeptAt, Preparing};
use crate::inputs::Inputs;
use bytes::Bytes;
use forebay_core::cache::{Capacity, Measured, Point};
use forebay_core::manifest::Location;
use forebay_core::recipe::Cut;
use forebay_core::{Error, Result, SampleId};
use forebay_ops::{BatchBuilder, BufferPool, Input, Program, SampleContext, Scratch};
use forebay_store::{ByteRange, Store};
use futures::future::{join_all, try_join_all};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most samples that are looked at.
const SAMPLES: u64 = 32;

/// When this much time has gone, a few samples are enough.
const ENOUGH_TIME: Duration = Duration::from_millis(500);
const ENOUGH_SAMPLES: usize = 4;

/// How long the store may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of pixels to a byte of payload when no sample could be looked at: about what photographs have.
const USUAL_RATIO: f64 = 10.0;

/// Bytes of a value before it is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Estimate {
    /// The same for every sample.
    Fixed(u64),
    /// In proportion to the payload.
    Ratio(f64),
}

impl Estimate {
    pub(super) fn bytes(self, length: u64) -> u64 {
        match self {
            Self::Fixed(bytes) => bytes,
            Self::Ratio(ratio) => (length as f64 * ratio).ceil() as u64,
        }
    }

    /// From lengths of payloads and of their values. Values all alike are taken to be so everywhere.
    fn from_seen(seen: &[(u64, u64)]) -> Self {
        match seen {
            [] => Self::Ratio(USUAL_RATIO),
            [(_, first), rest @ ..] if rest.iter().all(|(_, value)| value == first) => Self::Fixed(*first),
            seen => {
                let payloads: u64 = seen.iter().map(|(payload, _)| payload).sum();
                let values: u64 = seen.iter().map(|(_, value)| value).sum();
                Self::Ratio(values as f64 / payloads.max(1) as f64)
            }
        }
    }
}

/// Where samples come from.
pub(super) struct Probe<'a> {
    pub(super) inputs: &'a Inputs,
    pub(super) store: &'a Arc<dyn Store>,
    pub(super) samples: u64,
}

/// Samples that came, and how long each took when all were asked for at once.
struct Fetched {
    samples: Vec<(SampleId, Vec<Input>)>,
    seconds_each: f64,
}

impl Probe<'_> {
    /// Keeps values at a cut that was asked for.
    pub(super) fn kept_at(&self, preparing: &Preparing, name: &str) -> KeptAt {
        let cuts = preparing.recipe.cut_at(name).unwrap_or_default();
        let unknown = cuts.iter().flatten().any(|cut| cut.pixel_bytes.is_none());
        let fetched = if unknown { self.fetch().ok() } else { None };
        let samples = fetched.map(|fetched| fetched.samples).unwrap_or_default();
        let mut scratch = preparing.program.scratch();
        let mut seen = vec![Vec::new(); cuts.len()];
        for (_, inputs) in &samples {
            for (column, cut) in columns_of(&cuts) {
                if let Input::Payload(payload) = &inputs[column]
                    && let Ok(bytes) = preparing.program.bytes_until(column, cut.ops, payload, &mut scratch)
                {
                    seen[column].push((payload.len() as u64, bytes));
                }
            }
        }
        KeptAt { name: name.to_owned(), why: "as asked for".to_owned(), cuts: estimated(&cuts, &seen) }
    }

    /// Measures what every cut costs and gives, and chooses.
    pub(super) fn choose(&self, preparing: &Preparing, capacity: Capacity) -> KeptAt {
        let bytes = |why: String| KeptAt { name: "bytes".to_owned(), why, cuts: Vec::new() };
        let fetched = match self.fetch() {
            Ok(fetched) => fetched,
            Err(error) => return bytes(format!("nothing could be measured: {error}")),
        };
        let mut ways: Vec<Way> = preparing
            .recipe
            .cut_names()
            .into_iter()
            .filter_map(|name| Some(Way::new(name, preparing.recipe.cut_at(name).ok()?)))
            .collect();
        let program = &preparing.program;
        let mut scratch = program.scratch();
        let (mut whole_seconds, mut payload_bytes, mut count) = (Vec::new(), 0, 0usize);
        let begun = Instant::now();
        for (at, (sample, inputs)) in fetched.samples.iter().enumerate() {
            // The first run of all warms up code and memory and is not counted.
            if at == 0 && timed(program, *sample, inputs, &mut scratch).is_err() {
                continue;
            }
            let Ok(whole) = timed(program, *sample, inputs, &mut scratch) else { continue };
            if ways.iter_mut().any(|way| way.measure(program, *sample, inputs, &mut scratch).is_err()) {
                continue;
            }
            whole_seconds.push(whole);
            payload_bytes += lengths(inputs);
            count += 1;
            if count >= ENOUGH_SAMPLES && begun.elapsed() >= ENOUGH_TIME {
                break;
            }
        }
        if count == 0 {
            return bytes("nothing could be measured: no sample could be prepared".to_owned());
        }
        // A way may have measured a sample that another one could not: it counts by its own number.
        let measured = Measured {
            samples: self.samples,
            payload_bytes: payload_bytes as f64 / count as f64,
            fetch_seconds: fetched.seconds_each,
            prepare_seconds: median(whole_seconds),
            threads: preparing.threads,
            memory: capacity.memory,
            disk: capacity.disk,
            points: ways.iter().map(Way::point).collect(),
        };
        let choice = measured.choose();
        match choice.point {
            None => bytes(choice.why()),
            Some(point) => KeptAt {
                name: choice.name().to_owned(),
                why: choice.why(),
                cuts: estimated(&ways[point].cuts, &ways[point].seen),
            },
        }
    }

    /// Reads samples spread over the dataset; those that fail are left out.
    fn fetch(&self) -> Result<Fetched> {
        let count = self.samples.min(SAMPLES);
        let ids = (0..count)
            .map(|at| SampleId((u128::from(at) * u128::from(self.samples) / u128::from(count)) as u64));
        let begun = Instant::now();
        let reads = join_all(ids.map(|id| async move { self.read(id).await.map(|inputs| (id, inputs)) }));
        let reads = async move {
            tokio::time::timeout(FETCH_TIMEOUT, reads)
                .await
                .map_err(|_| Error::unavailable("read samples to measure: the store did not answer in time"))
        };
        let answers = match self.store.runtime() {
            Some(handle) => handle.block_on(reads)?,
            None => tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|cause| Error::exhausted("start a runtime to read samples").with_source(cause))?
                .block_on(reads)?,
        };
        let seconds_each = begun.elapsed().as_secs_f64() / count.max(1) as f64;
        let taken = |(id, mut inputs): (SampleId, Vec<Input>)| {
            self.inputs.take(id, &mut inputs).ok()?;
            Some((id, inputs))
        };
        let samples = answers.into_iter().filter_map(Result::ok).filter_map(taken).collect();
        Ok(Fetched { samples, seconds_each })
    }

    async fn read(&self, sample: SampleId) -> Result<Vec<Input>> {
        let (mut inputs, fields) = self.inputs.of(sample);
        let reads = fields.into_iter().map(|(field, location)| async move {
            let Location { object, offset, length } = location;
            let key = self.inputs.object_key(object);
            let range = ByteRange::from(offset..offset.saturating_add(length));
            let bytes: Bytes = self.store.read(&key, range).await?;
            Ok::<_, Error>((field, Input::Payload(bytes)))
        });
        for (field, input) in try_join_all(reads).await? {
            self.inputs.fill(&mut inputs, sample, field, &input);
        }
        Ok(inputs)
    }
}

/// A cut being measured.
struct Way {
    name: &'static str,
    cuts: Vec<Option<Cut>>,
    /// Lengths of payloads and values, by column.
    seen: Vec<Vec<(u64, u64)>>,
    kept_bytes: u64,
    rest_seconds: Vec<f64>,
    count: usize,
}

impl Way {
    fn new(name: &'static str, cuts: Vec<Option<Cut>>) -> Self {
        let seen = vec![Vec::new(); cuts.len()];
        Self { name, cuts, seen, kept_bytes: 0, rest_seconds: Vec::new(), count: 0 }
    }

    /// What is left to do when this much is done, and how large that is.
    fn measure(
        &mut self,
        program: &Program,
        sample: SampleId,
        inputs: &[Input],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let mut inputs = inputs.to_vec();
        for (column, cut) in columns_of(&self.cuts) {
            if let Input::Payload(payload) = &inputs[column] {
                let value = program.prepare_until(column, cut.ops, payload, scratch)?;
                self.seen[column].push((payload.len() as u64, value.len() as u64));
                inputs[column] = Input::Pixels(value.into());
            }
        }
        self.rest_seconds.push(timed(program, sample, &inputs, scratch)?);
        self.kept_bytes += lengths(&inputs);
        self.count += 1;
        Ok(())
    }

    fn point(&self) -> Point {
        Point {
            name: self.name,
            value_bytes: self.kept_bytes as f64 / self.count.max(1) as f64,
            rest_seconds: median(self.rest_seconds.clone()),
        }
    }
}

/// The middle one: a thread that is held up for a moment does not count.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or_default()
}

fn columns_of(cuts: &[Option<Cut>]) -> impl Iterator<Item = (usize, Cut)> {
    cuts.iter().enumerate().filter_map(|(column, cut)| cut.map(|cut| (column, cut)))
}

fn estimated(cuts: &[Option<Cut>], seen: &[Vec<(u64, u64)>]) -> Vec<Option<(Cut, Estimate)>> {
    let estimate = |(cut, seen): (&Option<Cut>, &Vec<(u64, u64)>)| {
        let cut = (*cut)?;
        let fixed = cut.pixel_bytes.map(|bytes| Estimate::Fixed(bytes + Program::PIXELS_HEADER_BYTES));
        Some((cut, fixed.unwrap_or_else(|| Estimate::from_seen(seen))))
    };
    cuts.iter().zip(seen).map(estimate).collect()
}

fn lengths(inputs: &[Input]) -> u64 {
    let length = |input: &Input| match input {
        Input::Payload(bytes) | Input::Pixels(bytes) => bytes.len() as u64,
        Input::Frames(frames) => frames.iter().map(|frame| frame.len() as u64).sum(),
        Input::Int(_) | Input::Missing => 0,
    };
    inputs.iter().map(length).sum()
}

/// Seconds that preparing takes.
fn timed(program: &Program, sample: SampleId, inputs: &[Input], scratch: &mut Scratch) -> Result<f64> {
    let builder = BatchBuilder::new(program.outputs(), 1, &BufferPool::new(0));
    let mut writer = builder.claim(0).ok_or_else(|| Error::internal("measure a sample: its row is taken"))?;
    let context = SampleContext { seed: 0, epoch: 0, sample_id: sample };
    let since = Instant::now();
    // A sample that is left out took its time too.
    let _ = program.prepare(&context, inputs, &mut writer.slots(), scratch)?;
    Ok(since.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_all_alike_are_exact_and_others_go_by_the_payload() {
        assert_eq!(Estimate::from_seen(&[(10, 500), (90, 500)]), Estimate::Fixed(500));
        assert_eq!(Estimate::from_seen(&[(10, 50), (30, 130)]).bytes(100), 450);
        assert_eq!(Estimate::from_seen(&[]).bytes(7), 70);
        assert_eq!(Estimate::from_seen(&[(0, 5), (0, 6)]).bytes(0), 0);
    }
}
