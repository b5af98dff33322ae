// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests that the lane's scheduler takes, on a real cpufreq core: what a thread asks for is what
//! the governor schedutil makes of the CPU that it runs on, and of no other, and no longer than it
//! runs there.
//!
//! In a guest without APERF and MPERF schedutil scales by the present clock, so that there are only
//! the slowest and the fastest P-state (`pstate::scheduler`).

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pstate::{Options, Way};
use turbolane::threads::own_tid;
use turbolane::{Request, Session, ThreadError};

use super::pstate::{becomes, load, read, unload, write};
use crate::guest::{nr_cpus, set_affinity, spin, wait_for};
use crate::lane::{Lane, plug, stat, stats};

const SLOWEST: &str = "1400000";
const FASTEST: &str = "4000000";
/// Where threads request.
const CPU: u32 = 1;
/// Somebody who may set nothing.
const NOBODY: u32 = 65534;
/// Runs for ever and asks for nothing.
const SPIN: [&str; 3] = ["sh", "-c", "while :; do :; done"];

/// The CPU's clock, as cpufreq says.
fn clock_becomes(cpu: u32, khz: &str) -> Result<()> {
    becomes(cpu, "scaling_cur_freq", khz)
}

fn open() -> Result<Session> {
    Ok(Session::open(&Options { way: Some(Way::Scheduler), ..Options::default() })?)
}

/// Everything, in the order in which it builds on each other.
pub fn follows_threads() -> Result<()> {
    load(1)?;
    for cpu in 0..nr_cpus() as u32 {
        write(cpu, "scaling_governor", "schedutil")?;
    }
    refused_without_lane_fail()?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3"])?;
    nobody_asks()?;
    let session = Arc::new(open()?);
    let choice = session.control().choice();
    ensure!(choice.way == Way::Scheduler, "{choice:?}");
    bell_is_heard(&session)?;
    let worker = Worker::start(&session, CPU)?;
    worker_and_others(&session, &worker)?;
    another_program_follows(&worker)?;
    for end in [Ending::Exec, Ending::Kill] {
        ordinary_user(end).with_context(|| format!("{end:?}"))?;
    }
    requests_survive_hotplug(&worker)?;
    let lane = lane_goes_and_comes(&worker, lane)?;
    drop((worker, session));
    other_governor_fail()?;
    unload()?;
    shared_clock()?;
    lane.stop()?;
    Ok(())
}

/// Without a lane the way is refused, with the reason.
fn refused_without_lane_fail() -> Result<()> {
    let session = open()?;
    let choice = session.control().choice();
    ensure!(choice.way == Way::None && choice.why.contains("no lane serves"), "{choice:?}");
    Ok(())
}

/// Where nobody asks, no governor is told anything.
fn nobody_asks() -> Result<()> {
    let _busy = Spinner::start()?;
    spin(Duration::from_millis(500));
    ensure!(stat(&stats()?, "target_changes")? == 0, "a governor was told something");
    Ok(())
}

/// What a thread requests for itself is in force when it goes on: the kernel's thread that switches
/// the clock goes before it. (Not if the governor has listened a moment before; a tick, which it
/// would otherwise take, is a hundred times as far away.)
fn bell_is_heard(session: &Session) -> Result<()> {
    const ROUNDS: usize = 40;
    let slowed = || -> Result<usize> {
        let (threads, control, tid) = (session.threads(), session.control(), own_tid());
        threads.register("ringer", 0)?;
        threads.migrate(control, tid, CPU)?;
        let mut at_once = 0;
        for _ in 0..ROUNDS {
            session.request(Request::Boost)?;
            spin(Duration::from_millis(20));
            let before = read(CPU, "scaling_cur_freq");
            session.request(Request::Slow)?;
            let after = read(CPU, "scaling_cur_freq");
            at_once += usize::from(before != SLOWEST && after == SLOWEST);
        }
        Ok(threads.unregister(control, tid).map(|()| at_once)?)
    };
    let at_once = std::thread::scope(|scope| scope.spawn(slowed).join());
    let at_once = at_once.expect("the thread does not panic")?;
    println!("{at_once} of {ROUNDS} requests were in force at once");
    ensure!(at_once > ROUNDS / 2, "in force at once: {at_once} of {ROUNDS} requests");
    Ok(())
}

