//! How a long list of keys is read from many places at once: a pure machine that cuts a key space into parts.
//!
//! Stores give keys in order, a page at a time, and begin behind any key. One listing is one request after the other;
//! [`Listing`] cuts what lies ahead into [`Part`]s that are listed side by side. Parts tile the key space, so no cut can
//! lose or double a key: a wrong guess about where keys lie costs one request with an empty answer. Where to cut is
//! in [`cut`]. Who asks, and holds keys and tokens of pages, is in `forebay_store::listing`.
//!
//! It begins gently: the number of requests in flight is at most twice the pages that held keys, so a short listing
//! costs few requests too many. And it stops guessing while more requests brought nothing than pages brought keys.

mod cut;
#[cfg(test)]
mod tests;

use cut::Alphabet;

/// One stretch of the keys: behind one key, up to another and including it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it began.
    start: String,
    /// The first key seen; where it began before the first page.
    first: String,
    /// The last key seen; where it began before the first page.
    front: String,
    /// The last key that may belong to it; `None` reaches to the end of the prefix.
    until: Option<String>,
    /// Keys seen in it.
    keys: u64,
    /// The depth, in bytes, to which the first and the last key of its latest page are alike.
    alike: usize,
    state: State,
    /// The part behind it.
    next: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Asked,
    Done,
}

impl Part {
    /// The key behind which it begins; empty for the beginning of the prefix.
    pub fn start(&self) -> &str {
        &self.start
    }

    /// Whether a key that comes behind its start belongs to it and not to a later part.
    pub fn holds(&self, key: &str) -> bool {
        self.until.as_deref().is_none_or(|until| key <= until)
    }
}

/// What a page held, as the machine needs to know it.
#[derive(Clone, Copy, Debug)]
pub struct PageSeen<'a> {
    /// The first key, whoever it belongs to.
    pub first: Option<&'a str>,
    /// The last key, whoever it belongs to.
    pub last: Option<&'a str>,
    /// How many keys there were.
    pub keys: usize,
    /// Whether the server has more.
    pub has_more: bool,
}

/// A listing of all keys with one prefix, in parts.
#[derive(Debug)]
pub struct Listing {
    prefix: String,
    parts: Vec<Part>,
    /// Most requests in flight.
    most: usize,
    in_flight: usize,
    /// Pages that brought keys of their part.
    pages: usize,
    /// Pages that brought none.
    in_vain: usize,
    /// Keys of the longest page.
    page_keys: usize,
    alphabet: Alphabet,
}

impl Listing {
    /// One part, nothing asked. At most `most` requests will be in flight.
    pub fn new(prefix: &str, most: usize) -> Self {
        let whole = Part {
            start: String::new(),
            first: String::new(),
            front: String::new(),
            until: None,
            keys: 0,
            alike: 0,
            state: State::Waiting,
            next: None,
        };
        Self {
            prefix: prefix.to_owned(),
            parts: vec![whole],
            most: most.max(1),
            in_flight: 0,
            pages: 0,
            in_vain: 0,
            page_keys: 1,
            alphabet: Alphabet::default(),
        }
    }

    /// The number of a part whose next page is to be asked for now; `None` while nothing more may be in flight.
    pub fn ask(&mut self) -> Option<usize> {
        let allowed = self.most.min((2 * self.pages).max(1));
        if self.in_flight >= allowed {
            return None;
        }
        // Where keys lie oddly, cuts are mostly wrong: then it goes on where it stands.
        if self.waiting().is_none() && self.in_vain <= self.pages + 2 * self.most {
            self.cut_ahead(allowed - self.in_flight);
        }
        let number = self.waiting()?;
        self.parts[number].state = State::Asked;
        self.in_flight += 1;
        Some(number)
    }

