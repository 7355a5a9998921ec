//! What crosses the wire: gRPC envelopes around the commands and replies of `forebay_core::dispatcher`.
//!
//! ```text
//! service forebay.Control
//!   Hello(Hello) -> Hello              which version the other side speaks; answered whatever the version
//!   Call(Request) -> Response          one command
//!
//! message Hello    { uint32 version = 1; string release = 2; }
//! message Request  { uint32 version = 1; bytes command = 2; }               command: JSON
//! message Response { uint32 version = 1; bytes reply = 2; Fault fault = 3; } reply: JSON
//! message Fault    { string kind = 1; string message = 2; string hint = 3; string leader = 4; }
//! ```
//!
//! Commands are JSON inside, because the same types go to the journal and to `forebay status --json`: one definition
//! of each, no second one to keep in step. They are small and few, a call for many batches.

use crate::credentials::Token;
use forebay_core::dispatcher::{Command, Reply};
use forebay_core::{Error, ErrorKind, Result};

/// The version of commands and replies. Sides with different versions do not talk.
pub const CONTROL_VERSION: u32 = 1;

/// Largest message: a view of a large cluster. Commands are far smaller.
pub(super) const MAX_MESSAGE: usize = 64 << 20;

/// Largest command.
pub(super) const MAX_COMMAND: usize = 4 << 20;

pub(super) const HELLO: &str = "/forebay.Control/Hello";
pub(super) const CALL: &str = "/forebay.Control/Call";

/// What a token stands for in `authorization`. The token itself never crosses the wire.
pub(super) fn bearer(token: &Token) -> String {
    let proof = token.prove(&[b"forebay.Control"]);
    let (high, low) = proof.split_at(16);
    let half = |bytes: &[u8]| bytes.iter().fold(0u128, |all, byte| all << 8 | u128::from(*byte));
    format!("Bearer {:032x}{:032x}", half(high), half(low))
}

/// Whether `authorization` stands for the token; takes as long whatever is wrong with it.
pub(super) fn is_bearer(token: &Token, text: &str) -> bool {
    let digits = text.strip_prefix("Bearer ").unwrap_or_default().as_bytes();
    let mut proof = [0; 32];
    if digits.len() != 64 || !digits.is_ascii() {
        return false;
    }
    for (byte, pair) in proof.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let Some(value) = pair else { return false };
        *byte = value;
    }
    token.check(&[b"forebay.Control"], &proof)
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Hello {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(string, tag = "2")]
    pub(super) release: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Request {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) command: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Response {
    #[prost(uint32, tag = "1")]
    pub(super) version: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) reply: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    pub(super) fault: Option<Fault>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Fault {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(string, tag = "3")]
    pub(super) hint: String,
    /// Where the dispatcher is that leads, when this one stands by and knows.
    #[prost(string, tag = "4")]
    pub(super) leader: String,
}

impl Hello {
    /// Ours.
    pub(super) fn ours() -> Self {
        Self { version: CONTROL_VERSION, release: env!("CARGO_PKG_VERSION").to_owned() }
    }
}

impl Request {
    pub(super) fn new(command: &Command) -> Result<Self> {
        let command = serde_json::to_vec(command)
            .map_err(|error| Error::internal("write a command as JSON").with_source(error))?;
        Ok(Self { version: CONTROL_VERSION, command })
    }

    pub(super) fn command(&self) -> Result<Command> {
        if self.version != CONTROL_VERSION {
            let why = format!("read a command: it is of version {}, this is {CONTROL_VERSION}", self.version);
            return Err(Error::unsupported(why).with_hint("run the same release of forebay everywhere"));
        }
        if self.command.len() > MAX_COMMAND {
            let (has, most) = (self.command.len(), MAX_COMMAND);
            return Err(Error::exhausted(format!(
                "read a command: it has {has} bytes, at most {most} are allowed"
            )));
        }
        serde_json::from_slice(&self.command)
            .map_err(|error| Error::invalid_config("read a command: it is none").with_source(error))
    }
}

