//! CSV and TSV tables as datasets: rows with what they name, sound, broken and hostile.
#![expect(clippy::unwrap_used, reason = "helpers of tests may stop the test")]

use crate::common::*;
use forebay_core::manifest::FieldKind;
use forebay_core::plan::Shuffle;
use forebay_core::recipe::Recipe;
use forebay_core::{ErrorKind, SampleId};
use forebay_engine::LoaderConfig;
use forebay_engine::source::verify::{FindingKind, VerifyOptions, verify};
use forebay_engine::source::{
    Dataset, FieldValue, OpenOptions, SourceKind, decodable, open, open_with_store,
};
use forebay_store::MemoryStore;
use forebay_testkit::server::{BUCKET, Objects, SlowServer};
use futures::executor::block_on;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

fn options(folder: &TempDir) -> OpenOptions {
    OpenOptions { manifest_dir: Some(folder.path().join(".manifests")), ..OpenOptions::default() }
}

fn opened(folder: &TempDir, name: &str) -> forebay_core::Result<Dataset> {
    block_on(open(&[folder.path().join(name).display().to_string()], &options(folder)))
}

/// A table alone, read from memory.
fn in_memory(key: &str, text: &str) -> forebay_core::Result<Dataset> {
    let store = MemoryStore::new();
    store.insert(key, text.as_bytes().to_vec()).unwrap();
    block_on(open_with_store(Arc::new(store), &[key.to_owned()], &OpenOptions::default()))
}

fn sample(dataset: &Dataset, id: u64) -> Vec<(String, FieldValue)> {
    let mut fields = block_on(dataset.read_sample(SampleId(id))).unwrap();
    fields.sort_by(|one, other| one.0.cmp(&other.0));
    fields
}

fn text(name: &str, value: &str) -> (String, FieldValue) {
    (name.to_owned(), FieldValue::Payload(value.as_bytes().to_vec().into()))
}

fn int(name: &str, value: i64) -> (String, FieldValue) {
    (name.to_owned(), FieldValue::Int(value))
}

fn put(folder: &Path, name: &str, bytes: &[u8]) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A folder with a table and two files that it names.
fn folder_with(table: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "images/one.bin", b"first");
    put(folder.path(), "images/two.bin", b"second payload");
    put(folder.path(), "train.csv", table.as_bytes());
    folder
}

#[test]
fn rows_bring_files_labels_numbers_and_text() {
    let folder = folder_with(
        "\u{feff}path,label,age,score,caption\r\n\
         images/one.bin,dog,3,0.5,\"a \"\"dog\"\", barking\r\nloudly\"\r\n\
         \r\n\
         ./images/two.bin,cat,,2,007\r\n\
         images/one.bin,dog,-4,,\r\n",
    );
    let dataset = opened(&folder, "train.csv").unwrap();
    assert_eq!((dataset.kind(), dataset.manifest().len()), (SourceKind::Csv, 3));
    assert_eq!(dataset.class_names().unwrap(), ["cat", "dog"]);
    let first = sample(&dataset, 0);
    let wanted = [
        int("age", 3),
        text("caption", "a \"dog\", barking\r\nloudly"),
        int("label", 1),
        text("path", "first"),
    ];
    assert_eq!(first.iter().filter(|(name, _)| name != "score").cloned().collect::<Vec<_>>(), wanted);
    let second = sample(&dataset, 1);
    assert!(second.contains(&text("caption", "007")) && second.contains(&text("path", "second payload")));
    assert!(!second.iter().any(|(name, _)| name == "age"), "an empty cell is a missing field");
    assert_eq!(sample(&dataset, 2), [int("age", -4), int("label", 1), text("path", "first")]);
    // A file that two rows name is one object, and ids and keys follow the rows.
    assert_eq!(dataset.manifest().object_count(), 3);
    assert_eq!(dataset.manifest().key(SampleId(2)), "train/00000002");
    let label = dataset.manifest().field_index("label").unwrap();
    assert_eq!(dataset.manifest().fields()[label].kind, FieldKind::Int);
}

