//! Carrying requests out: through the gate, again when they fail, twice when they hang.
//!
//! Only remote stores are asked again: a local fault is a fault. A second request for a hung one goes past the gate,
//! because the first holds a place already; its number is bounded by the gate's allowance. Long ranges are cut and
//! read side by side, since one connection may be slower than the link.

use super::Fetcher;
use super::gate::{Pass, Turn};
use super::pending::{Pending, Wanted};
use crate::budget::Hold;
use bytes::{Bytes, BytesMut};
use forebay_core::request::{Request, shared_runs};
use forebay_core::window::End;
use forebay_core::{Error, Result};
use forebay_store::retry::{Patience, Tries};
use forebay_store::{ByteRange, ObjectRead};
use futures::future::{BoxFuture, Either, FutureExt, select, try_join_all};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Ranges longer than this many requests are cut into them.
const CUT_ABOVE: u64 = 2;

/// An object to read from.
struct Object {
    key: String,
    /// When the manifest was built.
    size: u64,
}

/// How a read comes to its first pass: it has one, or asks for it.
pub(super) enum Entry {
    With(Pass),
    At(Turn),
}

/// What a group of requests needs to be answered: who waits for which part.
pub(super) struct Waiting {
    pub(super) samples: Arc<Vec<Pending>>,
    pub(super) wanted: Vec<Wanted>,
}

impl Fetcher {
    /// Carries out one request. When it fails as a whole its payloads are tried one by one, so that one bad range
    /// costs one sample.
    pub(super) async fn fetch(&self, waiting: &Waiting, request: Request, hold: Hold, entry: Entry) {
        let object = self.object(request.object);
        let parts: Vec<Result<Bytes>> = match self.read_parts(&object, &request.parts, entry).await {
            Ok(parts) => parts.into_iter().map(Ok).collect(),
            Err(error) if request.parts.len() == 1 => vec![Err(error)],
            // Where nobody is, asking for each by itself would only take as long again.
            Err(error) if error.is_away() => request.parts.iter().map(|_| Err(error.duplicate())).collect(),
            Err(_) => {
                let mut parts = Vec::with_capacity(request.parts.len());
                for part in &request.parts {
                    parts.push(self.read_one(request.object, part.clone(), Turn::Again).await);
                }
                parts
            }
        };
        self.hand_over(waiting, &request, parts, hold);
    }

    /// Carries out several small requests by one, for stores that can. What it could not bring is fetched alone.
    pub(super) async fn fetch_many(&self, waiting: &Waiting, requests: Vec<(Request, Hold)>) {
        let reads: Vec<ObjectRead> = requests
            .iter()
            .flat_map(|(request, _)| {
                let key = self.inputs.object_key(request.object);
                request.parts.iter().map(move |range| ObjectRead { key: key.clone(), range: range.clone() })
            })
            .collect();
        let mut answers = self.read_many(&reads).await.into_iter().zip(&reads);
        for (request, hold) in requests {
            let mut parts = Vec::with_capacity(request.parts.len());
            for _ in &request.parts {
                let Some((answer, read)) = answers.next() else {
                    parts.push(Err(Error::internal("the store answered fewer reads than it was asked")));
                    continue;
                };
                parts.push(match answer {
                    Err(error) if error.kind().is_transient() => {
                        self.meter.retries.add(1);
                        self.read_one(request.object, read.range.clone(), Turn::Again).await
                    }
                    other => other,
                });
            }
            self.hand_over(waiting, &request, parts, hold);
        }
    }

    /// Several reads by one request, which is made again as long as nobody is there to answer it.
    async fn read_many(&self, reads: &[ObjectRead]) -> Vec<Result<Bytes>> {
        let bytes = reads.iter().map(|read| read.range.end - read.range.start).sum();
        let url = || self.store.url(reads.first().map_or("", |read| &read.key));
        let mut tries = self.tries();
        let mut pass = self.gate.enter(bytes, Turn::First).await;
        loop {
            let since = Instant::now();
            let answers = self.store.read_many(reads).await;
            self.meter.requests.add(1);
            self.meter.request_nanos.add_time(since.elapsed());
            let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
            let throttled = errors.clone().find_map(Error::throttled);
            let away = errors.clone().count() == answers.len() && errors.clone().all(Error::is_away);
            let error = errors.next().filter(|_| away).map(Error::duplicate);
            pass.finish(match &error {
                Some(error) => self.away(error),
                None => throttled.map_or(End::Done { bytes }, |pause| End::Throttled { pause }),
            });
            let Some(error) = error else { return answers };
            tries.count();
            pass = match self.come_again(&mut tries, error, bytes, url).await {
                Ok(pass) => pass,
                Err(error) => return reads.iter().map(|_| Err(error.duplicate())).collect(),
            };
        }
    }

