// SPDX-License-Identifier: MIT OR Apache-2.0
//! The key-value server of the examples under load: what it answers is right while its table grows,
//! the thread that grows it is boosted, and after its end nothing is left of it.

#[path = "../examples/kvserver/checksum.rs"]
mod checksum;
#[path = "../examples/kvserver/protocol.rs"]
mod protocol;
#[path = "../examples/kvserver/server.rs"]
mod server;
#[path = "../examples/kvserver/store.rs"]
mod store;
#[path = "../examples/kvserver/table.rs"]
mod table;

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use locks::{Recorder, Request};
use pstate::{Options, Way};
use turbolane::Session;

use checksum::Checksum;
use server::Server;
use store::{Checked, Store};
use table::Table;

/// On a modelled machine, so that boosts are granted wherever the test runs.
fn server(workers: usize) -> (Arc<Session>, Server) {
    let options = Options { root: "fx-8120".into(), way: Some(Way::Simulated) };
    let session = Arc::new(Session::open(&options).unwrap());
    let server = Server::start(Arc::clone(&session), "127.0.0.1:0", workers).unwrap();
    (session, server)
}

struct Client {
    from: BufReader<TcpStream>,
    to: TcpStream,
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        let to = TcpStream::connect(address).unwrap();
        to.set_nodelay(true).unwrap();
        Client { from: BufReader::new(to.try_clone().unwrap()), to }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n").as_bytes());
        self.line()
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let mut bytes = format!("set {key} {}\n", value.len()).into_bytes();
        bytes.extend_from_slice(value);
        bytes.push(b'\n');
        self.send(&bytes);
        assert_eq!(self.line(), "STORED");
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let head = self.ask(&format!("get {key}"));
        let len: usize = head.strip_prefix("VALUE ")?.parse().unwrap();
        let mut value = vec![0; len + 1];
        self.from.read_exact(&mut value).unwrap();
        assert_eq!(value.pop(), Some(b'\n'));
        Some(value)
    }

    fn stats(&mut self) -> HashMap<String, u64> {
        self.send(b"stats\n");
        let mut stats = HashMap::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(' ') else { return stats };
            stats.insert(name.to_string(), value.parse().unwrap());
        }
    }
}

/// The value that a client stores under its nth key in a round.
fn value(client: usize, nth: usize, round: usize) -> Vec<u8> {
    let len = nth * 37 % 1_500;
    (0..len).map(|byte| (byte * 31 + nth * 7 + client * 3 + round) as u8).collect()
}

const CLIENTS: usize = 3;
const KEYS: usize = 700;

/// What one client does: stores, overwrites, deletes and reads its keys, and looks at each answer.
fn load(client: usize, address: SocketAddr) {
    let mut here = Client::new(address);
    let key = |nth: usize| format!("client-{client}-{nth}");
    for nth in 0..KEYS {
        here.set(&key(nth), &value(client, nth, 0));
        // one that was stored before, from wherever the table has it now
        assert_eq!(here.get(&key(nth / 2)).unwrap(), value(client, nth / 2, 0), "{nth}");
    }
    for nth in (0..KEYS).step_by(3) {
        here.set(&key(nth), &value(client, nth, 1));
    }
    for nth in (0..KEYS).step_by(5) {
        assert_eq!(here.ask(&format!("delete {}", key(nth))), "DELETED");
        assert_eq!(here.ask(&format!("delete {}", key(nth))), "MISSING");
    }
    for nth in 0..KEYS {
        let expected = (nth % 5 != 0).then(|| value(client, nth, usize::from(nth % 3 == 0)));
        assert_eq!(here.get(&key(nth)), expected, "{nth}");
    }
    assert_eq!(here.ask("quit"), "");
}

/// Clients at the same time, each on its keys: every answer is what was stored last, all checksums
/// hold, the table has grown by a thread that says so, and everything is registered by its name.
#[test]
fn answers_are_right_under_load() {
    let (session, server) = server(CLIENTS + 1);
    let address = server.address();
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || load(client, address));
        }
    });
    let mut last = Client::new(address);
    let left = CLIENTS * (KEYS - KEYS.div_ceil(5));
    assert_eq!(last.ask("check"), format!("CHECKED {left} 0"));
    // growth comes after the requests that made the table crowded
    let grown = |stats: &HashMap<_, _>| stats["buckets"] > 1_000 && stats["growth_count"] > 0;
    let stats = (0..10_000).map(|_| last.stats()).find(grown).expect("the table grows");
    assert_eq!(stats["items"], left as u64);
    assert_eq!(stats["check_count"], 1);
    for thread in ["kv-listen", "kv-grow", "kv-worker-0", "kv-worker-3"] {
        assert!(stats.contains_key(&format!("thread_{thread}_doing")), "{thread}: {stats:?}");
    }
    // the last client is still connected: it is cut
    drop(server);
    assert_eq!(last.line(), "");
    assert!(session.threads().list(session.control()).is_empty());
    let requests = (0..8).filter_map(|cpu| session.control().requested_khz(cpu).unwrap());
    assert_eq!(requests.count(), 0, "no core is boosted any more");
}

