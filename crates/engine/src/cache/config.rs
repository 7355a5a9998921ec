//! The `cache` setting: one meaning in Python, in TOML and in the environment.
//!
//! `"64GiB"` is memory alone; a table names tiers: `{"memory": "64GiB", "disk": "/nvme/forebay:500GiB"}`. All faults
//! are reported at once.

use super::peers_config::{KEYS, PeersConfig};
use forebay_core::cache::Capacity;
use forebay_core::recipe::Op;
use forebay_core::size::parse_bytes;
use forebay_core::{Error, Result};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Where a loader keeps payloads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CacheConfig {
    /// Bytes of payloads in memory.
    pub memory: u64,
    /// A directory, and the bytes it may take.
    pub disk: Option<DiskConfig>,
    /// Decides which samples are resident when not all fit.
    pub seed: u64,
    /// Who else uses the memory.
    pub share: Share,
    /// The nodes of the job, when they keep payloads for each other.
    pub peers: Option<PeersConfig>,
    /// What memory keeps of a sample.
    pub at: CacheAt,
}

/// What memory keeps of a sample.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheAt {
    /// Its payloads.
    #[default]
    Bytes,
    /// Payloads, or what the recipe makes of them up to some op: whichever is measured to make epochs shorter.
    Auto,
    /// What the recipe makes of them up to the op of this name, or `decode`.
    Cut(String),
}

impl std::fmt::Display for CacheAt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Auto => "auto",
            Self::Cut(name) => name,
        })
    }
}

/// A directory for payloads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DiskConfig {
    /// The directory. It is made when it is not there.
    pub dir: PathBuf,
    /// Bytes that all files in it may take.
    pub limit: u64,
}

/// Who uses the memory of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// All ranks of the host when there are several, otherwise this process.
    #[default]
    Auto,
    /// This process alone.
    Process,
    /// All processes of the user on this host.
    Host,
}

impl CacheConfig {
    /// Reads the setting.
    pub fn from_json(value: &Value) -> Result<Self> {
        let mut faults = Vec::new();
        let config = match value {
            Value::Object(table) => Self::from_table(table.clone(), &mut faults),
            value => {
                let memory = size(value).map_err(|why| faults.push(why)).unwrap_or_default();
                Self { memory, ..Self::default() }
            }
        };
        if faults.is_empty() && config.memory == 0 && config.disk.is_none() {
            faults.push("it has neither memory nor disk".to_owned());
        }
        if faults.is_empty() {
            return Ok(config);
        }
        Err(Error::invalid_config(format!("read `cache`: {}", faults.join("; "))).with_hint(
            "write a size such as \"64GiB\", or {\"memory\": \"64GiB\", \"disk\": \"/nvme/forebay:500GiB\"}",
        ))
    }

    fn from_table(mut table: Map<String, Value>, faults: &mut Vec<String>) -> Self {
        let mut config = Self::default();
        let mut note = |what: &str, why: String| faults.push(format!("{what}: {why}"));
        if let Some(value) = table.remove("memory") {
            config.memory = size(&value).map_err(|why| note("memory", why)).unwrap_or_default();
        }
        if let Some(value) = table.remove("disk") {
            config.disk = disk(&value).map_err(|why| note("disk", why)).ok();
        }
        if let Some(value) = table.remove("seed") {
            match value.as_u64() {
                Some(seed) => config.seed = seed,
                None => note("seed", format!("{value} is not a whole number")),
            }
        }
        if let Some(value) = table.remove("share") {
            match value.as_str() {
                Some("auto") => config.share = Share::Auto,
                Some("process") => config.share = Share::Process,
                Some("host") => config.share = Share::Host,
                _ => note("share", format!("{value} is not one of \"auto\", \"process\", \"host\"")),
            }
        }
        if let Some(value) = table.remove("at") {
            match value.as_str() {
                Some("bytes") => config.at = CacheAt::Bytes,
                Some("auto") => config.at = CacheAt::Auto,
                Some(name) if name == "decode" || Op::NAMES.contains(&name) => {
                    config.at = CacheAt::Cut(name.to_owned());
                }
                _ => {
                    note(
                        "at",
                        format!("{value} is not \"bytes\", \"auto\", \"decode\" or the name of an op"),
                    );
                }
            }
        }
        config.peers = PeersConfig::from_table(&mut table, &mut note);
        for name in table.keys() {
            let known = ["memory", "disk", "at", "seed", "share"].iter().chain(&KEYS).copied();
            let known = known.collect::<Vec<_>>().join(", ");
            note(name, format!("there is no such setting; known are {known}"));
        }
        config
    }