#[test]
fn what_a_column_holds_follows_from_all_of_its_cells() {
    let dataset = in_memory(
        "t.tsv",
        "label\ttarget\tn\tzip\ttext\t\n1\t0.5\t7\t007\tx\t\n10\t-1\t\t9\ty, \"z\"\t\n2\t3e2\t-7\t1\t\t\n",
    )
    .unwrap();
    let fields: Vec<(String, bool)> = dataset.fields().unwrap();
    let ints: Vec<&str> = fields.iter().filter(|(_, int)| *int).map(|(name, _)| name.as_str()).collect();
    assert_eq!(ints, ["label", "n"]);
    assert!(dataset.class_names().is_none(), "integers are no names");
    assert!(dataset.notes().iter().any(|note| note.contains("1 columns without a name")));
    let zips: Vec<_> = (0..3).map(|id| sample(&dataset, id).pop().unwrap()).collect();
    assert_eq!(zips, [text("zip", "007"), text("zip", "9"), text("zip", "1")]);
    assert!(sample(&dataset, 1).contains(&text("text", "y, \"z\"")));
    let dataset = in_memory("t.csv", "label,a\n7,x\ncat,y\n,z\n").unwrap();
    assert_eq!(dataset.class_names().unwrap(), ["7", "cat"]);
    assert_eq!(sample(&dataset, 0), [text("a", "x"), int("label", 0)]);
    assert_eq!(sample(&dataset, 2), [text("a", "z")]);
}

#[test]
fn several_tables_are_one_dataset_when_their_columns_agree() {
    let store = MemoryStore::new();
    store.insert("a/one.csv", b"file,label\nx.bin,1\n".to_vec()).unwrap();
    store.insert("b/two.csv", b"file,label\nx.bin,cat\n".to_vec()).unwrap();
    store.insert("c/other.csv", b"file\nx.bin\n".to_vec()).unwrap();
    for folder in ["a", "b", "c"] {
        store.insert(format!("{folder}/x.bin"), folder.as_bytes().to_vec()).unwrap();
    }
    let store = Arc::new(store);
    let spec = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let dataset =
        block_on(open_with_store(store.clone(), &spec(&["a/one.csv", "b/two.csv"]), &OpenOptions::default()))
            .unwrap();
    assert_eq!(dataset.class_names().unwrap(), ["1", "cat"]);
    // Paths count from the folder of their own table.
    assert_eq!(sample(&dataset, 0), [text("file", "a"), int("label", 0)]);
    assert_eq!(sample(&dataset, 1), [text("file", "b"), int("label", 1)]);
    let error =
        block_on(open_with_store(store, &spec(&["a/one.csv", "c/other.csv"]), &OpenOptions::default()))
            .unwrap_err();
    assert!(error.to_string().contains("differ in their columns"), "{error}");
}

#[test]
fn broken_rows_name_line_and_column() {
    let long = format!("a,b\nx,{}\n", "y".repeat((16 << 20) + 1));
    for (table, wanted) in [
        ("", "it is empty"),
        ("a,b\n", "hold no row"),
        ("a,b\n1,2\n1\n", "line 3: the row has 1 cells, the header has 2: column 2 (`b`) is missing"),
        ("a,b\n1,2,3\n", "line 2: the row has 3 cells, the header has 2: column 3 has no name"),
        ("a,b\n1,\"x\n2,y\n", "line 2: column 2: the quote around it is never closed"),
        ("a,b\n\"1\n\",2\n1,\"x\"y\n", "line 4: column 2: text follows its closing quote"),
        ("a,a\n1,2\n", "column 2: another column is called `a`"),
        (",\n1,2\n", "the header names no column"),
        ("@csv\n1\n", "what the row itself is called"),
        (&long, "line 2: column 2: it has 16777217 bytes"),
    ] {
        let error = in_memory("t.csv", table).unwrap_err();
        assert!(error.report().contains(wanted), "{wanted}: {}", error.report());
    }
    let store = MemoryStore::new();
    store.insert("t.csv", b"a,b\n1,\xff\n".to_vec()).unwrap();
    let error =
        block_on(open_with_store(Arc::new(store), &["t.csv".into()], &OpenOptions::default())).unwrap_err();
    assert!(
        error.report().contains("line 2: column 2 (`b`): byte 0 of the cell is not UTF-8"),
        "{}",
        error.report()
    );
}

