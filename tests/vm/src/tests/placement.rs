// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wide code runs on wide CPUs only, scalar code leaves them while wide work waits, and no CPU
//! idles while it could work.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{Child, cpu, set_affinity, spin, wait_for};
use crate::lane::{Lane, read, set, stat, stats, turbolane};
use crate::load::{self, Ending, Role, Source};
use crate::probe_site;
use crate::samples::{Phase, Samples};

const SETTLE: Duration = Duration::from_millis(500);

/// For each source and ending: no sample of a wide section on a scalar CPU.
pub fn every_source_and_ending() -> Result<()> {
    let mark = probe_site::mark();
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark])?;
    for source in [Source::Hint, Source::Mark] {
        for ending in Ending::ALL {
            set(&[&format!("remigrate={}", ending.flag())])?;
            let samples = Samples::shared();
            load::run(
                samples,
                SETTLE,
                Duration::from_secs(2),
                &[(Role::Mixed(source, ending), 8)],
            )?;
            let (wide, wrong) = (samples.total(Phase::Wide), samples.on(Phase::Wide, &[0, 1]));
            ensure!(wide >= 100, "{source:?} {ending:?}: only {wide} samples");
            ensure!(
                wrong == 0,
                "{source:?} {ending:?}: {wrong} of {wide} on scalar CPUs: {}; {}",
                samples.text(),
                stats()?
            );
        }
    }
    let counted = stats()?;
    ensure!(stat(&counted, "mark_events")? > 0, "the mark was never hit");
    // The scheduler's own view agrees, but for ticks that fall into the kernel's way from the
    // event to the switch.
    let (wrong, ticks) = (stat(&counted, "wide_on_scalar_ticks")?, stat(&counted, "ticks")?);
    // Every CPU is allowed: what is left is between an event and what is made of it.
    let (degraded, wide) = (stat(&counted, "degraded_ns")?, stat(&counted, "wide_run_ns")?);
    ensure!(degraded * 50 < wide, "{degraded} of {wide} ns of wide code count as degraded");
    ensure!(wrong * 50 < ticks, "{wrong} of {ticks} ticks saw wide code on a scalar CPU");
    lane.stop().map(drop)
}

/// One named CPU makes its sibling wide too.
pub fn siblings_share_their_class() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let samples = Samples::shared();
    let roles = [(Role::WideHog, 4), (Role::ScalarHog, 3)];
    load::run(samples, 3 * SETTLE, Duration::from_secs(2), &roles)?;
    ensure!(samples.on(Phase::Wide, &[0, 1]) == 0, "wide on the scalar core: {}", samples.text());
    ensure!(
        samples.on(Phase::Wide, &[2]) > 0 && samples.on(Phase::Wide, &[3]) > 0,
        "{}",
        samples.text()
    );
    ensure!(samples.on(Phase::Scalar, &[2, 3]) == 0, "scalar on the wide core: {}", samples.text());
    lane.stop().map(drop)
}

/// Two tasks that began next to each other, on siblings of one core, have a core each when they may
/// use both: neither sleeps or waits, so nothing but the tick asks.
pub fn siblings_go_to_idle_cores() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "0"])?;
    // Bound by us: a child that does it itself may do so after it was found there, and freed.
    let hog = |cpu: usize| {
        let hog = Child::fork(|| spin(Duration::from_secs(600)))?;
        set_affinity(hog.pid, &[cpu])?;
        anyhow::Ok(hog)
    };
    for round in 0..5 {
        let hogs = [hog(0)?, hog(1)?];
        wait_for("a task is not where it is bound to", Duration::from_secs(20), || {
            (0..2).all(|at| cpu_of(hogs[at].pid).is_ok_and(|cpu| cpu == at as u32))
        })?;
        for hog in &hogs {
            set_affinity(hog.pid, &[0, 1, 2, 3])?;
        }
        wait_for(&format!("round {round}: a core idles"), Duration::from_secs(20), || {
            let cores: Vec<_> =
                hogs.iter().filter_map(|hog| Some(cpu_of(hog.pid).ok()? / 2)).collect();
            cores == [0, 1] || cores == [1, 0]
        })?;
    }
    lane.stop().map(drop)
}

