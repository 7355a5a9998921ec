//! The cache of a host, with real processes: this program runs itself again in other roles.
#![allow(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod common;

use common::{LONG, MEMORY, body, payload, payloads, until};
use forebay_engine::cache::{Keeper, Look, Payload};
use forebay_net::host::{HostClient, HostOptions, serve_host};
use forebay_net::{RemoteKeeper, Threads};
use forebay_testkit::skip::skipped;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const ROLE: &str = "FOREBAY_TEST_ROLE";
const FOLDER: &str = "FOREBAY_TEST_FOLDER";
const COUNT: u64 = 200;

fn socket(folder: &Path) -> PathBuf {
    folder.join("cache.sock")
}

/// What starts a host's process.
fn start(folder: &Path) -> Vec<OsString> {
    let program = std::env::current_exe().unwrap().into_os_string();
    let words = ["role", "--exact", "--nocapture"].map(OsString::from);
    let mut setting = OsString::from(format!("{FOLDER}="));
    setting.push(folder);
    ["env".into(), format!("{ROLE}=host").into(), setting, program].into_iter().chain(words).collect()
}

fn run(role: &str, folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn connect(folder: &Path, start: Option<Vec<OsString>>) -> RemoteKeeper {
    HostClient::connect(&socket(folder), start, Threads::current()).await.unwrap()
}

/// Not a test of its own: what this program does when it is run by the others.
#[test]
fn role() {
    let (Ok(role), Some(folder)) = (std::env::var(ROLE), std::env::var_os(FOLDER)) else { return };
    let folder = PathBuf::from(folder);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "host" => host(&folder).await,
            "holder" => holder(&folder).await,
            client => epoch(&folder, client.parse().unwrap()).await,
        }
    });
}

async fn host(folder: &Path) {
    std::fs::write(folder.join("host.pid"), std::process::id().to_string()).unwrap();
    let options = HostOptions {
        socket: socket(folder),
        memory: 1 << 20,
        grace: Duration::from_millis(300),
        behind: None,
    };
    serve_host(options, Threads::current()).await.unwrap();
}

/// Claims everything and fetches nothing.
async fn holder(folder: &Path) {
    let client = connect(folder, Some(start(folder))).await;
    let looks = client.look(&payloads(COUNT)).await;
    assert!(looks.iter().all(|look| matches!(look, Look::Absent)));
    std::fs::write(folder.join("holding"), "").unwrap();
    std::future::pending::<()>().await;
}

/// Reads the store: leaves a line in a file that all processes append to.
fn fetch(folder: &Path, payload: &Payload) -> bytes::Bytes {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("reads")).unwrap();
    file.write_all(format!("{}\n", payload.id).as_bytes()).unwrap();
    body(payload)
}

async fn epoch(folder: &Path, number: usize) {
    let client = connect(folder, Some(start(folder))).await;
    let mut order = payloads(COUNT);
    order.rotate_left(number * 50);
    if number % 2 == 1 {
        order.reverse();
    }
    for part in order.chunks(10) {
        let looks = client.look(part).await;
        std::fs::write(folder.join(format!("looked-{number}")), "").unwrap();
        for (look, payload) in looks.into_iter().zip(part) {
            let bytes = match look {
                Look::Here(bytes) => Some(bytes),
                Look::Near { .. } | Look::Coming => {
                    client.read(&[*payload]).await.remove(0).map(|(bytes, _)| bytes)
                }
                Look::Absent => None,
            };
            if let Some(bytes) = bytes {
                assert_eq!(bytes, body(payload));
            } else {
                client.keep(*payload, MEMORY, &fetch(folder, payload)).await;
            }
        }
    }
    // Now everything lies in memory that is mapped.
    for (look, payload) in client.look(&order).await.into_iter().zip(&order) {
        assert!(matches!(look, Look::Here(bytes) if bytes == body(payload)), "{payload:?}");
    }
}

fn reads(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("reads")).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn assert_each_read_once(folder: &Path) {
    let mut expected: Vec<String> = payloads(COUNT).iter().map(|payload| payload.id.to_string()).collect();
    expected.sort_unstable();
    assert_eq!(reads(folder), expected);
}

async fn finish(mut child: Child) {
    let mut ended = None;
    until(|| {
        ended = child.try_wait().unwrap();
        ended.is_some()
    })
    .await;
    assert!(ended.unwrap().success());
}

