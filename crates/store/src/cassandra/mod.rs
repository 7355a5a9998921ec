//! Cassandra and ScyllaDB over CQL: a table is a store, a row is an object, its id is the key.
//!
//! An object's bytes are the data column; when labels are blobs, the label's bytes follow it, so that one request
//! brings both. A row is always read whole, by a prepared statement from a replica that has it, without compression,
//! and ranges are slices of it; nothing is copied between the socket and the caller. `head` tells the size and, as
//! the stamp, the time of writing: from a column `size` (of the metadata table, if there is one, else of the data
//! table) when there is one, otherwise by reading the row. `list` scans all ids and sorts them.
//!
//! `settings` reads what the user said, `link` makes the session, `table` the statements, `rows` scans and writes,
//! `cql` turns cells into values and `fault` the driver's errors into ours.

mod cql;
mod fault;
mod link;
mod rows;
mod settings;
mod table;

pub use rows::{CreateTables, LabelType, NewLabel, NewRow, Row, RowInfo};

use crate::{ByteRange, ObjectMeta, Store, StoreOptions, fault as worded, key, range};
use bytes::{Bytes, BytesMut};
use cql::{Bound, Cells};
use forebay_core::{Error, Result};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use link::Link;
use scylla::statement::prepared::PreparedStatement;
use settings::Settings;
use std::ops::Range;
use std::sync::Arc;
use table::Tables;

/// Rows looked at side by side when a listing has to learn their sizes.
const LOOKS_IN_FLIGHT: usize = 32;

/// A table of a cluster; clones share one session.
#[derive(Clone, Debug)]
pub struct CassandraStore {
    link: Arc<Link>,
}

impl CassandraStore {
    /// The table that `root` (`cassandra://host[:port][,host]/keyspace/table`) names. Nothing is sent before the
    /// first request. Options: `username`, `password` (or `CASSANDRA_USERNAME`, `CASSANDRA_PASSWORD`), `tls` (`on`,
    /// `off`), `tls_verify`, `tls_ca_file`, `tls_client_cert`, `tls_client_key`, `id_column`, `data_column`,
    /// `label_column`, `label_type` (`none`, `int`, `blob`; by the schema when not said), `metadata_table` (`TABLE_metadata` when it is there),
    /// `local_dc`, `connections` (to each node) and `request_timeout` (seconds).
    pub fn open(root: &str, options: &StoreOptions) -> Result<Self> {
        Ok(Self { link: Arc::new(Link::new(Settings::new(root, options)?)) })
    }

    fn root(&self) -> &str {
        &self.link.settings.root
    }

    /// Runs `work` with the tables on the network threads.
    async fn run<T, F>(&self, work: impl FnOnce(Arc<Tables>) -> F + Send + 'static) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let link = Arc::clone(&self.link);
        let process = link.process()?;
        let net = process.net.clone();
        // The driver's futures are large, and this one would be part of every caller's.
        net.run(Box::pin(async move { work(process.tables(&link.settings).await?).await })).await
    }

    async fn read_row(&self, doing: &'static str, key: &str) -> Result<Row> {
        key::check(key)?;
        let (url, key) = (self.url(key), key.to_owned());
        self.run(move |tables| async move {
            let found = match select(&tables, &tables.read, doing, &key, &url).await? {
                Some(found) => Some(found),
                // The one replica that was asked may have missed a write.
                None => select(&tables, &tables.read_by_quorum, doing, &key, &url).await?,
            };
            let mut cells = found.ok_or_else(|| worded::missing(doing, &url))?;
            row_of(&tables, &mut cells).ok_or_else(|| worded::missing(doing, &url))
        })
        .await
    }

    async fn look(&self, key: &str) -> Result<ObjectMeta> {
        key::check(key)?;
        let (url, key) = (self.url(key), key.to_owned());
        self.run(move |tables| async move { look(&tables, key, &url).await }).await
    }

    async fn sorted(&self, prefix: &str) -> Result<Vec<ObjectMeta>> {
        let mut rows = self.scan().await?;
        rows.retain(|row| row.id.starts_with(prefix));
        let blob = self.label_type().await? == LabelType::Blob;
        let metas = stream::iter(rows).map(|row| async move {
            let size = match (row.size, row.label_size) {
                (Some(size), Some(label)) if blob => Some(size + label),
                (Some(size), _) if !blob => Some(size),
                _ => None,
            };
            match size {
                Some(size) => Ok(Some(ObjectMeta { key: row.id, size, stamp: row.stamp })),
                None => match self.look(&row.id).await {
                    Ok(meta) => Ok(Some(meta)),
                    // Noted in the metadata table, and its data is gone or not there yet.
                    Err(error) if error.kind() == forebay_core::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                },
            }
        });
        metas.buffered(LOOKS_IN_FLIGHT).try_filter_map(futures::future::ok).try_collect().await
    }
}

/// The row of one id; `None` when there is none.
async fn select(
    tables: &Tables,
    statement: &PreparedStatement,
    doing: &str,
    key: &str,
    url: &str,
) -> Result<Option<Cells>> {
    let Some(id) = tables.id.parse(key) else { return Ok(None) };
    let at = |error: Error| worded::located(error, doing, url, None);
    let answer = tables.session.execute_unpaged(statement, vec![Bound::Value(id)]).await;
    let answer = answer.map_err(|error| {
        let what = format!("{doing} `{url}`");
        at_object(fault::execute(&what, error), url)
    })?;
    let rows = answer
        .into_rows_result()
        .map_err(|error| at(Error::corrupt("no rows in the answer").with_source(error)))?;
    rows.maybe_first_row::<Cells>()
        .map_err(|error| at(Error::corrupt("the row cannot be read").with_source(error)))
}

