//! How a connection for batches begins: both sides say which versions they speak, and prove that they know the token.
//!
//! ```text
//! worker: "FBYB" | u8 oldest | u8 newest | u8 wants a token | 32 random bytes
//! client: "FBYB" | u8 oldest | u8 newest | u8 purpose       | 32 random bytes | 32 bytes proof
//! worker: u8 status | u8 version | 32 bytes proof
//! ```
//!
//! The newest version that both speak is spoken. These three parts keep their sizes in all versions, so that sides
//! of any two releases can at least tell each other why they do not understand. A proof is a keyed hash over all that
//! was said; without a token proofs are zeros. Nothing is allocated for someone who has not shown who they are.

use crate::credentials::{Token, tls_fault};
use crate::handshake::{Purpose, random};
use forebay_core::{Error, ErrorKind, Result};
use std::io::{Read, Write};

const MAGIC: [u8; 4] = *b"FBYB";
const PURPOSE: u8 = Purpose::Batches as u8;

/// Versions of the protocol that a side speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) oldest: u8,
    pub(crate) newest: u8,
}

/// What this release speaks.
pub(crate) const VERSIONS: Versions = Versions { oldest: 1, newest: 1 };

impl Versions {
    fn common(self, other: Self) -> Option<u8> {
        let version = self.newest.min(other.newest);
        (version >= self.oldest.max(other.oldest)).then_some(version)
    }
}

impl std::fmt::Display for Versions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.oldest == self.newest {
            write!(f, "version {}", self.newest)
        } else {
            write!(f, "versions {} to {}", self.oldest, self.newest)
        }
    }
}

fn other_versions(doing: &str, theirs: Versions, ours: Versions) -> Error {
    let older = if theirs.newest < ours.oldest { "over there" } else { "here" };
    Error::unsupported(format!("{doing}: it speaks {theirs} of the protocol, this side speaks {ours}"))
        .with_hint(format!("install a newer release of forebay {older}"))
}

/// The worker's part: the version to speak. An error says why the client was turned away; it has been told.
pub(crate) fn accept<S: Read + Write>(
    stream: &mut S,
    peer: &str,
    token: Option<&Token>,
    busy: bool,
    ours: Versions,
) -> Result<u8> {
    let doing = format!("meet {peer}");
    let lost = |error: std::io::Error| {
        let why = if error.kind() == std::io::ErrorKind::TimedOut { "it took too long" } else { "it left" };
        Error::unavailable(format!("{doing}: {why}")).with_source(error)
    };
    let mut greeting = [0; 39];
    greeting[..4].copy_from_slice(&MAGIC);
    greeting[4..7].copy_from_slice(&[ours.oldest, ours.newest, u8::from(token.is_some())]);
    greeting[7..].copy_from_slice(&random()?);
    stream.write_all(&greeting).and_then(|()| stream.flush()).map_err(lost)?;
    let mut hello = [0; 71];
    stream.read_exact(&mut hello[..4]).map_err(lost)?;
    if hello[..4] != MAGIC {
        return Err(Error::corrupt(format!("{doing}: it is no client")));
    }
    stream.read_exact(&mut hello[4..]).map_err(lost)?;
    let theirs = Versions { oldest: hello[4], newest: hello[5] };
    let known = token.is_none_or(|token| token.check(&[b"client", &greeting, &hello[..39]], &hello[39..]));
    let (status, outcome) = match theirs.common(ours) {
        _ if !known => (2, Err(Error::new(ErrorKind::Denied, format!("{doing}: it has another token")))),
        None => (1, Err(other_versions(&doing, theirs, ours))),
        Some(_) if hello[6] != PURPOSE => {
            (4, Err(Error::unsupported(format!("{doing}: it came for something else"))))
        }
        Some(_) if busy => (3, Err(Error::exhausted(format!("{doing}: there are too many")))),
        Some(version) => (0, Ok(version)),
    };
    let mut welcome = [0; 34];
    welcome[0] = status;
    if let Ok(version) = outcome {
        welcome[1] = version;
        if let Some(token) = token {
            let proof = token.prove(&[b"server", &greeting, &hello[..39], &[status, version]]);
            welcome[2..].copy_from_slice(&proof);
        }
    }
    stream.write_all(&welcome).and_then(|()| stream.flush()).map_err(lost)?;
    outcome
}

