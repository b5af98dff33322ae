// SPDX-License-Identifier: MIT OR Apache-2.0
//! Licence counters through the kernel's own perf, on the test PMU (kmod/test/turbolane_pmu.c),
//! whose times are known to the nanosecond: what a level has counted is compared with what it must
//! have.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hw::cycles::ThreadCycles;
use hw::levels::LevelCycles;
use hw::license::LEVEL_EVENTS;
use hw::perf::{self, Event, Whose};
use probe::Calibration;
use serde_json::Value;

use crate::fake_pmu::{CYCLES_PER_NS, FakePmu, Unit, counters, remove};
use crate::guest::{Child, set_affinity, spin, thread_time};
use crate::lane::turbolane;

/// Where the instructions are executed; the other CPUs are idle.
const CPU: u32 = 2;
/// Much longer than a level is held.
const LONG: Duration = Duration::from_millis(20);

fn cycles(time: Duration) -> u64 {
    time.as_nanos() as u64 * CYCLES_PER_NS
}

/// Cycles at each level of [`CPU`] during `work`, which this thread does there, and how long that
/// took at most.
fn during(work: impl FnOnce() -> Result<()>) -> Result<(LevelCycles, Duration)> {
    set_affinity(0, &[CPU as usize])?;
    let mut counters = counters()?;
    let start = Instant::now();
    let before = counters.read(CPU)?;
    work()?;
    let after = counters.read(CPU)?;
    let grown = [0, 1, 2].map(|level| after[level] - before[level]);
    Ok((grown, start.elapsed()))
}

/// Levels follow requests, hold, relax; who is idle counts nothing; tasks count their own; `top`
/// shows it.
pub fn everything() -> Result<()> {
    no_pmu_fails()?;
    let pmu = FakePmu::skylake()?;
    one_request(&pmu)?;
    several_requests(&pmu)?;
    nothing_is_asked_for(&pmu)?;
    refusals_fail()?;
    in_use_fails()?;
    pmu.unload()?;
    let slow = FakePmu::load(Duration::from_millis(1), Duration::from_millis(400))?;
    idle_counts_nothing(&slow)?;
    threads_count_their_own()?;
    the_probe_finds_a_witness()?;
    top_shows_levels(&slow)?;
    slow.unload()?;
    no_pmu_fails()
}

/// Without the module there is no PMU: the model has counters, and why they cannot be read is said.
fn no_pmu_fails() -> Result<()> {
    let error = counters()?.read(CPU).err().context("counters without a PMU")?;
    let why = hw::levels::why_not(&error);
    ensure!(why.contains("the kernel has no counters here"), "{error}: {why}");
    Ok(())
}

/// One instruction of a level: the level is granted later and held as long as it is held, to the
/// cycle.
fn one_request(pmu: &FakePmu) -> Result<()> {
    let unit = Unit::open()?;
    for level in [1, 2] {
        let (grown, took) = during(|| {
            unit.execute(level)?;
            spin(LONG);
            Ok(())
        })?;
        let other = 3 - level;
        ensure!(grown[level] == cycles(pmu.held()), "level {level} once: {grown:?}");
        ensure!(grown[other] == 0, "level {level} once: {grown:?}");
        // The CPU was never idle.
        let all: u64 = grown.iter().sum();
        ensure!(all >= cycles(LONG) && all <= cycles(took), "{grown:?} in {took:?}");
    }
    Ok(())
}

/// Instructions all the time keep their level from the first grant to a relax time behind the last;
/// lower ones behind higher ones do not keep the higher level.
fn several_requests(pmu: &FakePmu) -> Result<()> {
    let unit = Unit::open()?;
    let (grown, took) = during(|| {
        unit.execute_for(2, LONG)?;
        unit.execute_for(1, LONG)
    })?;
    let first = LONG - pmu.grant;
    ensure!(grown[2] >= cycles(first) && grown[2] <= cycles(took - LONG + pmu.relax), "{grown:?}");
    ensure!(grown[1] >= cycles(LONG - pmu.relax) && grown[1] <= cycles(took - first), "{grown:?}");
    ensure!(grown[0] <= cycles(took - 2 * LONG + pmu.relax), "{grown:?} in {took:?}");
    Ok(())
}

/// Negative control: scalar instructions, and none at all, leave the CPU at level 0.
fn nothing_is_asked_for(pmu: &FakePmu) -> Result<()> {
    let unit = Unit::open()?;
    // What was asked for before is over.
    spin(2 * pmu.relax);
    let (grown, _) = during(|| {
        unit.execute_for(0, LONG)?;
        spin(LONG);
        Ok(())
    })?;
    ensure!(grown[0] >= cycles(2 * LONG) && grown[1..] == [0, 0], "{grown:?}");
    Ok(())
}

