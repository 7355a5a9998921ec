//! What peers were told to fetch, so that nobody else does: until they give it, give it up, go, or take too long.
//!
//! Whoever asks for such a payload is told that it is coming. Peers wait by [`crate::claims`]; processes of this node by
//! the keeper, which has a claim on it in the peer's name. This is about that second claim: it ends with the first.

use super::{Shared, Waiter, lock};
use forebay_core::cache::PayloadId;
use forebay_engine::cache::Payload;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Payloads that peers fetch at once; beyond that two may fetch the same.
const MOST: usize = 1 << 20;
/// How often to look whose time is over.
const PAUSE: Duration = Duration::from_secs(1);

/// Claims on the keeper in the name of peers.
#[derive(Debug, Default)]
pub(super) struct Promised {
    payloads: HashMap<PayloadId, Payload>,
    /// When the peers' own claims end; the first to end is in front.
    ends: VecDeque<(Duration, PayloadId)>,
    /// Whether a task looks at them.
    watched: bool,
}

impl Shared {
    /// A peer was told to fetch this, and the keeper has a claim on it in its name.
    pub(super) fn promise(self: &Arc<Self>, payload: Payload) {
        let mut promised = lock(&self.promised);
        if promised.payloads.len() >= MOST {
            drop(promised);
            return self.keeper.give_up(payload);
        }
        promised.payloads.insert(payload.id, payload);
        promised.ends.push_back((self.now() + self.options.claim_time, payload.id));
        if !std::mem::replace(&mut promised.watched, true) {
            let shared = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(PAUSE).await;
                    let Some(shared) = shared.upgrade() else { return };
                    if !shared.end_promises() {
                        return;
                    }
                }
            });
        }
    }

    /// The payload came: the keeper's claim ended with that.
    pub(super) fn kept_promise(&self, name: PayloadId) {
        lock(&self.promised).payloads.remove(&name);
    }

    /// Ends the keeper's claim when no peer has one any more.
    pub(super) fn free(&self, name: PayloadId) {
        if self.claims().is_held(name) {
            return;
        }
        let payload = lock(&self.promised).payloads.remove(&name);
        if let Some(payload) = payload {
            self.keeper.give_up(payload);
        }
    }

    /// Ends what takes too long; false when nothing is promised any more, and nobody has to look again.
    fn end_promises(&self) -> bool {
        loop {
            let name = {
                let mut promised = lock(&self.promised);
                if promised.payloads.is_empty() {
                    promised.ends.clear();
                    promised.watched = false;
                    return false;
                }
                match promised.ends.front() {
                    Some((end, name)) if *end <= self.now() => {
                        let name = *name;
                        promised.ends.pop_front();
                        if !promised.payloads.contains_key(&name) {
                            continue;
                        }
                        name
                    }
                    _ => return true,
                }
            };
            let (next, until): (Option<Waiter>, _) = self.claims().expire(name, self.now());
            self.hand_on(next);
            match until {
                Some(until) => lock(&self.promised).ends.push_back((until, name)),
                None => self.free(name),
            }
        }
    }
}