/// What the thread requests for itself, and what is requested for it.
fn worker_and_others(session: &Session, worker: &Worker) -> Result<()> {
    for _ in 0..3 {
        worker.request(Request::Slow)?;
        clock_becomes(CPU, SLOWEST)?;
        worker.request(Request::Boost)?;
        clock_becomes(CPU, FASTEST)?;
        session.threads().request(session.control(), worker.tid, Request::Slow)?;
        clock_becomes(CPU, SLOWEST)?;
        session.threads().request(session.control(), worker.tid, Request::Restore)?;
        clock_becomes(CPU, FASTEST)?;
    }
    let off = worker.request(Request::Khz(3_000_000)).map_err(|error| error.to_string());
    ensure!(off.as_ref().is_err_and(|text| text.contains("2800000 and 3100000")), "{off:?}");
    ensure!(stat(&stats()?, "target_changes")? > 0, "not counted");
    Ok(())
}

/// Another program on the CPU has the default, and the thread its request when it is back.
fn another_program_follows(worker: &Worker) -> Result<()> {
    worker.request(Request::Slow)?;
    clock_becomes(CPU, SLOWEST)?;
    worker.order(Order::Rest)?;
    let other = Spinner::start()?;
    clock_becomes(CPU, FASTEST)?;
    drop(other);
    worker.order(Order::Work)?;
    clock_becomes(CPU, SLOWEST)?;
    worker.request(Request::Restore)?;
    clock_becomes(CPU, FASTEST)?;
    worker.order(Order::Rest)
}

/// How a program that is slow ends without taking its request back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Exec,
    Kill,
}

/// A user who may set nothing gets this way by asking for any; what he requested is over with his
/// program, whether the thread then runs another one or none.
fn ordinary_user(end: Ending) -> Result<()> {
    let mut slow = Spinner::slow()?;
    clock_becomes(CPU, SLOWEST)?;
    let after = match end {
        Ending::Exec => {
            slow.stdin.take().context("no pipe")?.write_all(b"x")?;
            slow
        }
        Ending::Kill => {
            drop(slow);
            Spinner::start()?
        }
    };
    clock_becomes(CPU, FASTEST)?;
    drop(after);
    Ok(())
}

/// A CPU goes, and the scheduler is loaded anew, behind the same page: what was requested stands.
fn requests_survive_hotplug(worker: &Worker) -> Result<()> {
    worker.order(Order::Work)?;
    worker.request(Request::Slow)?;
    clock_becomes(CPU, SLOWEST)?;
    for online in [false, true] {
        plug(2, online)?;
        clock_becomes(CPU, SLOWEST)?;
        worker.request(Request::Boost)?;
        clock_becomes(CPU, FASTEST)?;
        worker.request(Request::Slow)?;
        clock_becomes(CPU, SLOWEST)?;
    }
    Ok(())
}

/// The lane ends under a request: the kernel's scheduler is as it always was, and requests are
/// refused. The next lane takes them.
fn lane_goes_and_comes(worker: &Worker, lane: Lane) -> Result<Lane> {
    worker.request(Request::Slow)?;
    clock_becomes(CPU, SLOWEST)?;
    lane.stop()?;
    clock_becomes(CPU, FASTEST)?;
    let refused = worker.request(Request::Slow);
    let why = refused.as_ref().err().and_then(|error| error.downcast_ref());
    ensure!(matches!(why, Some(ThreadError::NotServed(_))), "without a lane: {refused:?}");
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3"])?;
    wait_for("the new lane takes no request", Duration::from_secs(20), || {
        worker.request(Request::Slow).is_ok()
    })?;
    clock_becomes(CPU, SLOWEST)?;
    worker.request(Request::Restore)?;
    clock_becomes(CPU, FASTEST)?;
    Ok(lane)
}

/// A governor that does not listen, be it of one CPU, is named.
fn other_governor_fail() -> Result<()> {
    write(2, "scaling_governor", "performance")?;
    let session = open()?;
    let choice = session.control().choice();
    ensure!(choice.way == Way::None, "{choice:?}");
    ensure!(choice.why.contains("policy2 has governor performance"), "{choice:?}");
    write(2, "scaling_governor", "schedutil")
}

