//! Where a dispatcher keeps its state: the arguments of `forebay dispatcher` about a folder or an etcd.

use clap::Args;
use forebay_core::{Error, Result};
use forebay_net::dispatcher::{DispatcherOptions, EtcdLogin, EtcdOptions, EtcdTls};
use std::path::PathBuf;

/// Where state is kept.
#[derive(Debug, Args)]
pub(crate) struct StateArgs {
    /// A folder for the journal, or `etcd://host:port,host:port/prefix` for one that several dispatchers share: one of them
    /// leads, another takes over when it is gone. Without it a dispatcher that ends forgets what it has decided.
    #[arg(long = "state", value_name = "PLACE")]
    pub(crate) place: Option<String>,
    /// Where the other dispatchers send clients to find this one, when that is not where it listens.
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Option<String>,
    /// The authority that signed etcd's certificates, in PEM. Needed off this machine.
    #[arg(long, value_name = "FILE", help_heading = "etcd")]
    etcd_ca: Option<PathBuf>,
    /// Our certificate chain for etcd, in PEM, where it asks for one.
    #[arg(long, value_name = "FILE", requires = "etcd_key", requires = "etcd_ca", help_heading = "etcd")]
    etcd_cert: Option<PathBuf>,
    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "etcd_cert", help_heading = "etcd")]
    etcd_key: Option<PathBuf>,
    /// The name in etcd's certificates, when it is not the address.
    #[arg(long, value_name = "NAME", requires = "etcd_ca", help_heading = "etcd")]
    etcd_name: Option<String>,
    /// Our user in etcd, where it has users.
    #[arg(long, value_name = "NAME", requires = "etcd_password_file", help_heading = "etcd")]
    etcd_user: Option<String>,
    /// A file with that user's password.
    #[arg(long, value_name = "FILE", requires = "etcd_user", help_heading = "etcd")]
    etcd_password_file: Option<PathBuf>,
}

impl StateArgs {
    /// Says it to a dispatcher.
    pub(crate) fn apply(&self, options: &mut DispatcherOptions) -> Result<()> {
        options.advertise.clone_from(&self.advertise);
        let Some(url) = self.place.as_ref().filter(|place| EtcdOptions::is_url(place)) else {
            if self.etcd_ca.is_some() || self.etcd_user.is_some() {
                let why = "read `--state`: it names no etcd, but options for one are given";
                return Err(Error::invalid_config(why).with_hint("write `--state etcd://host:port/prefix`"));
            }
            options.state = self.place.as_ref().map(PathBuf::from);
            return Ok(());
        };
        let mut etcd = EtcdOptions::from_url(url)?;
        etcd.tls = self.etcd_ca.clone().map(|ca_file| EtcdTls {
            ca_file,
            own: self.etcd_cert.clone().zip(self.etcd_key.clone()),
            name: self.etcd_name.clone(),
        });
        etcd.login = match (&self.etcd_user, &self.etcd_password_file) {
            (Some(user), Some(file)) => Some(EtcdLogin::from_file(user, file)?),
            _ => None,
        };
        options.etcd = Some(etcd);
        Ok(())
    }
}
