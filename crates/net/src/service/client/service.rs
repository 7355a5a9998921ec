//! The workers of a service: a dispatcher says which of them prepares a span.
//!
//! The dispatcher never learns what a feed is made of: the spec goes from here to the
//! workers, and so do the store's secrets when it holds any, which therefore never cross a network in the open.

use super::directory::{Directory, Found, Report};
use super::home::HomeDial;
use super::job::draw;
use super::link::{Dial, Dialled};
use super::pulling::{Makers, Pulling, span_positions};
use super::{How, Own, wire};
use crate::credentials::Credentials;
use crate::dispatcher::{Control, ControlOptions};
use crate::service::worker::RealMakers;
use crate::service::{Address, near};
use crate::threads::Threads;
use forebay_core::cursor::Cursor;
use forebay_core::dispatcher::{
    Command, JobName, MAX_TEXT, Progress, Reached, Reply, Sharding, Terms, Visitation, Who, WorkerId,
};
use forebay_core::feed::Span;
use forebay_core::pull::{Reach, WorkerKey};
use forebay_core::{Error, Result};
use forebay_engine::{Asked, Meter, Supplier, Supply};
use std::net::ToSocketAddrs;
use std::sync::Arc;
use std::time::Duration;

/// How long one question may take while the dispatcher is away. Short, since closing waits for it.
const QUESTION: Duration = Duration::from_secs(1);

/// How long saying good-bye may take; who does not hear it finds out by silence.
const GOOD_BYE: Duration = Duration::from_millis(300);

/// Batches from the workers of a service.
pub(super) struct ServiceSupplier {
    address: String,
    credentials: Credentials,
    visitation: Visitation,
    how: How,
    /// What this process gives, when it makes batches too.
    own: Option<Own>,
    /// A tag of the workers that may make batches.
    tag: Option<String>,
}

impl ServiceSupplier {
    pub(super) fn new(
        address: &str,
        credentials: Credentials,
        visitation: Visitation,
        how: How,
        own: Option<Own>,
    ) -> Result<Self> {
        let address = address.trim_end_matches('/');
        let port =
            address.rsplit_once(':').filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        if port.is_none() {
            return Err(Error::invalid_config(format!(
                "read via `forebay://{address}`: it names no host and port"
            ))
            .with_hint("write `forebay://host:port`, as `forebay dispatcher` prints it"));
        }
        Ok(Self { address: address.to_owned(), credentials, visitation, how, own, tag: None })
    }

    /// The same with workers of this tag alone.
    pub(super) fn with_tag(self, tag: Option<String>) -> Self {
        Self { tag, ..self }
    }
}

impl Supplier for ServiceSupplier {
    fn start(&self, asked: Asked, cursor: Cursor, meter: &Arc<Meter>) -> Result<Box<dyn Supply>> {
        let (feed, consumer) = (asked.feed.id(), asked.consumer);
        // A job has one feed, and a training run may read several. One that was killed and goes on with another number
        // of ranks does not wait until those of before are given up. Workers are told the same name as the dispatcher,
        // which tells them whom to expect.
        let suffix = format!("@{:08x}/{}", feed.0 as u32, consumer.world_size);
        let given = self.how.job.name(feed, consumer.world_size);
        let job = JobName::new(shortened(&given, MAX_TEXT - suffix.len()) + &suffix)?;
        let options = ControlOptions { address: self.address.clone(), credentials: self.credentials.clone() };
        let steps = |cursor: &Cursor| -> Result<u64> { Ok(asked.sampler.portion(consumer, cursor)?.steps()) };
        let whole = steps(&Cursor::start_of(0))?;
        let directory = Dispatched {
            control: Control::new(&options, Threads::shared()?)?,
            who: Who { job: job.clone(), rank: consumer.rank, consumer: draw()? },
            terms: Terms {
                feed,
                label: label(&asked.feed.data.spec),
                world_size: consumer.world_size,
                span_positions: span_positions(asked.feed.batch_size),
                epoch_positions: asked.sampler.samples(),
                sharding: Sharding::Portion,
                visitation: self.visitation,
            },
            first_step: cursor.epoch * whole + whole.saturating_sub(steps(&cursor)?),
            tag: self.tag.clone(),
        };
        let dial = TcpDial {
            credentials: self.credentials.clone(),
            secrets: asked.feed.data.secrets().iter().map(|name| (*name).to_owned()).collect(),
        };
        let makers = Makers::Directory { directory: Box::new(directory), home: self.own.is_some() };
        let dial: Box<dyn Dial> = match &self.own {
            None => Box::new(dial),
            Some(own) => Box::new(HomeDial {
                makers: Box::new(RealMakers {
                    threads: own.threads,
                    memory_bytes: own.memory_bytes,
                    cache: None,
                    command: own.command.clone(),
                    pool: asked.pool.clone(),
                    functions: own.functions.clone(),
                }),
                spec: asked.feed.clone(),
                elsewhere: Box::new(dial),
            }),
        };
        Ok(Box::new(Pulling::start(asked, &cursor, meter, &self.how, job.to_string(), dial, makers)?))
    }
}

/// What people see of a dataset: where it is, without what may be a secret.
fn label(spec: &[String]) -> String {
    let mut text = spec.join(", ");
    while let Some(start) = text.find("://").map(|at| at + 3)
        && let Some(end) = text[start..].find('@').filter(|end| !text[start..start + end].contains('/'))
    {
        text.replace_range(start..=start + end, "");
        if !text[start..].contains("://") {
            break;
        }
    }
    let text = text.split('?').next().unwrap_or_default();
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    if text.is_empty() { "a dataset".to_owned() } else { shortened(&text, MAX_TEXT) }
}

