//! Which stored fields feed which columns: the join between a recipe and a manifest.
//!
//! Resolved once when a loader is built, so that a recipe asking for a field nobody has is an error before the first
//! batch, and looked up per sample afterwards without comparing names.

use forebay_core::manifest::{FieldKind, Location, Manifest};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_ops::Input;

/// Field numbers by column, in order of preference.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    manifest: Manifest,
    columns: Vec<Vec<usize>>,
}

impl Inputs {
    /// Finds each column's alternatives in the manifest; every column must have at least one.
    pub(crate) fn new(manifest: &Manifest, recipe: &Recipe) -> Result<Self> {
        let mut missing = Vec::new();
        let columns = recipe
            .fields
            .iter()
            .map(|field| {
                let found: Vec<usize> =
                    field.alternatives().filter_map(|name| manifest.field_index(name)).collect();
                if found.is_empty() {
                    missing.push(format!("`{}`", field.field));
                }
                found
            })
            .collect();
        if !missing.is_empty() {
            let known: Vec<String> =
                manifest.fields().iter().map(|field| format!("`{}`", field.name)).collect();
            return Err(Error::invalid_config(format!(
                "build loader: no sample has the field {}",
                missing.join(", ")
            ))
            .with_hint(format!("the dataset has {}", known.join(", "))));
        }
        Ok(Self { manifest: manifest.clone(), columns })
    }

    /// Names of all fields that may be needed, for telling recipes apart by what they read.
    pub(crate) fn names(&self) -> String {
        let mut fields: Vec<usize> = self.columns.iter().flatten().copied().collect();
        fields.sort_unstable();
        fields.dedup();
        let names: Vec<&str> =
            fields.iter().map(|field| self.manifest.fields()[*field].name.as_str()).collect();
        names.join(",")
    }

    /// The sample's inputs as far as the manifest knows them, and the payload fields still to be fetched.
    pub(crate) fn of(&self, sample: SampleId) -> (Vec<Input>, Vec<(usize, Location)>) {
        let mut fields: Vec<(usize, Location)> = Vec::with_capacity(self.columns.len());
        let inputs = self
            .columns
            .iter()
            .map(|alternatives| match self.choose(sample, alternatives) {
                Some(Chosen::Int(value)) => Input::Int(value),
                Some(Chosen::Payload(field, location)) => {
                    if !fields.iter().any(|(known, _)| *known == field) {
                        fields.push((field, location));
                    }
                    Input::Missing
                }
                None => Input::Missing,
            })
            .collect();
        (inputs, fields)
    }

    /// The column that a field feeds, when it is the only one.
    pub(crate) fn only_column(&self, field: usize) -> Option<usize> {
        let mut fed = self.columns.iter().enumerate().filter(|(_, fields)| fields.contains(&field));
        match (fed.next(), fed.next()) {
            (Some((column, _)), None) => Some(column),
            _ => None,
        }
    }

    /// Puts what came for a field into every column it feeds.
    pub(crate) fn fill(&self, inputs: &mut [Input], sample: SampleId, field: usize, came: &Input) {
        for (input, alternatives) in inputs.iter_mut().zip(&self.columns) {
            let chosen = self.choose(sample, alternatives);
            if matches!(chosen, Some(Chosen::Payload(chosen, _)) if chosen == field) {
                *input = came.clone();
            }
        }
    }

    /// Bytes that must be fetched for a sample.
    pub(crate) fn payload_bytes(&self, sample: SampleId) -> u64 {
        if let [alternatives] = self.columns.as_slice() {
            return match self.choose(sample, alternatives) {
                Some(Chosen::Payload(_, location)) => location.length,
                Some(Chosen::Int(_)) | None => 0,
            };
        }
        let (_, fields) = self.of(sample);
        fields.iter().map(|(_, location)| location.length).sum()
    }

    /// The sample's key.
    pub(crate) fn key(&self, sample: SampleId) -> String {
        self.manifest.key(sample)
    }

    /// Key of a stored object.
    pub(crate) fn object_key(&self, object: u32) -> String {
        self.manifest.object(object).key.into_owned()
    }

    /// Key of a stored object, and its size when the manifest was built.
    pub(crate) fn object(&self, object: u32) -> (String, u64) {
        let info = self.manifest.object(object);
        (info.key.into_owned(), info.size)
    }

    /// What is known about a sample, for an error.
    pub(crate) fn facts(&self, sample: SampleId, epoch: u64) -> Facts {
        Facts {
            sample_id: Some(sample),
            key: Some(self.manifest.key(sample)),
            object: Some(self.object_key(self.manifest.object_of(sample))),
            epoch: Some(epoch),
            ..Facts::default()
        }
    }

    fn choose(&self, sample: SampleId, alternatives: &[usize]) -> Option<Chosen> {
        alternatives.iter().find_map(|field| match self.manifest.fields()[*field].kind {
            FieldKind::Int => self.manifest.int(sample, *field).map(Chosen::Int),
            FieldKind::Payload => {
                self.manifest.location(sample, *field).map(|location| Chosen::Payload(*field, location))
            }
        })
    }
}

enum Chosen {
    Int(i64),
    Payload(usize, Location),
}
