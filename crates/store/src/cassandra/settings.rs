//! What a user may say about a table, read from the URL and the options; nothing here opens a connection.

use crate::StoreOptions;
use crate::http::tls::{self, TlsOptions};
use forebay_core::{Error, Result};
use std::num::NonZeroUsize;
use std::time::Duration;

/// The port of CQL.
const PORT: u16 = 9042;

/// Every word that may be said about a table.
const WORDS: &[&str] = &[
    "username",
    "password",
    "tls",
    "id_column",
    "data_column",
    "label_column",
    "label_type",
    "metadata_table",
    "local_dc",
    "connections",
    "request_timeout",
    "secure_connect_bundle",
];

/// What the label column holds for those who read rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelType {
    /// There is none, or it is not wanted.
    None,
    /// An integer.
    Int,
    /// Bytes: a mask, a serialized tensor.
    Blob,
}

impl LabelType {
    /// The word of option `label_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Int => "int",
            Self::Blob => "blob",
        }
    }
}

/// One table and the way to it.
#[derive(Clone)]
pub(super) struct Settings {
    /// `cassandra://hosts/keyspace/table`, as messages name it.
    pub(super) root: String,
    /// Each with its port.
    pub(super) hosts: Vec<String>,
    pub(super) keyspace: String,
    pub(super) table: String,
    pub(super) metadata_table: Option<String>,
    /// Whether the metadata table was named: otherwise it is used if it is there, and made with the data table.
    pub(super) metadata_named: bool,
    pub(super) id_column: String,
    pub(super) data_column: String,
    pub(super) label_column: String,
    /// `None` follows the schema.
    pub(super) label_type: Option<LabelType>,
    pub(super) user: Option<(String, String)>,
    pub(super) tls: Option<TlsOptions>,
    pub(super) local_dc: Option<String>,
    pub(super) connections: NonZeroUsize,
    pub(super) request_timeout: Duration,
}

/// By hand, so that no password gets into a log.
impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("root", &self.root).finish_non_exhaustive()
    }
}

impl Settings {
    pub(super) fn new(root: &str, options: &StoreOptions) -> Result<Self> {
        let environment = |name: &str| std::env::var(name).ok();
        Self::read(root, options, &environment)
    }

    fn read(
        root: &str,
        options: &StoreOptions,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let fault = |why: String| Error::invalid_config(format!("open `{root}`: {why}"));
        let known = |word: &&String| !WORDS.contains(&word.as_str()) && !tls::WORDS.contains(&word.as_str());
        if let Some(unknown) = options.keys().find(known) {
            let all: Vec<_> = WORDS.iter().chain(tls::WORDS).copied().collect();
            return Err(fault(format!("there is no option `{unknown}`"))
                .with_hint(format!("options are {}", all.join(", "))));
        }
        if options.contains_key("secure_connect_bundle") {
            // Its proxy tells nodes apart by the name in the TLS handshake, and the driver puts an address there.
            let why = "secure connect bundles are not offered: the driver cannot name nodes to the proxy behind one";
            let hint = "name nodes that can be reached directly, with `tls` = `on` and the bundle's ca.crt, cert and key \
                as `tls_ca_file`, `tls_client_cert` and `tls_client_key`";
            return Err(Error::unsupported(format!("open `{root}`: {why}")).with_hint(hint));
        }
        let rest = root.strip_prefix("cassandra://").unwrap_or(root);
        let parts: Vec<&str> = rest.split('/').collect();
        let &[hosts, keyspace, table] = parts.as_slice() else {
            return Err(fault("the URL names no table".into())
                .with_hint("write `cassandra://host[:port][,host]/keyspace/table`"));
        };
        if hosts.contains('@') {
            let why = "a user name in the URL would end up in logs";
            return Err(Error::invalid_config(format!("open a table of keyspace `{keyspace}`: {why}"))
                .with_hint("use the options `username` and `password`"));
        }
        let text = |word: &str| options.get(word).filter(|value| !value.is_empty()).cloned();
        let name = |word: &str, default: &str| text(word).unwrap_or_else(|| default.to_owned());
        let label_type = match text("label_type").as_deref() {
            None => None,
            Some("none") => Some(LabelType::None),
            Some("int") => Some(LabelType::Int),
            Some("blob") => Some(LabelType::Blob),
            Some(other) => return Err(fault(format!("label_type `{other}` is not none, int or blob"))),
        };
        let word = |word: &str, variable: &str| text(word).or_else(|| environment(variable));
        let user = match (word("username", "CASSANDRA_USERNAME"), word("password", "CASSANDRA_PASSWORD")) {
            (Some(name), Some(password)) => Some((name, password)),
            (None, None) => None,
            _ => return Err(fault("`username` and `password` come together or not at all".into())),
        };
        let settings = Self {
            root: root.to_owned(),
            hosts: hosts.split(',').map(with_port).collect::<Option<_>>().ok_or_else(|| {
                fault(format!("`{hosts}` is no list of hosts")).with_hint("write `host[:port][,host[:port]]`")
            })?,
            keyspace: keyspace.to_owned(),
            table: table.to_owned(),
            metadata_table: match options.get("metadata_table") {
                None => Some(format!("{table}_metadata")).filter(|name| name.len() <= 48),
                // Said to be empty: none.
                Some(_) => text("metadata_table"),
            },
            metadata_named: options.contains_key("metadata_table"),
            id_column: name("id_column", "id"),
            data_column: name("data_column", "data"),
            label_column: name("label_column", "label"),
            label_type,
            user,
            tls: tls_options(options).map_err(|error| error.while_doing(format_args!("open `{root}`")))?,
            local_dc: text("local_dc"),
            connections: number(options, "connections", 1, 64)
                .and_then(|number| NonZeroUsize::new(number as usize))
                .ok_or_else(|| fault("`connections` is not a number from 1 to 64".into()))?,
            request_timeout: number(options, "request_timeout", 60, 86_400)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs)
                .ok_or_else(|| fault("`request_timeout` is not a number of seconds, at least 1".into()))?,
        };
        for name in settings.names() {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            if name.is_empty() || name.len() > 48 || !name.chars().all(plain) {
                let name = name.escape_debug();
                return Err(fault(format!("`{name}` is no name of a keyspace, table or column"))
                    .with_hint("names have 1 to 48 letters, digits and `_`"));
            }
        }
        Ok(settings)
    }

    /// The hosts as messages name them.
    pub(super) fn hosts(&self) -> String {
        self.hosts.join(", ")
    }

    /// A table of the keyspace as CQL names it. Names were checked: they need no escape.
    pub(super) fn quoted(&self, table: &str) -> String {
        format!("\"{}\".\"{table}\"", self.keyspace)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let names = [&self.keyspace, &self.table, &self.id_column, &self.data_column, &self.label_column];
        names.into_iter().chain(&self.metadata_table).map(String::as_str)
    }
}

