//! The dashboard: one page that shows live what a dispatcher, the process of a host, workers and loaders do.
//!
//! `sources` asks them, `state` puts what they said into what the page draws, `history` keeps the last minutes, and
//! `forebay_net::PageServer` serves it. `page/` is compiled in: one HTML, one script, one stylesheet, nothing from elsewhere.
//! Nothing here changes what is looked at.

mod figures;
mod history;
mod sources;
mod state;

pub(crate) use sources::{Source, attached};

use forebay_core::Result;
use forebay_net::{Events, MetricsOptions, Page, PageServer};
use history::History;
use sources::Look;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rates are those of the last so many seconds.
const RATES_OVER: Duration = Duration::from_secs(5);

const PAGES: &[Page] = &[
    Page { path: "/", kind: "text/html; charset=utf-8", text: include_str!("page/index.html") },
    Page {
        path: "/dashboard.js",
        kind: "text/javascript; charset=utf-8",
        text: include_str!("page/dashboard.js"),
    },
    Page {
        path: "/dashboard.css",
        kind: "text/css; charset=utf-8",
        text: include_str!("page/dashboard.css"),
    },
];

/// Begins to show these.
pub(crate) fn start(options: &MetricsOptions, sources: Vec<Source>) -> Result<PageServer> {
    PageServer::start(
        options,
        PAGES,
        Watching { sources, looks: VecDeque::new(), history: History::default() },
    )
}

struct Watching {
    sources: Vec<Source>,
    /// What was seen lately, oldest first; bounded by [`RATES_OVER`].
    looks: VecDeque<(Instant, Look)>,
    history: History,
}

impl Events for Watching {
    fn state(&mut self) -> String {
        let look = Look::at(&self.sources);
        let now = Instant::now();
        while self.looks.len() > 1 && now - self.looks[1].0 >= RATES_OVER {
            self.looks.pop_front();
        }
        let before = self.looks.front().map(|(at, look)| (look, (now - *at).as_secs_f64()));
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let state = state::state(at_ms, before, &look);
        self.history.add(&state);
        self.looks.push_back((now, look));
        serde_json::to_string(&state).unwrap_or_else(|_| "null".to_owned())
    }

    fn history(&self) -> String {
        self.history.text()
    }
}
