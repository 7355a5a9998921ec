//! Who fetches a payload that several want at once: the first to ask claims it, the others wait for that one.
//!
//! A claim ends when the payload was kept, when it turned out to belong nowhere, when its holder gave up or went
//! away, or when its time is over. In the first two cases all who wait go on; in the others exactly one of them is
//! told to fetch and holds the claim from then on. Nothing here knows a socket or a clock: time is what the caller
//! says it is, since its own start.

use forebay_core::cache::PayloadId;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// A connected client.
pub type Client = u64;

/// What a client is told that wants a payload which is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the one to fetch.
    Fetch,
    /// Another one fetches; that claim ends no later than this.
    Wait(Duration),
}

/// Claims on payloads. `W` is whatever the caller needs to tell one that waits.
#[derive(Debug)]
pub struct Claims<W> {
    time: Duration,
    held: HashMap<PayloadId, Claim<W>>,
    /// Payloads that a client claims or waits for, so that its end costs no search.
    by_client: HashMap<Client, HashSet<PayloadId>>,
}

#[derive(Debug)]
struct Claim<W> {
    holder: Client,
    end: Duration,
    waiting: VecDeque<(Client, W)>,
}

impl<W> Claims<W> {
    /// Claims that last `time` at most.
    pub fn new(time: Duration) -> Self {
        Self { time, held: HashMap::new(), by_client: HashMap::new() }
    }

    /// A client wants a payload that is not there.
    pub fn ask(&mut self, name: PayloadId, client: Client, now: Duration) -> Verdict {
        match self.held.get_mut(&name) {
            Some(claim) if claim.end > now => return Verdict::Wait(claim.end),
            Some(claim) => {
                let before = std::mem::replace(&mut claim.holder, client);
                claim.end = now + self.time;
                self.forget(before, name);
            }
            None => {
                let claim = Claim { holder: client, end: now + self.time, waiting: VecDeque::new() };
                self.held.insert(name, claim);
            }
        }
        self.by_client.entry(client).or_default().insert(name);
        Verdict::Fetch
    }

    /// As [`Self::ask`]; where the verdict is to wait, `waiter` is kept and comes back when the waiting is over.
    pub fn wait(&mut self, name: PayloadId, client: Client, waiter: W, now: Duration) -> Verdict {
        let verdict = self.ask(name, client, now);
        if let (Verdict::Wait(_), Some(claim)) = (verdict, self.held.get_mut(&name)) {
            claim.waiting.push_back((client, waiter));
            self.by_client.entry(client).or_default().insert(name);
        }
        verdict
    }

    /// The claim is over for all: the payload was kept, or belongs nowhere. Returns those who waited.
    pub fn end(&mut self, name: PayloadId) -> Vec<W> {
        let Some(claim) = self.held.remove(&name) else { return Vec::new() };
        let clients = claim.waiting.iter().map(|(client, _)| *client).chain([claim.holder]);
        for client in clients {
            self.forget(client, name);
        }
        claim.waiting.into_iter().map(|(_, waiter)| waiter).collect()
    }

    /// A client will not fetch after all. Returns who is to fetch instead. A claim of somebody else is left alone.
    pub fn give_up(&mut self, name: PayloadId, client: Client, now: Duration) -> Option<W> {
        let claim = self.held.get(&name)?;
        if claim.holder == client { self.pass_on(name, now) } else { None }
    }

    /// A client is gone, with its claims and its waiting. Returns those who are to fetch instead.
    pub fn gone(&mut self, client: Client, now: Duration) -> Vec<W> {
        let names = self.by_client.remove(&client).unwrap_or_default();
        let mut next = Vec::new();
        for name in names {
            let Some(claim) = self.held.get_mut(&name) else { continue };
            claim.waiting.retain(|(waiting, _)| *waiting != client);
            if claim.holder == client {
                next.extend(self.pass_on(name, now));
            }
        }
        next
    }

    /// The time of a claim may be over. Returns who is to fetch then, and until when to wait otherwise.
    pub fn expire(&mut self, name: PayloadId, now: Duration) -> (Option<W>, Option<Duration>) {
        match self.held.get(&name) {
            None => (None, None),
            Some(claim) if claim.end > now => (None, Some(claim.end)),
            Some(_) => {
                let next = self.pass_on(name, now);
                (next, self.held.get(&name).map(|claim| claim.end))
            }
        }
    }

    /// Whether anyone claims it.
    pub fn is_held(&self, name: PayloadId) -> bool {
        self.held.contains_key(&name)
    }

    /// What a client claims or waits for.
    pub fn of(&self, client: Client) -> Vec<PayloadId> {
        self.by_client.get(&client).map(|names| names.iter().copied().collect()).unwrap_or_default()
    }

