//! The discrete Fourier transform of real values, of any length without large prime factors.
//!
//! Several transforms run side by side, one in each lane: every step is then the same arithmetic on whole vectors, and a
//! transform's result does not depend on those beside it.

use std::f64::consts::TAU;

/// Transforms that run side by side.
pub(crate) const LANES: usize = 8;
/// The same value of each of them.
pub(crate) type Lane = [f32; LANES];

/// A plan for one length.
pub(crate) struct Fourier {
    /// Points of the real transform.
    points: usize,
    /// Points of the complex one: half as many when they are even.
    inner: usize,
    /// Its factors, largest steps first.
    factors: Vec<usize>,
    /// Turns by `k / inner`.
    turns: Vec<(f32, f32)>,
    /// Turns by `k / points`, for taking apart the halves of an even length.
    halves: Vec<(f32, f32)>,
}

/// Memory of one thread.
#[derive(Debug, Default)]
pub(crate) struct Space {
    re: Vec<Lane>,
    im: Vec<Lane>,
    other_re: Vec<Lane>,
    other_im: Vec<Lane>,
}

impl Fourier {
    pub(crate) fn new(points: usize) -> Self {
        let inner = if points.is_multiple_of(2) { points / 2 } else { points };
        let turn = |k: usize, n: usize| {
            let angle = -TAU * k as f64 / n as f64;
            (angle.cos() as f32, angle.sin() as f32)
        };
        Self {
            points,
            inner,
            factors: factors(inner),
            turns: (0..inner).map(|k| turn(k, inner)).collect(),
            halves: (0..=inner).map(|k| turn(k, points)).collect(),
        }
    }

    /// Squared magnitudes of the frequencies `0..=points / 2` of real values, of which `value(point)` gives all lanes.
    pub(crate) fn powers(&self, value: impl Fn(usize) -> Lane, space: &mut Space, out: &mut Vec<Lane>) {
        for part in [&mut space.re, &mut space.im, &mut space.other_re, &mut space.other_im] {
            part.resize(self.inner, [0.0; LANES]);
        }
        let is_halved = self.inner < self.points;
        for at in 0..self.inner {
            let odd = if is_halved { value(2 * at + 1) } else { [0.0; LANES] };
            (space.re[at], space.im[at]) = (value(if is_halved { 2 * at } else { at }), odd);
        }
        self.transform(space);
        out.clear();
        let (re, im) = (&space.re, &space.im);
        if !is_halved {
            out.extend(
                (0..=self.points / 2).map(|k| {
                    std::array::from_fn(|lane| re[k][lane] * re[k][lane] + im[k][lane] * im[k][lane])
                }),
            );
            return;
        }
        for (k, (cos, sin)) in self.halves.iter().enumerate() {
            let (a, b) = (k % self.inner, (self.inner - k) % self.inner);
            out.push(std::array::from_fn(|lane| {
                let (even_re, even_im) =
                    (0.5 * (re[a][lane] + re[b][lane]), 0.5 * (im[a][lane] - im[b][lane]));
                let (odd_re, odd_im) = (0.5 * (im[a][lane] + im[b][lane]), 0.5 * (re[b][lane] - re[a][lane]));
                let (x, y) = (even_re + cos * odd_re - sin * odd_im, even_im + cos * odd_im + sin * odd_re);
                x * x + y * y
            }));
        }
    }

    /// The complex transform in place, by Stockham's order: no step has to turn bits around.
    fn transform(&self, space: &mut Space) {
        let Space { re, im, other_re, other_im } = space;
        // `stride` sequences of `len` points, interleaved.
        let (mut len, mut stride) = (self.inner, 1);
        for factor in &self.factors {
            let step =
                Step { factor: *factor, part: len / factor, stride, turns: &self.turns, all: self.inner };
            match factor {
                2 => step.two(re, im, other_re, other_im),
                4 => step.four(re, im, other_re, other_im),
                _ => step.any(re, im, other_re, other_im),
            }
            std::mem::swap(re, other_re);
            std::mem::swap(im, other_im);
            len /= factor;
            stride *= factor;
        }
    }
}

/// One pass over all points.
struct Step<'a> {
    factor: usize,
    part: usize,
    stride: usize,
    turns: &'a [(f32, f32)],
    all: usize,
}

