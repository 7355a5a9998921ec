use super::*;
use crate::rng::{Rng, mix64};
use proptest::prelude::*;

/// A server: sorted keys, pages of some length, and what it was asked for.
struct Server {
    keys: Vec<String>,
    page: usize,
    requests: usize,
}

impl Server {
    fn new(mut keys: Vec<String>, page: usize) -> Self {
        keys.sort_unstable();
        keys.dedup();
        Self { keys, page, requests: 0 }
    }

    /// The keys of the page behind `after`, and whether there are more.
    fn page(&mut self, after: &str) -> (std::ops::Range<usize>, bool) {
        self.requests += 1;
        let from = self.keys.partition_point(|key| key.as_str() <= after);
        let to = self.keys.len().min(from + self.page);
        (from..to, to < self.keys.len())
    }
}

/// Lists all keys; `pick` draws which of the requests in flight is answered next. Returns the keys in the order of the
/// parts, and the most requests that were in flight.
fn list(
    server: &mut Server,
    prefix: &str,
    most: usize,
    mut pick: impl FnMut(usize) -> usize,
) -> (Vec<String>, usize) {
    let mut listing = Listing::new(prefix, most);
    let (mut flight, mut deepest) = (Vec::new(), 0);
    let mut parts: Vec<(Option<String>, Vec<String>)> = Vec::new();
    loop {
        while let Some(number) = listing.ask() {
            parts.resize_with(parts.len().max(number + 1), Default::default);
            flight.push(number);
        }
        deepest = deepest.max(flight.len());
        if flight.is_empty() {
            break;
        }
        let number = flight.swap_remove(pick(flight.len()));
        let after = parts[number].0.clone().unwrap_or_else(|| listing.part(number).start().to_owned());
        let (range, has_more) = server.page(&after);
        let page = &server.keys[range];
        let (first, last) = (page.first().map(String::as_str), page.last().map(String::as_str));
        listing.answered(number, PageSeen { first, last, keys: page.len(), has_more });
        page.iter().step_by((page.len() / 8).max(1)).for_each(|key| listing.learn(key));
        parts[number].0 = last.map(str::to_owned).or(Some(after));
        let part = listing.part(number);
        parts[number].1.extend(page.iter().filter(|key| part.holds(key)).cloned());
    }
    assert!(listing.is_done());
    let found = listing.order().flat_map(|number| parts[number].1.clone()).collect();
    (found, deepest)
}

/// Requests one after the other, when each round of requests takes as long as one of them.
fn rounds(server: &mut Server, prefix: &str, most: usize) -> usize {
    // In the order of their asking, each round is answered before the next: a queue.
    let mut listing = Listing::new(prefix, most);
    let mut places: Vec<Option<String>> = Vec::new();
    let (mut rounds, mut keys) = (0, 0);
    loop {
        let mut round = Vec::new();
        while let Some(number) = listing.ask() {
            places.resize(places.len().max(number + 1), None);
            round.push(number);
        }
        assert!(round.len() <= most);
        if round.is_empty() {
            assert_eq!(keys, server.keys.len());
            return rounds;
        }
        rounds += 1;
        for number in round {
            let after = places[number].clone().unwrap_or_else(|| listing.part(number).start().to_owned());
            let (range, has_more) = server.page(&after);
            let page = &server.keys[range];
            let (first, last) = (page.first().map(String::as_str), page.last().map(String::as_str));
            listing.answered(number, PageSeen { first, last, keys: page.len(), has_more });
            page.iter().step_by((page.len() / 8).max(1)).for_each(|key| listing.learn(key));
            places[number] = last.map(str::to_owned).or(Some(after));
            let part = listing.part(number);
            keys += page.iter().filter(|key| part.holds(key)).count();
        }
    }
}

/// Keys as people name them: numbers, hashes, folders, other alphabets, keys that begin others.
fn name(kind: u8, draw: u64) -> String {
    let hash = mix64(draw);
    match kind % 7 {
        0 => format!("p/{:08}.jpg", draw % 5000),
        1 => format!("p/{hash:016x}"),
        2 => format!("p/n{:03}/n{:03}_{}.JPEG", hash % 40, hash % 40, draw % 3000),
        3 => format!("p/{}", draw % 100_000),
        4 => format!("p/{}/ü{}", ["日本語", "a", "a/b", "é"][hash as usize % 4], draw % 700),
        5 => format!("p/{}", "z".repeat(1 + (hash % 60) as usize)),
        _ => format!("p/\u{1}{}\u{10ffff}{}", hash % 9, draw % 400),
    }
}

