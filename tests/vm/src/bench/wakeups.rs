// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a lane costs tasks that wait for wakeups, on loads without any wide code.
//!
//! | figure | load |
//! |---|---|
//! | `lane.wakeup_p50_us`, `_p99_us` | as schbench: every 2 ms one process wakes four that work for 0.5 ms; four others compute all the time |
//! | `lane.hackbench_s` | `perf bench sched messaging`: 8 groups of 20 processes on sockets |
//! | `lane.remote_wakeups_pct` | two sockets of three CPUs, two tasks on each that sleep and work by turns: wakeups that end on the other socket's cache although the own one has an idle CPU |
//!
//! The kernel's scheduler and scx_layered are measured in the same guest. Rounds alternate, because
//! the emulator's own speed changes with what else the host does.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::layered;
use crate::guest::{Child, cpu, now_ns, nr_cpus, set_affinity, wait_for, work};
use crate::lane::Lane;
use crate::measure::{Figure, median, publish};

const ROUNDS: usize = 3;
const WORKERS: usize = 4;
const HOGS: usize = 4;
const PERIOD: Duration = Duration::from_millis(2);
/// A round lasts until it has this many wakeups, which takes a few seconds, on a busy host more.
const ENOUGH: u64 = 4000;
const ROUND_LIMIT: Duration = Duration::from_secs(120);
const SAMPLES: usize = 1 << 14;

const LANE: [&str; 4] = ["--mode", "scx", "--wide-cpus", "1"];

/// Memory that the processes of a load share.
#[repr(C)]
struct Notes {
    is_over: AtomicBool,
    taken: AtomicU64,
    waited_ns: [AtomicU64; SAMPLES],
    wakeups: AtomicU64,
    remote: AtomicU64,
}

impl Notes {
    /// Never freed: a few hundred KiB per round.
    fn new() -> Result<&'static Notes> {
        // SAFETY: an anonymous mapping is zeroed, and all-zero is a valid value of the type.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Notes>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            ensure!(memory != libc::MAP_FAILED, "no memory");
            Ok(&*memory.cast())
        }
    }

    fn add(&self, waited_ns: u64) {
        let at = self.taken.fetch_add(1, Relaxed) as usize;
        if let Some(place) = self.waited_ns.get(at) {
            place.store(waited_ns, Relaxed);
        }
    }
}

/// What one scheduler reached, one value per round.
#[derive(Default)]
struct Reached {
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    hackbench_s: Vec<f64>,
}

impl Reached {
    fn add_round(&mut self) -> Result<()> {
        let mut waited_us = wakeups()?;
        waited_us.sort_by(f64::total_cmp);
        let at = |share: f64| waited_us[((waited_us.len() - 1) as f64 * share) as usize];
        self.p50_us.push(at(0.5));
        self.p99_us.push(at(0.99));
        self.hackbench_s.push(hackbench()?);
        Ok(())
    }

    fn figures(&self) -> [(&'static str, &'static str, &[f64]); 3] {
        [
            ("lane.wakeup_p50_us", "us", &self.p50_us),
            ("lane.wakeup_p99_us", "us", &self.p99_us),
            ("lane.hackbench_s", "s", &self.hackbench_s),
        ]
    }
}

/// From a wakeup until the woken process runs, us.
fn wakeups() -> Result<Vec<f64>> {
    let notes = Notes::new()?;
    let mut children = Vec::new();
    for _ in 0..HOGS {
        children.push(Child::fork(|| {
            while !notes.is_over.load(Relaxed) {
                work(2000);
            }
        })?);
    }
    let mut bells = Vec::new();
    for _ in 0..WORKERS {
        let mut pipe = [0; 2];
        // SAFETY: room for two descriptors.
        ensure!(unsafe { libc::pipe(pipe.as_mut_ptr()) } == 0, "there is no pipe left");
        children.push(Child::fork(|| answer(pipe[0], notes))?);
        bells.push(pipe);
    }
    children.push(Child::fork(|| ring(&bells, notes))?);
    wait_for("too few wakeups", ROUND_LIMIT, || notes.taken.load(Relaxed) >= ENOUGH)?;
    notes.is_over.store(true, Relaxed);
    for child in &mut children {
        ensure!(child.wait()? == 0, "a process of the load failed");
    }
    for fd in bells.into_iter().flatten() {
        // SAFETY: our own descriptors.
        unsafe { libc::close(fd) };
    }
    let taken = (notes.taken.load(Relaxed) as usize).min(SAMPLES);
    Ok(notes.waited_ns[..taken].iter().map(|ns| ns.load(Relaxed) as f64 / 1e3).collect())
}

