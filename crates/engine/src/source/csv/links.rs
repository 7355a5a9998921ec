//! What the cells of a row name: files beside the table, or objects anywhere.
//!
//! A path counts from the folder of the table and never leaves it; what lies elsewhere is named by a whole URL. Each object
//! is looked up once, before the manifest is built, and faults are reported together.

use super::index::Table;
use super::store::{Home, LinkedStore, MAX_ROOTS, Told, tables};
use crate::source::options::OpenOptions;
use crate::source::table::Faults;
use forebay_core::manifest::Manifest;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::{ObjectMeta, Store, remote};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::{BTreeSet, HashMap};

/// Column names that say that a cell is a file, and the ends of such names.
const FILES: [&str; 8] = ["file", "filename", "file_name", "filepath", "path", "image", "audio", "video"];
const FILE_ENDS: [&str; 4] = ["_file", "_filename", "_file_name", "_path"];

/// Column names that say so where no other does.
const URLS: [&str; 2] = ["url", "uri"];
const URL_ENDS: [&str; 2] = ["_url", "_uri"];

/// With more files than this, their folder is listed instead of asking for each.
const ASKED_FILES: usize = 1000;

/// A kept manifest with more files than this, or far away, is compared with some of them.
const COMPARED_FILES: usize = 50_000;
const SPOT_CHECKS: usize = 32;