    /// Room of the tiers.
    pub fn capacity(&self) -> Capacity {
        Capacity { memory: self.memory, disk: self.disk.as_ref().map_or(0, |disk| disk.limit) }
    }

    /// The setting as it would be written, without secrets.
    pub fn to_json(&self) -> Value {
        let mut table = Map::new();
        table.insert("memory".into(), self.memory.into());
        if let Some(disk) = &self.disk {
            table.insert("disk".into(), format!("{}:{}", disk.dir.display(), disk.limit).into());
        }
        if self.at != CacheAt::Bytes {
            table.insert("at".into(), self.at.to_string().into());
        }
        if let Some(peers) = &self.peers {
            table.insert("peers".into(), peers.members.to_json());
        }
        Value::Object(table)
    }
}

/// A number of bytes, or text with a unit.
fn size(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => parse_bytes(text).map_err(|error| error.message().to_owned()),
        value => value.as_u64().ok_or_else(|| format!("{value} is not a size such as \"64GiB\"")),
    }
}

/// `DIR:SIZE`; the directory may have colons of its own.
fn disk(value: &Value) -> Result<DiskConfig, String> {
    let text = value.as_str().ok_or_else(|| format!("{value} is not \"DIR:SIZE\""))?;
    let (dir, limit) = text.rsplit_once(':').ok_or_else(|| {
        format!("`{text}` has no size: write how many bytes it may take, such as \"{text}:500GiB\"")
    })?;
    if dir.is_empty() {
        return Err(format!("`{text}` names no directory"));
    }
    let limit = parse_bytes(limit).map_err(|error| error.message().to_owned())?;
    Ok(DiskConfig { dir: dir.into(), limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_and_tables_are_read() {
        let read = |value: Value| CacheConfig::from_json(&value).unwrap();
        assert_eq!(read(json!("64GiB")).capacity(), Capacity { memory: 64 << 30, disk: 0 });
        assert_eq!(read(json!(1000)).memory, 1000);
        let table = read(json!({"memory": "1GB", "disk": "/a:b/c:2GB", "seed": 3, "share": "host"}));
        assert_eq!(table.disk, Some(DiskConfig { dir: "/a:b/c".into(), limit: 2_000_000_000 }));
        assert_eq!((table.memory, table.seed, table.share), (1_000_000_000, 3, Share::Host));
        for (word, at) in [
            ("bytes", CacheAt::Bytes),
            ("auto", CacheAt::Auto),
            ("center_crop", CacheAt::Cut("center_crop".into())),
        ] {
            let config = read(json!({"memory": 1, "at": word}));
            assert_eq!((&config.at, config.at.to_string().as_str()), (&at, word));
        }
        assert_eq!(
            read(json!({"memory": 1, "at": "decode"})).to_json(),
            json!({"memory": 1, "at": "decode"})
        );
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let faults = |value: Value| CacheConfig::from_json(&value).unwrap_err().message().to_owned();
        let many =
            faults(json!({"memory": "lots", "disk": "/nvme", "share": "all", "speed": 1, "at": "crop"}));
        for word in [
            "memory",
            "disk: `/nvme` has no size",
            "share",
            "speed: there is no such setting",
            "at: \"crop\" is not",
        ] {
            assert!(many.contains(word), "{many}");
        }
        assert!(faults(json!({})).contains("neither memory nor disk"));
        assert!(faults(json!(true)).contains("not a size"));
    }
}
