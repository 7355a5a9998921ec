//! What is kept of a sample: its payload, or what the beginning of the recipe makes of it. A choice by measurement.
//!
//! Payloads are small, so more of them fit and fewer are fetched; values made ready save their making. Fetching and
//! preparing go on side by side, so an epoch takes as long as the slower of the two.

/// How much better than keeping payloads a point must be: below this, measurement is noise, and payloads serve every
/// recipe.
const WORTH_IT: f64 = 0.9;

/// What was measured of a loader, per sample where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Samples of the dataset.
    pub samples: u64,
    /// Bytes of payloads.
    pub payload_bytes: f64,
    /// Seconds the store takes, when many are asked for at once.
    pub fetch_seconds: f64,
    /// Processor seconds from payloads to the row.
    pub prepare_seconds: f64,
    /// Preparing threads.
    pub threads: usize,
    /// Bytes of memory to keep things in.
    pub memory: u64,
    /// Bytes of disk that keeps payloads.
    pub disk: u64,
    /// Points at which the recipe may be cut.
    pub points: Vec<Point>,
}

/// A point of the recipe at which values may be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Its name in the recipe.
    pub name: &'static str,
    /// Bytes kept of a sample.
    pub value_bytes: f64,
    /// Processor seconds from what is kept to the row.
    pub rest_seconds: f64,
}

/// What keeping something is expected to give, from the second epoch on.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// `bytes`, or the point's name.
    pub name: &'static str,
    /// Share of samples that memory holds.
    pub hit_share: f64,
    /// Seconds of an epoch.
    pub epoch_seconds: f64,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which of the points; `None` keeps payloads.
    pub point: Option<usize>,
    /// All that was weighed, payloads first.
    pub forecasts: Vec<Forecast>,
}

impl Measured {
    /// What keeping payloads, and what each point would give.
    fn forecasts(&self) -> Vec<Forecast> {
        let bytes = ("bytes", self.payload_bytes, self.prepare_seconds);
        let points = self.points.iter().map(|point| (point.name, point.value_bytes, point.rest_seconds));
        std::iter::once(bytes)
            .chain(points)
            .map(|(name, kept_bytes, rest)| self.forecast(name, kept_bytes, rest))
            .collect()
    }

    fn forecast(&self, name: &'static str, kept_bytes: f64, rest_seconds: f64) -> Forecast {
        let samples = self.samples.max(1) as f64;
        let share = |room: u64, bytes: f64| (room as f64 / (samples * bytes.max(1.0))).min(1.0);
        let hits = share(self.memory, kept_bytes);
        // Disk takes what memory does not hold; reading it counts as nothing beside a store.
        let near = share(self.disk, self.payload_bytes).min(1.0 - hits);
        let fetch = (1.0 - hits - near).max(0.0) * self.fetch_seconds;
        let prepare =
            (hits * rest_seconds + (1.0 - hits) * self.prepare_seconds) / self.threads.max(1) as f64;
        Forecast { name, hit_share: hits, epoch_seconds: samples * fetch.max(prepare) }
    }

    /// Chooses the point that makes an epoch shortest, or payloads when none is clearly better. Of points alike, the
    /// one that keeps less.
    pub fn choose(&self) -> Choice {
        let forecasts = self.forecasts();
        let mut best: Option<usize> = None;
        for at in 0..self.points.len() {
            let seconds = |at: usize| forecasts[at + 1].epoch_seconds;
            if seconds(at) >= forecasts[0].epoch_seconds * WORTH_IT {
                continue;
            }
            let better = match best {
                None => true,
                Some(other) if self.points[at].value_bytes < self.points[other].value_bytes => {
                    seconds(at) * WORTH_IT <= seconds(other)
                }
                Some(other) => seconds(at) < seconds(other) * WORTH_IT,
            };
            if better {
                best = Some(at);
            }
        }
        Choice { point: best, forecasts }
    }
}

