//! Acting on a number in memory, in virtual time, and on an API server of few words over real TLS; and what is shown
//! to those who ask how it goes.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

use forebay_core::scale::{ScaleSettings, Seen, Wanted};
use forebay_core::{Error, ErrorKind, Result};
use forebay_net::scale::{Asked, Cluster, Kubernetes, Replicas, Wish, start};
use forebay_net::{MetricsOptions, MetricsServer, Pages, Threads};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A number of workers, with a memory of what was set; slow and failing on demand.
#[derive(Debug, Default)]
struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    workers: u64,
    version: u64,
    sets: Vec<u64>,
    reads: u64,
    delay: Duration,
    broken: bool,
    /// Somebody else sets this between the next read and what follows it.
    meddling: Option<u64>,
}

impl Memory {
    fn new(workers: u64) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { workers, ..State::default() }) })
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }
}

impl Replicas for Memory {
    fn read(&self) -> BoxFuture<'_, Result<Asked>> {
        async {
            tokio::time::sleep(self.with(|state| state.delay)).await;
            self.with(|state| {
                state.reads += 1;
                if state.broken {
                    return Err(Error::unavailable("read it: broken"));
                }
                let asked = Asked { workers: state.workers, version: state.version.to_string() };
                if let Some(workers) = state.meddling.take() {
                    (state.workers, state.version) = (workers, state.version + 1);
                }
                Ok(asked)
            })
        }
        .boxed()
    }

    fn set(&self, read: Asked, workers: u64) -> BoxFuture<'_, Result<()>> {
        async move {
            self.with(|state| {
                if read.version != state.version.to_string() {
                    return Err(Error::stale("set it: somebody else did"));
                }
                (state.workers, state.version) = (workers, state.version + 1);
                state.sets.push(workers);
                Ok(())
            })
        }
        .boxed()
    }
}

/// What is wanted, changed by the test.
fn wish() -> (Arc<Mutex<Option<Wanted>>>, Wish) {
    let wanted = Arc::new(Mutex::new(None));
    let asked = Arc::clone(&wanted);
    (wanted, Arc::new(move || *asked.lock().unwrap()))
}

fn wanted(workers: u64, there: u64) -> Wanted {
    Wanted { workers, seen: Seen { workers: there, ..Seen::default() }, ..Wanted::default() }
}

