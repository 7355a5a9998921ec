//! Where a column's values are found: as a field of the manifest, inside of its records, or as a field for each frame.
//!
//! Names are compared here, once for a loader. What is read of a sample is in [`super::Inputs`].

use forebay_core::manifest::{FieldKind, Manifest};
use forebay_core::recipe::{Decode, FieldRecipe, Recipe, frame_number};
use forebay_core::{Error, Result};
use forebay_ops::record::{self, Format, RecordSpec};

/// A field of the manifest, or a field inside of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) field: usize,
    /// Place in `records`, and the number of the field there.
    pub(super) inside: Option<(usize, usize)>,
    /// Which of the column's names it is a frame of; those of one name follow each other, in order.
    pub(super) frame_of: Option<usize>,
}

/// The names that recipes may use for fields of this manifest, and whether each is an integer kept in it. Records
/// stand as the fields that can be taken out of them.
pub(crate) fn field_names(manifest: &Manifest) -> Result<Vec<(String, bool)>> {
    let records = record::specs(manifest.meta())?;
    let own = manifest.fields().iter().filter(|field| !records.contains_key(&field.name));
    let mut names: Vec<(String, bool)> =
        own.map(|field| (field.name.clone(), field.kind == FieldKind::Int)).collect();
    for name in records.values().flat_map(|spec| &spec.fields) {
        if !names.iter().any(|(known, _)| known == name) {
            names.push((name.clone(), false));
        }
    }
    Ok(names)
}

/// Every payload that a recipe reads, under its own name in the manifest. Where a video lies in a field for each frame,
/// each is told; a frame that a sample does not have is read as the others, which come anyway.
pub(crate) fn stored_names(manifest: &Manifest, recipe: &Recipe) -> Result<Vec<(String, bool)>> {
    let records = records_of(manifest)?;
    let mut stored: Vec<(String, bool)> = Vec::new();
    for field in &recipe.fields {
        let found = origins_of(manifest, &records, field);
        let mut names: Vec<&str> = Vec::new();
        let mut is_payload = false;
        for info in found.iter().map(|origin| &manifest.fields()[origin.field]) {
            is_payload |= info.kind == FieldKind::Payload;
            if !names.contains(&info.name.as_str()) {
                names.push(&info.name);
            }
        }
        let frames = found.iter().filter(|origin| origin.frame_of.is_some()).count();
        for first in 0..frames.clamp(1, names.len().max(1)) {
            let name = [&names[first..], &names[..first]].concat().join(";");
            if !name.is_empty() && stored.iter().all(|(known, _)| *known != name) {
                stored.push((name, is_payload));
            }
        }
    }
    Ok(stored)
}

/// The manifest's field that a column of tokens is made of, and bytes of a stored token; an error where that cannot be
/// told without reading.
pub(crate) fn token_bytes(manifest: &Manifest, column: &FieldRecipe) -> Result<(String, u64)> {
    let records = records_of(manifest)?;
    let found = origins_of(manifest, &records, column);
    let told = |origin: &Origin| {
        let bytes = match (origin.inside, &column.decode) {
            (Some((at, _)), Decode::Tokens { .. }) => {
                let column =
                    records[at].1.columns.first().filter(|_| records[at].1.format == Format::Tokens)?;
                record::tokens::dtype_of(&column.encoding).ok()?.size()
            }
            (None, Decode::Tokens { stored: Some(dtype), .. }) => dtype.size(),
            (None, Decode::Text {}) => 1,
            _ => return None,
        };
        Some((manifest.fields()[origin.field].name.clone(), bytes as u64))
    };
    match found.as_slice() {
        [origin] if manifest.fields()[origin.field].kind == FieldKind::Payload => told(origin),
        _ => None,
    }
    .ok_or_else(|| {
        let why = format!(
            "pack `{}`: how many tokens each sample has is not known without reading it",
            column.field
        );
        Error::unsupported(why).with_hint(
            "pack files of tokens, texts that are payloads by themselves, or payloads whose type is `stored`",
        )
    })
}

/// The manifest's record fields and how they are framed.
pub(crate) fn records_of(manifest: &Manifest) -> Result<Vec<(usize, RecordSpec)>> {
    let specs = record::specs(manifest.meta())?.into_iter();
    Ok(specs.filter_map(|(name, spec)| Some((manifest.field_index(&name)?, spec))).collect())
}

/// Why a column that was not found is not offered, although records have it.
pub(super) fn refusal(
    recipe: &Recipe,
    columns: &[Vec<Origin>],
    records: &[(usize, RecordSpec)],
) -> Option<Error> {
    let absent = recipe.fields.iter().zip(columns).filter(|(_, found)| found.is_empty());
    absent
        .flat_map(|(field, _)| field.alternatives())
        .find_map(|name| records.iter().find_map(|(_, spec)| spec.refusal(name)))
}

/// Where a column's values are found, in order of preference.
pub(super) fn origins_of(
    manifest: &Manifest,
    records: &[(usize, RecordSpec)],
    column: &FieldRecipe,
) -> Vec<Origin> {
    let is_video = matches!(column.decode, Decode::Video { .. });
    let found = |(at, name): (usize, &str)| {
        if is_video && name.contains('*') {
            frames_of(manifest, records, at, name)
        } else {
            origins(manifest, records, name)
        }
    };
    column.alternatives().enumerate().flat_map(found).collect()
}

/// The fields that hold a frame each, in the order of their numbers.
fn frames_of(manifest: &Manifest, records: &[(usize, RecordSpec)], at: usize, name: &str) -> Vec<Origin> {
    let fields = manifest.fields().iter().enumerate();
    let mut found: Vec<(u64, usize)> = fields
        .filter(|(field, info)| {
            info.kind == FieldKind::Payload && records.iter().all(|(record, _)| record != field)
        })
        .filter_map(|(field, info)| Some((frame_number(name, &info.name)?, field)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, field)| Origin { field, inside: None, frame_of: Some(at) }).collect()
}

/// Where a name is found: as a field of the manifest, or inside of records.
fn origins(manifest: &Manifest, records: &[(usize, RecordSpec)], name: &str) -> Vec<Origin> {
    let own = manifest.field_index(name).map(|field| Origin { field, inside: None, frame_of: None });
    let inside = records.iter().enumerate().filter_map(|(at, (field, spec))| {
        let number = spec.fields.iter().position(|known| known == name)?;
        Some(Origin { field: *field, inside: Some((at, number)), frame_of: None })
    });
    own.into_iter().chain(inside).collect()
}
