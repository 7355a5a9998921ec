//! Figures pushed to a collector of OpenTelemetry: OTLP over HTTP, in its JSON form.
//!
//! The environment says where to and how often, by the names that all exporters share. One thread makes a request now and
//! then and one more at the end. A collector that does not answer costs nothing but a line in the log: figures are
//! cumulative, and the next request says everything again.

use crate::metrics::Show;
use forebay_core::metrics::{Between, otlp};
use forebay_core::{Error, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use url::Url;

/// Where a collector listens on this machine.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";
const PATH: &str = "v1/metrics";
/// Seconds between two requests, and for one, when the environment does not say.
const INTERVAL: Duration = Duration::from_secs(60);
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the end waits for the last request.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// How long the first line of an answer may be.
const ANSWER_BYTES: u64 = 4096;

/// Where figures are pushed, how often, and who tells them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtlpOptions {
    url: Url,
    interval: Duration,
    timeout: Duration,
    headers: Vec<(String, String)>,
    resource: Vec<(String, String)>,
}

impl OtlpOptions {
    /// From the environment (`OTEL_EXPORTER_OTLP_ENDPOINT` and its like); `endpoint` wins over what that says.
    pub fn from_environment(endpoint: Option<&str>) -> Result<Self> {
        Self::new(endpoint, |name| std::env::var(name).ok())
    }

    fn new(endpoint: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let of = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let text = match (endpoint, of("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")) {
            (None, Some(whole)) => whole,
            (given, _) => {
                let base = given.map(str::to_owned).or_else(|| of("OTEL_EXPORTER_OTLP_ENDPOINT"));
                let base = base.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
                format!("{}/{PATH}", base.trim_end_matches('/'))
            }
        };
        let doing = || format!("push figures to `{text}`");
        let url = Url::parse(&text).map_err(|cause| Error::invalid_config(doing()).with_source(cause))?;
        if url.scheme() != "http" || url.host_str().is_none() {
            return Err(Error::unsupported(format!("{}: only `http://` is spoken", doing()))
                .with_hint("let a collector on this machine take them, and speak TLS to others"));
        }
        let millis = |name: &str, default: Duration| {
            of(name).and_then(|text| text.trim().parse().ok()).map_or(default, Duration::from_millis)
        };
        let mut resource = pairs(&of("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        let named = of("OTEL_SERVICE_NAME");
        if named.is_some() || resource.iter().all(|(key, _)| key != "service.name") {
            resource.retain(|(key, _)| key != "service.name");
            resource.push(("service.name".to_owned(), named.unwrap_or_else(|| "forebay".to_owned())));
        }
        let headers = of("OTEL_EXPORTER_OTLP_METRICS_HEADERS").or_else(|| of("OTEL_EXPORTER_OTLP_HEADERS"));
        Ok(Self {
            url,
            interval: millis("OTEL_METRIC_EXPORT_INTERVAL", INTERVAL).max(Duration::from_millis(10)),
            timeout: millis("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT).max(Duration::from_millis(1)),
            headers: pairs(&headers.unwrap_or_default()),
            resource,
        })
    }

    fn push(&self, body: &[u8]) -> Result<()> {
        let doing = || format!("push figures to `{}`", self.url);
        let io = |error| Error::io(doing(), error);
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or(80);
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let mut addresses = (name, port).to_socket_addrs().map_err(io)?;
        let address = addresses
            .next()
            .ok_or_else(|| Error::unavailable(format!("{}: the name has no address", doing())))?;
        let mut stream = TcpStream::connect_timeout(&address, self.timeout).map_err(io)?;
        stream.set_read_timeout(Some(self.timeout)).map_err(io)?;
        stream.set_write_timeout(Some(self.timeout)).map_err(io)?;
        let mut head = format!(
            "POST {} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n",
            self.url.path(),
            body.len()
        );
        for (key, value) in &self.headers {
            head.extend([key.as_str(), ": ", value.as_str(), "\r\n"]);
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).map_err(io)?;
        // The first line says it all; a collector that keeps the connection open is not waited for.
        let mut line = String::new();
        BufReader::new(stream.take(ANSWER_BYTES)).read_line(&mut line).map_err(io)?;
        let (line, status) = (line.trim_end(), line.split(' ').nth(1).unwrap_or_default());
        if line.starts_with("HTTP/1.") && status.starts_with('2') {
            return Ok(());
        }
        Err(Error::unavailable(format!("{}: the answer was `{line}`", doing())))
    }
}

/// `key=value,key=value`, with what breaks a line left out.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (key, value) = part.split_once('=')?;
        let clean = |text: &str| text.trim().replace(['\r', '\n'], "");
        Some((clean(key), clean(value))).filter(|(key, _)| !key.is_empty())
    };
    text.split(',').filter_map(pair).collect()
}

/// Pushes figures while it lives, and once more when it is dropped.
#[derive(Debug)]
pub struct OtlpPush {
    stopping: Arc<(Mutex<bool>, Condvar)>,
    /// Says something when the last request was made.
    done: mpsc::Receiver<()>,
}

impl OtlpPush {
    /// Begins. `show` makes the text of the figures.
    pub fn start(options: OtlpOptions, show: Show) -> Result<Self> {
        let stopping = Arc::<(Mutex<bool>, Condvar)>::default();
        let told = Arc::clone(&stopping);
        let (ended, done) = mpsc::channel();
        let start = unix_nanos();
        let run = move || {
            loop {
                let (stopped, wake) = (&told.0, &told.1);
                let stopped = stopped.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = wake.wait_timeout_while(stopped, options.interval, |stopped| !*stopped);
                let is_last = *waited.unwrap_or_else(PoisonError::into_inner).0;
                let request = otlp(&show(), Between { start, now: unix_nanos() }, &options.resource);
                if let Err(error) = options.push(request.to_string().as_bytes()) {
                    tracing::debug!(%error, "figures were not pushed");
                }
                if is_last {
                    // Whoever waited may have gone.
                    let _ = ended.send(());
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("forebay-otlp".into()).spawn(run);
        thread.map_err(|error| Error::io("push figures", error))?;
        Ok(Self { stopping, done })
    }
}

impl Drop for OtlpPush {
    fn drop(&mut self) {
        *self.stopping.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopping.1.notify_all();
        // Not for long: a collector that hangs is let go, and the thread ends by itself.
        let _ = self.done.recv_timeout(LAST_WAIT);
    }
}

fn unix_nanos() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::metrics::Exposition;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread::JoinHandle;

    /// Takes one request and answers it; gives its head and body. `None` when nothing was said.
    fn collect(stream: &mut TcpStream, answer: &str) -> Option<(String, serde_json::Value)> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
                if body.len() >= length.parse().unwrap() {
                    stream.write_all(answer.as_bytes()).unwrap();
                    return Some((head.to_owned(), serde_json::from_str(body).unwrap()));
                }
            }
            match stream.read(&mut piece).unwrap() {
                0 => return None,
                read => bytes.extend_from_slice(&piece[..read]),
            }
        }
    }