/// Two sockets, each with a cache, the wide CPU in one of them: wide tasks of the other get
/// their turn although the wide CPU's own socket keeps it busy with default work.
pub fn across_llcs() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let samples = Samples::shared();
    let roles = [(Role::DefaultHog, 8), (Role::WideHog, 3), (Role::ScalarHog, 3)];
    load::run(samples, 2 * SETTLE, Duration::from_secs(3), &roles)?;
    ensure!(samples.on(Phase::Wide, &[0, 1, 2]) == 0, "wide on a scalar CPU: {}", samples.text());
    for phase in [Phase::Wide, Phase::Scalar, Phase::Default] {
        ensure!(samples.total(phase) > 20, "{phase:?} starves: {}", samples.text());
    }
    lane.stop().map(drop)
}

/// Classes of the CPUs, as `turbolane ctl status` has them.
fn classes() -> Result<Vec<u64>> {
    let status: Value = serde_json::from_str(&turbolane(&["ctl", "status", "--json"])?)?;
    let cpus = status["cpus"].as_array().context("no CPUs in the status")?;
    let class = |cpu: &Value| cpu["license_level"].as_u64().context("a CPU without a class");
    cpus.iter().map(class).collect()
}

/// Waits until the CPUs have these classes.
fn wait_for_classes(when: &str, wanted: &[u64]) -> Result<()> {
    let mut seen = vec![];
    let is_so = || {
        seen = classes().unwrap_or_default();
        seen == wanted
    };
    wait_for("", Duration::from_secs(60), is_so).ok();
    let counted = if seen == wanted { String::new() } else { stats()?.to_string() };
    ensure!(seen == wanted, "{when} the classes are {seen:?} instead of {wanted:?}; {counted}");
    Ok(())
}

/// CPU on which a process runs or ran last: the 39th word of its stat, the 37th behind its name.
fn cpu_of(pid: i32) -> Result<u32> {
    let stat = read(&format!("/proc/{pid}/stat"));
    let behind = stat.rsplit_once(')').context("no such process")?.1;
    Ok(behind.split_whitespace().nth(36).context("no CPU in its stat")?.parse()?)
}

/// CPU time that a process has used, ns.
fn run_ns_of(pid: i32) -> Result<u64> {
    let stat = read(&format!("/proc/{pid}/schedstat"));
    Ok(stat.split_whitespace().next().context("no such process")?.parse()?)
}

/// CPU time after which a task whose class has changed has had a tick, and so has left.
const SETTLED_NS: u64 = 20_000_000;

/// With tiers on four CPUs, three of them wide: where all wide work is of one level, no CPU is lost
/// to another. Two tasks of each level have a CPU of its class per level, on which a level runs or
/// above; and when two levels have ended, the third has all three CPUs again.
pub fn tiers() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3", "--tiers"])?;
    let hog = |level: u32| {
        Child::fork(move || {
            load::connect();
            let _ = turbolane::wide_begin(level);
            spin(Duration::from_secs(600));
        })
    };
    let top = (0..2).map(|_| hog(3)).collect::<Result<Vec<_>>>()?;
    spin(Duration::from_secs(3));
    wait_for_classes("with one level", &[0, 3, 3, 3])?;
    let lower = [1, 1, 2, 2].into_iter().map(hog).collect::<Result<Vec<_>>>()?;
    wait_for_classes("with three levels", &[0, 1, 2, 3])?;
    let placed = [(3, &top[..]), (1, &lower[..2]), (2, &lower[2..])];
    let hogs = || placed.iter().flat_map(|(level, hogs)| hogs.iter().map(|hog| (*level, hog.pid)));
    let run_ns = || hogs().map(|(_, pid)| run_ns_of(pid)).collect::<Result<Vec<_>>>();
    let (start, mut before, mut judged) = (Instant::now(), run_ns()?, 0);
    while judged < 20 {
        ensure!(start.elapsed() < Duration::from_secs(90), "the classes do not stay as they are");
        let have_run = run_ns()?.iter().zip(&before).all(|(now, then)| now - then > SETTLED_NS);
        let cpus =
            hogs().map(|(level, pid)| Ok((level, cpu_of(pid)?))).collect::<Result<Vec<_>>>()?;
        if classes()? != [0, 1, 2, 3] {
            // a load that is measured while the host stops CPUs may look different
            before = run_ns()?;
        } else if have_run {
            judged += 1;
            ensure!(cpus.iter().all(|(level, cpu)| cpu >= level), "(level, CPU): {cpus:?}");
        }
    }
    drop(lower);
    wait_for_classes("with one level again", &[0, 3, 3, 3])?;
    drop(top);
    lane.stop().map(drop)
}

