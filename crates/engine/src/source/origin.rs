//! How a dataset was opened, as plain data: another process can open it the same way.

use super::dataset::Dataset;
use super::join::JoinOptions;
use super::options::{OpenOptions, SourceKind};
use super::records::TokenOptions;
use forebay_core::{Error, Result};
use forebay_store::StoreOptions;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// A dataset's spec with the options that change what is found there. It may hold credentials of the store, which are
/// not shown.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataSpec {
    /// Paths and URLs; relative paths were made absolute.
    pub spec: Vec<String>,
    /// The kind, when it was not to be guessed.
    #[serde(default)]
    pub kind: Option<String>,
    /// A file of labels.
    #[serde(default)]
    pub labels: Option<PathBuf>,
    /// A folder with a copy of the objects.
    #[serde(default)]
    pub local: Option<PathBuf>,
    /// Where manifests are kept between runs.
    #[serde(default)]
    pub manifest_dir: Option<PathBuf>,
    /// Endings of the files that are samples in a folder.
    #[serde(default = "usual_extensions")]
    pub extensions: Vec<String>,
    /// How files of tokens are cut into samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenOptions>,
    /// What is said to the store.
    #[serde(default)]
    pub storage_options: StoreOptions,
    /// The datasets of a mix with their weights; then nothing else counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(DataSpec, f64)>,
    /// How the parts are joined, when they are no mix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join: Option<JoinOptions>,
}

impl DataSpec {
    pub(super) fn new(spec: &[String], options: &OpenOptions) -> Self {
        let here = std::env::current_dir().unwrap_or_default();
        let absolute = |path: &PathBuf| here.join(path);
        Self {
            spec: spec.iter().map(|part| absolute_spec(part, &here)).collect(),
            kind: options.kind.map(|kind| kind.name().to_owned()),
            labels: options.labels.as_ref().map(absolute),
            local: options.local.as_ref().map(absolute),
            manifest_dir: options.manifest_dir.as_ref().map(absolute),
            extensions: options.extensions.clone(),
            tokens: options.tokens,
            storage_options: options.storage_options.clone(),
            parts: Vec::new(),
            join: None,
        }
    }

    /// The spec of a mix of these.
    pub(super) fn of_parts(parts: Vec<(Self, f64)>) -> Self {
        let spec = parts.iter().flat_map(|(part, _)| part.spec.clone()).collect();
        Self { spec, parts, ..Self::default() }
    }

    /// Opens the dataset, or all of a mix.
    pub async fn open(&self) -> Result<Dataset> {
        if self.parts.is_empty() {
            return self.open_one().await;
        }
        let mut parts = Vec::with_capacity(self.parts.len());
        for (part, weight) in &self.parts {
            parts.push((Box::pin(part.open()).await?, *weight));
        }
        match self.join {
            Some(options) => {
                super::join(&parts.into_iter().map(|(part, _)| part).collect::<Vec<_>>(), options)
            }
            None => super::mix(&parts),
        }
    }

    async fn open_one(&self) -> Result<Dataset> {
        let kind = match &self.kind {
            None => None,
            Some(name) => Some(SourceKind::from_name(name).ok_or_else(|| {
                Error::unsupported(format!("open dataset: this release knows no kind `{name}`"))
            })?),
        };
        let options = OpenOptions {
            kind,
            labels: self.labels.clone(),
            local: self.local.clone(),
            manifest_dir: self.manifest_dir.clone(),
            extensions: self.extensions.clone(),
            tokens: self.tokens,
            storage_options: self.storage_options.clone(),
            ..OpenOptions::default()
        };
        super::open(&self.spec, &options).await
    }

    /// What a recipe says of a dataset that it needs beside the one that it is for: nothing but what was said, and no
    /// secrets.
    pub fn for_recipe(&self) -> Result<serde_json::Value> {
        self.refuse_secrets()?;
        let mut value =
            serde_json::to_value(self).map_err(|cause| Error::internal("write spec").with_source(cause))?;
        without_nothing(&mut value);
        Ok(value)
    }

    /// An error when it holds what must not be shown.
    pub(crate) fn refuse_secrets(&self) -> Result<()> {
        let Some(secret) = self.secrets().into_iter().next() else { return Ok(()) };
        let spec = self.spec.join("::");
        let why = format!("name `{spec}` in a recipe: its `{secret}` would be shown and kept with it");
        Err(Error::unsupported(why)
            .with_hint("give credentials by the environment of the processes that prepare samples"))
    }

    /// Names of options that are secrets, as far as names tell.
    pub fn secrets(&self) -> Vec<&str> {
        let telling = ["secret", "password", "token", "key", "credential"];
        let names = self.storage_options.keys().map(String::as_str);
        let own = names.filter(|name| telling.iter().any(|word| name.to_lowercase().contains(word)));
        own.chain(self.parts.iter().flat_map(|(part, _)| part.secrets())).collect()
    }
}

impl fmt::Debug for DataSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options: Vec<&String> = self.storage_options.keys().collect();
        f.debug_struct("DataSpec")
            .field("spec", &self.spec)
            .field("kind", &self.kind)
            .field("storage_options", &options)
            .finish_non_exhaustive()
    }
}

/// Takes out what is null or empty; TOML has no word for the one, and defaults say the other.
fn without_nothing(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(object) => {
            object.values_mut().for_each(without_nothing);
            object.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|it| !it.is_empty()));
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(without_nothing),
        _ => {}
    }
}

fn usual_extensions() -> Vec<String> {
    OpenOptions::default().extensions
}

/// A spec that means the same in any directory. Its parts are joined by `::`; what has a scheme, begins at the root or
/// with a variable stays as it is.
fn absolute_spec(spec: &str, here: &Path) -> String {
    let one = |part: &str| {
        let known = part.is_empty() || part.contains("://") || part.starts_with(['/', '$', '~', '{']);
        if known { part.to_owned() } else { format!("{}/{part}", here.display()) }
    };
    spec.split("::").map(one).collect::<Vec<_>>().join("::")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_become_absolute_and_secrets_are_not_shown() {
        let here = Path::new("/data");
        let cases = [
            ("train-{0..3}.tar", "/data/train-{0..3}.tar"),
            ("/x/a.tar::b.tar", "/x/a.tar::/data/b.tar"),
            ("s3://bucket/x", "s3://bucket/x"),
            ("${HOME}/x", "${HOME}/x"),
        ];
        for (given, wanted) in cases {
            assert_eq!(absolute_spec(given, here), wanted);
        }
        let mut options = OpenOptions::default();
        options.storage_options.insert("aws_secret_access_key".into(), "hunter2".into());
        options.storage_options.insert("endpoint".into(), "http://127.0.0.1".into());
        let spec = DataSpec::new(&["s3://bucket/x".into()], &options);
        assert!(!format!("{spec:?}").contains("hunter2"));
        assert!(!spec.for_recipe().unwrap_err().to_string().contains("hunter2"));
        let plain = DataSpec { storage_options: StoreOptions::default(), ..spec.clone() };
        let told = plain.for_recipe().unwrap();
        assert!(!told.to_string().contains("null"), "{told}");
        assert_eq!(serde_json::from_value::<DataSpec>(told).unwrap(), plain);
        assert_eq!(spec.secrets(), ["aws_secret_access_key"]);
    }
}
