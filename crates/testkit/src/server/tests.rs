//! The server over real sockets: bytes, faults and counts.

use super::*;
use std::io::{Read, Write};
use std::time::Instant;

struct Client(TcpStream);

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
    /// Bytes of the body that the head states.
    stated: usize,
}

impl Client {
    fn new(server: &SlowServer) -> Self {
        let stream = TcpStream::connect(server.address()).unwrap();
        // A test that goes wrong shall end.
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self(stream)
    }

    fn ask(&mut self, request: &str) -> Answer {
        self.send(request, b"");
        self.read(request.starts_with("HEAD")).expect("an answer")
    }

    fn send(&mut self, request: &str, body: &[u8]) {
        let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
        let headers = if headers.is_empty() { String::new() } else { format!("{headers}\r\n") };
        let head =
            format!("{line} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {}\r\n\r\n", body.len());
        self.0.write_all(&[head.as_bytes(), body].concat()).unwrap();
    }

    fn read(&mut self, bodiless: bool) -> Option<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if self.0.read(&mut byte).ok()? == 0 {
                return None;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let stated =
            head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        let mut body = Vec::new();
        if !bodiless {
            drop((&self.0).take(stated as u64).read_to_end(&mut body));
        }
        Some(Answer { status, head, body, stated })
    }
}

#[test]
fn objects_come_whole_and_in_ranges_over_one_connection() {
    let server =
        SlowServer::start(Objects::new().generated("a b", 3_000_000).with("kept", b"0123456789")).unwrap();
    let mut client = Client::new(&server);
    let whole = client.ask("GET /a%20b");
    assert_eq!((whole.status, whole.stated), (200, 3_000_000));
    assert!(whole.body == generated("a b", 0, 3_000_000));
    assert_ne!(whole.body, generated("a c", 0, 3_000_000));
    let part = client.ask("GET /bucket/a%20b\nrange: bytes=1048570-2097999");
    assert_eq!(part.status, 206);
    assert!(part.head.contains("content-range: bytes 1048570-2097999/3000000\r\n"));
    assert!(part.body == whole.body[1_048_570..2_098_000]);
    assert_eq!(client.ask("GET /kept\nrange: bytes=-3").body, b"789");
    assert_eq!(client.ask("GET /kept\nrange: bytes=10-").status, 416);
    assert_eq!(client.ask("GET /nothing").status, 404);
    let about = client.ask("HEAD /kept");
    assert_eq!((about.status, about.stated, about.body.len()), (200, 10, 0));
    let counts = server.counts();
    assert_eq!((counts.requests, counts.connections, counts.open, counts.most_open), (6, 1, 1, 1));
    assert_eq!(server.attempts("kept"), 3);
}

#[test]
fn what_is_put_can_be_read_and_is_kept_when_asked_to_be_new() {
    let server = SlowServer::start(Objects::new()).unwrap();
    let mut client = Client::new(&server);
    let mut put = |request: &str, body: &[u8]| {
        client.send(request, body);
        client.read(false).unwrap().status
    };
    assert_eq!(put("PUT /bucket/x/y", b"first"), 200);
    assert_eq!(put("PUT /bucket/x/y\nif-none-match: *", b"second"), 412);
    assert_eq!(client.ask("GET /x/y").body, b"first");
    assert_eq!(client.ask("DELETE /x/y").status, 204);
    assert_eq!(client.ask("GET /x/y").status, 404);
}

