// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that changes P-states and then ends as its arguments say: `vmtests pstate-end ROOT HOW
//! BACKEND`. The tests in guests and the benchmarks on test machines start it many times, and look
//! at the machine afterwards: at its settings, and where a scheduler took requests of a thread, at
//! the clock of the CPU that it ran on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pstate::{Control, Error, Options, Way};
use turbolane::{Request, Session};

use crate::guest::{nr_cpus, set_affinity, spin};

/// How a program can end, and the signal that `wait` then reports.
pub type End = (&'static str, Option<i32>);

/// All ends.
pub const ENDS: [End; 4] = [
    ("return", None),
    ("panic", None),
    ("abort", Some(libc::SIGABRT)),
    ("kill", Some(libc::SIGKILL)),
];

/// A watchdog that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The files that a change shows in. `scaling_setspeed` is a setting only under `userspace`.
const SETTINGS: [&str; 3] = ["scaling_governor", "scaling_min_freq", "scaling_max_freq"];

/// Where a thread is slow by its request to a scheduler.
pub const CPU: u32 = 1;
/// The clocks of a CPU of the test driver, whose busy threads are fast (`pstate_scheduler`).
const SLOWEST: &str = "1400000";
const FASTEST: &str = "4000000";

/// Plays the part; `way` is the name of a backend, or `any`.
pub fn play(root: &str, how: &str, way: &str) -> Result<()> {
    let ways = [Way::Setspeed, Way::Limits, Way::Msr, Way::Scheduler];
    let known = ways.into_iter().find(|other| other.name() == way);
    ensure!(known.is_some() || way == "any", "{way} is no backend");
    let way = known;
    if way == Some(Way::Scheduler) {
        let session = slow_down()?;
        end(how)?;
        drop(session);
        return Ok(());
    }
    let control = Control::open(&Options { root: root.into(), way })?;
    ensure!(way.is_none_or(|way| control.choice().way == way), "{:?}", control.choice());
    change(&control)?;
    end(how)
}

fn end(how: &str) -> Result<()> {
    println!("changed");
    match how {
        "return" => {}
        "panic" => panic!("on purpose"),
        "abort" => std::process::abort(),
        // SAFETY: ends this process.
        "kill" => unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
        },
        other => bail!("{other} is no end"),
    }
    Ok(())
}

/// This thread is slow, by its request to the scheduler.
fn slow_down() -> Result<Session> {
    set_affinity(0, &[CPU as usize])?;
    let session = Session::open(&Options { way: Some(Way::Scheduler), ..Options::default() })?;
    ensure!(session.control().choice().way == Way::Scheduler, "{:?}", session.control().choice());
    session.threads().register("slow", 0)?;
    session.request(Request::Slow)?;
    ensure!(busy_clock_becomes(SLOWEST), "its request does not slow it");
    Ok(session)
}

/// Runs on [`CPU`] until that is its clock; false if it does not become it.
fn busy_clock_becomes(khz: &str) -> bool {
    let start = Instant::now();
    let path = format!("/sys/devices/system/cpu/cpu{CPU}/cpufreq/scaling_cur_freq");
    while std::fs::read_to_string(&path).unwrap_or_default().trim() != khz {
        if start.elapsed() > PATIENCE {
            return false;
        }
        spin(Duration::from_millis(1));
    }
    true
}

/// Changes something on each unit, and the turbo switch if there is one.
pub fn change(control: &Control) -> Result<()> {
    let mut cpus: Vec<u32> = control.clocks().topology.online().iter().map(|c| c as u32).collect();
    cpus.reverse();
    for (index, cpu) in cpus.into_iter().enumerate() {
        if index % 2 == 0 { control.boost(cpu)? } else { control.slow(cpu)? }
    }
    match control.set_turbo(false) {
        // Intel's registers of the dim-silicon machine have no such bit.
        Err(Error::NotKept(_)) if is_intel() && control.choice().way == Way::Msr => Ok(()),
        done => Ok(done?),
    }
}

fn is_intel() -> bool {
    hw::cpu::read_cpu(&hw::Live).vendor == hw::cpu::Vendor::Intel
}

/// Registers that a change shows in, where a CPU has them: AMD's PStateCtl and HWCR, Intel's
/// IA32_PERF_CTL, IA32_HWP_REQUEST and IA32_MISC_ENABLE (turbo).
const REGISTERS: [u32; 5] = [0xc001_0062, 0xc001_0015, 0x199, 0x774, 0x1a0];

/// All settings of a machine below a root; registers too, if it is this one.
pub fn settings(root: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let folder = root.join("sys/devices/system/cpu/cpufreq");
    let mut all = BTreeMap::new();
    let mut add = |path: PathBuf| {
        if let Ok(text) = std::fs::read_to_string(&path) {
            all.insert(path, text.lines().next().unwrap_or_default().to_string());
        }
    };
    // none without a driver
    for entry in std::fs::read_dir(&folder).into_iter().flatten() {
        let policy = entry?.path();
        SETTINGS.iter().for_each(|name| add(policy.join(name)));
    }
    add(folder.join("boost"));
    add(root.join("sys/devices/system/cpu/intel_pstate/no_turbo"));
    if root == Path::new("/") {
        all.extend(registers());
    }
    ensure!(!all.is_empty(), "no settings below {}", root.display());
    Ok(all)
}

/// [`REGISTERS`] of all CPUs whose devices are there.
fn registers() -> Vec<(PathBuf, String)> {
    let read = |cpu: usize, number: u32| {
        let path = format!("/dev/cpu/{cpu}/msr");
        let mut bytes = [0; 8];
        File::open(&path).ok()?.read_exact_at(&mut bytes, number.into()).ok()?;
        Some((format!("{path}@{number:x}").into(), format!("{:x}", u64::from_le_bytes(bytes))))
    };
    let numbers = |cpu| REGISTERS.iter().filter_map(move |&number| read(cpu, number));
    (0..nr_cpus()).flat_map(numbers).collect()
}

/// Starts the program and lets it end.
fn starts_and_ends(root: &Path, way: Option<Way>, (how, signal): End) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    let way = way.map_or("any", Way::name);
    command.arg("pstate-end").arg(root).args([how, way]).process_group(0);
    let done = command.stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.signal() == signal, "{how}: {}: {said}", done.status);
    ensure!(done.stdout == b"changed\n", "{how}: it changed nothing ({}): {said}", done.status);
    Ok(())
}

/// Starts the program and lets it end; what it leaves changed, a line each.
pub fn left_changed(
    root: &Path,
    way: Option<Way>,
    end: End,
    before: &BTreeMap<PathBuf, String>,
) -> Result<Vec<String>> {
    starts_and_ends(root, way, end)?;
    let start = Instant::now();
    loop {
        let now = settings(root)?;
        if now == *before {
            return Ok(Vec::new());
        }
        if start.elapsed() > PATIENCE {
            let other = before.iter().filter(|(path, value)| now.get(*path) != Some(value));
            let line = |(path, value): (&PathBuf, &String)| {
                format!("{}: {} was {value}, is {:?}", end.0, path.display(), now.get(path))
            };
            return Ok(other.map(line).collect());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The same with a request to the scheduler, on this machine: whoever runs on the CPU next, here
/// the caller, who stays on it, is fast.
pub fn left_slow(end: End, before: &BTreeMap<PathBuf, String>) -> Result<Vec<String>> {
    let mut left = left_changed(Path::new("/"), Some(Way::Scheduler), end, before)?;
    if !busy_clock_becomes(FASTEST) {
        left.push(format!("{}: the next program on CPU {CPU} is slow", end.0));
    }
    Ok(left)
}
