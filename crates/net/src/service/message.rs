//! What a client and a worker say to each other. One connection is one rank of one job, reading one feed.
//!
//! ```text
//! client                                   worker
//! Attach{feed}                        ->
//!                                     <-   NeedSpec            (the feed is not open there)
//! Attach{feed, spec}                  ->
//!                                     <-   Attached
//! Plan{names}   wanted soon           ->
//! Take{1, name} wanted now            ->
//!                                     <-   Batch{1, header} and its bytes, Fault{1} or Skipped{1}
//! Passed{epoch, position}             ->   (staged batches before it are of no use to this rank)
//! ```
//!
//! Answers come in any order. A batch is never sent that was not asked for by `Take`; a client asks for as many as it
//! has room for. How messages and batches become bytes is in `frame` and `codec`.

use forebay_core::feed::{BatchName, FeedId};
use forebay_core::recipe::Offsets;
pub use forebay_core::staging::Late;
use forebay_core::tensor::Dtype;
use forebay_core::{Error, ErrorKind, Facts, SampleId};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::marker::PhantomData;

/// Names in one `Plan`, at most.
pub const MAX_NAMES: usize = 4096;

/// Columns of one batch, at most.
pub const MAX_COLUMNS: usize = 4096;

/// From a client to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToWorker {
    /// Begins: who reads what. Sent again with the spec when the worker asks for it.
    Attach(Attach),
    /// Names that will be wanted soon, in the order of need.
    Plan {
        /// Their names.
        #[serde(deserialize_with = "few::<_, _, MAX_NAMES>")]
        names: Vec<BatchName>,
    },
    /// A batch that is wanted now.
    Take {
        /// Chosen by the client; the answer carries it.
        request: u64,
        /// Its name.
        name: BatchName,
    },
    /// The answer to a request is no longer wanted.
    Forget {
        /// The request.
        request: u64,
    },
    /// This rank has received everything of its own before this place.
    Passed {
        /// The epoch.
        epoch: u64,
        /// The position.
        position: u64,
    },
    /// Shared memory that the client no longer looks at.
    Release {
        /// As in [`Place::Shared`].
        memory: Vec<u64>,
    },
    /// Asks what the worker has; no feed is needed for it.
    Show,
}

/// Who reads what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// The job's name: batches stay staged until every job has taken them once.
    pub job: String,
    /// The rank.
    pub rank: u64,
    /// Ranks of the job.
    pub world_size: u64,
    /// The feed.
    pub feed: FeedId,
    /// The feed's spec as JSON; empty at first.
    pub spec: String,
    /// How bodies may be packed, in the order of preference; none means as they are.
    pub packings: Vec<Packing>,
    /// What happens to batches that a job did not take before staging was full; the first job of a feed decides.
    pub late: Late,
}

/// How the bytes of a batch are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Packing {
    /// As they are.
    #[default]
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
    /// LZ4 as long as it makes bodies at least a tenth smaller.
    Auto,
}

/// From a worker to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// The feed is unknown here: send its spec.
    NeedSpec,
    /// The feed is open.
    Attached {
        /// Positions of every epoch.
        epoch_samples: u64,
        /// Most bytes of one batch of the spec's size.
        batch_bytes: u64,
    },
    /// A batch; its bytes follow.
    Batch {
        /// The request.
        request: u64,
        /// What the bytes are.
        header: Box<BatchHeader>,
    },
    /// The batch cannot be made.
    Fault {
        /// The request.
        request: u64,
        /// Why.
        fault: WireError,
    },
    /// The batch was dropped before this job took it, and it is not made again.
    Skipped {
        /// The request.
        request: u64,
    },
    /// Ends the connection: the feed cannot be read here.
    Refused {
        /// Why.
        fault: WireError,
    },
    /// The worker takes no more requests; those it has are answered.
    Draining,
    /// What the worker has, as JSON.
    Shown {
        /// A `WorkerView`.
        view: String,
    },
}