fn tls_options(options: &StoreOptions) -> Result<Option<TlsOptions>> {
    let on = match options.get("tls").map(|word| word.to_ascii_lowercase()).as_deref() {
        Some("on" | "true" | "1" | "yes") => true,
        Some("off" | "false" | "0" | "no") | None => false,
        Some(other) => {
            return Err(Error::invalid_config(format!(
                "read option `tls`: `{other}` is neither `on` nor `off`"
            )));
        }
    };
    // Whoever names a CA and forgets the switch means to be protected: going on in the clear would be the worst answer.
    if !on && let Some(word) = tls::WORDS.iter().find(|word| options.contains_key(**word)) {
        return Err(
            Error::invalid_config(format!("read option `{word}`: TLS is off")).with_hint("add `tls` = `on`")
        );
    }
    on.then(|| TlsOptions::from_words(options)).transpose()
}

fn number(options: &StoreOptions, word: &str, default: u64, most: u64) -> Option<u64> {
    match options.get(word) {
        None => Some(default),
        Some(text) => text.trim().parse().ok().filter(|number| *number <= most),
    }
}

/// The host with the port that it names or that of CQL. IPv6 addresses stand in brackets.
fn with_port(host: &str) -> Option<String> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    if name.is_empty() || (name.contains(':') && !bracketed) || name.contains(char::is_whitespace) {
        return None;
    }
    let port = port.map_or(Some(PORT), |port| port.parse().ok())?;
    Some(format!("{name}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    fn read(root: &str, words: &[(&str, &str)]) -> Result<Settings> {
        let options = words.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect();
        Settings::read(root, &options, &|_| None)
    }

    #[test]
    fn a_url_names_hosts_keyspace_and_table() {
        let settings = read("cassandra://a,b:9,[::1],[::2]:7/space/table", &[]).unwrap();
        assert_eq!(settings.hosts, ["a:9042", "b:9", "[::1]:9042", "[::2]:7"]);
        assert_eq!(settings.quoted(&settings.table), "\"space\".\"table\"");
        for bad in ["a", "a/b", "a/b/c/d", "/b/c", "a:x/b/c", "::1/b/c", "a b/b/c", "a/b\"/c", "a,/b/c"] {
            let error = read(&format!("cassandra://{bad}"), &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{bad}: {error:?}");
        }
    }

    #[test]
    fn words_that_make_no_sense_are_refused_by_name() {
        let bad = [
            ("label_type", "text"),
            ("user", "a"),
            ("username", "a"),
            ("connections", "0"),
            ("connections", "many"),
            ("request_timeout", "0"),
            ("tls", "perhaps"),
            ("tls_ca_file", "ca.pem"),
            ("data_column", "a\"; DROP"),
        ];
        for (word, value) in bad {
            let error = read("cassandra://a/b/c", &[(word, value)]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{word}: {error:?}");
        }
        let bundle = read("cassandra://a/b/c", &[("secure_connect_bundle", "x.zip")]).unwrap_err();
        assert_eq!(bundle.kind(), ErrorKind::Unsupported);
        assert!(bundle.message().contains("proxy") && bundle.hint().unwrap().contains("`tls_client_cert`"));
    }

    #[test]
    fn secrets_come_from_options_or_the_environment_and_are_never_shown() {
        let environment = |name: &str| Some(format!("{name}-value"));
        let settings = Settings::read("cassandra://a/b/c", &StoreOptions::new(), &environment).unwrap();
        assert_eq!(settings.user.as_ref().unwrap().1, "CASSANDRA_PASSWORD-value");
        assert!(!format!("{settings:?}").contains("PASSWORD"));
        let error = read("cassandra://me:secret@a/b/c", &[]).unwrap_err();
        assert!(!error.report().contains("secret"));
    }
}
