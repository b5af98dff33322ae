// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--remigrate gap`: a task stays on its wide CPU where its next section begins soon, leaves by
//! itself where none does, and leaves at once when it has learned that. `--remigrate last-syscall`:
//! it leaves in the system call after which its section ends, and in no other.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{Child, cpu, spin};
use crate::lane::{Lane, set, stats};
use crate::load;
use crate::probe_site::{self, marked};
use crate::tests::placement::{wait_until, wide_hog};

/// Sections of a child with short gaps.
const SECTIONS: u32 = 100;
/// Long gaps that teach, and that show what was learned.
const LONG: u32 = 20;
/// Longer than `--rest-below` below.
const GAP: Duration = Duration::from_millis(5);

/// By hints and by marks, the latter with sessions and the bell where the kernel has them.
pub fn stays_and_leaves() -> Result<()> {
    stays_and_leaves_by(&[])
}

/// The same as on older kernels.
pub fn stays_and_leaves_without_sessions() -> Result<()> {
    stays_and_leaves_by(&["--fault", "no-sessions"])
}

/// Two tasks without an end want the wide CPUs all the time: who leaves has a reason to. The
/// break-even time is long, for an emulated machine is slow.
fn stays_and_leaves_by(more: &[&str]) -> Result<()> {
    let mark = probe_site::mark();
    let args = ["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark, "--rest-below", "2ms"];
    let lane = Lane::start(&[&args[..], more].concat())?;
    let _hogs = (0..2).map(|_| wide_hog()).collect::<Result<Vec<_>>>()?;
    for (name, section) in [("hints", hinted as fn()), ("marks", called)] {
        for (remigrate, child) in
            [("hint", commutes as fn(fn()) -> i32), ("gap", stays), ("gap", leaves)]
        {
            set(&[&format!("remigrate={remigrate}")])?;
            let code = exit_code(move || child(section))?;
            let why = match code {
                0 => continue,
                35 => "a task did not leave after a section, without the rule",
                36 => "a task with short gaps commutes",
                37 => "a task did not leave in a long gap",
                38 => "a task did not learn that its gaps are long",
                _ => "the child failed",
            };
            ensure!(false, "{name}, {remigrate}: {why} ({code}); {}", stats()?);
        }
    }
    lane.stop().map(drop)
}

/// What a scalar task of its own returns, which gives hints.
fn exit_code(task: impl FnOnce() -> i32) -> Result<i32> {
    let mut child = Child::fork(move || {
        load::connect();
        load::become_scalar();
        let code = task();
        // SAFETY: ends this child.
        unsafe { libc::_exit(code) }
    })?;
    child.wait()
}

fn hinted() {
    in_hints(&|| spin(Duration::from_micros(200)));
}

fn called() {
    in_mark(&|| spin(Duration::from_micros(200)));
}

fn in_hints(code: &dyn Fn()) {
    let _ = turbolane::wide_begin(2);
    code();
    let _ = turbolane::wide_end();
}

fn in_mark(code: &dyn Fn()) {
    marked(code);
}

/// In how many of so many gaps the task is on a wide CPU when they begin; each is filled by `then`.
fn stayed(section: fn(), nr: u32, then: impl Fn()) -> u32 {
    let is_wide = |_| {
        section();
        let is_wide = cpu() >= 2;
        then();
        u32::from(is_wide)
    };
    (0..nr).map(is_wide).sum()
}

fn commutes(section: fn()) -> i32 {
    if stayed(section, SECTIONS, || ()) < SECTIONS / 4 { 0 } else { 35 }
}

fn stays(section: fn()) -> i32 {
    if stayed(section, SECTIONS, || ()) > SECTIONS * 3 / 4 { 0 } else { 36 }
}

fn leaves(section: fn()) -> i32 {
    let until_it_left = || {
        wait_until(37, || cpu() < 2);
        spin(GAP);
    };
    stayed(section, LONG, until_it_left);
    if stayed(section, LONG, until_it_left) < LONG / 2 { 0 } else { 38 }
}

/// A section around some code.
type Section = fn(&dyn Fn());
/// What a child does with sections: its exit code.
type InSections = fn(Section) -> i32;

/// Two tasks without an end want the wide CPUs all the time, so a task that may leave has a reason
/// to. A tail is short below an eighth of `--rest-below`, which is long, for an emulated machine is
/// slow.
pub fn leaves_in_last_syscalls() -> Result<()> {
    let mark = probe_site::mark();
    let args = ["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark, "--rest-below", "8ms"];
    let lane = Lane::start(&args)?;
    let _hogs = (0..2).map(|_| wide_hog()).collect::<Result<Vec<_>>>()?;
    let sections: [(&str, Section); 2] = [("hints", in_hints), ("marks", in_mark)];
    for (name, section) in sections {
        let cases: [(&str, InSections); 3] =
            [("hint", keeps_the_cpu), ("last-syscall", writes), ("last-syscall", reads)];
        for (remigrate, child) in cases {
            set(&[&format!("remigrate={remigrate}")])?;
            let code = exit_code(move || child(section))?;
            let why = match code {
                0 => continue,
                35 => "a task left in a system call, without the rule",
                36 => "a task did not learn that its section ends after the system call",
                37 => "a task left in a system call, with wide code after it",
                _ => "the child failed",
            };
            ensure!(false, "{name}, {remigrate}: {why} ({code}); {}", stats()?);
        }
    }
    lane.stop().map(drop)
}

/// After how many of so many system calls the task is on a scalar CPU, in sections with so much
/// wide code around them.
fn left(section: Section, before: Duration, after: Duration) -> u32 {
    let has_left = std::cell::Cell::new(0);
    for _ in 0..SECTIONS {
        section(&|| {
            spin(before);
            // SAFETY: a system call without arguments.
            unsafe { libc::syscall(libc::SYS_getppid) };
            has_left.set(has_left.get() + u32::from(cpu() < 2));
            spin(after);
        });
    }
    has_left.get()
}

const WIDE: Duration = Duration::from_micros(200);

fn keeps_the_cpu(section: Section) -> i32 {
    if left(section, WIDE, Duration::ZERO) < SECTIONS / 4 { 0 } else { 35 }
}

fn writes(section: Section) -> i32 {
    left(section, WIDE, Duration::ZERO);
    if left(section, WIDE, Duration::ZERO) > SECTIONS / 2 { 0 } else { 36 }
}

fn reads(section: Section) -> i32 {
    left(section, WIDE, 10 * WIDE);
    if left(section, WIDE, 10 * WIDE) < SECTIONS / 4 { 0 } else { 37 }
}
