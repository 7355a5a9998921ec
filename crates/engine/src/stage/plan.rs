//! What a copy would do: which objects are here, which are half here, which are not. Touches nothing.

use super::StageOptions;
use super::copy::blocking;
use super::half::{checksum, half_bytes};
use super::journal::Journal;
use super::place::{Place, check_keys};
use crate::source::OpenOptions;
use crate::source::select::{Part, select, select_with_store};
use forebay_core::{Error, Result};
use forebay_store::{ObjectMeta, Store};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

/// Files that are read at once to be compared with the journal.
const CHECKED_AT_ONCE: usize = 4;

/// An object that is to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToCopy {
    /// What the store says about it.
    pub object: ObjectMeta,
    /// Bytes of it that an earlier run left half done.
    pub half_bytes: u64,
    /// Whether it is here, with other bytes than were copied.
    pub wrong: bool,
}

/// What a run would copy, found by [`plan_stage`].
#[derive(Debug)]
pub struct StagePlan {
    pub(super) store: Arc<dyn Store>,
    pub(super) place: Place,
    /// The store, as the journal names it.
    pub(super) origin: String,
    /// Objects that are not here, by key.
    pub to_copy: Vec<ToCopy>,
    /// Objects that are asked for.
    pub objects: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Objects that are here.
    pub here: u64,
    /// Bytes of these.
    pub here_bytes: u64,
}

impl StagePlan {
    /// Bytes that would be read from the store.
    pub fn missing_bytes(&self) -> u64 {
        self.to_copy.iter().map(|copy| copy.object.size - copy.half_bytes).sum()
    }

    /// Objects that are here with wrong bytes; found only when asked to verify.
    pub fn wrong(&self) -> u64 {
        self.to_copy.iter().filter(|copy| copy.wrong).count() as u64
    }
}

/// Finds what copying the objects of `spec` (a URL or a path, with braces and globs) into `folder` would take.
///
/// Must run inside a tokio runtime, as must [`super::run_stage`].
pub async fn plan_stage(spec: &[String], folder: &Path, options: &StageOptions) -> Result<StagePlan> {
    let open = open_options(options);
    let (store, objects) = select(&with_template(spec, options)?, part(options)?, &open).await?;
    plan(store, objects, folder, options).await
}

/// As [`plan_stage`], from a store that the caller brought. Specs are keys, patterns and folders of that store.
pub async fn plan_stage_with_store(
    store: Arc<dyn Store>,
    spec: &[String],
    folder: &Path,
    options: &StageOptions,
) -> Result<StagePlan> {
    let (spec, open) = (with_template(spec, options)?, open_options(options));
    let objects = select_with_store(store.as_ref(), &spec, part(options)?, &open).await?;
    plan(store, objects, folder, options).await
}

fn open_options(options: &StageOptions) -> OpenOptions {
    OpenOptions {
        storage_options: options.storage_options.clone(),
        progress: options.listed.clone(),
        ..OpenOptions::default()
    }
}

fn part(options: &StageOptions) -> Result<Part<'_>> {
    match (&options.prefix, &options.keys, &options.template) {
        (None, None, _) => Ok(Part::All),
        (Some(prefix), None, None) => Ok(Part::Prefix(prefix)),
        (None, Some(keys), None) => Ok(Part::Keys(keys)),
        _ => Err(Error::invalid_config("stage a part: give a prefix, a list or a template, not several")),
    }
}

/// The spec with the template behind it.
fn with_template(spec: &[String], options: &StageOptions) -> Result<Vec<String>> {
    match (&options.template, spec) {
        (None, _) => Ok(spec.to_vec()),
        (Some(template), [folder]) => {
            let slash = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
            Ok(vec![format!("{folder}{slash}{template}")])
        }
        (Some(_), _) => Err(Error::invalid_config("stage by a template: it needs the URL of one folder")),
    }
}

async fn plan(
    store: Arc<dyn Store>,
    mut objects: Vec<ObjectMeta>,
    folder: &Path,
    options: &StageOptions,
) -> Result<StagePlan> {
    objects.sort_by(|one, other| one.key.cmp(&other.key));
    objects.dedup_by(|one, other| one.key == other.key);
    let origin = origin(store.as_ref());
    let (folder, name) = (folder.to_path_buf(), origin.clone());
    let (place, journal, objects, mut to_copy) = blocking(move || {
        let keys: Vec<&str> = objects.iter().map(|object| object.key.as_str()).collect();
        check_keys(&keys)?;
        let place = Place::new(&folder)?;
        place.check(keys.into_iter())?;
        refuse_itself(&place, &name, &objects)?;
        let journal = Journal::read(&place)?;
        journal.check_origin(&place, &name)?;
        let mut to_copy = Vec::new();
        for object in &objects {
            let noted = journal.whole.get(&object.key);
            let same = noted.is_some_and(|noted| (noted.size, noted.stamp) == (object.size, object.stamp));
            if !same || place.size(&object.key) != Some(object.size) {
                let (object, half_bytes) = (object.clone(), half_bytes(&place, object)?);
                to_copy.push(ToCopy { object, half_bytes, wrong: false });
            }
        }
        Ok((place, journal, objects, to_copy))
    })
    .await?;
    if options.verify {
        to_copy.extend(wrong(&place, &journal, &objects, &to_copy).await?);
        to_copy.sort_by(|one, other| one.object.key.cmp(&other.object.key));
    }
    let sum = |objects: &mut dyn Iterator<Item = &ObjectMeta>| objects.map(|object| object.size).sum::<u64>();
    let bytes = sum(&mut objects.iter());
    let here_bytes = bytes - sum(&mut to_copy.iter().map(|copy| &copy.object));
    let (count, here) = (objects.len() as u64, (objects.len() - to_copy.len()) as u64);
    Ok(StagePlan { store, place, origin, to_copy, objects: count, bytes, here, here_bytes })
}

/// A copy that lies in what is copied would be copied, too, by the next run.
fn refuse_itself(place: &Place, origin: &str, objects: &[ObjectMeta]) -> Result<()> {
    let origin = Path::new(origin);
    let inside = |object: &ObjectMeta| origin.join(&object.key).starts_with(&place.root);
    if origin.is_absolute() && objects.iter().any(inside) {
        let message = format!("stage into `{}`: the objects lie there", place.root.display());
        return Err(Error::invalid_config(message).with_hint("choose a folder outside of what is copied"));
    }
    Ok(())
}

/// Objects that are here and are not what the journal says.
async fn wrong(
    place: &Place,
    journal: &Journal,
    objects: &[ObjectMeta],
    to_copy: &[ToCopy],
) -> Result<Vec<ToCopy>> {
    let missing: HashSet<&str> = to_copy.iter().map(|copy| copy.object.key.as_str()).collect();
    let here = objects.iter().filter(|object| !missing.contains(object.key.as_str()));
    let checked = stream::iter(here).map(|object| async move {
        let path = place.object(&object.key);
        let expected = journal.whole.get(&object.key).map(|whole| whole.xxh3.clone());
        // A file that cannot be read is as good as none.
        let same = blocking(move || Ok(checksum(&path).ok() == expected)).await?;
        let copy = ToCopy { object: object.clone(), half_bytes: 0, wrong: true };
        Result::Ok((!same).then_some(copy))
    });
    let checked = checked.buffered(CHECKED_AT_ONCE);
    Ok(checked.try_collect::<Vec<_>>().await?.into_iter().flatten().collect())
}

/// How a store is named in the journal: without a key, and without secrets.
pub(super) fn origin(store: &dyn Store) -> String {
    store.url("").trim_end_matches('/').to_owned()
}
