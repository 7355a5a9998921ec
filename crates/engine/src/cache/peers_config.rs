//! The part of the `cache` setting that is about peers: who they are, and how they know each other.

use serde_json::{Map, Value};
use std::path::PathBuf;
use std::time::Duration;

/// Keys of this part.
pub(super) const KEYS: [&str; 7] = [
    "peers",
    "peer_address",
    "peer_token",
    "peer_timeout_seconds",
    "peer_tls_ca",
    "peer_tls_cert",
    "peer_tls_key",
];

/// Nodes that keep payloads for each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PeersConfig {
    /// Who takes part.
    pub members: MembersFrom,
    /// Our own address among them.
    pub me: Option<String>,
    /// What all nodes know and nobody else. Never shown.
    pub token: Option<String>,
    /// Files of a certificate authority, our certificate and its key, for mutual TLS.
    pub tls: Option<[PathBuf; 3]>,
    /// How long an answer may take before the store is asked; found out from what is usual when `None`.
    pub timeout: Option<Duration>,
}

/// Who says which nodes take part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum MembersFrom {
    /// The launcher of the job.
    #[default]
    Launcher,
    /// A list of addresses `host:port`, ours too; the same everywhere.
    List(Vec<String>),
    /// A file with an address on each line, which may change while the job runs.
    File(PathBuf),
    /// A dispatcher, `forebay://host:port/name`: nodes that name it with the same name take part while they live.
    Dispatcher(String),
}

impl MembersFrom {
    fn from_json(value: &Value) -> Result<Self, String> {
        match value {
            Value::String(word) if word == "auto" => Ok(Self::Launcher),
            Value::String(word) if word.starts_with("forebay://") => Ok(Self::Dispatcher(word.clone())),
            Value::String(word) if word.len() > 1 && word.starts_with('@') => {
                Ok(Self::File(word[1..].into()))
            }
            Value::Array(values) if !values.is_empty() => values
                .iter()
                .map(|value| {
                    value.as_str().map(str::to_owned).ok_or_else(|| format!("{value} is no address"))
                })
                .collect::<Result<_, _>>()
                .map(Self::List),
            value => Err(format!(
                "{value} is not a list of addresses \"host:port\", \"auto\", \"@FILE\" or \"forebay://host:port\""
            )),
        }
    }

    /// As it would be written.
    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Launcher => "auto".into(),
            Self::List(members) => members.clone().into(),
            Self::File(path) => format!("@{}", path.display()).into(),
            Self::Dispatcher(url) => url.clone().into(),
        }
    }
}

impl PeersConfig {
    /// Takes its keys out of the table; `None` when it has no peers.
    pub(super) fn from_table(
        table: &mut Map<String, Value>,
        mut note: impl FnMut(&str, String),
    ) -> Option<Self> {
        let mut peers = Self::default();
        let named = table.remove("peers");
        if let Some(value) = &named {
            match MembersFrom::from_json(value) {
                Ok(members) => peers.members = members,
                Err(why) => note("peers", why),
            }
        }
        if let Some(value) = table.remove("peer_timeout_seconds") {
            let time = value.as_f64().filter(|time| *time > 0.0).map(Duration::try_from_secs_f64);
            match time {
                Some(Ok(time)) => peers.timeout = Some(time),
                _ => note("peer_timeout_seconds", format!("{value} is not a time above 0")),
            }
        }
        let mut text = |name: &str| match table.remove(name) {
            None => None,
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            Some(_) => {
                note(name, "it is not text".to_owned());
                None
            }
        };
        peers.me = text("peer_address");
        peers.token = text("peer_token");
        let tls = ["peer_tls_ca", "peer_tls_cert", "peer_tls_key"].map(|name| text(name).map(PathBuf::from));
        match tls {
            [Some(ca), Some(cert), Some(key)] => peers.tls = Some([ca, cert, key]),
            [None, None, None] => {}
            _ => {
                note("peer_tls_ca", "`peer_tls_cert` and `peer_tls_key` belong to it: give all three".into());
            }
        }
        if named.is_none() && peers != Self::default() {
            note("peers", "settings of peers are given, but no peers".to_owned());
        }
        named.map(|_| peers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CacheConfig;
    use super::*;
    use serde_json::json;

    #[test]
    fn members_come_from_a_list_the_launcher_a_file_or_a_dispatcher() {
        for (value, from) in [
            (json!(["a:1", "b:1"]), MembersFrom::List(vec!["a:1".into(), "b:1".into()])),
            (json!("auto"), MembersFrom::Launcher),
            (json!("@/shared/nodes"), MembersFrom::File("/shared/nodes".into())),
            (json!("forebay://d:7077/name"), MembersFrom::Dispatcher("forebay://d:7077/name".into())),
        ] {
            let config = CacheConfig::from_json(&json!({"memory": 1, "peers": value})).unwrap();
            assert_eq!(config.peers.as_ref().map(|peers| &peers.members), Some(&from));
            assert_eq!(config.to_json()["peers"], value);
        }
        let peers =
            json!({"memory": 1, "peers": "auto", "peer_token": "secret", "peer_timeout_seconds": 0.5});
        let config = CacheConfig::from_json(&peers).unwrap();
        assert!(!config.to_json().to_string().contains("secret"));
        assert_eq!(config.peers.unwrap().timeout, Some(Duration::from_millis(500)));
    }

    #[test]
    fn faults_about_peers_are_named() {
        let fault = |value: Value| CacheConfig::from_json(&value).unwrap_err().message().to_owned();
        for (value, words) in [
            (json!({"memory": 5, "peer_token": "x"}), "no peers"),
            (json!({"memory": 5, "peers": "@"}), "peers: \"@\" is not"),
            (json!({"memory": 5, "peers": [1]}), "1 is no address"),
            (json!({"memory": 5, "peers": "auto", "peer_timeout_seconds": 0}), "not a time above 0"),
            (json!({"memory": 5, "peers": "auto", "peer_timeout_seconds": 1e300}), "not a time above 0"),
            (json!({"memory": 5, "peers": "auto", "peer_tls_ca": "x"}), "give all three"),
        ] {
            let text = fault(value);
            assert!(text.contains(words), "{text}");
        }
    }
}
