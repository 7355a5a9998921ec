//! What a recipe must obey beyond its grammar, and what can be said about its result without an image.
//!
//! Every fault is reported, each with the path of the value at fault. Parsing calls this, and whoever builds a recipe
//! in code does.

use super::{
    AudioForm, AudioOp, Decode, FieldRecipe, Function, Interval, Op, Padded, Recipe, SampleOp, Size,
};
use super::{follow, mixing, policies};
use crate::tensor::Dtype;
use std::collections::{HashMap, HashSet};

/// Longest side of an image, and widest border.
const MAX_SIDE: u32 = 65_535;
/// Pixels of an image, or elements of an array, that a recipe may speak of.
const MAX_ELEMENTS: u64 = 1 << 40;
/// Longest pause of `delay`.
const MAX_DELAY_SECONDS: f64 = 3600.0;

impl Recipe {
    /// All faults of the recipe, each as `recipe[0].ops[2].size: why`; empty when it is sound.
    pub fn check(&self) -> Vec<String> {
        let mut faults = Faults::default();
        if self.fields.is_empty() {
            faults.add("recipe", "it has no fields, so there is nothing to deliver");
        }
        let mut names: HashMap<String, usize> = HashMap::new();
        for (index, field) in self.fields.iter().enumerate() {
            let path = format!("recipe[{index}]");
            check_field(&path, field, &mut faults);
            faults.extend(&path, follow::faults(self, index));
            for name in field.column_names() {
                if let Some(first) = names.insert(name.clone(), index) {
                    let why =
                        format_args!("the column `{name}` is already made by recipe[{first}]: give a `name`");
                    faults.add(&path, why);
                }
            }
        }
        self.check_sample_ops(&mut faults);
        faults.found
    }

    fn check_sample_ops(&self, faults: &mut Faults) {
        let mut known: HashSet<&str> = self.fields.iter().map(FieldRecipe::output_name).collect();
        let padded: HashSet<String> = self
            .fields
            .iter()
            .filter(|field| field.column_names().len() > 1 || field.ragged().is_some())
            .flat_map(FieldRecipe::column_names)
            .collect();
        let mut batches = false;
        for (index, op) in self.ops.iter().enumerate() {
            let path = format!("recipe[{}]", self.fields.len() + index);
            if let Some(function) = op.function() {
                check_function(&path, function, faults);
            }
            faults.extend(&path, mixing::faults(self, index));
            let (SampleOp::Map { fields, .. } | SampleOp::Filter { fields, .. }) = op else {
                batches = true;
                continue;
            };
            let name = op.name();
            faults.unless(
                !batches,
                &path,
                "op",
                format_args!("`{name}` cannot follow what is of whole batches"),
            );
            faults.unless(!fields.is_empty(), &path, "fields", "it is given no column");
            for (at, field) in fields.iter().enumerate() {
                let name = field.as_str();
                faults.unless(
                    known.contains(name),
                    &path,
                    "fields",
                    format_args!("there is no column `{field}`"),
                );
                faults.unless(
                    !fields[..at].contains(field),
                    &path,
                    "fields",
                    format_args!("`{field}` is there twice"),
                );
            }
            if let SampleOp::Map { .. } = op {
                let whole = fields.iter().chain(op.outputs()).find(|field| padded.contains(*field));
                if let Some(field) = whole {
                    let why = "is put together when its batch is closed: a function of samples can neither take nor make it";
                    faults.unless(false, &path, "fields", format_args!("`{field}` {why}"));
                }
                known.retain(|name| !fields.iter().any(|field| field == name));
                for output in op.outputs() {
                    let fresh = !output.trim().is_empty() && known.insert(output);
                    let why =
                        format_args!("`{output}` is empty, there twice, or a column that it is not given");
                    faults.unless(fresh, &path, "outputs", why);
                }
            }
        }
        faults.unless(!known.is_empty() || self.fields.is_empty(), "recipe", "ops", "no column is left");
    }
}

impl FieldRecipe {
    /// Height and width of the image after all ops, when they do not depend on the stored image.
    pub fn fixed_image_size(&self) -> Option<(u32, u32)> {
        if !matches!(self.decode, Decode::Image { .. }) {
            return None;
        }
        fixed_size(&self.ops)
    }
}

