//! Who may take part: a token that both sides know, certificates of both sides, or both.
//!
//! The token never crosses the wire: each side sends random bytes and gets back a keyed hash of them. Certificates
//! count only when they come from the one authority that was named; what the system trusts is of no meaning here.

use crate::certify::MEMBER_NAME;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::http::tls::{certificates, private_key};
use ring::hmac;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Shortest token: what is shorter is guessed.
const SHORTEST: usize = 16;

/// How both sides show who they are. The default is nothing at all, which is for this machine only.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// A secret that all members know.
    pub token: Option<Token>,
    /// Certificates of both sides; everything is encrypted then.
    pub tls: Option<PeerTls>,
}

impl Credentials {
    /// From a folder as [`MadeCredentials`](crate::MadeCredentials) writes it: `token`, and `ca.pem`, `cert.pem` and
    /// `key.pem` of a certificate with [`MEMBER_NAME`]. One of the two may be missing.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let file = |name: &str| Some(folder.join(name)).filter(|path| path.exists());
        let token = file("token").map(|path| Token::from_file(&path)).transpose()?;
        let tls = file("ca.pem").map(|ca_file| PeerTls {
            ca_file,
            cert: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            name: Some(MEMBER_NAME.to_owned()),
        });
        if token.is_none() && tls.is_none() {
            let why = format!("read credentials from `{}`: there are none", folder.display());
            return Err(Error::new(ErrorKind::NotFound, why)
                .with_hint("`forebay credentials DIR` makes such a folder"));
        }
        Ok(Self { token, tls })
    }
}

/// A secret that all members of a job know. Its text is never shown.
#[derive(Clone)]
pub struct Token(hmac::Key);

impl Token {
    /// From its text, 16 bytes or more.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < SHORTEST {
            let why = format!("use a token for peers: it has {} bytes, give at least {SHORTEST}", text.len());
            return Err(
                Error::invalid_config(why).with_hint("make one with `head -c 32 /dev/urandom | base64`")
            );
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes())))
    }

    /// From a file that holds nothing else.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Error::io(format!("read token file `{}`", path.display()), error))?;
        Self::new(&text)
    }

    pub(crate) fn prove(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut proof = [0; 32];
        proof.copy_from_slice(hmac::sign(&self.0, &parts.concat()).as_ref());
        proof
    }

    pub(crate) fn check(&self, parts: &[&[u8]], proof: &[u8]) -> bool {
        hmac::verify(&self.0, &parts.concat(), proof).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Files for mutual TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerTls {
    /// The authority that signed the certificates of all members.
    pub ca_file: PathBuf,
    /// Our own certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The name that certificates of members carry; `None` is the host part of each one's address.
    pub name: Option<String>,
}

impl PeerTls {
    fn roots(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca_file)? {
            roots.add(certificate).map_err(|error| self.fault(&self.ca_file, error))?;
        }
        Ok(Arc::new(roots))
    }

    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>> {
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal("set up TLS").with_source(error))?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(certificates(&self.cert)?, private_key(&self.key)?)
            .map_err(|error| self.fault(&self.cert, error))?;
        Ok(Arc::new(config))
    }

    pub(crate) fn server(&self) -> Result<Arc<ServerConfig>> {
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider())
            .build()
            .map_err(|error| self.fault(&self.ca_file, error))?;
        let config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::internal("set up TLS").with_source(error))?
            .with_client_cert_verifier(verifier)
            .with_single_cert(certificates(&self.cert)?, private_key(&self.key)?)
            .map_err(|error| self.fault(&self.cert, error))?;
        Ok(Arc::new(config))
    }

    /// The name to check against, for a peer with this host.
    pub(crate) fn name_for(&self, host: &str) -> Result<ServerName<'static>> {
        let name =
            self.name.as_deref().unwrap_or(host).trim_start_matches('[').trim_end_matches(']').to_owned();
        ServerName::try_from(name.clone()).map_err(|error| {
            Error::invalid_config(format!("check a peer's certificate: `{name}` is no name"))
                .with_source(error)
        })
    }

    #[expect(clippy::unused_self, reason = "reads as what it is about")]
    fn fault(&self, path: &Path, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        Error::invalid_config(format!("use `{}` for TLS among peers", path.display())).with_source(error)
    }
}

/// What a failed beginning over TLS means. The other side's refusal arrives as an alert, after our own part is done.
pub(crate) fn tls_fault(doing: &str, error: std::io::Error) -> Error {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let (kind, why) = match cause {
        Some(rustls::Error::AlertReceived(_)) => (ErrorKind::Denied, "it refused our certificate"),
        Some(rustls::Error::InvalidCertificate(_)) => {
            (ErrorKind::Denied, "its certificate is not to be trusted")
        }
        Some(_) => (ErrorKind::Denied, "it does not speak TLS as we do"),
        None => (ErrorKind::Unavailable, "the connection was lost"),
    };
    let fault = Error::new(kind, format!("{doing}: {why}")).with_source(error);
    if kind == ErrorKind::Denied {
        return fault
            .with_hint("all members need certificates of the same authority, with the names they go by");
    }
    fault
}

/// Names the provider for code that does not ask which: where two are linked, it would stop instead of choosing.
pub(crate) fn name_provider() {
    // Whoever was first has named one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_proves_itself_and_never_shows() {
        let token = Token::new(" a token of some length\n").unwrap();
        let proof = token.prove(&[b"a", b"b"]);
        assert!(token.check(&[b"a", b"b"], &proof) && !token.check(&[b"a", b"c"], &proof));
        assert!(!Token::new("a token of other length").unwrap().check(&[b"a", b"b"], &proof));
        assert!(!format!("{token:?}").contains("length"));
        assert!(Token::new("short").is_err());
    }
}
