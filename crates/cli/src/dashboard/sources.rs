//! Whom the dashboard asks, and what they answered at one moment.

use crate::args::CredentialArgs;
use forebay_core::dispatcher::{Command, Reply, View};
use forebay_core::metrics::{Figure, read};
use forebay_core::{Error, ErrorKind, Result};
use forebay_net::dispatcher::{Control, ControlOptions};
use forebay_net::service::Address;
use forebay_net::service::worker::{WorkerView, share_socket, show};
use forebay_net::{Credentials, Threads};
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// How long one may think about its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Largest answer with figures.
const MAX_FIGURES_BYTES: u64 = 8 << 20;

type Ask<T> = Box<dyn Fn() -> Result<T> + Send>;

/// Somebody who is asked every second.
pub(crate) struct Source {
    name: String,
    ask: Asking,
}

enum Asking {
    Dispatcher(Ask<View>),
    Host(Ask<WorkerView>),
    Figures(Ask<String>),
}

impl Source {
    /// A dispatcher.
    pub(crate) fn dispatcher(name: &str, ask: impl Fn() -> Result<View> + Send + 'static) -> Self {
        Self { name: name.to_owned(), ask: Asking::Dispatcher(Box::new(ask)) }
    }

    /// A process that makes batches.
    pub(crate) fn host(name: &str, ask: impl Fn() -> Result<WorkerView> + Send + 'static) -> Self {
        Self { name: name.to_owned(), ask: Asking::Host(Box::new(ask)) }
    }

    /// Somebody who shows figures to Prometheus.
    pub(crate) fn figures(name: &str, ask: impl Fn() -> Result<String> + Send + 'static) -> Self {
        Self { name: name.to_owned(), ask: Asking::Figures(Box::new(ask)) }
    }
}

/// What all of them said.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) names: Vec<String>,
    pub(super) services: Vec<View>,
    pub(super) hosts: Vec<WorkerView>,
    /// Figures with the name of who showed them.
    pub(super) figures: Vec<(String, Vec<Figure>)>,
    /// Who did not answer, and why.
    pub(super) faults: Vec<String>,
}

impl Look {
    /// Asks one after the other.
    pub(super) fn at(sources: &[Source]) -> Self {
        let mut look = Self::default();
        for Source { name, ask } in sources {
            look.names.push(name.clone());
            let outcome = match ask {
                Asking::Dispatcher(ask) => ask().map(|view| look.services.push(view)),
                Asking::Host(ask) => ask().map(|view| look.hosts.push(view)),
                Asking::Figures(ask) => ask().map(|text| look.figures.push((name.clone(), read(&text)))),
            };
            if let Err(error) = outcome {
                look.faults.push(error.chain());
            }
        }
        look
    }
}

/// Whom a URL names: `forebay://host:port`, `unix:///path`, `auto`, or `http://host:port` of figures.
pub(crate) fn attached(url: &str, credentials: &CredentialArgs, token: Option<&Path>) -> Result<Source> {
    if let Some(rest) = url.strip_prefix("http://") {
        let address = rest.trim_end_matches("/metrics").trim_end_matches('/').to_owned();
        if address.contains('/')
            || address.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err())
        {
            return Err(Error::invalid_config(format!(
                "attach to `{url}`: it is no `http://host:port/metrics`"
            )));
        }
        let token = token.map(std::fs::read_to_string).transpose();
        let token = token.map_err(|error| Error::io("read `--metrics-token-file`", error))?;
        let token = token.map(|token| token.trim().to_owned());
        return Ok(Source::figures(url, move || fetch(&address, token.as_deref())));
    }
    if let Some(path) = url.strip_prefix("unix://") {
        let address = Address::Unix(path.into());
        return Ok(Source::host(url, move || show(&address, &Credentials::default())));
    }
    if url == "auto" {
        let address = Address::Unix(share_socket()?);
        return Ok(Source::host(url, move || show(&address, &Credentials::default())));
    }
    if url.contains("://") && !url.starts_with("forebay://") {
        let why = format!("attach to `{url}`: known are forebay://, unix://, http:// and auto");
        return Err(Error::invalid_config(why));
    }
    let options = ControlOptions { address: url.to_owned(), credentials: credentials.resolve()? };
    let control = Control::new(&options, Threads::shared()?)?;
    Ok(Source::dispatcher(url, move || match control.call(&Command::View, PATIENCE)? {
        Reply::View(view) => Ok(*view),
        _ => Err(Error::internal("the dispatcher answered something else")),
    }))
}

/// `GET /metrics`.
fn fetch(address: &str, token: Option<&str>) -> Result<String> {
    let doing = || format!("read figures of `http://{address}/metrics`");
    let fail = |error| Error::io(doing(), error);
    let found = address.to_socket_addrs().map_err(fail)?.next();
    let found = found.ok_or_else(|| Error::not_found(format!("{}: no such address", doing())))?;
    let mut stream = TcpStream::connect_timeout(&found, PATIENCE).map_err(fail)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(fail)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(fail)?;
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n{shown}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(fail)?;
    let mut answer = Vec::new();
    stream.take(MAX_FIGURES_BYTES).read_to_end(&mut answer).map_err(fail)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    match status {
        "200" => Ok(body.to_owned()),
        "401" => Err(Error::new(ErrorKind::Denied, format!("{}: it wants a token", doing()))
            .with_hint("give the file with it as `--metrics-token-file`")),
        _ => {
            let shown: String = status.chars().filter(char::is_ascii_digit).take(3).collect();
            Err(Error::unavailable(format!("{}: it answered `{shown}`", doing())))
        }
    }
}
