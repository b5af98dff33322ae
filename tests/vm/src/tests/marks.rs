// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks that ignore calls with a small argument: an ignored call makes no task wide, and its
//! return ends no section, however calls are nested. And what a task does at the end of its
//! section.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{Child, cpu, spin};
use crate::lane::{Lane, stat, stats, turbolane};
use crate::load;
use crate::probe_site::{self, marked_with};
use crate::tests::placement::{wait_until, wide_hog};

/// The mark's least argument; one that counts; and two that do not, the second with rubbish above
/// its int.
const LEAST: u64 = 1024;
const LONG: u64 = 4096;
const SHORT: u64 = 5;
const SHORT_INT: u64 = 0xdead_beef_0000_0005;

/// Nested calls in all: more than the kernel reports the returns of.
const DEEP: u32 = 70;

/// How often everything is called.
const ROUNDS: u64 = 10;
/// Calls that count in a round of [`calls`].
const CALLS: u64 = 5;

fn mark() -> String {
    format!("{}@2,min-arg3={LEAST}", probe_site::mark())
}

/// With sessions, where the kernel has them.
pub fn filtered() -> Result<()> {
    filtered_by(&[])
}

/// As on kernels before 6.13, where each task remembers its calls.
pub fn filtered_without_sessions() -> Result<()> {
    filtered_by(&["--fault", "no-sessions"])
}

/// Two tasks without an end want the wide CPUs all the time: scalar code has no place there.
fn filtered_by(more: &[&str]) -> Result<()> {
    let mark = mark();
    let args = ["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark];
    let lane = Lane::start(&[&args[..], more].concat())?;
    ensure!(
        turbolane(&["ctl", "status"])?.contains(&mark),
        "the mark is not shown as it was given"
    );
    let _hogs = (0..2).map(|_| wide_hog()).collect::<Result<Vec<_>>>()?;
    let mut child = Child::fork(|| {
        load::connect();
        load::become_scalar();
        for _ in 0..ROUNDS {
            wait_until(30, || cpu() < 2);
            calls(&|| stays(31, |cpu| cpu < 2), &|| stays(32, |cpu| cpu >= 2), &|| {
                wait_until(33, || cpu() < 2)
            });
        }
    })?;
    let code = child.wait()?;
    let counted = stats()?;
    ensure!(
        code == 0,
        "{} ({code}); {counted}",
        match code {
            30 => "a scalar task stays on a wide CPU",
            31 => "an ignored call made its task wide",
            32 => "a section was on a scalar CPU, or ended by the return of an ignored call",
            33 => "a section did not end",
            _ => "the child failed",
        }
    );
    let (events, expected) = (stat(&counted, "mark_events")?, 2 * CALLS * ROUNDS);
    ensure!(events == expected, "{events} events of marks instead of {expected}: {counted}");
    lane.stop().map(drop)
}

/// Calls of every nesting; what is so in scalar code, in wide code, and just after a section.
fn calls(scalar: &dyn Fn(), wide: &dyn Fn(), ended: &dyn Fn()) {
    for short in [SHORT, SHORT_INT, LEAST - 1] {
        marked_with(short, scalar);
    }
    scalar();
    marked_with(LEAST, wide);
    ended();
    // an ignored call in a section
    marked_with(LONG, || {
        marked_with(SHORT, wide);
        wide();
    });
    ended();
    // a section in an ignored call, with another one in it
    marked_with(SHORT, || {
        marked_with(LONG, || {
            marked_with(SHORT, || marked_with(LONG, wide));
            wide();
        });
        ended();
    });
    ended();
    // deeper than the kernel follows
    marked_with(LONG, || {
        nest(DEEP, wide);
        wide();
    });
    ended();
}

/// So many ignored calls inside of each other.
fn nest(depth: u32, innermost: &dyn Fn()) {
    match depth {
        0 => innermost(),
        _ => marked_with(SHORT, || nest(depth - 1, innermost)),
    }
}

/// Ends this child with the code if something is not so all the time.
fn stays(code: i32, is_so: impl Fn(usize) -> bool) {
    for _ in 0..5 {
        if !is_so(cpu()) {
            // SAFETY: ends this child.
            unsafe { libc::_exit(code) }
        }
        spin(Duration::from_micros(200));
    }
}

/// What `vmtests marked-calls` does: calls to be recorded.
pub fn make_calls() -> Result<()> {
    (0..ROUNDS).for_each(|_| calls(&|| (), &|| (), &|| ()));
    Ok(())
}

/// A recording holds the calls that count, with their returns.
pub fn recorded() -> Result<()> {
    let mark = mark();
    let file = "/tmp/filtered.trace";
    turbolane(&["record", "-o", file, "--mark", &mark, "--", "vmtests", "marked-calls"])?;
    let summary: Value = serde_json::from_str(&turbolane(&["trace", file, "--json"])?)?;
    let calls = summary["marks"][0]["calls"].as_u64().context("no calls")?;
    ensure!(calls == CALLS * ROUNDS, "{calls} calls recorded: {summary}");
    ensure!(summary["unpaired_returns"] == 0, "a return has no call: {summary}");
    Ok(())
}

/// Sections of the task in [`guests_stay`].
const SECTIONS: u32 = 200;

/// Where scalar work keeps all CPUs busy and nothing else is wide, a task goes on on the wide CPU
/// when its section is over, and has nowhere to go for the next one.
pub fn guests_stay() -> Result<()> {
    let mark = probe_site::mark();
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3", "--mark", &mark])?;
    let hog = || {
        Child::fork(|| {
            load::connect();
            load::become_scalar();
            spin(Duration::from_secs(600));
        })
    };
    let _hogs = (0..6).map(|_| hog()).collect::<Result<Vec<_>>>()?;
    let mut child = Child::fork(|| {
        load::connect();
        load::become_scalar();
        spin(Duration::from_secs(1));
        let mut stayed = 0;
        for _ in 0..SECTIONS {
            marked_with(LONG, || stays(32, |cpu| cpu == 3));
            spin(Duration::from_micros(100));
            stayed += u32::from(cpu() == 3);
        }
        // SAFETY: ends this child.
        unsafe { libc::_exit(if stayed > SECTIONS / 2 { 0 } else { 34 }) }
    })?;
    let code = child.wait()?;
    let counted = stats()?;
    ensure!(code != 32, "a section was on a scalar CPU; {counted}");
    ensure!(code == 0, "the task left the wide CPU for nothing ({code}); {counted}");
    lane.stop().map(drop)
}
