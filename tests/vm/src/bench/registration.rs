// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.registration_us`: 200 processes start at once on four CPUs and each asks for its first
//! slot, as the workers of a server do; from the first request to the last answer, per process.
//! `lane.registration_cpu_us`: what that costs the scheduler's process.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::Child;
use crate::lane::{Lane, read};
use crate::load;
use crate::measure::{Figure, publish};

const PROCESSES: usize = 200;
const ROUNDS: usize = 5;

/// CPU time of a process so far: the 14th and 15th word of its stat, the 12th and 13th behind its
/// name.
fn cpu_time(pid: i32) -> Result<Duration> {
    const TICKS_PER_S: u64 = 100;
    let stat = read(&format!("/proc/{pid}/stat"));
    let behind = stat.rsplit_once(')').context("the scheduler is gone")?.1;
    let ticks = behind.split_whitespace().skip(11).take(2).map(|word| word.parse::<u64>());
    let ticks: u64 = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_S))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let (mut time_us, mut cpu_us) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (start, before) = (Instant::now(), cpu_time(lane.pid())?);
        let mut children =
            (0..PROCESSES).map(|_| Child::fork(load::connect)).collect::<Result<Vec<_>>>()?;
        for child in &mut children {
            ensure!(child.wait()? == 0, "a process got no slot");
        }
        let each_us = |time: Duration| time.as_secs_f64() * 1e6 / PROCESSES as f64;
        time_us.push(each_us(start.elapsed()));
        cpu_us.push(each_us(cpu_time(lane.pid())? - before));
    }
    lane.stop()?;
    publish(
        "registration",
        &[
            Figure::of("lane.registration_us", "us", "lower", &time_us)?,
            Figure::of("lane.registration_cpu_us", "us", "lower", &cpu_us)?,
        ],
    )
}
