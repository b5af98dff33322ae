// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many threads hold values in vector registers over everything that could lose them: system
//! calls, preemption, migrations, signals whose handlers use the registers, fork. Whoever finds
//! another value than it put there counts an error.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::vectors::{
    clobber, hold, hold_wide, image, mix, scalar_sum, sse_is_kept, vector_sum, wide_image,
};
use crate::guest::Child;

/// What the threads of one run did.
#[derive(Default)]
struct Tally {
    rounds: AtomicU64,
    errors: AtomicU64,
    signals: AtomicU64,
}

static TALLY: Tally =
    Tally { rounds: AtomicU64::new(0), errors: AtomicU64::new(0), signals: AtomicU64::new(0) };

/// Exit code of a run that found errors.
const FOUND: i32 = 3;

/// A running stress; killed when dropped.
pub struct Stress {
    child: Child,
}

impl Stress {
    /// Starts `threads` threads in a process of their own, for this time.
    pub fn start(threads: usize, time: Duration) -> Result<Self> {
        let wide = super::components() == "avx512";
        let child = Child::fork(move || run(threads, time, wide))?;
        Ok(Stress { child })
    }

    /// Waits for its end. An error says that values were lost, or that it died.
    pub fn finish(mut self) -> Result<()> {
        let code = self.child.wait()?;
        ensure!(code != FOUND, "vector registers lost their values; stdout says which");
        ensure!(code == 0, "the stress ended with {code}");
        Ok(())
    }
}

fn run(threads: usize, time: Duration, wide: bool) {
    // SAFETY: the handler touches vector registers and one atomic only.
    unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
    let workers: Vec<_> =
        (1..=threads as u64).map(|id| std::thread::spawn(move || worker(id, time, wide))).collect();
    for worker in workers {
        if worker.join().is_err() {
            error("a thread panicked", 0);
        }
    }
    let (rounds, errors) = (count(&TALLY.rounds), count(&TALLY.errors));
    println!("stress: {threads} threads, {rounds} rounds, {errors} errors");
    let idle = rounds < threads as u64 || count(&TALLY.signals) == 0;
    // SAFETY: ends the child at once; its threads are joined.
    unsafe { libc::_exit(if errors > 0 { FOUND } else { i32::from(idle) }) }
}

fn count(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

fn error(what: &str, id: u64) {
    TALLY.errors.fetch_add(1, Ordering::Relaxed);
    println!("stress: thread {id}: {what}");
}

extern "C" fn on_signal(_: i32) {
    clobber(&[0xdead_beef_cafe_f00d; 64]);
    TALLY.signals.fetch_add(1, Ordering::Relaxed);
}

fn worker(id: u64, time: Duration, wide: bool) {
    let start = Instant::now();
    let mut seed = id * 1_000_003;
    for round in id.. {
        seed = mix(seed + 1);
        hold_over_calls(id, seed, wide);
        if vector_sum(seed, 300) != scalar_sum(seed, 300) {
            error("a vector sum is wrong", id);
        }
        if !(0..5).all(|i| sse_is_kept(seed + i)) {
            error("SSE or MXCSR changed", id);
        }
        std::hint::black_box(scalar_sum(seed, 20_000 + seed % 50_000));
        if round % 4 == 0 {
            hold_over_signal(id, seed);
        }
        if round % 8 == 0 {
            std::thread::sleep(Duration::from_micros(1 + seed % 3000));
        }
        if round % 32 == 0 {
            hold_over_fork(id, seed);
        }
        TALLY.rounds.fetch_add(1, Ordering::Relaxed);
        if start.elapsed() > time {
            return;
        }
    }
}

fn hold_over_calls(id: u64, seed: u64, wide: bool) {
    let (spins, calls) = (1 + seed % 20_000, seed >> 40 & 3);
    let before = image(seed);
    if hold(&before, libc::SYS_sched_yield, [0; 3], calls, spins).0 != before {
        error("registers changed over system calls", id);
    }
    if wide {
        let before = wide_image(seed);
        if hold_wide(&before, libc::SYS_sched_yield, calls, spins).0 != before {
            error("AVX-512 registers changed over system calls", id);
        }
    }
}

/// The signal arrives at the end of the call that sends it, registers loaded.
fn hold_over_signal(id: u64, seed: u64) {
    // SAFETY: no arguments.
    let tid = i64::from(unsafe { libc::gettid() });
    let before = image(seed ^ 0x55);
    let (after, result) =
        hold(&before, libc::SYS_tkill, [tid, i64::from(libc::SIGUSR1), 0], 1, 1 + seed % 100);
    if after != before || result != 0 {
        error("registers changed over a signal", id);
    }
}

/// Both sides of a fork must find what was there before it.
fn hold_over_fork(id: u64, seed: u64) {
    let before = image(seed ^ 0xaa);
    // SYS_fork copies this thread; the child only compares and ends.
    let (after, pid) = hold(&before, libc::SYS_fork, [0; 3], 1, 0);
    if pid == 0 {
        let good = after == before && vector_sum(seed, 50) == scalar_sum(seed, 50);
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    if after != before {
        error("registers changed over fork", id);
    }
    if pid < 0 || (Child { pid: pid as i32 }).wait().ok() != Some(0) {
        error("a forked child found other registers", id);
    }
}
