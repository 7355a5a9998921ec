//! Whom we trust: row by row, with certificates made for the occasion.

use crate::server::{Server, ranged};
use crate::words;
use forebay_core::ErrorKind;
use forebay_store::{ByteRange, HttpStore, Store};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio_rustls::TlsAcceptor;

/// A CA, what it signed, and the files that a user would have.
struct Certificates {
    dir: tempfile::TempDir,
    ca: CertificateDer<'static>,
    server: (CertificateDer<'static>, PrivateKeyDer<'static>),
}

impl Certificates {
    fn make() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let ca = authority.self_signed(&key).unwrap();
        let issuer = Issuer::new(authority, key);
        let signed = |names: Vec<String>| {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
            (certificate, key)
        };
        let (server, server_key) = signed(vec!["127.0.0.1".to_owned()]);
        let (client, client_key) = signed(vec!["client".to_owned()]);
        std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
        std::fs::write(dir.path().join("client.pem"), client.pem()).unwrap();
        std::fs::write(dir.path().join("client.key"), client_key.serialize_pem()).unwrap();
        let server_key = PrivateKeyDer::try_from(server_key.serialize_der()).unwrap();
        Self { dir, ca: ca.der().clone(), server: (server.der().clone(), server_key) }
    }

    fn path(&self, name: &str) -> String {
        let path: PathBuf = self.dir.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    async fn serve(&self, mutual: bool) -> Server {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = if mutual {
            let mut roots = RootCertStore::empty();
            roots.add(self.ca.clone()).unwrap();
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let (certificate, key) = &self.server;
        let config = builder.with_single_cert(vec![certificate.clone()], key.clone_key()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Server::start_with(Some(acceptor), |request| ranged(request, &[7; 300_000], "ETag: \"1\"\r\n")).await
    }
}

async fn read(server: &Server, options: &[(&str, &str)]) -> forebay_core::Result<usize> {
    let store = HttpStore::open(&format!("https://{}", server.address), &words(options))?;
    store.read("a", ByteRange::Full).await?;
    Ok(store.read("a", (100..200_100).into()).await?.len())
}

#[tokio::test]
async fn p011_a_server_whose_ca_is_unknown_is_refused_by_default() {
    let certificates = Certificates::make();
    let server = certificates.serve(false).await;
    let error = read(&server, &[]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.hint().unwrap().contains("tls_ca_file") && error.hint().unwrap().contains("tls_verify"));
    let other = Certificates::make();
    let error = read(&server, &[("tls_ca_file", &other.path("ca.pem"))]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert_eq!(read(&server, &[("tls_ca_file", &certificates.path("ca.pem"))]).await.unwrap(), 200_000);
}

#[tokio::test]
async fn p011_a_certificate_for_another_name_is_refused() {
    let certificates = Certificates::make();
    let server = certificates.serve(false).await;
    let root = format!("https://localhost:{}", server.address.port());
    let store = HttpStore::open(&root, &words(&[("tls_ca_file", &certificates.path("ca.pem"))])).unwrap();
    assert_eq!(store.read("a", ByteRange::Full).await.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test]
async fn p011_unverified_needs_the_word_and_warns() {
    let server = Certificates::make().serve(false).await;
    let warnings = Arc::new(AtomicUsize::new(0));
    let root = format!("https://{}", server.address);
    let store = tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
        HttpStore::open(&root, &words(&[("tls_verify", "false")])).unwrap()
    });
    assert_eq!(warnings.load(SeqCst), 1);
    for _ in 0..3 {
        assert_eq!(store.read("a", ByteRange::Last(9)).await.unwrap().len(), 9);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn p011_mutual_tls_shows_who_we_are() {
    let certificates = Certificates::make();
    let server = certificates.serve(true).await;
    let (ca, cert, key) =
        (certificates.path("ca.pem"), certificates.path("client.pem"), certificates.path("client.key"));
    let ours = [("tls_ca_file", ca.as_str()), ("tls_client_cert", &cert), ("tls_client_key", &key)];
    assert_eq!(read(&server, &ours).await.unwrap(), 200_000);
    let error = read(&server, &ours[..1]).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Denied | ErrorKind::Unavailable), "{error:?}");
}

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}
