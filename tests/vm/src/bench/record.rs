// SPDX-License-Identifier: MIT OR Apache-2.0
//! `record.overhead_pct`: CPU time of a load that handles requests, beside the same load
//! unrecorded, in turns; and `record.lost_events` while more than 200,000 events a second are
//! recorded.
//!
//! The load of the first is a server of four threads and as many clients on sockets: each request
//! is a message, 60 us of computation (what nginx takes for a small page, THESIS 5.1) and an
//! answer. It handles batches of them; its CPU time is that of all its threads, and the median of
//! some batches counts: a shared host disturbs some of them by ten times what is to be seen. Those
//! that are recorded are compared with those before and after, so that a host that slows down
//! favours neither. The recorder's own CPU time is added, all of it.
//!
//! Client and server of a connection are on one CPU: where the kernel puts them otherwise changes
//! for seconds, and a request's CPU time with it, by more than is to be seen.
//!
//! Between batches the load rests for a moment. Without, the host's kernel (seen: a 6.18 for
//! virtual machines) lets its own threads wait for a minute, and no BPF program can be loaded.
//!
//! The second is pairs of threads that do nothing but wake each other. The recorder has to share
//! the CPUs with them, as on a machine that is full.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{nr_cpus, set_affinity, tsc, work};
use crate::lane::beside;
use crate::measure::{Figure, median, publish};

/// Connections, and requests of each in a batch.
const CONNECTIONS: usize = 4;
const REQUESTS: usize = 250;
/// Recordings, and batches of each and between two.
const REPETITIONS: usize = 61;
const BATCHES: usize = 20;
const BATCHES_BETWEEN: usize = 12;
const REST: Duration = Duration::from_millis(2);
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

const MESSAGE: [u8; 64] = [0; 64];

/// Answers until the other side has gone.
fn serve(mut stream: UnixStream, handle: impl Fn()) {
    let mut message = MESSAGE;
    while stream.read_exact(&mut message).is_ok() {
        handle();
        if stream.write_all(&message).is_err() {
            break;
        }
    }
}

/// Asks, and waits for the answer.
fn ask(stream: &mut UnixStream) -> Result<()> {
    stream.write_all(&MESSAGE)?;
    Ok(stream.read_exact(&mut MESSAGE.clone())?)
}

/// Starts pairs of threads, each on a CPU of its own as far as they go. The second answers what the
/// first asks.
fn start(
    nr_pairs: usize,
    client: impl Fn(UnixStream) -> Result<()> + Clone + Send + 'static,
    handle: impl Fn() + Clone + Send + 'static,
) -> Result<Vec<JoinHandle<Result<()>>>> {
    let mut clients = Vec::new();
    for pair in 0..nr_pairs {
        let (ours, theirs) = UnixStream::pair()?;
        let (client, handle) = (client.clone(), handle.clone());
        let bind = move || set_affinity(0, &[pair % nr_cpus()]);
        clients.push(thread::spawn(move || bind().and_then(|()| client(ours))));
        thread::spawn(move || bind().map(|()| serve(theirs, handle)));
    }
    Ok(clients)
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

/// A batch for each line of the input; it says so when one is done.
fn requests() -> Result<()> {
    let rounds: u64 = std::env::var("ROUNDS")?.parse()?;
    let barrier = Arc::new(Barrier::new(CONNECTIONS + 1));
    let turn = Arc::clone(&barrier);
    let client = move |mut stream| loop {
        turn.wait();
        for _ in 0..REQUESTS {
            ask(&mut stream)?;
        }
        turn.wait();
    };
    start(CONNECTIONS, client, move || _ = work(rounds))?;
    for line in std::io::stdin().lines() {
        line?;
        barrier.wait();
        barrier.wait();
        println!("done");
    }
    Ok(())
}

fn storm() -> Result<()> {
    let end = Instant::now() + STORM;
    let client = move |mut stream| {
        while Instant::now() < end {
            ask(&mut stream)?;
        }
        Ok(())
    };
    let clients = start(2, client, || ())?;
    clients.into_iter().try_for_each(|client| client.join().expect("a client panicked"))
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

fn load_command(load: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["record-bench", load]);
    Ok(command)
}

/// The load that handles requests.
struct Requests {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Requests {
    fn start() -> Result<Self> {
        let mut command = load_command("requests")?;
        command.env("ROUNDS", rounds_of_a_request().to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().context("the load cannot be started")?;
        let input = process.stdin.take().expect("piped");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let mut load = Requests { process, input, output };
        load.batches(1)?;
        Ok(load)
    }

    /// CPU time of each of so many batches, ns.
    fn batches(&mut self, nr_batches: usize) -> Result<Vec<f64>> {
        (0..nr_batches).map(|_| self.batch()).collect()
    }

    fn batch(&mut self) -> Result<f64> {
        sleep(REST);
        let before_ns = process_ns(&self.process)?;
        self.input.write_all(b"\n")?;
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "the load has ended");
        Ok((process_ns(&self.process)? - before_ns) as f64)
    }

    fn stop(mut self) -> Result<()> {
        drop(self.input);
        ensure!(self.process.wait()?.success(), "the load failed");
        Ok(())
    }
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

/// What batches cost while they are recorded: each, and the recorder's share of one, ns.
fn recorded(load: &mut Requests, file: &str) -> Result<(Vec<f64>, f64)> {
    let recorder = record(file)?;
    // What it does only once, at its begin, is behind this.
    load.batches(2)?;
    let before_ns = process_ns(&recorder)?;
    let costs_ns = load.batches(BATCHES)?;
    let recorder_ns = process_ns(&recorder)? - before_ns;
    stop(recorder)?;
    Ok((costs_ns, recorder_ns as f64 / BATCHES as f64))
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
    let mut load = Requests::start()?;
    let (mut overheads, mut in_load) = (Vec::new(), Vec::new());
    let mut before_ns = load.batches(BATCHES_BETWEEN)?;
    for _ in 0..REPETITIONS {
        let (costs_ns, recorder_ns) = recorded(&mut load, file)?;
        let behind_ns = load.batches(BATCHES_BETWEEN)?;
        let base_ns = median(&[before_ns, behind_ns.clone()].concat());
        let pct = |ns: f64| 100.0 * (ns / base_ns - 1.0);
        in_load.push(pct(median(&costs_ns)));
        overheads.push(pct(median(&costs_ns) + recorder_ns));
        before_ns = behind_ns;
    }
    load.stop()?;
    let recorder = record(file)?;
    ensure!(load_command("storm")?.status()?.success(), "the load failed");
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
