//! Elections in virtual time: candidates with clocks of different speed that are stopped, cut off and killed, beside a
//! model of the one key under a lease. Never may two answer, and somebody always leads again in time.

use super::*;
use crate::rng::Rng;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How often the model looks for leases that lapsed, as etcd does.
const SWEEP_MS: u64 = 500;
/// After this a candidate takes a call as unanswered.
const PATIENCE_MS: u64 = 700;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    /// A candidate's time to act has come.
    Acts(usize),
    /// A call arrives at the model.
    Arrives(usize),
    /// An answer arrives, or patience ends.
    Heard(usize),
    Sweep,
    /// A candidate is stopped, until then.
    Stops(usize, u64),
    Dies(usize),
    /// No call arrives, until then.
    Cut(u64),
}

#[derive(Clone, Copy)]
struct Call {
    one: usize,
    act: Act,
    asked: u64,
    /// The lease that is renewed. A campaign is for the lease with its own number.
    lease: usize,
    news: News,
}

struct Candidate {
    election: Election,
    /// Its clock runs at this speed, in thousandths.
    speed: u64,
    /// The call that it waits for.
    call: Option<usize>,
    /// Its last campaign.
    lease: usize,
    stopped_until: u64,
    dead: bool,
}

struct World {
    now: u64,
    candidates: Vec<Candidate>,
    calls: Vec<Call>,
    due: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    count: u64,
    /// Who has the key, under which lease, and when that lapses.
    key: Option<(usize, usize, u64)>,
    cut_until: u64,
    chance: Rng,
    delay_ms: u64,
    losses: bool,
    /// Since when nobody leads who lives, and for how long that was so at most.
    vacant_since: Option<u64>,
    longest_vacant: u64,
}

impl World {
    fn new(seed: u64, candidates: usize, delay_ms: u64, losses: bool) -> Self {
        let mut chance = Rng::keyed(seed, 0, 0);
        let mut candidate = || Candidate {
            election: Election::new(Times::default(), 0),
            speed: 950 + chance.below(101),
            call: None,
            lease: usize::MAX,
            stopped_until: 0,
            dead: false,
        };
        let mut world = Self {
            now: 0,
            candidates: (0..candidates).map(|_| candidate()).collect(),
            calls: Vec::new(),
            due: BinaryHeap::new(),
            count: 0,
            key: None,
            cut_until: 0,
            chance,
            delay_ms,
            losses,
            vacant_since: Some(0),
            longest_vacant: 0,
        };
        for one in 0..candidates {
            world.put(0, Happens::Acts(one));
        }
        world.put(SWEEP_MS, Happens::Sweep);
        world
    }

    fn put(&mut self, at: u64, what: Happens) {
        self.count += 1;
        self.due.push(Reverse((at, self.count, what)));
    }

    fn clock(&self, one: usize) -> u64 {
        self.now * self.candidates[one].speed / 1000
    }

    fn answers(&self, one: usize) -> bool {
        let Candidate { election, dead, .. } = &self.candidates[one];
        !dead && election.answers_until().is_some_and(|until| self.clock(one) < until)
    }

    fn delay(&mut self) -> u64 {
        self.chance.below(self.delay_ms) + 1
    }

