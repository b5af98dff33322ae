// SPDX-License-Identifier: MIT OR Apache-2.0
//! Placement by power scores, on the test PMU (kmod/test/turbolane_pmu.c): programs that say
//! nothing are distinguished by the licence levels that the CPUs have while they run.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::fake_pmu::{FakePmu, Turns, Unit, counters};
use crate::guest::{Child, nr_cpus, set_affinity, spin, wait_for};
use crate::lane::{Lane, stat, stats, turbolane};
use crate::point::Running;

const WIDE_CPU: u32 = 3;
const LIMIT: Duration = Duration::from_secs(60);
/// What shares of time are taken over.
const WATCH: Duration = Duration::from_secs(1);
/// Much shorter than a level is held, and than 1 ms, by which a run is long.
const SHORT: Duration = Duration::from_micros(100);

/// Everything, in the order in which it builds on each other.
pub fn place_tasks() -> Result<()> {
    no_counters_fails()?;
    // nearly the millisecond by which a run is long, so that a level outlives a round of turns
    let pmu = FakePmu::load(Duration::from_micros(20), Duration::from_micros(950))?;
    let without = share_on_scalar_cpus(&["--scores", "off"], 0)?;
    let with = share_on_scalar_cpus(&["--scores", "auto"], 1)?;
    ensure!(
        without > 0.1 && with < without / 10.0,
        "at level 2 on scalar CPUs: {with} of the time with scores, {without} without"
    );
    another_cause_exists()?;
    code_that_cannot_is_not_blamed()?;
    pmu.unload()
}

/// Without counters, `--scores on` is refused with the reason, and nothing is taken over; a run
/// that leaves it open does without.
fn no_counters_fails() -> Result<()> {
    let end = Lane::spawn(&["--mode", "scx", "--scores", "on"])?.wait()?;
    ensure!(end.code == 77 && end.stderr.contains("no core PMU"), "{end:?}");
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let _task = Child::fork(|| spin(LIMIT))?;
    std::thread::sleep(WATCH / 2);
    let top = top()?;
    let why = top["power_score_why"].as_str().context("scores without counters")?;
    ensure!(why.contains("no counters"), "{why}");
    lane.stop().map(drop)
}

/// One program that asks for level 2 all the time, and as many that ask for nothing as there are
/// other CPUs, and one more: the share of time that scalar CPUs spend at level 2. `scored`: how
/// many tasks must be seen as what they are.
fn share_on_scalar_cpus(args: &[&str], scored: usize) -> Result<f64> {
    let lane = Lane::start(&[&["--mode", "scx", "--wide-cpus", "1"], args].concat())?;
    let _turns = Turns::begin()?;
    let offender = offender()?;
    let victims = (0..nr_cpus()).map(|_| Child::fork(|| spin(LIMIT * 10)));
    let victims = victims.collect::<Result<Vec<_>>>()?;
    let seen = || {
        let top = top().ok()?;
        let wide = |child: &Child| Some(task(&top, child)?["type"] == "wide");
        Some((wide(&offender)?, victims.iter().filter_map(wide).any(|wide| wide)))
    };
    if scored > 0 {
        wait_for("the offender is not found", LIMIT, || seen() == Some((true, false)))?;
    } else {
        std::thread::sleep(WATCH);
    }
    let share = level2_share(0..WIDE_CPU)?;
    let top = top()?;
    let score = |child| task(&top, child).and_then(|task| task["power_score"].as_f64());
    let (of_offender, of_victims): (_, Vec<_>) =
        (score(&offender), victims.iter().map(score).collect());
    if scored > 0 {
        ensure!(
            of_offender > Some(1.7),
            "the score of the offender, {}, is {of_offender:?}: {}",
            offender.pid,
            in_short(&top)
        );
        ensure!(
            of_victims.iter().all(|&score| score < Some(0.3)),
            "the others' scores are {of_victims:?}"
        );
        // the others may use the wide CPU too: they count there for one task, their part of four on
        // four CPUs
        let wide_share = level2_share(WIDE_CPU..WIDE_CPU + 1)?;
        ensure!(
            wide_share > 0.4,
            "the wide CPU has its level {wide_share} of the time: {}; {}",
            stats()?,
            in_short(&top)
        );
        ensure!(stat(&stats()?, "score_events")? >= scored as u64, "no event was counted");
    } else {
        ensure!(of_offender.is_none(), "a score that nobody feeds: {of_offender:?}");
        ensure!(seen() == Some((false, false)), "somebody is wide, and nothing told so");
    }
    drop((offender, victims));
    lane.stop()?;
    Ok(share)
}

