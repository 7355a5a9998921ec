//! What the dispatcher talks about: workers, jobs, terms, loads. Plain data, the same on the wire and in the journal.

use crate::feed::FeedId;
use crate::stall::Pace;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Longest name of a job, label, address or tag, in bytes.
pub const MAX_TEXT: usize = 512;

/// Most spans in one command.
pub const MAX_SPANS: usize = 1024;

/// Most tags of one worker, and most workers that one command avoids.
pub const MAX_LIST: usize = 32;

/// A worker's number, drawn at random by itself when it starts. Shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl From<WorkerId> for String {
    fn from(worker: WorkerId) -> Self {
        worker.to_string()
    }
}

impl TryFrom<String> for WorkerId {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl FromStr for WorkerId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        digits.map(Self).ok_or_else(|| {
            Error::invalid_config(format!("read worker id: `{}` is none", text.escape_debug()))
                .with_hint("a worker id has 16 hexadecimal digits; `forebay status` lists them")
        })
    }
}

/// A job's name, chosen by people; all ranks of a job give the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobName(String);

impl JobName {
    /// A name of 1 to [`MAX_TEXT`] bytes without control characters.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        check_text("job name", &name)?;
        Ok(Self(name))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<JobName> for String {
    fn from(name: JobName) -> Self {
        name.0
    }
}

impl TryFrom<String> for JobName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

/// Checks a text that came from outside and that people will read.
pub(super) fn check_text(what: &str, text: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_TEXT {
        let length = text.len();
        return Err(Error::invalid_config(format!(
            "read {what}: it has {length} bytes, 1 to {MAX_TEXT} are allowed"
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid_config(format!("read {what}: it has control characters")));
    }
    Ok(())
}

/// The number of a lease; never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LeaseId(pub u64);

/// How far a consumer is: everything of its portion before this was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Reached {
    /// The epoch.
    pub epoch: u64,
    /// The position in its plan.
    pub position: u64,
}

/// One consumer: a rank of a job, and a number that the process behind it drew when it started. A process that starts
/// again for the same rank has another number, so that what the first one still sends is known as such.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Who {
    /// The job.
    pub job: JobName,
    /// The framework's number.
    pub rank: u64,
    /// Drawn at random by the process.
    pub consumer: u64,
}

/// Who decides which positions a consumer gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// Every rank computes its own portion; together they are exact. The default.
    #[default]
    Portion,
    /// Every consumer reads the whole plan.
    Off,
    /// Spans go to the ranks of the job as they ask, first come, first served. No loader asks for it, because its ranks need
    /// equal steps and batches that do not depend on who asks first.
    Dynamic,
    /// Whole shards belong to ranks.
    File,
    /// Single positions belong to ranks.
    Data,
    /// `file` when there are enough shards, else `data`.
    FileOrData,
    /// The source says itself what belongs to whom.
    Hint,
}

/// What becomes of a span whose consumer was lost before it said that it was done. Dynamic sharding only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Visitation {
    /// It is given out again: every span is done once. The default.
    #[default]
    ExactlyOnce,
    /// It is dropped and counted: no position is seen by two consumers.
    AtMostOnce,
    /// It is given out again: no position is missed.
    AtLeastOnce,
}

/// What all consumers of a job agree upon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The feed that the job reads.
    #[serde(with = "feed_text")]
    pub feed: FeedId,
    /// What people call the dataset, for example its URL without secrets.
    pub label: String,
    /// Ranks of the job.
    pub world_size: u64,
    /// Positions in a span. The first job of a feed decides; see `Reply::Attached`.
    pub span_positions: u64,
    /// Positions in an epoch of the feed.
    pub epoch_positions: u64,
    /// Who decides which positions a consumer gets.
    pub sharding: Sharding,
    /// What becomes of spans of a lost consumer.
    pub visitation: Visitation,
}

impl Terms {
    /// Checks terms that came from outside.
    pub(super) fn check(&self) -> Result<()> {
        check_text("label of a job", &self.label)?;
        for (what, value) in [
            ("world_size", self.world_size),
            ("span_positions", self.span_positions),
            ("epoch_positions", self.epoch_positions),
        ] {
            if value == 0 {
                return Err(Error::invalid_config(format!("attach job: `{what}` is 0")));
            }
        }
        Ok(())
    }
}

/// What a worker says about itself in a heartbeat. The last two only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Batches asked for and not made yet.
    pub queued_batches: u64,
    /// Bytes of prepared batches that wait to be taken.
    pub staged_bytes: u64,
    /// Batches made since it started.
    pub made_batches: u64,
    /// Bytes sent to clients since it started.
    pub sent_bytes: u64,
}

/// What a consumer says about itself. All but place, step and pace only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// How far it is.
    pub reached: Reached,
    /// Global steps since the beginning of the job: the round it is in.
    pub step: u64,
    /// Samples received.
    pub taken: u64,
    /// Milliseconds it waited for batches.
    pub waits_ms: u64,
    /// Batches it was told were skipped.
    pub skipped: u64,
    /// Batches that were made again for it.
    pub remade: u64,
    /// What its last steps took; none from a client that does not meter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
}

/// A feed id as text: numbers of 128 bits are beyond what readers of JSON agree upon.
pub(super) mod feed_text {
    use crate::feed::FeedId;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(feed: &FeedId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(feed)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FeedId, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
