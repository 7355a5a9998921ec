//! A table as it is: its columns by the schema, and the statements prepared for them.

use super::cql::{Cells, IdType};
use super::fault;
use super::settings::{LabelType, Settings};
use forebay_core::{Error, ErrorKind, Result};
use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of one page of a scan that reads short columns only.
const SHORT_PAGE: i32 = 5000;
/// Rows of one page of a scan for which the server has to look at payloads: a page of them has to fit in its memory.
const LONG_PAGE: i32 = 100;

/// Parts of a table that are scanned at once.
const SHORT_SCANS: usize = 32;
/// The same where the server has to look at payloads.
const LONG_SCANS: usize = 4;

/// Columns of the metadata table that mean something to us, besides id, size and label.
pub(super) const LABEL_SIZE: &str = "label_size";
pub(super) const LABEL_NAME: &str = "label_name";
pub(super) const FIELD: &str = "field";
pub(super) const KEY: &str = "key";
const SIZE: &str = "size";

/// Names of columns with their types; the id is not among them.
#[derive(Debug, Default)]
struct Columns(BTreeMap<String, String>);

impl Columns {
    fn is(&self, name: &str, types: &[&str]) -> bool {
        self.0.get(name).is_some_and(|found| types.contains(&found.as_str()))
    }

    fn has_int(&self, name: &str) -> bool {
        self.is(name, &["int", "bigint", "smallint", "tinyint"])
    }

    fn has_text(&self, name: &str) -> bool {
        self.is(name, &["text", "varchar", "ascii"])
    }
}

/// Which cells a scan brings, by their place in the row; the id is the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ScanPlaces {
    pub(super) size: Option<usize>,
    pub(super) stamp: Option<usize>,
    pub(super) label: Option<usize>,
    pub(super) label_size: Option<usize>,
    pub(super) label_name: Option<usize>,
    pub(super) field: Option<usize>,
}

/// Everything that requests need.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) session: Arc<Session>,
    pub(super) id: IdType,
    pub(super) label: LabelType,
    /// `SELECT data [, label] WHERE id = ?`, and the same by quorum.
    pub(super) read: PreparedStatement,
    pub(super) read_by_quorum: PreparedStatement,
    /// `SELECT data [, label], writetime(data) WHERE id = ?`.
    pub(super) look: PreparedStatement,
    /// `SELECT size, writetime(size) [, label_size] WHERE id = ?` when there is a column of sizes.
    pub(super) size: Option<PreparedStatement>,
    pub(super) scan: PreparedStatement,
    /// How many parts of the ring are scanned at once; 1 is all of it, and the scans take no values then.
    pub(super) scans_at_once: usize,
    pub(super) scan_places: ScanPlaces,
    /// `SELECT id, label` of the data table, when labels are integers and the scan does not bring them.
    pub(super) scan_labels: Option<PreparedStatement>,
    pub(super) insert: PreparedStatement,
    /// The columns that `insert` takes behind id and data.
    pub(super) insert_columns: Vec<String>,
    pub(super) insert_metadata: Option<PreparedStatement>,
    /// The columns that `insert_metadata` takes behind the id.
    pub(super) metadata_columns: Vec<String>,
}

