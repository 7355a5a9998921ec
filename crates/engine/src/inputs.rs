//! Which stored fields feed which columns: the join between a recipe and a manifest.
//!
//! Resolved once when a loader is built, so that a recipe asking for a field nobody has is an error before the first
//! batch, and looked up per sample afterwards without comparing names. A field may lie inside a record
//! ([`forebay_ops::record`]): then the record is what is fetched, and [`Inputs::take`] takes the field out of it, on the
//! thread that prepares. A video may lie in a field for each frame: they are fetched like several fields, and put together
//! in the order of their numbers.

mod origin;

pub(crate) use self::origin::{field_names, records_of, stored_names, token_bytes};

use self::origin::{Origin, origins_of, refusal};
use bytes::Bytes;
use forebay_core::manifest::{FieldKind, Location, Manifest};
use forebay_core::recipe::Recipe;
use forebay_core::{Error, Facts, Result, SampleId};
use forebay_ops::Input;
use forebay_ops::record::{self, RecordSpec};
use std::sync::Arc;

/// Where each column's values come from, in order of preference.
#[derive(Clone, Debug)]
pub(crate) struct Inputs {
    manifest: Manifest,
    columns: Vec<Vec<Origin>>,
    recipe: Arc<Recipe>,
    /// How the records that are read are framed, by manifest field; empty when none are.
    records: Arc<Vec<(usize, RecordSpec)>>,
}

impl Inputs {
    /// Finds each column's alternatives in the manifest; every column must have at least one.
    pub(crate) fn new(manifest: &Manifest, recipe: &Recipe) -> Result<Self> {
        let records = records_of(manifest)?;
        let mut missing = Vec::new();
        let columns: Vec<Vec<Origin>> = recipe
            .fields
            .iter()
            .map(|field| {
                let found = origins_of(manifest, &records, field);
                if found.is_empty() {
                    missing.push(format!("`{}`", field.field));
                }
                found
            })
            .collect();
        if let Some(error) = refusal(recipe, &columns, &records) {
            return Err(error.while_doing("build loader"));
        }
        if !missing.is_empty() {
            let known: Vec<String> =
                field_names(manifest)?.iter().map(|(name, _)| format!("`{name}`")).collect();
            let mut hint = format!("the dataset has {}", known.join(", "));
            if records.iter().any(|(_, spec)| spec.format.is_self_described()) {
                hint += "; names that only later records of a file have are not known: `forebay convert` to tar, \
                         where every name is";
            }
            return Err(Error::invalid_config(format!(
                "build loader: no sample has the field {}",
                missing.join(", ")
            ))
            .with_hint(hint));
        }
        let (recipe, records) = (Arc::new(recipe.clone()), Arc::new(records));
        Ok(Self { manifest: manifest.clone(), columns, recipe, records })
    }