/// Who grows the table is boosted once for all of it; nobody else is, and nobody when nothing is to
/// do but look.
#[test]
fn growing_is_boosted() {
    let requests = Arc::new(Recorder::default());
    let store = Store::new(Arc::clone(&requests));
    let mut asked = 0;
    for nth in 0..100_u32 {
        asked += u32::from(store.set(&nth.to_le_bytes(), vec![1; 100].into()));
    }
    assert!(asked > 0);
    assert_eq!(requests.take(), [], "requests run at any clock");
    let before = store.size();
    store.grow();
    assert_eq!((before, store.size()), ((100, 16), (100, 128)));
    let taken: Vec<Request> = requests.take().into_iter().map(|(_, request)| request).collect();
    assert_eq!(taken, [Request::Boost, Request::Restore]);
    assert_eq!(store.check(), Checked { good: 100, bad: 0 });
    assert!(!store.set(b"one more", Box::new([])));
}

/// A table that is asked at every point of its growth has each item once, in the old array or the
/// new one.
#[test]
fn a_growing_table_loses_nothing() {
    let mut table = Table::new();
    for nth in 0..200_u32 {
        table.set(&nth.to_le_bytes(), vec![nth as u8].into(), u64::from(nth));
    }
    let mut steps = 0_u32;
    while table.grow(1) {
        steps += 1;
        assert_eq!(table.items().count(), 200);
        let nth = steps % 200;
        assert_eq!(table.get(&nth.to_le_bytes()).unwrap().sum, u64::from(nth));
        table.set(&nth.to_le_bytes(), vec![0].into(), u64::from(nth));
        assert!(table.remove(&nth.to_le_bytes()) && !table.remove(&nth.to_le_bytes()));
        table.set(&nth.to_le_bytes(), vec![0].into(), u64::from(nth));
    }
    assert!(steps > 100, "{steps}");
    assert_eq!((table.len(), table.buckets()), (200, 256));
    assert!(!table.is_crowded());
}

/// The wide code of this CPU sums as the plain code does; a changed, moved or missing byte changes
/// the sum.
#[test]
fn checksums_do_not_depend_on_the_cpu() {
    let (wide, plain) = (Checksum::of_this_cpu(), Checksum::plain());
    assert!(wide.level <= turbolane::MAX_LEVEL && plain.level == 0);
    for len in [0, 1, 63, 64, 65, 1_000, 4_096] {
        let value: Vec<u8> = (0..len).map(|byte: u32| (byte * 7) as u8).collect();
        assert_eq!(wide.of(&value), plain.of(&value), "{len}");
        for at in (0..value.len()).step_by(97) {
            let mut other = value.clone();
            other[at] ^= 1;
            assert_ne!(wide.of(&other), wide.of(&value), "{len}, {at}");
            other[at] ^= 1;
            other.remove(at);
            assert_ne!(wide.of(&other), wide.of(&value), "{len}, {at}");
        }
    }
}

/// What is no command is refused with a reason, and the server goes on; after a value that cannot
/// be read the connection ends.
#[test]
fn nonsense_is_refused_fails() {
    let (_session, server) = server(1);
    let mut client = Client::new(server.address());
    assert!(client.ask("frobnicate").starts_with("ERROR set, get"));
    assert_eq!(client.ask("get nobody"), "MISSING");
    for bad in ["set key many", "set key 99999999", "get ", &format!("get {}", "k".repeat(251))] {
        let mut client = std::mem::replace(&mut client, Client::new(server.address()));
        let answer = client.ask(bad);
        assert!(answer.starts_with("ERROR"), "{bad}: {answer}");
        assert_eq!(client.line(), "", "the connection has ended");
    }
    client.send(b"set key 3\nabcd\n");
    assert!(client.line().starts_with("ERROR a value ends"));
    let mut next = Client::new(server.address());
    next.set("key", b"abc");
    assert_eq!(next.get("key").unwrap(), b"abc");
}