/// CPUs of one policy: the fastest request wins, and who has none counts as fast.
fn shared_clock() -> Result<()> {
    load(2)?;
    for policy in [0, 2] {
        write(policy, "scaling_governor", "schedutil")?;
    }
    let session = Arc::new(open()?);
    let workers = [Worker::start(&session, 2)?, Worker::start(&session, 3)?];
    for worker in &workers {
        worker.request(Request::Slow)?;
    }
    clock_becomes(2, SLOWEST)?;
    for request in [Request::Restore, Request::Boost] {
        workers[0].request(request)?;
        clock_becomes(2, FASTEST)?;
        workers[0].request(Request::Slow)?;
        clock_becomes(2, SLOWEST)?;
    }
    drop((workers, session));
    unload()
}

/// What the worker is told.
enum Order {
    Request(Request),
    /// Sleep until told to work.
    Rest,
    Work,
}

/// A registered thread that is busy on one CPU, and does as told.
struct Worker {
    tid: u32,
    orders: Option<Sender<Order>>,
    answers: Receiver<Result<(), ThreadError>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(session: &Arc<Session>, cpu: u32) -> Result<Worker> {
        let (orders, ordered) = channel();
        let (answer, answers) = channel();
        let (ready, is_ready) = channel();
        let session = Arc::clone(session);
        let thread = std::thread::spawn(move || {
            let tid = own_tid();
            let begun = session.threads().register("worker", cpu).map(|_| ());
            let begun = begun.and_then(|()| session.threads().migrate(session.control(), tid, cpu));
            let is_fine = begun.is_ok();
            if ready.send(begun.map(|()| tid)).is_ok() && is_fine {
                work(&session, &ordered, &answer);
            }
            // Fails if it has not registered, which the test was told.
            let _ = session.threads().unregister(session.control(), tid);
        });
        let tid = is_ready.recv()??;
        Ok(Worker { tid, orders: Some(orders), answers, thread: Some(thread) })
    }

    /// It requests for itself.
    fn request(&self, request: Request) -> Result<()> {
        self.order(Order::Request(request))?;
        Ok(self.answers.recv()??)
    }

    fn order(&self, order: Order) -> Result<()> {
        let orders = self.orders.as_ref().context("the worker is ending")?;
        orders.send(order).ok().context("the worker has ended")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic there was reported there
        }
    }
}

/// The worker's life.
fn work(session: &Session, orders: &Receiver<Order>, answer: &Sender<Result<(), ThreadError>>) {
    let mut order = orders.try_recv();
    loop {
        let is_resting = matches!(order, Ok(Order::Rest));
        match order {
            Ok(Order::Request(request)) if answer.send(session.request(request)).is_err() => return,
            Err(TryRecvError::Disconnected) => return,
            Err(TryRecvError::Empty) => spin(Duration::from_millis(1)),
            Ok(_) => {}
        }
        order = match is_resting {
            true => orders.recv().map_err(|_| TryRecvError::Disconnected),
            false => orders.try_recv(),
        };
    }
}

/// A process that is busy on the CPU; killed when dropped.
struct Spinner {
    process: Child,
    stdin: Option<ChildStdin>,
}

impl Spinner {
    /// One that asks for nothing.
    fn start() -> Result<Spinner> {
        let cpu = CPU.to_string();
        let process = Command::new("taskset").args(["-c", &cpu]).args(SPIN).spawn()?;
        Ok(Spinner { process, stdin: None })
    }

    /// One of an ordinary user that asks to be slow; a byte makes it another program, which asks
    /// for nothing.
    fn slow() -> Result<Spinner> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("slow-spinner").uid(NOBODY).gid(NOBODY);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take().context("no pipe")?;
        let slow = Spinner { process, stdin };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "scheduler\n", "an ordinary user's way is {line:?}");
        Ok(slow)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // It may have ended by itself, which the test has seen then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The part of the ordinary user: says which way it got, is slow and busy, and with the first byte
/// that it reads becomes another program.
pub fn slow_spinner() -> Result<()> {
    set_affinity(0, &[CPU as usize])?;
    let session = Session::open(&Options::default())?;
    println!("{}", session.control().choice().way.name());
    session.threads().register("slow", 0)?;
    session.request(Request::Slow)?;
    let (told, is_told) = channel();
    std::thread::spawn(move || told.send(std::io::stdin().read_exact(&mut [0])));
    while matches!(is_told.try_recv(), Err(TryRecvError::Empty)) {
        spin(Duration::from_millis(1));
    }
    let error = Command::new(SPIN[0]).args(&SPIN[1..]).exec();
    bail!("{}: {error}", SPIN[0])
}
