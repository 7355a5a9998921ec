//! Descriptors of slabs over a unix socket, on connections that carry nothing else.
//!
//! ```text
//! client: u32 slab | u64 version of the slabs
//! server: u64 bytes of the slab, with its descriptor; 0 without one when there is no such slab
//! ```
//!
//! The version keeps a client from getting a slab of a process that was started later under the same number.

use super::Slabs;
use forebay_core::{Error, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

/// Shows slabs to a client until it leaves.
pub(crate) async fn hand_out(stream: &mut UnixStream, slabs: &Slabs) {
    let mut asked = [0; 12];
    while stream.read_exact(&mut asked).await.is_ok() {
        let [a, b, c, d, version @ ..] = asked;
        let slab = slabs.slab(u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(version));
        let said = match slab {
            None => stream.write_all(&0u64.to_le_bytes()).await,
            Some(slab) => {
                let size = slab.size.to_le_bytes();
                stream
                    .async_io(Interest::WRITABLE, || {
                        let descriptors = [slab.shown.as_fd()];
                        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                        let mut control = SendAncillaryBuffer::new(&mut space);
                        control.push(SendAncillaryMessage::ScmRights(&descriptors));
                        // Eight bytes fit whenever anything does.
                        sendmsg(&*stream, &[IoSlice::new(&size)], &mut control, SendFlags::NOSIGNAL)?;
                        Ok(())
                    })
                    .await
            }
        };
        if said.is_err() {
            return;
        }
    }
}

/// Asks for a slab: its memory and size.
pub(super) async fn ask(stream: &mut UnixStream, slab: u32, version: u64) -> Result<Option<(File, u64)>> {
    let fail = |error| Error::io("ask the cache of this host for shared memory", error);
    let mut question = [0; 12];
    question[..4].copy_from_slice(&slab.to_le_bytes());
    question[4..].copy_from_slice(&version.to_le_bytes());
    stream.write_all(&question).await.map_err(fail)?;
    let mut size = [0; 8];
    let received = stream.async_io(Interest::READABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut size)];
        let message = recvmsg(&*stream, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let descriptor = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        });
        Ok((message.bytes, descriptor))
    });
    let (count, descriptor) = received.await.map_err(fail)?;
    if count == 0 {
        return Err(fail(std::io::ErrorKind::UnexpectedEof.into()));
    }
    stream.read_exact(&mut size[count..]).await.map_err(fail)?;
    Ok(descriptor.map(|descriptor| (File::from(descriptor), u64::from_le_bytes(size))))
}
