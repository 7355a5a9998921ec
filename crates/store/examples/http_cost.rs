//! What a GET costs the client: CPU seconds per GB for objects of 115 KB, 32 in flight, from a server in a process of
//! its own on this machine. `cargo run --release -p forebay-store --example http_cost [GETS]`
#![expect(clippy::unwrap_used, reason = "an example ends where it cannot go on")]
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use forebay_store::{HttpStore, Store, StoreOptions};
use futures::stream::{self, StreamExt};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Instant;

const OBJECT_BYTES: usize = 115 << 10;
const IN_FLIGHT: usize = 32;

fn main() {
    let argument = std::env::args().nth(1);
    if argument.as_deref() == Some("serve") {
        return serve();
    }
    let gets: usize = argument.and_then(|gets| gets.parse().ok()).unwrap_or(40_000);
    let mut server = Command::new(std::env::current_exe().unwrap())
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut root = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut root).unwrap();
    let store = HttpStore::open(root.trim(), &StoreOptions::new()).unwrap();
    let runtime = store.runtime().unwrap();
    let read_all = |count: usize| {
        let store = store.clone();
        let reads = stream::iter(0..count).for_each_concurrent(IN_FLIGHT, move |number| {
            let store = store.clone();
            async move {
                let key = format!("train/{number}.jpg");
                let bytes = store.read(&key, (0..OBJECT_BYTES as u64).into()).await.unwrap();
                assert_eq!(bytes.len(), OBJECT_BYTES);
            }
        });
        // From the network threads themselves, as the fetcher does.
        futures::executor::block_on(runtime.spawn(reads)).unwrap();
    };
    read_all(gets / 10);
    let (began, before) = (Instant::now(), cpu_seconds());
    read_all(gets);
    let (wall, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - before);
    let gigabytes = (gets * OBJECT_BYTES) as f64 / 1e9;
    let (per_get, rate) = (cpu / gets as f64 * 1e6, gigabytes / wall);
    println!("{gets} GETs, {gigabytes:.2} GB in {wall:.2} s ({rate:.2} GB/s)");
    println!("client CPU: {:.3} s/GB, {per_get:.0} us a GET", cpu / gigabytes);
    drop(server.stdin.take());
    server.wait().unwrap();
}

/// Of all threads of this process, user and system together.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    // Ticks of 10 ms, which is what Linux counts in everywhere it matters.
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

/// Answers every request with the same bytes, one thread a connection, until stdin ends.
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || answer(stream.unwrap()));
        }
    });
    let _ = std::io::stdin().read(&mut [0]);
}

fn answer(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let last = OBJECT_BYTES - 1;
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nETag: \"1\"\r\nContent-Type: application/octet-stream\r\n\
         Accept-Ranges: bytes\r\nContent-Range: bytes 0-{last}/{OBJECT_BYTES}\r\nContent-Length: {OBJECT_BYTES}\r\n\r\n"
    );
    let mut whole = head.into_bytes();
    whole.resize(whole.len() + OBJECT_BYTES, 7);
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).unwrap_or(0);
        if read == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..read]);
        if request.ends_with(b"\r\n\r\n") {
            request.clear();
            if stream.write_all(&whole).is_err() {
                return;
            }
        }
    }
}
