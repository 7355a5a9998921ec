//! What `verify` finds: faults with their places, and the report of them.

/// How many findings a report keeps; all are counted and given to the callback.
pub const KEPT_FINDINGS: usize = 10_000;

/// What is wrong with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FindingKind {
    /// A header or a payload is cut off or damaged, so the rest of the shard was not looked at.
    BadShard,
    /// A field appears twice in one sample.
    DuplicateField,
    /// A key names two samples.
    DuplicateKey,
    /// A payload has no bytes.
    EmptyPayload,
    /// A payload cannot be decoded.
    BadPayload,
    /// A payload or object cannot be read.
    Unreadable,
    /// Bytes follow the end of an archive, where no reader looks.
    TrailingBytes,
    /// The archive has no end blocks. It may have been cut exactly between two members.
    NoEndMark,
}

impl FindingKind {
    /// The stable name in JSON output.
    pub fn name(self) -> &'static str {
        match self {
            Self::BadShard => "bad_shard",
            Self::DuplicateField => "duplicate_field",
            Self::DuplicateKey => "duplicate_key",
            Self::EmptyPayload => "empty_payload",
            Self::BadPayload => "bad_payload",
            Self::Unreadable => "unreadable",
            Self::TrailingBytes => "trailing_bytes",
            Self::NoEndMark => "no_end_mark",
        }
    }

    /// Whether training can go on over it. The others make opening or reading fail.
    pub fn is_warning(self) -> bool {
        matches!(self, Self::DuplicateKey | Self::EmptyPayload | Self::TrailingBytes | Self::NoEndMark)
    }
}

/// One fault and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// The shard or file.
    pub object: String,
    /// The member inside a shard.
    pub member: Option<String>,
    /// Byte offset of the member's header, or of the fault.
    pub offset: Option<u64>,
    /// The fault in words.
    pub message: String,
}

/// What was looked at and what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Shards or files.
    pub objects: u64,
    /// Samples in them.
    pub samples: u64,
    /// Payload bytes in them.
    pub bytes: u64,
    /// Payloads that were read and tried.
    pub checked: u64,
    /// The first faults, in order of the objects.
    pub findings: Vec<Finding>,
    /// Findings that are errors, kept or not.
    pub errors: u64,
    /// Findings that are warnings, kept or not.
    pub warnings: u64,
}
