// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that ask what the CPU can do, on CPUs that withhold it.
//!
//! Each method of asking is tried three times: without the module, which gives the right answer;
//! with all CPUs armed and nothing done about detection, which must give another, or the test would
//! show nothing; and with detection on.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use sched::questions::Watch;

use crate::guest::{install, nr_cpus};
use crate::trap::{Trap, set};

/// CPU time before somebody asks late, and the period that a new program has in these tests: under
/// emulation on a busy machine everything takes fifty times as long, the dynamic linker too.
const LATE_MS: &str = "1600";
const EXEC_GRACE_NS: &str = "1000000000";

const DYNAMIC: (&str, &[u8]) = ("/tmp/asks", include_bytes!(concat!(env!("OUT_DIR"), "/asks")));
const STATIC: (&str, &[u8]) =
    ("/tmp/asks-static", include_bytes!(concat!(env!("OUT_DIR"), "/asks-static")));

/// Who asks when it starts.
const EARLY: [&[&str]; 4] = [
    &["/lib64/ld-linux-x86-64.so.2", "--list-diagnostics"],
    &["openssl", "info", "-cpusettings"],
    &[DYNAMIC.0],
    &[STATIC.0],
];

/// A library that asks when it is loaded, long after the program was started.
const LIBRARY: [&str; 3] = [DYNAMIC.0, "library", LATE_MS];

/// Who asks long after everything was loaded.
const LATE: [&[&str]; 2] = [&[DYNAMIC.0, "late", LATE_MS], &[STATIC.0, "late", LATE_MS]];

/// What a program has found out. Of glibc's report only what it made of CPUID and XGETBV: the rest
/// has addresses, and numbers of the CPU it ran on.
fn answer(command: &[&str]) -> Result<String> {
    let output = Command::new(command[0]).args(&command[1..]).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {} {error}", output.status);
    let text = String::from_utf8(output.stdout)?;
    if !command.contains(&"--list-diagnostics") {
        return Ok(text);
    }
    let is_cpu = |line: &&str| line.starts_with("x86.") && !line.contains("cpuid");
    Ok(text.lines().filter(is_cpu).collect::<Vec<_>>().join("\n"))
}

/// A task that was just migrated or preempted may be shown everything by chance: a wrong answer is
/// looked for more than once.
fn ever_differs(command: &[&str], right: &str) -> Result<bool> {
    for _ in 0..5 {
        if answer(command)? != right {
            return Ok(true);
        }
    }
    Ok(false)
}

fn always_right(command: &[&str], right: &str) -> Result<()> {
    for _ in 0..2 {
        let given = answer(command)?;
        let differs = given.lines().zip(right.lines()).find(|(given, right)| given != right);
        ensure!(given == right, "{command:?} has found out: {:?}", differs.unwrap_or(("", "")));
    }
    Ok(())
}

/// A program that is started anywhere finds what the CPU has: at its start, when it loads a
/// library, and later.
pub fn programs_find_what_is_withheld() -> Result<()> {
    for (path, program) in [DYNAMIC, STATIC] {
        install(path, program)?;
    }
    let all: Vec<&[&str]> = EARLY.into_iter().chain([&LIBRARY[..]]).chain(LATE).collect();
    let right = all.iter().map(|command| answer(command)).collect::<Result<Vec<_>>>()?;

    let trap = Trap::on(&(0..nr_cpus()).collect::<Vec<_>>(), "mode=grace grace_ns=10000")?;
    set("exec_grace_ns", "0")?;
    for (command, right) in all.iter().zip(&right) {
        ensure!(ever_differs(command, right)?, "{command:?} is right without help");
    }

    set("exec_grace_ns", EXEC_GRACE_NS)?;
    let (soon, late) = all.split_at(EARLY.len() + 1);
    for (command, right) in soon.iter().zip(&right) {
        always_right(command, right)?;
    }
    for (command, right) in late.iter().zip(&right[soon.len()..]) {
        ensure!(ever_differs(command, right)?, "{command:?} is right without a site");
    }

    let mut watch = Watch::new();
    let mut added = watch.look_at_all(trap.device());
    for (path, _) in [DYNAMIC, STATIC] {
        let here = watch.look_at_file(Path::new(path), trap.device())?;
        ensure!(here.xgetbv_sites > 0 && here.failed == 0, "{path}: {here:?}");
        added.xgetbv_sites += here.xgetbv_sites;
    }
    println!("{added:?}");
    // init's busybox is in a file system that takes no probes.
    ensure!(added.files > 3 && added.xgetbv_sites > 5, "{added:?}");
    for (command, right) in late.iter().zip(&right[soon.len()..]) {
        always_right(command, right)?;
    }
    // Probes in the dynamic linker and libcrypto did no harm.
    for (command, right) in soon.iter().zip(&right) {
        always_right(command, right)?;
    }
    trap.off()
}
