// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines and sets at the edge: one CPU, two, no wide CPU, all wide.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::trap::all_cpus;
use crate::guest::{scx_state, set_affinity, set_real_time, wait_for};
use crate::lane::{Lane, plug, set, stat, stats, status_becomes, turbolane};
use crate::load::{self, Ending, Role, Source};
use crate::samples::{Phase, Samples};

const ALL_ROLES: [(Role, usize); 4] = [
    (Role::WideHog, 2),
    (Role::ScalarHog, 2),
    (Role::DefaultHog, 2),
    (Role::Mixed(Source::Hint, Ending::Explicit), 2),
];

/// Everyone gets on under this set; returns the samples.
pub(super) fn everyone_runs(what: &str) -> Result<&'static Samples> {
    let samples = Samples::shared();
    load::run(samples, Duration::from_millis(300), Duration::from_secs(2), &ALL_ROLES)?;
    for phase in [Phase::Wide, Phase::Scalar, Phase::Default] {
        ensure!(samples.total(phase) > 0, "{what}: no {phase:?} work was done: {}", samples.text());
    }
    Ok(samples)
}

/// One CPU, which is wide by `auto`, scalar by `0`: all types share it.
pub fn one_cpu() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "auto"])?;
    everyone_runs("one CPU, auto")?;
    for wide in ["wide-cpus=0", "wide-cpus=1"] {
        set(&[wide])?;
        everyone_runs(&format!("one CPU, {wide}"))?;
    }
    lane.stop().map(drop)
}

/// Two CPUs, one of them wide.
pub fn two_cpus() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let samples = everyone_runs("two CPUs")?;
    ensure!(samples.on(Phase::Wide, &[0]) == 0, "wide on CPU 0: {}", samples.text());
    lane.stop().map(drop)
}

/// No wide CPU: wide work runs where it is, counted as degraded. All wide, after the scalar CPUs
/// were taken away: nothing is kept apart.
pub fn all_wide_and_none() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "0"])?;
    everyone_runs("no wide CPU")?;
    ensure!(stat(&stats()?, "degraded_ns")? > 0, "degraded time was not counted");
    set(&["wide-cpus=cpu:0,1"])?;
    plug(2, false)?;
    plug(3, false)?;
    let samples = everyone_runs("all CPUs wide")?;
    ensure!(samples.on(Phase::Scalar, &[0, 1]) > 0, "no scalar work: {}", samples.text());
    plug(2, true)?;
    set(&["wide-cpus=auto"])?;
    everyone_runs("auto")?;
    lane.stop().map(drop)
}

/// With `auto`, a part of AMD's keeps nothing apart, for its clock does not fall; everyone runs.
pub fn stands_by_without_levels() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "auto"])?;
    everyone_runs("standing by")?;
    status_becomes("stands by: no licence level of this CPU lowers its clock")?;
    let stats = stats()?;
    ensure!(stat(&stats, "standing_by")? == 1 && stat(&stats, "wide_cpus")? == 0, "{stats}");
    lane.stop().map(drop)
}

/// One of Intel's, of which nothing is known, is tried: sections between scalar code get CPUs of
/// their own. When they have ended there is nothing to win, and the CPUs are given back.
pub fn keeps_apart_with_levels() -> Result<()> {
    // Watches every system call while CPUs are wide, and none while it is away.
    let options = ["--mode", "scx", "--wide-cpus", "auto", "--remigrate", "syscall-entry"];
    let lane = Lane::start(&options)?;
    becomes_wide_for_sections(&all_cpus(), "3")?;
    let apart = system_call_links(lane.pid())?;
    status_becomes("stands by: ")?;
    ensure!(stat(&stats()?, "wide_cpus")? == 0, "wide CPUs for nothing");
    ensure!(apart == 2, "{apart} programs at system calls while CPUs are wide");
    let away = links_while_away(lane.pid())?;
    ensure!(away.iter().all(|links| *links == 0), "at system calls while it is away: {away:?}");
    lane.stop().map(drop)
}

