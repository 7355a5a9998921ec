//! Rows beyond what a store can say: scanning what is known of them, writing them with their labels, making tables.

use super::cql::{Bound, Cells};
use super::table::{FIELD, KEY, LABEL_NAME, LABEL_SIZE, Tables};
use super::{CassandraStore, fault};
use bytes::Bytes;
use forebay_core::{Error, Result};
use futures::TryStreamExt;
use futures::future::try_join_all;
use scylla::client::session::Session;
use scylla::statement::prepared::PreparedStatement;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::timeout;

pub use super::settings::LabelType;

/// Rows between two reports of a scan.
const REPORTED: u64 = 1000;

/// How often a part of a table is asked for, and how long one page of it is waited for before the last time.
const PART_TRIES: usize = 4;
const PAGE_WAIT: Duration = Duration::from_secs(10);

/// What the tables tell of a row without its payload. Columns that are not there, and cells that are empty, are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowInfo {
    /// The id as a key.
    pub id: String,
    /// Bytes of the data.
    pub size: Option<u64>,
    /// When the row was written, in microseconds; 0 when unknown.
    pub stamp: u64,
    /// An integer label.
    pub label: Option<i64>,
    /// Bytes of a label that is a blob.
    pub label_size: Option<u64>,
    /// The name of the label.
    pub label_name: Option<String>,
    /// The name of the field that the data is.
    pub field: Option<String>,
}

/// The payload of a row. Both share the memory of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The data column.
    pub data: Bytes,
    /// The label column, when labels are blobs; empty when the row has none.
    pub label: Option<Bytes>,
}

/// A label to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewLabel {
    /// An integer.
    Int(i64),
    /// Bytes.
    Blob(Bytes),
}

/// A row to be written. What the tables have no column for is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRow {
    /// The id as a key.
    pub id: String,
    /// The data column.
    pub data: Bytes,
    /// The label column.
    pub label: Option<NewLabel>,
    /// The name of the label.
    pub label_name: Option<String>,
    /// The name of the field that the data is.
    pub field: Option<String>,
    /// What the sample was called where it came from.
    pub key: Option<String>,
}

/// How tables are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateTables {
    /// Copies of every row, in every data center.
    pub replication: u16,
    /// What the label column holds.
    pub label: LabelType,
}

impl CassandraStore {
    /// What the label column holds, by the schema and the options.
    pub async fn label_type(&self) -> Result<LabelType> {
        self.run(|tables| async move { Ok(tables.label) }).await
    }

    /// Every row of the metadata table, or of the data table when none is named, sorted by id.
    ///
    /// It is the server that reads the whole table. With a column `size` that is short; without, it has to look at
    /// every payload to tell when it was written. Several parts of the table are read at once.
    pub async fn scan(&self) -> Result<Vec<RowInfo>> {
        self.scan_telling(Arc::new(|_| ())).await
    }

    /// As [`Self::scan`]; `found` is told how many rows are known so far, now and then, from another thread.
    pub async fn scan_telling(&self, found: Arc<dyn Fn(u64) + Send + Sync>) -> Result<Vec<RowInfo>> {
        let root = self.root().to_owned();
        self.run(|tables| async move {
            let mut rows = scan(&tables, &root, &*found).await?;
            if let Some(statement) = &tables.scan_labels {
                let labels = scan_labels(&tables, statement, &root).await?;
                for row in &mut rows {
                    row.label = labels.get(&row.id).copied();
                }
            }
            rows.sort_unstable_by(|a, b| a.id.cmp(&b.id));
            Ok(rows)
        })
        .await
    }

    /// Data and label of one row.
    pub async fn row(&self, id: &str) -> Result<Row> {
        self.read_row("read", id).await
    }

    /// Writes a row over one of the same id: the data first, then what the metadata table notes of it, so that a row
    /// in the metadata table is one that can be read.
    pub async fn write_row(&self, row: NewRow) -> Result<()> {
        let url = crate::Store::url(self, &row.id);
        self.run(|tables| async move { write(&tables, &url, row).await }).await
    }