/// A scalar phase that is announced to be short is spent on the wide CPUs; before a long one, and
/// after one that lasts longer than announced, the task leaves them. Two tasks without an end want
/// the wide CPUs all the time, so that scalar code has no place there.
pub fn rests() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--rest-below", "1s"])?;
    let _hogs = (0..2).map(|_| wide_hog()).collect::<Result<Vec<_>>>()?;
    let mut child = Child::fork(|| {
        // the scheduler knows the thread, and its section runs where it belongs
        wait_until(30, || in_section(|| cpu() >= 2));
        for _ in 0..20 {
            section_then(500_000_000);
            stays_for(Duration::from_millis(20), 31);
        }
        section_then(5_000_000_000);
        wait_until(32, || cpu() < 2);
        // announced: 300 ms; in truth for ever
        section_then(300_000_000);
        wait_until(33, || cpu() < 2);
        section_then(0);
        wait_until(34, || cpu() < 2);
    })?;
    let code = child.wait()?;
    let counted = stats()?;
    ensure!(
        code == 0,
        "{} ({code}); {counted}",
        match code {
            30 => "no section ran on a wide CPU",
            31 => "a short phase was spent on a scalar CPU",
            32 => "before a long phase the task did not leave",
            33 => "a phase that did not end as announced went on on a wide CPU",
            34 => "a section without a word did not leave",
            _ => "the child failed",
        }
    );
    lane.stop().map(drop)
}

/// A task that is wide without an end.
pub fn wide_hog() -> Result<Child> {
    Child::fork(|| {
        load::connect();
        let _ = turbolane::wide_begin(2);
        spin(Duration::from_secs(600));
    })
}

/// A wide section that ends before it says anything.
fn in_section<T>(body: impl FnOnce() -> T) -> T {
    let _ = turbolane::wide_begin(2);
    let result = body();
    let _ = turbolane::wide_end();
    result
}

/// A wide section, and a word on the scalar phase behind it.
fn section_then(phase_ns: u64) {
    let _ = turbolane::wide_begin(2);
    spin(Duration::from_millis(1));
    let _ = turbolane::scalar_for(phase_ns);
}

/// Ends this child with the code if the task leaves the wide CPUs.
fn stays_for(time: Duration, code: i32) {
    let end = std::time::Instant::now() + time;
    while std::time::Instant::now() < end {
        spin(Duration::from_micros(200));
        if cpu() < 2 {
            // SAFETY: ends this child.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Computes until something is so; ends this child with the code if that takes too long.
pub fn wait_until(code: i32, mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        spin(Duration::from_micros(200));
        if std::time::Instant::now() > end {
            // SAFETY: ends this child.
            unsafe { libc::_exit(code) }
        }
    }
}

/// Busy loads leave no CPU idle that could run them.
pub fn work_conservation() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    for (name, roles, cpus) in crate::conservation::LOADS {
        let idle_pct = crate::conservation::idle_pct(roles, cpus, Duration::from_secs(3))?;
        // The bar of the benchmark is 1 %; here only a CPU that is left out must show.
        ensure!(idle_pct < 10.0, "{name}: CPUs {cpus:?} idle for {idle_pct:.1} % of the time");
    }
    lane.stop().map(drop)
}
