// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that changes P-states and then ends as its argument says: `vmtests pstate-end ROOT
//! HOW`. The test in a guest and the benchmark on test machines start it many times, and look at
//! the machine afterwards.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use pstate::{Control, Options};

use crate::guest::nr_cpus;

/// How a program can end, and the signal that `wait` then reports.
pub const ENDS: [(&str, Option<i32>); 4] = [
    ("return", None),
    ("panic", None),
    ("abort", Some(libc::SIGABRT)),
    ("kill", Some(libc::SIGKILL)),
];

/// A watchdog that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// The files that a change shows in. `scaling_setspeed` is a setting only under `userspace`.
const SETTINGS: [&str; 3] = ["scaling_governor", "scaling_min_freq", "scaling_max_freq"];

/// Plays the part.
pub fn play(root: &str, how: &str) -> Result<()> {
    let control = Control::open(&Options { root: root.into(), way: None })?;
    change(&control)?;
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

/// Changes something on each unit, and the turbo switch.
pub fn change(control: &Control) -> Result<()> {
    let mut cpus: Vec<u32> = control.clocks().topology.online().iter().map(|c| c as u32).collect();
    cpus.reverse();
    for (index, cpu) in cpus.into_iter().enumerate() {
        if index % 2 == 0 { control.boost(cpu)? } else { control.slow(cpu)? }
    }
    Ok(control.set_turbo(false)?)
}

/// Registers that a change shows in, where a CPU has them: AMD's PStateCtl and HWCR.
const REGISTERS: [u32; 2] = [0xc001_0062, 0xc001_0015];

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

/// Starts the program and lets it end; what it leaves changed, a line each.
pub fn left_changed(
    root: &Path,
    (how, signal): (&str, Option<i32>),
    before: &BTreeMap<PathBuf, String>,
) -> Result<Vec<String>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("pstate-end").arg(root).arg(how).process_group(0);
    let done = command.stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    ensure!(done.status.signal() == signal, "{how}: {}", done.status);
    ensure!(done.stdout == b"changed\n", "{how}: it changed nothing ({})", done.status);
    let start = Instant::now();
    loop {
        let now = settings(root)?;
        if now == *before {
            return Ok(Vec::new());
        }
        if start.elapsed() > PATIENCE {
            let other = before.iter().filter(|(path, value)| now.get(*path) != Some(value));
            let line = |(path, value): (&PathBuf, &String)| {
                format!("{how}: {} was {value}, is {:?}", path.display(), now.get(path))
            };
            return Ok(other.map(line).collect());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
