//! The arguments of `forebay dispatcher`, `status`, `top` and `drain`.

use clap::Args;
use forebay_core::dispatcher::Settings;
use forebay_core::{Error, Result};
use forebay_net::{Credentials, PeerTls, Token};
use std::path::PathBuf;

/// Who may take part, in a service of several processes.
#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    /// A file with the secret that all processes of the service know.
    #[arg(long, value_name = "FILE", help_heading = "Credentials")]
    pub(crate) token_file: Option<PathBuf>,
    /// Our certificate chain, in PEM. With it everything is encrypted, and the other side must show one too.
    #[arg(
        long,
        value_name = "FILE",
        requires = "tls_key",
        requires = "tls_ca",
        help_heading = "Credentials"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of our certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Credentials")]
    pub(crate) tls_key: Option<PathBuf>,
    /// The authority that signed the certificates of all processes, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Credentials")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The name in the other side's certificate, when it is not its address.
    #[arg(long, value_name = "NAME", requires = "tls_cert", help_heading = "Credentials")]
    pub(crate) tls_name: Option<String>,
}

impl CredentialArgs {
    /// Reads the token; certificates are read by who uses them.
    pub(crate) fn resolve(&self) -> Result<Credentials> {
        let token = self.token_file.as_deref().map(Token::from_file).transpose()?;
        let tls = match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
            (Some(cert), Some(key), Some(ca)) => Some(PeerTls {
                ca_file: ca.clone(),
                cert: cert.clone(),
                key: key.clone(),
                name: self.tls_name.clone(),
            }),
            _ => None,
        };
        Ok(Credentials { token, tls })
    }
}

/// `forebay dispatcher`.
#[derive(Debug, Args)]
pub(crate) struct DispatcherArgs {
    /// Where to listen. Port 0 is any; the address is printed.
    #[arg(long, default_value = "127.0.0.1:7077", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// A folder for the journal. Without it a dispatcher that ends forgets what it has decided.
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Seconds of silence after which a worker is lost.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub(crate) worker_timeout: f64,
    /// Seconds of silence after which a consumer is gone.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    pub(crate) consumer_timeout: f64,
    /// Seconds for which a job with dynamic sharding is kept when all its consumers are gone.
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    pub(crate) job_timeout: f64,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

impl DispatcherArgs {
    /// Time-outs in the machine's units.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let milliseconds = |flag: &str, seconds: f64| {
            let fine = (0.01..=1e9).contains(&seconds);
            fine.then_some((seconds * 1000.0) as u64).ok_or_else(|| {
                Error::invalid_config(format!(
                    "read `{flag}`: {seconds} is no time, give 0.01 or more seconds"
                ))
            })
        };
        Ok(Settings {
            worker_timeout_ms: milliseconds("--worker-timeout", self.worker_timeout)?,
            consumer_timeout_ms: milliseconds("--consumer-timeout", self.consumer_timeout)?,
            job_timeout_ms: milliseconds("--job-timeout", self.job_timeout)?,
            ..Settings::default()
        })
    }
}

/// The dispatcher that a command asks.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// The dispatcher: `forebay://host:port`, or `host:port`. `status` also takes `auto` and `unix:///path`: the process
    /// of this host that its jobs share.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    /// Seconds to wait for it while it is away.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub(crate) wait: f64,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// `forebay top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// Draw once and end.
    #[arg(long)]
    pub(crate) once: bool,
}

/// `forebay drain`.
#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) ask: AskArgs,
    /// The worker's id, as `forebay status` shows it.
    #[arg(value_name = "WORKER")]
    pub(crate) worker: String,
}