proptest! {
    #[test]
    fn every_key_is_found_once_and_in_order_whatever_comes_first(
        kinds in proptest::collection::vec(any::<u8>(), 1..4),
        count in 0usize..2000,
        page in 1usize..40,
        most in 1usize..40,
        seed: u64,
    ) {
        let keys = (0..count as u64).map(|n| name(kinds[n as usize % kinds.len()], mix64(seed ^ n)));
        let mut server = Server::new(keys.collect(), page);
        let mut rng = Rng::keyed(seed, 0, 0);
        let (found, deepest) = list(&mut server, "p/", most, |waiting| rng.below(waiting as u64) as usize);
        prop_assert_eq!(&found, &server.keys);
        prop_assert!(deepest <= most);
        // A wrong cut costs one request, and there are not many more of them than pages with keys.
        let least = server.keys.len().div_ceil(page);
        prop_assert!(server.requests <= 5 * least + 4 * most + 3, "{} requests", server.requests);
    }

    #[test]
    fn cuts_ascend_between_front_and_end(front in "\\PC{0,12}", until in proptest::option::of("\\PC{0,12}"), count in 1usize..50, deepest in 0usize..12) {
        let mut alphabet = Alphabet::default();
        alphabet.learn(&front);
        alphabet.learn("0az");
        let until = until.filter(|until| *until > front);
        let between = cut::Between { prefix: 0, front: &front, until: until.as_deref(), deepest };
        let cuts = between.cuts(count, &alphabet);
        prop_assert!(cuts.len() <= count);
        prop_assert!(cuts.is_sorted_by(|a, b| a < b));
        prop_assert!(cuts.iter().all(|cut| *cut > front && until.as_ref().is_none_or(|until| cut < until)));
    }
}

#[test]
fn a_million_keys_need_a_few_dozen_rounds_however_they_are_named() {
    type Shape = (&'static str, fn(u64) -> String);
    let count = 1_000_000u64;
    let shapes: [Shape; 6] = [
        ("numbers with zeros before", |n| format!("train/{n:08}.jpg")),
        ("plain numbers", |n| format!("train/{n}.jpg")),
        ("hashes", |n| format!("train/{:016x}", mix64(n))),
        ("a long way down", |n| format!("train/of/2026/all/images/image_{n:09}.jpeg")),
        ("folders of classes", |n| {
            let class = mix64(mix64(n) % 1000) % 13_000_000;
            format!("train/n{class:08}/n{class:08}_{n}.JPEG")
        }),
        ("three files to a sample", |n| {
            format!("train/{:05}/{:09}.{}", n / 30_000, n / 3, ["a", "b", "c"][n as usize % 3])
        }),
    ];
    for (shape, key) in shapes {
        let mut server = Server::new((0..count).map(key).collect(), 1000);
        let rounds = rounds(&mut server, "train/", 64);
        assert!(rounds <= 48, "{shape}: {rounds} rounds");
        assert!(server.requests <= 2000, "{shape}: {} requests", server.requests);
    }
}

#[test]
fn a_short_listing_is_asked_for_gently() {
    for (count, requests) in [(0, 1), (1000, 1), (1001, 3), (5000, 20)] {
        let mut server = Server::new((0..count).map(|n| format!("{n:06}")).collect(), 1000);
        rounds(&mut server, "", 64);
        assert!(server.requests <= requests, "{count} keys took {} requests", server.requests);
    }
}

#[test]
fn a_server_that_ends_a_page_early_loses_nothing() {
    let mut listing = Listing::new("", 8);
    let number = listing.ask().unwrap();
    assert_eq!(listing.ask(), None, "the first page tells what more to ask for");
    listing.answered(number, PageSeen { first: None, last: None, keys: 0, has_more: true });
    assert_eq!(listing.ask(), Some(number), "an empty page with more behind it is asked on");
    listing.answered(number, PageSeen { first: Some("a"), last: Some("b"), keys: 2, has_more: false });
    assert!(listing.is_done() && listing.ask().is_none());
}