    /// Makes the keyspace, the data table and, when one is named, the metadata table, each unless it is there.
    pub async fn create(&self, create: CreateTables) -> Result<()> {
        let link = Arc::clone(&self.link);
        let process = link.process()?;
        let net = process.net.clone();
        let create = async move {
            let settings = &link.settings;
            let session = process.session(settings).await?;
            let label = match create.label {
                LabelType::None => String::new(),
                other => format!("\"{}\" {}, ", settings.label_column, other.name()),
            };
            let (id, data) = (&settings.id_column, &settings.data_column);
            let keyspace = format!(
                "CREATE KEYSPACE IF NOT EXISTS \"{}\" WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {}}}",
                settings.keyspace, create.replication
            );
            define(&session, settings.root.as_str(), &[keyspace]).await?;
            let table = format!(
                "CREATE TABLE IF NOT EXISTS {} (\"{id}\" uuid PRIMARY KEY, {label}\"{data}\" blob)",
                settings.quoted(&settings.table)
            );
            // Payloads are compressed already. Cassandra and ScyllaDB say "not again" in different words.
            let off = ["{'enabled': 'false'}", "{'sstable_compression': ''}"];
            let off = off.map(|off| format!("{table} WITH compression = {off}"));
            define(&session, settings.root.as_str(), &off).await?;
            if let Some(metadata) = &settings.metadata_table {
                let label = if create.label == LabelType::Int {
                    format!("\"{}\" int, ", settings.label_column)
                } else {
                    String::new()
                };
                let table = format!(
                    "CREATE TABLE IF NOT EXISTS {} (\"{id}\" uuid PRIMARY KEY, {KEY} text, size bigint, {label}{LABEL_NAME} text, {LABEL_SIZE} bigint, {FIELD} text)",
                    settings.quoted(metadata)
                );
                define(&session, settings.root.as_str(), &[table]).await?;
            }
            Ok(())
        };
        net.run(Box::pin(create)).await
    }
}

