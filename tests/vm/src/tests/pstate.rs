// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states on a real cpufreq core: the kernel's governors, limits and sysfs, under a driver that
//! has no hardware (kmod/test/turbolane_cpufreq.c).

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use pstate::{Control, Error, Options, Way};

use crate::guest::{modprobe, wait_for};
use crate::pstate_end::{ENDS, left_changed, settings};
use crate::trap::load_beside;

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

fn open(way: Option<Way>) -> Result<Control> {
    Ok(Control::open(&Options { way, ..Options::default() })?)
}

pub(super) fn read(policy: u32, file: &str) -> String {
    let path = format!("{CPUFREQ}/policy{policy}/{file}");
    fs::read_to_string(path).unwrap_or_default().trim().to_string()
}

pub fn write(policy: u32, file: &str, text: &str) -> Result<()> {
    let path = format!("{CPUFREQ}/policy{policy}/{file}");
    fs::write(&path, text).with_context(|| path)
}

/// The kernel may be late: limits are applied by a worker.
pub(super) fn becomes(policy: u32, file: &str, text: &str) -> Result<()> {
    wait_for(&format!("policy{policy}/{file} = {text}"), Duration::from_secs(5), || {
        read(policy, file) == text
    })
}

/// Loads the test driver.
pub fn load(cpus_per_policy: u32) -> Result<()> {
    load_beside("turbolane_cpufreq", &format!("cpus_per_policy={cpus_per_policy}"))
}

pub(super) fn unload() -> Result<()> {
    let done = Command::new("rmmod").arg("turbolane_cpufreq").status()?;
    ensure!(done.success(), "rmmod: {done}");
    Ok(())
}

/// Without a driver nothing is offered, and why is said. With one, but without the governor
/// userspace, limits hold the frequency. With it, frequencies are set.
pub fn ways() -> Result<()> {
    let control = open(None)?;
    ensure!(control.choice().way == Way::None, "{:?}", control.choice());
    ensure!(control.choice().why.contains("no cpufreq driver"), "{:?}", control.choice());
    ensure!(control.boost(0) == Err(Error::NoBackend), "boosted without a driver");
    drop(control);

    load(1)?;
    limits()?;
    modprobe("cpufreq_userspace")?;
    setspeed()?;
    refusals_fail()?;
    unload()?;
    load(2)?;
    shared()
}

fn limits() -> Result<()> {
    let before = settings(Path::new("/"))?;
    let control = open(None)?;
    ensure!(control.choice().way == Way::Limits, "{:?}", control.choice());
    control.boost(1)?;
    ensure!(read(1, "scaling_min_freq") == "4000000", "not boosted");
    becomes(1, "scaling_cur_freq", "4000000")?;
    control.slow(1)?;
    ensure!(read(1, "scaling_max_freq") == "1400000", "not slowed");
    becomes(1, "scaling_cur_freq", "1400000")?;
    control.request(1, 2_300_000)?;
    becomes(1, "scaling_cur_freq", "2300000")?;
    control.restore(1)?;
    becomes(1, "scaling_max_freq", "4000000")?;
    becomes(1, "scaling_min_freq", "1400000")?;
    control.boost(2)?;
    control.set_turbo(false)?;
    let done = control.close();
    ensure!(done.failed == 0 && settings(Path::new("/"))? == before, "{done:?}");
    Ok(())
}

fn setspeed() -> Result<()> {
    let before = settings(Path::new("/"))?;
    let control = open(None)?;
    ensure!(control.choice().way == Way::Setspeed, "{:?}", control.choice());
    ensure!(control.speeds(0)?.table_khz.len() == 7, "{:?}", control.speeds(0)?);
    for (khz, text) in [(4_000_000, "4000000"), (1_400_000, "1400000"), (2_800_000, "2800000")] {
        control.request(3, khz)?;
        ensure!(read(3, "scaling_cur_freq") == text, "set within the call");
    }
    ensure!(read(2, "scaling_governor") != "userspace", "policy 2 was not asked for");
    control.release(3)?;
    ensure!(settings(Path::new("/"))? == before, "release left something");
    control.boost(0)?;
    drop(control);
    ensure!(settings(Path::new("/"))? == before, "close left something");
    Ok(())
}

/// Off the table, clamped by somebody's limit, taken by another tool: refused with the reason.
fn refusals_fail() -> Result<()> {
    let before = settings(Path::new("/"))?;
    let control = open(None)?;
    let off = control.request(0, 3_000_000).map_err(|error| error.to_string());
    ensure!(off.as_ref().is_err_and(|text| text.contains("2800000 and 3100000")), "{off:?}");
    write(0, "scaling_max_freq", "1900000")?;
    becomes(0, "scaling_max_freq", "1900000")?;
    let clamped = control.boost(0);
    ensure!(matches!(clamped, Err(Error::Limited(_))), "clamped: {clamped:?}");
    write(0, "scaling_max_freq", "4000000")?;
    becomes(0, "scaling_max_freq", "4000000")?;
    control.boost(0)?;
    write(0, "scaling_governor", "performance")?;
    let taken = control.slow(0);
    ensure!(matches!(taken, Err(Error::Taken(_))), "taken: {taken:?}");
    let done = control.close();
    ensure!(done.left == 1 && done.failed == 0, "with another tool's governor: {done:?}");
    ensure!(read(0, "scaling_governor") == "performance", "the other tool's governor went");
    let governor = before.iter().find(|(path, _)| path.ends_with("policy0/scaling_governor"));
    write(0, "scaling_governor", governor.context("it was there")?.1)?;
    ensure!(settings(Path::new("/"))? == before, "something is left");
    Ok(())
}

/// Two CPUs of one policy: the faster request wins, and a CPU that says nothing is not slowed.
fn shared() -> Result<()> {
    let control = open(None)?;
    ensure!(control.set_together(3)? == [2, 3], "{:?}", control.set_together(3)?);
    control.boost(2)?;
    control.slow(3)?;
    ensure!(read(2, "scaling_cur_freq") == "4000000", "the boosted CPU was slowed");
    control.slow(2)?;
    ensure!(read(2, "scaling_cur_freq") == "1400000", "both wait");
    control.restore(3)?;
    // At rest: the base frequency, which for a driver that names no other is its highest.
    ensure!(read(2, "scaling_cur_freq") == "4000000", "one of them works");
    Ok(())
}

/// However the program ends, the kernel's settings are as before, with either way.
pub fn ends() -> Result<()> {
    load(1)?;
    some_ends(10)?;
    modprobe("cpufreq_userspace")?;
    some_ends(10)
}

fn some_ends(rounds: usize) -> Result<()> {
    let before = settings(Path::new("/"))?;
    for round in 0..rounds {
        for end in ENDS {
            let left = left_changed(Path::new("/"), None, end, &before)?;
            ensure!(left.is_empty(), "round {round}: {}", left.join("; "));
        }
    }
    Ok(())
}
