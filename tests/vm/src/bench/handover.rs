// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `probe`: what it costs a thread to have a section run on another CPU, there and back, by
//! each method that user space has. On this machine, no guest; skipped with one CPU.
//!
//! - `affinity.handover_ns`: an empty section handed to a helper (`locks::Server`, what
//!   `turbolane::delegate` uses) on another CPU, while both threads look.
//! - `affinity.handover_asleep_ns`: the same between threads that sleep: to a helper that had no
//!   request for a while, and back from a section in which its caller has fallen asleep, without
//!   that section's own time. By this `turbolane::delegate` computes its break-even time.
//! - `affinity.futex_round_trip_ns`: two threads on two CPUs that wake each other by futexes and
//!   sleep at once.
//! - `affinity.migration_round_trip_ns`: the thread moves itself by sched_setaffinity, and back:
//!   what a section costs in affinity mode without delegation.
//!
//! A repetition takes a batch of each in turn, so that what else runs meets all alike, and counts
//! its median; value, least and greatest are over the repetitions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use locks::Server;
use locks::sys::Affinity;

use crate::measure::{Figure, median, publish};

const REPETITIONS: usize = 15;
/// Round trips in a batch.
const BATCH: usize = 500;
/// Fewer of those that are preceded by a sleep.
const BATCH_ASLEEP: usize = 50;
/// Longer than a client looks for its answer (3 to 6 us).
const SECTION: Duration = Duration::from_micros(20);
/// Longer than a helper looks for its next client (`locks`: some 60 to 200 us).
const UNTIL_ASLEEP: Duration = Duration::from_millis(1);

/// Measure and publish.
pub fn run() -> Result<()> {
    let allowed = Affinity::current().context("cannot read the affinity")?;
    let mut cpus = (0..cpumodel::MAX_CPUS as u32).filter(|cpu| allowed.has(*cpu));
    let (Some(here), Some(there)) = (cpus.next(), cpus.next()) else {
        println!("skipped: a hand-over takes two CPUs");
        return publish("handover", &[]);
    };
    let one = |cpu| Affinity::one(cpu).context("it is allowed");
    let (home, away) = (one(here)?, one(there)?);
    home.apply().context("cannot bind to a CPU")?;
    let server = Server::new(Some(there)).context("cannot start a helper")?;
    let partner = Partner::start(away)?;
    let mut rows = [const { Vec::new() }; 4];
    for _ in 0..REPETITIONS {
        // the first wakes it
        server.run(|| ());
        rows[0].push(batch(BATCH, || (), || without(|| server.run(|| ()))));
        rows[1].push(batch(BATCH_ASLEEP, || std::thread::sleep(UNTIL_ASLEEP), || server.run(spin)));
        rows[2].push(batch(BATCH, || (), || without(|| partner.round_trip())));
        let move_there = || away.apply().and_then(|()| home.apply());
        rows[3].push(batch(BATCH, || (), || without(|| _ = move_there())));
        move_there().context("cannot move")?;
    }
    drop(partner);
    allowed.apply().context("cannot undo the binding")?;
    let futex = median_of(&rows[2]);
    let names = [
        "affinity.handover_ns",
        "affinity.handover_asleep_ns",
        "affinity.futex_round_trip_ns",
        "affinity.migration_round_trip_ns",
    ];
    let figures = names.iter().zip(&rows).map(|(name, values)| {
        let figure = Figure::of(name, "ns", "lower", values)?;
        Ok(if name.starts_with("affinity.handover") {
            figure.against("futex", futex)
        } else {
            figure
        })
    });
    publish("handover", &figures.collect::<Result<Vec<_>>>()?)
}

fn median_of(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    median(&sorted)
}

/// A section that takes `SECTION`; how long it took.
fn spin() -> Duration {
    let begun = Instant::now();
    while begun.elapsed() < SECTION {
        std::hint::spin_loop();
    }
    begun.elapsed()
}

/// A round trip of which nothing is a section.
fn without(round_trip: impl Fn()) -> Duration {
    round_trip();
    Duration::ZERO
}

/// The median time of a round trip without its section, ns, with something before each that does
/// not count.
fn batch(n: usize, before: impl Fn(), round_trip: impl Fn() -> Duration) -> f64 {
    let once = |_| {
        before();
        let begun = Instant::now();
        let section = round_trip();
        begun.elapsed().saturating_sub(section).as_nanos() as f64
    };
    median_of(&(0..n).map(once).collect::<Vec<f64>>())
}

/// A word on which threads sleep.
#[derive(Default)]
struct Word(AtomicU32);

impl Word {
    fn futex(&self, operation: i32, value: u32) {
        let (word, none) = (self.0.as_ptr(), std::ptr::null::<libc::timespec>());
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word outlives the call; without a timeout.
        unsafe { libc::syscall(libc::SYS_futex, word, operation, value, none) };
    }

    fn set(&self, value: u32) {
        self.0.store(value, Ordering::Release);
        self.futex(libc::FUTEX_WAKE, 1);
    }

    fn wait_while(&self, value: u32) {
        while self.0.load(Ordering::Acquire) == value {
            self.futex(libc::FUTEX_WAIT, value);
        }
    }
}

/// A thread that answers: `asked` and `answered` have the same number while nothing is asked.
struct Partner {
    words: Arc<(Word, Word, AtomicBool)>,
    thread: Option<JoinHandle<()>>,
}

impl Partner {
    fn start(place: Affinity) -> Result<Partner> {
        let words = Arc::new((Word::default(), Word::default(), AtomicBool::new(false)));
        let theirs = words.clone();
        let (said, heard) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (asked, answered, ending) = &*theirs;
            // whoever hears gives up if it failed
            let _ = said.send(place.apply());
            let mut seen = 0;
            while !ending.load(Ordering::Acquire) {
                asked.wait_while(seen);
                seen = asked.0.load(Ordering::Acquire);
                answered.set(seen);
            }
        });
        heard.recv().map_err(|_| anyhow!("the partner ended"))?.context("cannot bind it")?;
        Ok(Partner { words, thread: Some(thread) })
    }

    fn round_trip(&self) {
        let (asked, answered, _) = &*self.words;
        let before = asked.0.load(Ordering::Relaxed);
        asked.set(before.wrapping_add(1));
        answered.wait_while(before);
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.words.2.store(true, Ordering::Release);
        self.words.0.set(u32::MAX);
        if let Some(thread) = self.thread.take() {
            // it does not panic
            let _ = thread.join();
        }
    }
}