/// What the bytes of a batch are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchHeader {
    /// The epoch.
    pub epoch: u64,
    /// The sample in each row.
    pub ids: Vec<u64>,
    /// Rows that repeat a sample only to fill the batch.
    pub padding: Vec<bool>,
    /// The columns, in the order of the recipe.
    #[serde(deserialize_with = "few::<_, _, MAX_COLUMNS>")]
    pub columns: Vec<ColumnHeader>,
    /// Bad samples met in this batch.
    pub faults: Vec<FaultHeader>,
    /// Time that making it took beyond `prep_nanos`; 0 when every payload was resident.
    pub fetch_nanos: u64,
    /// Time that the worker needs for it when every payload is resident.
    pub prep_nanos: u64,
    /// How the body is packed.
    pub packing: Packing,
    /// Bytes of the body as it crosses.
    pub packed_bytes: u64,
    /// Bytes of the body.
    pub bytes: u64,
}

/// One column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColumnHeader {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub kind: ColumnKind,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ColumnKind {
    /// All rows in one block.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Shape of one row.
        shape: Vec<u64>,
        /// Rows.
        rows: u64,
        /// Where its bytes are.
        place: Place,
    },
    /// Rows of different shapes; their bytes are in the body, one after the other.
    Tensors(Vec<(Dtype, Vec<u64>)>),
    /// Payloads by their lengths; in the body.
    Bytes(Vec<u64>),
    /// Texts by their lengths; in the body.
    Text(Vec<u64>),
    /// JSON texts by their lengths; in the body.
    Json(Vec<u64>),
    /// Rows of different lengths one behind the other, in one block.
    Ragged {
        /// Element type.
        dtype: Dtype,
        /// Shape of all rows together.
        shape: Vec<u64>,
        /// The axis along which they follow each other.
        axis: u64,
        /// Where each begins along the axis, and where the last one ends.
        offsets: Vec<u64>,
        /// Integers that offsets are counted in.
        counted: Offsets,
        /// Where the bytes are.
        place: Place,
    },
}

/// Where the bytes of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// In the body.
    Body,
    /// In shared memory whose descriptor came with this message or with an earlier one.
    Shared {
        /// Names the memory on this connection.
        memory: u64,
        /// Its size.
        size: u64,
        /// Whether the descriptor comes with this message.
        new: bool,
    },
}

/// A bad sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultHeader {
    /// The sample.
    pub sample_id: u64,
    /// Its key.
    pub key: String,
    /// What went wrong.
    pub error: WireError,
    /// What took its place.
    pub substitute: Option<u64>,
}

/// An error as it crosses: kind, words, and the facts that Python shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WireError {
    kind: String,
    message: String,
    hint: Option<String>,
    sample_id: Option<u64>,
    key: Option<String>,
    object: Option<String>,
    offset: Option<u64>,
    op: Option<String>,
    field: Option<String>,
    epoch: Option<u64>,
}

impl From<&Error> for WireError {
    fn from(error: &Error) -> Self {
        let facts = error.facts();
        Self {
            kind: error.kind().name().to_owned(),
            // The causes are told in words: what they were made of stays where it happened.
            message: error.chain(),
            hint: error.hint().map(str::to_owned),
            sample_id: facts.sample_id.map(|id| id.0),
            key: facts.key.clone(),
            object: facts.object.clone(),
            offset: facts.offset,
            op: facts.op.clone(),
            field: facts.field.clone(),
            epoch: facts.epoch,
        }
    }
}

impl From<WireError> for Error {
    fn from(wire: WireError) -> Self {
        let kind = ErrorKind::from_name(&wire.kind).unwrap_or(ErrorKind::Internal);
        let facts = Facts {
            sample_id: wire.sample_id.map(SampleId),
            key: wire.key,
            object: wire.object,
            offset: wire.offset,
            op: wire.op,
            field: wire.field,
            epoch: wire.epoch,
        };
        let error = Error::new(kind, wire.message).with_facts(facts);
        match wire.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// A list that is refused while it is read when it is longer than `MOST`: what takes a few bytes there may take many
/// times that in memory.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>, const MOST: usize>(
    from: D,
) -> Result<Vec<T>, D::Error> {
    struct Few<T, const MOST: usize>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "at most {MOST} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut found = Vec::new();
            while let Some(entry) = list.next_element()? {
                if found.len() == MOST {
                    return Err(serde::de::Error::invalid_length(MOST + 1, &self));
                }
                found.push(entry);
            }
            Ok(found)
        }
    }
    from.deserialize_seq(Few::<T, MOST>(PhantomData))
}
