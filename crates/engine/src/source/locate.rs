//! What a spec means: which store, which keys, patterns or folder. Pure but for asking whether a path is a folder.
//!
//! Nothing here runs a command: `pipe:` specs are refused by name.

use super::options::{OpenOptions, SourceKind};
use forebay_core::spec::Pattern;
use forebay_core::{Error, Result};
use forebay_store::{GunzipStore, remote};
use std::path::{Component, Path, PathBuf};

/// One thing that a spec names inside a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// An object.
    Key(String),
    /// Objects whose keys match.
    Pattern(String),
    /// Everything below: empty, or a prefix that ends with `/`.
    Folder(String),
}

/// Local items below their common folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) root: PathBuf,
    pub(super) items: Vec<Item>,
}

/// Items of one remote store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    /// The store, as a URL without a key.
    pub(super) root: String,
    pub(super) items: Vec<Item>,
}

/// The parts of a spec with braces, `::` and variables replaced.
pub(super) fn expand(spec: &[String], options: &OpenOptions) -> Result<Vec<Pattern>> {
    let mut parts = Vec::new();
    for text in spec {
        refuse_command(text)?;
        parts.extend(forebay_core::spec::expand(text, &|name| options.variable(name))?);
    }
    if parts.is_empty() {
        return Err(Error::invalid_config("open dataset: the spec names nothing")
            .with_hint("give a folder, shards such as `train-{000..146}.tar`, or a manifest `x.fbm`"));
    }
    for part in &parts {
        refuse_command(&part.text)?;
    }
    Ok(parts)
}

/// Paths and `file:` URLs, as keys below their common folder.
pub(super) fn locate_local(parts: &[Pattern]) -> Result<Located> {
    let found = parts.iter().map(Found::new).collect::<Result<Vec<_>>>()?;
    if let [Found { path, folder: true, .. }] = found.as_slice() {
        return Ok(Located { root: path.clone(), items: vec![Item::Folder(String::new())] });
    }
    let bases: Vec<PathBuf> = found.iter().map(Found::literal_base).collect();
    let root = common_folder(&bases);
    let items = found.iter().map(|found| found.item(&root)).collect::<Result<_>>()?;
    Ok(Located { root, items })
}

/// URLs of one remote store as keys in it; `None` when the spec names files of this machine.
pub(super) fn locate_remote(parts: &[Pattern]) -> Result<Option<Remote>> {
    let mut keys = Vec::new();
    let mut root: Option<String> = None;
    for part in parts {
        let Some(address) = remote::address(&part.text)? else { continue };
        match &root {
            Some(root) if *root != address.root => {
                let message =
                    format!("open dataset: the spec names two stores, `{root}` and `{}`", address.root);
                return Err(Error::invalid_config(message).with_hint("open each dataset and mix them"));
            }
            _ => root = Some(address.root),
        }
        keys.push(Pattern { text: address.key, is_glob: part.is_glob });
    }
    let Some(root) = root else { return Ok(None) };
    if keys.len() != parts.len() {
        return Err(Error::invalid_config(format!(
            "open dataset: the spec names `{root}` and files of this machine"
        ))
        .with_hint("open each dataset and mix them"));
    }
    Ok(Some(Remote { root, items: locate_keys(&keys) }))
}

/// Keys, patterns and prefixes of a store that the caller brought.
pub(super) fn locate_keys(parts: &[Pattern]) -> Vec<Item> {
    let locate = |part: &Pattern| {
        let text = without_index(part.text.trim_start_matches("./"));
        if part.is_glob {
            Item::Pattern(text.into())
        } else if shard_name(text).is_some() || is_manifest(text) {
            Item::Key(text.into())
        } else {
            Item::Folder(folder_prefix(text.trim_end_matches('/').trim_start_matches('.')))
        }
    };
    parts.iter().map(locate).collect()
}

/// The part of a glob before its first special character: what listing can start from.
pub(super) fn literal_prefix(glob: &str) -> &str {
    &glob[..glob.find(SPECIAL).unwrap_or(glob.len())]
}

/// The kind of shard that a name is given to.
pub(super) fn shard_name(key: &str) -> Option<SourceKind> {
    let name = key.rsplit('/').next().unwrap_or(key).to_ascii_lowercase();
    let packed = [".gz", ".zst", ".zstd"].iter().find_map(|end| name.strip_suffix(end));
    let plain = packed.unwrap_or(&name);
    let (stem, ending) = plain.rsplit_once('.')?;
    match ending {
        "tar" => Some(SourceKind::Tar),
        "tgz" if plain == name => Some(SourceKind::Tar),
        "tfrecord" | "tfrecords" | "tfrec" => Some(SourceKind::Tfrecord),
        "jsonl" | "ndjson" => Some(SourceKind::Jsonl),
        "csv" | "tsv" => Some(SourceKind::Csv),
        "zip" if plain == name => Some(SourceKind::Zip),
        "rec" if plain == name => Some(SourceKind::Recordio),
        "mds" => Some(SourceKind::Mds),
        "parquet" | "parq" if plain == name => Some(SourceKind::Parquet),
        // Compressed in ways that are refused by name.
        "br" | "bz2" | "snappy" if stem.rsplit_once('.').is_some_and(|(_, inner)| inner == "mds") => {
            Some(SourceKind::Mds)
        }
        "bin" if is_chunk(stem) => Some(SourceKind::Litdata),
        "bin" | "u16" | "u32" if plain == name => Some(SourceKind::Tokens),
        // `mnist-train.tfrecord-00000-of-00010`
        _ => is_numbered(ending.strip_prefix("tfrecord-")?).then_some(SourceKind::Tfrecord),
    }
}

