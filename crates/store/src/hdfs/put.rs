//! Puts a file in place: written under a name beside, then renamed, which HDFS does at once.

use crate::key::TEMPORARY_PREFIX;
use bytes::Bytes;
use hdfs_native::{Client, HdfsError, WriteOptions};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

type Result<T> = std::result::Result<T, HdfsError>;

/// As often, and after as long a pause that doubles, as Hadoop's own client asks for the next block.
const TRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(400);

/// Writes `bytes` as the file `path`, which others see whole or not at all.
pub(super) async fn put(client: &Client, path: &str, bytes: Bytes) -> Result<()> {
    let mut pause = FIRST_PAUSE;
    for last in (0..TRIES).map(|tried| tried + 1 == TRIES) {
        match try_put(client, path, bytes.clone()).await {
            Err(error) if !last && is_early(&error) => tokio::time::sleep(pause).await,
            done => return done,
        }
        pause *= 2;
    }
    Ok(())
}

/// The NameNode gives no further block until it has heard from a DataNode about an earlier one. To ask again is part of
/// writing a file, which the client leaves out; and since it has closed the block by then, we begin anew.
fn is_early(error: &HdfsError) -> bool {
    matches!(error, HdfsError::RPCError(class, _) if class.ends_with(".NotReplicatedYetException"))
}

async fn try_put(client: &Client, path: &str, bytes: Bytes) -> Result<()> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    // Told apart from writes of other machines by the time.
    let time = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos());
    let (process, number) = (std::process::id(), WRITES.fetch_add(1, Relaxed));
    let beside = format!("{folder}/{TEMPORARY_PREFIX}{process}-{time:x}-{number}");
    let mut file = client.create(&beside, WriteOptions::default()).await?;
    let written = async {
        Box::pin(file.write_bytes(bytes)).await?;
        Box::pin(file.close()).await?;
        client.rename(&beside, path, true).await
    };
    let done = written.await;
    if done.is_err() {
        let _ = client.delete(&beside, false).await;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_block_that_is_not_yet_known_is_waited_for() {
        let said = |class: &str| HdfsError::RPCError(format!("org.apache.hadoop.{class}"), String::new());
        assert!(is_early(&said("hdfs.server.namenode.NotReplicatedYetException")));
        assert!(!is_early(&said("hdfs.server.namenode.SafeModeException")));
        assert!(!is_early(&HdfsError::ChecksumError));
    }
}
