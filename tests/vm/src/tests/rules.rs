// SPDX-License-Identifier: MIT OR Apache-2.0
//! The user's rules for tasks: `wide-tasks`, `scalar-tasks` and `leave-alone`, by control group,
//! unit and name, their changes, and what a local user makes of names.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cgroups::{Group, measure};
use crate::guest::{Child, cpu, scx_state, wait_for, work};
use crate::lane::{Lane, set, turbolane};
use crate::load::connect;
use crate::samples::Samples;

const NOBODY: u32 = 65534;
/// CPUs 2 and 3 of 4 are wide.
const WIDE: &str = "2-3";
const SCALAR_CPUS: [usize; 2] = [0, 1];
const WIDE_CPUS: [usize; 2] = [2, 3];
const TIME: Duration = Duration::from_secs(3);
/// Deeper than groups that have rules.
const NEST: usize = 40;
/// New rules reach running tasks within a tick, and new groups after a search.
const SETTLE: Duration = Duration::from_secs(2);
/// For the end of a task, on an emulated machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the tasks of one kind ran: a count by CPU that they share with the test.
#[derive(Clone, Copy)]
struct Places(&'static [AtomicU64; 16]);

impl Places {
    fn new() -> Self {
        // Zeroed memory that children share; the first fields of samples are counters.
        let shared: &'static Samples = Samples::shared();
        assert!(size_of::<Samples>() >= size_of::<[AtomicU64; 16]>());
        // SAFETY: large enough, aligned as its first field is, and of atomics, all-zero ones.
        Places(unsafe { &*std::ptr::from_ref(shared).cast() })
    }

    /// What a task does: it computes, and counts where.
    fn visit(self) -> ! {
        loop {
            work(2000);
            self.0[cpu()].fetch_add(1, Relaxed);
        }
    }

    /// Part of the counts from now on that is of these CPUs.
    fn part(self, cpus: &[usize]) -> Result<f64> {
        let read = || self.0.each_ref().map(|count| count.load(Relaxed));
        let before = read();
        std::thread::sleep(TIME);
        let grown: Vec<u64> = read().iter().zip(before).map(|(now, then)| now - then).collect();
        let all: u64 = grown.iter().sum();
        ensure!(all > 100, "only {all} counts in {TIME:?}");
        Ok(cpus.iter().map(|cpu| grown[*cpu]).sum::<u64>() as f64 / all as f64)
    }

    /// They run on these CPUs only: a tick that comes late may leave one in a hundred counts.
    fn ensure_only(self, what: &str, cpus: &[usize]) -> Result<()> {
        let part = self.part(cpus)?;
        eprintln!("{what}: {:.2} % on {cpus:?}", part * 100.0);
        ensure!(part >= 0.99, "{what}: only {:.2} % on CPUs {cpus:?}", part * 100.0);
        Ok(())
    }

    /// They run on scalar and on wide CPUs, with at least an eighth of the counts on each kind.
    fn ensure_everywhere(self, what: &str) -> Result<()> {
        let part = self.part(&WIDE_CPUS)?;
        eprintln!("{what}: {:.2} % on wide CPUs", part * 100.0);
        ensure!((0.125..=0.875).contains(&part), "{what}: {:.2} % on wide CPUs", part * 100.0);
        Ok(())
    }
}

/// `turbolane ctl status`: what is said of the rule of this selector.
fn rule(selector: &str) -> Result<Value> {
    let status: Value = serde_json::from_str(&turbolane(&["ctl", "status", "--json"])?)?;
    let rules = status["scope"].as_array().context("no scope in the status")?;
    let rule = rules.iter().find(|rule| rule["selector"] == selector);
    rule.cloned().with_context(|| format!("no rule for {selector} in {rules:?}"))
}

fn ensure_rule(selector: &str, treated: &str, tasks: u64) -> Result<()> {
    let found = rule(selector)?;
    ensure!(found["treated"] == treated && found["tasks"] == tasks, "{selector}: {found}");
    Ok(())
}

/// A task that gives hints all the time, and counts where it is.
fn hints(places: Places) -> ! {
    connect();
    let _ = turbolane::wide_begin(2);
    places.visit()
}

fn file(text: &str) -> Result<&'static str> {
    const FILE: &str = "/tmp/rules.toml";
    fs::write(FILE, format!("mode = 'scx'\nwide-cpus = '{WIDE}'\n{text}"))?;
    Ok(FILE)
}

