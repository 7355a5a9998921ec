//! HDFS: `hdfs://namenode:port`, or `hdfs://service` for a name service of Hadoop's own configuration.
//!
//! The client is `hdfs-native`, which speaks to NameNode and DataNodes itself and compares the checksum of every block
//! that it reads. A read asks the NameNode once where the blocks of the file are, so it sees one version of it.
//! [`put`] writes, [`walk`] lists, [`fault`] says what the client's errors mean. Requests that failed are not made again
//! here: the adapter around the store decides.

mod fault;
mod put;
mod walk;

use crate::{ByteRange, Net, ObjectMeta, Store, StoreOptions, fault as worded, key, range};
use bytes::Bytes;
use fault::refused;
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use hdfs_native::client::FileStatus;
use hdfs_native::{Client, ClientBuilder, HdfsError};
use put::put;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use walk::Walk;

/// Option words of this store.
const WORDS: &[&str] = &["user", "config_dir"];

/// What the client is told unless Hadoop's configuration says otherwise: a NameNode that does not answer is our
/// caller's business, after each of a pair had its chance.
const SETTINGS: &[(&str, &str)] =
    &[("dfs.client.failover.max.attempts", "3"), ("dfs.client.failover.sleep.base.millis", "100")];

/// The files of one HDFS; clones share a client.
#[derive(Clone)]
pub struct HdfsStore(Arc<Inner>);

struct Inner {
    root: String,
    user: Option<String>,
    config_dir: Option<String>,
    live: Mutex<Option<Live>>,
}

/// What one process has made. The threads come last, so that they outlive what runs on them.
#[derive(Clone)]
struct Live {
    client: Client,
    net: Net,
}

impl HdfsStore {
    /// The files below `/` of `root`. Nothing is sent before the first request. Options: `user` (else
    /// `HADOOP_USER_NAME`, else the system's), `config_dir` with `core-site.xml` and `hdfs-site.xml` (else
    /// `HADOOP_CONF_DIR`).
    pub fn open(root: &str, options: &StoreOptions) -> Result<Self> {
        crate::http::options::refuse_unknown(options, "hdfs", &[WORDS])?;
        let text = |word: &str| options.get(word).filter(|value| !value.is_empty()).cloned();
        let root = root.trim_end_matches('/').to_owned();
        Ok(Self(Arc::new(Inner {
            root,
            user: text("user"),
            config_dir: text("config_dir"),
            live: Mutex::default(),
        })))
    }

    /// Runs `work` on the network threads. The client stops where bytes from outside make no sense to it; that is an
    /// error like others.
    async fn run<T, F>(&self, work: impl FnOnce(Client) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let Live { client, net } = self.0.live()?;
        let guarded = AssertUnwindSafe(work(client)).catch_unwind();
        net.run(Box::pin(async move {
            guarded.await.unwrap_or_else(|_| Err(Error::corrupt("the answer of HDFS makes no sense")))
        }))
        .await
    }

    async fn look(&self, key: &str) -> Result<ObjectMeta> {
        key::check(key)?;
        let (url, key) = (self.url(key), key.to_owned());
        self.run(move |client| async move {
            match client.get_file_info(&path(&key)).await {
                Ok(status) if !status.isdir => Ok(meta(key, &status)),
                Ok(_) => Err(worded::missing("look at", &url)),
                Err(error) => Err(refused(&error, "look at", &url)),
            }
        })
        .await
    }

    /// The parts of a file that `wanted` names when it knows the file's size.
    async fn bring(
        &self,
        key: &str,
        first: Option<u64>,
        wanted: impl Fn(u64) -> Result<Vec<Range<u64>>> + Send + 'static,
    ) -> Result<Vec<Bytes>> {
        key::check(key)?;
        let (url, path) = (self.url(key), path(key));
        self.run(move |client| async move {
            let mut tries = 0;
            loop {
                let parts = match client.read(&path).await {
                    Ok(file) => {
                        let parts = wanted(file.file_length() as u64)
                            .map_err(|error| worded::located(error, "read", &url, first))?;
                        read_parts(&file, &parts).await
                    }
                    Err(error) => return Err(refused(&error, "read", &url)),
                };
                match parts {
                    Ok(parts) => return Ok(parts),
                    // Blocks of a file that was replaced go away a moment later: the new file has others.
                    Err(_) if tries == 0 => tries += 1,
                    Err(error) => return Err(refused(&error, "read", &url)),
                }
            }
        })
        .await
    }
}

