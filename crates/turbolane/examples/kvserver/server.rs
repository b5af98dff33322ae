// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's threads: one that listens, some that answer, one that grows the table.
//!
//! All are registered with a name and a role and say what they are doing, so that `stats` (and any
//! thread, by `Session::threads`) can look. What the table's growth and the checks take is measured
//! as regions.

use std::io::{self, BufReader, BufWriter, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use turbolane::threads::Activity;
use turbolane::{Region, Session, ThreadError};

use crate::protocol::{self, Command, Refusal};
use crate::store::Store;

/// Roles of threads.
pub const LISTENS: u32 = 1;
pub const ANSWERS: u32 = 2;
pub const GROWS: u32 = 3;

/// What a thread is doing.
const WAITS: u32 = 1;
const WORKS: u32 = 2;

/// What all threads share.
struct Shared {
    session: Arc<Session>,
    /// Its lock boosts through the session.
    store: Store<Arc<Session>>,
    growth: Region,
    checks: Region,
    stops: AtomicBool,
    /// The connection that each worker is at.
    open: Vec<Mutex<Option<TcpStream>>>,
}

/// A running server; it stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<Result<(), ThreadError>>>,
}

impl Server {
    /// Listens at `address` and answers so many connections at a time.
    pub fn start(session: Arc<Session>, address: &str, workers: usize) -> io::Result<Server> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let region = |name| session.monitor().region(name).map_err(io::Error::other);
        let shared = Arc::new(Shared {
            store: Store::new(Arc::clone(&session)),
            growth: region("growth")?,
            checks: region("check")?,
            stops: AtomicBool::new(false),
            open: (0..workers).map(|_| Mutex::default()).collect(),
            session,
        });
        let (crowded, wakes) = channel();
        let (hand_over, connections) = channel();
        let connections = Arc::new(Mutex::new(connections));
        let mut server = Server { shared, address, threads: Vec::new() };
        server.spawn("kv-grow", GROWS, move |shared, doing| shared.grow(&wakes, doing))?;
        for worker in 0..workers {
            let (connections, crowded) = (Arc::clone(&connections), crowded.clone());
            let answer = move |shared: &Shared, doing: &Activity| {
                shared.answer_all(worker, &connections, &crowded, doing);
            };
            server.spawn(&format!("kv-worker-{worker}"), ANSWERS, answer)?;
        }
        let listen = move |shared: &Shared, _: &Activity| shared.listen(&listener, &hand_over);
        server.spawn("kv-listen", LISTENS, listen)?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn spawn(
        &mut self,
        name: &str,
        role: u32,
        body: impl FnOnce(&Shared, &Activity) + Send + 'static,
    ) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let body = move |_: &Session, doing: &Activity| body(&shared, doing);
        self.threads.push(self.shared.session.spawn(name, role, body)?);
        Ok(())
    }
}

impl Drop for Server {
    /// The listener is woken by a connection, and open connections are cut. When the listener has
    /// ended nobody hands connections over, and when the workers have ended nobody asks for growth.
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        for connection in &self.shared.open {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            connection.iter().for_each(|open| drop(open.shutdown(Shutdown::Both)));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn listen(&self, listener: &TcpListener, hand_over: &Sender<TcpStream>) {
        for connection in listener.incoming() {
            if self.stops.load(Ordering::SeqCst) {
                return;
            }
            // One that failed already is its client's.
            if let Ok(connection) = connection
                && hand_over.send(connection).is_err()
            {
                return;
            }
        }
    }

    fn grow(&self, wakes: &Receiver<()>, doing: &Activity) {
        doing.set(WAITS);
        while wakes.recv().is_ok() {
            // All who have asked so far are served at once.
            wakes.try_iter().for_each(drop);
            doing.set(WORKS);
            self.session.monitor().begin(self.growth);
            self.store.grow();
            // an end without a begin is the only failure
            let _ = self.session.monitor().end(self.growth);
            doing.set(WAITS);
        }
    }

    fn answer_all(
        &self,
        worker: usize,
        connections: &Mutex<Receiver<TcpStream>>,
        crowded: &Sender<()>,
        doing: &Activity,
    ) {
        loop {
            doing.set(WAITS);
            let next = connections.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(connection) = next else { return };
            doing.set(WORKS);
            let open = |now: Option<TcpStream>| {
                *self.open[worker].lock().unwrap_or_else(PoisonError::into_inner) = now;
            };
            open(connection.try_clone().ok());
            // After it is known to who stops us: one of the two sees the other.
            if !self.stops.load(Ordering::SeqCst) {
                // A broken connection is its client's.
                let _ = self.answer(&connection, crowded);
            }
            open(None);
        }
    }

    /// One client, until it goes.
    fn answer(&self, connection: &TcpStream, crowded: &Sender<()>) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut from = BufReader::new(connection);
        let mut to = BufWriter::new(connection);
        loop {
            match protocol::read(&mut from)? {
                Ok(Command::Quit) => return to.flush(),
                Ok(command) => self.execute(command, crowded, &mut to)?,
                Err(Refusal::Line(why)) => writeln!(to, "ERROR {why}")?,
                Err(Refusal::Stream(why)) => {
                    writeln!(to, "ERROR {why}")?;
                    return to.flush();
                }
            }
            // Answers to what has come already go together.
            if from.buffer().is_empty() {
                to.flush()?;
            }
        }
    }

    fn execute(
        &self,
        command: Command,
        crowded: &Sender<()>,
        to: &mut impl Write,
    ) -> io::Result<()> {
        match command {
            Command::Set { key, value } => {
                if self.store.set(&key, value) {
                    // Fails only when the server ends.
                    let _ = crowded.send(());
                }
                writeln!(to, "STORED")
            }
            Command::Get { key } => match self.store.get(&key) {
                Some(value) => {
                    writeln!(to, "VALUE {}", value.len())?;
                    to.write_all(&value)?;
                    writeln!(to)
                }
                None => writeln!(to, "MISSING"),
            },
            Command::Delete { key } => {
                writeln!(to, "{}", if self.store.delete(&key) { "DELETED" } else { "MISSING" })
            }
            Command::Check => {
                self.session.monitor().begin(self.checks);
                let checked = self.store.check();
                let _ = self.session.monitor().end(self.checks);
                writeln!(to, "CHECKED {} {}", checked.good, checked.bad)
            }
            Command::Stats => self.stats(to),
            Command::Quit => Ok(()),
        }
    }

    fn stats(&self, to: &mut impl Write) -> io::Result<()> {
        let (items, buckets) = self.store.size();
        writeln!(to, "items {items}\nbuckets {buckets}")?;
        for (name, region) in [("growth", self.growth), ("check", self.checks)] {
            let stats = self.session.monitor().stats(region);
            writeln!(to, "{name}_count {}\n{name}_sum_ns {}", stats.count, stats.sum_ns)?;
        }
        for thread in self.session.threads().list(self.session.control()) {
            writeln!(to, "thread_{}_doing {}", thread.name, thread.doing)?;
        }
        writeln!(to, "END")
    }
}
