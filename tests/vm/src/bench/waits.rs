// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.longest_wait_ms`: 1,000 busy tasks of all weights on four CPUs for ten minutes, bound and
//! free, wide and not. `lane.llc_imbalance`: CPU time of the luckiest over that of the unluckiest
//! of equal tasks on two caches.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::scx_state;
use crate::hogs::Hogs;
use crate::lane::Lane;
use crate::measure::{Figure, publish};
use crate::recorded_waits::RecordedWaits;
use crate::tests::waits::{every_kind, imbalance};

const HOGS: usize = 1000;
const TIME: Duration = Duration::from_secs(600);
/// For the kernel's own scheduler, which is measured beside it.
const KERNEL_TIME: Duration = Duration::from_secs(60);

/// Whether the kernel reports grace periods of RCU that take longer than 21 s.
const RCU_SUPPRESS: &str = "/sys/module/rcupdate/parameters/rcu_cpu_stall_suppress";

/// The longest wait of any task; fails if the kernel's watchdog ends the scheduler, or RCU stalls
/// under it.
///
/// Under the kernel's own scheduler RCU does stall: a hog of nice 19 among 250 per CPU of up to
/// nice -20 is due a slice every few minutes, and whatever it was preempted in the middle of, the
/// grace period waits for it. That is no finding here, so it is not reported for so long.
pub fn longest() -> Result<()> {
    std::fs::write(RCU_SUPPRESS, "1").context(RCU_SUPPRESS)?;
    let kernel_ms = longest_ms(KERNEL_TIME)?;
    std::fs::write(RCU_SUPPRESS, "0").context(RCU_SUPPRESS)?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let lane_ms = longest_ms(TIME)?;
    ensure!(scx_state() == "enabled", "the scheduler is gone: {}", lane.stderr());
    lane.stop()?;
    let figure = Figure::of("lane.longest_wait_ms", "ms", "lower", &[lane_ms])?;
    publish("waits", &[Figure { n: HOGS as u64, ..figure }.against("kernel scheduler", kernel_ms)])
}

/// The longest wait while the hogs run for so long, their start and end included.
fn longest_ms(time: Duration) -> Result<f64> {
    let start = Instant::now();
    let waits = RecordedWaits::start()?;
    let hogs = Hogs::start(&every_kind(HOGS))?;
    let started_s = start.elapsed().as_secs_f64();
    std::thread::sleep(time);
    let measured_s = start.elapsed().as_secs_f64();
    let by_hogs = hogs.who_waited_most(3);
    drop(hogs);
    let (longest, line) = waits.finish()?;
    let ended_s = start.elapsed().as_secs_f64();
    println!("started {started_s:.0} s, measured {measured_s:.0} s, ended {ended_s:.0} s: {line}");
    println!("by the hogs' own clocks:\n{by_hogs}");
    Ok(longest.as_secs_f64() * 1e3)
}

/// Five times, and the kernel's own scheduler beside it.
pub fn imbalances() -> Result<()> {
    let kernel = imbalance()?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "0"])?;
    let ratios = (0..5).map(|_| imbalance()).collect::<Result<Vec<_>>>()?;
    lane.stop()?;
    let figure = Figure::of("lane.llc_imbalance", "ratio", "lower", &ratios)?;
    publish("waits-llcs", &[figure.against("kernel scheduler", kernel)])
}
