//! Recipes from and to JSON and TOML, with every fault of a recipe in one error.
//!
//! serde stops at the first fault and does not say where it is. So each field and each op is read on its own, and when
//! one cannot be read, each of its values is tried in the place of the same value of a sound template. The grammar is
//! written once, in the types; the templates here only show one sound value for each name.

use super::{AudioOp, Decode, FieldRecipe, Op, Recipe, SampleOp, audio};
use crate::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

impl Recipe {
    /// Reads a recipe from JSON text: an array of fields, or an object that has it under `recipe`.
    pub fn from_json(text: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Error::invalid_config("read recipe: the text is not JSON").with_source(error))?;
        match value {
            Value::Object(mut object) if object.len() == 1 && object.contains_key("recipe") => {
                Self::from_value(object.remove("recipe").unwrap_or_default())
            }
            value => Self::from_value(value),
        }
    }

    /// Reads a recipe from a parsed array of fields and checks it.
    pub fn from_value(value: Value) -> Result<Self> {
        let Value::Array(entries) = value else {
            return Err(report(&["recipe: it is not a list of fields".into()]));
        };
        let mut reading = Reading::default();
        let mut recipe = Self::default();
        for (index, entry) in entries.into_iter().enumerate() {
            let path = format!("recipe[{index}]");
            if entry.get("op").is_some() {
                recipe.ops.extend(reading.sample_op(&path, entry));
                continue;
            }
            if !recipe.ops.is_empty() {
                reading.faults.push(format!("{path}: ops on samples come after all columns"));
            }
            recipe.fields.push(reading.field(&path, entry));
        }
        // What could not be read has a stand-in, about which there is nothing more to say.
        let Reading { mut faults, broken } = reading;
        let stands_in = |fault: &String| broken.iter().any(|path| fault.starts_with(path.as_str()));
        faults.extend(recipe.check().into_iter().filter(|fault| !stands_in(fault)));
        if faults.is_empty() { Ok(recipe) } else { Err(report(&faults)) }
    }

    /// Reads a recipe from the `[[recipe]]` tables of a TOML text.
    pub fn from_toml(text: &str) -> Result<Self> {
        Self::from_toml_at(text, "recipe")
    }

    /// Reads a recipe from the array of tables under a dotted `key` of a TOML text, such as `train.recipe`.
    pub fn from_toml_at(text: &str, key: &str) -> Result<Self> {
        let document: Value = toml::from_str(text)
            .map_err(|error| Error::invalid_config("read recipe: the text is not TOML").with_source(error))?;
        let found = key.split('.').try_fold(document, |value, part| match value {
            Value::Object(mut table) => table.remove(part),
            _ => None,
        });
        Self::from_value(found.ok_or_else(|| {
            Error::invalid_config(format!("read recipe: the text has no `{key}`"))
                .with_hint(format!("begin each field with `[[{key}]]`"))
        })?)
    }

    /// The recipe as JSON text, which [`Self::from_json`] reads back unchanged.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The recipe as TOML text, which [`Self::from_toml`] reads back unchanged. Numbers beyond 2^63 do not fit TOML.
    pub fn to_toml(&self) -> Result<String> {
        let document = std::collections::BTreeMap::from([("recipe", self)]);
        toml::to_string(&document)
            .map_err(|error| Error::invalid_config("write recipe as TOML").with_source(error))
    }
}

fn report(faults: &[String]) -> Error {
    let error = match faults {
        [only] => Error::invalid_config(format!("read recipe: {only}")),
        _ => Error::invalid_config(format!("read recipe: {} faults: {}", faults.len(), faults.join("; "))),
    };
    error.with_hint("the ops and their parameters are listed in `docs/reference/recipe.md`")
}

/// Faults found so far, and the paths of values that could not be read.
#[derive(Default)]
struct Reading {
    faults: Vec<String>,
    broken: Vec<String>,
}

