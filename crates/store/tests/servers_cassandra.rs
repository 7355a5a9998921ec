//! The table store against real servers, named by the environment: `FOREBAY_TEST_CASSANDRA` (host:port, no password),
//! `FOREBAY_TEST_CASSANDRA_AUTH` (user and password `cassandra`), `FOREBAY_TEST_CASSANDRA_TLS` with the path of its
//! CA in `FOREBAY_TEST_CASSANDRA_CA` (user and password `cassandra` as well, if it asks).
#![cfg(feature = "cassandra")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::cassandra::{CreateTables, LabelType, NewLabel, NewRow};
use forebay_store::{ByteRange, CassandraStore, Store, StoreOptions, conformance, remote};
use forebay_testkit::skip::server;
use futures::StreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use std::sync::Arc;

const KEYSPACE: &str = "forebay_store_test";

fn words(words: &[(&str, &str)]) -> StoreOptions {
    words.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

/// A table of this test and process, made anew.
struct Table {
    server: String,
    session: Session,
    name: String,
}

impl Table {
    async fn new(server: &str, test: &str, columns: &str) -> Self {
        let session = SessionBuilder::new().known_node(server).build().await.unwrap();
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        let keyspace = format!("CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}");
        session.query_unpaged(keyspace, ()).await.unwrap();
        let table =
            Self { server: server.to_owned(), session, name: format!("{test}_{}", std::process::id()) };
        table.add("", columns).await;
        table
    }

    async fn add(&self, suffix: &str, columns: &str) {
        let name = format!("{KEYSPACE}.{}{suffix}", self.name);
        self.session.query_unpaged(format!("DROP TABLE IF EXISTS {name}"), ()).await.unwrap();
        self.session.query_unpaged(format!("CREATE TABLE {name} ({columns})"), ()).await.unwrap();
    }

    fn root(&self) -> String {
        format!("cassandra://{}/{KEYSPACE}/{}", self.server, self.name)
    }

    fn store(&self, options: &[(&str, &str)]) -> CassandraStore {
        CassandraStore::open(&self.root(), &words(options)).unwrap()
    }

    async fn drop_tables(&self, suffixes: &[&str]) {
        for suffix in suffixes {
            let name = format!("{KEYSPACE}.{}{suffix}", self.name);
            self.session.query_unpaged(format!("DROP TABLE {name}"), ()).await.unwrap();
        }
    }
}

#[tokio::test]
async fn p010_a_table_conforms() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let table = Table::new(&server, "conforms", "id text PRIMARY KEY, data blob").await;
    conformance::run(remote::open(&table.root(), &StoreOptions::new()).unwrap()).await;
    table.drop_tables(&[""]).await;
}

#[tokio::test]
async fn p010_a_table_with_sizes_conforms() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let table = Table::new(&server, "sized", "id text PRIMARY KEY, label int, data blob, size int").await;
    conformance::run(Arc::new(table.store(&[]))).await;
    table.drop_tables(&[""]).await;
}

#[tokio::test]
async fn p010_a_table_with_a_metadata_table_conforms() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let table = Table::new(&server, "noted", "key text PRIMARY KEY, payload blob").await;
    table.add("_m", "key text PRIMARY KEY, size bigint, split text").await;
    let metadata = format!("{}_m", table.name);
    let options = [("metadata_table", metadata.as_str()), ("id_column", "key"), ("data_column", "payload")];
    conformance::run(Arc::new(table.store(&options))).await;
    table.drop_tables(&["", "_m"]).await;
}

