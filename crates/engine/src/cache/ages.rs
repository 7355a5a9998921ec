//! When payloads were kept: how many in each second, so that the oldest and the newest are known without a search.

use std::collections::BTreeMap;
use std::time::SystemTime;

/// Payloads by the second in which they were kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ages(BTreeMap<u32, u64>);

impl Ages {
    /// One was kept, at this time since 1970.
    pub fn add(&mut self, seconds: u32) {
        *self.0.entry(seconds).or_default() += 1;
    }

    /// One that was kept then is gone.
    pub fn remove(&mut self, seconds: u32) {
        if let Some(count) = self.0.get_mut(&seconds) {
            *count -= 1;
            if *count == 0 {
                self.0.remove(&seconds);
            }
        }
    }

    /// When the one that is here longest was kept.
    pub fn oldest(&self) -> Option<u32> {
        self.0.first_key_value().map(|(seconds, _)| *seconds)
    }

    /// When the last one was kept.
    pub fn newest(&self) -> Option<u32> {
        self.0.last_key_value().map(|(seconds, _)| *seconds)
    }
}

/// Seconds since 1970.
pub fn seconds_now() -> u32 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_and_the_newest_are_those_that_are_left() {
        let mut ages = Ages::default();
        assert_eq!((ages.oldest(), ages.newest()), (None, None));
        for seconds in [7, 3, 9, 3] {
            ages.add(seconds);
        }
        assert_eq!((ages.oldest(), ages.newest()), (Some(3), Some(9)));
        ages.remove(3);
        ages.remove(9);
        // One that was never there changes nothing.
        ages.remove(8);
        assert_eq!((ages.oldest(), ages.newest()), (Some(3), Some(7)));
        ages.remove(3);
        ages.remove(7);
        assert_eq!(ages, Ages::default());
    }
}
