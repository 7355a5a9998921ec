//! Tables of a real Cassandra server as datasets, filled by ingest. `FOREBAY_TEST_CASSANDRA` (host:port) names it.
#![cfg(feature = "cassandra")]
#![expect(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use forebay_core::{ErrorKind, SampleId};
use forebay_engine::source::ingest::{IngestOptions, Ingested, ingest, row_id};
use forebay_engine::source::{Dataset, FieldValue, OpenOptions, SourceKind, open, open_rows};
use forebay_store::cassandra::{NewLabel, NewRow};
use forebay_store::{ByteRange, CassandraStore, StoreOptions};
use forebay_testkit::made::Made;
use forebay_testkit::tar::TarMaker;

const KEYSPACE: &str = "forebay_engine_test";

fn table(name: &str) -> Option<String> {
    let server = forebay_testkit::skip::server("FOREBAY_TEST_CASSANDRA")?;
    let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    Some(format!("cassandra://{server}/{KEYSPACE}/{name}_{time}"))
}

fn words(words: &[(&str, &str)]) -> StoreOptions {
    words.iter().map(|(word, value)| ((*word).to_owned(), (*value).to_owned())).collect()
}

async fn put(dataset: &Dataset, url: &str, options: &IngestOptions) -> Ingested {
    let store = CassandraStore::open(url, &StoreOptions::new()).unwrap();
    ingest(dataset, &store, options, &|_| Ok(())).await.unwrap()
}

fn kept(folder: &std::path::Path) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.join("manifests")), ..OpenOptions::default() }
}

#[tokio::test]
async fn p010_a_tree_goes_into_a_table_and_comes_back_with_its_classes() {
    let Some(url) = table("tree") else { return };
    let folder = tempfile::tempdir().unwrap();
    let made = Made::default();
    made.tree(&folder.path().join("tree"));
    let options = kept(folder.path());
    let tree = open(&[folder.path().join("tree").display().to_string()], &options).await.unwrap();
    let create = IngestOptions { create: Some(1), in_flight: 8, ..IngestOptions::default() };
    let first = put(&tree, &url, &create).await;
    assert_eq!((first.samples, first.written, first.skipped), (24, 24, 0));
    assert_eq!(first.bytes, tree.manifest().total_bytes());
    // A second run finds every row and writes none.
    let again = put(&tree, &url, &create).await;
    assert_eq!((again.written, again.skipped, again.bytes), (0, 24, 0));

    let rows = open_rows(&url, &StoreOptions::new(), &options).await.unwrap();
    assert_eq!((rows.kind(), rows.manifest().len()), (SourceKind::Rows, 24));
    assert_eq!(rows.notes(), &[] as &[String], "no row had to be read");
    assert_eq!(rows.class_names(), tree.class_names());
    for sample in (0..24).map(SampleId) {
        let id = row_id(&tree.manifest().key(sample));
        let row = rows.manifest().find_key(&id).unwrap();
        let (mut there, mut here) =
            (rows.read_sample(row).await.unwrap(), tree.read_sample(sample).await.unwrap());
        there.sort_by(|a, b| a.0.cmp(&b.0));
        here.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(there, here);
    }
    // Opened again, the kept manifest is used; a field can be called otherwise.
    let kept_one = open_rows(&url, &StoreOptions::new(), &options).await.unwrap();
    assert_eq!(kept_one.manifest().version(), rows.manifest().version());
    let named = open_rows(&url, &words(&[("data_field", "picture")]), &options).await.unwrap();
    assert!(named.manifest().field_index("picture").is_some());
    // Without the metadata table the sizes are learnt by reading, and said so.
    let bare = open_rows(&url, &words(&[("metadata_table", "")]), &options).await.unwrap();
    assert!(bare.notes()[0].contains("24 rows were read"), "{:?}", bare.notes());
    assert_eq!(bare.manifest().total_bytes(), rows.manifest().total_bytes());
    assert!(bare.manifest().field_index("cls").is_some() && bare.manifest().field_index("data").is_some());
}