impl Reading {
    /// One entry of a recipe; what cannot be read of it is replaced by a stand-in.
    fn field(&mut self, path: &str, entry: Value) -> FieldRecipe {
        let stand_in = FieldRecipe {
            field: path.into(),
            name: None,
            decode: Decode::Bytes {},
            ops: Vec::new(),
            dtype: None,
            layout: crate::tensor::Layout::default(),
            follow: None,
        };
        let Value::Object(mut entry) = entry else {
            self.broken.push(path.into());
            self.faults.push(format!("{path}: it is not a table with `field` and `decode`"));
            return stand_in;
        };
        let decode = entry.remove("decode");
        let ops = entry.remove("ops");
        let template = json!({"field": "x", "name": "x", "dtype": "u8", "layout": "chw", "follow": "x",
            "decode": {"kind": "bytes"}});
        let template = template.as_object().cloned().unwrap_or_default();
        entry.insert("decode".into(), template["decode"].clone());
        let read = parse_object(path, &entry, &template, "", &mut self.faults);
        let decode = self.decode(path, decode);
        let ops = self.ops(path, ops, matches!(decode, Decode::Audio { .. }));
        FieldRecipe { decode, ops, ..read.unwrap_or(stand_in) }
    }

    /// One op on whole samples, unless it cannot be read.
    fn sample_op(&mut self, path: &str, entry: Value) -> Option<SampleOp> {
        parse_tagged(path, entry, "op", &sample_op_templates(), &mut self.faults)
    }

    fn decode(&mut self, path: &str, value: Option<Value>) -> Decode {
        let templates = decode_templates();
        let value = value.unwrap_or(Value::Null);
        let read = parse_tagged(&format!("{path}.decode"), value, "kind", &templates, &mut self.faults);
        read.unwrap_or_else(|| {
            // Which ops fit is not known without it.
            self.broken.push(path.into());
            Decode::Bytes {}
        })
    }

    fn ops(&mut self, path: &str, value: Option<Value>, is_audio: bool) -> Vec<Op> {
        let Some(Value::Array(ops)) = value else {
            if value.is_some() {
                self.faults.push(format!("{path}.ops: it is not a list"));
            }
            return Vec::new();
        };
        let mut templates = op_templates().to_vec();
        if is_audio {
            // Its own words first, then those that any column has.
            let shared = |op: &Value| {
                ["pad_batch", "ragged", "delay", "map", "filter"].iter().any(|name| op["op"] == **name)
            };
            templates = audio::templates().into_iter().chain(templates.into_iter().filter(shared)).collect();
        }
        let mut read = Vec::with_capacity(ops.len());
        for (index, op) in ops.into_iter().enumerate() {
            let path = format!("{path}.ops[{index}]");
            let name = op["op"].as_str().or(op.as_str()).unwrap_or("delay").to_owned();
            let sounds = AudioOp::NAMES.contains(&name.as_str());
            if sounds && (is_audio || !Op::NAMES.contains(&name.as_str())) {
                let op = parse_tagged(&path, op, "op", &audio::templates(), &mut self.faults);
                read.push(Op::Audio(op.unwrap_or_else(|| {
                    self.broken.push(path);
                    AudioOp::Mono {}
                })));
                continue;
            }
            let op = parse_tagged(&path, op, "op", &templates, &mut self.faults);
            read.push(op.unwrap_or_else(|| {
                self.broken.push(path);
                // An op of the same name, so that what follows is checked as it will be.
                let template = templates.iter().find(|template| template["op"] == *name);
                let sound = template.and_then(|template| serde_json::from_value(template.clone()).ok());
                sound.unwrap_or(Op::Delay { seconds: 0.0 })
            }));
        }
        read
    }
}

/// An object whose kind is told by the value under `tag`; text alone stands for an object with nothing but the tag.
fn parse_tagged<T: DeserializeOwned>(
    path: &str,
    value: Value,
    tag: &str,
    templates: &[Value],
    faults: &mut Vec<String>,
) -> Option<T> {
    let object = match value {
        Value::Object(object) => object,
        Value::String(name) => Map::from_iter([(tag.to_owned(), Value::String(name))]),
        Value::Null => {
            faults.push(format!("{path}: it is missing {}", offered(templates, tag)));
            return None;
        }
        _ => {
            faults.push(format!("{path}: it is not a table with `{tag}` {}", offered(templates, tag)));
            return None;
        }
    };
    let Some(name) = object.get(tag).and_then(Value::as_str) else {
        faults.push(format!("{path}.{tag}: it is missing or not text {}", offered(templates, tag)));
        return None;
    };
    let Some(template) = templates.iter().find(|template| template[tag] == *name).and_then(Value::as_object)
    else {
        let names = templates.iter().filter_map(|template| template[tag].as_str());
        let guess = nearest(name, names).map_or(String::new(), |guess| format!(", did you mean `{guess}`?"));
        faults.push(format!("{path}.{tag}: there is no `{name}`{guess} {}", offered(templates, tag)));
        return None;
    };
    parse_object(path, &object, template, tag, faults)
}

