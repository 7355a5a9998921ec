//! The `via` setting: where batches are made. One meaning in Python, in TOML and in the environment.
//!
//! `"auto"` and `"unix:///path"` are a process of this host that all its jobs share, `"forebay://host:port"` is a
//! service, `"forebay://auto"` the one of the job that Slurm or torchrun started. A table says more: `{"url": "forebay://host:port", "job": "exp-7", "token_file": "/etc/forebay/token"}`.

use super::message::{Late, Packing};
use crate::credentials::{Credentials, PeerTls, Token};
use crate::launcher::dispatcher_address;
use forebay_core::dispatcher::Visitation;
use forebay_core::{Error, Result};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// Where batches are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ViaUrl {
    /// A process of this host, started when it is missing.
    Auto,
    /// A process of this host that listens here.
    Unix(PathBuf),
    /// The dispatcher of a service: `host:port`, or several that share an etcd with commas between them.
    Service(String),
}

/// Which workers of a service make the batches of a loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// All of them, as the dispatcher says.
    #[default]
    Any,
    /// The one in the loader's own process for as long as it keeps up, others beside it when it does not.
    Auto,
    /// The one in the loader's own process alone: nobody is connected to.
    Local,
}

/// Where batches are made, and what is said there.
#[derive(Clone, Debug)]
pub struct ViaConfig {
    /// Where.
    pub url: ViaUrl,
    /// The job's name, the same on all its ranks.
    pub job: Option<String>,
    /// What happens to batches that a slower job did not take before staging was full.
    pub late: Late,
    /// What happens to batches that a lost worker had: they are asked of another one, or left out and counted when at
    /// most once is asked for. At least once is the same as exactly once, since what comes twice is dropped.
    pub visitation: Visitation,
    /// Which workers of a service make them.
    pub target: Target,
    /// A tag that those workers must have, such as the ones near the data.
    pub tag: Option<String>,
    /// How batches are packed on the wire.
    pub compression: Packing,
    token: Option<String>,
    token_file: Option<PathBuf>,
    tls: Option<PeerTls>,
    folder: Option<PathBuf>,
}

const KNOWN: &str = "url, job, late, visitation, target, tag, compression, credentials, token, token_file, tls_ca, tls_cert, tls_key, tls_name";

impl ViaConfig {
    /// Reads the setting.
    pub fn from_json(value: &Value) -> Result<Self> {
        let mut faults = Vec::new();
        let mut table = match value {
            Value::Object(table) => table.clone(),
            other => Map::from_iter([("url".to_owned(), other.clone())]),
        };
        let config = Self::from_table(&mut table, &mut faults);
        faults
            .extend(table.keys().map(|name| format!("{name}: there is no such setting; known are {KNOWN}")));
        match config {
            Some(config) if faults.is_empty() => Ok(config),
            _ => Err(Error::invalid_config(format!("read `via`: {}", faults.join("; "))).with_hint(
                "write \"auto\", \"unix:///path\" or \"forebay://host:port\", or a table with `url` and more",
            )),
        }
    }

