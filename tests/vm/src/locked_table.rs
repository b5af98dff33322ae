// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that knows nothing of boosted locks: threads look something up under a pthread mutex,
//! and one of them resizes the table now and then, as memcached did when all of it had one lock
//! (TURBO 11).
//!
//! ```text
//! vmtests locked-table THREADS        each on a CPU of its own, from CPU 0 on
//! ```

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::guest::{monotonic_ns, set_affinity, work};

/// Rounds of work: of a resize, of a look-up under the lock, and of what a thread does between.
const RESIZE: u64 = 200_000;
const LOOK_UP: u64 = 500;
const BETWEEN: u64 = 5_000;
/// Look-ups of the thread that resizes between two resizes.
const LOOK_UPS: usize = 20;
/// Resizes that are measured.
const RESIZES: u32 = 20;

/// What a run did.
pub struct Ran {
    /// A resize, ns.
    pub resize_ns: f64,
    /// All threads' look-ups in a second.
    pub look_ups_per_s: f64,
}

struct Lock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for several threads.
unsafe impl Sync for Lock {}

impl Lock {
    fn with(&self, section: impl FnOnce()) {
        // SAFETY: an initialised mutex that does not move.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
        section();
        // SAFETY: taken above.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// The program: prints what it did.
pub fn play(threads: &str) -> Result<()> {
    let threads: usize = threads.parse()?;
    ensure!(threads > 1, "one thread resizes, others look up");
    static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let (stop, look_ups) = (AtomicBool::new(false), AtomicU64::new(0));
    let look_up = || {
        LOCK.with(|| _ = work(LOOK_UP));
        look_ups.fetch_add(1, Ordering::Relaxed);
        work(BETWEEN);
    };
    let (mut resizes_ns, mut begun_ns) = (0, 0);
    std::thread::scope(|scope| -> Result<()> {
        for cpu in 1..threads {
            let (look_up, stop) = (&look_up, &stop);
            scope.spawn(move || {
                set_affinity(0, &[cpu])?;
                while !stop.load(Ordering::Relaxed) {
                    look_up();
                }
                anyhow::Ok(())
            });
        }
        set_affinity(0, &[0])?;
        for resize in 0..=RESIZES {
            (0..LOOK_UPS).for_each(|_| look_up());
            LOCK.with(|| {
                let start_ns = monotonic_ns();
                work(RESIZE);
                // the first one is for those who learn
                if resize > 0 {
                    resizes_ns += monotonic_ns() - start_ns;
                }
            });
            if resize == 0 {
                begun_ns = monotonic_ns();
                look_ups.store(0, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    let taken_s = (monotonic_ns() - begun_ns) as f64 / 1e9;
    let resize_ns = resizes_ns as f64 / f64::from(RESIZES);
    println!("{resize_ns} {}", look_ups.load(Ordering::Relaxed) as f64 / taken_s);
    Ok(())
}

impl Ran {
    /// Reads what the program prints.
    pub fn parse(text: &str) -> Result<Ran> {
        let (resize, rate) = text.trim().split_once(' ').context("locked-table says nothing")?;
        Ok(Ran { resize_ns: resize.parse()?, look_ups_per_s: rate.parse()? })
    }
}