/// Reads an object and, when that fails, finds each of its values that is at fault.
fn parse_object<T: DeserializeOwned>(
    path: &str,
    object: &Map<String, Value>,
    template: &Map<String, Value>,
    tag: &str,
    faults: &mut Vec<String>,
) -> Option<T> {
    let before = faults.len();
    for name in object.keys().filter(|name| !template.contains_key(*name)) {
        let guess = nearest(name, template.keys().map(String::as_str));
        let guess = guess.map_or(String::new(), |guess| format!(", did you mean `{guess}`?"));
        faults.push(format!("{path}.{name}: there is no such parameter{guess}"));
    }
    let fits = |object: &Map<String, Value>| serde_json::from_value::<T>(Value::Object(object.clone()));
    for name in template.keys().filter(|name| *name != tag) {
        let mut trial = template.clone();
        match object.get(name) {
            Some(value) => trial.insert(name.clone(), value.clone()),
            None => trial.remove(name),
        };
        if let Err(error) = fits(&trial) {
            faults.push(match object.get(name) {
                None => format!("{path}.{name}: it is missing"),
                Some(value) if name == "size" => {
                    format!("{path}.{name}: {value} is neither a number of pixels nor `[height, width]`")
                }
                Some(_) => format!("{path}.{name}: {error}"),
            });
        }
    }
    if faults.len() > before {
        return None;
    }
    match fits(object) {
        Ok(read) => Some(read),
        Err(error) => {
            faults.push(format!("{path}: {error}"));
            None
        }
    }
}

fn offered(templates: &[Value], tag: &str) -> String {
    let names: Vec<&str> = templates.iter().filter_map(|template| template[tag].as_str()).collect();
    format!("(offered: {})", names.join(", "))
}

/// The name that differs least from `wanted`, when it does not differ much.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if wanted.len() > 64 {
        return None;
    }
    let bound = wanted.chars().count().div_ceil(3).max(1);
    names
        .map(|name| (distance(wanted, name), name))
        .min()
        .filter(|(far, _)| *far <= bound)
        .map(|(_, name)| name)
}

/// Letters to insert, delete or replace to turn one word into the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for column in 0..to.len() {
            let replaced = diagonal + usize::from(letter != to[column]);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