/// Whether text is `chunk-0-12`, as LitData names chunks, or that with its compression behind it.
fn is_chunk(stem: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = stem.strip_prefix("chunk-").map(|rest| rest.split_once('.').map_or(rest, |(first, _)| first));
    parts.and_then(|parts| parts.split_once('-')).is_some_and(|(rank, chunk)| number(rank) && number(chunk))
}

/// The file that describes the shards of a folder in some formats. Naming it means the folder.
pub(super) const INDEX_FILE: &str = "index.json";

/// What is left of a spec that names such a file.
fn without_index(text: &str) -> &str {
    match text.strip_suffix(INDEX_FILE) {
        Some("") => ".",
        Some(folder) if folder.ends_with('/') => folder,
        _ => text,
    }
}

/// Whether text is `00000-of-00010`.
fn is_numbered(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once("-of-").is_some_and(|(number, count)| digits(number) && digits(count))
}

/// Whether a shard is compressed as a whole: its objects are noted with the size of what they hold.
pub(super) fn is_packed(key: &str) -> bool {
    GunzipStore::applies_to(key)
}

/// Whether a name is that of a manifest.
pub(super) fn is_manifest(key: &str) -> bool {
    key.strip_suffix(".fbm").is_some()
}

/// Whether a key is hidden or unfinished: some part begins with a dot, or its name is that of a temporary file.
pub(super) fn is_hidden(key: &str) -> bool {
    key.split('/').any(|part| part.starts_with('.'))
        || [".tmp", ".part", "~"].iter().any(|end| key.ends_with(end))
}

/// What a spec may name, for the hint of those that name something else.
const OFFERED: &str = "paths, `file://`, `http://`, `https://`, `s3://`, `gs://`, `az://`, `ais://`, `hdfs://`, `cassandra://` and `synthetic://`";

/// What makes a part of a glob more than a name; the backslash takes the meaning from the others.
const SPECIAL: [char; 4] = ['*', '?', '[', '\\'];

/// A local part and what is there.
struct Found {
    path: PathBuf,
    folder: bool,
    /// Still a glob: a path that exists as it is written is meant as it is written.
    glob: bool,
}

impl Found {
    fn new(part: &Pattern) -> Result<Self> {
        let path = local_path(without_index(&part.text))?;
        let path =
            std::path::absolute(&path).map_err(|e| Error::io(format!("open dataset `{}`", part.text), e))?;
        let path = normal(&path);
        Ok(Self { folder: path.is_dir(), glob: part.is_glob && !path.exists(), path })
    }

    /// The folder above the first part that is a pattern; the parent of a plain file; a folder itself.
    fn literal_base(&self) -> PathBuf {
        let mut base = PathBuf::new();
        for part in self.path.components() {
            if self.glob && part.as_os_str().to_string_lossy().contains(SPECIAL) {
                return base;
            }
            base.push(part);
        }
        if !self.folder {
            base.pop();
        }
        base
    }

    fn item(&self, root: &Path) -> Result<Item> {
        let key = self.path.strip_prefix(root).unwrap_or(&self.path).to_str().ok_or_else(|| {
            Error::invalid_config(format!("open dataset `{}`: the path is not UTF-8", self.path.display()))
        })?;
        Ok(match (self.folder, self.glob) {
            (true, _) => Item::Folder(folder_prefix(key)),
            (false, true) => Item::Pattern(key.into()),
            (false, false) => Item::Key(key.into()),
        })
    }
}

fn folder_prefix(key: &str) -> String {
    if key.is_empty() { String::new() } else { format!("{key}/") }
}

fn refuse_command(text: &str) -> Result<()> {
    if text.trim_start().to_ascii_lowercase().starts_with("pipe:") || text.trim_end().ends_with('|') {
        let message = format!("open dataset `{text}`: commands in specs are never run");
        return Err(Error::unsupported(message).with_hint("fetch the shards first, then name them by path"));
    }
    Ok(())
}

