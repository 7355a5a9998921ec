//! The client of this process, made when it is first needed and made anew after a fork.

use super::client::HttpClient;
use super::options::HttpOptions;
use super::tls::{self, TlsOptions};
use forebay_core::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Hands out the [`HttpClient`] that belongs to the process it is asked in. Stores keep one of these.
#[derive(Debug)]
pub struct ProcessClient {
    options: HttpOptions,
    /// Read when the store was opened, so that a wrong file shows at once.
    tls: Option<Arc<rustls::ClientConfig>>,
    current: Mutex<Option<HttpClient>>,
}

impl ProcessClient {
    /// Checks the options. Starts nothing and connects to nothing.
    pub fn new(options: HttpOptions) -> Result<Self> {
        let asked = options.tls != TlsOptions::default();
        let tls = if asked { Some(tls::client_config(&options.tls)?) } else { None };
        Ok(Self { options, tls, current: Mutex::default() })
    }

    /// The client of this process.
    pub fn get(&self) -> Result<HttpClient> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = current.as_ref().filter(|client| client.net().is_alive()) {
            return Ok(client.clone());
        }
        let tls = match (&self.tls, current.take()) {
            (Some(_), Some(parent)) => {
                // Sockets and locks of the parent: closing them here would reach into its event queue.
                std::mem::forget(parent);
                Some(tls::build(&self.options.tls)?)
            }
            (None, parent) => {
                std::mem::forget(parent);
                None
            }
            (Some(tls), None) => Some(tls.clone()),
        };
        let client = HttpClient::with_tls(&self.options, tls)?;
        *current = Some(client.clone());
        Ok(client)
    }
}
