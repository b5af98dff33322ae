// SPDX-License-Identifier: MIT OR Apache-2.0
//! The dim-silicon machine, seen by a stock kernel. One boot for all, because a boot takes as long
//! as the test.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hw::perf::{self, Event, Whose};

use super::{silicon_energy, silicon_license};
use crate::claims::Claims;
use crate::fake_pmu::counters;
use crate::guest::set_affinity;
use crate::silicon::{
    Class, TSC_KHZ, ask_for_full_clock, burst, busy, clock_khz, error_pct, errors_pct, leave_out,
    wide_for, worst,
};
use crate::silicon_probe::{KERNELS, probe};

/// Where everything is measured; CPU 1 is its sibling, CPUs 2 and 3 are the other core.
const CPU: usize = 2;
const SIBLING: usize = 3;
/// As planted: what a busy sibling leaves of a CPU's rate.
const SHARE: f64 = 1.25 / 2.0;

/// All of it.
pub fn everything() -> Result<()> {
    kernel_takes_it()?;
    set_affinity(0, &[CPU])?;
    [CPU, SIBLING].into_iter().try_for_each(ask_for_full_clock)?;
    clocks_are_the_planted_ones()?;
    counters_agree()?;
    aperf_and_mperf()?;
    siblings_share()?;
    silicon_license::obeys(CPU)?;
    silicon_license::gives_notice()?;
    silicon_license::switches_raise_the_clock()?;
    let mut claims = Claims::new()?;
    silicon_energy::is_counted(&mut claims)?;
    claims.write()?;
    p_states_are_obeyed()
}

/// Linux finds the counters and one package of two cores, and trusts the clock.
fn kernel_takes_it() -> Result<()> {
    let log = std::process::Command::new("dmesg").output().context("dmesg")?.stdout;
    let log = String::from_utf8_lossy(&log);
    for line in ["Skylake events", "Intel PMU driver", "TSC deadline timer available"] {
        ensure!(log.contains(line), "the kernel does not say \"{line}\"");
    }
    let source =
        fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource")?;
    ensure!(source.starts_with("tsc"), "the clock is {source}");
    let package = "/sys/devices/system/cpu/cpu0/topology/package_cpus_list";
    let cpus = fs::read_to_string(package).context(package)?;
    ensure!(cpus.trim() == "0-3", "CPU 0 shares its package with CPUs {cpus}");
    Ok(())
}

/// The clock of each class before, in and after a burst, and how long it is held.
fn clocks_are_the_planted_ones() -> Result<()> {
    let (clocks, relaxes) = errors_pct(5)?;
    ensure!(worst(&clocks)? <= 0.5, "clocks are off by {:.3} %", worst(&clocks)?);
    ensure!(worst(&relaxes)? <= 2.0, "the hold is off by {:.3} %", worst(&relaxes)?);
    Ok(())
}

/// Licence counters count a level while it is granted, and none for code that is not executed.
fn counters_agree() -> Result<()> {
    let mut counters = counters()?;
    std::thread::sleep(Duration::from_millis(3));
    let before = counters.read(CPU as u32)?;
    leave_out(100_000);
    let after = counters.read(CPU as u32)?;
    ensure!(after[1..] == before[1..], "wide code that is left out counts: {before:?} {after:?}");
    for (class, level) in
        [(Class::Light256, 0), (Class::Heavy256, 1), (Class::Light512, 1), (Class::Heavy512, 2)]
    {
        let before = counters.read(CPU as u32)?;
        let seen = burst(class);
        let after = counters.read(CPU as u32)?;
        let grown = [0, 1, 2].map(|k| after[k] - before[k]);
        println!("{class:?}: cycles by level {grown:?}, {seen:?}");
        for k in 1..3 {
            // At least the time for which it is held.
            let held = grown[k] as f64 > seen.after_khz * 0.67;
            ensure!(held == (k == level), "{class:?}: level {k} counted {grown:?}");
        }
        ensure!(grown[0] > 0, "{class:?}: level 0 counted nothing");
    }
    Ok(())
}