/// On one CPU: who runs for short times behind another's wide code finds its level, and is not the
/// cause; a cause that goes on to scalar code is none any more.
fn another_cause_exists() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let _turns = Turns::begin()?;
    let reformed = Child::fork(|| {
        let asks = |level, time| Unit::open().and_then(|unit| unit.execute_for(level, time));
        _ = asks(2, 4 * WATCH).and_then(|()| asks(0, LIMIT * 10));
    })?;
    let bystander = Child::fork(|| {
        _ = set_affinity(0, &[WIDE_CPU as usize]);
        loop {
            std::thread::sleep(10 * SHORT);
            spin(SHORT);
        }
    })?;
    let is_wide = |child: &Child| Some(task(&top().ok()?, child)?["type"] == "wide");
    wait_for("the offender is not found", LIMIT, || is_wide(&reformed) == Some(true))?;
    std::thread::sleep(WATCH);
    let top = top()?;
    let blamed = task(&top, &bystander).context("the bystander does not run")?;
    // None: no run of it said anything.
    ensure!(
        blamed["power_score"].as_f64() < Some(0.5) && blamed["type"] != "wide",
        "blamed for another's level: {blamed}"
    );
    wait_for("it is not forgiven", LIMIT, || is_wide(&reformed) == Some(false))?;
    drop((reformed, bystander));
    lane.stop().map(drop)
}

/// When this exists, the shell ends its loop.
const LEAVES: &str = "/tmp/shell-leaves";
const SHELL: &str = "while [ ! -e /tmp/shell-leaves ]; do echo 2; done > /dev/turbolane_pmu";

/// A shell on a CPU whose level is 2 all the time, as if a sibling asked for it: its files have no
/// such code, so that is not its doing. One that has such code is blamed as before, and so is what
/// the shell executes in its place.
fn code_that_cannot_is_not_blamed() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let _turns = Turns::begin()?;
    let offender = offender()?;
    let blamed = Running::spawn(
        Command::new("sh").args(["-c", &format!("{SHELL}; exec vmtests asks-for-level-2")]),
    )?;
    let seen = |pid: u32| {
        let top = top().ok()?;
        let task = top["tasks"].as_array()?.iter().find(|task| task["tid"] == pid)?;
        Some((task["type"] == "wide", task["power_score"].as_f64()?))
    };
    let is_wide = || seen(offender.pid as u32).is_some_and(|(wide, _)| wide);
    wait_for("the offender is not found", LIMIT, is_wide)?;
    let mut last = None;
    let is_free =
        |last: Option<(bool, f64)>| last.is_some_and(|(wide, score)| !wide && score < 0.3);
    let free = wait_for("the shell is blamed", LIMIT, || {
        last = seen(blamed.pid());
        is_free(last)
    });
    free.with_context(|| format!("wide, score: {last:?}"))?;
    std::thread::sleep(WATCH);
    let later = seen(blamed.pid());
    ensure!(is_free(later), "blamed again: {later:?}");
    wait_for("the offender is free", LIMIT, is_wide)?;
    fs::write(LEAVES, "")?;
    let is_found = || seen(blamed.pid()).is_some_and(|(wide, _)| wide);
    wait_for("what the shell executes is not blamed", LIMIT, is_found)?;
    drop((offender, blamed));
    lane.stop().map(drop)
}

/// Asks for level 2 all the time, and says nothing about it.
fn offender() -> Result<Child> {
    Child::fork(|| _ = ask_for_level_2())
}

/// A program that does so.
pub fn ask_for_level_2() -> Result<()> {
    Unit::open()?.execute_for(2, LIMIT * 10)
}

/// Share of these CPUs' time, while they are not idle, at level 2.
fn level2_share(cpus: std::ops::Range<u32>) -> Result<f64> {
    let mut counters = counters()?;
    let mut sums = || {
        cpus.clone().try_fold([0, 0], |[all, high], cpu| {
            let cycles = counters.read(cpu)?;
            anyhow::Ok([all + cycles.iter().sum::<u64>(), high + cycles[2]])
        })
    };
    let before = sums()?;
    std::thread::sleep(WATCH);
    let after = sums()?;
    Ok((after[1] - before[1]) as f64 / (after[0] - before[0]) as f64)
}

fn top() -> Result<Value> {
    // Longer than a task waits for its turn on a CPU that it shares (200 ms, policy/turns.h): all
    // that are busy are in it.
    let text = turbolane(&["top", "--once", "--json", "--interval", "500ms"])?;
    Ok(serde_json::from_str(&text)?)
}

/// The tasks that `turbolane top` lists, a line each.
fn in_short(top: &Value) -> String {
    let fields = ["tid", "name", "type", "power_score", "cpu", "cpu_pct"];
    let tasks = top["tasks"].as_array().into_iter().flatten();
    let lines = tasks.map(|task| fields.map(|field| task[field].to_string()).join(" "));
    lines.collect::<Vec<_>>().join("\n")
}

/// What `turbolane top` says of a task.
fn task<'a>(top: &'a Value, child: &Child) -> Option<&'a Value> {
    top["tasks"].as_array()?.iter().find(|task| task["tid"] == child.pid)
}