    /// The tries of one request. A manifest says that the store was there, so it is waited for when it is not.
    fn tries(&self) -> Tries {
        Tries::new(self.config.retry, self.meter.requests.get(), Patience::Gated)
    }

    /// How the window is told that nobody was there; a person is told now and then.
    fn away(&self, error: &Error) -> End {
        if let Some(away) = self.gate.away() {
            self.notice.tell(error, away);
        }
        End::Away
    }

    /// Gives every sample what came for it, then the cache. The bytes count against the budget until both are done
    /// with them, so that a slow disk holds fetching back. Whoever ends the loader at its last sample finds it kept.
    fn hand_over(&self, waiting: &Waiting, request: &Request, parts: Vec<Result<Bytes>>, mut hold: Hold) {
        let last = self.cache.as_ref().map(|cache| (self.tasks.last(), Arc::clone(cache)));
        let mut kept = Vec::new();
        for ((want, range), part) in request.wants.iter().zip(&request.parts).zip(parts) {
            let wanted = &waiting.wanted[*want];
            let length = range.end - range.start;
            let part = part.and_then(|bytes| self.account(bytes, length));
            let hold = Arc::new(hold.split(length));
            if let (Some(claim), Ok(bytes)) = (wanted.take_claim(), &part) {
                kept.push((claim, bytes.clone(), Arc::clone(&hold)));
            }
            self.put(&waiting.samples[wanted.pending], wanted.field, part, range.start, Some(hold));
        }
        if let Some((last, cache)) = last.filter(|_| !kept.is_empty()) {
            last.spawn(async move {
                for (claim, bytes, hold) in kept {
                    cache.keep(claim, &bytes).await;
                    drop(hold);
                }
            });
        }
    }

    /// Counts a payload; an answer of another length is refused whatever the store said.
    pub(super) fn account(&self, bytes: Bytes, length: u64) -> Result<Bytes> {
        if bytes.len() as u64 != length {
            return Err(Error::corrupt(format!("the store gave {} of {length} bytes", bytes.len())));
        }
        self.meter.payloads.add(1);
        self.meter.payload_bytes.add(length);
        Ok(bytes)
    }

    /// One range of one object, when its turn at the gate comes.
    pub(super) async fn read_one(&self, object: u32, range: Range<u64>, turn: Turn) -> Result<Bytes> {
        self.read_parts(&self.object(object), &[range], Entry::At(turn)).await.and_then(single)
    }

    fn object(&self, object: u32) -> Object {
        let (key, size) = self.inputs.object(object);
        Object { key, size }
    }

    /// Whether a read is so long that it is made by several side by side, each with a pass of its own.
    pub(super) fn is_cut(&self, parts: &[Range<u64>]) -> bool {
        self.remote
            && matches!(parts, [part] if part.end - part.start > self.request_bytes().saturating_mul(CUT_ABOVE))
    }

    async fn read_parts(&self, object: &Object, parts: &[Range<u64>], entry: Entry) -> Result<Vec<Bytes>> {
        match (parts, entry) {
            ([part], Entry::At(turn)) if self.is_cut(parts) => {
                self.read_cut(object, part.clone(), turn).await.map(|bytes| vec![bytes])
            }
            (parts, entry) => match shared_runs(parts) {
                None => self.read_again(object, parts, entry).await,
                // What overlaps is read once, and nobody copies it.
                Some((runs, places)) => {
                    let read = self.read_again(object, &runs, entry).await?;
                    let cut = |(run, inside): (usize, Range<usize>)| {
                        let bytes: Option<&Bytes> = read.get(run);
                        let bytes = bytes.filter(|bytes| inside.end <= bytes.len());
                        bytes
                            .map(|bytes| bytes.slice(inside))
                            .ok_or_else(|| Error::internal("a store gave too few bytes"))
                    };
                    places.into_iter().map(cut).collect()
                }
            },
        }
    }