    /// Heads and bodies.
    type Requests = Vec<(String, serde_json::Value)>;

    /// A collector that refuses the second request; ends, and gives all of them, when somebody says nothing.
    fn collector() -> (String, JoinHandle<Requests>, mpsc::Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}/", listener.local_addr().unwrap());
        let (told, heard) = mpsc::channel();
        let run = move || {
            let mut requests = Vec::new();
            for stream in listener.incoming() {
                let status = if requests.len() == 1 { "503 Busy" } else { "200 OK" };
                let answer = format!("HTTP/1.1 {status}\r\n\r\n{{}}");
                match collect(&mut stream.unwrap(), &answer) {
                    Some(request) => requests.push(request),
                    None => break,
                }
                let _ = told.send(());
            }
            requests
        };
        (endpoint, std::thread::spawn(run), heard)
    }

    fn options(endpoint: &str, interval: &'static str) -> OtlpOptions {
        OtlpOptions::new(Some(endpoint), |name| match name {
            "OTEL_METRIC_EXPORT_INTERVAL" => Some(interval.to_owned()),
            "OTEL_EXPORTER_OTLP_HEADERS" => Some("api-key=secret, bad\r\nkey=x".to_owned()),
            "OTEL_SERVICE_NAME" => Some("job-17".to_owned()),
            _ => None,
        })
        .unwrap()
    }

    #[test]
    fn a_collector_gets_what_was_counted_again_and_again_and_once_more_at_the_end() {
        let (endpoint, collector, heard) = collector();
        let counted = Arc::new(AtomicU64::new(1));
        let shown = Arc::clone(&counted);
        let show: Show = Arc::new(move || {
            let mut out = Exposition::default();
            let batches = shown.load(Ordering::SeqCst) as f64;
            out.number("forebay_engine_batches_total", &[("rank", "3")], batches);
            out.finish()
        });
        let push = OtlpPush::start(options(&endpoint, "20"), show).unwrap();
        for _ in 0..3 {
            heard.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        counted.store(7, Ordering::SeqCst);
        drop(push);
        let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
        drop(TcpStream::connect(address).unwrap());
        let requests = collector.join().unwrap();
        let number = |request: &serde_json::Value| {
            let metric = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
            assert_eq!(metric["name"], "forebay_engine_batches_total");
            metric["sum"]["dataPoints"][0]["asDouble"].as_f64().unwrap()
        };
        let (head, first) = &requests[0];
        assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\napi-key: secret") && head.contains("\r\nbadkey: x"), "{head}");
        let attribute = &first["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(attribute["value"]["stringValue"], "job-17");
        // One that is refused is made up for by the next, and the last one says all.
        assert_eq!((number(first), number(&requests[2].1)), (1.0, 1.0));
        assert_eq!(number(&requests.last().unwrap().1), 7.0);
    }

    #[test]
    fn the_environment_says_where_to_and_what_makes_no_sense_is_told() {
        let with = |name: &'static str, value: &'static str| {
            OtlpOptions::new(None, move |asked| (asked == name).then(|| value.to_owned()))
        };
        let url = |options: Result<OtlpOptions>| options.unwrap().url.to_string();
        assert_eq!(url(with("NONE", "")), "http://localhost:4318/v1/metrics");
        assert_eq!(url(with("OTEL_EXPORTER_OTLP_ENDPOINT", "http://h:1/x/")), "http://h:1/x/v1/metrics");
        assert_eq!(url(with("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://h:1/x")), "http://h:1/x");
        assert!(with("OTEL_EXPORTER_OTLP_ENDPOINT", "https://h").unwrap_err().message().contains("http://"));
        assert!(with("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere").is_err());
        // Nobody there: told in the log, and the end waits for nobody.
        let nobody = options("http://127.0.0.1:1", "60000");
        assert!(nobody.push(b"{}").is_err());
        drop(OtlpPush::start(nobody, Arc::new(String::new)).unwrap());
    }
}
