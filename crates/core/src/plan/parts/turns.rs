//! Whose turn a position is: chunks of every part in turn while they last, then what is left of each part.
//!
//! A part with more whole chunks than the others goes on with those that have as many. Parts of equal length (to a
//! chunk) drop out together, so the turns fall into stretches with the same parts in each.

/// The interleaving of parts of known lengths.
#[derive(Debug)]
pub(super) struct Turns {
    chunk: u64,
    stretches: Vec<Stretch>,
    /// Whole chunks of each part.
    chunks: Vec<u64>,
    /// Position at which the rest of each part begins, and the end.
    rests: Vec<u64>,
}

/// Rounds of turns in which the same parts take part.
#[derive(Debug)]
struct Stretch {
    first_round: u64,
    /// Chunks of all parts before it.
    first_chunk: u64,
    /// Ascending.
    parts: Vec<u32>,
}

impl Turns {
    /// `chunk` is at least 1.
    pub(super) fn new(lens: &[u64], chunk: u64) -> Self {
        let chunks: Vec<u64> = lens.iter().map(|len| len / chunk).collect();
        let mut ends: Vec<u64> = chunks.iter().copied().filter(|chunks| *chunks > 0).collect();
        ends.sort_unstable();
        ends.dedup();
        let (mut first_round, mut first_chunk) = (0, 0);
        let mut stretches = Vec::with_capacity(ends.len());
        for end in ends {
            let parts: Vec<u32> =
                (0u32..).zip(&chunks).filter(|(_, chunks)| **chunks > first_round).map(|(p, _)| p).collect();
            let taken = (end - first_round) * parts.len() as u64;
            stretches.push(Stretch { first_round, first_chunk, parts });
            (first_round, first_chunk) = (end, first_chunk + taken);
        }
        let mut rests = vec![first_chunk * chunk];
        for (part, len) in lens.iter().enumerate() {
            rests.push(rests[part] + len % chunk);
        }
        Self { chunk, stretches, chunks, rests }
    }

    /// The part that a position belongs to, and its place there.
    pub(super) fn at(&self, position: u64) -> (u32, u64) {
        if position >= self.rests[0] {
            let part = self.rests.partition_point(|first| *first <= position) - 1;
            // A part without a rest begins where the next does, so the last one that begins there is meant.
            let part = part.min(self.chunks.len() - 1);
            return (part as u32, self.chunks[part] * self.chunk + position - self.rests[part]);
        }
        let (number, within) = (position / self.chunk, position % self.chunk);
        let stretch = self.stretches.partition_point(|stretch| stretch.first_chunk <= number) - 1;
        let Stretch { first_round, first_chunk, parts } = &self.stretches[stretch];
        let (turn, count) = (number - first_chunk, parts.len() as u64);
        (parts[(turn % count) as usize], (first_round + turn / count) * self.chunk + within)
    }

    /// The position of a place in a part: the inverse of [`Self::at`].
    pub(super) fn position(&self, part: u32, place: u64) -> u64 {
        let (round, within) = (place / self.chunk, place % self.chunk);
        if round >= self.chunks[part as usize] {
            return self.rests[part as usize] + within;
        }
        let stretch = self.stretches.partition_point(|stretch| stretch.first_round <= round) - 1;
        let Stretch { first_round, first_chunk, parts } = &self.stretches[stretch];
        let turn = parts.partition_point(|other| *other < part) as u64;
        (first_chunk + (round - first_round) * parts.len() as u64 + turn) * self.chunk + within
    }
}