impl Step<'_> {
    /// The turn of output `q` of the butterfly at `p`.
    fn turn(&self, p: usize, q: usize) -> (f32, f32) {
        self.turns[p * q * self.stride % self.all]
    }

    fn two(&self, re: &[Lane], im: &[Lane], to_re: &mut [Lane], to_im: &mut [Lane]) {
        let (m, s) = (self.part, self.stride);
        for p in 0..m {
            let turn = self.turn(p, 1);
            for q in 0..s {
                let (a, b) = (q + s * p, q + s * (p + m));
                let (to_a, to_b) = (q + s * 2 * p, q + s * (2 * p + 1));
                for lane in 0..LANES {
                    let (x, y) = (re[a][lane] - re[b][lane], im[a][lane] - im[b][lane]);
                    to_re[to_a][lane] = re[a][lane] + re[b][lane];
                    to_im[to_a][lane] = im[a][lane] + im[b][lane];
                    to_re[to_b][lane] = x * turn.0 - y * turn.1;
                    to_im[to_b][lane] = x * turn.1 + y * turn.0;
                }
            }
        }
    }

    fn four(&self, re: &[Lane], im: &[Lane], to_re: &mut [Lane], to_im: &mut [Lane]) {
        let (m, s) = (self.part, self.stride);
        for p in 0..m {
            let turns = [self.turn(p, 1), self.turn(p, 2), self.turn(p, 3)];
            for q in 0..s {
                let at: [usize; 4] = std::array::from_fn(|k| q + s * (p + k * m));
                let to: [usize; 4] = std::array::from_fn(|k| q + s * (4 * p + k));
                for lane in 0..LANES {
                    let x = at.map(|at| re[at][lane]);
                    let y = at.map(|at| im[at][lane]);
                    let (a_re, a_im) = (x[0] + x[2], y[0] + y[2]);
                    let (b_re, b_im) = (x[0] - x[2], y[0] - y[2]);
                    let (c_re, c_im) = (x[1] + x[3], y[1] + y[3]);
                    // Times -i.
                    let (d_re, d_im) = (y[1] - y[3], x[3] - x[1]);
                    to_re[to[0]][lane] = a_re + c_re;
                    to_im[to[0]][lane] = a_im + c_im;
                    let rest =
                        [(b_re + d_re, b_im + d_im), (a_re - c_re, a_im - c_im), (b_re - d_re, b_im - d_im)];
                    for ((to, turn), (x, y)) in to[1..].iter().zip(turns).zip(rest) {
                        to_re[*to][lane] = x * turn.0 - y * turn.1;
                        to_im[*to][lane] = x * turn.1 + y * turn.0;
                    }
                }
            }
        }
    }

    /// Any factor, by the sum that defines it.
    fn any(&self, re: &[Lane], im: &[Lane], to_re: &mut [Lane], to_im: &mut [Lane]) {
        let (m, s, factor) = (self.part, self.stride, self.factor);
        for p in 0..m {
            for k in 0..factor {
                let turn = self.turn(p, k);
                for q in 0..s {
                    let (mut x, mut y) = ([0.0f32; LANES], [0.0f32; LANES]);
                    for j in 0..factor {
                        let (cos, sin) = self.turns[j * k % factor * (self.all / factor)];
                        let at = q + s * (p + j * m);
                        for lane in 0..LANES {
                            x[lane] += re[at][lane] * cos - im[at][lane] * sin;
                            y[lane] += re[at][lane] * sin + im[at][lane] * cos;
                        }
                    }
                    let to = q + s * (factor * p + k);
                    for lane in 0..LANES {
                        to_re[to][lane] = x[lane] * turn.0 - y[lane] * turn.1;
                        to_im[to][lane] = x[lane] * turn.1 + y[lane] * turn.0;
                    }
                }
            }
        }
    }
}

/// Fours first, then twos and whatever is left.
fn factors(mut points: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut factor = 4;
    while points > 1 {
        while points.is_multiple_of(factor) {
            found.push(factor);
            points /= factor;
        }
        factor = match factor {
            4 => 2,
            2 => 3,
            other => other + 2,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_transform_is_the_sum_that_defines_it(points in 2usize..200, seed in any::<u32>()) {
            let value = |lane: usize, at: usize| {
                let mixed = (at as u32 + 1).wrapping_mul(seed | 1).wrapping_add(lane as u32 * 977);
                (mixed.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5
            };
            let (mut space, mut out) = (Space::default(), Vec::new());
            Fourier::new(points).powers(|at| std::array::from_fn(|lane| value(lane, at)), &mut space, &mut out);
            prop_assert_eq!(out.len(), points / 2 + 1);
            for (k, found) in out.iter().enumerate() {
                for lane in [0, 5] {
                    let (mut re, mut im) = (0.0f64, 0.0f64);
                    for at in 0..points {
                        let angle = -TAU * (k * at) as f64 / points as f64;
                        re += f64::from(value(lane, at)) * angle.cos();
                        im += f64::from(value(lane, at)) * angle.sin();
                    }
                    let expected = re * re + im * im;
                    prop_assert!((f64::from(found[lane]) - expected).abs() < 1e-3, "{k}: {} {expected}", found[lane]);
                }
            }
        }
    }
}