    /// Takes note of the page that a part was asked for. Keys that it does not hold are another part's.
    ///
    /// # Panics
    ///
    /// When the part was not asked.
    pub fn answered(&mut self, number: usize, page: PageSeen<'_>) {
        assert_eq!(self.parts[number].state, State::Asked, "an answer belongs to a part that was asked");
        self.in_flight -= 1;
        if page.first.is_some_and(|first| self.parts[number].holds(first)) {
            self.pages += 1;
        } else {
            self.in_vain += 1;
        }
        self.page_keys = self.page_keys.max(page.keys);
        for key in [page.first, page.last].into_iter().flatten() {
            self.alphabet.learn(key.get(self.prefix.len()..).unwrap_or_default());
        }
        let part = &mut self.parts[number];
        if let (Some(first), Some(last)) = (page.first, page.last) {
            part.alike = cut::alike(first, last);
            if part.keys == 0 {
                first.clone_into(&mut part.first);
            }
            last.clone_into(&mut part.front);
        }
        part.keys += page.keys as u64;
        let ends = !page.has_more || !part.holds(&part.front) || part.until.as_deref() == Some(&part.front);
        part.state = if ends { State::Done } else { State::Waiting };
    }

    /// Also learn which characters keys are made of from this one: a few of each page are enough.
    pub fn learn(&mut self, key: &str) {
        self.alphabet.learn(key.get(self.prefix.len()..).unwrap_or_default());
    }

    /// A part by its number.
    ///
    /// # Panics
    ///
    /// When [`Self::ask`] never gave the number.
    pub fn part(&self, number: usize) -> &Part {
        &self.parts[number]
    }

    /// Whether there is more than one part.
    pub fn is_cut(&self) -> bool {
        self.parts.len() > 1
    }

    /// Whether every part has come to its end.
    pub fn is_done(&self) -> bool {
        self.parts.iter().all(|part| part.state == State::Done)
    }

    /// The numbers of all parts in the order of their keys.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(0), |number| self.parts[*number].next)
    }

    /// The first part that could be asked.
    fn waiting(&self) -> Option<usize> {
        self.order().find(|number| self.parts[*number].state == State::Waiting)
    }

    /// Cuts parts that have most before them, so that up to `count` more can be asked.
    fn cut_ahead(&mut self, count: usize) {
        let mut long: Vec<(f64, usize)> = Vec::new();
        for number in 0..self.parts.len() {
            let ahead = self.ahead(&self.parts[number]);
            // What the page in flight will bring needs no second request.
            if ahead > 1.5 * self.page_keys as f64 {
                long.push((ahead, number));
            }
        }
        long.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let all: f64 = long.iter().map(|(ahead, _)| ahead).sum();
        let mut left = count;
        for (ahead, number) in long {
            if left == 0 {
                break;
            }
            let share = ((count as f64 * ahead / all).ceil() as usize).clamp(1, left);
            let part = &self.parts[number];
            let between = cut::Between {
                prefix: self.prefix.len(),
                front: &part.front,
                until: part.until.as_deref(),
                deepest: part.alike,
            };
            let cuts = between.cuts(share, &self.alphabet);
            left -= cuts.len().min(left);
            self.cut(number, cuts);
        }
    }

    /// How many keys a part may have before it, by what it had so far; 0 when it is not to be cut.
    fn ahead(&self, part: &Part) -> f64 {
        // Of a part without keys nothing is known yet.
        if part.state == State::Done || part.keys == 0 {
            return 0.0;
        }
        let base =
            part.until.as_ref().map_or(0, |until| cut::alike(&part.first, until)).max(self.prefix.len());
        let place = |key: &str| self.alphabet.place(key.get(base..).unwrap_or_default());
        let (first, front) = (place(&part.first), place(&part.front));
        let until = part.until.as_deref().map_or(1.0, place);
        let behind = (front - first).max(1e-12);
        part.keys as f64 * ((until - front).max(0.0) / behind)
    }

    /// Cuts a part at ascending keys, each the start of a new part.
    fn cut(&mut self, number: usize, cuts: Vec<String>) {
        for start in cuts.into_iter().rev() {
            let behind = Part {
                first: start.clone(),
                front: start.clone(),
                until: self.parts[number].until.replace(start.clone()),
                start,
                keys: 0,
                alike: 0,
                state: State::Waiting,
                next: self.parts[number].next,
            };
            self.parts[number].next = Some(self.parts.len());
            self.parts.push(behind);
        }
    }
}