/// Height and width after these ops, when they do not depend on the stored image.
pub(super) fn fixed_size(ops: &[Op]) -> Option<(u32, u32)> {
    ops.iter().fold(None, |known, op| match op {
        Op::Resize { size: Size::Side(_), .. } => None,
        Op::Resize { size, .. }
        | Op::CenterCrop { size }
        | Op::RandomCrop { size, .. }
        | Op::RandomResizedCrop { size, .. } => Some(size.height_width()),
        Op::Pad { border: [left, top, right, bottom], .. } => {
            known.and_then(|(height, width): (u32, u32)| {
                let height = height.checked_add(*top)?.checked_add(*bottom)?;
                Some((height, width.checked_add(*left)?.checked_add(*right)?))
            })
        }
        _ => known,
    })
}

/// Faults found so far.
#[derive(Default)]
struct Faults {
    found: Vec<String>,
}

impl Faults {
    fn add(&mut self, path: &str, why: impl std::fmt::Display) {
        self.found.push(format!("{path}: {why}"));
    }

    fn extend(&mut self, path: &str, faults: Vec<(&'static str, String)>) {
        self.found.extend(faults.into_iter().map(|(name, why)| format!("{path}.{name}: {why}")));
    }

    fn unless(&mut self, sound: bool, path: &str, name: &str, why: impl std::fmt::Display) {
        if !sound {
            self.found.push(format!("{path}.{name}: {why}"));
        }
    }
}

fn check_field(path: &str, field: &FieldRecipe, faults: &mut Faults) {
    let before = faults.found.len();
    if field.alternatives().any(|name| name.trim().is_empty()) {
        let why =
            format!("`{}` has an empty name: write one field, or several separated by `;`", field.field);
        faults.unless(false, path, "field", why);
    }
    if let Some(why) = field.frame_name_fault() {
        faults.unless(false, path, "field", format_args!("`{}` {why}", field.field));
    }
    let named = field.name.as_ref().is_none_or(|name| !name.trim().is_empty());
    faults.unless(named, path, "name", "it is empty");
    check_decode(path, &field.decode, faults);
    check_dtype(path, field, faults);

    let (mut normalized, mut called, mut maps) = (false, false, false);
    let mut form = AudioForm::default();
    for (index, op) in field.ops.iter().enumerate() {
        let path = format!("{path}.ops[{index}]");
        let name = op.name();
        let pads = matches!(op, Op::PadBatch(_));
        let pads_any = pads
            && (maps
                || field.has_tokens()
                || matches!(field.decode, Decode::Npy { .. } | Decode::Boxes(_) | Decode::Audio { .. }));
        let of_images = matches!(field.decode, Decode::Image { .. } | Decode::Video { .. });
        let ragged = matches!(op, Op::Ragged(_));
        let for_any_value = pads_any
            || ragged
            || op.is_of_tokens()
            || matches!(op, Op::Delay { .. })
            || op.function().is_some();
        if called && !op.closes_batch() && op.function().is_none() {
            let why = "comes after a function: put it before, or do it in the function";
            faults.add(&path, format_args!("`{name}` {why}"));
        }
        called |= op.function().is_some();
        maps |= matches!(op, Op::Map { .. });
        if let Op::Audio(op) = op {
            check_audio_op(&path, op, &field.decode, &mut form, faults);
            continue;
        }
        if !for_any_value && !of_images {
            faults.add(
                &path,
                format_args!("`{name}` works on images, but the field is decoded as {}", kind(&field.decode)),
            );
        }
        if normalized && !for_any_value && !matches!(op, Op::RandomErasing { .. } | Op::PadBatch(_)) {
            let why = if name == "normalize" { "stands there twice" } else { "cannot follow `normalize`" };
            faults.add(
                &path,
                format_args!("`{name}` {why}: only `random_erasing`, `pad_batch` and `delay` come after it"),
            );
        }
        if op.closes_batch() && index + 1 < field.ops.len() {
            faults.add(&path, format_args!("`{name}` is of whole batches: it comes last"));
        }
        if let Some(why) = field.ragged_fault().filter(|_| ragged) {
            faults.add(&path, why);
        }
        if let Op::Clip(clip) = op {
            if of_images && !matches!(field.decode, Decode::Video { .. }) {
                faults.add(&path, "`clip` works on videos, but the field is decoded as image");
            }
            if index > 0 {
                faults.add(&path, "`clip` says which frames are decoded: it comes first");
            }
            faults.extend(&path, clip.faults());
        }
        check_op(&path, op, field, normalized, faults);
        normalized |= matches!(op, Op::Normalize { .. });
    }
    for (op, name, why) in field.token_faults() {
        let place = op.map_or(path.to_owned(), |op| format!("{path}.ops[{op}]"));
        faults.add(&if name.is_empty() { place } else { format!("{place}.{name}") }, why);
    }
    // Said only when each size is sound by itself, so that one mistake is one fault.
    let too_large = fixed_size(&field.ops).is_some_and(|(height, width)| height.max(width) > MAX_SIDE);
    if too_large && faults.found.len() == before {
        faults.add(path, format_args!("the image grows beyond {MAX_SIDE} pixels on a side"));
    }
}

fn check_decode(path: &str, decode: &Decode, faults: &mut Faults) {
    match decode {
        Decode::Image { max_pixels, .. } | Decode::Video { max_pixels, .. } => {
            let sound = (1..=MAX_ELEMENTS).contains(max_pixels);
            faults.unless(
                sound,
                path,
                "decode.max_pixels",
                format_args!("{max_pixels} is not in 1..={MAX_ELEMENTS}"),
            );
        }
        Decode::Audio { max_samples } => {
            let sound = (1..=MAX_ELEMENTS).contains(max_samples);
            let why = format_args!("{max_samples} is not in 1..={MAX_ELEMENTS}");
            faults.unless(sound, path, "decode.max_samples", why);
        }
        Decode::Npy { shape: Some(shape) } => {
            let elements = shape.iter().try_fold(1u64, |product, axis| product.checked_mul(*axis as u64));
            let sound =
                shape.len() <= 32 && elements.is_some_and(|count| (1..=MAX_ELEMENTS).contains(&count));
            let why = format_args!(
                "{shape:?} has an empty axis, more than 32 axes or more than {MAX_ELEMENTS} elements"
            );
            faults.unless(sound, path, "decode.shape", why);
        }
        Decode::Boxes(boxes) => faults.extend(&format!("{path}.decode"), boxes.faults()),
        _ => {}
    }
}

fn check_dtype(path: &str, field: &FieldRecipe, faults: &mut Faults) {
    let Some(dtype) = field.dtype else { return };
    let normalized = field.ops.iter().any(|op| matches!(op, Op::Normalize { .. }));
    let floats = [Dtype::F16, Dtype::Bf16, Dtype::F32];
    let (sound, offered) = match field.decode {
        _ if field.has_tokens() => {
            let refused = [Dtype::Bool, Dtype::F16, Dtype::Bf16, Dtype::F32, Dtype::F64];
            (!refused.contains(&dtype), "an integer type")
        }
        Decode::Npy { .. } => (true, ""),
        Decode::Image { .. } | Decode::Video { .. } if normalized => {
            (floats.contains(&dtype), "f16, bf16 or f32 after `normalize`")
        }
        Decode::Image { .. } | Decode::Video { .. } => {
            (dtype == Dtype::U8 || floats.contains(&dtype), "u8, f16, bf16 or f32")
        }
        Decode::Label {} => {
            let refused = [Dtype::Bool, Dtype::F16, Dtype::Bf16].contains(&dtype);
            (!refused, "an integer type, f32 or f64")
        }
        Decode::Boxes(ref boxes) => (dtype == boxes.dtype(), boxes.dtype().name()),
        Decode::Audio { .. } => (dtype == Dtype::F32, "f32"),
        Decode::Json {} | Decode::Text {} | Decode::Bytes {} | Decode::Tokens { .. } => {
            (false, "no element type")
        }
    };
    let why = format!("{} is {offered}, not {}", kind(&field.decode), dtype.name());
    faults.unless(sound, path, "dtype", why);
}

fn check_op(path: &str, op: &Op, field: &FieldRecipe, normalized: bool, faults: &mut Faults) {
    match op {
        Op::Resize { size, .. } | Op::CenterCrop { size } => check_size(path, *size, faults),
        Op::RandomCrop { size, padding } => {
            check_size(path, *size, faults);
            faults.unless(
                *padding <= MAX_SIDE,
                path,
                "padding",
                format_args!("{padding} is more than {MAX_SIDE}"),
            );
        }
        Op::RandomResizedCrop { size, scale, ratio, .. } => {
            check_size(path, *size, faults);
            check_interval(path, "scale", scale, 1.0, faults);
            check_interval(path, "ratio", ratio, f64::MAX, faults);
        }
        Op::Flip { p, .. } | Op::Grayscale { p } | Op::Equalize { p } | Op::Autocontrast { p } => {
            check_probability(path, *p, faults);
        }
        Op::GaussianBlur(op) => {
            check_probability(path, op.p, faults);
            faults.extend(path, op.faults());
        }
        Op::Solarize(op) => {
            check_probability(path, op.p, faults);
            faults.extend(path, op.faults());
        }
        Op::Posterize(op) => {
            check_probability(path, op.p, faults);
            faults.extend(path, op.faults());
        }
        Op::Sharpness(op) => {
            check_probability(path, op.p, faults);
            faults.extend(path, op.faults());
        }
        Op::Affine(op) => faults.extend(path, op.faults()),
        Op::RandAugment(op) => faults.extend(path, op.faults()),
        Op::TrivialAugment(op) => faults.extend(path, op.faults()),
        Op::Perspective(_) | Op::AutoAugment(_) | Op::AugMix(_) => faults.extend(path, policies::faults(op)),
        Op::Pad { border, .. } => {
            let sound = border.iter().all(|side| *side <= MAX_SIDE);
            faults.unless(
                sound,
                path,
                "border",
                format_args!("{border:?} has a side of more than {MAX_SIDE}"),
            );
        }
        Op::ColorJitter { brightness, contrast, saturation, hue } => {
            for (name, value) in
                [("brightness", brightness), ("contrast", contrast), ("saturation", saturation)]
            {
                let sound = value.is_finite() && *value >= 0.0;
                faults.unless(sound, path, name, format_args!("{value} is not a number of 0 or more"));
            }
            faults.unless((0.0..=0.5).contains(hue), path, "hue", format_args!("{hue} is not in 0..=0.5"));
        }
        Op::RandomErasing { p, scale, ratio, value } => {
            check_probability(path, *p, faults);
            check_interval(path, "scale", scale, 1.0, faults);
            check_interval(path, "ratio", ratio, f64::MAX, faults);
            let sound = if normalized { value.is_finite() } else { (0.0..=255.0).contains(value) };
            let units = if normalized { "a number" } else { "in 0..=255, the units before `normalize`" };
            faults.unless(sound, path, "value", format_args!("{value} is not {units}"));
        }
        Op::Normalize { mean, std } => {
            if let Decode::Image { mode, .. } | Decode::Video { mode, .. } = field.decode {
                for (name, values) in [("mean", mean), ("std", std)] {
                    let (given, channels) = (values.len(), mode.channels());
                    let why = format_args!("{given} values are given but the image has {channels} channels");
                    faults.unless(given == channels, path, name, why);
                }
            }
            faults.unless(
                mean.iter().all(|value| value.is_finite()),
                path,
                "mean",
                "it holds what is not a number",
            );
            let sound = std.iter().all(|value| value.is_finite() && *value > 0.0);
            faults.unless(sound, path, "std", "a deviation is not above 0");
        }
        Op::PadBatch(padded) => check_padded(path, padded, field, faults),
        // Looked at before, with what is known of the frames, the tokens or the waveform there.
        Op::Clip(_)
        | Op::ByteTokens(_)
        | Op::Tokenize(_)
        | Op::Slice { .. }
        | Op::Truncate { .. }
        | Op::RandomWindow { .. }
        | Op::MaskTokens(_)
        | Op::Pack(_)
        | Op::Ragged(_)
        | Op::Audio(_) => {}
        Op::Map { function, shape, dtype } => {
            check_function(path, function, faults);
            let sound = shape.is_some() == dtype.is_some();
            faults.unless(sound, path, "shape", "give `shape` and `dtype` together");
            if let Some(shape) = shape {
                let elements =
                    shape.iter().try_fold(1u64, |all, axis| all.checked_mul(u64::try_from(*axis).ok()?));
                let sound = shape.len() <= 32 && elements.is_some_and(|all| all <= MAX_ELEMENTS);
                let why = format!("{shape:?} has more than 32 axes or more than {MAX_ELEMENTS} elements");
                faults.unless(sound, path, "shape", why);
            }
        }
        Op::Filter { function } => check_function(path, function, faults),
        Op::Delay { seconds } => {
            let sound = (0.0..=MAX_DELAY_SECONDS).contains(seconds);
            faults.unless(
                sound,
                path,
                "seconds",
                format_args!("{seconds} is not in 0..={MAX_DELAY_SECONDS}"),
            );
        }
    }
}

/// One op of a column that should be audio, where the waveform has this form.
fn check_audio_op(path: &str, op: &AudioOp, decode: &Decode, form: &mut AudioForm, faults: &mut Faults) {
    let name = op.name();
    if !matches!(decode, Decode::Audio { .. }) {
        faults
            .add(path, format_args!("`{name}` works on audio, but the field is decoded as {}", kind(decode)));
        return;
    }
    let is_spectrum = form.bins.is_some();
    match op {
        AudioOp::SpecAugment(_) if !is_spectrum => {
            let why = "works on a spectrum: put `spectrogram`, `mel`, `log_mel` or `mfcc` before it";
            faults.add(path, format_args!("`{name}` {why}"));
        }
        AudioOp::SpecAugment(_) => {}
        _ if is_spectrum => {
            faults.add(path, format_args!("`{name}` works on a waveform: put it before the spectrum"));
        }
        _ => {}
    }
    let found = op.faults(form.rate);
    let sound = found.is_empty();
    faults.extend(path, found);
    *form = form.after(op);
    if sound && form.frames == Some(0) {
        let length = form.samples.unwrap_or_default();
        faults.add(
            path,
            format_args!("{length} samples make no frame: give a longer crop, or leave `center` on"),
        );
    }
}

fn check_padded(path: &str, padded: &Padded, field: &FieldRecipe, faults: &mut Faults) {
    let multiple = padded.multiple;
    let sound = (1..=MAX_SIDE).contains(&multiple);
    faults.unless(sound, path, "multiple", format_args!("{multiple} is not in 1..={MAX_SIDE}"));
    faults.unless(
        padded.to.is_none() || multiple == 1,
        path,
        "to",
        "every batch has this length: leave `multiple` out",
    );
    let left = padded.side != super::tokens::Side::Right;
    faults.unless(!left || field.has_tokens(), path, "side", "only tokens are filled up on the left");
    match (&field.decode, padded.to) {
        (Decode::Image { .. }, Some(size)) => check_size(path, size, faults),
        (_, Some(Size::Side(0))) => faults.unless(false, path, "to", "it is 0"),
        (_, Some(Size::Exact(_))) => {
            faults.unless(false, path, "to", "only images are padded along two axes: give one number");
        }
        _ => {}
    }
    let mapped = field.ops.iter().rev().find_map(|op| match op {
        Op::Map { shape, .. } => Some(shape.is_some()),
        _ => None,
    });
    if let (None, Decode::Video { .. }, Some(why)) = (mapped, &field.decode, field.along_time_fault()) {
        faults.add(path, why);
        return;
    }
    let fixed = match (mapped, &field.decode) {
        (Some(fixed), _) => fixed,
        (None, _) if field.has_tokens() => field.fixed_tokens().is_some(),
        (None, Decode::Npy { shape }) => shape.is_some() && field.dtype.is_some(),
        (None, Decode::Audio { .. }) => field.audio_form().is_some_and(|form| form.shape().is_some()),
        _ => field.fixed_image_size().is_some(),
    };
    if fixed {
        faults.add(path, "all samples are of one size already: leave `pad_batch` out");
    }
}

fn check_function(path: &str, function: &Function, faults: &mut Faults) {
    let sound =
        function.name.split_once(':').is_some_and(|(module, name)| !module.is_empty() && !name.is_empty());
    faults.unless(sound, path, "function", format_args!("`{}` is not `module:name`", function.name));
}

fn check_size(path: &str, size: Size, faults: &mut Faults) {
    let (height, width) = size.height_width();
    let sound = [height, width].iter().all(|side| (1..=MAX_SIDE).contains(side));
    faults.unless(
        sound,
        path,
        "size",
        format_args!("{height} x {width} is not in 1..={MAX_SIDE} on both sides"),
    );
}

fn check_probability(path: &str, p: f64, faults: &mut Faults) {
    faults.unless((0.0..=1.0).contains(&p), path, "p", format_args!("{p} is not a probability in 0..=1"));
}

fn check_interval(path: &str, name: &str, interval: &Interval, most: f64, faults: &mut Faults) {
    let [low, high] = *interval;
    let sound = low > 0.0 && low <= high && high <= most;
    let limit = if most == f64::MAX { String::new() } else { format!(" and at most {most}") };
    let why = format_args!("[{low}, {high}] is not an interval of numbers above 0, the smaller first{limit}");
    faults.unless(sound, path, name, why);
}

fn kind(decode: &Decode) -> &'static str {
    match decode {
        Decode::Image { .. } => "image",
        Decode::Video { .. } => "video",
        Decode::Audio { .. } => "audio",
        Decode::Npy { .. } => "npy",
        Decode::Json {} => "json",
        Decode::Text {} => "text",
        Decode::Label {} => "label",
        Decode::Tokens { .. } => "tokens",
        Decode::Bytes {} => "bytes",
        Decode::Boxes(_) => "boxes",
    }
}
