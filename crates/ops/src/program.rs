//! A recipe compiled: checked once, then run for every sample without looking anything up.
//!
//! The program decides which path a column takes and hands each column its slot. How an image becomes a row is in
//! [`crate::image_path`], what an op does in [`crate::augment`], how bytes become values in [`crate::decode`].

use crate::assets::Assets;
use crate::audio_path::{AudioPath, AudioScratch};
use crate::boxes;
use crate::buffer::BufferPool;
use crate::decode::{json, label, npy, text};
use crate::flow::{Flow, Home, make_held};
use crate::function::{Function, Functions, Named, Uncalled};
use crate::image_path::{HEADER_BYTES, ImagePath, ImageScratch};
use crate::tokens::TokenPath;
use crate::value::{
    Following, Input, Output, OutputKind, Padding, SampleContext, Slot, TokenBatch, TokenGather, Value,
};
use crate::video_path::VideoPath;
use bytes::Bytes;
use forebay_core::recipe::{Boxes, Decode, FieldRecipe, Op, Recipe};
use forebay_core::tensor::{Dtype, TensorSpec};
use forebay_core::{Error, Facts, Result, SampleId};
use std::sync::Arc;
use std::time::Duration;

/// Unused memory kept for results that have no row of a batch.
const POOL_BYTES: usize = 64 << 20;

/// A compiled recipe. Shared by all threads; what changes while it runs is in a [`Scratch`].
pub struct Program {
    columns: Vec<Column>,
    outputs: Vec<Output>,
    flow: Flow,
    pool: BufferPool,
}

/// Memory and handles one thread reuses from sample to sample.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Made with the first image, because making it can fail.
    image: Option<ImageScratch>,
    audio: AudioScratch,
}

impl Scratch {
    fn image(&mut self) -> Result<&mut ImageScratch> {
        match &mut self.image {
            Some(made) => Ok(made),
            empty => Ok(empty.insert(ImageScratch::new()?)),
        }
    }
}

struct Column {
    field: String,
    path: Path,
    /// The column of images that it follows.
    follow: Option<usize>,
    /// What ops other than an image's take together.
    delay: Duration,
}

enum Path {
    Image(ImagePath),
    Video(Box<VideoPath>),
    Audio(Box<AudioPath>),
    Npy(Option<Dtype>, Option<TensorSpec>),
    Label(Dtype),
    Json,
    Text,
    Tokens(TokenPath),
    Bytes,
    Boxes(Boxes),
}

impl Program {
    /// Compiles a recipe that calls no function, or names everything that is wrong with it.
    pub fn compile(recipe: &Recipe) -> Result<Program> {
        Self::compile_with(recipe, &Functions::None.of(recipe)?)
    }

    /// Compiles a recipe to be looked at: what its columns are, and what can be kept of them. Functions are not called.
    pub fn outline(recipe: &Recipe) -> Result<Program> {
        let functions: Vec<Arc<dyn Function>> =
            recipe.functions().map(|_| Arc::new(Uncalled) as Arc<dyn Function>).collect();
        Self::compile_with(recipe, &functions)
    }

    /// Compiles a recipe whose functions are given, in the order of [`Recipe::functions`].
    pub fn compile_with(recipe: &Recipe, functions: &[Arc<dyn Function>]) -> Result<Program> {
        let mut faults = recipe.check();
        if !faults.is_empty() {
            return Err(refused(&faults));
        }
        let mut columns = Vec::with_capacity(recipe.fields.len());
        let mut kinds = Vec::with_capacity(recipe.fields.len());
        for (index, field) in recipe.fields.iter().enumerate() {
            let mut found = Vec::new();
            let follow = recipe.followed(index);
            let number = follow.unwrap_or(index);
            if let Some((mut column, kind)) =
                Column::compile(number, &recipe.effective(index).native(), &mut found)
            {
                column.follow = follow;
                columns.push(column);
                kinds.push(kind);
            }
            faults.extend(found.into_iter().map(|fault| format!("field `{}`: {fault}", field.field)));
        }
        if faults.is_empty() {
            let (flow, outputs) = Flow::new(recipe, kinds, functions)?;
            return Ok(Self { columns, outputs, flow, pool: BufferPool::new(POOL_BYTES) });
        }
        Err(refused(&faults))
    }