/// Three groups with one rule each: the wide one runs on wide CPUs only, without a hint; the scalar
/// one, although it gives hints, on scalar ones; the third, which gives hints too, on all. A
/// reload changes what runs, a group that is made anew has its rule, and limits hold.
pub fn by_group() -> Result<()> {
    let config = file(
        "wide-tasks = ['cgroup:/wide', 'unit:later.service@1']\nscalar-tasks = 'cgroup:/scalar'\n\
         leave-alone = ['cgroup:/alone', 'cgroup:/wide/not']\n",
    )?;
    let (wide, scalar, alone) = (Places::new(), Places::new(), Places::new());
    let (inner, later) = (Places::new(), Places::new());
    let wide_group = Group::top("wide")?;
    let wide_tasks = wide_group.child("tasks")?.tasks(2, || wide.visit())?;
    let scalar_group = Group::top("scalar")?.tasks(2, || hints(scalar))?;
    let lane = Lane::start(&["--config", config])?;
    // after the start, and tasks that were there before
    let alone_group = Group::top("alone")?.tasks(4, || hints(alone))?;
    std::thread::sleep(SETTLE);
    wide.ensure_only("wide", &WIDE_CPUS)?;
    scalar.ensure_only("scalar with hints", &SCALAR_CPUS)?;
    alone.ensure_everywhere("left alone, with hints")?;
    ensure_rule("cgroup:/wide", "wide, level 2", 2)?;
    ensure_rule("cgroup:/scalar", "scalar", 2)?;
    ensure_rule("cgroup:/alone", "left alone", 4)?;
    ensure_rule("unit:later.service", "wide, level 1", 0)?;

    // The inner group's rule counts, and a unit that comes later has its rule.
    let inner_group = wide_group.child("not")?.tasks(4, || inner.visit())?;
    let slice = Group::top("some.slice")?;
    let later_group = slice.child("later.service")?.tasks(1, || later.visit())?;
    // as systemd does for a service with Delegate= and User=
    chown(later_group.path(), Some(NOBODY), Some(NOBODY))?;
    std::thread::sleep(SETTLE);
    inner.ensure_everywhere("a group left alone in a wide one")?;
    later.ensure_only("a unit that has come later", &WIDE_CPUS)?;
    ensure_rule("unit:later.service", "wide, level 1", 1)?;
    drop((inner_group, later_group, slice));

    // Limits hold.
    wide_group.write("cpu.max", "30000 100000")?;
    let got = measure(&[&wide_group], SETTLE, TIME)?[0];
    eprintln!("wide tasks with 30 % of a CPU: {got:.3} CPUs");
    ensure!((0.24..=0.36).contains(&got), "wide tasks got {got:.3} CPUs where 0.3 were due");
    wide_group.write("cpu.max", "max")?;

    // Two rules change places, one goes; the scheduler stays.
    let config = file("wide-tasks = 'cgroup:/scalar@3'\nscalar-tasks = 'cgroup:/wide'\n")?;
    let text = turbolane(&["ctl", "reload", config])?;
    ensure!(text.contains("scalar-tasks: cgroup:/scalar -> cgroup:/wide"), "{text}");
    std::thread::sleep(SETTLE);
    ensure_rule("cgroup:/wide", "scalar", 2)?;
    ensure_rule("cgroup:/scalar", "wide, level 3", 2)?;
    scalar.ensure_only("wide after a reload", &WIDE_CPUS)?;
    wide.ensure_only("scalar after a reload", &SCALAR_CPUS)?;
    alone.ensure_only("no longer left alone: hints count", &WIDE_CPUS)?;
    let refused = turbolane(&["ctl", "set", "leave-alone=cgroup:/wide"]);
    ensure!(refused.is_err(), "a contradiction was accepted: {refused:?}");
    set(&["wide-tasks=none", "scalar-tasks=none"])?;
    std::thread::sleep(SETTLE);
    wide.ensure_everywhere("no rule left, beside hints")?;

    // A group that is made anew under its name.
    set(&["wide-tasks=cgroup:/anew"])?;
    for round in 0..2 {
        let anew = Places::new();
        let group = Group::top("anew")?.tasks(1, || anew.visit())?;
        std::thread::sleep(SETTLE);
        anew.ensure_only(&format!("made anew, {round}"), &WIDE_CPUS)?;
        drop(group);
    }
    ensure!(scx_state() == "enabled", "the scheduler is gone");
    drop((wide_tasks, scalar_group, alone_group));
    drop(wide_group);
    lane.stop().map(drop)
}

