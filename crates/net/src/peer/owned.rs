//! What a node shows to its peers: its own keeper, which takes in what it owns and nothing else.

use bytes::Bytes;
use forebay_core::cache::{Capacity, PayloadId, Place};
use forebay_core::{Error, ErrorKind, Result};
use forebay_engine::cache::{Keeper, KeeperView, Look, Owners, Payload, Tier};
use futures::future::{BoxFuture, FutureExt, ready};
use std::sync::Arc;

/// The keeper behind a server for peers. Where a payload is kept is decided here, whatever its giver says.
///
/// In front of the cache of a host it goes over `HostClient::for_peers`, where reads never wait for a fetch.
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
        // Peers read; a look could leave them with a claim on our own keeper.
        ready(payloads.iter().map(|_| Look::Absent).collect()).boxed()
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
            }
        }
        .boxed()
    }

    fn give_up(&self, _payload: Payload) {}

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