fn at_object(error: Error, url: &str) -> Error {
    error.with_facts(forebay_core::Facts { object: Some(url.to_owned()), ..forebay_core::Facts::default() })
}

/// Data and label; `None` when nobody wrote the data.
fn row_of(tables: &Tables, cells: &mut Cells) -> Option<Row> {
    let data = cells.bytes(0)?;
    let label = (tables.label == LabelType::Blob).then(|| cells.bytes(1).unwrap_or_default());
    Some(Row { data, label })
}

async fn look(tables: &Tables, key: String, url: &str) -> Result<ObjectMeta> {
    const DOING: &str = "look at";
    let stamp =
        |cells: &Cells, place| cells.int(place).and_then(|time| u64::try_from(time).ok()).unwrap_or_default();
    if let Some(statement) = &tables.size
        && let Some(cells) = select(tables, statement, DOING, &key, url).await?
    {
        let size = |place| cells.int(place).and_then(|size| u64::try_from(size).ok());
        let label = if tables.label == LabelType::Blob { size(2) } else { Some(0) };
        if let (Some(size), Some(label)) = (size(0), label) {
            return Ok(ObjectMeta { key, size: size + label, stamp: stamp(&cells, 1) });
        }
    }
    let mut cells =
        select(tables, &tables.look, DOING, &key, url).await?.ok_or_else(|| worded::missing(DOING, url))?;
    let place = if tables.label == LabelType::Blob { 2 } else { 1 };
    let stamp = stamp(&cells, place);
    let row = row_of(tables, &mut cells).ok_or_else(|| worded::missing(DOING, url))?;
    Ok(ObjectMeta { key, size: row.len(), stamp })
}

impl Row {
    /// Bytes of the object that the row is.
    pub fn len(&self) -> u64 {
        (self.data.len() + self.label.as_ref().map_or(0, Bytes::len)) as u64
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A range of data and label behind each other, which must lie inside. Copies only what reaches from one into
    /// the other.
    pub fn slice(&self, range: &Range<u64>) -> Bytes {
        let middle = self.data.len();
        let (start, end) = (range.start as usize, range.end as usize);
        match &self.label {
            Some(label) if start >= middle => label.slice(start - middle..end - middle),
            Some(label) if end > middle => {
                let mut joined = BytesMut::with_capacity(end - start);
                joined.extend_from_slice(&self.data[start..]);
                joined.extend_from_slice(&label[..end - middle]);
                joined.freeze()
            }
            _ => self.data.slice(start..end),
        }
    }
}

impl Store for CassandraStore {
    fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.root())
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta>> {
        self.look(key).boxed()
    }

    fn read<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<Bytes>> {
        async move {
            let row = self.read_row("read", key).await?;
            let range = range
                .resolve(row.len())
                .map_err(|error| worded::located(error, "read", &self.url(key), None))?;
            Ok(row.slice(&range))
        }
        .boxed()
    }

    fn read_parts<'a>(&'a self, key: &'a str, parts: &'a [Range<u64>]) -> BoxFuture<'a, Result<Vec<Bytes>>> {
        async move {
            let row = self.read_row("read", key).await?;
            range::check_parts(parts, row.len()).map_err(|error| {
                worded::located(error, "read", &self.url(key), parts.first().map(|part| part.start))
            })?;
            Ok(parts.iter().map(|part| row.slice(part)).collect())
        }
        .boxed()
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta>> {
        let listing = async move {
            let sorted = self.sorted(prefix).await;
            let (found, fault) = match sorted {
                Ok(found) => (found, None),
                Err(error) => (Vec::new(), Some(error)),
            };
            stream::iter(found.into_iter().map(Ok).chain(fault.map(Err)))
        };
        listing.flatten_stream().boxed()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.link.process().ok()?.net.handle()
    }

    fn write<'a>(&'a self, key: &'a str, bytes: Bytes) -> BoxFuture<'a, Result<()>> {
        async move {
            key::check_for_write(key)?;
            let url = self.url(key);
            let row = NewRow { id: key.to_owned(), data: bytes, ..NewRow::default() };
            self.run(move |tables| async move {
                if tables.label == LabelType::Blob {
                    let why = "the bytes do not say where the data ends and the label begins";
                    return Err(Error::unsupported(format!("write `{url}`: {why}")).with_hint(
                        "write rows with labels by `forebay ingest`, or set `label_type` to `none`",
                    ));
                }
                rows::write(&tables, &url, row).await
            })
            .await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p010_a_row_is_its_data_and_then_its_label_without_a_copy() {
        let (data, label) = (Bytes::from_static(b"0123456789"), Bytes::from_static(b"abc"));
        let row = Row { data: data.clone(), label: Some(label.clone()) };
        let whole = [&data[..], &label[..]].concat();
        for start in 0..=13u64 {
            for end in start..=13 {
                assert_eq!(row.slice(&(start..end)), &whole[start as usize..end as usize]);
            }
        }
        assert_eq!(row.slice(&(0..10)).as_ptr(), data.as_ptr());
        assert_eq!(row.slice(&(10..13)).as_ptr(), label.as_ptr());
        assert_eq!((Row { data, label: None }).len(), 10);
    }
}
