//! The name of a job: ranks of one job give the same one, so that a batch which one of them takes counts for all.

use forebay_core::dispatcher::JobName;
use forebay_core::feed::FeedId;
use forebay_core::{Error, Result};
use ring::rand::{SecureRandom, SystemRandom};

/// What launchers call a run, in the order in which they are believed.
const VARIABLES: [&str; 3] = ["FOREBAY_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"];

/// What torchrun calls every run that was not given a name.
const NO_NAME: &str = "none";

/// How the job's name is found once its ranks are known.
#[derive(Clone, Debug)]
pub(super) struct Naming {
    given: Option<String>,
    /// For a job of one rank without a name.
    drawn: String,
}

impl Naming {
    /// Checks the name that was given, or looks for one.
    pub(super) fn new(given: Option<String>) -> Result<Self> {
        Self::with(given, |variable| std::env::var(variable).ok())
    }

    fn with(given: Option<String>, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let found = || {
            let values = VARIABLES.iter().filter_map(|name| variable(name));
            values.map(|value| value.trim().to_owned()).find(|value| !value.is_empty() && value != NO_NAME)
        };
        let given = given.or_else(found);
        if let Some(name) = &given {
            JobName::new(name.clone())?;
        }
        Ok(Self { given, drawn: format!("job-{:016x}", draw()?) })
    }

    /// The name of a job with so many ranks.
    pub(super) fn name(&self, feed: FeedId, world_size: u64) -> String {
        if let Some(name) = &self.given {
            return name.clone();
        }
        if world_size == 1 {
            return self.drawn.clone();
        }
        // Ranks cannot agree on a drawn one.
        let name = format!("feed-{:08x}-of-{world_size}", feed.0 as u32);
        tracing::info!(
            job = name,
            "nothing names the job: its ranks are known by feed and world size; give `job` when several like it run at once"
        );
        name
    }
}

/// A number that nobody else draws.
pub(super) fn draw() -> Result<u64> {
    let mut bytes = [0; 8];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::internal("draw random bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_job_find_the_same_name_and_single_ones_their_own() {
        let none = |_: &str| None;
        let slurm = |name: &str| (name == "SLURM_JOB_ID").then(|| " 4711 ".to_owned());
        let torchrun = |name: &str| (name == "TORCHELASTIC_RUN_ID").then(|| "none".to_owned());
        let feed = FeedId(0xabc);
        assert_eq!(Naming::with(Some("mine".into()), slurm).unwrap().name(feed, 1), "mine");
        assert_eq!(Naming::with(None, slurm).unwrap().name(feed, 8), "4711");
        for nameless in [Naming::with(None, none).unwrap(), Naming::with(None, torchrun).unwrap()] {
            assert_eq!(nameless.name(feed, 8), "feed-00000abc-of-8");
            assert_eq!(nameless.name(feed, 1), nameless.name(feed, 1));
        }
        let (first, second) = (Naming::with(None, none).unwrap(), Naming::with(None, none).unwrap());
        assert_ne!(first.name(feed, 1), second.name(feed, 1));
        assert!(Naming::with(Some("a\nb".into()), none).is_err());
    }
}