/// Runs the first of several wordings that the server takes.
async fn define(session: &Session, root: &str, wordings: &[String]) -> Result<()> {
    let mut refused = None;
    for statement in wordings {
        match session.query_unpaged(statement.as_str(), ()).await {
            Ok(_) => return Ok(()),
            Err(error) => {
                let error = fault::execute(&format!("create tables for `{root}`"), error);
                if error.kind() != forebay_core::ErrorKind::InvalidConfig {
                    return Err(error);
                }
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.unwrap_or_else(|| Error::internal("define a table without a statement")))
}

async fn scan(tables: &Tables, root: &str, found: &(dyn Fn(u64) + Send + Sync)) -> Result<Vec<RowInfo>> {
    let doing = format!("scan `{root}`");
    let (doing, places) = (doing.as_str(), tables.scan_places);
    let known = AtomicU64::new(0);
    let row = |cells: &Cells| {
        let int = |place: Option<usize>| place.and_then(|place| cells.int(place));
        let text = |place: Option<usize>| place.and_then(|place| cells.text(place));
        let stamp = int(places.stamp);
        // A row of which nobody wrote the data is no object.
        if stamp.is_none() && places.stamp.is_some() && places.size.is_none() {
            return Ok(None);
        }
        let count = known.fetch_add(1, Relaxed) + 1;
        if count.is_multiple_of(REPORTED) {
            found(count);
        }
        Ok(Some(RowInfo {
            id: id_of(tables, cells, doing)?,
            size: int(places.size).and_then(|size| u64::try_from(size).ok()),
            stamp: stamp.and_then(|stamp| u64::try_from(stamp).ok()).unwrap_or_default(),
            label: int(places.label),
            label_size: int(places.label_size).and_then(|size| u64::try_from(size).ok()),
            label_name: text(places.label_name),
            field: text(places.field),
        }))
    };
    let parts = ring(tables.scans_at_once).into_iter();
    let parts = parts.map(|part| scan_part(tables, &tables.scan, part, doing, &row));
    Ok(try_join_all(parts).await?.concat())
}

async fn scan_labels(
    tables: &Tables,
    statement: &PreparedStatement,
    root: &str,
) -> Result<HashMap<String, i64>> {
    let doing = format!("scan the labels of `{root}`");
    let doing = doing.as_str();
    let label = |cells: &Cells| {
        let label = cells.int(1);
        label.map(|label| Ok((id_of(tables, cells, doing)?, label))).transpose()
    };
    let parts = ring(tables.scans_at_once).into_iter();
    let parts = parts.map(|part| scan_part(tables, statement, part, doing, &label));
    Ok(try_join_all(parts).await?.into_iter().flatten().collect())
}

/// The rows of one part of the ring; those for which `take` has nothing are left out. A server goes on asking a node that was
/// lost a moment ago until it knows better, so a part that is late is asked for again; the last time it may take as long as
/// a request may.
async fn scan_part<T>(
    tables: &Tables,
    statement: &PreparedStatement,
    part: Option<(i64, i64)>,
    doing: &str,
    take: &(impl Fn(&Cells) -> Result<Option<T>> + Sync),
) -> Result<Vec<T>> {
    for _ in 1..PART_TRIES {
        match scan_once(tables, statement, part, doing, take, PAGE_WAIT).await {
            Err(error) if error.kind().is_transient() => {}
            ended => return ended,
        }
    }
    scan_once(tables, statement, part, doing, take, Duration::MAX).await
}

/// The same once, page after page, each of which is waited for so long.
async fn scan_once<T>(
    tables: &Tables,
    statement: &PreparedStatement,
    part: Option<(i64, i64)>,
    doing: &str,
    take: &(impl Fn(&Cells) -> Result<Option<T>> + Sync),
    wait: Duration,
) -> Result<Vec<T>> {
    let late = || Error::unavailable(format!("{doing}: no answer in {} s", wait.as_secs()));
    let begin = async {
        match part {
            Some(part) => tables.session.execute_iter(statement.clone(), part).await,
            None => tables.session.execute_iter(statement.clone(), ()).await,
        }
    };
    let pager = timeout(wait, begin).await.map_err(|_| late())?;
    let pager = pager.map_err(|error| fault::pager(doing, error))?;
    let stream = pager.rows_stream::<Cells>();
    let mut stream = stream.map_err(|error| Error::internal(doing).with_source(error))?;
    let mut rows = Vec::new();
    loop {
        let next = timeout(wait, stream.try_next()).await.map_err(|_| late())?;
        let Some(cells) = next.map_err(|error| fault::row(doing, error))? else { return Ok(rows) };
        rows.extend(take(&cells)?);
    }
}

/// The ring of tokens in equal parts, each behind one token up to another. No row has the least token of all.
fn ring(parts: usize) -> Vec<Option<(i64, i64)>> {
    if parts <= 1 {
        return vec![None];
    }
    let (whole, count) = (u128::from(u64::MAX), parts as u128);
    let edge = |number: u128| (i128::from(i64::MIN) + (whole * number / count) as i128) as i64;
    (0..count).map(|number| Some((edge(number), edge(number + 1)))).collect()
}

fn id_of(tables: &Tables, cells: &Cells, doing: &str) -> Result<String> {
    let bytes = cells.0.first().and_then(Option::as_deref).unwrap_or_default();
    let id =
        tables.id.format(bytes).ok_or_else(|| Error::corrupt(format!("{doing}: an id cannot be read")))?;
    crate::key::check(&id).map_err(|error| error.while_doing(doing))?;
    Ok(id)
}

pub(super) async fn write(tables: &Tables, url: &str, row: NewRow) -> Result<()> {
    let fault = |why: &str| Error::invalid_config(format!("write `{url}`: {why}"));
    let id = tables.id.parse(&row.id).ok_or_else(|| fault("the key is no id of this table"))?;
    if i32::try_from(row.data.len()).is_err() {
        return Err(fault("a cell holds less than 2 GiB"));
    }
    let int = |value: i64| Bytes::copy_from_slice(&value.to_be_bytes());
    let (size, label_size) = (row.data.len() as i64, label_bytes(row.label.as_ref()));
    if let Some(NewLabel::Int(label)) = row.label
        && i32::try_from(label).is_err()
    {
        return Err(fault("an integer label has 32 bits"));
    }
    let value = |column: &str, in_metadata: bool| match column {
        "size" => Bound::Value(int(size)),
        LABEL_SIZE => Bound::or_unset(label_size.map(int)),
        LABEL_NAME => Bound::text(row.label_name.as_deref()),
        FIELD => Bound::text(row.field.as_deref()),
        KEY => Bound::text(row.key.as_deref()),
        _ => match &row.label {
            Some(NewLabel::Int(label)) => Bound::Value(int(*label)),
            Some(NewLabel::Blob(bytes)) if !in_metadata => Bound::Value(bytes.clone()),
            _ => Bound::Unset,
        },
    };
    let fits = matches!(
        (&row.label, tables.label),
        (None, _) | (Some(NewLabel::Int(_)), LabelType::Int) | (Some(NewLabel::Blob(_)), LabelType::Blob)
    );
    if !fits {
        return Err(fault(&format!("labels of this table are of type {}", tables.label.name())));
    }
    let doing = format!("write `{url}`");
    let mut values = vec![Bound::Value(id.clone()), Bound::Value(row.data.clone())];
    values.extend(tables.insert_columns.iter().map(|column| value(column, false)));
    let done = tables.session.execute_unpaged(&tables.insert, values).await;
    done.map_err(|error| fault::execute(&doing, error))?;
    if let Some(statement) = &tables.insert_metadata {
        let mut values = vec![Bound::Value(id)];
        values.extend(tables.metadata_columns.iter().map(|column| value(column, true)));
        let done = tables.session.execute_unpaged(statement, values).await;
        done.map_err(|error| fault::execute(&doing, error))?;
    }
    Ok(())
}

fn label_bytes(label: Option<&NewLabel>) -> Option<i64> {
    match label {
        Some(NewLabel::Blob(bytes)) => Some(bytes.len() as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_the_ring_meet_and_leave_no_token_out() {
        assert_eq!(ring(1), [None]);
        for parts in [2, 3, 4, 32] {
            let ring: Vec<_> = ring(parts).into_iter().flatten().collect();
            assert_eq!(ring.len(), parts);
            assert_eq!((ring[0].0, ring[parts - 1].1), (i64::MIN, i64::MAX));
            assert!(ring.windows(2).all(|two| two[0].1 == two[1].0));
            assert!(ring.iter().all(|(behind, until)| behind < until));
        }
    }
}