/// The same at some moments at which the kernel's own scheduler is at work. Between them it may
/// have come back to look.
fn links_while_away(pid: i32) -> Result<Vec<usize>> {
    let (mut found, start) = (Vec::new(), Instant::now());
    while found.len() < 20 {
        ensure!(start.elapsed() < Duration::from_secs(60), "it was away {} times", found.len());
        std::thread::sleep(Duration::from_millis(100));
        let is_away = || scx_state() == "disabled";
        let (before, links, after) = (is_away(), system_call_links(pid)?, is_away());
        if before && after {
            found.push(links);
        }
    }
    Ok(found)
}

/// BPF programs that this process has attached to the entry and exit of system calls.
fn system_call_links(pid: i32) -> Result<usize> {
    let mut links = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // Some are closed meanwhile.
        let about = fs::read_to_string(entry?.path()).unwrap_or_default();
        links += usize::from(about.lines().any(|line| line.starts_with("tp_name:\tsys_")));
    }
    Ok(links)
}

/// Where all wide code is bound to the first CPUs, the last of these becomes wide.
pub fn wide_where_it_is_bound() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "auto"])?;
    becomes_wide_for_sections(&[0, 1, 2], "2")?;
    lane.stop().map(drop)
}

/// Sections between scalar code, bound to these CPUs: these CPUs become wide for them.
fn becomes_wide_for_sections(bound_to: &[usize], wide_cpus: &str) -> Result<()> {
    let roles = [(Role::ScalarHog, 1), (Role::Mixed(Source::Hint, Ending::Explicit), 3)];
    set_affinity(0, bound_to)?;
    let children = load::start(Samples::shared(), &roles);
    set_affinity(0, &all_cpus())?;
    let mut children = children?;
    let line = ["wide", "CPUs", wide_cpus];
    let mut last = String::new();
    // Beside other guests an attempt may seem to cost more than it saves; there is another soon.
    let wide = wait_for(&line.join(" "), Duration::from_secs(90), || {
        last = turbolane(&["ctl", "status"]).unwrap_or_default();
        last.lines().any(|shown| shown.split_whitespace().eq(line))
    });
    for child in &mut children {
        child.kill();
        child.wait()?;
    }
    wide.with_context(|| last)
}

/// An application's figure that is better while CPUs are wide has wide code separated; one that is
/// worse has not; and without a figure the scheduler stands by.
pub fn follows_a_figure() -> Result<()> {
    const FIGURE: &str = "/tmp/figure";
    let lane = Lane::start(&["--mode", "scx", "--goal", FIGURE, "--goal-every", "200ms"])?;
    status_becomes("stands by: --goal is missing: No such file")?;
    let separated =
        figure_until(FIGURE, 1_050, "separates wide code: separation makes --goal better")?;
    fs::remove_file(FIGURE)?;
    status_becomes("stands by: --goal is missing")?;
    ensure!(stat(&stats()?, "wide_cpus")? == 0, "wide CPUs without a figure");
    let apart = figure_until(FIGURE, 950, "stands by: separation makes --goal worse")?;
    ensure!(separated > 0 && apart > 0, "it was not tried: {separated}, {apart}");
    lane.stop().map(drop)
}

/// Who stands by leaves the machine as it was found: tasks that have a CPU each, and were moved
/// while wide code was apart, are where the kernel had them.
pub fn goes_home() -> Result<()> {
    const ROUNDS: usize = 25;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--fault", "leaves"])?;
    let mut children = load::start(Samples::shared(), &[(Role::ScalarHog, 2), (Role::WideHog, 2)])?;
    let pids: Vec<u32> = children.iter().map(|child| child.pid as u32).collect();
    // Who watches is not late, however busy the CPUs are.
    set_real_time(0, 1)?;
    let is_away = || scx_state() == "disabled";
    wait_for("the scheduler to go", Duration::from_secs(30), is_away)?;
    let (mut rounds, mut moved, mut home) = (0, 0, 0);
    while rounds < ROUNDS {
        // Where the scheduler finds them. Once it is being enabled the kernel moves them about.
        let found = samples_while("disabled", &pids)?.pop();
        samples_while("enabling", &pids)?;
        let apart = samples_while("enabled", &pids)?;
        samples_while("disabling", &pids)?;
        let left = cpus_of(&pids)?;
        let Some(found) = found else { continue };
        rounds += 1;
        for (task, &cpu) in found.iter().enumerate() {
            moved += usize::from(apart.iter().any(|cpus| cpus[task] != cpu));
            home += usize::from(left[task] == cpu);
        }
    }
    for child in &mut children {
        child.kill();
        child.wait()?;
    }
    let nr = ROUNDS * pids.len();
    println!("of {nr} tasks {moved} were moved, {home} were home after that");
    ensure!(10 * moved > nr, "of {nr} tasks {moved} were moved");
    ensure!(10 * home > 6 * nr, "of {nr} tasks {home} went home");
    lane.stop().map(drop)
}

