//! Near-data work: a worker beside the store decodes and crops, and only what is left crosses the link to the job.
//!
//! The store counts what it sends, a relay in front of the worker what it passes on. All are processes of this machine
//! and nothing else is needed.
#![allow(clippy::unwrap_used, reason = "a test whose surroundings are broken may panic")]

mod harness;

use forebay_testkit::made::Made;
use forebay_testkit::server::{Objects, SlowServer};
use forebay_testkit::wan::{Relay, WanOptions};
use harness::Harness;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};

const SAMPLES: u64 = 24;
const SIDE: u64 = 64;

/// A process that ends with its test, and the first line it said.
struct Started(Child, String);

impl Started {
    fn new(harness: &Harness, args: &[&str]) -> Self {
        let mut child = harness.command(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child, line.trim().to_owned())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store with photographs, a manifest of them here, and a pipeline that crops.
fn made(harness: &Harness, width: u32, height: u32) -> (SlowServer, u64) {
    let made = Made { samples: SAMPLES as usize, width, height, ..Made::default() };
    let photographs: u64 = (0..SAMPLES as usize).map(|sample| made.jpeg(sample).len() as u64).sum();
    let shards = made.shards(&harness.path("in"), 2);
    let objects = shards.iter().fold(Objects::new(), |objects, path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        objects.with(&name, &std::fs::read(path).unwrap())
    });
    let server = SlowServer::start(objects).unwrap();
    let url = format!("{}/train-{{000000..000001}}.tar", server.url());
    harness.ok(&["index", &url, "--out", "train.fbm"]);
    let pipeline = format!(
        "[data]\nurl = '{}'\n[[recipe]]\nfield = 'jpg'\ndecode = 'image'\nops = [{{ op = 'center_crop', size = {SIDE} }}]\n
        [loader]\nbatch_size = 4\n",
        harness.path("train.fbm").display()
    );
    harness.write("p.toml", pipeline);
    (server, photographs)
}

/// Bytes that the job received from the store by itself, and from a worker beside it.
fn link_bytes(harness: &Harness, server: &SlowServer) -> (u64, u64) {
    let before = server.counts().bytes;
    harness.ok(&["materialize", "p.toml", "alone"]);
    let alone = server.counts().bytes - before;

    let dispatcher = Started::new(harness, &["dispatcher", "--listen", "127.0.0.1:0"]);
    let url = dispatcher.1.split(' ').next().unwrap().to_owned();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relay = Relay::start("127.0.0.1:0".parse().unwrap(), port, WanOptions::default()).unwrap();
    let (listen, advertise) = (port.to_string(), relay.address().to_string());
    let near = ["--listen", &listen, "--advertise", &advertise, "--tag", "site=eu", "--same-host", "tcp"];
    let _far =
        Started::new(harness, &["worker", "--dispatcher", &url, "--tag", "site=us", "--same-host", "tcp"]);
    let _near = Started::new(harness, &[&["worker", "--dispatcher", &url][..], &near].concat());
    let via = json!({ "url": url, "tag": "site=eu" }).to_string();
    harness.ok(&["materialize", "p.toml", "near", "--via", &via]);
    let counts = relay.counts();
    for name in ["data-000000.tar", "recipe.json", "materialized.json"] {
        let read = |out: &str| std::fs::read(harness.path(out).join(name)).unwrap();
        assert!(read("near") == read("alone"), "{name} is the same, whoever made the batches");
    }
    (alone, counts.up_bytes + counts.down_bytes)
}

fn assert_about(found: u64, expected: u64, what: &str) {
    let share = found as f64 / expected as f64;
    assert!((0.98..1.15).contains(&share), "{what}: {found} bytes, {expected} were expected");
}

#[test]
fn p075_decode_and_crop_beside_the_store_send_pixels_instead_of_photographs() {
    let harness = Harness::new();
    let (server, photographs) = made(&harness, 640, 480);
    let pixels = SAMPLES * SIDE * SIDE * 3;
    let (alone, near) = link_bytes(&harness, &server);
    assert_about(alone, photographs, "a job that decodes by itself");
    assert_about(near, pixels, "a job whose worker is near the data");
    let (expected, found) = (photographs as f64 / pixels as f64, alone as f64 / near as f64);
    assert!(expected > 5.0, "{photographs} bytes of photographs, {pixels} of pixels");
    assert!((0.85..1.1).contains(&(found / expected)), "{found} times fewer bytes, not {expected}");
}

#[test]
fn p075_a_job_is_served_by_workers_with_its_tag_alone() {
    let harness = Harness::new();
    let (_server, _) = made(&harness, 64, 48);
    let dispatcher = Started::new(&harness, &["dispatcher", "--listen", "127.0.0.1:0"]);
    let url = dispatcher.1.split(' ').next().unwrap().to_owned();
    let _far = Started::new(&harness, &["worker", "--dispatcher", &url, "--tag", "site=us"]);
    let via = json!({ "url": url, "tag": "site=eu" }).to_string();
    let pipeline = std::fs::read_to_string(harness.path("p.toml")).unwrap();
    harness.write("p.toml", pipeline + "timeout = 3\n");
    let said = harness.run(&["materialize", "p.toml", "out", "--via", &via]);
    assert_eq!(said.code, 4, "{}", said.stderr);
}