#[test]
fn lists_come_in_pages_and_in_order() {
    let objects =
        Objects::new().many(2500, 10).generated("p/a&b", 1).generated("p/deep/er", 1).generated("p/z", 1);
    let server = SlowServer::start(objects).unwrap();
    let mut client = Client::new(&server);
    let keys = |xml: &[u8], tag: &str| -> Vec<String> {
        let xml = String::from_utf8(xml.to_vec()).unwrap();
        let tag = format!("<{tag}>");
        xml.split(&tag).skip(1).map(|part| part.split('<').next().unwrap().to_string()).collect()
    };
    let (mut all, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let page = client.ask(&format!("GET /bucket?list-type=2&prefix=o/{token}"));
        all.extend(keys(&page.body, "Key"));
        pages += 1;
        match keys(&page.body, "NextContinuationToken").pop() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    assert_eq!((all.len(), pages), (2500, 3));
    assert_eq!(all, (0..2500).map(|n| format!("o/{n:06}.bin")).collect::<Vec<_>>());
    let behind = client.ask("GET /bucket/?list-type=2&start-after=o/002497.bin&prefix=o/");
    assert_eq!(keys(&behind.body, "Key"), ["o/002498.bin", "o/002499.bin"]);
    let gathered = client.ask("GET /bucket?list-type=2&prefix=p/&delimiter=/");
    assert_eq!(keys(&gathered.body, "Key"), ["p/a&amp;b", "p/z"]);
    assert_eq!(keys(&gathered.body, "Prefix"), ["p/", "p/deep/"]);
    let one = client.ask("GET /bucket?list-type=2&delimiter=/&max-keys=1");
    assert_eq!(keys(&one.body, "NextContinuationToken"), ["o/"]);
    let two = client.ask("GET /bucket?list-type=2&delimiter=/&max-keys=1&continuation-token=o/");
    assert_eq!(keys(&two.body, "Prefix"), ["", "p/"]);
    assert_eq!(keys(&two.body, "IsTruncated"), ["false"]);
}

#[test]
fn each_fault_comes_when_the_script_says_so() {
    let server = SlowServer::start(Objects::new().generated("a", 40_000)).unwrap();
    let right = generated("a", 0, 40_000);
    server.script(|seen| match seen.attempt {
        1 => Act::throttle(7),
        2 => Act::status(403),
        3 => Act::fault(Fault::Corrupt(20_001)),
        4 => Act { bytes_per_second: 1 << 30, ..Act::after(Duration::from_millis(1)) },
        5 => Act::fault(Fault::Truncate(20_000)),
        6 => Act::fault(Fault::Close),
        _ => Act::fault(Fault::Hang),
    });
    let mut client = Client::new(&server);
    let busy = client.ask("GET /a");
    assert_eq!(busy.status, 503);
    assert!(busy.head.contains("retry-after: 7\r\n"));
    assert_eq!(client.ask("GET /a").status, 403);
    let corrupt = client.ask("GET /a").body;
    let wrong: Vec<usize> = (0..40_000).filter(|at| corrupt[*at] != right[*at]).collect();
    assert_eq!(wrong, [20_001]);
    assert!(client.ask("GET /a").body == right, "slow, but right");
    let short = client.ask("GET /a");
    assert_eq!((short.stated, short.body.len()), (40_000, 20_000));
    let mut client = Client::new(&server);
    client.send("GET /a", b"");
    assert!(client.read(false).is_none(), "closed before the answer");
    let mut hanging = Client::new(&server);
    hanging.send("GET /a", b"");
    let began = Instant::now();
    while server.attempts("a") < 7 {
        assert!(began.elapsed() < Duration::from_secs(30));
        std::thread::yield_now();
    }
    drop(server);
    assert!(hanging.read(false).is_none(), "a hanging request ends with the server");
}

#[test]
fn a_server_that_is_down_resets_connections_and_comes_back_on_the_same_port() {
    let server = SlowServer::start(Objects::new().generated("a", 10)).unwrap();
    let mut client = Client::new(&server);
    assert_eq!(client.ask("GET /a").status, 200);
    server.set_down(true);
    assert!(matches!(client.0.read(&mut [0; 1]), Ok(0) | Err(_)));
    let mut refused = Client::new(&server);
    assert!(matches!(refused.0.read(&mut [0; 1]), Ok(0) | Err(_)));
    server.set_down(false);
    assert_eq!(Client::new(&server).ask("GET /a").body, generated("a", 0, 10));
}

#[test]
fn files_of_a_folder_are_served_once_or_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::fs::write(folder.path().join("in/a.jpg"), b"first file").unwrap();
    std::fs::write(folder.path().join("b.jpg"), b"second").unwrap();
    let server = SlowServer::start(Objects::new().folder(folder.path(), None).unwrap()).unwrap();
    let mut client = Client::new(&server);
    assert_eq!(client.ask("GET /in/a.jpg").body, b"first file");
    assert_eq!(client.ask("GET /b.jpg\nrange: bytes=2-3").body, b"co");
    server.script(|_| Act::fault(Fault::Corrupt(0)));
    assert_eq!(client.ask("GET /b.jpg").body, b"\x8cecond");
    let many = Objects::new().folder(folder.path(), Some(5)).unwrap();
    let server = SlowServer::start(many).unwrap();
    let mut client = Client::new(&server);
    assert_eq!(client.ask("GET /o/000000-b.jpg").body, b"second");
    assert_eq!(client.ask("GET /o/000003-a.jpg").body, b"first file");
    assert!(Objects::new().folder(&folder.path().join("none"), None).is_err());
}

#[test]
fn bytes_that_are_no_request_close_the_connection_and_nothing_else() {
    let server = SlowServer::start(Objects::new().generated("a", 10)).unwrap();
    for bytes in [
        &b"\x16\x03\x01\x02\x00\r\n\r\n"[..],
        &vec![b'a'; 40_000],
        b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n",
    ] {
        let mut client = Client::new(&server);
        drop(client.0.write_all(bytes));
        assert!(matches!(client.0.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
    assert_eq!(Client::new(&server).ask("GET /a").status, 200);
}