    async fn read_cut(&self, object: &Object, part: Range<u64>, turn: Turn) -> Result<Bytes> {
        let size = self.request_bytes();
        let starts = (part.start..part.end).step_by(size as usize);
        let pieces = starts.map(|start| start..(start + size).min(part.end));
        let read =
            |piece| async move { self.read_again(object, &[piece], Entry::At(turn)).await.and_then(single) };
        let pieces = try_join_all(pieces.map(read)).await?;
        let mut whole = BytesMut::with_capacity((part.end - part.start) as usize);
        for piece in &pieces {
            whole.extend_from_slice(piece);
        }
        Ok(whole.freeze())
    }

    /// One read, made again while it may work.
    async fn read_again(&self, object: &Object, parts: &[Range<u64>], entry: Entry) -> Result<Vec<Bytes>> {
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        let mut pass = match entry {
            Entry::With(pass) => pass,
            Entry::At(turn) => self.gate.enter(bytes, turn).await,
        };
        if !self.remote {
            return self.read_once(object, parts, pass).await;
        }
        let url = || self.store.url(&object.key);
        let mut tries = self.tries();
        loop {
            let error = match tries.attempt("read", url, self.read_once(object, parts, pass)).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            pass = self.come_again(&mut tries, error, bytes, url).await?;
        }
    }

    /// Pauses after a failed try and comes to the gate again, or gives up.
    async fn come_again(
        &self,
        tries: &mut Tries,
        error: Error,
        bytes: u64,
        url: impl Fn() -> String,
    ) -> Result<Pass> {
        let last = error.duplicate();
        tries.pause(error, "read", &url).await?;
        self.meter.retries.add(1);
        // Waiting for a turn counts too: it lasts as long as the absence or the silence of the server.
        let again = tokio::time::timeout(tries.left(), self.gate.enter(bytes, Turn::Again)).await;
        again.map_err(|_| tries.given_up(last, "read", &url()))
    }

    /// One read, reported to the gate.
    async fn read_once(&self, object: &Object, parts: &[Range<u64>], pass: Pass) -> Result<Vec<Bytes>> {
        let bytes = parts.iter().map(|part| part.end - part.start).sum();
        let since = Instant::now();
        let answer = self.hedged(object, parts, bytes).await;
        self.meter.request_nanos.add_time(since.elapsed());
        let failed = pass.failed();
        pass.finish(match &answer {
            Ok(_) => End::Done { bytes },
            Err(error) if error.is_away() => self.away(error),
            Err(error) => match error.throttled() {
                Some(pause) => {
                    self.meter.throttled.add(1);
                    End::Throttled { pause }
                }
                None => failed,
            },
        });
        self.follow_window();
        answer
    }

    /// The answer of the first request, or of a second one sent when the first takes suspiciously long.
    async fn hedged(&self, object: &Object, parts: &[Range<u64>], bytes: u64) -> Result<Vec<Bytes>> {
        let key = &object.key;
        // On this machine nothing would come of it but another look at the file.
        let range = |part: &Range<u64>| {
            if self.remote { ByteRange::within(part.clone(), object.size) } else { part.clone().into() }
        };
        let send = || -> BoxFuture<'_, Result<Vec<Bytes>>> {
            self.meter.requests.add(1);
            match parts {
                [part] => {
                    self.store.read(key, range(part)).map(|answer| answer.map(|bytes| vec![bytes])).boxed()
                }
                parts => self.store.read_parts(key, parts),
            }
        };
        let first = send();
        let Some(delay) = self.gate.hedge_delay(bytes) else { return first.await };
        let first = match select(first, Box::pin(tokio::time::sleep(delay))).await {
            Either::Left((answer, _)) => return answer,
            Either::Right(((), first)) => first,
        };
        if !self.gate.spend_hedge() {
            return first.await;
        }
        self.meter.hedges.add(1);
        match select(first, send()).await {
            // A failed one of the two is no answer while the other may still come.
            Either::Left((Ok(answer), _)) | Either::Right((Ok(answer), _)) => Ok(answer),
            Either::Left((Err(_), other)) | Either::Right((Err(_), other)) => other.await,
        }
    }
}

fn single(mut parts: Vec<Bytes>) -> Result<Bytes> {
    match (parts.pop(), parts.is_empty()) {
        (Some(part), true) => Ok(part),
        _ => Err(Error::internal("the store answered a read of one range with another number of parts")),
    }
}