#[tokio::test]
async fn p010_labels_are_integers_blobs_or_absent() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    for label in [LabelType::None, LabelType::Int, LabelType::Blob] {
        let table = Table::new(&server, &format!("labels_{}", label.name()), "id int PRIMARY KEY").await;
        table.drop_tables(&[""]).await;
        // Named in one case, found by its name in the others.
        let (suffix, metadata) = match label {
            LabelType::Int => ("_m", format!("{}_m", table.name)),
            _ => ("_metadata", format!("{}_metadata", table.name)),
        };
        let named = [("metadata_table", metadata.as_str())];
        let store = table.store(if label == LabelType::Int { &named } else { &[] });
        for _ in 0..2 {
            store.create(CreateTables { replication: 1, label }).await.unwrap();
        }
        assert_eq!(store.label_type().await.unwrap(), label);
        let id = |number: u8| format!("00000000-0000-4000-8000-0000000000{number:02x}");
        for number in (0..40).rev() {
            let label = match label {
                LabelType::None => None,
                LabelType::Int => Some(NewLabel::Int(i64::from(number) - 20)),
                LabelType::Blob => Some(NewLabel::Blob(vec![number; 7 + usize::from(number)].into())),
            };
            let (data, field) = (vec![number; 1000].into(), Some("jpg".to_owned()));
            store
                .write_row(NewRow { id: id(number), data, label, field, ..NewRow::default() })
                .await
                .unwrap();
        }
        let rows = store.scan().await.unwrap();
        assert_eq!(rows.len(), 40);
        for (number, row) in (0..40u8).zip(&rows) {
            assert_eq!((&row.id, row.size, row.field.as_deref()), (&id(number), Some(1000), Some("jpg")));
            assert!(row.stamp > 0);
            let read = store.row(&row.id).await.unwrap();
            assert_eq!(read.data, vec![number; 1000]);
            match label {
                LabelType::None => assert_eq!((row.label, read.label), (None, None)),
                LabelType::Int => assert_eq!((row.label, read.label), (Some(i64::from(number) - 20), None)),
                LabelType::Blob => {
                    let length = 7 + usize::from(number);
                    assert_eq!(row.label_size, Some(length as u64));
                    assert_eq!(read.label, Some(Bytes::from(vec![number; length])));
                    let parts = store.read_parts(&row.id, &[0..1000, 1000..1007]).await.unwrap();
                    assert_eq!(parts[1], vec![number; 7]);
                    assert_eq!(store.head(&row.id).await.unwrap().size, 1000 + length as u64);
                }
            }
        }
        // The same rows without the metadata table: sizes are learnt by reading, labels from the data.
        let bare = table.store(&[("metadata_table", "")]);
        let listed: Vec<_> = bare.list("").map(Result::unwrap).collect().await;
        assert_eq!(listed.len(), 40);
        assert_eq!(bare.head(&id(3)).await.unwrap(), listed[3]);
        let bare_rows = bare.scan().await.unwrap();
        assert!(
            bare_rows.iter().zip(&rows).all(|(bare, row)| (&bare.id, bare.label) == (&row.id, row.label))
        );
        assert_eq!(bare_rows[0].size, None);
        if label == LabelType::Blob {
            let error = bare.write(&id(0), Bytes::new()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            let plain = table.store(&[("label_type", "none")]);
            assert_eq!(plain.read(&id(3), ByteRange::Full).await.unwrap().len(), 1000);
        }
        table.drop_tables(&["", suffix]).await;
    }
}

#[tokio::test]
async fn ids_may_be_uuids_and_integers() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let kinds = [
        ("uuid", "00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"),
        ("int", "-12", "5000000000"),
        ("bigint", "5000000000", "05"),
    ];
    for (kind, key, other) in kinds {
        let table =
            Table::new(&server, &format!("ids_{kind}"), &format!("id {kind} PRIMARY KEY, data blob")).await;
        let store = table.store(&[]);
        store.write(key, Bytes::from_static(b"bytes")).await.unwrap();
        assert_eq!(store.read(key, (1..3).into()).await.unwrap(), "yt");
        let listed: Vec<_> = store.list("").map(|meta| meta.unwrap().key).collect().await;
        assert_eq!(listed, [key]);
        let missing = store.read(other, ByteRange::Full).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{kind}");
        let refused = store.write(other, Bytes::new()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidConfig, "{kind}");
        table.drop_tables(&[""]).await;
    }
}

#[tokio::test]
async fn p010_what_is_missing_is_named_beside_what_is_there() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA") else { return };
    let table = Table::new(&server, "named", "id text PRIMARY KEY, data blob, label text").await;
    table.add("_wide", "id text, part int, data blob, PRIMARY KEY (id, part)").await;
    let fault = async |root: String, options: &[(&str, &str)]| {
        CassandraStore::open(&root, &words(options)).unwrap().head("a").await.unwrap_err()
    };
    let error = fault(format!("cassandra://{server}/no_such/table"), &[]).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert!(error.message().contains("no_such") && error.hint().unwrap().contains(KEYSPACE), "{error:?}");
    let error = fault(format!("cassandra://{server}/{KEYSPACE}/no_such"), &[]).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    assert!(error.message().contains("no_such"), "{error:?}");
    for option in [("data_column", "picture"), ("label_type", "int"), ("id_column", "uid")] {
        let error = fault(table.root(), &[option]).await;
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    }
    let error = fault(table.root(), &[("data_column", "picture")]).await;
    assert!(error.hint().unwrap().contains("`data` blob"), "{error:?}");
    let error = fault(format!("{}_wide", table.root()), &[]).await;
    assert!(error.message().contains("`id`, `part`"), "{error:?}");
    table.drop_tables(&["", "_wide"]).await;
}