/// Says to all workers when it is, now and then.
fn ring(bells: &[[i32; 2]], notes: &Notes) {
    while !notes.is_over.load(Relaxed) {
        std::thread::sleep(PERIOD);
        for [_, bell] in bells {
            let now_ns = now_ns().to_ne_bytes();
            // SAFETY: reads the local bytes.
            unsafe { libc::write(*bell, now_ns.as_ptr().cast(), now_ns.len()) };
        }
    }
    for [_, bell] in bells {
        // SAFETY: as above; it ends a worker.
        unsafe { libc::write(*bell, [0u8; 8].as_ptr().cast(), 8) };
    }
}

fn answer(bell: i32, notes: &Notes) {
    loop {
        let mut bytes = [0u8; 8];
        // SAFETY: as many bytes as there is room for.
        let read = unsafe { libc::read(bell, bytes.as_mut_ptr().cast(), bytes.len()) };
        let rung_ns = u64::from_ne_bytes(bytes);
        if read != 8 || rung_ns == 0 {
            return;
        }
        notes.add(now_ns().saturating_sub(rung_ns));
        let until_ns = now_ns() + 500_000;
        while now_ns() < until_ns {
            work(500);
        }
    }
}

/// Seconds that hackbench's load takes.
fn hackbench() -> Result<f64> {
    let args = ["bench", "-f", "simple", "sched", "messaging", "-g", "8", "-l", "20"];
    let done = Command::new("perf").args(args).output().context("no perf in the guest")?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(done.status.success(), "perf bench: {text}");
    text.trim().parse().with_context(|| format!("perf bench says {text:?}"))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let (mut kernel, mut ours, mut layered) =
        (Reached::default(), Reached::default(), Reached::default());
    for _ in 0..ROUNDS {
        kernel.add_round()?;
        let lane = Lane::start(&LANE)?;
        ours.add_round()?;
        lane.stop()?;
        layered::under(|| layered.add_round())?;
    }
    let mut figures = Vec::new();
    for ((name, unit, values), ((_, _, base), (_, _, peer))) in
        ours.figures().into_iter().zip(kernel.figures().into_iter().zip(layered.figures()))
    {
        let figure = Figure::of(name, unit, "lower", values)?;
        if !peer.is_empty() {
            let beside = format!("{name}.beside_layered");
            figures.push(
                Figure { name: beside, ..figure.clone() }.against("scx_layered", median(peer)),
            );
        }
        figures.push(figure.against("kernel scheduler", median(base)));
    }
    publish("wakeups", &figures)
}

/// Share of wakeups that end on another cache, %: two tasks on three CPUs always leave one of them
/// idle.
fn remote_pct() -> Result<f64> {
    let notes = Notes::new()?;
    let cache = |cpu: usize| cpu / 3;
    let mut children = Vec::new();
    for home in [0, 1, 3, 4] {
        let child = Child::fork(|| {
            let mut last = cpu();
            while !notes.is_over.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                let now = cpu();
                notes.wakeups.fetch_add(1, Relaxed);
                notes.remote.fetch_add(u64::from(cache(now) != cache(last)), Relaxed);
                let until_ns = now_ns() + 300_000;
                while now_ns() < until_ns {
                    work(500);
                }
                last = cpu();
            }
        })?;
        set_affinity(child.pid, &[home])?;
        children.push(child);
    }
    std::thread::sleep(Duration::from_millis(200));
    for child in &children {
        set_affinity(child.pid, &(0..nr_cpus()).collect::<Vec<_>>())?;
    }
    wait_for("too few wakeups", ROUND_LIMIT, || notes.wakeups.load(Relaxed) >= ENOUGH)?;
    notes.is_over.store(true, Relaxed);
    for child in &mut children {
        ensure!(child.wait()? == 0, "a process of the load failed");
    }
    let wakeups = notes.wakeups.load(Relaxed);
    Ok(100.0 * notes.remote.load(Relaxed) as f64 / wakeups as f64)
}

/// Measure and publish where wakeups go on two sockets.
pub fn remote() -> Result<()> {
    let kernel = (0..ROUNDS).map(|_| remote_pct()).collect::<Result<Vec<_>>>()?;
    let lane = Lane::start(&LANE)?;
    let ours = (0..ROUNDS).map(|_| remote_pct()).collect::<Result<Vec<_>>>()?;
    lane.stop()?;
    let figure = Figure::of("lane.remote_wakeups_pct", "%", "lower", &ours)?;
    publish("wakeups-remote", &[figure.against("kernel scheduler", median(&kernel))])
}