    fn run(&mut self, until: u64) {
        while self.due.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, what))) = self.due.pop() else { break };
            self.now = at;
            self.happen(what);
            let answering: Vec<usize> = (0..self.candidates.len()).filter(|one| self.answers(*one)).collect();
            assert!(answering.len() <= 1, "{answering:?} answer at {at}");
            for one in answering {
                assert_eq!(self.key.map(|(holder, ..)| holder), Some(one), "who answers at {at} has the key");
            }
        }
    }

    fn happen(&mut self, what: Happens) {
        let one = match what {
            Happens::Acts(one) => one,
            Happens::Heard(call) => self.calls[call].one,
            Happens::Arrives(call) => return self.arrive(call),
            Happens::Sweep => {
                if self.key.is_some_and(|(.., until)| until <= self.now) {
                    self.key = None;
                    self.vacant_since.get_or_insert(self.now);
                }
                return self.put(self.now + SWEEP_MS, Happens::Sweep);
            }
            Happens::Stops(one, until) => return self.candidates[one].stopped_until = until,
            Happens::Dies(one) => {
                if self.key.is_some_and(|(holder, ..)| holder == one) {
                    self.vacant_since = Some(self.now);
                }
                return self.candidates[one].dead = true;
            }
            Happens::Cut(until) => return self.cut_until = until,
        };
        let Candidate { dead, stopped_until, call, .. } = self.candidates[one];
        if dead {
            return;
        }
        if stopped_until > self.now {
            return self.put(stopped_until, what);
        }
        match what {
            Happens::Acts(_) => self.act(one),
            Happens::Heard(heard) if call == Some(heard) => {
                let (clock, Call { act, news, .. }) = (self.clock(one), self.calls[heard]);
                let candidate = &mut self.candidates[one];
                // What comes later of the same call is not waited for any more.
                candidate.call = None;
                if act == Act::Campaign {
                    candidate.lease = heard;
                }
                candidate.election.hear(clock, news);
                self.put(self.now, Happens::Acts(one));
            }
            _ => {}
        }
    }

    fn act(&mut self, one: usize) {
        let (act, at) = self.candidates[one].election.next();
        let asked = self.clock(one);
        if at > asked {
            let wait = (at - asked) * 1000 / self.candidates[one].speed + 1;
            return self.put(self.now + wait, Happens::Acts(one));
        }
        let (call, lease) = (self.calls.len(), self.candidates[one].lease);
        self.calls.push(Call { one, act, asked, lease, news: News::Silent });
        self.candidates[one].call = Some(call);
        let delay = self.delay();
        self.put(self.now + delay, Happens::Arrives(call));
        self.put(self.now + PATIENCE_MS, Happens::Heard(call));
    }

    fn arrive(&mut self, call: usize) {
        let lost = self.losses && self.chance.below(4) == 0;
        if self.cut_until > self.now || lost {
            return;
        }
        let lease_ms = Times::default().lease_ms;
        let Call { one, act, asked, lease, .. } = self.calls[call];
        let end = self.now + lease_ms;
        let news = match (act, self.key) {
            (Act::Look, None) => News::Vacant,
            // Made by a campaign of ours whose answer was lost.
            (Act::Look, Some((_, held, _))) if held == lease => {
                News::Won { asked: self.calls[lease].asked, lease_ms }
            }
            (Act::Look | Act::Campaign, Some(_)) => News::Led,
            (Act::Campaign, None) => {
                self.key = Some((one, call, end));
                if let Some(since) = self.vacant_since.take() {
                    self.longest_vacant = self.longest_vacant.max(self.now - since);
                }
                News::Won { asked, lease_ms }
            }
            (Act::Renew, Some((_, held, _))) if held == lease => {
                self.key = Some((one, held, end));
                News::Renewed { asked, lease_ms }
            }
            (Act::Renew, _) => News::Gone,
        };
        let answer_lost = self.losses && self.chance.below(4) == 0;
        if !answer_lost {
            self.calls[call].news = news;
            let delay = self.delay();
            self.put(self.now + delay, Happens::Heard(call));
        }
    }
}

proptest! {
    #[test]
    fn never_do_two_answer_whatever_is_stopped_cut_off_or_lost(
        seed: u64,
        candidates in 1..5usize,
        delay_ms in 1..900u64,
        troubles in prop::collection::vec((0..60_000u64, 0..5usize, 0..9000u64, 0..3u8), 0..24),
    ) {
        let mut world = World::new(seed, candidates, delay_ms, true);
        for (at, one, long, kind) in troubles {
            let one = one % candidates;
            world.put(at, match kind {
                0 => Happens::Cut(at + long),
                1 if one > 0 => Happens::Dies(one),
                _ => Happens::Stops(one, at + long),
            });
        }
        world.run(70_000);
    }

    #[test]
    fn another_one_leads_within_five_seconds_of_a_leaders_death(
        seed: u64,
        candidates in 2..5usize,
        delay_ms in 1..100u64,
        dies_at in 2000..9000u64,
    ) {
        let mut world = World::new(seed, candidates, delay_ms, false);
        world.run(dies_at);
        let leader = (0..candidates).find(|one| world.answers(*one)).expect("somebody leads by now");
        world.longest_vacant = 0;
        world.put(dies_at, Happens::Dies(leader));
        world.run(dies_at + 20_000);
        prop_assert!((1..5000).contains(&world.longest_vacant), "{} ms", world.longest_vacant);
        prop_assert!((0..candidates).any(|one| one != leader && world.answers(one)));
    }
}

#[test]
fn a_leader_counts_from_the_asking_and_falls_silent_in_time() {
    let mut election = Election::new(Times::default(), 0);
    assert_eq!(election.next(), (Act::Look, 0));
    election.hear(10, News::Vacant);
    assert_eq!(election.next(), (Act::Campaign, 10));
    election.hear(900, News::Won { asked: 10, lease_ms: 3000 });
    assert_eq!((election.next(), election.answers_until()), ((Act::Renew, 760), Some(2710)));
    election.hear(1000, News::Silent);
    assert_eq!((election.next(), election.answers_until()), ((Act::Renew, 1050), Some(2710)));
    // Renewed long after it fell silent: the lease was there all the time, so nobody else led meanwhile.
    election.hear(9000, News::Renewed { asked: 8000, lease_ms: 3000 });
    assert_eq!(election.answers_until(), Some(10_700));
    election.hear(9100, News::Gone);
    assert_eq!((election.next(), election.answers_until()), ((Act::Look, 9100), None));
    election.hear(9200, News::Led);
    assert_eq!(election.next(), (Act::Look, 9450));
}