    /// The columns, in the order of the recipe; those that functions of samples add come last.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The same program, whose packed batches have so many rows each.
    #[must_use]
    pub fn with_rows(mut self, packed: Option<u64>) -> Self {
        for output in &mut self.outputs {
            if let OutputKind::Tokens(TokenBatch { gather: TokenGather::Pack { rows, .. }, .. }) =
                &mut output.kind
            {
                *rows = packed;
            }
        }
        self
    }

    /// Whether preparing does no work on payloads: they are handed on as they are, beside labels.
    pub fn only_hands_on(&self) -> bool {
        let hands_on =
            |column: &Column| column.delay.is_zero() && matches!(column.path, Path::Bytes | Path::Label(_));
        let copies = |output: &Output| matches!(output.kind, OutputKind::Ragged(_));
        self.flow.is_empty() && self.columns.iter().all(hands_on) && !self.outputs.iter().any(copies)
    }

    /// Reads what ops need beside samples, unless that was done. Comes before the first sample is prepared.
    pub fn equip(&self, assets: &dyn Assets) -> Result<()> {
        for column in &self.columns {
            let equipped = match &column.path {
                Path::Tokens(path) => path.equip(assets),
                Path::Audio(path) => path.equip(assets),
                _ => Ok(()),
            };
            equipped.map_err(|error| error.while_doing(format_args!("prepare field `{}`", column.field)))?;
        }
        Ok(())
    }

    /// Memory for one thread.
    pub fn scratch(&self) -> Scratch {
        Scratch::default()
    }