impl Tables {
    pub(super) async fn prepare(session: Arc<Session>, settings: &Settings) -> Result<Arc<Self>> {
        let (id_type, columns) = load(&session, settings, &settings.table).await?;
        let (data, label_column) = (&settings.data_column, &settings.label_column);
        if !columns.is(data, &["blob"]) {
            return Err(column_fault(settings, &settings.table, data, "blob", &columns));
        }
        let label = label_type(settings, &columns)?;
        let metadata = match &settings.metadata_table {
            Some(table) => load_metadata(&session, settings, table, id_type)
                .await?
                .map(|columns| (table.as_str(), columns)),
            None => None,
        };
        let prepare = Preparing { session: &session, settings };
        let table = settings.quoted(&settings.table);
        let by_id = format!("WHERE \"{}\" = ?", settings.id_column);
        let mut payload = format!("\"{data}\"");
        if label == LabelType::Blob {
            payload = format!("{payload}, \"{label_column}\"");
        }
        let (base, base_columns) =
            metadata.as_ref().map_or((settings.table.as_str(), &columns), |(t, c)| (*t, c));
        let sized =
            base_columns.has_int(SIZE) && (label != LabelType::Blob || base_columns.has_int(LABEL_SIZE));
        let size = if sized {
            let more = if label == LabelType::Blob { format!(", {LABEL_SIZE}") } else { String::new() };
            let from = settings.quoted(base);
            Some(format!("SELECT {SIZE}, writetime({SIZE}){more} FROM {from} {by_id}"))
        } else {
            None
        };
        let (scan, scan_places) =
            scan_statement(settings, base, base_columns, metadata.is_none(), sized, label);
        let from_payloads = metadata.is_none() && !sized;
        let scan_labels = (label == LabelType::Int && scan_places.label.is_none())
            .then(|| format!("SELECT \"{}\", \"{label_column}\" FROM {table}", settings.id_column));
        let has_tokens = is_cut_by_tokens(&session, settings).await?;
        let scans_at_once = match (has_tokens, from_payloads || scan_labels.is_some()) {
            (false, _) => 1,
            (true, false) => SHORT_SCANS,
            (true, true) => LONG_SCANS,
        };
        let in_part = if has_tokens {
            format!(" WHERE token(\"{0}\") > ? AND token(\"{0}\") <= ?", settings.id_column)
        } else {
            String::new()
        };
        let (scan, scan_labels) =
            (format!("{scan}{in_part}"), scan_labels.map(|labels| format!("{labels}{in_part}")));
        let mut insert_columns = Vec::new();
        if label != LabelType::None {
            insert_columns.push(label_column.clone());
        }
        insert_columns
            .extend([SIZE, LABEL_SIZE].into_iter().filter(|n| columns.has_int(n)).map(String::from));
        let metadata_columns: Vec<String> =
            metadata.iter().flat_map(|(_, c)| metadata_columns(settings, c)).collect();
        let insert_metadata = match &metadata {
            Some((table, _)) => {
                let statement = insert_statement(settings, table, &[], &metadata_columns);
                Some(prepare.write(&statement).await?)
            }
            None => None,
        };
        let read = format!("SELECT {payload} FROM {table} {by_id}");
        let look = format!("SELECT {payload}, writetime(\"{data}\") FROM {table} {by_id}");
        Ok(Arc::new(Self {
            id: id_type,
            label,
            read: prepare.read(&read, None).await?,
            read_by_quorum: prepare.read(&read, Some(Consistency::LocalQuorum)).await?,
            look: prepare.read(&look, Some(Consistency::LocalQuorum)).await?,
            size: match size {
                Some(size) => Some(prepare.read(&size, Some(Consistency::LocalQuorum)).await?),
                None => None,
            },
            scan: prepare.scan(&scan, if from_payloads { LONG_PAGE } else { SHORT_PAGE }).await?,
            scan_places,
            scans_at_once,
            scan_labels: match scan_labels {
                Some(labels) => Some(prepare.scan(&labels, LONG_PAGE).await?),
                None => None,
            },
            insert: prepare
                .write(&insert_statement(settings, &settings.table, &[data], &insert_columns))
                .await?,
            insert_columns,
            insert_metadata,
            metadata_columns,
            session: Arc::clone(&session),
        }))
    }
}

struct Preparing<'a> {
    session: &'a Session,
    settings: &'a Settings,
}

impl Preparing<'_> {
    async fn statement(&self, text: &str) -> Result<PreparedStatement> {
        let doing = format!("prepare `{text}` at {}", self.settings.hosts());
        let mut prepared = self.session.prepare(text).await.map_err(|error| fault::prepare(&doing, error))?;
        // Reads and upserts may be sent twice, so the driver may try another node whatever went wrong.
        prepared.set_is_idempotent(true);
        Ok(prepared)
    }

    async fn read(&self, text: &str, consistency: Option<Consistency>) -> Result<PreparedStatement> {
        let mut prepared = self.statement(text).await?;
        prepared.set_use_cached_result_metadata(true);
        if let Some(consistency) = consistency {
            prepared.set_consistency(consistency);
        }
        Ok(prepared)
    }

    async fn scan(&self, text: &str, page: i32) -> Result<PreparedStatement> {
        let mut prepared = self.read(text, Some(Consistency::LocalQuorum)).await?;
        prepared.set_page_size(page);
        Ok(prepared)
    }

    async fn write(&self, text: &str) -> Result<PreparedStatement> {
        let mut prepared = self.statement(text).await?;
        prepared.set_consistency(Consistency::LocalQuorum);
        Ok(prepared)
    }
}