/// Where these tasks run.
fn cpus_of(pids: &[u32]) -> Result<Vec<usize>> {
    pids.iter().map(|pid| Ok(hw::task::last_cpu(*pid)?)).collect()
}

/// Where they run, again and again while sched_ext is in this state; not the last sample, which
/// may be of a moment after that.
fn samples_while(state: &str, pids: &[u32]) -> Result<Vec<Vec<usize>>> {
    let (mut samples, start) = (Vec::new(), Instant::now());
    while scx_state() == state {
        ensure!(start.elapsed() < Duration::from_secs(30), "sched_ext stays {state}");
        samples.push(cpus_of(pids)?);
        std::thread::sleep(Duration::from_micros(500));
    }
    samples.pop();
    Ok(samples)
}

/// Writes a figure of about 1,000, or `wide` while CPUs are wide, until the status says this.
/// Returns how often CPUs were wide.
fn figure_until(path: &str, wide: u64, says: &str) -> Result<u64> {
    let (mut nr_wide, mut round, mut last) = (0, 0, String::new());
    wait_for(says, Duration::from_secs(90), || {
        let is_wide = stats().and_then(|stats| stat(&stats, "wide_cpus")).is_ok_and(|n| n > 0);
        nr_wide += u64::from(is_wide);
        round += 1;
        let figure = if is_wide { wide } else { 1_000 } + round % 7;
        _ = fs::write("/tmp/next", figure.to_string());
        _ = fs::rename("/tmp/next", path);
        last = turbolane(&["ctl", "status"]).unwrap_or_default();
        last.contains(says)
    })
    .with_context(|| last.clone())?;
    Ok(nr_wide)
}

/// The scheduler goes and comes back twenty times a second beneath a load: everyone runs,
/// and sections are seen all along.
pub fn goes_and_comes_back() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--fault", "leaves"])?;
    everyone_runs("going and coming back")?;
    let before = stat(&stats()?, "hint_events")?;
    for round in 0..3 {
        everyone_runs(&format!("round {round}"))?;
    }
    ensure!(stat(&stats()?, "hint_events")? > before, "no hint is seen any more");
    lane.stop().map(drop)
}

/// While it stands by, a CPU goes: the next look is by a scheduler that knows. Then the run is
/// killed: nothing is left of it, a thread that gave hints finds out, and the next run serves it.
pub fn ends_standing_by() -> Result<()> {
    const ARGS: [&str; 4] = ["--mode", "scx", "--wide-cpus", "auto"];
    let lane = Lane::start(&ARGS)?;
    ensure!(turbolane::wide_begin(1).is_ok() && turbolane::wide_end().is_ok(), "no sections");
    served_is(true)?;
    status_becomes("stands by: no licence level of this CPU lowers its clock")?;
    fs::write("/sys/devices/system/cpu/cpu3/online", "0")?;
    status_becomes("0-2")?;
    status_becomes("stands by: no licence level of this CPU lowers its clock")?;
    lane.signal(libc::SIGKILL);
    lane.wait()?;
    served_is(false)?;
    let lane = Lane::start(&ARGS)?;
    served_is(true)?;
    lane.stop().map(drop)
}

/// Whether this thread gives hints to anybody becomes so.
fn served_is(served: bool) -> Result<()> {
    wait_for(&format!("served: {served}"), Duration::from_secs(30), || {
        let _ = turbolane::wide_begin(1);
        let _ = turbolane::wide_end();
        (turbolane::wide_status() != turbolane::Status::None) == served
    })
}