    /// Does the first `ops` ops of an image column, none of which may be random. What comes back is worth keeping: as
    /// [`Input::Pixels`] of the same column it gives the same rows as the payload.
    pub fn prepare_until(
        &self,
        column: usize,
        ops: usize,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Vec<u8>> {
        self.image_path(column)?.prepare_until(ops, payload, scratch.image()?)
    }

    /// Bytes that [`Self::prepare_until`] would give, from the header alone.
    pub fn bytes_until(
        &self,
        column: usize,
        ops: usize,
        payload: &[u8],
        scratch: &mut Scratch,
    ) -> Result<u64> {
        self.image_path(column)?.bytes_until(ops, payload, scratch.image()?)
    }

    /// Bytes of [`Input::Pixels`] before the pixels themselves.
    pub const PIXELS_HEADER_BYTES: u64 = HEADER_BYTES as u64;

    fn image_path(&self, column: usize) -> Result<&ImagePath> {
        match self.columns.get(column).map(|column| &column.path) {
            Some(Path::Image(path)) => Ok(path),
            _ => Err(Error::internal(format!("prepare the pixels of column {column}: it holds no images"))),
        }
    }

    /// Whether finished batches are to be given to [`Self::finish_batch`].
    pub fn has_batch_functions(&self) -> bool {
        self.flow.has_batch_functions()
    }

    /// Does what the recipe does to whole batches.
    pub fn finish_batch(&self, (seed, epoch): (u64, u64), ids: &[SampleId], columns: Named) -> Result<Named> {
        self.flow.call_with_batch((seed, epoch), ids, columns, &self.pool)
    }

    /// Prepares one sample: `inputs[i]` belongs to field `i` of the recipe, `slots[i]` to output `i`. False when a filter
    /// leaves the sample out; then, and after an error, the slots hold nothing worth reading.
    pub fn prepare(
        &self,
        sample: &SampleContext,
        inputs: &[Input],
        slots: &mut [Slot<'_>],
        scratch: &mut Scratch,
    ) -> Result<bool> {
        if inputs.len() != self.columns.len() || slots.len() != self.outputs.len() {
            return Err(Error::internal(format!(
                "prepare sample {}: {} columns, {} inputs and {} slots",
                sample.sample_id,
                self.outputs.len(),
                inputs.len(),
                slots.len()
            )));
        }
        let mut held = if self.flow.is_empty() { Vec::new() } else { self.flow.held() };
        for (index, (column, input)) in self.columns.iter().zip(inputs).enumerate() {
            let mut fill = |slot: &mut Slot<'_>| {
                let follows = |at: usize| self.image_path(at).map(|path| (path, &inputs[at]));
                let followed = column.follow.map(follows).transpose()?;
                column.prepare(sample, input, followed, slot, scratch, &self.pool)
            };
            let filled = match self.flow.home(index) {
                Home::Slot(slot) => fill(&mut slots[*slot]),
                Home::Held(kind) => make_held(kind, &self.pool, fill).map(|value| held[index] = value),
            };
            filled.map_err(|error| {
                error.while_doing(format_args!("prepare field `{}`", column.field)).with_facts(Facts {
                    field: Some(column.field.clone()),
                    sample_id: Some(sample.sample_id),
                    epoch: Some(sample.epoch),
                    ..Facts::default()
                })
            })?;
            if !held.is_empty() && !self.flow.call(Some(index), sample, &mut held, slots)? {
                return Ok(false);
            }
        }
        if !held.is_empty() {
            if !self.flow.call(None, sample, &mut held, slots)? {
                return Ok(false);
            }
            self.flow.settle(&mut held, slots)?;
        }
        Ok(true)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").field("outputs", &self.outputs).finish_non_exhaustive()
    }
}

impl Column {
    fn compile(index: usize, field: &FieldRecipe, faults: &mut Vec<String>) -> Option<(Self, OutputKind)> {
        let mut delay = Duration::ZERO;
        let is_video = matches!(field.decode, Decode::Video { .. });
        if !matches!(field.decode, Decode::Image { .. }) {
            for op in &field.ops {
                match op {
                    Op::Delay { seconds } => {
                        delay += Duration::try_from_secs_f64(*seconds).unwrap_or_default();
                    }
                    Op::PadBatch(_)
                        if matches!(
                            field.decode,
                            Decode::Npy { .. } | Decode::Boxes(_) | Decode::Audio { .. }
                        ) => {}
                    Op::Audio(_) if matches!(field.decode, Decode::Audio { .. }) => {}
                    Op::PadBatch(_) if field.has_tokens() => {}
                    _ if is_video => {}
                    // Whether values can follow each other was checked with the recipe.
                    Op::Ragged(_) => {}
                    op if op.is_of_tokens() => {}
                    _ => faults.push(format!("`{}` works on images only", op.name())),
                }
            }
        }
        let (path, kind) = match &field.decode {
            Decode::Image { .. } => {
                let path = ImagePath::compile(index, field, faults)?;
                let kind = path.spec().map_or(OutputKind::Tensors, OutputKind::Tensor);
                (Path::Image(path), kind)
            }
            Decode::Video { .. } => {
                let path = VideoPath::compile(index, field, faults)?;
                let kind = path.spec().map_or(OutputKind::Tensors, OutputKind::Tensor);
                (Path::Video(Box::new(path)), kind)
            }
            Decode::Audio { .. } => {
                let path = AudioPath::compile(index, field)?;
                let kind = path.spec().map_or(OutputKind::Tensors, OutputKind::Tensor);
                (Path::Audio(Box::new(path)), kind)
            }
            Decode::Npy { shape } => {
                let spec = shape.clone().zip(field.dtype).map(|(shape, dtype)| TensorSpec { dtype, shape });
                let kind = spec.clone().map_or(OutputKind::Tensors, OutputKind::Tensor);
                (Path::Npy(field.dtype, spec), kind)
            }
            Decode::Label {} => {
                let dtype = field.output_dtype().unwrap_or(Dtype::I64);
                (Path::Label(dtype), OutputKind::Tensor(TensorSpec { dtype, shape: Vec::new() }))
            }
            _ if field.has_tokens() => {
                let (path, kind) = TokenPath::compile(index, field);
                (Path::Tokens(path), kind)
            }
            // Its ops were found to be tokens above.
            Decode::Tokens { .. } => return None,
            Decode::Json {} => (Path::Json, OutputKind::Json),
            Decode::Text {} => (Path::Text, OutputKind::Text),
            Decode::Bytes {} => (Path::Bytes, OutputKind::Bytes),
            Decode::Boxes(boxes) => (Path::Boxes(boxes.clone()), OutputKind::Tensors),
        };
        let kind = match (kind, Padding::of(field), Following::of(field)) {
            (OutputKind::Tensors, Some(padding), _) => OutputKind::Padded(padding),
            (OutputKind::Tensors | OutputKind::Bytes | OutputKind::Text, _, Some(following)) => {
                OutputKind::Ragged(following)
            }
            (kind, ..) => kind,
        };
        Some((Self { field: field.field.clone(), path, follow: None, delay }, kind))
    }

