// SPDX-License-Identifier: MIT OR Apache-2.0
//! A key-value server that uses all of the library: registered threads, wide sections around its
//! checksums, a boosted lock around the growth of its table, measured regions.
//!
//! ```text
//! cargo run --release -p turbolane --example kvserver -- 127.0.0.1:11311 [MODEL]
//! printf 'set greeting 5\nhello\nget greeting\nstats\nquit\n' | nc 127.0.0.1 11311
//! ```
//!
//! Under `turbolane run` checksums of values run on wide CPUs. Where P-states may be set (root,
//! cpufreq) the core of the growing thread is boosted; MODEL (fx-8120) takes a modelled machine
//! instead. It ends at the end of its input (Ctrl-D), and then everything is as it was.

mod checksum;
mod protocol;
mod server;
mod store;
mod table;

use std::error::Error;
use std::io::{self, Read};
use std::sync::Arc;

use pstate::{Options, Way};
use turbolane::Session;

use server::Server;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:11311".into());
    let options = match args.next() {
        Some(model) => Options { root: model.into(), way: Some(Way::Simulated) },
        None => Options::default(),
    };
    let session = Arc::new(Session::open(&options)?);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let server = Server::start(Arc::clone(&session), &address, workers)?;
    println!("listening at {}", server.address());
    println!("P-states by {}", session.control().choice().why);
    io::stdin().read_to_end(&mut Vec::new())?;
    drop(server);
    Ok(())
}