impl Inner {
    /// The client of this process, made when it is first needed and made anew after a fork.
    fn live(&self) -> Result<Live> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(live) = live.as_ref().filter(|live| live.net.is_alive()) {
            return Ok(live.clone());
        }
        let net = Net::shared()?;
        let handle = net.handle().ok_or_else(|| Error::internal("the network threads have ended"))?;
        let mut builder = ClientBuilder::new().with_url(&self.root).with_io_runtime(handle);
        if let Some(folder) = &self.config_dir {
            builder = builder.with_config_dir(folder);
        } else if std::env::var_os("HADOOP_CONF_DIR").is_none() && std::env::var_os("HADOOP_HOME").is_none() {
            builder = builder.with_config(SETTINGS.iter().copied());
        }
        if let Some(user) = &self.user {
            builder = builder.with_user(user);
        }
        let client = builder.build().map_err(|error| {
            Error::invalid_config(format!("open `{}`", self.root)).with_source(error).with_hint(
                "name the NameNode with its port, or a name service of the configuration in `config_dir`",
            )
        })?;
        let fresh = Live { client, net };
        // Connections of the parent process: closing them here would reach into its event queue.
        std::mem::forget(live.replace(fresh.clone()));
        Ok(fresh)
    }
}

fn path(key: &str) -> String {
    format!("/{key}")
}

fn meta(key: String, status: &FileStatus) -> ObjectMeta {
    // Milliseconds there. 0 would mean that nothing is known.
    let stamp = status.modification_time.saturating_mul(1_000_000).max(1);
    ObjectMeta { key, size: status.length as u64, stamp }
}

async fn read_parts(
    file: &hdfs_native::file::FileReader,
    parts: &[Range<u64>],
) -> std::result::Result<Vec<Bytes>, HdfsError> {
    let mut found = Vec::with_capacity(parts.len());
    for part in parts {
        let length = (part.end - part.start) as usize;
        let bytes =
            if length == 0 { Bytes::new() } else { file.read_range(part.start as usize, length).await? };
        if bytes.len() != length {
            let why = format!("{} of {length} bytes came", bytes.len());
            return Err(HdfsError::DataTransferError(why));
        }
        found.push(bytes);
    }
    Ok(found)
}

impl std::fmt::Debug for HdfsStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HdfsStore").field("root", &self.0.root).finish_non_exhaustive()
    }
}

impl Store for HdfsStore {
    fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.0.root)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.look(key).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let parts = self.bring(key, None, move |size| Ok(vec![range.resolve(size)?])).await?;
            Ok(parts.into_iter().next().unwrap_or_default())
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        let (first, parts) = (parts.first().map(|part| part.start), parts.to_vec());
        self.bring(key, first, move |size| range::check_parts(&parts, size).map(|()| parts.clone())).boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let walk = Walk::new(prefix);
        stream::try_unfold(walk, move |walk| async move {
            let url = self.url(prefix);
            self.run(move |client| async move { walk.step(&client, &url).await }).await
        })
        .map_ok(|found| stream::iter(found.into_iter().map(Ok)))
        .try_flatten()
        .boxed()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.0.live().ok()?.net.handle()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            key::check_for_write(key)?;
            let (url, path) = (self.url(key), path(key));
            self.run(move |client| async move {
                put(&client, &path, bytes).await.map_err(|error| refused(&error, "write", &url))
            })
            .await
        }
        .boxed()
    }
}