    fn from_table(table: &mut Map<String, Value>, faults: &mut Vec<String>) -> Option<Self> {
        let mut text = |name: &str| match table.remove(name) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            Some(other) => {
                faults.push(format!("{name}: {other} is not text"));
                None
            }
        };
        let url = text("url");
        let [job, late, visitation, target, tag, compression] =
            ["job", "late", "visitation", "target", "tag", "compression"].map(&mut text);
        let (token, token_file) = (text("token"), text("token_file").map(PathBuf::from));
        let tls = ["tls_ca", "tls_cert", "tls_key"].map(|name| text(name).map(PathBuf::from));
        let (name, folder) = (text("tls_name"), text("credentials").map(PathBuf::from));
        let tls = match tls {
            [Some(ca_file), Some(cert), Some(key)] => Some(PeerTls { ca_file, cert, key, name }),
            [None, None, None] if name.is_none() => None,
            _ => {
                faults.push("tls_ca: `tls_cert` and `tls_key` belong to it: give all three".to_owned());
                None
            }
        };
        if token.is_some() && token_file.is_some() {
            faults.push("token: `token_file` is given too: leave one of them out".to_owned());
        }
        if folder.is_some() && (token.is_some() || token_file.is_some() || tls.is_some()) {
            faults
                .push("credentials: a token or certificates are given too: leave one of them out".to_owned());
        }
        let url = match url.as_deref().map(read_url) {
            Some(Ok(url)) => Some(url),
            Some(Err(why)) => {
                faults.push(format!("url: {why}"));
                None
            }
            None => {
                faults.push("url: it is missing".to_owned());
                None
            }
        };
        let late = word("late", late, &LATE, faults);
        let visitation = word("visitation", visitation, &VISITATION, faults);
        let target = word("target", target, &TARGET, faults);
        let compression = word("compression", compression, &COMPRESSION, faults);
        let url = url?;
        if target != Target::Any && !matches!(url, ViaUrl::Service(_)) {
            faults.push(
                "target: only a service has workers to choose from: write forebay://host:port".to_owned(),
            );
        }
        if tag.is_some() && !matches!(url, ViaUrl::Service(_)) {
            faults.push("tag: only workers of a service have tags: write forebay://host:port".to_owned());
        }
        Some(Self { url, job, late, visitation, target, tag, compression, token, token_file, tls, folder })
    }

    /// How both sides show who they are. Reads the file of the token, or `FOREBAY_TOKEN` when none is named.
    pub fn credentials(&self) -> Result<Credentials> {
        if let Some(folder) = &self.folder {
            return Credentials::from_folder(folder);
        }
        let token = match (&self.token, &self.token_file) {
            (Some(text), _) => Some(Token::new(text)?),
            (None, Some(file)) => Some(Token::from_file(file)?),
            (None, None) => {
                let token = std::env::var("FOREBAY_TOKEN").ok().filter(|token| !token.is_empty());
                token.map(|token| Token::new(&token)).transpose()?
            }
        };
        Ok(Credentials { token, tls: self.tls.clone() })
    }

    /// The setting as it would be written, without secrets.
    pub fn to_json(&self) -> Value {
        let url = match &self.url {
            ViaUrl::Auto => "auto".to_owned(),
            ViaUrl::Unix(path) => format!("unix://{}", path.display()),
            ViaUrl::Service(address) => format!("forebay://{address}"),
        };
        match &self.job {
            Some(job) => serde_json::json!({ "url": url, "job": job }),
            None => url.into(),
        }
    }
}

const LATE: [(&str, Late); 4] =
    [("remake", Late::Remake), ("wait", Late::Wait), ("spill", Late::Spill), ("skip", Late::Skip)];

const VISITATION: [(&str, Visitation); 3] = [
    ("exactly_once", Visitation::ExactlyOnce),
    ("at_least_once", Visitation::AtLeastOnce),
    ("at_most_once", Visitation::AtMostOnce),
];

const TARGET: [(&str, Target); 3] = [("any", Target::Any), ("auto", Target::Auto), ("local", Target::Local)];

const COMPRESSION: [(&str, Packing); 4] =
    [("none", Packing::None), ("lz4", Packing::Lz4), ("zstd", Packing::Zstd), ("auto", Packing::Auto)];

fn word<T: Copy + Default>(
    name: &str,
    typed: Option<String>,
    words: &[(&str, T)],
    faults: &mut Vec<String>,
) -> T {
    let Some(typed) = typed else { return T::default() };
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == typed) {
        return *value;
    }
    let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    faults.push(format!("{name}: `{typed}` is none of {}", known.join(", ")));
    T::default()
}

/// The policy for late jobs with this name.
pub fn late_named(name: &str) -> Result<Late> {
    let mut faults = Vec::new();
    let late = word("late", Some(name.to_owned()), &LATE, &mut faults);
    faults.pop().map_or(Ok(late), |fault| Err(Error::invalid_config(fault)))
}