fn local_path(part: &str) -> Result<PathBuf> {
    let Some((scheme, rest)) = part.split_once("://") else { return Ok(PathBuf::from(part)) };
    if !scheme.eq_ignore_ascii_case("file") {
        let message = format!("open dataset `{part}`: stores of scheme `{scheme}://` are not offered");
        return Err(Error::unsupported(message).with_hint(format!("offered are {OFFERED}")));
    }
    let path = rest.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(rest);
    if !path.starts_with('/') {
        return Err(Error::invalid_config(format!(
            "open dataset `{part}`: a `file://` URL names an absolute path"
        ))
        .with_hint("write `file:///data/train`, or a plain path"));
    }
    Ok(PathBuf::from(percent_decoded(path)))
}

/// `%41` becomes `A`; anything that is not two hex digits stays as it is.
pub(super) fn percent_decoded(text: &str) -> String {
    let (bytes, mut decoded, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex.filter(|_| bytes[at] == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        decoded.push(byte.unwrap_or(bytes[at]));
        at += if byte.is_some() { 3 } else { 1 };
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_string())
}

/// Takes `.` and `..` out by name, as URLs do. A path through a symlinked folder and back may then differ from the
/// system's view, which is the price of keys that name one object once.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

fn common_folder(bases: &[PathBuf]) -> PathBuf {
    let mut common = bases.first().cloned().unwrap_or_default();
    for base in bases {
        while !base.starts_with(&common) {
            common.pop();
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(parts: &[&str]) -> Vec<Pattern> {
        let part = |part: &&str| Pattern { text: (*part).into(), is_glob: part.contains(SPECIAL) };
        parts.iter().map(part).collect()
    }

    #[test]
    fn local_specs_share_the_folder_above_them() {
        let located = locate_local(&parts(&["/no/such/a/x.tar", "file:///no/such/b/y%20z.tar"])).unwrap();
        assert_eq!(located.root, Path::new("/no/such"));
        assert_eq!(located.items, [Item::Key("a/x.tar".into()), Item::Key("b/y z.tar".into())]);
        let located = locate_local(&parts(&["/no/such/../a/t-*.tar"])).unwrap();
        assert_eq!(
            (located.root.as_path(), located.items),
            (Path::new("/no/a"), vec![Item::Pattern("t-*.tar".into())])
        );
    }

    #[test]
    fn a_folder_is_its_own_root_even_when_its_name_looks_like_a_pattern() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run[1].tar");
        std::fs::create_dir(&folder).unwrap();
        let located = locate_local(&parts(&[folder.to_str().unwrap()])).unwrap();
        assert_eq!((located.root, located.items), (folder, vec![Item::Folder(String::new())]));
    }

    #[test]
    fn keys_patterns_and_prefixes_of_any_store_are_told_apart() {
        let items = locate_keys(&parts(&["a.tar", "t/*.tar", "train", "train/", ".", ""]));
        let folder = |prefix: &str| Item::Folder(prefix.into());
        let (key, pattern) = (Item::Key("a.tar".into()), Item::Pattern("t/*.tar".into()));
        assert_eq!(items, [key, pattern, folder("train/"), folder("train/"), folder(""), folder("")]);
    }

    #[test]
    fn p079_commands_and_unknown_schemes_are_refused_by_name() {
        for command in ["pipe:curl http://x/a.tar", " PIPE:rm -rf /", "cat a.tar |"] {
            let error = expand(&[command.to_string()], &OpenOptions::default()).unwrap_err();
            assert!(error.to_string().contains("never run"), "{error}");
        }
        let error = locate_local(&parts(&["ftp://host/a.tar"])).unwrap_err();
        assert_eq!(error.kind(), forebay_core::ErrorKind::Unsupported);
        assert!(error.to_string().contains("ftp://"));
        assert!(locate_local(&parts(&["file://relative/a.tar"])).is_err());
    }

    #[test]
    fn urls_of_one_store_become_its_keys_and_two_stores_are_refused() {
        let remote = |given: &[&str]| locate_remote(&parts(given));
        let found = remote(&["s3://b/a-0.tar", "s3://b/x/*.tar", "s3://b/train/"]).unwrap().unwrap();
        let folder = Item::Folder("train/".into());
        let (key, pattern) = (Item::Key("a-0.tar".into()), Item::Pattern("x/*.tar".into()));
        assert_eq!((found.root.as_str(), found.items), ("s3://b", vec![key, pattern, folder]));
        assert_eq!(remote(&["/data/a.tar", "file:///b.tar"]).unwrap(), None);
        assert!(remote(&["s3://a/x.tar", "s3://b/x.tar"]).is_err());
        assert!(remote(&["s3://a/x.tar", "/data/x.tar"]).is_err());
    }

    #[test]
    fn hidden_and_unfinished_files_are_told() {
        for hidden in [".a.jpg", "c/.DS_Store", ".git/x.jpg", "a.tar.tmp", "a.jpg~", "x/.tmp-a.tar-12"] {
            assert!(is_hidden(hidden), "{hidden}");
        }
        assert!(!is_hidden("c/a.jpg"));
    }
}