async fn pass(seconds: u64) {
    // Second by second: time that jumps over a sleep runs what is due at its end only.
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_wanted_is_set_and_nothing_when_nobody_says() {
    let (memory, (say, wish)) = (Memory::new(2), wish());
    let settings = ScaleSettings { most_workers: 8, ..ScaleSettings::default() };
    let acting = start(memory.clone(), wish, settings, &Threads::current());
    pass(100).await;
    assert_eq!(memory.with(|state| state.reads), 0);
    *say.lock().unwrap() = Some(wanted(5, 2));
    pass(3).await;
    assert_eq!(memory.with(|state| state.sets.clone()), [5]);
    *say.lock().unwrap() = Some(wanted(5, 5));
    pass(300).await;
    assert!(memory.with(|state| (5..20).contains(&state.reads)), "looks now and then: {memory:?}");
    *say.lock().unwrap() = Some(wanted(3, 5));
    pass(3).await;
    assert_eq!(memory.with(|state| state.sets.clone()), [5, 3]);
    assert!((acting.metrics())().contains("forebay_net_scale_sets_total 2\n"));
    drop(acting);
    *say.lock().unwrap() = Some(wanted(8, 3));
    pass(100).await;
    assert_eq!(memory.with(|state| state.sets.clone()), [5, 3]);
}

#[tokio::test(start_paused = true)]
async fn failures_slow_it_down_and_a_number_set_meanwhile_is_not_overwritten() {
    let (memory, (say, wish)) = (Memory::new(2), wish());
    let acting = start(memory.clone(), wish, ScaleSettings::default(), &Threads::current());
    memory.with(|state| state.broken = true);
    *say.lock().unwrap() = Some(wanted(4, 2));
    pass(60).await;
    assert!(memory.with(|state| (4..9).contains(&state.reads)), "{memory:?}");
    // One that takes too long has failed as well.
    memory.with(|state| (state.broken, state.delay) = (false, Duration::from_secs(3600)));
    pass(120).await;
    assert!(memory.with(|state| state.sets.is_empty()));
    assert!(!(acting.metrics())().contains("forebay_net_scale_failures_total 0\n"));
    memory.with(|state| (state.delay, state.meddling) = (Duration::ZERO, Some(7)));
    pass(200).await;
    assert_eq!(memory.with(|state| (state.workers, state.sets.clone())), (7, vec![]), "theirs stands");
}

fn ask(server: &MetricsServer, request: &[u8]) -> String {
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn how_it_goes_is_told_to_anyone_and_how_many_are_wanted_to_those_with_the_token() {
    let well = Arc::new(AtomicBool::new(false));
    let (asked, looks) = (Arc::clone(&well), Arc::new(AtomicU64::new(0)));
    let made = Arc::clone(&looks);
    let pages = Pages {
        metrics: Arc::new(move || made.fetch_add(1, Ordering::Relaxed).to_string()),
        ready: Some(Arc::new(move || if asked.load(Ordering::Relaxed) { Ok(()) } else { Err("draining") })),
        scale: Some(Arc::new(|| r#"{"workers":3}"#.to_owned())),
    };
    let token = Some("0123456789abcdef".to_owned());
    let server =
        MetricsServer::start(&MetricsOptions { listen: "127.0.0.1:0".into(), token }, pages).unwrap();
    let get =
        |path: &str, header: &str| ask(&server, format!("GET {path} HTTP/1.1\r\n{header}\r\n").as_bytes());
    let ready = get("/ready", "");
    assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("draining\n"), "{ready}");
    well.store(true, Ordering::Relaxed);
    assert!(get("/ready", "").ends_with("ready\n"));
    assert!(get("/live", "").ends_with("live\n"));
    assert_eq!(looks.load(Ordering::Relaxed), 1, "whatever figures come from was looked at");
    for path in ["/scale", "/metrics", "/nowhere"] {
        assert!(get(path, "").starts_with("HTTP/1.1 401 "), "{path}");
    }
    let scale = get("/scale", "Authorization: Bearer 0123456789abcdef\r\n");
    assert!(scale.contains("application/json") && scale.ends_with(r#"{"workers":3}"#), "{scale}");
    assert!(ask(&server, b"POST /ready HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    // Who shows no such page has none.
    let show: forebay_net::Show = Arc::new(String::new);
    let options = MetricsOptions { listen: "127.0.0.1:0".into(), token: None };
    let server = MetricsServer::start(&options, show).unwrap();
    assert!(ask(&server, b"GET /ready HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

mod kubernetes {
    use super::*;
    use rustls::pki_types::PrivateKeyDer;
    use std::net::TcpListener;
    use std::path::Path;

    /// A server with a certificate of its own authority that gives one answer after the other, and tells what it was asked.
    fn api_server(
        folder: &Path,
        answers: Vec<(u16, &'static str)>,
    ) -> (Cluster, std::thread::JoinHandle<Vec<String>>) {
        let authority = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let root = params.self_signed(&authority).unwrap();
        let issuer = rcgen::Issuer::new(params, authority);
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(folder.join("ca.crt"), root.pem()).unwrap();
        std::fs::write(folder.join("token"), "first-token\n").unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key)
                .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("https://{}", listener.local_addr().unwrap());
        let config = Arc::new(config);
        let serving = std::thread::spawn(move || {
            let answer = |(status, body): (u16, &str)| {
                let (socket, _) = listener.accept().unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let connection = rustls::ServerConnection::new(Arc::clone(&config)).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, socket);
                let (mut asked, mut part) = (Vec::new(), [0; 4096]);
                // Head and body are small and written together.
                while !asked.windows(4).any(|four| four == b"\r\n\r\n") {
                    match stream.read(&mut part) {
                        Ok(count @ 1..) => asked.extend_from_slice(&part[..count]),
                        _ => return "no request".to_owned(),
                    }
                }
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all((head + body).as_bytes()).unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
                String::from_utf8_lossy(&asked).into_owned()
            };
            answers.into_iter().map(answer).collect()
        });
        let cluster = Cluster { server, token_file: folder.join("token"), ca_file: folder.join("ca.crt") };
        (cluster, serving)
    }

    const URL: &str = "kubernetes://data/deployments/forebay-worker";

    #[test]
    fn the_scale_is_read_and_patched_with_the_version_that_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let (cluster, serving) = api_server(
            folder.path(),
            vec![
                (
                    200,
                    r#"{"kind":"Scale","metadata":{"resourceVersion":"41"},"spec":{"replicas":2},"status":{"replicas":1}}"#,
                ),
                (200, r#"{"metadata":{"resourceVersion":"42"},"spec":{"replicas":5}}"#),
                (200, r#"{"metadata":{"resourceVersion":"43"},"spec":{}}"#),
            ],
        );
        let deployment = Kubernetes::new(URL, cluster.clone()).unwrap();
        let threads = Threads::shared().unwrap();
        threads.block_on(async {
            let asked = deployment.read().await.unwrap();
            assert_eq!(asked, Asked { workers: 2, version: "41".into() });
            // The kubelet renews it.
            std::fs::write(&cluster.token_file, "second-token").unwrap();
            deployment.set(asked, 5).await.unwrap();
            assert_eq!(deployment.read().await.unwrap().workers, 0, "0 is left out of an answer");
        });
        let asked = serving.join().unwrap();
        let path = "/apis/apps/v1/namespaces/data/deployments/forebay-worker/scale HTTP/1.1\r\n";
        assert!(asked[0].starts_with(&format!("GET {path}")), "{}", asked[0]);
        assert!(asked[0].contains("Bearer first-token\r\n") && asked[1].contains("Bearer second-token\r\n"));
        assert!(asked[1].starts_with(&format!("PATCH {path}")), "{}", asked[1]);
        assert!(asked[1].contains("application/merge-patch+json"), "{}", asked[1]);
        assert!(
            asked[1].contains(r#"{"metadata":{"resourceVersion":"41"},"spec":{"replicas":5}}"#),
            "{}",
            asked[1]
        );
    }

    #[test]
    fn refusals_have_their_kind_and_say_what_is_missing() {
        for (status, kind, part) in [
            (401, ErrorKind::Denied, "deployments/scale"),
            (403, ErrorKind::Denied, "deployments/scale"),
            (404, ErrorKind::NotFound, "--scale"),
            (409, ErrorKind::Stale, "status 409"),
            (429, ErrorKind::Unavailable, "status 429"),
            (503, ErrorKind::Unavailable, "because"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (cluster, serving) =
                api_server(folder.path(), vec![(status, r#"{"kind":"Status","message":"because"}"#)]);
            let deployment = Kubernetes::new(URL, cluster).unwrap();
            let error = Threads::shared().unwrap().block_on(deployment.read()).unwrap_err();
            assert_eq!(error.kind(), kind, "{}", error.report());
            assert!(
                error.report().contains(part) && !error.report().contains("first-token"),
                "{}",
                error.report()
            );
            serving.join().unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let (cluster, serving) = api_server(folder.path(), vec![(200, "[1, 2")]);
        let error = Threads::shared().unwrap().block_on(Kubernetes::new(URL, cluster).unwrap().read());
        assert_eq!(error.unwrap_err().kind(), ErrorKind::Corrupt);
        serving.join().unwrap();
    }

    #[test]
    fn a_server_of_another_authority_gets_no_token() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (cluster, serving) = api_server(folder.path(), vec![(200, "{}")]);
        let (stranger, _) = api_server(other.path(), vec![]);
        let cluster = Cluster { ca_file: stranger.ca_file, ..cluster };
        let error = Threads::shared().unwrap().block_on(Kubernetes::new(URL, cluster).unwrap().read());
        assert!(error.is_err());
        assert_eq!(serving.join().unwrap(), ["no request"]);
    }

    #[test]
    fn addresses_name_one_deployment_and_nothing_else() {
        let cluster = Cluster {
            server: "https://10.96.0.1:443".into(),
            token_file: "token".into(),
            ca_file: "ca.crt".into(),
        };
        assert!(Kubernetes::new(URL, cluster.clone()).is_ok());
        for url in [
            "kubernetes://data/statefulsets/x",
            "kubernetes://data/deployments",
            "kubernetes://data/deployments/a/b",
            "kubernetes:///deployments/a",
            "kubernetes://data/deployments/a?x=1",
            "kubernetes://data/deployments/..",
            "kubernetes://data/deployments/A",
            "http://data/deployments/a",
        ] {
            let error = Kubernetes::new(url, cluster.clone()).unwrap_err();
            assert!(error.report().contains(url), "{}", error.report());
        }
        let plain = Cluster { server: "http://10.96.0.1".into(), ..cluster };
        assert!(Kubernetes::new(URL, plain).is_err());
    }

    #[test]
    fn a_pod_finds_its_api_server_in_the_environment() {
        let found = Cluster::of_this_pod(|name| match name {
            "KUBERNETES_SERVICE_HOST" => Some("fd00::1".into()),
            "KUBERNETES_SERVICE_PORT" => Some("6443".into()),
            _ => None,
        });
        assert_eq!(found.unwrap().server, "https://[fd00::1]:6443");
        assert!(Cluster::of_this_pod(|_| None).unwrap_err().report().contains("pod"));
    }
}