/// A sound op of each name with all of its parameters.
pub(super) fn op_templates() -> [Value; 35] {
    let interval = [0.5, 1.0];
    let function = json!({"name": "module:name", "source": "", "random": false});
    [
        json!({"op": "clip", "frames": 1, "stride": 1, "place": "start", "short": "loop"}),
        json!({"op": "resize", "size": 1, "filter": "bilinear"}),
        json!({"op": "center_crop", "size": 1}),
        json!({"op": "random_crop", "size": 1, "padding": 0}),
        json!({"op": "random_resized_crop", "size": 1, "scale": interval, "ratio": interval, "filter": "bilinear"}),
        json!({"op": "flip", "p": 0.5, "direction": "horizontal"}),
        json!({"op": "pad", "border": [0, 0, 0, 0], "value": 0}),
        json!({"op": "color_jitter", "brightness": 0.0, "contrast": 0.0, "saturation": 0.0, "hue": 0.0}),
        json!({"op": "grayscale", "p": 0.5}),
        json!({"op": "gaussian_blur", "kernel": 3, "sigma": interval, "p": 0.5}),
        json!({"op": "solarize", "threshold": 128.0, "p": 0.5}),
        json!({"op": "posterize", "bits": 4, "p": 0.5}),
        json!({"op": "equalize", "p": 0.5}),
        json!({"op": "autocontrast", "p": 0.5}),
        json!({"op": "sharpness", "factor": 2.0, "p": 0.5}),
        json!({"op": "affine", "degrees": interval, "translate": [0.0, 0.0], "scale": interval,
            "shear": [0.0, 0.0, 0.0, 0.0], "interpolation": "nearest", "fill": 0}),
        json!({"op": "rand_augment", "n": 2, "magnitude": 0, "bins": 31, "interpolation": "nearest", "fill": 0}),
        json!({"op": "trivial_augment", "bins": 31, "interpolation": "nearest", "fill": 0}),
        json!({"op": "perspective", "distortion": 0.5, "p": 0.5, "interpolation": "nearest", "fill": 0}),
        json!({"op": "auto_augment", "policy": "imagenet", "interpolation": "nearest", "fill": 0}),
        json!({"op": "aug_mix", "severity": 3, "width": 3, "depth": 0, "alpha": 1.0, "all_ops": true,
            "interpolation": "nearest", "fill": 0}),
        json!({"op": "random_erasing", "p": 0.5, "scale": interval, "ratio": interval, "value": 0.0}),
        json!({"op": "normalize", "mean": [0.5], "std": [0.5]}),
        json!({"op": "byte_tokens", "offset": 0, "bos": 1, "eos": 1}),
        json!({"op": "tokenize", "file": "tokenizer.json", "sha256": "0".repeat(64), "add_special_tokens": true}),
        json!({"op": "slice", "start": 0, "length": 1}),
        json!({"op": "truncate", "length": 1, "side": "right"}),
        json!({"op": "random_window", "length": 1}),
        json!({"op": "mask_tokens", "p": 0.5, "mask_id": 1, "vocab": 1, "special": [1], "random": 0.5, "keep": 0.5}),
        json!({"op": "pack", "length": 1, "fit": "greedy", "look_ahead": 1, "long": "split", "value": 0,
            "labels": false, "documents": 1}),
        json!({"op": "pad_batch", "value": 0, "multiple": 1, "to": 1, "mask": false, "side": "left"}),
        json!({"op": "ragged", "offsets": "i32"}),
        json!({"op": "delay", "seconds": 0.0}),
        json!({"op": "map", "function": function, "shape": [1], "dtype": "f32"}),
        json!({"op": "filter", "function": function}),
    ]
}

/// A sound op on samples of each name with all of its parameters.
fn sample_op_templates() -> [Value; 6] {
    [
        json!({"op": "map", "function": "module:name", "fields": ["x"], "outputs": ["x"]}),
        json!({"op": "filter", "function": "module:name", "fields": ["x"]}),
        json!({"op": "map_batch", "function": "module:name"}),
        json!({"op": "mixup", "image": "x", "label": "x", "classes": 2, "alpha": 1.0, "p": 1.0}),
        json!({"op": "cutmix", "image": "x", "label": "x", "classes": 2, "alpha": 1.0, "p": 1.0}),
        json!({"op": "mixup_or_cutmix", "image": "x", "label": "x", "classes": 2, "mixup_alpha": 1.0,
            "cutmix_alpha": 1.0, "cutmix_share": 0.5, "p": 1.0}),
    ]
}

/// A sound decoder of each kind with all of its parameters.
pub(super) fn decode_templates() -> [Value; 10] {
    [
        json!({"kind": "image", "mode": "rgb", "orientation": "ignore", "max_pixels": 1}),
        json!({"kind": "video", "mode": "rgb", "max_pixels": 1}),
        json!({"kind": "audio", "max_samples": 1}),
        json!({"kind": "npy", "shape": [1]}),
        json!({"kind": "json"}),
        json!({"kind": "text"}),
        json!({"kind": "label"}),
        json!({"kind": "tokens", "stored": "u16", "length": 1}),
        json!({"kind": "bytes"}),
        json!({"kind": "boxes", "part": "keypoints", "stored": "xywh", "format": "xyxy", "min_area": 0.0,
            "min_visibility": 0.0, "swap": [[0, 1]]}),
    ]
}
