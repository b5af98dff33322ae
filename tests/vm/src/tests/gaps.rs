// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--remigrate gap`: a task stays on its wide CPU where its next section begins soon, leaves by itself where none does,
//! and leaves at once when it has learned that.

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

/// Two tasks without an end want the wide CPUs all the time: who leaves has a reason to. The break-even time is long, for
/// an emulated machine is slow.
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
            let mut child = Child::fork(move || {
                load::connect();
                load::become_scalar();
                let code = child(section);
                // SAFETY: ends this child.
                unsafe { libc::_exit(code) }
            })?;
            let code = child.wait()?;
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

fn hinted() {
    let _ = turbolane::wide_begin(2);
    spin(Duration::from_micros(200));
    let _ = turbolane::wide_end();
}

fn called() {
    marked(|| spin(Duration::from_micros(200)));
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