    fn prepare(
        &self,
        sample: &SampleContext,
        input: &Input,
        followed: Option<(&ImagePath, &Input)>,
        slot: &mut Slot<'_>,
        scratch: &mut Scratch,
        pool: &BufferPool,
    ) -> Result<()> {
        let size = match followed {
            None => None,
            Some((path, input)) => Some((path, path.stored_size(input, scratch.image()?)?)),
        };
        if let (Path::Image(own), Some((_, expected))) = (&self.path, size) {
            let found = own.stored_size(input, scratch.image()?)?;
            if found != expected {
                let ((width, height), (other_width, other_height)) = (found, expected);
                return Err(Error::corrupt(format!(
                    "follow an image of {other_width}x{other_height}: this one is {width}x{height}"
                )));
            }
        }
        if !self.delay.is_zero() {
            std::thread::sleep(self.delay);
        }
        if let Path::Video(path) = &self.path {
            return path.prepare(sample, input, slot, scratch.image()?, pool);
        }
        let payload = match (input, &self.path) {
            (Input::Payload(payload), _) => payload,
            (Input::Pixels(pixels), Path::Image(path)) => {
                return path.prepare_pixels(sample, pixels, slot, scratch.image()?, pool);
            }
            (Input::Pixels(_), _) => {
                return Err(Error::internal("the column holds no images, but was given pixels"));
            }
            (Input::Int(value), Path::Label(dtype)) => return write_label(*value, *dtype, slot),
            (Input::Int(value), _) => {
                return Err(Error::invalid_config(format!(
                    "decode the integer {value}: only `label` takes one"
                )));
            }
            (Input::Frames(_), _) => {
                return Err(Error::internal("the column holds no video, but was given frames"));
            }
            (Input::Missing, _) => return Err(Error::corrupt("the sample has no such field")),
        };
        let value = match &self.path {
            Path::Image(path) => return path.prepare(sample, payload, slot, scratch.image()?, pool),
            Path::Video(_) => return Err(Error::internal("a video has a way of its own")),
            Path::Audio(path) => return path.prepare(sample, payload, slot, &mut scratch.audio, pool),
            Path::Tokens(path) => return path.prepare(sample, payload, slot, pool),
            Path::Label(dtype) => return write_label(label::decode(payload)?, *dtype, slot),
            Path::Npy(_, Some(spec)) => return npy::decode_into(payload, spec, row(slot)?),
            Path::Npy(dtype, None) => {
                let mut tensor = npy::decode(payload)?;
                let found = tensor.spec.dtype;
                if let Some(dtype) = dtype.filter(|dtype| !npy::holds(found, *dtype)) {
                    let (found, asked) = (found.name(), dtype.name());
                    return Err(Error::corrupt(format!(
                        "decode npy: it holds {found}, the recipe asks for {asked}"
                    )));
                }
                tensor.spec.dtype = dtype.unwrap_or(found);
                Value::Tensor(tensor)
            }
            Path::Json => Value::Json(json::decode(payload)?.to_owned()),
            Path::Text => Value::Text(text::decode(payload)?.to_owned()),
            Path::Bytes => Value::Bytes(Bytes::clone(payload)),
            Path::Boxes(recipe) => {
                let (path, size) = size.ok_or_else(|| Error::internal("boxes follow no image"))?;
                let moves = path.moves(sample, size, scratch.image()?)?;
                boxes::prepare(recipe, payload, size, &moves, pool)?
            }
        };
        match slot {
            Slot::Value(place) => **place = Some(value),
            Slot::Row(_) => {
                return Err(Error::internal("the column has values of their own, but was given a row"));
            }
        }
        Ok(())
    }
}

fn refused(faults: &[String]) -> Error {
    Error::invalid_config(format!("compile the recipe: {}", faults.join("; ")))
}

fn write_label(value: i64, dtype: Dtype, slot: &mut Slot<'_>) -> Result<()> {
    label::write(value, dtype, row(slot)?)
}

fn row<'a>(slot: &'a mut Slot<'_>) -> Result<&'a mut [u8]> {
    match slot {
        Slot::Row(row) => Ok(row),
        Slot::Value(_) => Err(Error::internal("the column is written in place, but was given no row")),
    }
}
