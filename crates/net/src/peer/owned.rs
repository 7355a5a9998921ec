//! What a node shows to its peers: its own keeper, which takes in what it owns and nothing else.

use bytes::Bytes;
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::cache::{Keeper, KeeperView, Look, Owners, Payload, Tier};
use futures::future::{BoxFuture, FutureExt, ready};
use std::sync::Arc;

/// The keeper behind a server for peers. Where a payload is kept is decided here, whatever its giver says.
///
/// A look claims what we own and do not have, in the name of the peer that is told to fetch it: until it is given to us
/// nobody here fetches it too. In front of the cache of a host it goes over `HostClient::for_peers`.
#[derive(Debug)]
pub struct OwnedKeeper {
    local: Arc<dyn Keeper>,
    owners: Owners,
}

impl OwnedKeeper {
    /// Payloads go to memory while there is room, and then to disk.
    pub fn new(local: Arc<dyn Keeper>, owners: Owners) -> Self {
        Self { local, owners }
    }
}

impl Keeper for OwnedKeeper {
    fn look<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Look>> {
        async move {
            let looks = self.local.look(payloads).await;
            let owners = self.owners.now();
            for (payload, _) in payloads.iter().zip(&looks).filter(|(_, look)| matches!(look, Look::Absent)) {
                // The claim on what we own is the peer's, who will give it to us. Other things it keeps for itself.
                if !owners.is_mine(payload.rank) {
                    self.local.give_up(*payload);
                }
            }
            looks
        }
        .boxed()
    }

    fn read<'a>(&'a self, payloads: &'a [Payload]) -> BoxFuture<'a, Vec<Option<(Bytes, Tier)>>> {
        async move {
            let found = self.local.read(payloads).await;
            for (payload, _) in payloads.iter().zip(&found).filter(|(_, found)| found.is_none()) {
                // Where a missing payload becomes the asker's to fetch: the peer fetches for itself.
                self.local.give_up(*payload);
            }
            found
        }
        .boxed()
    }

    fn keep<'a>(&'a self, payload: Payload, place: Place, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if place.is_kept() {
                self.admit(payload, bytes).await;
            }
        }
        .boxed()
    }

    fn admit<'a>(&'a self, payload: Payload, bytes: &'a Bytes) -> BoxFuture<'a, ()> {
        async move {
            if self.owners.now().is_mine(payload.rank) {
                self.local.admit(payload, bytes).await;
            } else {
                self.local.give_up(payload);
            }
        }
        .boxed()
    }

    fn give_up(&self, payload: Payload) {
        self.local.give_up(payload);
    }

    fn held(&self, group: u64) -> BoxFuture<'_, Vec<PayloadId>> {
        self.local.held(group)
    }

    fn forget<'a>(&'a self, _payloads: &'a [PayloadId]) -> BoxFuture<'a, ()> {
        ready(()).boxed()
    }

    fn resize(&self, _capacity: Capacity) -> BoxFuture<'_, Result<()>> {
        ready(Err(Error::new(ErrorKind::Denied, "resize a cache: peers may not"))).boxed()
    }

    fn view(&self) -> KeeperView {
        self.local.view()
    }
}
