// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket under well-behaved clients, silent ones, and ones that flood it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;

use super::*;

/// Long enough for a machine that builds something else meanwhile; what blocks for ever fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Short limits, so that the tests that wait for them are short too.
const LIMITS: Limits = Limits {
    peers: 8,
    request: Duration::from_millis(200),
    reply: Duration::from_millis(500),
    unread_bytes: 4 << 20,
};

struct Served {
    _dir: tempfile::TempDir,
    path: PathBuf,
    server: Option<ControlServer>,
}

impl Served {
    fn with(answer: impl Fn(Request) -> Reply + Send + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ctl.sock");
        let server = Some(ControlServer::start_with(&path, LIMITS, answer).unwrap());
        Served { _dir: dir, path, server }
    }

    fn new() -> Self {
        Self::with(|request| match request {
            Request::Stats => Reply::Stats(Box::default()),
            _ => Reply::Settings(vec![]),
        })
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.path).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.set_write_timeout(Some(PATIENCE)).unwrap();
        client
    }

    /// Stops the server, on a thread of its own: a stop that waits for a client is a failure.
    fn stop(&mut self) {
        let (done, stopped) = mpsc::channel();
        let server = self.server.take().unwrap();
        thread::spawn(move || {
            drop(server);
            _ = done.send(());
        });
        assert!(stopped.recv_timeout(PATIENCE).is_ok(), "the server does not stop");
        assert!(!self.path.exists());
    }
}

fn ask(client: &UnixStream, request: &Request) -> Option<Reply> {
    ctl::send(&mut &*client, request).unwrap();
    ctl::receive(&mut BufReader::new(client)).unwrap()
}

fn is_stats(reply: Option<Reply>) -> bool {
    matches!(reply, Some(Reply::Stats(_)))
}

/// Whether the server has closed this connection; what it sends before is passed over.
fn is_closed(mut client: &UnixStream) -> bool {
    let mut buffer = [0; 65536];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
        }
    }
}

/// Several requests on one connection get one reply each; the socket goes with the server.
#[test]
fn answers_and_cleans_up() {
    let mut served = Served::new();
    assert_eq!(fs::metadata(&served.path).unwrap().permissions().mode() & 0o777, 0o600);
    let client = served.connect();
    for (request, reply) in [
        (Request::Stats, Reply::Stats(Box::default())),
        (Request::Get { keys: vec![] }, Reply::Settings(vec![])),
    ] {
        assert_eq!(ask(&client, &request), Some(reply));
    }
    served.stop();
}

/// Requests that are sent together are answered in their order, also when the sender has closed its
/// half.
#[test]
fn requests_in_a_row_are_answered_in_order() {
    let served = Served::new();
    let client = served.connect();
    let mut wire = Vec::new();
    for request in [Request::Stats, Request::Status, Request::Stats] {
        ctl::send(&mut wire, &request).unwrap();
    }
    (&client).write_all(&wire).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut replies = BufReader::new(&client);
    let mut next = || ctl::receive::<Reply>(&mut replies).unwrap();
    assert!(is_stats(next()));
    assert!(matches!(next(), Some(Reply::Settings(_))));
    assert!(is_stats(next()));
    assert_eq!(next(), None);
}

/// Nonsense is answered with an error, and the next client is served as if nothing had been.
#[test]
fn survives_nonsense() {
    let served = Served::new();
    let client = served.connect();
    (&client).write_all(b"\x00\xff garbage\n").unwrap();
    let reply = ctl::receive::<Reply>(&mut BufReader::new(&client)).unwrap();
    assert!(matches!(reply, Some(Reply::Error(_))), "{reply:?}");
    assert!(is_closed(&client));
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
}

/// A connected client keeps no one waiting: neither the next one nor the stop.
#[test]
fn clients_that_stay_connected_hold_up_nobody() {
    let mut served = Served::new();
    let monitors: Vec<UnixStream> = (0..LIMITS.peers - 1).map(|_| served.connect()).collect();
    for monitor in &monitors {
        assert!(is_stats(ask(monitor, &Request::Stats)));
    }
    // All of them ask on, so that none of them is ever silent for long.
    let asking: Vec<_> = monitors.iter().map(|monitor| monitor.try_clone().unwrap()).collect();
    let asked: Vec<_> =
        asking.into_iter().map(|monitor| thread::spawn(move || monitor_on(&monitor))).collect();
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
    served.stop();
    for thread in asked {
        thread.join().unwrap();
    }
}

/// Asks every few milliseconds until the server is gone.
fn monitor_on(mut monitor: &UnixStream) {
    let mut replies = BufReader::new(monitor.try_clone().unwrap());
    while ctl::send(&mut monitor, &Request::Stats).is_ok()
        && matches!(ctl::receive::<Reply>(&mut replies), Ok(Some(_)))
    {
        thread::sleep(Duration::from_millis(20));
    }
}

