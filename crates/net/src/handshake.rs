//! How a connection begins: both sides say their version and prove that they know the token.
//!
//! ```text
//! server: "FBYC" | u8 version | u8 wants a token | 32 random bytes
//! client: "FBYC" | u8 version | u8 purpose       | 32 random bytes | 32 bytes proof
//! server: u8 status | 32 bytes proof
//! ```
//!
//! A proof is a keyed hash over who gives it, the purpose and the random bytes of both. Without a token proofs are
//! zeros. All parts have fixed sizes, so nothing is allocated for someone who has not shown who they are.

use crate::credentials::{Token, tls_fault};
use crate::wire::VERSION;
use forebay_core::{Error, ErrorKind, Result};
use ring::rand::{SecureRandom, SystemRandom};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const MAGIC: [u8; 4] = *b"FBYC";

/// How long a beginning may take.
pub(crate) const TIME: Duration = Duration::from_secs(10);

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// A process of the same job on the same host: may do everything, and payloads that are fetched are claimed.
    Share = 1,
    /// A peer: reads and gives payloads.
    Peer = 2,
    /// Descriptors of slabs; see `host`.
    Slabs = 3,
    /// Batches of a feed; see `service`, which begins in its own way.
    Batches = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Status {
    Welcome = 0,
    OtherVersion = 1,
    Denied = 2,
    Busy = 3,
}

pub(crate) fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| Error::internal("draw random bytes: the system gave none"))?;
    Ok(bytes)
}

fn prove(token: Option<&Token>, who: &[u8], purpose: u8, server: &[u8], client: &[u8]) -> [u8; 32] {
    token.map_or([0; 32], |token| token.prove(&[who, &[purpose], server, client]))
}

/// The server's part. An error says why the other side was turned away; it has been told.
pub(crate) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    token: Option<&Token>,
    busy: bool,
) -> Result<Purpose> {
    let lost = |error| Error::io("meet a client of the shared cache", error);
    let ours = random()?;
    let mut greeting = [0; 38];
    greeting[..4].copy_from_slice(&MAGIC);
    greeting[4..6].copy_from_slice(&[VERSION, u8::from(token.is_some())]);
    greeting[6..].copy_from_slice(&ours);
    stream.write_all(&greeting).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut hello = [0; 70];
    stream.read_exact(&mut hello).await.map_err(lost)?;
    let theirs = &hello[6..38];
    let purpose = match hello[5] {
        1 => Some(Purpose::Share),
        2 => Some(Purpose::Peer),
        3 => Some(Purpose::Slabs),
        _ => None,
    };
    let known =
        token.is_none_or(|token| token.check(&[b"client", &hello[5..6], &ours, theirs], &hello[38..]));
    let (status, outcome) = match purpose {
        _ if hello[..4] != MAGIC => {
            return Err(Error::corrupt("meet a client of the shared cache: it is none"));
        }
        Some(_) if !known => {
            let fault =
                Error::new(ErrorKind::Denied, "meet a client of the shared cache: it has another token");
            (Status::Denied, Err(fault))
        }
        Some(_) if busy => {
            (Status::Busy, Err(Error::exhausted("meet a client of the shared cache: there are too many")))
        }
        Some(purpose) if hello[4] == VERSION => (Status::Welcome, Ok(purpose)),
        _ => {
            let fault = Error::unsupported("meet a client of the shared cache: it speaks another version");
            (Status::OtherVersion, Err(fault))
        }
    };
    let mut welcome = [0; 33];
    welcome[0] = status as u8;
    if status == Status::Welcome {
        welcome[1..].copy_from_slice(&prove(token, b"server", hello[5], &ours, theirs));
    }
    stream.write_all(&welcome).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    outcome
}