    /// Claims that are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is claimed.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    fn pass_on(&mut self, name: PayloadId, now: Duration) -> Option<W> {
        let claim = self.held.get_mut(&name)?;
        let before = claim.holder;
        let next = claim.waiting.pop_front();
        match &next {
            Some((client, _)) => (claim.holder, claim.end) = (*client, now + self.time),
            None => drop(self.held.remove(&name)),
        }
        self.forget(before, name);
        next.map(|(_, waiter)| waiter)
    }

    /// The client has nothing to do with the payload any more, unless it still waits for or claims it.
    fn forget(&mut self, client: Client, name: PayloadId) {
        let still = self.held.get(&name).is_some_and(|claim| {
            claim.holder == client || claim.waiting.iter().any(|(waiting, _)| *waiting == client)
        });
        if !still && let Some(names) = self.by_client.get_mut(&client) {
            names.remove(&name);
            if names.is_empty() {
                self.by_client.remove(&client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIME: Duration = Duration::from_secs(30);
    const X: PayloadId = PayloadId(1);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn p045_the_first_fetches_and_the_others_wait_until_it_is_kept() {
        let mut claims = Claims::new(TIME);
        assert_eq!(claims.ask(X, 1, at(0)), Verdict::Fetch);
        assert_eq!(claims.ask(X, 2, at(1)), Verdict::Wait(at(30)));
        assert_eq!(claims.wait(X, 2, 'b', at(1)), Verdict::Wait(at(30)));
        assert_eq!(
            claims.wait(X, 1, 'a', at(2)),
            Verdict::Wait(at(30)),
            "also for itself: it fetches already"
        );
        assert_eq!(claims.end(X), ['b', 'a']);
        assert!(claims.is_empty() && claims.by_client.is_empty());
        assert_eq!(claims.ask(X, 3, at(3)), Verdict::Fetch);
    }

    #[test]
    fn p045_one_takes_over_when_the_holder_gives_up_goes_or_takes_too_long() {
        for end in ["give up", "gone", "expire"] {
            let mut claims = Claims::new(TIME);
            claims.ask(X, 1, at(0));
            claims.wait(X, 2, 'b', at(0));
            claims.wait(X, 3, 'c', at(0));
            assert_eq!(claims.give_up(X, 2, at(1)), None, "it is not the one who fetches");
            assert_eq!(claims.expire(X, at(29)), (None, Some(at(30))));
            let next = match end {
                "give up" => claims.give_up(X, 1, at(30)),
                "gone" => claims.gone(1, at(30)).pop(),
                _ => claims.expire(X, at(30)).0,
            };
            assert_eq!(next, Some('b'), "{end}");
            assert_eq!(claims.ask(X, 4, at(31)), Verdict::Wait(at(60)));
            assert_eq!(claims.end(X), ['c']);
        }
    }

    #[test]
    fn a_claim_whose_time_is_over_goes_to_the_next_who_asks() {
        let mut claims = Claims::new(TIME);
        claims.ask(X, 1, at(0));
        assert_eq!(claims.wait(X, 2, 'b', at(31)), Verdict::Fetch);
        assert_eq!(claims.give_up(X, 1, at(32)), None);
        assert!(claims.gone(1, at(32)).is_empty());
        assert_eq!(claims.ask(X, 3, at(33)), Verdict::Wait(at(61)));
    }

    proptest! {
        /// Whoever waits is told once, and while somebody waits somebody fetches.
        #[test]
        fn nobody_waits_for_nobody(
            steps in prop::collection::vec((0u8..6, 0u128..3, 0u64..4, 0u64..20), 1..200),
        ) {
            let mut claims = Claims::new(TIME);
            let (mut now, mut waiter) = (Duration::ZERO, 0u64);
            let mut waiting: HashMap<u64, (u128, u64)> = HashMap::new();
            let mut fetching: HashSet<(u128, u64)> = HashSet::new();
            for (step, name, client, pause) in steps {
                let id = PayloadId(name);
                now += Duration::from_secs(pause);
                let mut told = Vec::new();
                match step {
                    0 | 1 => {
                        waiter += 1;
                        match claims.wait(id, client, waiter, now) {
                            Verdict::Fetch => drop(fetching.insert((name, client))),
                            Verdict::Wait(end) => {
                                prop_assert!(end > now);
                                waiting.insert(waiter, (name, client));
                            }
                        }
                    }
                    2 => {
                        let ended = claims.end(id);
                        for waiter in ended {
                            prop_assert_eq!(waiting.remove(&waiter).map(|(of, _)| of), Some(name));
                        }
                        prop_assert!(waiting.values().all(|(of, _)| *of != name));
                    }
                    3 => told.extend(claims.give_up(id, client, now)),
                    4 => {
                        waiting.retain(|_, (_, of)| *of != client);
                        fetching.retain(|(_, of)| *of != client);
                        told.extend(claims.gone(client, now));
                    }
                    _ => told.extend(claims.expire(id, now).0),
                }
                for waiter in told {
                    let told = waiting.remove(&waiter);
                    prop_assert!(told.is_some(), "it was told twice, or is gone");
                    fetching.extend(told);
                }
                for (name, _) in waiting.values() {
                    let holder = claims.held.get(&PayloadId(*name)).map(|claim| claim.holder);
                    prop_assert!(holder.is_some_and(|holder| fetching.contains(&(*name, holder))));
                }
            }
            for client in 0..4 {
                claims.gone(client, now);
            }
            prop_assert!(claims.is_empty() && claims.by_client.is_empty());
        }
    }
}
