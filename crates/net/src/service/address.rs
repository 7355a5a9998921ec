//! Where a worker is: `host:port`, or a unix socket of this host as `unix:/path`.

use forebay_core::{Error, Result};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a worker is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// `host:port`.
    Tcp(String),
    /// A unix socket, for processes of the same user.
    Unix(PathBuf),
}

impl Address {
    /// The host of `host:port`.
    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Tcp(address) => address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host),
            Self::Unix(_) => "",
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        if port.is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
            return Ok(Self::Tcp(text.to_owned()));
        }
        Err(Error::invalid_config(format!(
            "read address `{text}`: it is neither `host:port` nor `unix:/path`"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_reads_as_it_is_written() {
        for text in ["10.0.0.1:80", "[::1]:9", "node-3:7000", "unix:/tmp/a b.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        for text in ["", "unix:", "node", "node:", ":80", "node:99999", "/tmp/a.sock"] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        assert_eq!("[::1]:9".parse::<Address>().unwrap().host(), "[::1]");
    }
}