/// The task names itself, as any user can.
fn rename(name: &str) {
    let name = std::ffi::CString::new(name).expect("no zero in it");
    // SAFETY: a string that the kernel copies.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Its rule is found at a tick in the middle of its end. The kernel leaves a task that ends on its
/// CPU, whatever the scheduler says; sent on from there, it never ended.
fn end_under_a_new_name() {
    let mut memory = vec![0u8; 64 << 20];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
    rename("wide-by-name");
    // SAFETY: ends this child, which gives its memory back meanwhile.
    unsafe { libc::_exit(0) }
}

/// A local user's task, in a group of its own if one is named.
fn as_nobody(group: Option<&Path>, body: impl FnOnce()) -> Result<Child> {
    let procs = group.map(|group| group.join("cgroup.procs"));
    Child::fork(move || {
        let is_there = procs.is_none_or(|procs| fs::write(procs, "0").is_ok());
        // SAFETY: system calls without memory.
        let is_user = unsafe { libc::setgid(NOBODY) == 0 && libc::setuid(NOBODY) == 0 };
        if is_there && is_user {
            body();
        }
    })
}

/// Groups below one another, as deep as any user may make them; the deepest.
fn nest(group: &Path) -> Result<PathBuf> {
    let mut deepest = group.to_owned();
    for _ in 0..NEST {
        deepest.push("d");
        fs::create_dir(&deepest)?;
    }
    Ok(deepest)
}

/// Removes them.
fn unnest(mut deepest: PathBuf) -> Result<()> {
    for _ in 0..NEST {
        wait_for("a group stays", SETTLE, || fs::remove_dir(&deepest).is_ok())?;
        deepest.pop();
    }
    Ok(())
}

/// A name counts from the moment it is taken, and no longer. It takes a local user out of no
/// group's rule, and neither do groups far below that; a unit's name for a group of theirs gives no
/// rule; and no name keeps wide code on scalar CPUs.
pub fn by_name() -> Result<()> {
    let config = file(
        "wide-tasks = ['comm:wide-by-name', 'unit:mine.service']\nscalar-tasks = 'cgroup:/jail'\n",
    )?;
    let lane = Lane::start(&["--config", config])?;
    // Something to compare with on each wide CPU, so that no scalar task is a guest there.
    let _hogs = Group::top("hogs")?.tasks(2, || {
        connect();
        let _ = turbolane::wide_begin(2);
        loop {
            work(10_000);
        }
    })?;
    let (named, before, jailed, own) = (Places::new(), Places::new(), Places::new(), Places::new());
    let renames = as_nobody(None, || {
        rename("wide-by-name");
        named.visit()
    })?;
    let renamed_back = as_nobody(None, || {
        rename("wide-by-name");
        work(10_000);
        rename("plain");
        before.visit()
    })?;
    let jail = Group::top("jail")?;
    let in_jail = as_nobody(Some(jail.path()), || {
        rename("wide-by-name");
        jailed.visit()
    })?;
    let deepest = nest(jail.path())?;
    let below = Places::new();
    let in_nest = as_nobody(Some(&deepest), || {
        rename("wide-by-name");
        below.visit()
    })?;
    let slice = Group::top("user.slice")?;
    let home = slice.child("user@65534.service")?;
    chown(home.path(), Some(NOBODY), Some(NOBODY))?;
    let mine = home.child("mine.service")?;
    chown(mine.path(), Some(NOBODY), Some(NOBODY))?;
    let in_own = as_nobody(Some(mine.path()), || own.visit())?;
    std::thread::sleep(SETTLE);
    named.ensure_only("by name", &WIDE_CPUS)?;
    let part = before.part(&WIDE_CPUS)?;
    eprintln!("a name given up: {:.2} % on wide CPUs", part * 100.0);
    ensure!(part < 0.9, "a task that gave its name up: {:.1} % on wide CPUs", part * 100.0);
    jailed.ensure_only("scalar by its group, with a name", &SCALAR_CPUS)?;
    below.ensure_only("scalar by a group far above, with a name", &SCALAR_CPUS)?;
    let part = own.part(&WIDE_CPUS)?;
    eprintln!("a user's own unit: {:.2} % on wide CPUs", part * 100.0);
    ensure!(part < 0.9, "a user's own unit: {:.1} % on wide CPUs", part * 100.0);
    ensure_rule("comm:wide-by-name", "wide, level 2", 1)?;
    ensure_rule("unit:mine.service", "wide, level 2", 0)?;
    for key in ["scalar-tasks", "leave-alone"] {
        let refused = turbolane(&["ctl", "set", &format!("{key}=comm:wide-by-name")]);
        ensure!(refused.is_err(), "{key} by name was accepted");
    }
    // As fast as it can: no name takes the scheduler down, nor keeps a task from its end.
    let storm = as_nobody(None, || {
        loop {
            rename("wide-by-name");
            rename("plain");
        }
    })?;
    std::thread::sleep(TIME);
    ensure!(scx_state() == "enabled", "the scheduler was thrown out: {}", lane.stderr());
    for round in 0..20 {
        let ends = as_nobody(None, end_under_a_new_name)?;
        wait_for(&format!("task {round} does not end"), PATIENCE, || ends.has_ended())?;
    }
    drop((renames, renamed_back, in_jail, in_own, in_nest, storm));
    unnest(deepest)?;
    wait_for("the user's group stays", SETTLE, || fs::remove_dir(mine.path()).is_ok())?;
    drop((mine, home, slice, jail));
    lane.stop().map(drop)
}