/// The client's part: the version to speak.
pub(crate) fn join<S: Read + Write>(
    stream: &mut S,
    peer: &str,
    token: Option<&Token>,
    ours: Versions,
) -> Result<u8> {
    let doing = format!("connect to {peer}");
    let fault = |kind, why: &str| Error::new(kind, format!("{doing}: {why}"));
    let lost = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::TimedOut => Error::unavailable(format!("{doing}: no answer in time"))
            .with_hint("if it wants certificates, give them here too"),
        _ => tls_fault(&doing, error),
    };
    let mut greeting = [0; 39];
    stream.read_exact(&mut greeting).map_err(lost)?;
    if greeting[..4] != MAGIC {
        return Err(fault(ErrorKind::Corrupt, "something else answers there"));
    }
    let theirs = Versions { oldest: greeting[4], newest: greeting[5] };
    match (greeting[6], token) {
        (0, Some(_)) => {
            return Err(fault(
                ErrorKind::Denied,
                "it asks for no token, so it cannot show that it knows ours",
            ));
        }
        (0, None) | (_, Some(_)) => {}
        (_, None) => {
            return Err(fault(ErrorKind::Denied, "it wants a token").with_hint("give the service's token"));
        }
    }
    let mut hello = [0; 71];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4..7].copy_from_slice(&[ours.oldest, ours.newest, PURPOSE]);
    hello[7..39].copy_from_slice(&random()?);
    if let Some(token) = token {
        let proof = token.prove(&[b"client", &greeting, &hello[..39]]);
        hello[39..].copy_from_slice(&proof);
    }
    // Said even when the versions do not meet: the other side can then say so too.
    stream.write_all(&hello).and_then(|()| stream.flush()).map_err(lost)?;
    let Some(common) = theirs.common(ours) else { return Err(other_versions(&doing, theirs, ours)) };
    let mut welcome = [0; 34];
    stream.read_exact(&mut welcome).map_err(lost)?;
    match welcome[0] {
        0 => {}
        1 => return Err(other_versions(&doing, theirs, ours)),
        2 => {
            return Err(fault(ErrorKind::Denied, "it refused our token")
                .with_hint("give dispatcher, workers and clients the same token"));
        }
        3 => return Err(fault(ErrorKind::Exhausted, "it has too many clients")),
        4 => return Err(fault(ErrorKind::Unsupported, "it gives no batches")),
        _ => return Err(fault(ErrorKind::Corrupt, "its answer makes no sense")),
    }
    let parts: [&[u8]; 4] = [b"server", &greeting, &hello[..39], &welcome[..2]];
    if token.is_some_and(|token| !token.check(&parts, &welcome[2..])) {
        return Err(fault(ErrorKind::Denied, "it does not know our token"));
    }
    if welcome[1] != common {
        return Err(fault(ErrorKind::Corrupt, "it chose a version that was not offered"));
    }
    Ok(common)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    fn meet(
        worker: (Option<Token>, bool, Versions),
        client: (Option<Token>, Versions),
    ) -> (Result<u8>, Result<u8>) {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let (token, busy, versions) = worker;
            let accepting =
                scope.spawn(move || accept(&mut near, "a client", token.as_ref(), busy, versions));
            let joined = join(&mut far, "a worker", client.0.as_ref(), client.1);
            drop(far);
            (accepting.join().unwrap(), joined)
        })
    }

    #[test]
    fn the_newest_common_version_is_spoken_and_without_one_both_sides_name_both() {
        let versions = |oldest, newest| Versions { oldest, newest };
        for (worker, client, common) in [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((2, 9), (1, 2), 2)] {
            let worker = versions(worker.0, worker.1);
            let (accepted, joined) = meet((None, false, worker), (None, versions(client.0, client.1)));
            assert_eq!((accepted.unwrap(), joined.unwrap()), (common, common));
        }
        for (worker, client) in [((1, 2), (3, 4)), ((7, 8), (3, 4))] {
            let worker = versions(worker.0, worker.1);
            let (accepted, joined) = meet((None, false, worker), (None, versions(client.0, client.1)));
            for error in [accepted.unwrap_err(), joined.unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.message().contains("versions 3 to 4"), "{error:?}");
                assert!(error.message().contains(&worker.to_string()), "{error:?}");
                assert!(error.hint().is_some_and(|hint| hint.contains("newer")));
            }
        }
    }

    #[test]
    fn whoever_does_not_know_the_token_is_turned_away_with_a_word() {
        let (one, other) = (Some(token("the token of this job")), Some(token("the token of that job")));
        assert_eq!(meet((one.clone(), false, VERSIONS), (one.clone(), VERSIONS)).1.unwrap(), 1);
        for (worker, client) in [(one.clone(), other), (one.clone(), None), (None, one.clone())] {
            let (accepted, joined) = meet((worker, false, VERSIONS), (client, VERSIONS));
            let error = joined.unwrap_err();
            assert!(accepted.is_err() && error.kind() == ErrorKind::Denied, "{error:?}");
            assert!(error.message().contains("token"), "{error:?}");
        }
        let (accepted, joined) = meet((one.clone(), true, VERSIONS), (one, VERSIONS));
        assert_eq!(accepted.unwrap_err().kind(), ErrorKind::Exhausted);
        assert_eq!(joined.unwrap_err().kind(), ErrorKind::Exhausted);
    }

    #[test]
    fn an_impostor_that_cannot_prove_itself_is_found_out() {
        let (mut near, mut far) = UnixStream::pair().unwrap();
        let impostor = std::thread::spawn(move || {
            let mut greeting = [7; 39];
            greeting[..4].copy_from_slice(&MAGIC);
            greeting[4..7].copy_from_slice(&[1, 1, 1]);
            near.write_all(&greeting).unwrap();
            near.read_exact(&mut [0; 71]).unwrap();
            let mut welcome = [0; 34];
            welcome[1] = 1;
            near.write_all(&welcome).unwrap();
        });
        let error = join(&mut far, "it", Some(&token("the token of this job")), VERSIONS).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        impostor.join().unwrap();
    }

    #[test]
    fn nonsense_and_silence_are_errors_on_both_sides() {
        for said in [&b""[..], b"FB", b"GET / HTTP/1.1\r\n\r\n", &[0xff; 200], b"FBYB\x01\x01"] {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            far.write_all(said).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(accept(&mut near, "a client", None, false, VERSIONS).is_err());
            let (mut near, mut far) = UnixStream::pair().unwrap();
            far.write_all(said).unwrap();
            far.shutdown(std::net::Shutdown::Write).unwrap();
            assert!(join(&mut near, "a worker", None, VERSIONS).is_err());
        }
    }
}
