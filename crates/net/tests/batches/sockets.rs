//! Connections: who gets in, how they begin and end, and what those cost who say nothing or nonsense.

use crate::make::{batch, every_kind, loopback, pair, receive, shape, tensor};
use forebay_core::ErrorKind;
use forebay_net::service::message::{Packing, ToClient, ToWorker};
use forebay_net::service::{Address, ListenOptions, Listener, Times, connect};
use forebay_net::{Credentials, PeerTls, Token};
use forebay_ops::BufferPool;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

fn token(text: &str) -> Credentials {
    Credentials { token: Some(Token::new(text).unwrap()), tls: None }
}

/// Batches one way and messages the other at the same time, more than sockets hold.
fn both_ways(address: &Address, credentials: &Credentials) {
    let ((mut to_client, mut from_client), (mut to_worker, mut from_worker)) = pair(address, credentials);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let pool = BufferPool::new(0);
            for salt in 0..6 {
                let sent = batch(5, vec![tensor(&pool, 5, 300_000, salt)]);
                to_client.send_batch(salt, &sent, Times::default(), Packing::None).unwrap();
                to_client.send_batch(salt, &every_kind(3), Times::default(), Packing::Zstd).unwrap();
            }
        });
        scope.spawn(move || {
            for position in 0..2000 {
                to_worker.send(&ToWorker::Passed { epoch: 1, position }).unwrap();
            }
        });
        scope.spawn(move || {
            for position in 0..2000 {
                let expected = ToWorker::Passed { epoch: 1, position };
                assert_eq!(from_client.receive().unwrap(), Some(expected));
            }
            assert_eq!(from_client.receive::<ToWorker>().unwrap(), None, "the other half was dropped");
        });
        let pool = BufferPool::new(10 << 20);
        for salt in 0..6 {
            let (_, large) = receive(&mut from_worker, &pool).unwrap();
            assert_eq!(shape(&large), shape(&batch(5, vec![tensor(&pool, 5, 300_000, salt)])));
            assert_eq!(shape(&receive(&mut from_worker, &pool).unwrap().1), shape(&every_kind(3)));
        }
        assert_eq!(from_worker.receive::<ToClient>().unwrap(), None);
    });
}

#[test]
fn both_directions_are_used_at_once_over_tcp_and_unix() {
    let folder = tempfile::tempdir().unwrap();
    both_ways(&loopback(), &Credentials::default());
    both_ways(&loopback(), &token("the token of this job"));
    both_ways(&Address::Unix(folder.path().join("a.sock")), &Credentials::default());
}

/// What a client sees at a listener with `ours` when it brings `theirs`.
fn refused(ours: &Credentials, theirs: &Credentials) -> (forebay_core::Error, forebay_core::Error) {
    let listener = Listener::bind(&loopback(), ours, ListenOptions::default()).unwrap();
    let address = listener.address().clone();
    std::thread::scope(|scope| {
        let met = scope.spawn(move || listener.accept().unwrap().unwrap().meet().map(drop).unwrap_err());
        let joined = connect(&address, theirs).map(drop).unwrap_err();
        (met.join().unwrap(), joined)
    })
}

#[test]
fn another_token_or_none_is_refused_and_both_sides_say_why() {
    let (one, other) = (token("the token of this job"), token("the token of that job"));
    for (ours, theirs) in [(&one, &other), (&one, &Credentials::default()), (&Credentials::default(), &one)] {
        let (_, joined) = refused(ours, theirs);
        assert_eq!(joined.kind(), ErrorKind::Denied);
        assert!(joined.message().contains("token") && joined.message().contains("127.0.0.1"), "{joined:?}");
    }
    assert!(refused(&one, &other).0.message().contains("another token"));
}

/// Files of an authority and of two members, one signed by it and one by itself.
fn certificates(folder: &std::path::Path) -> (PeerTls, PeerTls) {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    let authority_key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, &authority_key);
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ca_file = write("ca.pem", authority.pem());
    let member = |name: &str, signed: bool| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = if signed { params.signed_by(&key, &issuer) } else { params.self_signed(&key) }.unwrap();
        PeerTls {
            ca_file: ca_file.clone(),
            cert: write(&format!("{name}.pem"), cert.pem()),
            key: write(&format!("{name}.key"), key.serialize_pem()),
            name: None,
        }
    };
    (member("member", true), member("stranger", false))
}

#[test]
fn members_with_certificates_talk_both_ways_at_once_and_others_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (member, stranger) = certificates(folder.path());
    let with = |tls: &PeerTls| Credentials { token: None, tls: Some(tls.clone()) };
    both_ways(&loopback(), &with(&member));
    let both = Credentials { tls: Some(member.clone()), ..token("the token of this job") };
    both_ways(&loopback(), &both);
    let (_, joined) = refused(&with(&member), &with(&stranger));
    assert_eq!(joined.kind(), ErrorKind::Denied, "{joined:?}");
    assert!(joined.message().contains("refused our certificate"), "{joined:?}");
    let (_, joined) = refused(&with(&stranger), &with(&member));
    assert_eq!(joined.kind(), ErrorKind::Denied, "{joined:?}");
    assert!(joined.message().contains("not to be trusted"), "{joined:?}");
    let (met, joined) = refused(&Credentials::default(), &with(&member));
    assert_eq!((met.kind(), joined.kind()), (ErrorKind::Corrupt, ErrorKind::Denied), "{met:?} {joined:?}");
}

