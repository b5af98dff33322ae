// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pauses of a running lane: the kernel's own scheduler for a while, and the lane again.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use report::verify::{Effect, Verdict, VerifyReport};

use super::cpus::everyone_runs;
use crate::cgroups::Group;
use crate::fake_pmu::{FakePmu, Unit};
use crate::guest::{scx_state, set_affinity, wait_for, work};
use crate::lane::{Lane, TURBOLANE, set, status_becomes, turbolane};
use crate::samples::Phase;

/// For as long as nobody ends it.
const LONG: [&str; 3] = ["ctl", "pause", "10min"];

/// While paused the kernel's scheduler is at work and wide tasks run everywhere; afterwards they
/// are apart again. A pause ends at a request, by itself, at a change of a setting, and with the
/// run.
pub fn leave_the_machine_and_end() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    turbolane(&LONG)?;
    ensure!(scx_state() == "disabled", "paused, sched_ext is {}", scx_state());
    status_becomes("paused for")?;
    let samples = everyone_runs("paused")?;
    ensure!(samples.on(Phase::Wide, &[0, 1]) > 0, "still apart: {}", samples.text());
    turbolane(&["ctl", "resume"])?;
    is_at_work("after a pause")?;
    status_becomes("separated, as requested")?;
    let samples = everyone_runs("after a pause")?;
    ensure!(samples.on(Phase::Wide, &[0, 1]) == 0, "not apart: {}", samples.text());

    turbolane(&["ctl", "pause", "1s"])?;
    wait_for("the pause to end", Duration::from_secs(60), || scx_state() == "enabled")?;
    status_becomes("separated, as requested")?;

    turbolane(&LONG)?;
    set(&["slice=4ms"])?;
    is_at_work("after a change")?;

    turbolane(&LONG)?;
    lane.stop().map(drop)
}

/// `verify --live` compares with the lane away and at work, and leaves it at work; so does one that
/// is killed, once its pause is over.
pub fn are_for_comparisons() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let rate = "grep -q enabled /sys/kernel/sched_ext/state && echo rate 2 || echo rate 1";
    let verify = ["verify", "--live", "--runs", "4", "--warmup", "0", "--metric", "rate {}", "--"];
    let found = turbolane(&[&verify[..], &["sh", "-c", rate]].concat())?;
    ensure!(found.contains("better: +100"), "{found}");
    is_at_work("after a comparison")?;

    let mut killed = Command::new("turbolane");
    let mut killed = killed.args(verify).args(["sleep", "1000"]).spawn()?;
    wait_for("a run without the lane", Duration::from_secs(60), || scx_state() == "disabled")?;
    killed.kill()?;
    killed.wait()?;
    wait_for("the pause to end", Duration::from_secs(90), || scx_state() == "enabled")?;
    lane.stop().map(drop)
}

/// `verify --live --cgroup` compares how fast a service executes: here, two tasks beside six that
/// keep every core at level 2 unless the lane has them apart. Who cannot count, and what is not
/// there, is told before anything is paused.
pub fn services_are_compared() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let served = [0, 1].into_iter().try_fold(Group::top("served")?, |group, cpu| {
        group.tasks(1, || {
            let bound = set_affinity(0, &[cpu]);
            while bound.is_ok() {
                work(10_000);
            }
        })
    })?;
    let verify = |of: &str| {
        let mut verify = Command::new(TURBOLANE);
        verify.args(["verify", "--live", "--runs", "4", "--warmup", "0", "--for", "500ms"]);
        verify.args(["--json", "--cgroup", of]);
        let output = verify.output()?;
        let [json, errors] = [output.stdout, output.stderr].map(String::from_utf8);
        anyhow::Ok((output.status.code(), json?, errors?))
    };
    let path = served.path().to_string_lossy();
    let (code, _, errors) = verify(&path)?;
    ensure!(code == Some(77) && errors.contains("--metric"), "without a PMU: {code:?}, {errors}");

    let pmu = FakePmu::load(Duration::from_micros(500), Duration::from_millis(500))?;
    let (code, _, errors) = verify("/no/such/group")?;
    ensure!(code == Some(2) && errors.contains("no process is in it"), "{code:?}, {errors}");
    let wide = || {
        let Ok(unit) = Unit::open() else { return };
        crate::load::connect();
        let _ = turbolane::wide_begin(2);
        while unit.execute(2).is_ok() {
            work(2000);
        }
    };
    // As heavy as the others, so that the kernel's scheduler has two tasks on each CPU.
    let wide = Group::top("wide")?.weight(300)?.tasks(6, wide)?;
    let (code, json, errors) = verify(&path)?;
    let found: VerifyReport = serde_json::from_str(&json).with_context(|| errors)?;
    eprintln!("{:?}, clock {:?}", found.effect, found.clock);
    ensure!(code == Some(0) && found.effect.verdict == Verdict::Better, "{}", found.verdict);
    // Instructions per ns: 2 at level 2, 4 at level 0. Cycles: as many at each level.
    let Effect { a, b, .. } = found.effect;
    ensure!((1900.0..2600.0).contains(&a) && (3200.0..=4000.0).contains(&b), "{a}, {b}");
    ensure!(found.clock.is_some_and(|clock| (clock.b / clock.a - 1.0).abs() < 0.01), "clocks");
    is_at_work("after a comparison of a service")?;
    drop((served, wide));
    lane.stop()?;
    pmu.unload()
}

fn is_at_work(when: &str) -> Result<()> {
    ensure!(scx_state() == "enabled", "{when}, sched_ext is {}", scx_state());
    Ok(())
}