#[tokio::test]
async fn p045_four_processes_read_the_store_once_for_each_payload() {
    let folder = tempfile::tempdir().unwrap();
    // One that stays, so that the host's process does too, however far apart the others come and go.
    let stays = connect(folder.path(), Some(start(folder.path()))).await;
    let clients = ["0", "1", "2", "3"].map(|number| run(number, folder.path()));
    for client in clients {
        finish(client).await;
    }
    assert_each_read_once(folder.path());
    drop(stays);
    // The host's process leaves after the last client.
    until(|| !socket(folder.path()).exists()).await;
}

#[tokio::test]
async fn memory_is_shared_where_dev_shm_cannot_be_written() {
    // A mount namespace of its own, in which /dev/shm is read-only.
    let before = ["--mount", "sh", "-c", "mount -t tmpfs -o ro none /dev/shm && exec \"$@\"", "sh"];
    let tried = Command::new("unshare").args(before).arg("true").stderr(Stdio::null()).status();
    if !tried.is_ok_and(|status| status.success()) {
        return skipped("a mount namespace takes root");
    }
    let folder = tempfile::tempdir().unwrap();
    let client = Command::new("unshare")
        .args(before)
        .arg(std::env::current_exe().unwrap())
        .args(["role", "--exact", "--nocapture"])
        .env(ROLE, "0")
        .env(FOLDER, folder.path())
        .stdout(Stdio::null())
        .spawn();
    // It starts the host's process, keeps everything there, and finds all of it in memory that it maps.
    finish(client.unwrap()).await;
    assert_each_read_once(folder.path());
}

#[tokio::test]
async fn p045_a_process_that_is_killed_while_others_wait_for_it_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = run("holder", folder.path());
    until(|| folder.path().join("holding").exists()).await;
    let stays = connect(folder.path(), None).await;
    let clients = ["0", "3"].map(|number| run(number, folder.path()));
    until(|| ["looked-0", "looked-3"].iter().all(|name| folder.path().join(name).exists())).await;
    assert!(reads(folder.path()).is_empty(), "both wait for what the first has claimed");
    // Kill is -9: it has no chance to give anything up.
    holder.kill().unwrap();
    holder.wait().unwrap();
    for client in clients {
        finish(client).await;
    }
    assert_each_read_once(folder.path());
    drop(stays);
}

#[tokio::test]
async fn p045_clients_go_on_without_a_host_that_was_killed_until_there_is_one_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut host = run("host", folder.path());
    until(|| std::os::unix::net::UnixStream::connect(socket(folder.path())).is_ok()).await;
    let client = connect(folder.path(), None).await;
    let one = payload(1);
    client.keep(one, MEMORY, &body(&one)).await;
    let Look::Here(shown) = client.look(&[one]).await.remove(0) else { panic!("it is in memory") };
    host.kill().unwrap();
    host.wait().unwrap();
    until(|| !client.is_connected()).await;
    assert!(matches!(client.look(&[one]).await[0], Look::Absent));
    assert_eq!(client.read(&[one]).await, [None]);
    client.keep(one, MEMORY, &body(&one)).await;
    client.give_up(one);
    assert_eq!(shown, body(&one), "what is in use stays");
    let again = run("host", folder.path());
    let connected = async {
        loop {
            client.look(&[one]).await;
            if client.is_connected() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, connected).await.unwrap();
    client.keep(one, MEMORY, &body(&one)).await;
    assert!(matches!(&client.look(&[one]).await[0], Look::Here(bytes) if *bytes == body(&one)));
    drop(client);
    finish(again).await;
}

#[tokio::test]
async fn p045_only_one_process_serves_a_socket_and_a_wrong_command_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let first = run("host", folder.path());
    until(|| std::os::unix::net::UnixStream::connect(socket(folder.path())).is_ok()).await;
    let client = connect(folder.path(), None).await;
    finish(run("host", folder.path())).await;
    client.keep(payload(1), MEMORY, &body(&payload(1))).await;
    assert_eq!(client.ask_view().await.memory.payloads, 1, "the first one still serves");
    client.resize(forebay_core::cache::Capacity { memory: 10, disk: 0 }).await.unwrap();
    assert_eq!(client.ask_view().await.memory.bytes, 0);
    assert!(matches!(client.look(&[payload(1)]).await[0], Look::Absent));
    drop(client);
    finish(first).await;
    for (command, word) in
        [(None, "connect"), (Some(vec!["false".into()]), "start"), (Some(vec!["/no".into()]), "/no")]
    {
        let error =
            HostClient::connect(&socket(folder.path()), command, Threads::current()).await.unwrap_err();
        assert!(error.message().contains(word), "{error:?}");
    }
}
