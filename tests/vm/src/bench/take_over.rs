// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ship.takeover_gap_us`: for how long the kernel's own scheduler is at work while a run takes
//! over from another one, on a busy machine; the median of all. A thread looks at the kernel's
//! state all the time. Baseline: a stop and a start. `ship.takeover_lost_hints`: threads that gave
//! hints to the first run, and are not served by the last one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::guest::{Child, scx_state, set_real_time, spin};
use crate::lane::Lane;
use crate::measure::{Figure, publish};
use crate::tests::take_over::{ARGS, Sections, wait_until_taken};

const TAKE_OVERS: usize = 7;
const RESTARTS: usize = 3;
const THREADS: usize = 8;
const HOGS: usize = 4;

/// Measure and publish.
pub fn run() -> Result<()> {
    let _hogs = (0..HOGS)
        .map(|_| Child::fork(|| spin(Duration::from_secs(3600))))
        .collect::<Result<Vec<_>>>()?;
    let mut lane = Lane::start(&ARGS)?;
    let threads: Vec<&'static Sections> =
        (0..THREADS).map(|_| &*Box::leak(Box::<Sections>::default())).collect();
    threads.iter().for_each(|sections| sections.start());
    for sections in &threads {
        sections.are_kept("at first")?;
    }
    let mut gaps_us = Vec::new();
    for round in 0..TAKE_OVERS {
        let watch = Watch::start()?;
        let next = Lane::spawn(&[&ARGS[..], &["--take-over"]].concat())?;
        wait_until_taken(&next, lane)?;
        lane = next;
        gaps_us.push(watch.longest_us()?);
        println!("take-over {round}: {:.0} us", gaps_us[round]);
    }
    let lost = threads.iter().filter(|sections| sections.are_kept("at the end").is_err()).count();
    let mut restarts_us = Vec::new();
    for _ in 0..RESTARTS {
        let watch = Watch::start()?;
        lane.signal(libc::SIGINT);
        lane.wait()?;
        lane = Lane::start(&ARGS)?;
        restarts_us.push(watch.longest_us()?);
    }
    lane.stop()?;
    let restart = Figure::of("restart", "us", "lower", &restarts_us)?;
    publish(
        "take-over",
        &[
            Figure::of("ship.takeover_gap_us", "us", "lower", &gaps_us)?
                .against("stop and start", restart.value),
            Figure::count("ship.takeover_lost_hints", lost as u64, THREADS as u64),
        ],
    )
}

/// A thread that looks at the kernel's state.
struct Watch {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Result<Duration>>,
}

impl Watch {
    fn start() -> Result<Self> {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            // SAFETY: no arguments.
            set_real_time(unsafe { libc::gettid() }, 1)?;
            let (mut seen, mut longest) = (Instant::now(), Duration::ZERO);
            while !ended.load(Relaxed) {
                if scx_state() == "enabled" {
                    longest = longest.max(seen.elapsed());
                    seen = Instant::now();
                }
                // Others must run, too.
                thread::sleep(Duration::from_micros(200));
            }
            Ok(longest)
        });
        Ok(Watch { ends, thread })
    }

    /// The longest time between two looks that saw a scheduler of ours.
    fn longest_us(self) -> Result<f64> {
        self.ends.store(true, Relaxed);
        let longest = self.thread.join().map_err(|_| anyhow!("the watching thread panicked"))??;
        Ok(longest.as_secs_f64() * 1e6)
    }
}
