//! Which of several dispatchers leads, and until when it may answer: one candidate's part of an election by lease.
//!
//! Somewhere there is one key that whoever leads has put there under a lease. Who finds it missing asks for a lease and
//! tries to make the key; who made it leads for as long as it renews the lease in time. This is a pure machine: it says
//! what to do next and when ([`Election::next`]) and is told what came of it ([`Election::hear`]), with the time of a
//! clock that never goes back and goes on while the process is stopped.
//!
//! A lease begins again when the other side obeys, which is never before it was asked. So it cannot have lapsed before
//! its length has passed since the *asking*, whatever happened to the answer on its way, and a leader that counts from
//! there, less a margin for clocks of different speed, falls silent before anybody else can lead. Sockets, and the
//! comparing of keys that makes late writes of a former leader fail, are in `forebay-net`.

#[cfg(test)]
mod tests;

/// Times of an election, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The lease that is asked for. A leader that died is followed by another after this, and some.
    pub lease_ms: u64,
    /// From one renewal to the next.
    pub renew_ms: u64,
    /// A leader falls silent this long before its lease could lapse. A tenth of the lease is room for clocks whose
    /// speeds differ by a tenth.
    pub margin_ms: u64,
    /// From one look at who leads to the next.
    pub look_ms: u64,
    /// From a renewal that nobody answered to the next try.
    pub retry_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { lease_ms: 3000, renew_ms: 750, margin_ms: 300, look_ms: 250, retry_ms: 50 }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Look who leads.
    Look,
    /// Ask for a lease, and make the key with it unless there is one.
    Campaign,
    /// Renew the lease.
    Renew,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Another one leads.
    Led,
    /// Nobody leads.
    Vacant,
    /// The key is ours, under a lease of this length that was asked for at this time.
    Won {
        /// When the lease was asked for, by our clock.
        asked: u64,
        /// Its length as it was granted.
        lease_ms: u64,
    },
    /// The lease is renewed.
    Renewed {
        /// When that was asked for, by our clock.
        asked: u64,
        /// Its length.
        lease_ms: u64,
    },
    /// Our lease or key is not there any more.
    Gone,
    /// Nobody answered: it may have been done or not.
    Silent,
}

/// One candidate.
#[derive(Clone, Debug)]
pub struct Election {
    times: Times,
    standing: Standing,
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    Standby { act: Act, at: u64 },
    Leader { renew_at: u64, until: u64 },
}

impl Election {
    /// A candidate that looks who leads at once.
    pub fn new(times: Times, now: u64) -> Self {
        Self { times, standing: Standing::Standby { act: Act::Look, at: now } }
    }

    /// What to do next, and not before when.
    pub fn next(&self) -> (Act, u64) {
        match self.standing {
            Standing::Standby { act, at } => (act, at),
            Standing::Leader { renew_at, .. } => (Act::Renew, renew_at),
        }
    }

    /// Whether the key is ours, as far as we know. It may answer only until [`Self::answers_until`].
    pub fn leads(&self) -> bool {
        matches!(self.standing, Standing::Leader { .. })
    }

    /// Until when answers may be given: before this nobody else can lead. None while another one may.
    pub fn answers_until(&self) -> Option<u64> {
        match self.standing {
            Standing::Leader { until, .. } => Some(until),
            Standing::Standby { .. } => None,
        }
    }

    /// Takes in what came of the last act, or that our key was found gone meanwhile.
    pub fn hear(&mut self, now: u64, news: News) {
        let Times { renew_ms, look_ms, retry_ms, .. } = self.times;
        let standby = |act, at| Standing::Standby { act, at };
        self.standing = match (self.standing, news) {
            (_, News::Won { asked, lease_ms }) => {
                Standing::Leader { renew_at: asked + renew_ms, until: self.end_of(asked, lease_ms) }
            }
            (Standing::Leader { until, .. }, News::Renewed { asked, lease_ms }) => Standing::Leader {
                renew_at: asked + renew_ms,
                until: until.max(self.end_of(asked, lease_ms)),
            },
            // It may lead still: nobody knows before the other side answers. Until then time decides what it may say.
            (Standing::Leader { until, .. }, News::Silent) => {
                Standing::Leader { renew_at: now + retry_ms, until }
            }
            (Standing::Leader { .. }, News::Gone) => standby(Act::Look, now),
            (Standing::Standby { .. }, News::Vacant) => standby(Act::Campaign, now),
            // The rest is no news for a leader, and for a standby a reason to look again.
            (leader @ Standing::Leader { .. }, _) => leader,
            (Standing::Standby { .. }, _) => standby(Act::Look, now + look_ms),
        };
    }

    fn end_of(&self, asked: u64, lease_ms: u64) -> u64 {
        asked + lease_ms.saturating_sub(self.times.margin_ms)
    }
}