fn read_url(url: &str) -> Result<ViaUrl, String> {
    if url == "auto" {
        return Ok(ViaUrl::Auto);
    }
    if let Some(path) = url.strip_prefix("unix://") {
        if !path.starts_with('/') {
            return Err(format!("`{url}` names no absolute path: write unix:///path"));
        }
        return Ok(ViaUrl::Unix(path.into()));
    }
    if let Some(address) = url.strip_prefix("forebay://") {
        let found = dispatcher_address(url).map_err(|error| error.chain())?;
        let address = if found == url { address } else { &found };
        let addresses = address.trim_end_matches('/').split(',').map(service_address);
        return addresses.collect::<Result<Vec<_>, _>>().map(|all| ViaUrl::Service(all.join(",")));
    }
    Err(format!("`{url}` is none of auto, unix:///path, forebay://host:port"))
}

/// Port of a dispatcher when none is given.
pub const DEFAULT_PORT: u16 = 7077;

/// `host:port` out of `host[:port]`.
fn service_address(address: &str) -> Result<String, String> {
    let wrong = || format!("`{address}` is not host:port");
    if address.is_empty() || address.contains(['/', '@', '?', ' ']) {
        return Err(wrong());
    }
    let after_host = address.rsplit_once(']').map_or(address, |(_, rest)| rest);
    match after_host.rsplit_once(':') {
        Some((_, port)) => port.parse::<u16>().map(|_| address.to_owned()).map_err(|_| wrong()),
        None => Ok(format!("{address}:{DEFAULT_PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn urls_and_tables_are_read() {
        let url = |value: Value| ViaConfig::from_json(&value).unwrap().url;
        assert_eq!(url(json!("auto")), ViaUrl::Auto);
        assert_eq!(url(json!("unix:///run/x.sock")), ViaUrl::Unix("/run/x.sock".into()));
        assert_eq!(url(json!("forebay://data:9000")), ViaUrl::Service("data:9000".into()));
        assert_eq!(url(json!("forebay://data")), ViaUrl::Service("data:7077".into()));
        assert_eq!(url(json!("forebay://[::1]")), ViaUrl::Service("[::1]:7077".into()));
        assert_eq!(url(json!("forebay://a:1,b,[::1]/")), ViaUrl::Service("a:1,b:7077,[::1]:7077".into()));
        let full = ViaConfig::from_json(&json!({
            "url": "forebay://data", "job": "a", "late": "wait", "visitation": "at_most_once",
            "target": "auto", "tag": "site=eu", "compression": "zstd", "token": "a secret of 20 bytes",
        }));
        let full = full.unwrap();
        assert_eq!((full.late, full.visitation), (Late::Wait, Visitation::AtMostOnce));
        assert_eq!((full.compression, full.target), (Packing::Zstd, Target::Auto));
        assert_eq!(full.tag.as_deref(), Some("site=eu"));
        assert!(full.credentials().unwrap().token.is_some());
        assert_eq!(full.to_json(), json!({"url": "forebay://data:7077", "job": "a"}));
    }

    #[test]
    fn all_faults_are_named_at_once() {
        let faults = |value: Value| ViaConfig::from_json(&value).unwrap_err().message().to_owned();
        let many = faults(json!({
            "url": "http://x", "late": "never", "compression": 3, "tls_ca": "x", "speed": 1,
        }));
        for word in ["url: `http://x`", "late: `never`", "compression: 3", "tls_ca: ", "speed: there is no"] {
            assert!(many.contains(word), "{word}: {many}");
        }
        for bad in ["unix://x", "forebay://", "forebay://a:b", "forebay://u@h", "forebay://a,,b", "tcp://x"] {
            assert!(faults(json!(bad)).contains("url: "), "{bad}");
        }
        assert!(faults(json!({"job": "a"})).contains("url: it is missing"));
        assert!(faults(json!({"url": "auto", "target": "local"})).contains("target: only a service"));
        assert!(faults(json!({"url": "auto", "tag": "a"})).contains("tag: only workers of a service"));
        assert!(faults(json!({"url": "forebay://a", "target": "near"})).contains("none of any, auto, local"));
        assert!(late_named("spill").is_ok() && late_named("spil").is_err());
    }
}