#[test]
fn cells_that_name_nothing_are_reported_together() {
    let folder = folder_with("image,n\nimages/one.bin,1\nimages/none.bin,2\n../secret,3\n/etc/passwd,4\n");
    let error = opened(&folder, "train.csv").unwrap_err();
    let said = error.report();
    for wanted in [
        "line 3, column 1 (`image`): no file",
        "line 4, column 1 (`image`): `../secret` leaves the folder of the table",
        "line 5, column 1 (`image`): `/etc/passwd` is absolute",
    ] {
        assert!(said.contains(wanted), "{wanted}: {said}");
    }
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    // A table that somebody else keeps names no file of this machine.
    let error = in_memory("t.csv", "url\nfile:///etc/passwd\n").unwrap_err();
    assert!(error.report().contains("file of this machine"), "{}", error.report());
}

#[test]
fn absolute_urls_are_read_where_they_lie() {
    let elsewhere = tempfile::tempdir().unwrap();
    put(elsewhere.path(), "a b.bin", b"far");
    let folder = folder_with("");
    let url = format!("file://{}/a%20b.bin", elsewhere.path().display());
    put(folder.path(), "train.csv", format!("path,mask_path\nimages/one.bin,{url}\n").as_bytes());
    for _ in 0..2 {
        // The second time by the kept manifest.
        let dataset = opened(&folder, "train.csv").unwrap();
        assert_eq!(sample(&dataset, 0), [text("mask_path", "far"), text("path", "first")]);
    }
}

#[test]
fn rows_feed_a_recipe_and_the_order_is_exact_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let row = |n: u8| {
        put(folder.path(), &format!("f/{n}.bin"), &vec![n; usize::from(n) + 1]);
        format!("f/{n}.bin,{n},text {n}\n")
    };
    let table = std::iter::once("path,label,text\n".to_owned()).chain((0..40).map(row)).collect::<String>();
    put(folder.path(), "t.csv", table.as_bytes());
    let dataset = opened(&folder, "t.csv").unwrap();
    let recipe = Recipe::from_json(
        r#"[{"field": "path", "decode": {"kind": "bytes"}}, {"field": "label", "decode": {"kind": "label"}},
            {"field": "text", "decode": {"kind": "bytes"}}]"#,
    )
    .unwrap();
    let config = || LoaderConfig { shuffle: Shuffle::Full, ..alone(4) };
    let batches = epoch(&mut loader(&dataset, &recipe, config()));
    assert_each_once(ids(&batches), 40);
    for batch in &batches {
        let (_, forebay_ops::Column::Bytes(payloads)) = &batch.columns[0] else { panic!("no bytes") };
        let (_, forebay_ops::Column::Bytes(texts)) = &batch.columns[2] else { panic!("no text") };
        for ((id, payload), text) in batch.ids.iter().zip(payloads).zip(texts) {
            assert_eq!(payload[..], vec![id.0 as u8; id.0 as usize + 1]);
            assert_eq!(text[..], *format!("text {}", id.0).as_bytes());
        }
    }
    let mut first = loader(&dataset, &recipe, config());
    let taken = steps(&mut first, 3);
    let cursor = first.cursor();
    let mut rest = loader(&dataset, &recipe, config());
    rest.seek(cursor).unwrap();
    assert_eq!([ids(&taken), ids(&epoch(&mut rest))].concat(), ids(&batches));
}

#[test]
fn tables_and_what_they_name_may_lie_behind_servers() {
    let far = SlowServer::start(Objects::new().with("far/a b.bin", b"far")).unwrap();
    let url = format!("{}/{BUCKET}/far/a%20b.bin", far.url());
    let table = format!("path,mask_path,n\nnear/x.bin,{url},1\n");
    let objects = Objects::new().with("t.csv", table.as_bytes()).with("near/x.bin", b"near");
    let objects = objects.with("hostile.csv", b"path\nfile:///etc/passwd\n");
    let server = SlowServer::start(objects).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let open_far = |name: &str| {
        let spec = [format!("{}/{BUCKET}/{name}", server.url())];
        runtime.block_on(async {
            let dataset = open(&spec, &options(&folder)).await?;
            dataset.read_sample(SampleId(0)).await
        })
    };
    for _ in 0..2 {
        // The second time by the kept manifest.
        let mut fields = open_far("t.csv").unwrap();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(fields, [text("mask_path", "far"), int("n", 1), text("path", "near")]);
    }
    assert!(open_far("hostile.csv").unwrap_err().report().contains("file of this machine"));
}