#[tokio::test]
async fn p010_a_wrong_password_is_denied_with_host_and_reason() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA_AUTH") else { return };
    let root = format!("cassandra://{server}/system/local");
    let wrong =
        CassandraStore::open(&root, &words(&[("username", "cassandra"), ("password", "guess")])).unwrap();
    let error = wrong.head("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.message().contains(&server) && error.message().contains("incorrect"), "{error:?}");
    assert!(!error.report().contains("guess"));
    let nobody = CassandraStore::open(&root, &StoreOptions::new()).unwrap();
    let error = nobody.head("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
    assert!(error.message().contains(&server) && error.hint().unwrap().contains("username"), "{error:?}");
    let right = [("username", "cassandra"), ("password", "cassandra"), ("id_column", "key")];
    let right = CassandraStore::open(&root, &words(&right)).unwrap();
    // It got in: what is wrong now is the table, which is the server's own.
    assert_eq!(right.head("a").await.unwrap_err().kind(), ErrorKind::InvalidConfig);
}

#[tokio::test]
async fn p011_a_server_without_a_trusted_certificate_is_refused_unless_told_in_words() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA_TLS") else { return };
    let Some(ca) = self::server("FOREBAY_TEST_CASSANDRA_CA") else { return };
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let wrong = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(wrong.path(), other.cert.pem()).unwrap();
    let root = format!("cassandra://{server}/system/local");
    let open = |tls: &[(&str, &str)]| {
        let user =
            [("username", "cassandra"), ("password", "cassandra"), ("id_column", "key"), ("tls", "on")];
        CassandraStore::open(&root, &words(&[&user, tls].concat())).unwrap()
    };
    for refused in [&[][..], &[("tls_ca_file", wrong.path().to_str().unwrap())]] {
        let error = open(refused).head("a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.message().contains(&server) && error.message().contains("certificate"), "{error:?}");
    }
    for taken in [("tls_ca_file", ca.as_str()), ("tls_verify", "false")] {
        // It got in: what is wrong now is the table, which is the server's own.
        let error = open(&[taken]).head("a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    }
}

#[tokio::test]
async fn p011_a_server_that_asks_who_we_are_takes_a_certificate_of_its_authority_alone() {
    let Some(server) = server("FOREBAY_TEST_CASSANDRA_MUTUAL") else { return };
    let Some(ca) = self::server("FOREBAY_TEST_CASSANDRA_MUTUAL_CA") else { return };
    let beside = |name: &str| std::path::Path::new(&ca).with_file_name(name).display().to_string();
    let (cert, key) = (beside("client.pem"), beside("client.key"));
    let folder = tempfile::tempdir().unwrap();
    let stranger = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let strange = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let (other_cert, other_key) =
        (strange("cert.pem", stranger.cert.pem()), strange("key.pem", stranger.signing_key.serialize_pem()));
    let root = format!("cassandra://{server}/system/local");
    let open = |shown: &[(&str, &str)]| {
        let trust = [("id_column", "key"), ("tls", "on"), ("tls_ca_file", ca.as_str())];
        CassandraStore::open(&root, &words(&[&trust, shown].concat())).unwrap()
    };
    // It got in: what is wrong is the table, which is the server's own.
    let error = open(&[("tls_client_cert", &cert), ("tls_client_key", &key)]).head("a").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error:?}");
    let other = [("tls_client_cert", other_cert.as_str()), ("tls_client_key", other_key.as_str())];
    for shown in [&[][..], &other] {
        let error = open(shown).head("a").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error:?}");
        assert!(error.message().contains(&server), "{error:?}");
        assert!(error.hint().unwrap().contains("tls_client_cert"), "{error:?}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_not_there_is_unavailable_by_name() {
    // A port that was free a moment ago: whoever takes it meanwhile does not speak CQL, which is as good.
    let port = {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        taken.local_addr().unwrap().port()
    };
    let store =
        CassandraStore::open(&format!("cassandra://127.0.0.1:{port}/a/b"), &StoreOptions::new()).unwrap();
    let error = store.read("key", ByteRange::Full).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.message().contains(&format!("127.0.0.1:{port}")), "{error:?}");
}
