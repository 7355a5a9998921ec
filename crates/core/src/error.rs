//! The one error type of all crates: sorted by what the caller can do about it, with the facts as fields.
//!
//! The kind's name in `snake_case` is the wire code, the metric label and the heading in
//! `docs/reference/errors.md`. Messages read `what was being done, to what: why`; the cause is in `source()`, not
//! repeated in the text. Exit codes and Python classes are listed here so that one test can hold them together.

use crate::SampleId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Result with the crate-wide error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Cause = Arc<dyn std::error::Error + Send + Sync>;

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request makes no sense; change it.
    InvalidConfig,
    /// No such dataset, key or job.
    NotFound,
    /// Credentials or rights are missing.
    Denied,
    /// The other side did not answer; trying again may work.
    Unavailable,
    /// Bytes are not what they claim to be.
    Corrupt,
    /// A named limit was reached.
    Exhausted,
    /// The dataset changed underneath, or a checkpoint belongs to something else.
    Stale,
    /// Someone asked to stop.
    Cancelled,
    /// Known, but not offered here.
    Unsupported,
    /// Our fault.
    Internal,
    /// A function that the user gave raised, or gave back what it may not.
    Function,
}

impl ErrorKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [ErrorKind; 11] = [
        Self::InvalidConfig,
        Self::NotFound,
        Self::Denied,
        Self::Unavailable,
        Self::Corrupt,
        Self::Exhausted,
        Self::Stale,
        Self::Cancelled,
        Self::Unsupported,
        Self::Internal,
        Self::Function,
    ];

    /// The stable name used on the wire, in metrics, in JSON output and in the docs.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidConfig => "invalid_config",
            Self::NotFound => "not_found",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Corrupt => "corrupt",
            Self::Exhausted => "exhausted",
            Self::Stale => "stale",
            Self::Cancelled => "cancelled",
            Self::Unsupported => "unsupported",
            Self::Internal => "internal",
            Self::Function => "function",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The class in `forebay.errors` that Python raises.
    pub fn python_class(self) -> &'static str {
        match self {
            Self::InvalidConfig => "InvalidConfigError",
            Self::NotFound => "NotFoundError",
            Self::Denied => "DeniedError",
            Self::Unavailable => "UnavailableError",
            Self::Corrupt => "CorruptError",
            Self::Exhausted => "ExhaustedError",
            Self::Stale => "StaleError",
            Self::Cancelled => "CancelledError",
            Self::Unsupported => "UnsupportedError",
            Self::Internal => "InternalError",
            Self::Function => "FunctionError",
        }
    }

    /// The exit code of the `forebay` command.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::InvalidConfig | Self::Unsupported => 2,
            Self::NotFound | Self::Denied | Self::Corrupt | Self::Function => 3,
            Self::Unavailable | Self::Exhausted | Self::Stale => 4,
            Self::Cancelled => 130,
            Self::Internal => 70,
        }
    }

    /// Whether the same request may succeed when it is made again.
    pub fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable)
    }
}

/// Where an error happened, as far as it is known. Python and `--json` show each as a field of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The sample that was fetched or prepared.
    pub sample_id: Option<SampleId>,
    /// The sample's key.
    pub key: Option<String>,
    /// The stored object: a shard or a file, as a URL or path.
    pub object: Option<String>,
    /// Byte offset inside the object.
    pub offset: Option<u64>,
    /// The op of the recipe that failed.
    pub op: Option<String>,
    /// The field of the sample.
    pub field: Option<String>,
    /// The epoch in which it happened.
    pub epoch: Option<u64>,
}

/// An error with its kind, its facts, an optional hint and an optional cause.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
    facts: Facts,
    source: Option<Cause>,
    throttled: Option<Duration>,
    away: bool,
}

