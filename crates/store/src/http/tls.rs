//! Whom we trust over TLS: the system's roots, a CA of the user's own, or, when told so in words, anyone.
//!
//! One configuration serves every protocol that runs over TLS. The crypto provider is named here, because a program
//! may have several compiled in and the library refuses to choose.

use crate::StoreOptions;
use forebay_core::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Option words read by [`TlsOptions::from_words`].
pub const WORDS: &[&str] = &["tls_verify", "tls_ca_file", "tls_client_cert", "tls_client_key"];

/// No file of certificates or keys is larger.
const MOST_PEM_BYTES: u64 = 4 << 20;

/// How the other side is checked and how we show who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Whether the server's certificate is checked. Without it anyone on the way can read and change the bytes.
    pub verify: bool,
    /// A file of certificates in PEM that are trusted besides the system's.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate chain in PEM, for servers that ask who we are. Needs `client_key`.
    pub client_cert: Option<PathBuf>,
    /// The private key of `client_cert`, in PEM.
    pub client_key: Option<PathBuf>,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self { verify: true, ca_file: None, client_cert: None, client_key: None }
    }
}

impl TlsOptions {
    /// From what a user said about a store: see [`WORDS`]. Files are not opened here.
    pub fn from_words(words: &StoreOptions) -> Result<Self> {
        let verify = match words.get("tls_verify").map(|word| word.trim().to_ascii_lowercase()).as_deref() {
            None | Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            Some(other) => {
                let why = format!("read option `tls_verify`: `{other}` is neither `true` nor `false`");
                return Err(Error::invalid_config(why));
            }
        };
        let file = |word: &str| words.get(word).filter(|path| !path.is_empty()).map(PathBuf::from);
        let options = Self {
            verify,
            ca_file: file("tls_ca_file"),
            client_cert: file("tls_client_cert"),
            client_key: file("tls_client_key"),
        };
        if options.client_cert.is_some() != options.client_key.is_some() {
            let why = "read the TLS options: a client certificate and its key come together or not at all";
            return Err(
                Error::invalid_config(why).with_hint("give both `tls_client_cert` and `tls_client_key`")
            );
        }
        Ok(options)
    }
}

/// The configuration that `options` stand for. Reads the files now; says so in the log when nobody is checked.
pub fn client_config(options: &TlsOptions) -> Result<Arc<ClientConfig>> {
    if !options.verify {
        tracing::warn!(
            option = "tls_verify",
            "TLS certificates are not checked: anyone on the way can read and change the bytes"
        );
    }
    build(options)
}

/// As [`client_config`], without the warning: for a process that goes on with options it already warned of.
pub(crate) fn build(options: &TlsOptions) -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::internal("set up TLS").with_source(error))?;
    let builder = if options.verify {
        builder.with_root_certificates(roots(options.ca_file.as_deref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    };
    let config = match (&options.client_cert, &options.client_key) {
        (Some(cert), Some(key)) => {
            builder.with_client_auth_cert(certificates(cert)?, private_key(key)?).map_err(|error| {
                Error::invalid_config(format!("use client certificate `{}`", cert.display()))
                    .with_source(error)
                    .with_hint("`tls_client_key` must be the private key of `tls_client_cert`")
            })?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn roots(ca_file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Single broken certificates of the system are common and harm nobody: what is left decides.
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| {
                Error::invalid_config(format!("use CA file `{}`", path.display())).with_source(error)
            })?;
        }
    }
    Ok(roots)
}

/// All certificates of a PEM file; none at all is an error.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read(path)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<std::result::Result<_, _>>()
        .map_err(|error| broken(path, "certificates").with_source(error))?;
    if found.is_empty() {
        return Err(broken(path, "certificates"));
    }
    Ok(found)
}

/// The first private key of a PEM file.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>> {
    // The cause is left out on purpose: it might quote the key.
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| broken(path, "private key"))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    use std::io::Read;
    let at = |error| Error::io(format!("read `{}`", path.display()), error);
    let mut bytes = Vec::new();
    std::fs::File::open(path).map_err(at)?.take(MOST_PEM_BYTES).read_to_end(&mut bytes).map_err(at)?;
    Ok(bytes)
}

fn broken(path: &Path, what: &str) -> Error {
    Error::invalid_config(format!("read `{}`: it holds no {what} in PEM", path.display()))
}

/// Takes any certificate. Signatures are still checked: that costs nothing and finds broken servers.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pairs: &[(&str, &str)]) -> StoreOptions {
        pairs.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn certificates_are_checked_unless_the_user_says_otherwise_in_words() {
        assert_eq!(TlsOptions::from_words(&words(&[])).unwrap(), TlsOptions::default());
        assert!(TlsOptions::default().verify);
        assert!(!TlsOptions::from_words(&words(&[("tls_verify", "False")])).unwrap().verify);
        assert!(TlsOptions::from_words(&words(&[("tls_verify", "maybe")])).is_err());
        assert!(TlsOptions::from_words(&words(&[("tls_client_cert", "a.pem")])).is_err());
    }

    #[test]
    fn a_file_that_is_missing_or_no_pem_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "not a certificate").unwrap();
        for path in [PathBuf::from("/nonexistent/ca.pem"), file.path().to_owned()] {
            let options = TlsOptions { ca_file: Some(path.clone()), ..TlsOptions::default() };
            let error = client_config(&options).unwrap_err();
            assert!(error.message().contains(&path.display().to_string()), "{error:?}");
        }
        assert!(client_config(&TlsOptions::default()).is_ok());
    }
}
