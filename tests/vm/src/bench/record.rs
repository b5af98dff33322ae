// SPDX-License-Identifier: MIT OR Apache-2.0
//! `record.overhead_pct`: CPU time of a load that handles requests, beside the same load unrecorded, in turns;
//! and `record.lost_events` while more than 200,000 events a second are recorded.
//!
//! The load of the first is a server of four threads and as many clients on sockets: each request is a message, 60 us of
//! computation (what nginx takes for a small page, THESIS 5.1) and an answer. Its CPU time is that of all its
//! threads; the recorder's own, which runs beside it, is added.
//!
//! The second is pairs of threads that do nothing but wake each other. The recorder has to share the CPUs with
//! them, as on a machine that is full.

use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hw::cpu_time::children_ns;
use serde_json::Value;

use crate::guest::{tsc, work};
use crate::lane::beside;
use crate::measure::{Figure, publish};

/// Requests of a connection, and connections.
const REQUESTS: u64 = 2500;
const CONNECTIONS: usize = 4;
/// Pairs of repetitions: on a shared host one pair is off by ten times what is to be seen.
const REPETITIONS: usize = 61;
/// How long the pairs wake each other.
const STORM: Duration = Duration::from_secs(3);

/// One of the loads, as `vmtests record-bench NAME` runs it.
pub fn load(name: &str) -> Result<()> {
    match name {
        "requests" => requests(),
        "storm" => storm(),
        _ => anyhow::bail!("no load is called {name}"),
    }
}

fn exchange(stream: &mut UnixStream, begins: bool, mut serve: impl FnMut() -> bool) -> Result<()> {
    use std::io::{Read, Write};
    let mut message = [0u8; 64];
    if begins {
        stream.write_all(&message)?;
    }
    // The other side has gone when it is done.
    while stream.read_exact(&mut message).is_ok() && serve() {
        if stream.write_all(&message).is_err() {
            break;
        }
    }
    Ok(())
}

fn both(
    nr_pairs: usize,
    client: impl FnMut() -> bool + Clone + Send + 'static,
    server: impl FnMut() -> bool + Clone + Send + 'static,
) -> Result<()> {
    let mut threads = Vec::new();
    for _ in 0..nr_pairs {
        let (mut ours, mut theirs) = UnixStream::pair()?;
        let (client, server) = (client.clone(), server.clone());
        threads.push(std::thread::spawn(move || exchange(&mut ours, true, client)));
        threads.push(std::thread::spawn(move || exchange(&mut theirs, false, server)));
    }
    threads.into_iter().try_for_each(|thread| thread.join().expect("a worker panicked"))
}

/// Rounds of [`work`] that take 60 us here.
fn rounds_of_a_request() -> u64 {
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < Duration::from_millis(60) {
        work(1000);
        rounds += 1000;
    }
    rounds / 1000
}

fn requests() -> Result<()> {
    let rounds: u64 = std::env::var("ROUNDS")?.parse()?;
    let mut left = REQUESTS;
    let client = move || {
        left -= 1;
        left > 0
    };
    both(CONNECTIONS, client, move || {
        work(rounds);
        true
    })
}

fn storm() -> Result<()> {
    let end = Instant::now() + STORM;
    both(2, move || Instant::now() < end, || true)
}

/// CPU time of a process that runs, ns.
fn process_ns(process: &Child) -> Result<u64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: each writes one value to the local.
    let done = unsafe {
        libc::clock_getcpuclockid(process.id() as i32, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    ensure!(done, "the CPU time of {} is not known", process.id());
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

fn spawn(load: &str, rounds: u64) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["record-bench", load]).env("ROUNDS", rounds.to_string());
    command.stdin(Stdio::null()).spawn().context("the load cannot be started")
}

/// Starts a recording of the machine and waits until it records.
fn record(file: &str) -> Result<Child> {
    _ = std::fs::remove_file(file);
    let mut command = Command::new(beside()?);
    command.args(["record", "--system", "-q", "-o", file]).stdin(Stdio::null());
    let recorder = command.spawn().context("turbolane cannot be started")?;
    crate::guest::wait_for("no recording appears", Duration::from_secs(60), || {
        std::fs::metadata(file).is_ok_and(|file| file.len() > 0)
    })?;
    Ok(recorder)
}

fn stop(mut recorder: Child) -> Result<()> {
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(recorder.id() as i32, libc::SIGINT) };
    ensure!(recorder.wait()?.success(), "turbolane record failed");
    Ok(())
}

fn summary(file: &str) -> Result<Value> {
    let output = Command::new(beside()?).args(["trace", file, "--json"]).output()?;
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// CPU time of the load, and of the recorder while it ran: not what loading the programs took.
fn cost_ns(rounds: u64, file: Option<&str>) -> Result<(u64, u64)> {
    let recorder = file.map(record).transpose()?;
    let started_ns = recorder.as_ref().map_or(Ok(0), process_ns)?;
    let before_ns = children_ns();
    ensure!(spawn("requests", rounds)?.wait()?.success(), "the load failed");
    let load_ns = children_ns() - before_ns;
    let ended_ns = recorder.as_ref().map_or(Ok(0), process_ns)?;
    recorder.map(stop).transpose()?;
    Ok((load_ns, ended_ns - started_ns))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("turbolane-record-{}", tsc()));
    std::fs::create_dir(&dir)?;
    let result = measure(&format!("{}/bench.trace", dir.display()));
    std::fs::remove_dir_all(&dir)?;
    result
}

fn measure(file: &str) -> Result<()> {
    let rounds = rounds_of_a_request();
    cost_ns(rounds, None)?;
    let (mut overheads, mut in_load) = (Vec::new(), Vec::new());
    for pair in 0..REPETITIONS {
        // In turns, so that a host that slows down favours neither.
        let mut costs = [(0, 0); 2];
        for recorded in [pair % 2, 1 - pair % 2] {
            costs[recorded] = cost_ns(rounds, (recorded == 1).then_some(file))?;
        }
        let [(base_ns, _), (load_ns, recorder_ns)] = costs;
        let pct = |ns: u64| 100.0 * (ns as f64 / base_ns as f64 - 1.0);
        overheads.push(pct(load_ns + recorder_ns));
        in_load.push(pct(load_ns));
    }
    let recorder = record(file)?;
    ensure!(spawn("storm", rounds)?.wait()?.success(), "the load failed");
    stop(recorder)?;
    let summary = summary(file)?;
    let count = |key: &str| summary[key].as_u64().with_context(|| format!("no {key}"));
    let (events, lost) = (count("events")?, count("lost_events")?);
    let per_s = (events + lost) as f64 / STORM.as_secs_f64();
    publish(
        "record",
        &[
            Figure::of("record.overhead_pct", "%", "lower", &overheads)?,
            Figure::of("record.overhead_in_load_pct", "%", "lower", &in_load)?,
            Figure::count("record.lost_events", lost, events + lost),
            Figure::of("record.events_per_s", "events/s", "higher", &[per_s])?,
        ],
    )
}
