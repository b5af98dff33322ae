// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many short lives at once, and the kernel's own threads under load.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::guest::{Child, scx_state, spin};
use crate::lane::{Lane, stat, stats};
use crate::load::{self, Ending, Role, Source};
use crate::samples::Samples;

/// Forks and execs from wide and scalar parents while a load runs.
pub fn fork_and_exec() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let samples = Samples::shared();
    let _load = load::start(samples, &[(Role::Mixed(Source::Hint, Ending::Explicit), 4)])?;
    for wide in [true, false] {
        let mut parents = Vec::new();
        for _ in 0..3 {
            parents.push(Child::fork(move || {
                if wide {
                    let _ = turbolane::wide_begin(2);
                }
                for i in 0..25 {
                    let ok = if i % 5 == 0 {
                        Command::new("true")
                            .stdin(Stdio::null())
                            .status()
                            .is_ok_and(|s| s.success())
                    } else {
                        Child::fork(|| spin(Duration::from_micros(100)))
                            .and_then(|mut c| c.wait())
                            .is_ok_and(|c| c == 0)
                    };
                    if !ok {
                        // SAFETY: ends this child.
                        unsafe { libc::_exit(1) }
                    }
                }
            })?);
        }
        for parent in &mut parents {
            ensure!(parent.wait()? == 0, "a fork or exec failed (wide parents: {wide})");
        }
    }
    ensure!(scx_state() == "enabled", "the scheduler is gone");
    lane.stop().map(drop)
}

/// Kernel threads get their work done on a machine full of hogs: writeback, RCU, workqueues.
pub fn kernel_threads() -> Result<()> {
    const BOUND: Duration = Duration::from_secs(20);
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let samples = Samples::shared();
    let _load = load::start(samples, &[(Role::WideHog, 6), (Role::ScalarHog, 6)])?;
    let start = Instant::now();
    for i in 0..5 {
        fs::write(format!("/tmp/file{i}"), vec![1u8; 1 << 20])?;
        // SAFETY: no arguments. It waits for the flusher threads.
        unsafe { libc::sync() };
        // A membarrier over all CPUs waits for an RCU grace period.
        // SAFETY: MEMBARRIER_CMD_GLOBAL takes no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, 1, 0, 0) };
    }
    ensure!(start.elapsed() < BOUND, "kernel threads needed {:?}", start.elapsed());
    ensure!(scx_state() == "enabled", "the watchdog ended the scheduler");
    ensure!(stat(&stats()?, "wide_runs")? > 0, "no wide work ran");
    lane.stop().map(drop)
}