fn insert_statement(settings: &Settings, table: &str, first: &[&String], columns: &[String]) -> String {
    let names: Vec<String> = std::iter::once(&settings.id_column)
        .chain(first.iter().copied())
        .chain(columns)
        .map(|c| format!("\"{c}\""))
        .collect();
    let marks = vec!["?"; names.len()].join(", ");
    format!("INSERT INTO {} ({}) VALUES ({marks})", settings.quoted(table), names.join(", "))
}

fn metadata_columns(settings: &Settings, columns: &Columns) -> Vec<String> {
    let ints = [SIZE, LABEL_SIZE, &settings.label_column].into_iter().filter(|name| columns.has_int(name));
    let texts = [LABEL_NAME, FIELD, KEY].into_iter().filter(|name| columns.has_text(name));
    ints.chain(texts).map(String::from).collect()
}

fn scan_statement(
    settings: &Settings,
    base: &str,
    columns: &Columns,
    is_data: bool,
    sized: bool,
    label: LabelType,
) -> (String, ScanPlaces) {
    let mut selected = vec![format!("\"{}\"", settings.id_column)];
    let mut add = |what: String| {
        selected.push(what);
        Some(selected.len() - 1)
    };
    let mut places = ScanPlaces::default();
    if sized {
        places.size = add(SIZE.into());
        places.stamp = add(format!("writetime({SIZE})"));
        if label == LabelType::Blob {
            places.label_size = add(LABEL_SIZE.into());
        }
    } else if is_data {
        places.stamp = add(format!("writetime(\"{}\")", settings.data_column));
    }
    if label == LabelType::Int && columns.has_int(&settings.label_column) {
        places.label = add(format!("\"{}\"", settings.label_column));
    }
    if !is_data {
        let texts = [(LABEL_NAME, &mut places.label_name), (FIELD, &mut places.field)];
        for (name, place) in texts {
            if columns.has_text(name) {
                *place = add(name.into());
            }
        }
    }
    (format!("SELECT {} FROM {}", selected.join(", "), settings.quoted(base)), places)
}

fn label_type(settings: &Settings, columns: &Columns) -> Result<LabelType> {
    let label = &settings.label_column;
    let found = if columns.has_int(label) {
        LabelType::Int
    } else if columns.is(label, &["blob"]) {
        LabelType::Blob
    } else {
        LabelType::None
    };
    match settings.label_type {
        Some(LabelType::None) => Ok(LabelType::None),
        Some(wanted) if wanted != found => {
            Err(column_fault(settings, &settings.table, label, wanted.name(), columns))
        }
        _ => Ok(found),
    }
}

fn column_fault(settings: &Settings, table: &str, column: &str, wanted: &str, columns: &Columns) -> Error {
    let there: Vec<_> = columns.0.iter().map(|(name, kind)| format!("`{name}` {kind}")).collect();
    let why = match columns.0.get(column) {
        Some(kind) => format!("column `{column}` of table `{table}` is of type {kind}, not {wanted}"),
        None => format!("table `{table}` has no column `{column}`"),
    };
    Error::invalid_config(format!("open `{}`: {why}", settings.root))
        .with_hint(format!("besides its id it has {}", there.join(", ")))
}