fn shortened(text: &str, bytes: usize) -> String {
    text.char_indices().take_while(|(at, c)| at + c.len_utf8() <= bytes).map(|(_, c)| c).collect()
}

/// A dispatcher, spoken to for one rank.
struct Dispatched {
    control: Control,
    who: Who,
    terms: Terms,
    /// The job's global step at which this rank began.
    first_step: u64,
    /// A tag of the workers that may make batches.
    tag: Option<String>,
}

impl Dispatched {
    fn call(&self, command: &Command) -> Result<Reply> {
        self.control.call(command, QUESTION)
    }
}

fn unexpected(reply: &Reply) -> Error {
    let text: String = format!("{reply:?}").chars().take(60).collect();
    Error::corrupt(format!("ask the dispatcher: it answered `{text}`"))
}

impl Directory for Dispatched {
    fn attach(&self, from: Reach) -> Result<u64> {
        let from = Reached { epoch: from.epoch, position: from.position };
        let (who, terms) = (self.who.clone(), self.terms.clone());
        match self.call(&Command::AttachJob { who, terms, from, step: self.first_step })? {
            Reply::Attached { span_positions, .. } => Ok(span_positions.max(1)),
            other => Err(unexpected(&other)),
        }
    }

    fn locate(&self, spans: &[Span], avoid: &[WorkerKey], lost: Option<WorkerKey>) -> Result<Vec<Found>> {
        let (who, spans) = (self.who.clone(), spans.to_vec());
        let avoid = || avoid.iter().copied().map(WorkerId).collect();
        let command = match (lost.map(WorkerId), self.tag.clone()) {
            (lost, Some(tag)) => Command::LocateTagged { who, spans, avoid: avoid(), lost, tag },
            (Some(worker), None) => Command::ReportLost { who, worker, spans },
            (None, None) => Command::Locate { who, spans, avoid: avoid() },
        };
        match self.call(&command)? {
            Reply::Located(found) => Ok(found
                .into_iter()
                .map(|one| Found { span: one.span, worker: one.worker.0, address: one.address })
                .collect()),
            Reply::NoWorkers => Ok(Vec::new()),
            other => Err(unexpected(&other)),
        }
    }

    fn report(&self, report: &Report) -> Result<()> {
        let progress = Progress {
            reached: Reached { epoch: report.reach.epoch, position: report.reach.position },
            step: self.first_step + report.steps,
            taken: report.samples,
            waits_ms: report.waited.as_millis() as u64,
            skipped: report.skipped,
            remade: report.asked_again,
            pace: report.pace,
        };
        self.call(&Command::ReportProgress { who: self.who.clone(), progress }).map(drop)
    }

    fn detach(&self) {
        let _ = self.control.call(&Command::DetachJob { who: self.who.clone() }, GOOD_BYE);
    }

    fn is_near_the_data(&self) -> bool {
        self.tag.is_some()
    }

    fn name(&self) -> String {
        format!("the dispatcher at `{}`", self.control.address())
    }
}

/// Opens connections to workers.
struct TcpDial {
    credentials: Credentials,
    /// Names of what may not cross a network in the open.
    secrets: Vec<String>,
}

impl Dial for TcpDial {
    fn dial(&self, address: &str, _wanted: &dyn Fn() -> bool) -> Result<Dialled> {
        if let Some(path) = near::found(address) {
            match wire::dial(&Address::Unix(path), &self.credentials) {
                Ok(dialled) => return Ok(dialled),
                Err(error) => {
                    tracing::debug!(error = %error.report(), "a worker of this machine is read over TCP");
                }
            }
        }
        check_secrets(&self.secrets, &self.credentials, address)?;
        wire::dial(&Address::Tcp(address.to_owned()), &self.credentials)
    }
}

/// An error when the store's secrets would cross a network in the open.
fn check_secrets(secrets: &[String], credentials: &Credentials, address: &str) -> Result<()> {
    let here = || address.to_socket_addrs().is_ok_and(|mut all| all.all(|one| one.ip().is_loopback()));
    if secrets.is_empty() || credentials.tls.is_some() || here() {
        return Ok(());
    }
    let why = format!(
        "tell the worker how to open the dataset: `{}` would cross the network in the open",
        secrets.join("`, `")
    );
    Err(Error::invalid_config(why).with_hint(
        "give the workers the credentials by their environment and leave them out here, or use TLS",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::ErrorKind;

    #[test]
    fn secrets_of_a_store_do_not_cross_a_network_in_the_open() {
        let open = Credentials::default();
        let secrets = ["aws_secret_access_key".to_owned()];
        let error = check_secrets(&secrets, &open, "192.0.2.7:7000").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig);
        assert!(error.message().contains("aws_secret_access_key") && error.hint().is_some());
        assert!(check_secrets(&secrets, &open, "127.0.0.1:7000").is_ok());
        assert!(check_secrets(&[], &open, "192.0.2.7:7000").is_ok());
    }

    #[test]
    fn a_label_shows_where_a_dataset_is_and_no_secret() {
        let label = |text: &str| label(&[text.to_owned()]);
        assert_eq!(label("s3://bucket/train-{000..100}.tar"), "s3://bucket/train-{000..100}.tar");
        assert_eq!(label("http://user:word@host/a.tar?key=x"), "http://host/a.tar");
        assert_eq!(label(""), "a dataset");
        assert_eq!(label(&"é".repeat(600)).len(), MAX_TEXT);
    }
}