impl Choice {
    /// The name of what was chosen.
    pub fn name(&self) -> &'static str {
        self.forecasts.get(self.point.map_or(0, |point| point + 1)).map_or("bytes", |chosen| chosen.name)
    }

    /// Why, in words: what each way would give.
    pub fn why(&self) -> String {
        let line = |forecast: &Forecast| {
            let Forecast { name, hit_share, epoch_seconds } = forecast;
            format!("{name}: {:.0} % in memory, {epoch_seconds:.3} s an epoch", hit_share * 100.0)
        };
        self.forecasts.iter().map(line).collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A thousand samples of 100 kB that become 600 kB, four threads.
    fn measured(prepare_seconds: f64, rest_seconds: f64, memory: u64) -> Measured {
        Measured {
            samples: 1000,
            payload_bytes: 1e5,
            fetch_seconds: 0.0,
            prepare_seconds,
            threads: 4,
            memory,
            disk: 0,
            points: vec![Point { name: "decode", value_bytes: 6e5, rest_seconds }],
        }
    }

    const ALL: u64 = 700_000_000;

    #[test]
    fn p067_an_expensive_stage_is_cached_after_it_and_a_cheap_one_before_it() {
        assert_eq!(measured(0.010, 0.002, ALL).choose().name(), "decode");
        assert_eq!(measured(0.010, 0.0095, ALL).choose().name(), "bytes");
        assert_eq!(measured(0.010, 0.012, ALL).choose().name(), "bytes");
    }

    #[test]
    fn p067_on_a_slow_store_fewer_fetches_win_over_less_work() {
        // Memory for all payloads, or for a sixth of the decoded ones.
        let near = measured(0.010, 0.002, 100_000_000);
        assert_eq!(near.choose().name(), "decode");
        let far = Measured { fetch_seconds: 0.02, ..near };
        assert_eq!(far.choose().name(), "bytes");
        // A disk that holds the payloads takes the store's slowness away.
        assert_eq!(Measured { disk: 100_000_000, ..far }.choose().name(), "decode");
    }

    #[test]
    fn of_points_alike_the_smaller_one_is_kept_and_of_unlike_ones_the_faster() {
        let point = |name, value_bytes, rest_seconds| Point { name, value_bytes, rest_seconds };
        let two = |first, second| Measured { points: vec![first, second], ..measured(0.010, 0.0, ALL) };
        let decode = point("decode", 6e5, 0.002);
        assert_eq!(two(decode.clone(), point("center_crop", 1.5e5, 0.0021)).choose().name(), "center_crop");
        assert_eq!(two(decode.clone(), point("pad", 6.5e5, 0.0019)).choose().name(), "decode");
        assert_eq!(two(decode, point("delay", 6e5, 0.0005)).choose().name(), "delay");
    }

    #[test]
    fn without_points_payloads_are_kept_and_the_reason_is_in_words() {
        let none = Measured { points: Vec::new(), ..measured(1.0, 0.0, ALL) };
        assert_eq!((none.choose().name(), none.choose().point), ("bytes", None));
        let why = measured(0.010, 0.002, ALL).choose().why();
        assert_eq!(
            why,
            "bytes: 100 % in memory, 2.500 s an epoch; decode: 100 % in memory, 0.500 s an epoch"
        );
    }

    proptest! {
        #[test]
        fn what_is_chosen_is_never_forecast_to_be_slower_than_payloads(
            prepare in 0.0f64..1.0, rest in 0.0f64..1.0, fetch in 0.0f64..1.0, memory: u64, disk: u64,
            bytes in 0.0f64..1e9, samples: u64,
        ) {
            let base = Measured { samples, fetch_seconds: fetch, disk, ..measured(prepare, rest, memory) };
            let point = Point { name: "decode", value_bytes: bytes, rest_seconds: rest };
            let choice = Measured { points: vec![point], ..base }.choose();
            let chosen = choice.forecasts.iter().find(|forecast| forecast.name == choice.name()).unwrap();
            prop_assert!(chosen.epoch_seconds <= choice.forecasts[0].epoch_seconds);
            prop_assert!(choice.forecasts.iter().all(|forecast| (0.0..=1.0).contains(&forecast.hit_share)));
        }
    }
}