impl Response {
    pub(super) fn new(outcome: &Result<Reply>) -> Self {
        let reply = match outcome {
            Ok(reply) => serde_json::to_vec(reply)
                .map_err(|error| Error::internal("write a reply as JSON").with_source(error)),
            Err(error) => Err(error.duplicate()),
        };
        let version = CONTROL_VERSION;
        match reply {
            Ok(reply) => Self { version, reply, fault: None },
            Err(error) => {
                let hint = error.hint().unwrap_or_default().to_owned();
                let report = error.report();
                let message = report.split("\n\nhint: ").next().unwrap_or_default().to_owned();
                let kind = error.kind().name().to_owned();
                let fault = Fault { kind, message, hint, leader: String::new() };
                Self { version, reply: Vec::new(), fault: Some(fault) }
            }
        }
    }

    /// The same, with whom to ask instead.
    pub(super) fn naming(mut self, leader: Option<String>) -> Self {
        if let (Some(fault), Some(leader)) = (&mut self.fault, leader) {
            fault.leader = leader;
        }
        self
    }

    /// Whom to ask instead, as far as the other side knows.
    pub(super) fn leader(&self) -> Option<&str> {
        self.fault.as_ref().map(|fault| fault.leader.as_str()).filter(|leader| !leader.is_empty())
    }

    pub(super) fn reply(self) -> Result<Reply> {
        if let Some(fault) = self.fault {
            let kind = ErrorKind::ALL.into_iter().find(|kind| kind.name() == fault.kind);
            let error = Error::new(kind.unwrap_or(ErrorKind::Internal), fault.message);
            return Err(if fault.hint.is_empty() { error } else { error.with_hint(fault.hint) });
        }
        serde_json::from_slice(&self.reply)
            .map_err(|error| Error::corrupt("read a reply of the dispatcher: it is none").with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_stands_for_one_token() {
        let token = Token::new("a token of some length").unwrap();
        let text = bearer(&token);
        assert!(is_bearer(&token, &text));
        assert!(!is_bearer(&Token::new("a token of other length").unwrap(), &text));
        for wrong in ["", "Bearer ", "Bearer zz", &text[7..], &format!("{text}0"), &text.replace('B', "b")] {
            assert!(!is_bearer(&token, wrong), "{wrong}");
        }
        let more_than_ascii = format!("Bearer {}", "é".repeat(32));
        assert!(!is_bearer(&token, &more_than_ascii));
    }

    #[test]
    fn errors_cross_the_wire_with_kind_cause_and_hint() {
        let cause = std::io::Error::other("no room");
        let error = Error::stale("hear worker 7: gone").with_source(cause).with_hint("register");
        let back = Response::new(&Err(error)).reply().unwrap_err();
        assert_eq!(back.kind(), ErrorKind::Stale);
        assert_eq!((back.message(), back.hint()), ("hear worker 7: gone: no room", Some("register")));
        assert_eq!(Response::new(&Ok(Reply::Wait)).reply().unwrap(), Reply::Wait);
        let standby = Response::new(&Err(Error::unavailable("it stands by"))).naming(Some("h:1".into()));
        assert_eq!(standby.leader(), Some("h:1"));
        assert_eq!(Response::new(&Ok(Reply::Wait)).naming(Some("h:1".into())).leader(), None);
    }

    #[test]
    fn commands_of_another_version_or_none_at_all_are_refused() {
        let request = Request::new(&Command::Tick).unwrap();
        assert_eq!(request.command().unwrap(), Command::Tick);
        let kind = |request: Request| request.command().unwrap_err().kind();
        assert_eq!(kind(Request { version: 2, ..request.clone() }), ErrorKind::Unsupported);
        assert_eq!(kind(Request { command: b"{".to_vec(), ..request.clone() }), ErrorKind::InvalidConfig);
        assert_eq!(kind(Request { command: vec![b' '; MAX_COMMAND + 1], ..request }), ErrorKind::Exhausted);
    }
}