    /// Names of all fields that may be needed, for telling recipes apart by what they read.
    pub(crate) fn names(&self) -> String {
        let mut fields: Vec<usize> = self.columns.iter().flatten().map(|origin| origin.field).collect();
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
                Some(Chosen::Payload(origin, location)) => {
                    if !fields.iter().any(|(known, _)| *known == origin.field) {
                        fields.push((origin.field, location));
                    }
                    Input::Missing
                }
                Some(Chosen::Frames(name)) => {
                    let before = fields.len();
                    let mut count = 0;
                    for (field, location) in self.frames(sample, alternatives, name) {
                        if !fields[..before].iter().any(|(known, _)| *known == field) {
                            fields.push((field, location));
                        }
                        count += 1;
                    }
                    Input::Frames(vec![Bytes::new(); count])
                }
                None => Input::Missing,
            })
            .collect();
        (inputs, fields)
    }

    /// The column that a field feeds as it is, when it is the only one.
    pub(crate) fn only_column(&self, field: usize) -> Option<usize> {
        let feeds = |origin: &Origin| origin.field == field;
        let mut fed = self.columns.iter().enumerate().filter(|(_, origins)| origins.iter().any(feeds));
        match (fed.next(), fed.next()) {
            (Some((column, origins)), None) => {
                let whole = |origin: &Origin| origin.inside.is_none() && origin.frame_of.is_none();
                let as_it_is = origins.iter().filter(|origin| feeds(origin)).all(whole);
                as_it_is.then_some(column)
            }
            _ => None,
        }
    }

    /// Whether fields are taken out of records, which is work for a preparing thread.
    pub(crate) fn has_records(&self) -> bool {
        self.columns.iter().flatten().any(|origin| origin.inside.is_some())
    }

    /// Puts what came for a field into every column it feeds. A record comes whole; see [`Self::take`].
    pub(crate) fn fill(&self, inputs: &mut [Input], sample: SampleId, field: usize, came: &Input) {
        for (input, alternatives) in inputs.iter_mut().zip(&self.columns) {
            match self.choose(sample, alternatives) {
                Some(Chosen::Payload(origin, _)) if origin.field == field => *input = came.clone(),
                Some(Chosen::Frames(name)) => {
                    let (Input::Frames(frames), Input::Payload(came)) = (input, came) else { continue };
                    let place = self.frames(sample, alternatives, name).position(|(known, _)| known == field);
                    if let Some(frame) = place.and_then(|place| frames.get_mut(place)) {
                        *frame = came.clone();
                    }
                }
                _ => {}
            }
        }
    }

    /// Takes fields out of the records that came. Each record is checked and parsed once.
    pub(crate) fn take(&self, sample: SampleId, inputs: &mut [Input]) -> Result<()> {
        for (place, (_, spec)) in self.records.iter().enumerate() {
            // Columns of this record, and how many of its fields may feed each.
            let (mut fed, mut numbers, mut found) = (Vec::new(), Vec::new(), None);
            for (column, alternatives) in self.columns.iter().enumerate() {
                let Some(Chosen::Payload(origin, location)) = self.choose(sample, alternatives) else {
                    continue;
                };
                let Input::Payload(bytes) = &inputs[column] else { continue };
                if origin.inside.is_some_and(|(at, _)| at == place) {
                    found.get_or_insert_with(|| (bytes.clone(), location));
                    let inside = alternatives.iter().filter_map(|origin| origin.inside);
                    let before = numbers.len();
                    numbers.extend(inside.filter(|(at, _)| *at == place).map(|(_, number)| number));
                    fed.push((column, numbers.len() - before));
                }
            }
            let Some((record, location)) = found else { continue };
            let taken = spec.take(&record, &numbers).map_err(|error| in_record(error, location))?;
            let mut taken = taken.into_iter();
            for (column, alternatives) in fed {
                let mut several = taken.by_ref().take(alternatives).collect::<Vec<_>>().into_iter();
                let first = several.find(|taken| *taken != record::Taken::Missing).unwrap_or_default();
                inputs[column] = first
                    .into_input(&self.recipe.fields[column])
                    .map_err(|error| in_record(error, location))?;
            }
        }
        Ok(())
    }

    /// Bytes that must be fetched for a sample.
    pub(crate) fn payload_bytes(&self, sample: SampleId) -> u64 {
        if let [alternatives] = self.columns.as_slice() {
            return match self.choose(sample, alternatives) {
                Some(Chosen::Payload(_, location)) => location.length,
                Some(Chosen::Frames(name)) => {
                    self.frames(sample, alternatives, name).map(|(_, location)| location.length).sum()
                }
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

    fn choose(&self, sample: SampleId, alternatives: &[Origin]) -> Option<Chosen> {
        alternatives.iter().find_map(|origin| match self.manifest.fields()[origin.field].kind {
            FieldKind::Int => self.manifest.int(sample, origin.field).map(Chosen::Int),
            FieldKind::Payload => {
                let location = self.manifest.location(sample, origin.field)?;
                Some(origin.frame_of.map_or(Chosen::Payload(*origin, location), Chosen::Frames))
            }
        })
    }

    /// The frames of a video that the sample has, in order.
    fn frames<'a>(
        &'a self,
        sample: SampleId,
        alternatives: &'a [Origin],
        name: usize,
    ) -> impl Iterator<Item = (usize, Location)> + 'a {
        let of_name = alternatives.iter().filter(move |origin| origin.frame_of == Some(name));
        of_name.filter_map(move |origin| Some((origin.field, self.manifest.location(sample, origin.field)?)))
    }
}

enum Chosen {
    Int(i64),
    Payload(Origin, Location),
    /// The fields of the column's name of this number.
    Frames(usize),
}

/// Says where the record lies that was at fault.
pub(crate) fn in_record(error: Error, location: Location) -> Error {
    let facts = Facts { offset: Some(location.offset), ..Facts::default() };
    error.while_doing(format_args!("read record at byte {}", location.offset)).with_facts(facts)
}