/// The columns of the metadata table. One that nobody named need not be there.
async fn load_metadata(
    session: &Session,
    settings: &Settings,
    table: &str,
    id: IdType,
) -> Result<Option<Columns>> {
    match load(session, settings, table).await {
        Ok((other, columns)) if other == id => Ok(Some(columns)),
        Ok(_) => {
            let (root, one) = (&settings.root, &settings.table);
            let why = format!("ids of tables `{one}` and `{table}` have different types");
            Err(Error::invalid_config(format!("open `{root}`: {why}"))
                .with_hint("name another table with `metadata_table`, or set it to nothing"))
        }
        Err(error) if !settings.metadata_named && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether rows lie by the usual token of 64 bits, so that a table can be scanned in parts.
async fn is_cut_by_tokens(session: &Session, settings: &Settings) -> Result<bool> {
    let found = texts(session, settings, "SELECT partitioner FROM system.local", (), 1).await?;
    Ok(found.iter().flatten().any(|name| name.ends_with("Murmur3Partitioner")))
}

/// The type of the id and the other columns of a table; errors say what is there instead.
async fn load(session: &Session, settings: &Settings, table: &str) -> Result<(IdType, Columns)> {
    let statement = "SELECT column_name, type, kind FROM system_schema.columns WHERE keyspace_name = ? AND table_name = ?";
    let rows = texts(session, settings, statement, (settings.keyspace.as_str(), table), 3).await?;
    if rows.is_empty() {
        return Err(missing(session, settings, table).await);
    }
    let mut columns = Columns::default();
    let mut keys = Vec::new();
    for row in rows {
        let [name, kind, role] = row.as_slice() else { continue };
        if role == "partition_key" || role == "clustering" {
            keys.push((name.clone(), kind.clone()));
        } else {
            columns.0.insert(name.clone(), kind.clone());
        }
    }
    let fault = |why: String| Error::invalid_config(format!("open `{}`: {why}", settings.root));
    match keys.as_slice() {
        [(name, kind)] if *name == settings.id_column => {
            let id = IdType::from_cql(kind).ok_or_else(|| {
                fault(format!("ids of type {kind} in table `{table}` are not offered"))
                    .with_hint("offered are uuid, text, int and bigint")
            })?;
            Ok((id, columns))
        }
        keys => {
            let names: Vec<_> = keys.iter().map(|(name, _)| format!("`{name}`")).collect();
            let (id, names) = (&settings.id_column, names.join(", "));
            Err(fault(format!("the primary key of table `{table}` is {names}, not `{id}` alone"))
                .with_hint("name the column with `id_column`; keys of several columns are not offered"))
        }
    }
}

async fn missing(session: &Session, settings: &Settings, table: &str) -> Error {
    let (keyspace, root) = (&settings.keyspace, &settings.root);
    let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
    let (what, there) = match texts(session, settings, tables, (keyspace.as_str(),), 1).await {
        Err(error) => return error,
        Ok(found) if !found.is_empty() => (format!("keyspace `{keyspace}` has no table `{table}`"), found),
        Ok(_) => {
            let keyspaces = "SELECT keyspace_name FROM system_schema.keyspaces";
            match texts(session, settings, keyspaces, (), 1).await {
                Err(error) => return error,
                Ok(found) => (format!("there is no keyspace `{keyspace}` with tables"), found),
            }
        }
    };
    let mut names: Vec<String> =
        there.into_iter().flatten().filter(|name| !name.starts_with("system")).collect();
    names.sort();
    names.truncate(20);
    let there = if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
    Error::not_found(format!("open `{root}`: {what}")).with_hint(format!("there is {there}"))
}

/// The first `count` columns of every row, as text.
async fn texts(
    session: &Session,
    settings: &Settings,
    statement: &str,
    values: impl SerializeRow,
    count: usize,
) -> Result<Vec<Vec<String>>> {
    let doing = format!("read the schema of keyspace `{}` at {}", settings.keyspace, settings.hosts());
    let pager = session.query_iter(statement, values).await.map_err(|error| fault::pager(&doing, error))?;
    let rows =
        pager.rows_stream::<Cells>().map_err(|error| Error::internal(doing.clone()).with_source(error))?;
    let rows: Vec<Cells> = rows.try_collect().await.map_err(|error| fault::row(&doing, error))?;
    Ok(rows.iter().map(|row| (0..count).map(|at| row.text(at).unwrap_or_default()).collect()).collect())
}