/// What the CPU's PMU does not have is refused, not counted as zero; so is a level that there is
/// not.
fn refusals_fail() -> Result<()> {
    let errno = |event: Event| {
        let opened = perf::open(&event, Whose::Cpu(CPU), None);
        opened.err().and_then(|error| error.raw_os_error())
    };
    let level2 = Event { kind: perf::RAW, config: LEVEL_EVENTS[2], ..Event::default() };
    ensure!(errno(level2).is_none(), "{:?}", errno(level2));
    ensure!(errno(Event { config: 0x4028, ..level2 }) == Some(libc::ENOENT));
    ensure!(errno(Event { sample_period: 1000, ..level2 }) == Some(libc::EOPNOTSUPP));
    let unit = Unit::open()?;
    ensure!(unit.execute(3).is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL)));
    Ok(())
}

/// Who counts holds the module, and it goes when they are done.
fn in_use_fails() -> Result<()> {
    let mut counters = counters()?;
    counters.read(CPU)?;
    ensure!(!remove()?, "the PMU was removed while it counted");
    counters.read(CPU)?;
    Ok(())
}

/// A level goes on while the CPU sleeps, but no cycle is counted.
fn idle_counts_nothing(pmu: &FakePmu) -> Result<()> {
    let unit = Unit::open()?;
    let asleep = pmu.relax / 2;
    let (grown, took) = during(|| {
        unit.execute_for(2, 2 * pmu.grant)?;
        std::thread::sleep(asleep);
        spin(LONG);
        Ok(())
    })?;
    let all: u64 = grown.iter().sum();
    // Now and then the kernel has something to do here.
    ensure!(all <= cycles(took - asleep * 3 / 4), "{grown:?} in {took:?}, {asleep:?} of it idle");
    ensure!(grown[2] >= cycles(LONG + pmu.grant), "the level was lost in sleep: {grown:?}");
    Ok(())
}

/// A thread's counters run while it runs: of two that share a CPU, each has its own time.
fn threads_count_their_own() -> Result<()> {
    let rival = Child::fork(|| {
        _ = set_affinity(0, &[CPU as usize]);
        loop {
            spin(LONG);
        }
    })?;
    let mut total = 0;
    let mut used = Duration::ZERO;
    let (grown, took) = during(|| {
        let mut counter = ThreadCycles::open()?;
        let before = thread_time();
        while thread_time() - before < 10 * LONG {
            spin(LONG / 10);
        }
        used = thread_time() - before;
        total = counter.read()?;
        Ok(())
    })?;
    drop(rival);
    let expected = cycles(used) as f64;
    ensure!((total as f64 / expected - 1.0).abs() < 0.1, "{total} cycles in {used:?} of its own");
    ensure!(took > used * 3 / 2, "the rival did not run: {used:?} of {took:?}");
    ensure!(grown.iter().sum::<u64>() > total, "the CPU ran both: {grown:?}, one of them {total}");
    Ok(())
}

/// Whoever measures the clock by chains of instructions is shown the counter's beside it.
fn the_probe_finds_a_witness() -> Result<()> {
    set_affinity(0, &[CPU as usize])?;
    // -icount: the counter goes on by the nanosecond. What the chains are taken for is of no matter
    // here.
    let calibration =
        Calibration { tsc_khz: 1e6, overhead_ticks: 0.0, cycles_per_ns: 1.0, chains: vec![] };
    let witness = probe::witness::perf_cycles(&calibration);
    let clock_khz = witness.clock_khz.with_context(|| format!("{witness:?}"))?;
    let known_khz = CYCLES_PER_NS as f64 * 1e6;
    ensure!((clock_khz / known_khz - 1.0).abs() < 0.02, "{witness:?}, and it has {known_khz} kHz");
    Ok(())
}

/// `turbolane top` shows the level of the CPU where one is asked for, and of no other.
fn top_shows_levels(pmu: &FakePmu) -> Result<()> {
    for level in [2, 1, 0] {
        let load = Child::fork(|| {
            _ = set_affinity(0, &[CPU as usize]);
            _ = Unit::open().and_then(|unit| unit.execute_for(level, Duration::from_secs(3600)));
        })?;
        // Until the level is granted, and that of the load before is over.
        std::thread::sleep(2 * pmu.relax);
        let text = turbolane(&["top", "--once", "--json", "--interval", "500ms"])?;
        drop(load);
        let top: Value = serde_json::from_str(&text)?;
        ensure!(top["license_level_why"].is_null(), "{text}");
        let shown = |cpu: u32| top["cpus"][cpu as usize]["license_level"].as_f64();
        let there = shown(CPU).with_context(|| format!("no level of CPU {CPU}: {text}"))?;
        ensure!((there - level as f64).abs() < 0.1, "level {there}, not {level}: {text}");
        // The others ran for a moment, or not at all.
        let elsewhere = [0, 1, 3].map(|cpu| shown(cpu).unwrap_or(0.0));
        ensure!(elsewhere == [0.0; 3], "levels where nobody asks: {text}");
    }
    Ok(())
}
