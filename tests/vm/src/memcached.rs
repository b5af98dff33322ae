// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's memcached and clients that fill it and read from it, by its text protocol
//! (doc/protocol.txt of memcached): requests in batches, so that the server is what takes time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{monotonic_ns, set_affinity, wait_for};
use crate::point::Running;

const PORT: u16 = 11_211;
/// Requests that a client sends at once.
const BATCH: usize = 32;
/// The smallest table that four threads may begin with, 2^13 buckets: it doubles from 12,288 items
/// on.
const HASH_POWER: u32 = 13;
const VALUE: [u8; 32] = [b'v'; 32];

/// A server on the first CPUs, one for each of its threads, with clients on the next ones.
pub struct Memcached {
    _server: Running,
    threads: usize,
}

impl Memcached {
    /// Starts it with these variables in its environment.
    pub fn start(threads: usize, environment: &[(&str, &str)]) -> Result<Self> {
        let mut server = Command::new("memcached");
        server.args(["-u", "root", "-l", "127.0.0.1", "-p", &PORT.to_string(), "-U", "0"]);
        server.args(["-t", &threads.to_string(), "-o", &format!("hashpower={HASH_POWER}")]);
        server.envs(environment.iter().copied()).stdin(Stdio::null());
        let cpus: Vec<usize> = (0..threads).collect();
        // SAFETY: one system call between fork and exec, on memory that this process had before.
        unsafe { server.pre_exec(move || set_affinity(0, &cpus).map_err(std::io::Error::other)) };
        let server = Running::spawn(&mut server)?;
        wait_for("memcached does not answer", Duration::from_secs(20), || connect().is_ok())?;
        Ok(Memcached { _server: server, threads })
    }

    /// Stores so many items, all clients together; items per second.
    pub fn fill(&self, items: usize) -> Result<f64> {
        let request =
            |key: usize| [format!("set {key:08} 0 0 32\r\n").as_bytes(), &VALUE, b"\r\n"].concat();
        self.requests_per_s(items, &request, b"STORED\r\n".len())
    }

    /// Reads so many items that were stored; items per second.
    pub fn read(&self, items: usize) -> Result<f64> {
        let request = |key: usize| format!("get {key:08}\r\n").into_bytes();
        let reply = [b"VALUE 00000000 0 32\r\n".as_slice(), &VALUE, b"\r\nEND\r\n"].concat();
        self.requests_per_s(items, &request, reply.len())
    }

    fn requests_per_s(
        &self,
        items: usize,
        request: &(dyn Fn(usize) -> Vec<u8> + Sync),
        reply_bytes: usize,
    ) -> Result<f64> {
        let each = items / self.threads;
        let start_ns = monotonic_ns();
        std::thread::scope(|scope| -> Result<()> {
            let clients: Vec<_> = (0..self.threads)
                .map(|client| {
                    scope.spawn(move || -> Result<()> {
                        set_affinity(0, &[self.threads + client])?;
                        let keys: Vec<usize> = (client * each..(client + 1) * each).collect();
                        let mut server = connect()?;
                        for keys in keys.chunks(BATCH) {
                            let batch: Vec<u8> =
                                keys.iter().flat_map(|&key| request(key)).collect();
                            server.write_all(&batch)?;
                            let mut reply = vec![0; reply_bytes * keys.len()];
                            server.read_exact(&mut reply)?;
                            ensure!(reply.ends_with(b"\r\n"), "memcached says something else");
                        }
                        Ok(())
                    })
                })
                .collect();
            clients
                .into_iter()
                .try_for_each(|client| client.join().ok().context("a client has panicked")?)
        })?;
        Ok((each * self.threads) as f64 / ((monotonic_ns() - start_ns) as f64 / 1e9))
    }
}

fn connect() -> Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", PORT))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}