/// The columns whose cells name files: by names that mean a path, else `key`, else names that mean a URL.
pub(super) fn file_columns(names: &[String]) -> Vec<usize> {
    let names: Vec<String> = names.iter().map(|name| name.to_lowercase()).collect();
    let called = |all: &[&str], ends: &[&str]| -> Vec<usize> {
        let is = |name: &str| all.contains(&name) || ends.iter().any(|end| name.ends_with(end));
        (0..names.len()).filter(|at| is(&names[*at])).collect()
    };
    let tiers = [called(&FILES, &FILE_ENDS), called(&["key"], &[]), called(&URLS, &URL_ENDS)];
    tiers.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// The key of what a cell names: of an object of the table's own store, or a URL.
pub(super) fn key(table: &str, cell: &str, home: Home<'_>) -> Result<String> {
    let refuse = |why: &str| Error::invalid_config(format!("`{}` {why}", cell.escape_debug()));
    if let Some((scheme, rest)) = cell.split_once("://") {
        if scheme.eq_ignore_ascii_case("file") {
            if home.remote.is_some() {
                let why = "is a file of this machine, which a table from elsewhere may not name";
                return Err(Error::new(ErrorKind::Denied, format!("`{}` {why}", cell.escape_debug())));
            }
            check_parts(rest.strip_prefix('/').unwrap_or_default()).map_err(refuse)?;
            return Ok(format!("file://{rest}"));
        }
        if scheme.eq_ignore_ascii_case("cassandra") {
            return Err(refuse("is a table"));
        }
        return match remote::address(cell)? {
            Some(address) if address.key.is_empty() => Err(refuse("names no object")),
            Some(_) => Ok(cell.to_owned()),
            None => Err(refuse("is in a store that is not offered")),
        };
    }
    if cell.starts_with('/') {
        return Err(refuse("is absolute: write it as a `file://` URL"));
    }
    let path = cell.trim_start_matches("./");
    check_parts(path).map_err(refuse)?;
    let folder = table.rfind('/').map_or("", |slash| &table[..=slash]);
    Ok(format!("{folder}{path}"))
}

/// What is wrong with a relative path.
fn check_parts(path: &str) -> std::result::Result<(), &str> {
    if path.split('/').any(|part| part == "..") {
        return Err("leaves the folder of the table");
    }
    if path.contains('\0') || path.split('/').any(|part| part.is_empty() || part == ".") {
        return Err("is no path of a file");
    }
    Ok(())
}

/// Everything that rows name, each object once.
#[derive(Debug, Default)]
pub(in crate::source) struct Links {
    keys: Vec<String>,
    numbers: HashMap<String, usize>,
    /// Where each is named first: table, row, column.
    places: Vec<(usize, usize, usize)>,
    /// What each is, once it was looked up.
    found: Vec<Option<ObjectMeta>>,
    /// The stores of URLs.
    roots: BTreeSet<String>,
    /// Cells that cannot be a name: the row, and what is wrong with it.
    faults: Vec<(usize, String)>,
}

impl Links {
    /// What the rows of `tables` name.
    pub(in crate::source) fn new(tables: &[Table], home: Home<'_>) -> Result<Self> {
        let mut links = Self::default();
        for (number, table) in tables.iter().enumerate() {
            for (row, column, cell) in table.files() {
                let key = match key(&table.object.key, cell, home) {
                    Ok(key) => key,
                    Err(error) => {
                        links.faults.push((row, format!("{}: {error}", table.place(row, column))));
                        continue;
                    }
                };
                if links.numbers.contains_key(&key) {
                    continue;
                }
                if let Some((root, _)) = super::store::address(&key)? {
                    links.roots.insert(root);
                    if links.roots.len() > MAX_ROOTS {
                        let why = format!("rows name objects of more than {MAX_ROOTS} stores");
                        return Err(Error::exhausted(format!("index rows: {why}")).with_hint(
                            "give credentials as storage options instead of signing each URL, or copy the objects",
                        ));
                    }
                }
                links.numbers.insert(key.clone(), links.keys.len());
                links.keys.push(key);
                links.places.push((number, row, column));
            }
        }
        Ok(links)
    }

    /// What is said of them in a manifest's meta.
    pub(in crate::source) fn told(&self, tables: &[Table]) -> Told {
        Told {
            files: tables.iter().map(|table| table.object.key.clone()).collect(),
            roots: self.roots.iter().cloned().collect(),
        }
    }

    /// Looks all of them up.
    pub(in crate::source) async fn find(&mut self, store: &LinkedStore, options: &OpenOptions) -> Result<()> {
        let listed = self.listed(store, options).await?;
        let ask = |key: &String| {
            let known = listed.as_ref().map(|listed| listed.get(key).cloned());
            let (key, near) = (key.clone(), !key.contains("://"));
            async move {
                match known.filter(|_| near) {
                    Some(known) => Ok(known),
                    None => head(store, &key).await,
                }
            }
        };
        let asked: Vec<_> = self.keys.iter().map(ask).collect();
        self.found = stream::iter(asked).buffered(options.parallel.max(1)).try_collect().await?;
        Ok(())
    }

    /// The folder of the files that lie beside the table, when asking for each would take longer.
    async fn listed(
        &self,
        store: &LinkedStore,
        options: &OpenOptions,
    ) -> Result<Option<HashMap<String, ObjectMeta>>> {
        let mut near = self.keys.iter().filter(|key| !key.contains("://"));
        if near.clone().count() <= ASKED_FILES {
            return Ok(None);
        }
        let mut common = near.next().map_or("", String::as_str);
        for key in near {
            let same = common.bytes().zip(key.bytes()).take_while(|(one, other)| one == other).count();
            common = &common[..(0..=same).rev().find(|at| common.is_char_boundary(*at)).unwrap_or_default()];
        }
        let folder = common.rfind('/').map_or("", |slash| &common[..=slash]);
        match options.list(store, folder).await {
            Ok(found) => Ok(Some(
                found
                    .into_iter()
                    .filter(|meta| self.numbers.contains_key(&meta.key))
                    .map(|meta| (meta.key.clone(), meta))
                    .collect(),
            )),
            // Not every store can list.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The error of all cells that name nothing.
    pub(super) fn check(&mut self, store: &LinkedStore, tables: &[Table]) -> Result<()> {
        let mut faults = Faults::default();
        self.take_faults().into_iter().for_each(|(_, fault)| faults.add(|| fault));
        for ((key, found), place) in self.keys.iter().zip(&self.found).zip(&self.places) {
            if found.is_none() {
                let (table, row, column) = *place;
                faults.add(|| format!("{}: no file `{}`", tables[table].place(row, column), store.url(key)));
            }
        }
        let Some(list) = faults.list() else { return Ok(()) };
        let names: Vec<String> =
            tables.iter().take(3).map(|table| format!("`{}`", store.url(&table.object.key))).collect();
        let more = if tables.len() > 3 { " and others" } else { "" };
        Err(Error::invalid_config(format!("read rows of {}{more}: {list}", names.join(", "))).with_hint(
            "cells of such a column are paths below the folder of the table, or whole URLs; a column of another name is text",
        ))
    }

    /// The faults of cells that cannot be a name: the row, and what is wrong.
    pub(in crate::source) fn take_faults(&mut self) -> Vec<(usize, String)> {
        std::mem::take(&mut self.faults)
    }

    /// Of every object that was looked up: its key, what it is if it is there, and row and column where it is named first.
    pub(in crate::source) fn all(&self) -> impl Iterator<Item = (&str, Option<&ObjectMeta>, usize, usize)> {
        let found = self.keys.iter().zip(&self.found).zip(&self.places);
        found.map(|((key, found), (_, row, column))| (key.as_str(), found.as_ref(), *row, *column))
    }

    /// The objects that are there, in order: their numbers in a manifest that begins with them.
    pub(super) fn found(&self) -> impl Iterator<Item = (&str, &ObjectMeta)> {
        self.keys.iter().zip(&self.found).filter_map(|(key, found)| Some((key.as_str(), found.as_ref()?)))
    }

    /// Number and size of what a key names.
    pub(super) fn of(&self, key: &str) -> Option<(u32, u64)> {
        let number = *self.numbers.get(key)?;
        Some((u32::try_from(number).ok()?, self.found.get(number)?.as_ref()?.size))
    }
}

async fn head(store: &LinkedStore, key: &str) -> Result<Option<ObjectMeta>> {
    match store.head(key).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why what rows name is not as a kept manifest says; nothing when it is, as far as that is looked at.
pub(in crate::source) async fn changed(
    manifest: &Manifest,
    store: &LinkedStore,
    parallel: usize,
) -> Result<Option<String>> {
    let tables = tables(manifest).unwrap_or_default();
    let linked = |object: &u32| !tables.contains(&*manifest.object(*object).key);
    let linked: Vec<u32> = (0..manifest.object_count()).filter(linked).collect();
    let all = !store.is_remote() && linked.len() <= COMPARED_FILES;
    let step = if all { 1 } else { linked.len().div_ceil(SPOT_CHECKS).max(1) };
    let compare = linked.into_iter().step_by(step).map(|object| async move {
        let known = manifest.object(object);
        Ok::<_, Error>(match head(store, &known.key).await? {
            None => Some(format!("`{}` is gone", store.url(&known.key))),
            Some(found) if (found.size, found.stamp) != (known.size, known.stamp) => {
                Some(format!("`{}` was written again", store.url(&known.key)))
            }
            Some(_) => None,
        })
    });
    let compare: Vec<_> = compare.collect();
    let found: Vec<Option<String>> = stream::iter(compare).buffered(parallel.max(1)).try_collect().await?;
    Ok(found.into_iter().flatten().next())
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_store::StoreOptions;

    #[test]
    fn files_are_named_by_columns_that_say_so() {
        for (header, wanted) in [
            ("id,Path,label", vec![1]),
            ("image,mask_path,url", vec![0, 1]),
            ("key,caption,url", vec![0]),
            ("caption,image_url,page_url", vec![1, 2]),
            ("text,label", vec![]),
        ] {
            let names: Vec<String> = header.split(',').map(str::to_owned).collect();
            assert_eq!(file_columns(&names), wanted, "{header}");
        }
    }

    #[test]
    fn cells_are_keys_and_never_leave_the_folder() {
        let options = StoreOptions::new();
        let here = Home { remote: None, options: &options };
        let there = Home { remote: Some("s3://bucket"), options: &options };
        for (cell, wanted) in [
            ("a/b.jpg", "set/a/b.jpg"),
            ("./a.jpg", "set/a.jpg"),
            ("s3://other/x.jpg", "s3://other/x.jpg"),
            ("https://host/a%20b.jpg?s=1", "https://host/a%20b.jpg?s=1"),
            ("file:///data/x.jpg", "file:///data/x.jpg"),
            ("..a/b", "set/..a/b"),
        ] {
            assert_eq!(key("set/t.csv", cell, here).unwrap(), wanted, "{cell}");
        }
        for bad in [
            "../a",
            "a/../b",
            "/etc/passwd",
            "a//b",
            "a/./b",
            "",
            "a\0b",
            "ftp://h/a",
            "s3://bucket",
            "s3://",
            "file://relative",
            "file:///a/../b",
            "cassandra://h/k/t/1",
            "pipe://x",
        ] {
            assert!(key("set/t.csv", bad, here).is_err(), "{bad:?}");
        }
        assert_eq!(key("t.csv", "file:///etc/passwd", there).unwrap_err().kind(), ErrorKind::Denied);
        assert_eq!(key("t.csv", "a.jpg", there).unwrap(), "a.jpg");
    }
}
