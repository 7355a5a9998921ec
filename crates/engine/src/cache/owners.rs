//! Who owns what right now. Nodes may join and leave while a job runs.

use crate::sync::Mutex;
use forebay_core::cache::Ownership;
use std::sync::{Arc, PoisonError};
use tokio::sync::watch;

/// Follows who owns what. Clones follow on their own.
#[derive(Debug)]
pub struct Owners {
    now: watch::Receiver<Arc<Ownership>>,
    /// The same, with what was heard of already.
    heard: Mutex<watch::Receiver<Arc<Ownership>>>,
}

impl Owners {
    /// What the other end says, from now on.
    pub fn new(now: watch::Receiver<Arc<Ownership>>) -> Self {
        let mut heard = now.clone();
        heard.mark_unchanged();
        Self { now, heard: Mutex::new(heard) }
    }

    /// A job of one.
    pub fn alone() -> Self {
        Ownership::alone().into()
    }

    /// Who owns what now.
    pub fn now(&self) -> Arc<Ownership> {
        self.now.borrow().clone()
    }

    /// Whether that changed since this was asked last; one of several who ask at once is told.
    pub(super) fn have_changed(&self) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        // Where nobody can say otherwise any more, it stays as it is.
        let news = heard.has_changed().unwrap_or(false);
        if news {
            heard.mark_unchanged();
        }
        news
    }
}

impl Clone for Owners {
    fn clone(&self) -> Self {
        Self::new(self.now.clone())
    }
}

impl From<Ownership> for Owners {
    fn from(ownership: Ownership) -> Self {
        Self::new(watch::Sender::new(Arc::new(ownership)).subscribe())
    }
}
