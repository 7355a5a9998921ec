//! Where the keys ahead of a listing are cut, when nobody knows where they lie.
//!
//! Behind a key `f` lie the keys that part from it at some depth with a higher character. Keys of one folder differ
//! deep, folders differ early, hashes differ at the first character: so every depth gets a share of the cuts, and the
//! early ones, behind which more may lie, a larger share. At one depth the characters that were seen in keys so far are
//! the places to cut. A character that no key has had stays in the part before it.

use std::collections::BTreeSet;

/// Share of a depth over that of the depth before it.
const DEEPER: f64 = 0.5;

/// The characters that keys are made of, as far as they were seen. Of digits one stands for all.
#[derive(Debug, Default)]
pub(super) struct Alphabet {
    seen: BTreeSet<char>,
}

impl Alphabet {
    pub(super) fn learn(&mut self, text: &str) {
        for character in text.chars() {
            if self.seen.insert(character) && character.is_ascii_digit() {
                self.seen.extend('0'..='9');
            }
        }
    }

    /// Where a text lies among all, from 0 to 1, as if each character were as likely as the other.
    pub(super) fn place(&self, text: &str) -> f64 {
        let base = self.seen.len() as f64 + 2.0;
        let (mut place, mut unit) = (0.0, 1.0);
        for character in text.chars().take(8) {
            unit /= base;
            place += unit * (self.seen.range(..character).count() as f64 + 1.0);
        }
        place
    }
}

/// The keys between a front and an end.
pub(super) struct Between<'a> {
    /// Bytes that all keys begin with.
    pub(super) prefix: usize,
    pub(super) front: &'a str,
    pub(super) until: Option<&'a str>,
    /// Cuts below this depth, in bytes, would lie inside one page.
    pub(super) deepest: usize,
}

impl Between<'_> {
    /// At most `count` keys, ascending, between front and end and neither of them.
    pub(super) fn cuts(&self, count: usize, alphabet: &Alphabet) -> Vec<String> {
        let shared = self.until.map_or(0, |until| alike(self.front, until)).max(self.prefix);
        let Some(rest) = self.front.get(shared..) else { return Vec::new() };
        // Each with its weight, in descending order of keys: the earliest depth parts farthest from the front.
        let mut places: Vec<(String, f64)> = Vec::new();
        let mut weight = 1.0;
        for (at, character) in rest.char_indices() {
            let depth = shared + at;
            if depth >= self.deepest.max(shared) && !places.is_empty() {
                break;
            }
            let higher: Vec<String> = higher(character, alphabet)
                .into_iter()
                .map(|higher| format!("{}{higher}", &self.front[..depth]))
                .filter(|cut| self.until.is_none_or(|until| cut.as_str() < until))
                .collect();
            if higher.is_empty() {
                continue;
            }
            let each = weight / higher.len() as f64;
            places.extend(higher.into_iter().rev().map(|cut| (cut, each)));
            weight *= DEEPER;
        }
        if places.len() <= count {
            return places.into_iter().rev().map(|(cut, _)| cut).collect();
        }
        places.reverse();
        let whole: f64 = places.iter().map(|(_, weight)| weight).sum();
        let mut chosen = Vec::with_capacity(count);
        let (mut before, mut taken) = (0.0, 0);
        for (cut, weight) in places {
            before += weight;
            let due = ((before / whole * count as f64) + 0.5).floor() as usize;
            if due > taken && chosen.len() < count {
                chosen.push(cut);
            }
            taken = taken.max(due);
        }
        chosen
    }
}

/// The known characters above one; when there is none, the one that follows it.
fn higher(character: char, alphabet: &Alphabet) -> Vec<char> {
    let known: Vec<char> = alphabet
        .seen
        .range((std::ops::Bound::Excluded(character), std::ops::Bound::Unbounded))
        .copied()
        .collect();
    if known.is_empty() { (character..=char::MAX).nth(1).into_iter().collect() } else { known }
}

/// Bytes, up to a character's boundary, that two keys have in common at their beginning.
pub(super) fn alike(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    same.map(|(character, _)| character.len_utf8()).sum()
}
