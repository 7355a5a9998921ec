//! The arguments of `forebay dispatcher`, `dashboard`, `status`, `top`, `scale`, `drain` and `credentials`.

use super::etcd::StateArgs;
use crate::dashboard::{self, Source};
use clap::Args;
use forebay_core::dispatcher::Settings;
use forebay_core::scale::ScaleSettings;
use forebay_core::{Error, Result};
use forebay_net::{Credentials, MetricsOptions, MetricsServer, PageServer, Pages, PeerTls, Token};
use std::path::PathBuf;

/// Who may take part, in a service of several processes.
#[derive(Debug, Args)]
pub(crate) struct CredentialArgs {
    /// A folder as `forebay credentials` makes it, with the token and the certificates of all processes.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = ["token_file", "tls_cert", "tls_name"],
        help_heading = "Credentials"
    )]
    pub(crate) credentials: Option<PathBuf>,
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
        if let Some(folder) = &self.credentials {
            return Credentials::from_folder(folder);
        }
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

/// Where figures are shown.
#[derive(Debug, Args)]
pub(crate) struct MetricsArgs {
    /// Show figures to Prometheus at `http://HOST:PORT/metrics`; port 0 is any free one.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Metrics")]
    metrics: Option<String>,
    /// A file with the secret that readers of figures must show. Without it they are for this machine only.
    #[arg(long, value_name = "FILE", requires = "metrics", help_heading = "Metrics")]
    metrics_token_file: Option<PathBuf>,
}

impl MetricsArgs {
    /// Begins to show these, where that was asked for, and gives the address.
    pub(crate) fn start(&self, pages: impl Into<Pages>) -> Result<Option<(MetricsServer, String)>> {
        let Some(listen) = &self.metrics else { return Ok(None) };
        let options = MetricsOptions::new(listen, self.metrics_token_file.as_deref())?;
        let server = MetricsServer::start(&options, pages)?;
        let url = format!("http://{}/metrics", server.address());
        Ok(Some((server, url)))
    }
}

/// Where the dashboard is shown.
#[derive(Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Show the dashboard at `http://HOST:PORT/`; port 0 is any free one.
    #[arg(long, value_name = "HOST:PORT", help_heading = "Dashboard")]
    dashboard: Option<String>,
    /// A file with the secret that those who look must give. Without it the dashboard is for this machine only.
    #[arg(long, value_name = "FILE", requires = "dashboard", help_heading = "Dashboard")]
    dashboard_token_file: Option<PathBuf>,
}

impl DashboardArgs {
    /// Begins to show these, where that was asked for, and gives the address.
    pub(crate) fn start(
        &self,
        sources: impl FnOnce() -> Vec<Source>,
    ) -> Result<Option<(PageServer, String)>> {
        let Some(listen) = &self.dashboard else { return Ok(None) };
        let options = MetricsOptions::new(listen, self.dashboard_token_file.as_deref())?;
        let server = dashboard::start(&options, sources())?;
        let url = format!("http://{}/", server.address());
        Ok(Some((server, url)))
    }
}

/// `forebay dashboard`.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    /// Whom to look at: a dispatcher (`forebay://host:port`), the process of a host (`unix:///path`, `auto`), or who shows
    /// figures (`http://host:port/metrics`: a loader, a worker). May be given several times.
    #[arg(long, value_name = "URL", required = true)]
    pub(crate) attach: Vec<String>,
    /// Where to show it; port 0 is any free one.
    #[arg(long, default_value = "127.0.0.1:9465", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    /// A file with the secret that those who look must give. Without it the dashboard is for this machine only.
    #[arg(long, value_name = "FILE", help_heading = "Dashboard")]
    pub(crate) dashboard_token_file: Option<PathBuf>,
    /// A file with the secret that those who show figures want to see.
    #[arg(long, value_name = "FILE", help_heading = "Metrics")]
    pub(crate) metrics_token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) credentials: CredentialArgs,
}

/// `forebay dispatcher`.
#[derive(Debug, Args)]
pub(crate) struct DispatcherArgs {
    /// Where to listen. Port 0 is any; the address is printed. `auto` is port 7077 where the others of a Slurm or torchrun
    /// job reach it.
    #[arg(long, default_value = "127.0.0.1:7077", value_name = "HOST:PORT")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    /// Seconds of silence after which a worker is lost.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub(crate) worker_timeout: f64,
    /// Seconds of silence after which a consumer is gone.
    #[arg(long, default_value_t = 30.0, value_name = "SECONDS")]
    pub(crate) consumer_timeout: f64,
    /// Fewest workers that `forebay scale` asks for.
    #[arg(long, default_value_t = 1, value_name = "COUNT", help_heading = "Number of workers")]
    pub(crate) least_workers: u64,
    /// Most workers that `forebay scale` asks for, however long jobs wait.
    #[arg(long, default_value_t = 100, value_name = "COUNT", help_heading = "Number of workers")]
    pub(crate) most_workers: u64,
    /// Share of their time that jobs may wait for batches before `forebay scale` asks for more workers.
    #[arg(long, default_value_t = 0.05, value_name = "SHARE", help_heading = "Number of workers")]
    pub(crate) waiting_share: f64,
    /// Set the number of workers too: of a Deployment, `kubernetes://NAMESPACE/deployments/NAME`. For a dispatcher in a
    /// pod, whose service account may get and patch that scale.
    #[arg(long = "scale", value_name = "URL", help_heading = "Number of workers")]
    pub(crate) scale_url: Option<String>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    #[command(flatten)]
    pub(crate) dashboard: DashboardArgs,
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
            ..Settings::default()
        })
    }

    /// What is aimed at with the number of workers.
    pub(crate) fn scale(&self) -> Result<ScaleSettings> {
        let (least_workers, most_workers) = (self.least_workers, self.most_workers);
        if most_workers == 0 || least_workers > most_workers {
            return Err(Error::invalid_config(format!(
                "read `--most-workers`: {most_workers} is no number of {least_workers} or more workers"
            )));
        }
        let waiting_share = self.waiting_share;
        if !(0.001..=0.9).contains(&waiting_share) {
            return Err(Error::invalid_config(format!(
                "read `--waiting-share`: {waiting_share} is no share, give 0.001 to 0.9"
            )));
        }
        Ok(ScaleSettings { least_workers, most_workers, waiting_share, ..ScaleSettings::default() })
    }
}

/// The dispatcher that a command asks.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// The dispatcher: `forebay://host:port`, or `host:port`; several that share an etcd as `host:port,host:port`;
    /// `forebay://auto` is that of this Slurm or torchrun job. `status` and `top` also take `auto` and `unix:///path`: the
    /// process of this host that its jobs share.
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

/// `forebay credentials`.
#[derive(Debug, Args)]
pub(crate) struct MakeCredentialsArgs {
    /// A folder that is not there yet, or holds no credentials.
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Hosts and addresses for which the certificate is to be good for others than Forebay.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// For how long it is good.
    #[arg(long, default_value_t = 365, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3650))]
    pub(crate) days: u32,
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
