//! What is shown under which path, and to whom: figures to those who may read them, one word on how it goes to anyone.
//!
//! `/ready` and `/live` are for those who run the process, such as a kubelet, which has no token to show. They tell one
//! bit, and cost no more than figures do.

use std::fmt;
use std::sync::Arc;

/// The text of Prometheus.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is shown, made anew for each request.
pub type Show = Arc<dyn Fn() -> String + Send + Sync>;

/// Whether all is well; if not, why, in a word that anyone may read.
pub type Check = Arc<dyn Fn() -> Result<(), &'static str> + Send + Sync>;

/// What a process shows.
#[derive(Clone)]
pub struct Pages {
    /// `/metrics`: figures, in the text of Prometheus. They are made for `/live` too, which shows that whatever they
    /// come from is not stuck.
    pub metrics: Show,
    /// `/ready`: whether it can do its work now.
    pub ready: Option<Check>,
    /// `/scale`: how many workers are wanted, as JSON.
    pub scale: Option<Show>,
}

impl From<Show> for Pages {
    fn from(metrics: Show) -> Self {
        Self { metrics, ready: None, scale: None }
    }
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages")
    }
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Metrics,
    Scale,
    Ready,
    Live,
}

/// What is answered: status, type and body.
pub(super) type Answer = (&'static str, &'static str, String);

impl Pages {
    /// The page of a path.
    pub(super) fn at(&self, path: &str) -> Option<Page> {
        match path {
            "/metrics" => Some(Page::Metrics),
            "/live" => Some(Page::Live),
            "/scale" => self.scale.as_ref().map(|_| Page::Scale),
            "/ready" => self.ready.as_ref().map(|_| Page::Ready),
            _ => None,
        }
    }

    pub(super) fn show(&self, page: Page) -> Answer {
        match (page, &self.scale, &self.ready) {
            (Page::Scale, Some(scale), _) => ("200 OK", "application/json", scale()),
            (Page::Ready, _, Some(ready)) => match ready() {
                Ok(()) => ("200 OK", PLAIN, "ready\n".to_owned()),
                Err(why) => ("503 Service Unavailable", PLAIN, format!("{why}\n")),
            },
            (Page::Live, ..) => {
                drop((self.metrics)());
                ("200 OK", PLAIN, "live\n".to_owned())
            }
            _ => ("200 OK", TEXT, (self.metrics)()),
        }
    }
}

impl Page {
    /// Whether it is for those alone who show the token.
    pub(super) fn is_guarded(self) -> bool {
        matches!(self, Self::Metrics | Self::Scale)
    }
}
