//! How a loader's figures leave the process: shown to those who ask, pushed to a collector, or both.

use super::{MetricsOptions, MetricsServer, Show};
use forebay_core::{Error, Result};
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The setting `metrics`.
#[derive(Clone, Debug, Default)]
pub struct FigureOptions {
    pub(super) shown: Option<MetricsOptions>,
    #[cfg(feature = "otlp")]
    pushed: Option<crate::OtlpOptions>,
}

/// Pushed where the environment says, or to this address.
#[derive(Deserialize)]
#[serde(untagged)]
enum Push {
    Whether(bool),
    To(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    listen: Option<String>,
    token_file: Option<PathBuf>,
    otlp: Option<Push>,
}

impl FigureOptions {
    /// An address, `otlp`, or a table with `listen`, `token_file` and `otlp`. The ranks of a host listen at one port after
    /// the other, of which this is number `offset`.
    pub fn from_json(value: &Value, offset: u64) -> Result<Self> {
        let table = match value {
            Value::String(word) if word == "otlp" => {
                Table { listen: None, token_file: None, otlp: Some(Push::Whether(true)) }
            }
            Value::String(listen) => Table { listen: Some(listen.clone()), token_file: None, otlp: None },
            other => Table::deserialize(other)
                .map_err(|error| Error::invalid_config("read `metrics`").with_source(error))?,
        };
        let shown = match &table.listen {
            Some(listen) => Some(MetricsOptions::at(listen, table.token_file.as_deref(), offset)?),
            None => None,
        };
        let push = table.otlp.filter(|push| !matches!(push, Push::Whether(false)));
        if shown.is_none() && push.is_none() {
            return Err(Error::invalid_config("read `metrics`: it has neither `listen` nor `otlp`"));
        }
        Self::with(shown, push)
    }

    #[cfg(feature = "otlp")]
    fn with(shown: Option<MetricsOptions>, push: Option<Push>) -> Result<Self> {
        let pushed = push.map(|push| match push {
            Push::Whether(_) => crate::OtlpOptions::from_environment(None),
            Push::To(url) => crate::OtlpOptions::from_environment(Some(&url)),
        });
        Ok(Self { shown, pushed: pushed.transpose()? })
    }

    #[cfg(not(feature = "otlp"))]
    fn with(shown: Option<MetricsOptions>, push: Option<Push>) -> Result<Self> {
        let to = match push {
            None => return Ok(Self { shown }),
            Some(Push::Whether(_)) => String::new(),
            Some(Push::To(url)) => format!(" to `{url}`"),
        };
        Err(Error::unsupported(format!("push figures{to}: this was built without the feature `otlp`")))
    }
}

/// Figures on their way out. Dropping it ends it.
#[derive(Debug)]
pub struct ShownFigures {
    server: Option<MetricsServer>,
    #[cfg(feature = "otlp")]
    _push: Option<crate::OtlpPush>,
}

impl ShownFigures {
    /// Begins to show and to push.
    pub fn start(options: &FigureOptions, show: &Show) -> Result<Self> {
        let start = |options| MetricsServer::start(options, show.clone());
        Ok(Self {
            server: options.shown.as_ref().map(start).transpose()?,
            #[cfg(feature = "otlp")]
            _push: match &options.pushed {
                Some(options) => Some(crate::OtlpPush::start(options.clone(), show.clone())?),
                None => None,
            },
        })
    }

    /// Where they are shown, if they are.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(MetricsServer::address)
    }
}
