// SPDX-License-Identifier: MIT OR Apache-2.0
//! What changes under a running scheduler: settings, CPUs, cgroups.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{control_groups, now_ns, scx_state};
use crate::lane::{Lane, plug, set, turbolane};
use crate::load::{self, Ending, Role, Source};
use crate::probe_site;
use crate::samples::{Phase, Samples};
use crate::tests::top::{self, Kind};

/// Start a load that lasts until the returned handle's samples say so.
fn background(roles: &[(Role, usize)]) -> Result<(&'static Samples, Vec<crate::guest::Child>)> {
    let samples = Samples::shared();
    let children = load::start(samples, roles)?;
    Ok((samples, children))
}

/// Samples of wide sections on these CPUs during the next while.
fn wide_samples_on(samples: &'static Samples, cpus: &[usize], time: Duration) -> (u64, u64) {
    let (wrong, all) = (samples.on(Phase::Wide, cpus), samples.total(Phase::Wide));
    samples.settled_ns.store(now_ns(), Ordering::Relaxed);
    std::thread::sleep(time);
    samples.settled_ns.store(u64::MAX, Ordering::Relaxed);
    (samples.on(Phase::Wide, cpus) - wrong, samples.total(Phase::Wide) - all)
}

/// The wide set, slices, timeouts, heuristics and marks change under load, and are read back.
/// `turbolane top` shows the load as it is.
pub fn settings_change_under_load() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let (samples, children) = background(&[
        (Role::WideHog, 3),
        (Role::ScalarHog, 3),
        (Role::Mixed(Source::Hint, Ending::Explicit), 3),
    ])?;
    std::thread::sleep(Duration::from_millis(500));
    let kinds = [Some("wide"), Some("scalar"), None];
    let kinds = kinds.into_iter().zip(children.chunks(3));
    top::shows(&kinds.map(|(task_type, workers)| Kind { workers, task_type }).collect::<Vec<_>>())?;
    for (wide, scalar) in [("0-1", [2, 3]), ("2-3", [0, 1]), ("1,3", [0, 2]), ("2-3", [0, 1])] {
        set(&[&format!("wide-cpus={wide}")])?;
        std::thread::sleep(Duration::from_millis(500));
        let (wrong, all) = wide_samples_on(samples, &scalar, Duration::from_secs(1));
        ensure!(all > 50, "wide {wide}: only {all} samples");
        ensure!(wrong == 0, "wide {wide}: {wrong} of {all} samples on scalar CPUs");
    }
    set(&[
        "slice=2ms",
        "slice-wide=8ms",
        "wide-timeout=50ms",
        "remigrate=syscall-entry",
        "unclassified=scalar",
    ])?;
    let shown = turbolane(&["ctl", "get"])?;
    for word in ["2ms", "8ms", "50ms", "syscall-entry", "scalar"] {
        ensure!(shown.contains(word), "`ctl get` does not show {word}: {shown}");
    }
    ensure!(turbolane(&["ctl", "set", "slice=1h"]).is_err(), "a slice of an hour was accepted");
    ensure!(turbolane(&["ctl", "set", "wide-cpus=99-100"]).is_err(), "CPU 99 was accepted");
    ensure!(
        turbolane(&["ctl", "get", "slice"])?.contains("2ms"),
        "a refused change changed something"
    );
    let mark = probe_site::mark();
    turbolane(&["ctl", "mark", "add", &mark])?;
    ensure!(turbolane(&["ctl", "status"])?.contains(probe_site::SYMBOL), "the mark is not shown");
    turbolane(&["ctl", "mark", "remove", &mark])?;
    ensure!(
        !turbolane(&["ctl", "status"])?.contains(probe_site::SYMBOL),
        "the mark is still shown"
    );
    lane.stop().map(drop)
}

/// CPUs go and come under load: the scheduler comes back each time, and placement holds.
pub fn hotplug() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let (samples, _children) = background(&[
        (Role::WideHog, 2),
        (Role::ScalarHog, 3),
        (Role::Mixed(Source::Hint, Ending::Explicit), 2),
    ])?;
    for (cpu, online) in [(3, false), (1, false), (3, true), (1, true)] {
        plug(cpu, online)?;
        std::thread::sleep(Duration::from_millis(700));
        let status = turbolane(&["ctl", "status"])?;
        if !status.contains("none") {
            let (wrong, all) = wide_samples_on(samples, &[0, 1], Duration::from_millis(700));
            ensure!(
                wrong == 0,
                "after CPU {cpu} online={online}: {wrong} of {all} on scalar CPUs\n{status}"
            );
        }
    }
    lane.stop().map(drop)
}

/// Tasks move between cgroups and weights change under load; the machine stays in order.
pub fn cgroup_moves() -> Result<()> {
    let root = control_groups()?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let (samples, children) = background(&[
        (Role::WideHog, 3),
        (Role::ScalarHog, 3),
        (Role::Mixed(Source::Hint, Ending::Explicit), 2),
    ])?;
    for name in ["a", "b"] {
        fs::create_dir_all(root.join(name))?;
    }
    for round in 0..20 {
        let to = root.join(["a", "b"][round % 2]);
        let _ = fs::write(to.join("cpu.weight"), ["50", "1000", "100"][round % 3]);
        for child in &children {
            fs::write(to.join("cgroup.procs"), child.pid.to_string())?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let (wrong, all) = wide_samples_on(samples, &[0, 1], Duration::from_secs(1));
    ensure!(all > 50 && wrong == 0, "{wrong} of {all} wide samples on scalar CPUs");
    ensure!(scx_state() == "enabled", "the scheduler is gone");
    drop(children);
    lane.stop().map(drop)
}