/// `stats --monitor 3s` is silent for three seconds, and is answered all the same.
#[test]
fn a_client_may_be_silent_between_requests() {
    let served = Served::new();
    let client = served.connect();
    assert!(is_stats(ask(&client, &Request::Stats)));
    thread::sleep(3 * LIMITS.reply.max(LIMITS.request));
    assert!(is_stats(ask(&client, &Request::Stats)));
}

/// A slow answer holds up the stop no more than a client does.
#[test]
fn an_answer_that_does_not_come_holds_up_no_stop() {
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut served = Served::with(move |_| {
        begun.send(()).unwrap();
        _ = released.recv();
        Reply::Settings(vec![])
    });
    let client = served.connect();
    ctl::send(&mut &client, &Request::Status).unwrap();
    has_begun.recv_timeout(PATIENCE).unwrap();
    served.stop();
    assert!(is_closed(&client));
    drop(release);
}

/// Who sends half a request is cut off after a while, and nothing waits for it meanwhile.
#[test]
fn half_a_request_is_cut_off() {
    let served = Served::new();
    let half = served.connect();
    (&half).write_all(b"{\"schema\":1,").unwrap();
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
    assert!(is_closed(&half));
}

/// A request that does not end is refused when it is longer than any request.
#[test]
fn a_request_without_end_fails() {
    let served = Served::new();
    let client = served.connect();
    // The server may close while this is being written.
    _ = (&client).write_all(&vec![b'x'; REQUEST_MAX_BYTES + 1]);
    let reply = ctl::receive::<Reply>(&mut BufReader::new(&client));
    assert!(matches!(reply, Ok(Some(Reply::Error(_))) | Err(_)), "{reply:?}");
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
}

/// Who asks and does not read gets one answer at a time, and is cut off; others are served.
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let answers = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&answers);
    let mut served = Served::with(move |request| {
        if request == Request::Stats {
            return Reply::Stats(Box::default());
        }
        counted.fetch_add(1, Ordering::Relaxed);
        Reply::Error(Problem::new("x".repeat(1 << 20), "y", "z"))
    });
    let greedy = served.connect();
    greedy.set_nonblocking(true).unwrap();
    let mut request = Vec::new();
    ctl::send(&mut request, &Request::Status).unwrap();
    for _ in 0..1000 {
        _ = (&greedy).write_all(&request);
    }
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
    greedy.set_nonblocking(false).unwrap();
    thread::sleep(2 * LIMITS.reply);
    assert_eq!(answers.load(Ordering::Relaxed), 1, "answers were piled up");
    assert!(is_closed(&greedy));
    served.stop();
}

/// What all clients together leave unread is bounded: the oldest of them goes.
#[test]
fn unread_answers_are_bounded() {
    let served = Served::with(|_| Reply::Error(Problem::new("x".repeat(2 << 20), "y", "z")));
    let greedy: Vec<UnixStream> = (0..3).map(|_| served.connect()).collect();
    let mut buffer = [0; 1];
    for mut client in &greedy {
        ctl::send(&mut client, &Request::Status).unwrap();
        client.read_exact(&mut buffer).unwrap();
    }
    // The third answer, which takes more than there is room for, has pushed out the first.
    let mut rest = Vec::new();
    (&greedy[0]).read_to_end(&mut rest).unwrap();
    assert!(rest.len() < 2 << 20, "{} bytes were kept for it", rest.len());
    let mut last = Vec::new();
    BufReader::new(&greedy[2]).read_until(b'\n', &mut last).unwrap();
    assert!(last.len() > 2 << 20, "the newest is not kept in full");
}

/// More connections than there are places: those that ask are served, the longest silent one goes.
#[test]
fn a_flood_of_connections_locks_nobody_out() {
    let mut served = Served::new();
    let working = served.connect();
    let mut flood = Vec::new();
    for _ in 0..10 * LIMITS.peers {
        flood.push(served.connect());
        assert!(is_stats(ask(&working, &Request::Stats)));
    }
    assert!(is_stats(ask(&served.connect(), &Request::Stats)));
    assert!(is_closed(&flood[0]));
    assert!(is_stats(ask(&working, &Request::Stats)));
    served.stop();
}

/// Only root and the user that the server runs as may ask, even if the socket were open to others.
#[test]
fn other_users_are_refused_fail() {
    assert!(may_ask(Some(0), 1000) && may_ask(Some(1000), 1000) && may_ask(Some(0), 0));
    assert!(!may_ask(Some(1000), 0) && !may_ask(Some(1000), 1001) && !may_ask(None, 0));
}

/// A panic while an answer is made is that request's error; the next one is answered.
#[test]
fn a_panic_in_an_answer_is_survived() {
    let mut served = Served::with(|request| match request {
        Request::Stats => Reply::Stats(Box::default()),
        _ => panic!("on purpose"),
    });
    let client = served.connect();
    assert!(matches!(ask(&client, &Request::Status), Some(Reply::Error(_))));
    assert!(is_stats(ask(&client, &Request::Stats)));
    served.stop();
}
