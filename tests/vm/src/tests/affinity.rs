// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity masks that leave the policy little choice (SYSTOR 3.2): no task starves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::guest::{Child, cpu, now_ns, set_affinity, spin, thread_time, work};
use crate::lane::{Lane, read, stat, stats, turbolane};
use crate::load::{self, Role, become_scalar};
use crate::samples::Samples;

/// Exit codes of [`odd_mask_worker`].
const LEFT_MASK: i32 = 10;
const WIDE_ON_SCALAR: i32 = 11;
const NO_MASK: i32 = 12;

/// Every mask of four CPUs, wide and scalar: the task runs within its mask, wide work on the
/// wide CPUs of it if there are any.
pub fn odd_masks() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let samples = Samples::shared();
    let _background = load::start(samples, &[(Role::WideHog, 2), (Role::ScalarHog, 2)])?;
    for bits in 1..16u32 {
        let mask: Vec<usize> = (0..4).filter(|cpu| bits >> cpu & 1 == 1).collect();
        for wide in [false, true] {
            let allowed = mask.clone();
            let mut child = Child::fork(move || odd_mask_worker(&allowed, wide))?;
            let what = match child.wait()? {
                0 => continue,
                LEFT_MASK => "left its mask".to_string(),
                WIDE_ON_SCALAR => "wide on a scalar CPU".to_string(),
                code => format!("ended with {code}"),
            };
            bail!("mask {mask:?}, wide {wide}: {what}");
        }
    }
    ensure!(stat(&stats()?, "degraded_ns")? > 0, "wide tasks without a wide CPU were not counted");
    lane.stop().map(drop)
}

fn odd_mask_worker(mask: &[usize], wide: bool) {
    let exit = |code| -> ! {
        // SAFETY: ends this child.
        unsafe { libc::_exit(code) }
    };
    if set_affinity(0, mask).is_err() {
        exit(NO_MASK);
    }
    load::connect();
    if wide {
        let _ = turbolane::wide_begin(2);
    } else {
        become_scalar();
    }
    let has_wide = mask.iter().any(|&cpu| cpu >= 2);
    for _ in 0..60 {
        spin(Duration::from_micros(500));
        let here = cpu();
        if !mask.contains(&here) {
            exit(LEFT_MASK);
        }
        if wide && has_wide && here < 2 {
            exit(WIDE_ON_SCALAR);
        }
    }
}

/// Under eight wide hogs and eight scalar hogs, tasks pinned to each CPU, of each type, all get
/// CPU time within a bound.
pub fn nobody_starves() -> Result<()> {
    const BOUND: Duration = Duration::from_secs(3);
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let samples = Samples::shared();
    let _load = load::start(samples, &[(Role::WideHog, 8), (Role::ScalarHog, 8)])?;
    std::thread::sleep(Duration::from_millis(500));
    for pinned in 0..4usize {
        for kind in 0..3 {
            let longest: &'static AtomicU64 = &Samples::shared().units;
            let mut child = Child::fork(move || {
                load::connect();
                let _ = set_affinity(0, &[pinned]);
                match kind {
                    0 => {}
                    1 => become_scalar(),
                    _ => drop(turbolane::wide_begin(2)),
                }
                longest_gap(longest);
            })?;
            ensure!(child.wait()? == 0, "the pinned task failed");
            let gap = Duration::from_nanos(longest.load(Ordering::Relaxed));
            ensure!(gap < BOUND, "kind {kind} pinned to CPU {pinned} waited {gap:?}");
        }
    }
    lane.stop().map(drop)
}

/// On a CPU that scalar and default tasks share, a scalar task that uses its slices is not kept
/// waiting by two that run for a moment at a time, though they are the heads of its queue again and
/// again. In the time of the guest's instructions, which a busy host does not stretch.
pub fn short_runs_starve_nobody() -> Result<()> {
    const BOUND: Duration = Duration::from_secs(1);
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let pinned = |job: fn()| {
        Child::fork(move || {
            load::connect();
            let _ = set_affinity(0, &[0]);
            job();
        })
    };
    let hog = || spin(Duration::from_secs(3600));
    let short = || {
        become_scalar();
        loop {
            work(500);
            // SAFETY: a plain system call.
            unsafe { libc::sched_yield() };
        }
    };
    let mut load = Vec::new();
    for _ in 0..6 {
        load.push(pinned(hog)?);
    }
    for _ in 0..2 {
        load.push(pinned(short)?);
    }
    let longest: &'static AtomicU64 = &Samples::shared().units;
    let mut child = Child::fork(move || {
        load::connect();
        let _ = set_affinity(0, &[0]);
        become_scalar();
        longest_gap(longest);
    })?;
    ensure!(child.wait()? == 0, "the task that uses its slices failed");
    let gap = Duration::from_nanos(longest.load(Ordering::Relaxed));
    ensure!(gap < BOUND, "it waited {gap:?} beside tasks with short runs");
    println!("longest wait beside tasks with short runs: {gap:?}");
    lane.stop().map(drop)
}

/// Work for several slices of CPU time, so that it has used some up; store the longest time that it
/// was not running.
fn longest_gap(longest: &AtomicU64) {
    const CPU_TIME: Duration = Duration::from_millis(60);
    let until = thread_time() + CPU_TIME;
    let mut last_ns = now_ns();
    while thread_time() < until {
        work(20_000);
        let now = now_ns();
        longest.fetch_max(now - last_ns, Ordering::Relaxed);
        last_ns = now;
    }
}

/// Affinity mode: hinted threads move, masks are restored at the end, even after kill -9.
pub fn affinity_mode() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGKILL] {
        let lane = Lane::spawn(&["--mode", "affinity", "--wide-cpus", "2-3"])?;
        crate::guest::wait_for("affinity mode is not up", Duration::from_secs(20), || {
            turbolane(&["ctl", "status"]).is_ok()
        })?;
        let wrong: &'static AtomicU64 = &Samples::shared().units;
        let worker = Child::fork(move || {
            let mut round = 0;
            // The daemon may not answer at once on a busy host.
            while turbolane::wide_status() != turbolane::Status::Affinity {
                std::thread::sleep(Duration::from_millis(50));
            }
            loop {
                let _ = turbolane::wide_begin(2);
                spin(Duration::from_millis(2));
                if round < 200 && cpu() < 2 {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
                let _ = turbolane::wide_end();
                spin(Duration::from_millis(2));
                round += 1;
            }
        })?;
        std::thread::sleep(Duration::from_millis(800));
        ensure!(
            wrong.load(Ordering::Relaxed) == 0,
            "wide sections on scalar CPUs in affinity mode"
        );
        lane.signal(signal);
        lane.wait()?;
        crate::guest::wait_for("the mask is not restored", Duration::from_secs(5), || {
            read(&format!("/proc/{}/status", worker.pid))
                .lines()
                .any(|l| l == "Cpus_allowed_list:\t0-3")
        })?;
    }
    Ok(())
}