/// The client's part. `name` is how the other side is called in messages.
pub(crate) async fn join<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    name: &str,
    token: Option<&Token>,
    purpose: Purpose,
) -> Result<()> {
    let fault = |kind, why: &str| Error::new(kind, format!("join the shared cache at `{name}`: {why}"));
    let lost = |error| tls_fault(&format!("join the shared cache at `{name}`"), error);
    let mut greeting = [0; 38];
    stream.read_exact(&mut greeting).await.map_err(lost)?;
    if greeting[..4] != MAGIC {
        return Err(fault(ErrorKind::Corrupt, "something else answers there"));
    }
    if greeting[4] != VERSION {
        return Err(fault(ErrorKind::Unsupported, "it speaks another version")
            .with_hint("run the same release of forebay everywhere"));
    }
    match (greeting[5], token) {
        (0, Some(_)) => {
            return Err(fault(
                ErrorKind::Denied,
                "it asks for no token, so it cannot show that it knows ours",
            ));
        }
        (0, None) | (_, Some(_)) => {}
        (_, None) => {
            return Err(fault(ErrorKind::Denied, "it wants a token").with_hint("give the job's token"));
        }
    }
    let ours = random()?;
    let mut hello = [0; 70];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4..6].copy_from_slice(&[VERSION, purpose as u8]);
    hello[6..38].copy_from_slice(&ours);
    hello[38..].copy_from_slice(&prove(token, b"client", purpose as u8, &greeting[6..], &ours));
    stream.write_all(&hello).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut welcome = [0; 33];
    stream.read_exact(&mut welcome).await.map_err(lost)?;
    match welcome[0] {
        0 => {}
        1 => return Err(fault(ErrorKind::Unsupported, "it speaks another version")),
        2 => {
            return Err(fault(ErrorKind::Denied, "it refused our token")
                .with_hint("give all members of the job the same token"));
        }
        3 => return Err(fault(ErrorKind::Exhausted, "it has too many clients")),
        _ => return Err(fault(ErrorKind::Corrupt, "its answer makes no sense")),
    }
    let parts: [&[u8]; 4] = [b"server", &[purpose as u8], &greeting[6..], &ours];
    if token.is_some_and(|token| !token.check(&parts, &welcome[1..])) {
        return Err(fault(ErrorKind::Denied, "it does not know our token"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(text: &str) -> Token {
        Token::new(text).unwrap()
    }

    async fn meet(server: Option<Token>, client: Option<Token>, busy: bool) -> (Result<Purpose>, Result<()>) {
        let (mut near, mut far) = tokio::io::duplex(256);
        let serving = async move { accept(&mut near, server.as_ref(), busy).await };
        let joining = async move { join(&mut far, "there", client.as_ref(), Purpose::Peer).await };
        tokio::join!(serving, joining)
    }

    #[tokio::test]
    async fn only_those_with_the_same_token_meet() {
        let (one, other) = (Some(token("the token of this job")), Some(token("the token of another")));
        let (purpose, joined) = meet(one.clone(), one.clone(), false).await;
        assert_eq!(purpose.unwrap(), Purpose::Peer);
        joined.unwrap();
        let (purpose, joined) = meet(None, None, false).await;
        assert!(purpose.is_ok() && joined.is_ok());
        for (server, client) in [(one.clone(), other), (one.clone(), None), (None, one.clone())] {
            let (purpose, joined) = meet(server, client, false).await;
            let error = joined.unwrap_err();
            assert!(purpose.is_err() && error.kind() == ErrorKind::Denied, "{error:?}");
            assert!(error.message().contains("token"), "{error:?}");
        }
        let (_, joined) = meet(one.clone(), one, true).await;
        assert_eq!(joined.unwrap_err().kind(), ErrorKind::Exhausted);
    }

    #[tokio::test]
    async fn an_impostor_who_says_welcome_without_the_token_is_found_out() {
        let (mut near, mut far) = tokio::io::duplex(256);
        let impostor = async move {
            let mut greeting = [7; 38];
            greeting[..4].copy_from_slice(&MAGIC);
            greeting[4..6].copy_from_slice(&[VERSION, 1]);
            near.write_all(&greeting).await.unwrap();
            near.read_exact(&mut [0; 70]).await.unwrap();
            near.write_all(&[0; 33]).await.unwrap();
        };
        let token = token("the token of this job");
        let joining = join(&mut far, "there", Some(&token), Purpose::Peer);
        let ((), joined) = tokio::join!(impostor, joining);
        assert_eq!(joined.unwrap_err().kind(), ErrorKind::Denied);
    }
}
