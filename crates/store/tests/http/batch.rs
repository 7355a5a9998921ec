//! Many reads in one request, from a cluster that is played: what goes over the wire can be counted and spoilt here.

use crate::server::{Answer, Request, Server, ranged};
use crate::{tar, words};
use bytes::Bytes;
use forebay_core::ErrorKind;
use forebay_store::{AisStore, ObjectRead, Store};

const OBJECT_BYTES: u64 = 10 << 10;

fn object(key: &str) -> Vec<u8> {
    let seed: u64 = key.bytes().map(u64::from).sum();
    (0..OBJECT_BYTES).map(|number| forebay_core::rng::mix64(number ^ seed << 20) as u8).collect()
}

/// A proxy and a target in one. `spoil` may change the archive of a batch: it gets its entries.
async fn cluster(spoil: impl Fn(Vec<Vec<u8>>) -> Vec<Vec<u8>> + Send + Sync + 'static) -> Server {
    Server::start(move |request| {
        if !request.path.contains("&to=target") {
            let location = format!("Location: {}&to=target\r\n", request.path);
            return Answer::new(307, &location, b"");
        }
        if request.path.starts_with("/v1/ml/moss/b?") {
            let mut archive = spoil(entries(request)).concat();
            archive.extend([0; 1024]);
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut bytes = format!("{head}{:x}\r\n", archive.len()).into_bytes();
            bytes.extend(archive);
            bytes.extend(b"\r\n0\r\n\r\n");
            return Answer::raw(bytes);
        }
        let key = request.path.trim_start_matches("/v1/objects/b/").split('?').next().unwrap();
        if key.starts_with("missing") {
            return Answer::new(404, "", b"{\"message\":\"does not exist\"}");
        }
        ranged(request, &object(key), "Ais-Checksum-Value: 1\r\nAis-Version: 1\r\n")
    })
    .await
}

fn entries(request: &Request) -> Vec<Vec<u8>> {
    let asked: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
    let entry = |entry: &serde_json::Value| {
        let key = entry["objname"].as_str().unwrap();
        let (start, length) = (entry["start"].as_u64().unwrap(), entry["length"].as_u64().unwrap());
        if key.starts_with("missing") {
            return tar::record(&format!("__404__/b/{key}"), b"");
        }
        tar::record(&format!("b/{key}"), &object(key)[start as usize..(start + length) as usize])
    };
    asked["in"].as_array().unwrap().iter().map(entry).collect()
}

fn open(server: &Server) -> AisStore {
    AisStore::open("ais://b", &words(&[("endpoint", &server.root()), ("token", "secret")])).unwrap()
}

fn reads(count: u64) -> Vec<ObjectRead> {
    (0..count)
        .map(|number| ObjectRead { key: format!("k{number}"), range: number % 7..OBJECT_BYTES - number % 5 })
        .collect()
}

async fn check(store: &AisStore, reads: &[ObjectRead]) {
    let answers = store.read_many(reads).await;
    assert_eq!(answers.len(), reads.len());
    for (read, answer) in reads.iter().zip(answers) {
        if read.key.starts_with("missing") {
            assert_eq!(answer.unwrap_err().kind(), ErrorKind::NotFound);
            continue;
        }
        let expected =
            Bytes::from(object(&read.key)).slice(read.range.start as usize..read.range.end as usize);
        assert!(answer.unwrap() == expected, "{read:?}");
    }
}

#[tokio::test]
async fn p015_a_thousand_reads_are_four_requests_and_their_redirects() {
    let server = cluster(|entries| entries).await;
    let store = open(&server);
    assert_eq!(store.reads_per_request(), 256);
    check(&store, &reads(1000)).await;
    let seen = server.requests();
    assert_eq!(seen.len(), 8);
    assert!(
        seen.iter()
            .all(|request| request.method == "GET" && request.header("authorization") == "Bearer secret")
    );
    assert!(seen.chunks(2).all(|pair| pair[0].body == pair[1].body && !pair[0].body.is_empty()));
}

#[tokio::test]
async fn p015_what_is_missing_is_told_apart_and_the_rest_still_comes_together() {
    let server = cluster(|entries| entries).await;
    let mut reads = reads(100);
    reads.insert(3, ObjectRead { key: "missing/a".to_owned(), range: 0..9 });
    reads.push(ObjectRead { key: "missing/b".to_owned(), range: 0..9 });
    check(&open(&server), &reads).await;
    // One batch, and one read for each that is missing, with their redirects.
    assert_eq!(server.requests().len(), 6);
}

#[tokio::test]
async fn p015_a_short_or_shuffled_answer_is_never_taken_for_the_bytes_asked_for() {
    let short = cluster(|entries| entries[..90].to_vec()).await;
    check(&open(&short), &reads(100)).await;
    assert_eq!(short.requests().len(), 2 + 2 * 10);
    let shuffled = cluster(|mut entries| {
        entries.swap(40, 41);
        entries
    })
    .await;
    check(&open(&shuffled), &reads(50)).await;
    assert_eq!(shuffled.requests().len(), 2 + 2 * 10);
    let damaged = cluster(|mut entries| {
        entries[5][0] ^= 1;
        entries
    })
    .await;
    check(&open(&damaged), &reads(8)).await;
    assert_eq!(damaged.requests().len(), 2 + 2 * 3);
}