impl Error {
    /// A new error. `message` reads `what was being done, to what: why`.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            hint: None,
            facts: Facts::default(),
            source: None,
            throttled: None,
            away: false,
        }))
    }

    /// Shorthand for [`ErrorKind::InvalidConfig`].
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidConfig, message)
    }

    /// Shorthand for [`ErrorKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, message)
    }

    /// Shorthand for [`ErrorKind::Exhausted`].
    pub fn exhausted(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Exhausted, message)
    }

    /// Shorthand for [`ErrorKind::Stale`].
    pub fn stale(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Stale, message)
    }

    /// Shorthand for [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// Shorthand for [`ErrorKind::Cancelled`].
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// Shorthand for [`ErrorKind::Function`].
    pub fn function(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Function, message)
    }

    /// Maps an operating system error onto a kind by what can be done about it.
    pub fn io(message: impl Into<String>, source: std::io::Error) -> Self {
        use std::io::ErrorKind as Io;
        let kind = match source.kind() {
            Io::NotFound | Io::NotADirectory | Io::IsADirectory => ErrorKind::NotFound,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ErrorKind::Denied,
            Io::UnexpectedEof | Io::InvalidData => ErrorKind::Corrupt,
            Io::StorageFull | Io::QuotaExceeded | Io::OutOfMemory | Io::FileTooLarge => ErrorKind::Exhausted,
            Io::InvalidInput => ErrorKind::InvalidConfig,
            Io::Unsupported => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        };
        Self::new(kind, message).with_source(source)
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    /// Adds the cause. Its text must not be repeated in the message.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    /// Fills in facts that are still unknown; what was set nearer to the fault wins.
    #[must_use]
    pub fn with_facts(mut self, facts: Facts) -> Self {
        let mine = &mut self.0.facts;
        mine.sample_id = mine.sample_id.or(facts.sample_id);
        mine.key = mine.key.take().or(facts.key);
        mine.object = mine.object.take().or(facts.object);
        mine.offset = mine.offset.or(facts.offset);
        mine.op = mine.op.take().or(facts.op);
        mine.field = mine.field.take().or(facts.field);
        mine.epoch = mine.epoch.or(facts.epoch);
        self
    }

    /// Marks it as a refusal for too many requests. `pause` is how long the other side asked us to wait; zero when it
    /// did not say.
    #[must_use]
    pub fn with_throttle(mut self, pause: Duration) -> Self {
        self.0.throttled = Some(pause);
        self
    }

    /// Marks it as nobody having been there to answer: no connection could be made, or it ended before a word came. So it
    /// says nothing about the request, and the other side may only be restarting.
    #[must_use]
    pub fn with_away(mut self) -> Self {
        self.0.away = true;
        self
    }

    /// Puts `what` (for example "prepare sample 7 of `train-000.tar`") before the message.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text without hint and cause.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What the user can do, when we know.
    pub fn hint(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The pause asked for, when the other side refused because there were too many requests.
    pub fn throttled(&self) -> Option<Duration> {
        self.0.throttled
    }

    /// Whether nobody was there to answer.
    pub fn is_away(&self) -> bool {
        self.0.away
    }

    /// Where it happened.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// Message and causes on one line, then the hint: what a person is shown.
    pub fn report(&self) -> String {
        let mut text = self.chain();
        if let Some(hint) = &self.0.hint {
            text.push_str("\n\nhint: ");
            text.push_str(hint);
        }
        text
    }

    /// Message and causes on one line.
    pub fn chain(&self) -> String {
        let mut text = self.0.message.clone();
        let mut cause = std::error::Error::source(self);
        while let Some(c) = cause {
            text.push_str(": ");
            text.push_str(&c.to_string());
            cause = c.source();
        }
        text
    }

    /// A copy for a second receiver, of the same cause.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        let mut copy = Self::new(self.0.kind, self.0.message.clone());
        copy.0.hint.clone_from(&self.0.hint);
        copy.0.facts = self.0.facts.clone();
        copy.0.throttled = self.0.throttled;
        copy.0.away = self.0.away;
        copy.0.source.clone_from(&self.0.source);
        copy
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.kind.name(), self.report())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|cause| cause as &(dyn std::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_name_a_class_and_an_exit_code() {
        let mut names = std::collections::HashSet::new();
        for kind in ErrorKind::ALL {
            assert!(names.insert(kind.name()), "{} is used twice", kind.name());
            assert!(kind.python_class().ends_with("Error"));
            assert_ne!(kind.exit_code(), 0);
        }
    }

    #[test]
    fn facts_set_nearer_to_the_fault_win() {
        let near = Facts { offset: Some(512), ..Facts::default() };
        let far = Facts { offset: Some(9), key: Some("a/b".into()), ..Facts::default() };
        let error = Error::corrupt("read tar header: bad checksum").with_facts(near).with_facts(far);
        assert_eq!(error.facts().offset, Some(512));
        assert_eq!(error.facts().key.as_deref(), Some("a/b"));
    }

    #[test]
    fn the_cause_is_reported_once_and_the_hint_stands_apart() {
        let cause = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        let error = Error::io("open `train.tar`", cause).with_hint("check the path");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(error.report(), "open `train.tar`: no such file\n\nhint: check the path");
        assert_eq!(error.duplicate().report(), error.report());
    }
}
