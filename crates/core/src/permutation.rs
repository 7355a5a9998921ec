//! A keyed permutation of `0..n` that is looked up, never stored.
//!
//! A Feistel network on Z_a x Z_b with `a = ceil(sqrt(n))` and `b` the even number from `n / a` on: each round adds
//! a keyed hash of one half to the other, modulo that half's size. The domain `a * b` exceeds `n` by less than `2a`,
//! so walking a cycle past the few values outside is rare, and a lookup costs a handful of multiplications whatever `n` is.
//! The mapping is part of what "order does not change between releases" promises: golden values are in the tests.

use crate::rng::mix64;

/// Most rounds that any length uses.
const MAX_ROUNDS: usize = 24;

/// Rounds of the network. Small halves mix slowly: with 8 rounds the 720 orders of six values are visibly uneven
/// (chi-square 49 times its expectation), with 16 barely, with 24 not. Large halves are mixed well by 8.
fn rounds(len: u64) -> usize {
    match len {
        0..=64 => MAX_ROUNDS,
        65..=4096 => 12,
        _ => 8,
    }
}

/// A bijection on `0..len`, chosen by a 64-bit key.
#[derive(Clone, Debug)]
pub struct Permutation {
    len: u64,
    a: u64,
    b: u64,
    keys: [u64; MAX_ROUNDS],
    rounds: usize,
}

impl Permutation {
    /// The permutation of `0..len` that belongs to `key`. Lengths up to 2^62.
    ///
    /// # Panics
    /// When `len` is above 2^62, which no manifest can hold.
    pub fn new(len: u64, key: u64) -> Self {
        assert!(len <= 1 << 62, "a permutation of {len} values is beyond any dataset");
        let a = len.isqrt() + u64::from(len.isqrt().pow(2) < len);
        let a = a.max(1);
        // An even half: adding to an odd one is an even permutation, and half of all orders would never come up.
        let b = len.div_ceil(a).next_multiple_of(2).max(2);
        let rounds = rounds(len);
        let mut keys = [0; MAX_ROUNDS];
        let mut state = key;
        for slot in &mut keys[..rounds] {
            state = mix64(state);
            *slot = state;
        }
        Self { len, a, b, keys, rounds }
    }

    /// How many values are permuted.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is nothing to permute.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `index`.
    pub fn at(&self, index: u64) -> u64 {
        debug_assert!(index < self.len, "index {index} is outside a permutation of {}", self.len);
        let mut value = self.forward(index);
        while value >= self.len {
            value = self.forward(value);
        }
        value
    }

    /// The index at which `value` stands: the inverse of [`Self::at`].
    pub fn index_of(&self, value: u64) -> u64 {
        debug_assert!(value < self.len, "value {value} is outside a permutation of {}", self.len);
        let mut index = self.backward(value);
        while index >= self.len {
            index = self.backward(index);
        }
        index
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value / self.b, value % self.b);
        for pair in self.keys[..self.rounds].chunks_exact(2) {
            left = add(left, hash(right, pair[0], self.a), self.a);
            right = add(right, hash(left, pair[1], self.b), self.b);
        }
        left * self.b + right
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value / self.b, value % self.b);
        for pair in self.keys[..self.rounds].chunks_exact(2).rev() {
            right = add(right, self.b - hash(left, pair[1], self.b), self.b);
            left = add(left, self.a - hash(right, pair[0], self.a), self.a);
        }
        left * self.b + right
    }
}

/// A keyed hash of `half`, uniform in `0..modulus`.
fn hash(half: u64, key: u64, modulus: u64) -> u64 {
    let mut z = half.wrapping_add(key).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 29;
    ((u128::from(z) * u128::from(modulus)) >> 64) as u64
}

/// Sum modulo `modulus` of a value below it and one up to it.
fn add(value: u64, term: u64, modulus: u64) -> u64 {
    let sum = value + term;
    if sum >= modulus { sum - modulus } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_value_appears_once_and_the_inverse_finds_it(len in 0u64..3000, key: u64) {
            let permutation = Permutation::new(len, key);
            let mut seen = vec![false; len as usize];
            for index in 0..len {
                let value = permutation.at(index);
                prop_assert!(!std::mem::replace(&mut seen[value as usize], true));
                prop_assert_eq!(permutation.index_of(value), index);
            }
        }

        #[test]
        fn huge_domains_stay_in_range_and_invert(len in 1u64..=(1 << 62), key: u64, at: u64) {
            let permutation = Permutation::new(len, key);
            let value = permutation.at(at % len);
            prop_assert!(value < len);
            prop_assert_eq!(permutation.index_of(value), at % len);
        }
    }

    /// Over many keys each of the n! orders of a small domain must be equally likely.
    #[test]
    fn small_domains_reach_every_order_equally_often() {
        for len in 2u64..=7 {
            let orders: u64 = (1..=len).product();
            let draws = orders * 400;
            let mut counts = std::collections::HashMap::new();
            for key in 0..draws {
                let permutation = Permutation::new(len, mix64(key));
                let order: Vec<u64> = (0..len).map(|i| permutation.at(i)).collect();
                *counts.entry(order).or_insert(0u64) += 1;
            }
            assert_eq!(counts.len() as u64, orders, "not every order of {len} values was reached");
            let chi: f64 = counts.values().map(|c| (*c as f64 - 400.0).powi(2) / 400.0).sum();
            let freedom = (orders - 1) as f64;
            let limit = freedom + 4.0 * (2.0 * freedom).sqrt() + 6.0;
            assert!(
                chi < limit,
                "chi-square {chi:.1} over {freedom} degrees for {len} values (limit {limit:.1})"
            );
        }
    }

    /// The value at a fixed index is uniform over keys, and neighbours do not stay neighbours.
    #[test]
    fn large_domains_look_random() {
        let len = 1000;
        let mut counts = [0u32; 10];
        let mut neighbours = 0;
        for key in 0..20_000 {
            let permutation = Permutation::new(len, mix64(key));
            counts[(permutation.at(17) / 100) as usize] += 1;
            neighbours += u32::from(permutation.at(18).abs_diff(permutation.at(17)) == 1);
        }
        let chi: f64 = counts.iter().map(|c| (f64::from(*c) - 2000.0).powi(2) / 2000.0).sum();
        assert!(chi < 27.9, "chi-square {chi}");
        // Expected 2/1000 of the keys: 40.
        assert!((10..=90).contains(&neighbours), "{neighbours} keys kept neighbours together");
    }

    #[test]
    fn the_order_never_changes_between_releases() {
        let order: Vec<u64> = (0..10).map(|i| Permutation::new(10, 42).at(i)).collect();
        assert_eq!(order, GOLDEN_TEN);
        assert_eq!(Permutation::new(100_000_000, 7).at(12_345_678), GOLDEN_LARGE);
    }

    const GOLDEN_TEN: [u64; 10] = [9, 0, 1, 7, 3, 6, 4, 2, 8, 5];
    const GOLDEN_LARGE: u64 = 62_636_477;
}