#[tokio::test]
async fn p010_a_row_written_again_is_stale_and_noticed_when_opened_again() {
    let Some(url) = table("stale") else { return };
    let folder = tempfile::tempdir().unwrap();
    Made { samples: 4, ..Made::default() }.tree(&folder.path().join("tree"));
    let options = kept(folder.path());
    let tree = open(&[folder.path().join("tree").display().to_string()], &options).await.unwrap();
    put(&tree, &url, &IngestOptions { create: Some(1), ..IngestOptions::default() }).await;
    let rows = open_rows(&url, &StoreOptions::new(), &options).await.unwrap();
    let id = rows.manifest().key(SampleId(0));
    let store = CassandraStore::open(&url, &StoreOptions::new()).unwrap();
    for data in [vec![7; 3], vec![7; 100_000]] {
        let label = Some(NewLabel::Int(1));
        store
            .write_row(NewRow { id: id.clone(), data: data.into(), label, ..NewRow::default() })
            .await
            .unwrap();
        let error = rows.read_field(SampleId(0), 0, ByteRange::Full).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
        assert!(error.report().contains(&id), "{error:?}");
    }
    let fresh = open_rows(&url, &StoreOptions::new(), &options).await.unwrap();
    assert!(fresh.notes()[0].contains("stale"), "{:?}", fresh.notes());
    assert_eq!(fresh.read_field(SampleId(0), 0, ByteRange::Full).await.unwrap().len(), 100_000);
    // The sample whose row has another size is ingested again, the others are not.
    let repaired = put(&tree, &url, &IngestOptions::default()).await;
    assert_eq!((repaired.written, repaired.skipped), (1, 3));
}

#[tokio::test]
async fn p010_masks_become_blob_labels_read_by_the_same_request() {
    let Some(url) = table("masks") else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut tar = TarMaker::new();
    for sample in 0..10u8 {
        let image = vec![sample; 500 + usize::from(sample)];
        tar = tar.file(&format!("{sample:03}.jpg"), &image);
        tar = tar.file(&format!("{sample:03}.mask.png"), &[sample ^ 255; 90]);
    }
    std::fs::write(folder.path().join("a.tar"), tar.finish()).unwrap();
    let options = kept(folder.path());
    let shards = open(&[folder.path().join("a.tar").display().to_string()], &options).await.unwrap();
    let store = CassandraStore::open(&url, &StoreOptions::new()).unwrap();
    let create = IngestOptions { create: Some(1), ..IngestOptions::default() };
    let error = ingest(&shards, &store, &create, &|_| Ok(())).await.unwrap_err();
    assert!(error.message().contains("`jpg`, `mask.png`"), "{error:?}");
    let url = format!("{url}_blob");
    let masks =
        IngestOptions { create: Some(1), label_field: Some("mask.png".into()), ..IngestOptions::default() };
    assert_eq!(put(&shards, &url, &masks).await.written, 10);
    let rows = open_rows(&url, &words(&[("label_field", "mask.png")]), &options).await.unwrap();
    assert_eq!(rows.notes(), &[] as &[String]);
    for sample in 0..10u8 {
        let row = rows.manifest().find_key(&row_id(&format!("{sample:03}"))).unwrap();
        let fields = rows.read_sample(row).await.unwrap();
        let is = |name: &str, bytes: Vec<u8>| (name.to_owned(), FieldValue::Payload(bytes.into()));
        let expected =
            [is("jpg", vec![sample; 500 + usize::from(sample)]), is("mask.png", vec![sample ^ 255; 90])];
        assert_eq!(fields, expected);
        let key = rows.manifest().key(row);
        let (end, size) = (500 + u64::from(sample), 590 + u64::from(sample));
        let parts = rows.store().read_parts(&key, &[0..end, end..size]).await.unwrap();
        assert_eq!((parts[0].len() as u64, parts[1].len()), (end, 90));
    }
}
