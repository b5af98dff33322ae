// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measuring and comparing where a process may not use all of the machine, as in containers: one
//! CPU, a quota of CPU time, no rights. What cannot be answered is said (exit code 77), what is
//! known is labelled.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use report::probe::ProbeReport;
use report::verify::VerifyReport;

use crate::turbolane;

/// What this machine cannot answer: no invariant time stamp counter, say.
const CANNOT: i32 = 77;

/// A user without rights.
const NOBODY: u32 = 65534;

/// A measurement of two seconds, which is as long as one has to be to have rows.
const PROBE: [&str; 6] = ["probe", "--json", "--time", "2s", "--kernels", "scalar"];

/// Runs with the first CPU that this process may use, and no other: a thread's children inherit its
/// mask.
fn on_one_cpu(arguments: &[&str]) -> Output {
    // SAFETY: no arguments.
    let me = unsafe { libc::gettid() } as u32;
    let all = hw::task::get_affinity(me).unwrap();
    let one = all.iter().take(1).collect();
    hw::task::set_affinity(me, &one).unwrap();
    let output = turbolane().args(arguments).output();
    hw::task::set_affinity(me, &all).unwrap();
    output.unwrap()
}

/// The report, unless this machine cannot be measured, which says why.
fn measured(output: &Output) -> Option<ProbeReport> {
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => Some(serde_json::from_slice(&output.stdout).unwrap()),
        Some(CANNOT) if told.contains("why:") => None,
        _ => panic!("{output:?}"),
    }
}

/// On one CPU, the probe measures with one active CPU and says that it does not know the others;
/// two active CPUs are refused with the reason.
#[test]
fn one_cpu_is_measured_alone() {
    if let Some(report) = measured(&on_one_cpu(&PROBE)) {
        assert!(report.rows.iter().all(|row| row.cell.active == 1), "{:?}", report.rows);
        let others = |text: &String| text.contains("beyond this process's own");
        assert!(report.unknown.iter().any(others), "{:?}", report.unknown);
    }
    let two = on_one_cpu(&[&PROBE[..], &["--active", "2"]].concat());
    let told = String::from_utf8_lossy(&two.stderr).into_owned();
    assert!(matches!(two.status.code(), Some(2 | CANNOT)), "{two:?}");
    assert!(two.status.code() == Some(CANNOT) || told.contains("this process may use 1"), "{told}");
}

/// Commands are compared on one CPU as on many: all runs are there.
#[test]
fn one_cpu_compares() {
    let output = on_one_cpu(&[
        "verify", "--json", "--runs", "4", "--warmup", "0", "--a", "true", "--b", "true",
    ]);
    assert!(matches!(output.status.code(), Some(0 | 1 | CANNOT)), "{output:?}");
    let report: VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.a.samples.len(), report.b.samples.len()), (4, 4));
}

/// A control group that may use half a CPU; gone with the value, when the processes in it have
/// ended.
struct HalfCpu {
    folder: PathBuf,
}

impl HalfCpu {
    /// `None` without the rights, or without a controller of CPU time.
    fn new() -> Option<HalfCpu> {
        let limits = [
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"),
            ("/sys/fs/cgroup", "cpu.max", "50000 100000"),
        ];
        limits.into_iter().find_map(|(top, file, limit)| {
            let folder = PathBuf::from(format!("{top}/turbolane-test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let group = HalfCpu { folder };
            let is_there = group.folder.join(file).exists();
            (is_there && fs::write(group.folder.join(file), limit).is_ok()).then_some(group)
        })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let join =
            format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.folder.display());
        let mut command = Command::new("sh");
        command.args(["-c", &join, env!("CARGO_BIN_EXE_turbolane")]).args(arguments);
        command.output().unwrap()
    }
}

impl Drop for HalfCpu {
    fn drop(&mut self) {
        _ = fs::remove_dir(&self.folder); // one that is left over harms nobody
    }
}

/// Under a quota, the probe says so beside whatever it found, and comparisons go on. As root, where
/// control groups can be made; skipped elsewhere.
#[test]
fn a_quota_is_told() {
    let Some(group) = HalfCpu::new() else {
        return eprintln!("skipped: no control group with a quota can be made");
    };
    if let Some(report) = measured(&group.run(&PROBE)) {
        let told = |text: &String| text.starts_with("a quota of 0.50 CPUs");
        assert!(report.unknown.iter().any(told), "{:?}", report.unknown);
    }
    let doctor = group.run(&["doctor", "--json"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(told.contains("a quota of 0.50 CPUs"), "{doctor:?}");
    let output = group
        .run(&["verify", "--json", "--runs", "4", "--warmup", "0", "--a", "true", "--b", "true"]);
    let report: VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.a.samples.len(), report.b.samples.len()), (4, 4), "{output:?}");
}

/// Somebody without any right measures and compares as root does; what is read by rights is
/// missing, and it is said why. Needs root, to become such a user; skipped where that user cannot
/// run this program.
#[test]
fn without_rights_it_is_measured_all_the_same() {
    let run = |arguments: &[&str]| {
        let mut command = turbolane();
        command.args(arguments).uid(NOBODY).gid(NOBODY).output().ok()
    };
    let Some(output) = run(&PROBE) else {
        return eprintln!("skipped: no user without rights can run this");
    };
    if let Some(report) = measured(&output) {
        let registers = report.meter.witnesses.iter().find(|one| one.name == "APERF/MPERF");
        assert!(registers.is_some_and(|one| one.why_not.is_some()), "{:?}", report.meter.witnesses);
    }
    let verify = ["verify", "--json", "--runs", "4", "--warmup", "0", "--a", "true", "--b", "true"];
    let output = run(&verify).unwrap();
    let report: VerifyReport = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((report.a.samples.len(), report.b.samples.len()), (4, 4), "{output:?}");
}

/// Who may not load BPF programs records nothing, is told so, and gets no file. Needs root, to
/// become somebody without rights; skipped where such a user cannot run this program.
#[test]
fn recording_without_rights_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("none.trace");
    let mut command = turbolane();
    command.args(["record", "-o"]).arg(&file).args(["--", "true"]).uid(NOBODY).gid(NOBODY);
    let Ok(output) = command.output() else {
        return eprintln!("skipped: no user without rights can run this");
    };
    assert_eq!(output.status.code(), Some(CANNOT), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("cannot record") && told.contains("why:"), "{told}");
    assert!(!file.exists());
}

/// Locks with boosts need P-states that this user may set: without rights, or on a machine that has
/// none, nothing is measured, and each method says why it is none. Needs root, to become such a
/// user; skipped where that user cannot run this program.
#[test]
fn boosting_locks_without_rights_fails() {
    let mut command = turbolane();
    command.args(["bench", "locks", "--boost", "--sections", "1000"]).uid(NOBODY).gid(NOBODY);
    let Ok(output) = command.output() else {
        return eprintln!("skipped: no user without rights can run this");
    };
    assert_eq!(output.status.code(), Some(CANNOT), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let words =
        ["cannot set P-states for --boost", "setspeed:", "limits:", "msr:", "leave --boost"];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
}
