// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines and lanes for the tests: a folder with the few files that are read, and an answer of a
//! lane with two tasks.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;

use report::lane::{CpuTimes, LaneStats, LaneStatus, LaneTask, LaneTasks};
use tempfile::TempDir;

use crate::sample::LaneAnswer;

/// A machine below a folder.
pub(crate) struct Machine {
    root: TempDir,
    cpus: Mutex<Vec<(u32, u64, u64)>>,
}

impl Machine {
    /// One that shows nothing.
    pub(crate) fn new() -> Self {
        Machine { root: tempfile::tempdir().unwrap(), cpus: Mutex::default() }
    }

    pub(crate) fn source(&self) -> hw::Rooted {
        hw::Rooted::new(self.root.path())
    }

    fn write(&self, path: &str, text: &str) -> &Self {
        let path: PathBuf = self.root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// A CPU with so many busy and idle clock ticks, in place of what it had.
    pub(crate) fn cpu(&self, cpu: u32, busy_ticks: u64, idle_ticks: u64) -> &Self {
        let mut cpus = self.cpus.lock().unwrap();
        cpus.retain(|(other, ..)| *other != cpu);
        cpus.push((cpu, busy_ticks, idle_ticks));
        let line = |(cpu, busy, idle): &(u32, u64, u64)| {
            format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n")
        };
        let text: String = cpus.iter().map(line).collect();
        self.write("proc/stat", &text)
    }

    pub(crate) fn frequency(&self, cpu: u32, khz: u32) -> &Self {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        self.write(&path, &format!("{khz}\n"))
    }

    /// A thread with so many clock ticks of CPU time.
    pub(crate) fn task(&self, pid: u32, tid: u32, name: &str, ticks: u64) -> &Self {
        let stat = format!(
            "{tid} ({name}) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77 0 0 0 0 0 0 0 0 0 0 0 0 \
             0 0 0 0 0 1 0 0"
        );
        self.write(&format!("proc/{pid}/task/{tid}/stat"), &stat)
    }
}

/// A lane on CPU 0 (scalar) and CPU 1 (wide).
pub(crate) fn answer() -> LaneAnswer {
    let cpu = |cpu, license_level| CpuTimes {
        cpu,
        license_level,
        wide_run_ns: 0,
        scalar_run_ns: 0,
        default_run_ns: 0,
    };
    let status = LaneStatus {
        pid: 42,
        mode: "scx".into(),
        uptime_ns: 61_000_000_000,
        wide_cpus: "1".into(),
        scalar_cpus: "0".into(),
        standby: None,
        pause_left_ns: None,
        marks: vec![],
        lost_marks: Vec::new(),
        scope: Vec::new(),
        cpus: vec![cpu(0, 0), cpu(1, 3)],
    };
    let counted = Some(0);
    let stats = LaneStats {
        migrations: counted,
        migrations_to_wide: counted,
        migrations_from_wide: counted,
        type_changes: counted,
        hint_events: counted,
        mark_events: counted,
        trap_events: counted,
        size_changes: counted,
        ..LaneStats::default()
    };
    let tasks = LaneTasks { now_ns: 1, tasks: Some(vec![]), left_out: 0 };
    LaneAnswer { status, stats, tasks }
}

/// A task of the lane that has just started.
pub(crate) fn task(tid: u32, name: &str) -> LaneTask {
    LaneTask { tid, pid: tid, name: name.into(), start_ns: 5, ..LaneTask::default() }
}
