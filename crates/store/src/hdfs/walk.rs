//! Walks the folders of HDFS in the order of their keys, one folder a step.
//!
//! Inside a folder a sub-folder sorts as its name followed by `/`, since that is how the keys below it go on. One folder's
//! names are sorted at a time, and memory holds those between the root and the current one.

use super::fault::refused;
use super::meta;
use crate::key::TEMPORARY_PREFIX;
use crate::{ObjectMeta, key};
use forebay_core::{ErrorKind, Result};
use hdfs_native::Client;
use hdfs_native::client::FileStatus;
use std::collections::VecDeque;

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    prefix: String,
    /// The folder that is to be listed next, with a `/` at its end; empty for the root.
    enter: Option<String>,
    /// What is left of the folders above, the innermost last.
    open: Vec<VecDeque<Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// With a `/` at its end when it is a folder.
    key: String,
    status: FileStatus,
}

impl Walk {
    /// Begins in the deepest folder that the prefix names, so that its neighbours are not even listed.
    pub(super) fn new(prefix: &str) -> Self {
        let folder = prefix.rfind('/').map_or("", |end| &prefix[..end]);
        // No key begins with such a prefix: nothing is listed.
        let is_root = folder.is_empty() && !prefix.starts_with('/');
        let enter = if is_root {
            Some(String::new())
        } else {
            key::check(folder).is_ok().then(|| format!("{folder}/"))
        };
        Self { prefix: prefix.to_owned(), enter, open: Vec::new() }
    }

    /// The next objects, and the walk that goes on behind them; `None` when it is over.
    pub(super) async fn step(
        mut self,
        client: &Client,
        url: &str,
    ) -> Result<Option<(Vec<ObjectMeta>, Self)>> {
        if let Some(folder) = self.enter.take() {
            let mut entries = self.list(client, &folder, url).await?;
            entries.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            self.open.push(entries.into());
        }
        let mut found = Vec::new();
        while let Some(entries) = self.open.last_mut() {
            match entries.pop_front() {
                None => {
                    self.open.pop();
                }
                Some(entry) if entry.status.isdir => {
                    self.enter = Some(entry.key);
                    return Ok(Some((found, self)));
                }
                Some(Entry { key, status }) => found.push(meta(key, &status)),
            }
        }
        Ok((!found.is_empty()).then_some((found, self)))
    }

    /// What lies in a folder and may have keys with the prefix. One that is not there has nothing.
    async fn list(&self, client: &Client, folder: &str, url: &str) -> Result<Vec<Entry>> {
        let path = format!("/{}", folder.trim_end_matches('/'));
        let listed =
            match client.list_status(&path, false).await.map_err(|error| refused(&error, "list", url)) {
                Ok(listed) => listed,
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
                Err(error) => return Err(error),
            };
        let entry = |status: FileStatus| {
            // A file that is listed gives itself, without a name.
            let name = status.path.strip_prefix(&path)?.trim_start_matches('/').to_owned();
            let end = if status.isdir { "/" } else { "" };
            let key = format!("{folder}{name}{end}");
            let wanted =
                key.starts_with(&self.prefix) || (status.isdir && self.prefix.starts_with(key.as_str()));
            (wanted && !name.is_empty() && !name.starts_with(TEMPORARY_PREFIX))
                .then_some(Entry { key, status })
        };
        Ok(listed.into_iter().filter_map(entry).collect())
    }
}
