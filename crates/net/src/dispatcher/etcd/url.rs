//! Where an etcd is: `etcd://host:port[,host:port...]/prefix`, and how it is reached.

use forebay_core::{Error, Result};
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};

/// Port of a member when none is given.
const PORT: u16 = 2379;
/// What keys begin with when nothing is named.
const PREFIX: &str = "forebay";
/// Longest prefix.
const PREFIX_BYTES: usize = 256;

/// An etcd, and where in it state is kept.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// `host:port` of its members, or of some of them.
    pub members: Vec<String>,
    /// What our keys begin with, without a slash at either end. Dispatchers with the same prefix are one service.
    pub prefix: String,
    /// Certificates. Needed off this machine.
    pub tls: Option<EtcdTls>,
    /// Who we are there, if that is asked.
    pub login: Option<EtcdLogin>,
}

/// Files for TLS with etcd, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// The authority that signed the members' certificates.
    pub ca_file: PathBuf,
    /// Our certificate chain and its key, where etcd asks for one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name in the members' certificates, when it is not their address.
    pub name: Option<String>,
}

/// A user of etcd. The password is never shown.
#[derive(Clone)]
pub struct EtcdLogin {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Debug for EtcdLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdLogin").field("user", &self.user).finish_non_exhaustive()
    }
}

impl EtcdLogin {
    /// With the password that is alone in a file.
    pub fn from_file(user: &str, file: &Path) -> Result<Self> {
        let password = std::fs::read_to_string(file)
            .map_err(|error| Error::io(format!("read password file `{}`", file.display()), error))?;
        Ok(Self { user: user.to_owned(), password: password.trim_end_matches(['\r', '\n']).to_owned() })
    }
}

impl EtcdOptions {
    /// Whether a place for state is an etcd.
    pub fn is_url(text: &str) -> bool {
        text.starts_with("etcd://")
    }

    /// Reads `etcd://host[:port][,host[:port]...][/prefix]`.
    pub fn from_url(url: &str) -> Result<Self> {
        let fault = |why: String| {
            Error::invalid_config(format!("read `{url}`: {why}"))
                .with_hint("write etcd://host:port,host:port/prefix")
        };
        let rest = url.strip_prefix("etcd://").unwrap_or(url);
        if rest.contains('@') {
            // The text is not repeated: it may hold a password.
            return Err(Error::invalid_config("read an address of etcd: it names a user")
                .with_hint("give `--etcd-user` and `--etcd-password-file`"));
        }
        let (members, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let members =
            members.split(',').map(|member| address(member).map_err(fault)).collect::<Result<_>>()?;
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { PREFIX } else { prefix };
        if prefix.len() > PREFIX_BYTES || prefix.chars().any(char::is_control) {
            return Err(fault(format!("its prefix is not of 1 to {PREFIX_BYTES} printable bytes")));
        }
        Ok(Self { members, prefix: prefix.to_owned(), tls: None, login: None })
    }

    /// Off this machine nothing is said in the open.
    pub(super) fn check(&self) -> Result<()> {
        let here = |member: &String| {
            member.to_socket_addrs().is_ok_and(|mut all| all.all(|one| one.ip().is_loopback()))
        };
        match self.members.iter().find(|member| self.tls.is_none() && !here(member)) {
            None => Ok(()),
            Some(member) => {
                let why = format!("reach etcd at `{member}`: off this machine it needs TLS");
                Err(Error::invalid_config(why).with_hint(
                    "give `--etcd-ca`, and `--etcd-cert` with `--etcd-key` where etcd asks for them",
                ))
            }
        }
    }
}

fn address(text: &str) -> std::result::Result<String, String> {
    let wrong = || format!("`{text}` is not host:port");
    if text.is_empty() || text.contains(['?', '#', ' ']) {
        return Err(wrong());
    }
    let after_host = text.rsplit_once(']').map_or(text, |(_, rest)| rest);
    match after_host.rsplit_once(':') {
        Some((_, port)) => port.parse::<u16>().map(|_| text.to_owned()).map_err(|_| wrong()),
        None => Ok(format!("{text}:{PORT}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_members_and_a_prefix() {
        let read = |url: &str| EtcdOptions::from_url(url).map(|options| (options.members, options.prefix));
        let (members, prefix) = read("etcd://a:1,b,[::1]:3/jobs/prod/").unwrap();
        assert_eq!(members, ["a:1", "b:2379", "[::1]:3"]);
        assert_eq!(prefix, "jobs/prod");
        assert_eq!(read("etcd://a").unwrap().1, "forebay");
        for wrong in ["etcd://", "etcd://a,,b", "etcd://a:b", "etcd://a b", "etcd://a/x\u{7}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let error = read("etcd://root:secret@a:1/x").unwrap_err();
        assert!(!error.report().contains("secret") && error.report().contains("--etcd-user"));
    }

    #[test]
    fn nothing_is_said_in_the_open_off_this_machine_and_no_password_is_shown() {
        let near = EtcdOptions::from_url("etcd://127.0.0.1:1,[::1]:2").unwrap();
        near.check().unwrap();
        let mut far = EtcdOptions::from_url("etcd://127.0.0.1:1,192.0.2.7:2").unwrap();
        assert!(far.check().unwrap_err().report().contains("--etcd-ca"));
        far.tls = Some(EtcdTls { ca_file: "ca.pem".into(), own: None, name: None });
        far.login = Some(EtcdLogin { user: "u".into(), password: "hidden".into() });
        far.check().unwrap();
        assert!(!format!("{far:?}").contains("hidden"));
    }
}