/// The kernel's own APERF and MPERF give the clock at each level.
fn aperf_and_mperf() -> Result<()> {
    let event = |name: &str| -> Result<_> {
        let folder = "/sys/bus/event_source/devices/msr";
        let kind = fs::read_to_string(format!("{folder}/type")).context("the msr events")?;
        let config = fs::read_to_string(format!("{folder}/events/{name}"))?;
        let config = config.trim().strip_prefix("event=0x").context("an event of msr")?;
        let event = Event {
            kind: kind.trim().parse()?,
            config: u64::from_str_radix(config, 16)?,
            ..Event::default()
        };
        Ok(fs::File::from(perf::open(&event, Whose::Cpu(CPU as u32), None)?))
    };
    let files = [event("aperf")?, event("mperf")?];
    let read = || -> Result<[f64; 2]> {
        let mut counts = [0.0; 2];
        for (file, count) in files.iter().zip(&mut counts) {
            let mut bytes = [0; 8];
            std::io::Read::read_exact(&mut &*file, &mut bytes)?;
            *count = u64::from_ne_bytes(bytes) as f64;
        }
        Ok(counts)
    };
    for (class, low_khz) in Class::ALL {
        burst(class);
        wide_for(class, Duration::from_micros(100));
        let before = read()?;
        wide_for(class, Duration::from_micros(500));
        let after = read()?;
        let khz = (after[0] - before[0]) / (after[1] - before[1]) * TSC_KHZ;
        println!("{class:?}: {:.1} MHz by APERF and MPERF", khz / 1000.0);
        ensure!(error_pct(khz, low_khz) <= 0.5, "{class:?}: APERF and MPERF say {khz} kHz");
    }
    Ok(())
}

/// A busy sibling takes its share of the core, and its bursts lower the clock.
fn siblings_share() -> Result<()> {
    let full_khz = Class::ALL[0].1;
    for (class, low_khz) in [Class::ALL[0], Class::ALL[3]] {
        let other = busy(SIBLING, class)?;
        std::thread::sleep(Duration::from_millis(2));
        let khz = clock_khz(200);
        drop(other);
        println!("beside {class:?}: {:.1} MHz", khz / 1000.0);
        ensure!(error_pct(khz, low_khz * SHARE) <= 0.5, "beside {class:?}: {khz} kHz");
    }
    std::thread::sleep(Duration::from_millis(3));
    ensure!(error_pct(clock_khz(100), full_khz) <= 0.5, "the sibling is gone, its level is not");
    Ok(())
}

/// intel_pstate asks for a clock and gets it. Siblings have one clock: both ask.
fn p_states_are_obeyed() -> Result<()> {
    let policy = |cpu: usize| format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq");
    let driver = fs::read_to_string(policy(CPU) + "/scaling_driver").context("no cpufreq")?;
    println!("cpufreq by {}", driver.trim());
    for max_khz in [1_400_000, 2_000_000] {
        for cpu in [CPU, SIBLING] {
            fs::write(policy(cpu) + "/scaling_max_freq", max_khz.to_string())?;
        }
        std::thread::sleep(Duration::from_millis(20));
        clock_khz(20_000);
        let khz = clock_khz(200);
        println!("asked for {max_khz} kHz: {:.1} MHz", khz / 1000.0);
        ensure!(error_pct(khz, f64::from(max_khz)) <= 0.5, "asked for {max_khz}: {khz} kHz");
    }
    Ok(())
}

/// The probe finds what was planted, in one kernel.
pub fn probe_finds_it() -> Result<()> {
    for found in probe(&KERNELS[2..])? {
        ensure!(found.error_pct <= 5.0, "{} is off by {:.2} %", found.what, found.error_pct);
    }
    Ok(())
}