#[test]
fn a_kept_manifest_is_used_until_a_row_or_a_file_changes() {
    let folder = folder_with("file\nimages/one.bin\n");
    let first = opened(&folder, "train.csv").unwrap();
    let again = opened(&folder, "train.csv").unwrap();
    assert_eq!(first.manifest().version(), again.manifest().version());
    assert!(again.notes().is_empty(), "{:?}", again.notes());
    put(folder.path(), "images/one.bin", b"longer than before");
    let after = opened(&folder, "train.csv").unwrap();
    assert!(after.notes().iter().any(|note| note.contains("was written again")), "{:?}", after.notes());
    assert_eq!(sample(&after, 0), [text("file", "longer than before")]);
    put(folder.path(), "train.csv", b"file\nimages/two.bin\nimages/one.bin\n");
    let longer = opened(&folder, "train.csv").unwrap();
    assert_eq!(longer.manifest().len(), 2);
    assert!(longer.notes().iter().any(|note| note.contains("`train.csv` has ")), "{:?}", longer.notes());
    fs::remove_file(folder.path().join("images/two.bin")).unwrap();
    assert!(opened(&folder, "train.csv").unwrap_err().report().contains("no file"));
}

#[test]
fn verify_goes_on_over_broken_rows_and_tries_what_rows_name() {
    let folder =
        folder_with("image,n\nimages/one.bin,1\nimages/none.bin,2\nx\nimages/broken.json,3\nimages/../x,4\n");
    put(folder.path(), "images/broken.json", b"{");
    let check = VerifyOptions { check: Some(Arc::new(decodable)) };
    let spec = [folder.path().join("train.csv").display().to_string()];
    let report = block_on(verify(&spec, &options(&folder), &check, &|_| {})).unwrap();
    assert_eq!((report.objects, report.samples, report.errors), (1, 4, 4), "{:?}", report.findings);
    let found = |kind: FindingKind, words: &str| {
        report.findings.iter().any(|finding| finding.kind == kind && finding.message.contains(words))
    };
    assert!(found(FindingKind::BadPayload, "line 4: the row has 1 cells"), "{:?}", report.findings);
    assert!(found(FindingKind::Unreadable, "line 3, column 1 (`image`): no file"), "{:?}", report.findings);
    assert!(found(FindingKind::Unreadable, "line 6"), "{:?}", report.findings);
    assert!(report.findings.iter().any(|finding| finding.object.ends_with("broken.json")));
}

#[test]
fn a_table_beside_other_data_stays_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "a.jsonl", b"{\"x\": 1}\n");
    put(folder.path(), "notes.csv", b"x\n1\n");
    let spec = folder.path().display().to_string();
    let dataset = block_on(open(std::slice::from_ref(&spec), &options(&folder))).unwrap();
    assert_eq!(dataset.kind(), SourceKind::Jsonl);
    fs::remove_file(folder.path().join("a.jsonl")).unwrap();
    assert_eq!(block_on(open(&[spec], &options(&folder))).unwrap().kind(), SourceKind::Csv);
}

/// A writer that knows the rule and nothing else.
fn written(table: &[Vec<String>]) -> String {
    let cell = |cell: &String| format!("\"{}\"", cell.replace('"', "\"\""));
    table.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>().join(",") + "\r\n").collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn text_reads_back_as_a_naive_writer_wrote_it(
        rows in proptest::collection::vec(proptest::collection::vec("[a,\"\r\n\té日]{0,5}x", 3), 1..6),
    ) {
        let header = vec!["a".to_owned(), "b".to_owned(), "c".to_owned()];
        let table: Vec<Vec<String>> = std::iter::once(header.clone()).chain(rows.iter().cloned()).collect();
        let dataset = in_memory("t.csv", &written(&table)).unwrap();
        prop_assert_eq!(dataset.manifest().len(), rows.len() as u64);
        for (id, row) in rows.iter().enumerate() {
            let wanted: Vec<_> = header.iter().zip(row).map(|(name, cell)| text(name, cell)).collect();
            prop_assert_eq!(sample(&dataset, id as u64), wanted);
        }
    }

    #[test]
    fn any_text_opens_or_is_an_error(bytes in proptest::collection::vec(proptest::sample::select(b"ab,\"\r\n/.:\xff".to_vec()), 0..60)) {
        let store = MemoryStore::new();
        store.insert("t.csv", [b"path,b\n".to_vec(), bytes].concat()).unwrap();
        let _ = block_on(open_with_store(Arc::new(store), &["t.csv".into()], &OpenOptions::default()));
    }
}