#[test]
fn nothing_listens_beyond_this_machine_without_a_token_or_certificates() {
    let bind = |credentials: &Credentials| {
        Listener::bind(&Address::Tcp("0.0.0.0:0".into()), credentials, ListenOptions::default()).map(drop)
    };
    let error = bind(&Credentials::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidConfig);
    assert!(error.hint().is_some_and(|hint| hint.contains("token")));
    bind(&token("the token of this job")).unwrap();
}

#[test]
fn silence_and_garbage_are_closed_and_keep_nobody_else_waiting() {
    let bind = |begin_time| {
        let options = ListenOptions { begin_time, ..ListenOptions::default() };
        Listener::bind(&loopback(), &Credentials::default(), options).unwrap()
    };
    // Whoever is silent is waited for only shortly; who says nonsense is known before that.
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(600));
    for (said, time, kind) in [
        (&b""[..], short, ErrorKind::Unavailable),
        (b"FBYB\x01", short, ErrorKind::Unavailable),
        (b"GET / HTTP/1.1\r\n\r\n", long, ErrorKind::Corrupt),
        (&[0xff; 1000], long, ErrorKind::Corrupt),
    ] {
        let listener = bind(time);
        let mut stream = TcpStream::connect(listener.address().to_string()).unwrap();
        stream.write_all(said).unwrap();
        let arriving = listener.accept().unwrap().unwrap();
        assert_eq!(arriving.meet().map(drop).unwrap_err().kind(), kind, "{said:?}");
        // The greeting may have come; then it ends, however the system says so.
        let _ = stream.read_to_end(&mut Vec::new());
        assert_eq!(listener.connections(), 0);
    }
}

#[test]
fn connections_and_those_who_say_nothing_are_limited() {
    let options = ListenOptions { max_connections: 1, max_arriving: 2, begin_time: Duration::from_secs(600) };
    let listener = Listener::bind(&loopback(), &Credentials::default(), options).unwrap();
    let address = listener.address().clone();
    let Address::Tcp(text) = address.clone() else { panic!("not TCP") };
    let join = |listener: &Listener| {
        std::thread::scope(|scope| {
            let met = scope.spawn(|| listener.accept().unwrap().unwrap().meet());
            let joined = connect(&address, &Credentials::default());
            (met.join().unwrap(), joined)
        })
    };
    let (first, joined) = join(&listener);
    assert!(first.is_ok() && joined.is_ok() && listener.connections() == 1);
    let (second, refused) = join(&listener);
    assert_eq!(second.map(drop).unwrap_err().kind(), ErrorKind::Exhausted);
    assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::Exhausted);
    drop((first, joined));
    assert_eq!(listener.connections(), 0);
    // Two wait to be met; the third is closed without a word, and the fourth is seen once there is room.
    let streams: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(&text).unwrap()).collect();
    let waiting: Vec<_> = (0..2).map(|_| listener.accept().unwrap().unwrap()).collect();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().unwrap().map(drop));
        let mut third = TcpStream::connect(&text).unwrap();
        assert!(!matches!(third.read(&mut [0; 8]), Ok(1..)), "closed without a word");
        drop(waiting);
        let _fourth = TcpStream::connect(&text).unwrap();
        assert!(accepting.join().unwrap().is_some());
    });
    drop(streams);
}

#[test]
fn a_connection_and_a_listener_are_ended_from_another_thread() {
    let ((to_client, mut from_client), _client) = pair(&loopback(), &Credentials::default());
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let (said, waits) = mpsc::channel();
        let waiting = scope.spawn(move || {
            said.send(()).unwrap();
            from_client.receive::<ToWorker>()
        });
        waits.recv().unwrap();
        to_client.closer().close();
        assert!(!matches!(waiting.join().unwrap(), Ok(Some(_))));
        for address in [loopback(), Address::Unix(folder.path().join("a.sock"))] {
            let listener =
                Listener::bind(&address, &Credentials::default(), ListenOptions::default()).unwrap();
            let closer = listener.closer();
            let (said, waits) = mpsc::channel();
            let waiting = scope.spawn(move || {
                said.send(()).unwrap();
                listener.accept().map(|arriving| arriving.is_none())
            });
            waits.recv().unwrap();
            closer.close();
            assert!(waiting.join().unwrap().unwrap(), "{address}");
        }
    });
    assert!(!folder.path().join("a.sock").exists(), "its file goes with it");
}

#[test]
fn a_socket_that_was_left_over_makes_way_and_one_in_use_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let bind =
        || Listener::bind(&Address::Unix(path.clone()), &Credentials::default(), ListenOptions::default());
    let first = bind().unwrap();
    assert!(bind().is_err());
    drop(first);
    bind().unwrap();
}

#[test]
fn nobody_there_is_said_with_the_address() {
    let gone = Listener::bind(&loopback(), &Credentials::default(), ListenOptions::default()).unwrap();
    let address = gone.address().clone();
    drop(gone);
    let error = connect(&address, &Credentials::default()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains(&address.to_string()), "{error:?}");
    let missing = Address::Unix("/nowhere/at/all.sock".into());
    assert_eq!(
        connect(&missing, &Credentials::default()).map(drop).unwrap_err().kind(),
        ErrorKind::Unavailable
    );
}
