//! Workers over real sockets with made-up makers: what is made, given, held and dropped, by counts.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod life;
mod made;
mod policies;
