// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wide code inside of grace periods, seen by licence counters (kmod/levels.c) on the test PMU. Its
//! instruction of level 2 is a system call, so that it never traps; light AVX before it gives the
//! period.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hw::trap::Verdict;

use super::trap::all_cpus;
use crate::fake_pmu::{FakePmu, Unit, remove};
use crate::guest::{Child, set_affinity, set_real_time, spin, wait_for};
use crate::trap::vectors::light;
use crate::trap::{Trap, set};

/// Where the programs of the tests run: the last CPU, see testbed/src/qemu.rs. On a machine with
/// siblings it is the other one's, which spins, that is the last.
const CPU: usize = 3;
const BESIDE: usize = 2;
const SIBLING: usize = 3;

/// As on Skylake-SP, and the level is no matter of any of them for longer than a period of grace.
const MODULE: &str = "mode=grace wide_level=2 grace_ns=1000000 hold_ns=1000000 exec_grace_ns=0";
/// Beyond what the module waits for requests of others, and a relax time.
const SETTLED: Duration = Duration::from_millis(8);
/// Until a program is found, and how long one that is not is watched.
const LIMIT: Duration = Duration::from_secs(20);
const WATCHED: Duration = Duration::from_secs(2);

/// A program that uses light AVX in each round, which gives it a period of grace, and asks for a
/// licence level in it.
fn program(cpu: usize, level: usize) -> Result<Child> {
    Child::fork(|| {
        _ = set_affinity(0, &[cpu]);
        let Ok(unit) = Unit::open() else { return };
        loop {
            light();
            if unit.execute(level).is_err() {
                break;
            }
            spin(SETTLED);
        }
    })
}

/// What the module has seen of a program.
struct Seen {
    verdict: u32,
    traps: u64,
    steered: u64,
}

fn seen(trap: &Trap, program: &Child) -> Result<Seen> {
    let task = trap.device().task_counters(program.pid)?;
    Ok(Seen { verdict: task.verdict, traps: task.traps, steered: task.steered })
}

/// Waits until the program has proved wide and is steered.
fn is_found(trap: &Trap, program: &Child, what: &str) -> Result<()> {
    wait_for(&format!("{what}: not found"), LIMIT, || {
        seen(trap, program).is_ok_and(|s| s.verdict == Verdict::Wide as u32 && s.steered > 0)
    })
}

/// Watches a program that must not be found, and does trap.
fn is_left_alone(trap: &Trap, program: &Child, what: &str) -> Result<()> {
    let before = seen(trap, program)?.traps;
    std::thread::sleep(WATCHED);
    let after = seen(trap, program)?;
    ensure!(after.traps >= before + 10, "{what}: only {} traps", after.traps - before);
    ensure!(after.verdict == Verdict::None as u32, "{what}: verdict {}", after.verdict);
    ensure!(after.steered == 0, "{what}: steered {} times", after.steered);
    Ok(())
}

/// Found is who raises the level, and nobody else; with the counters' coming and going.
pub fn everything() -> Result<()> {
    no_counter_fails()?;
    let pmu = FakePmu::skylake()?;
    offender_and_innocent()?;
    settings()?;
    cpus_and_modules_come_and_go()?;
    pmu.unload()?;
    // Granted late and held long: both are to be mistaken for the next one's.
    let slow = FakePmu::load(Duration::from_micros(300), Duration::from_millis(3))?;
    innocent_behind_offender()?;
    slow.unload()
}

/// Negative control: CPUs that were armed when there was no PMU have no counter, and the program is
/// light to them.
fn no_counter_fails() -> Result<()> {
    let trap = Trap::on(&all_cpus(), MODULE)?;
    let pmu = FakePmu::skylake()?;
    let offender = program(CPU, 2)?;
    is_left_alone(&trap, &offender, "no counter")?;
    trap.arm(&all_cpus())?;
    is_found(&trap, &offender, "with a counter")?;
    drop(offender);
    trap.off()?;
    pmu.unload()
}

fn offender_and_innocent() -> Result<()> {
    let trap = Trap::on(&all_cpus(), MODULE)?;
    for level in [0, 1] {
        let innocent = program(CPU, level)?;
        is_left_alone(&trap, &innocent, &format!("level {level}"))?;
    }
    ensure!(trap.sum(|c| c.level_rises)? == 0, "level rises without level 2");
    let offender = program(CPU, 2)?;
    is_found(&trap, &offender, "level 2")?;
    ensure!(trap.sum(|c| c.level_rises)? > 0, "no level rise counted");
    drop(offender);
    trap.off()
}

/// The level that is wide counts, from the next arming on; nobody is told in mode count; who is
/// known to be light stays so.
fn settings() -> Result<()> {
    let trap = Trap::on(&all_cpus(), MODULE)?;
    set("wide_level", "1")?;
    let offender = program(CPU, 1)?;
    // Light AVX is below level 1 too.
    is_left_alone(&trap, &offender, "before the next arming")?;
    trap.arm(&all_cpus())?;
    is_found(&trap, &offender, "level 1")?;
    drop(offender);
    set("wide_level", "3")?;
    trap.arm(&all_cpus())?;
    let beyond = program(CPU, 2)?;
    is_left_alone(&trap, &beyond, "no counter of level 3")?;
    drop(beyond);
    set("wide_level", "2")?;
    trap.arm(&all_cpus())?;
    set("mode", "count")?;
    let rises = trap.sum(|c| c.level_rises)?;
    let counted = program(CPU, 2)?;
    is_left_alone(&trap, &counted, "mode count")?;
    ensure!(trap.sum(|c| c.level_rises)? > rises, "mode count does not count");
    drop(counted);
    set("mode", "grace")?;
    let known = program(CPU, 2)?;
    trap.device().learn(known.pid, Verdict::Light)?;
    std::thread::sleep(WATCHED);
    let after = seen(&trap, &known)?;
    ensure!(after.verdict == Verdict::Light as u32 && after.steered == 0, "light is not believed");
    drop(known);
    trap.off()
}

/// A CPU that was away counts again; the PMU is held while CPUs are armed, and no longer.
fn cpus_and_modules_come_and_go() -> Result<()> {
    let trap = Trap::on(&all_cpus(), MODULE)?;
    ensure!(!remove()?, "the PMU was removed while CPUs are armed");
    let online = format!("/sys/devices/system/cpu/cpu{CPU}/online");
    for state in ["0", "1"] {
        std::fs::write(&online, state).with_context(|| format!("{online}: {state}"))?;
    }
    let offender = program(CPU, 2)?;
    is_found(&trap, &offender, "after hotplug")?;
    drop(offender);
    trap.arm(&[])?;
    let wide = program(CPU, 2)?;
    std::thread::sleep(WATCHED);
    ensure!(seen(&trap, &wide)?.verdict == Verdict::None as u32, "disarmed, and found");
    trap.arm(&[CPU])?;
    is_found(&trap, &wide, "armed again")?;
    drop(wide);
    trap.off()
}

/// Two that take turns on a CPU: one has the level raised and goes, the other's turn begins with it
/// up, or about to be granted.
fn innocent_behind_offender() -> Result<()> {
    let trap = Trap::on(&all_cpus(), MODULE)?;
    let offender = program(CPU, 2)?;
    is_found(&trap, &offender, "the offender alone")?;
    drop(offender);
    let (mut to, mut from) = (std::io::pipe()?, std::io::pipe()?);
    let innocent = Child::fork(|| {
        _ = set_affinity(0, &[CPU]);
        // Woken right behind the request.
        while std::io::Read::read(&mut to.0, &mut [0]).is_ok_and(|n| n > 0) {
            light();
            spin(Duration::from_micros(600));
            light();
            if std::io::Write::write(&mut from.1, &[0]).is_err() {
                break;
            }
        }
    })?;
    let rival = Child::fork(|| {
        _ = set_affinity(0, &[CPU]);
        let Ok(unit) = Unit::open() else { return };
        loop {
            light();
            if unit.execute(2).is_err()
                || std::io::Write::write(&mut to.1, &[0]).is_err()
                || std::io::Read::read(&mut from.0, &mut [0]).is_err()
            {
                break;
            }
            spin(SETTLED);
        }
    })?;
    is_left_alone(&trap, &innocent, "behind an offender")?;
    drop((rival, innocent));
    trap.off()
}

/// Siblings share a licence: with both at it nothing is certain, and one alone is found.
pub fn siblings() -> Result<()> {
    let pmu = FakePmu::skylake()?;
    // Periods so long that the sibling's does not end while it is needed, and the offender's ends
    // in sleep.
    let trap =
        Trap::on(&all_cpus(), "mode=grace wide_level=2 grace_ns=1000000000 exec_grace_ns=0")?;
    let offender = || -> Result<Child> {
        Child::fork(|| {
            _ = set_affinity(0, &[BESIDE]);
            let Ok(unit) = Unit::open() else { return };
            light();
            while unit.execute(2).is_ok() {
                spin(Duration::from_millis(1));
                std::thread::sleep(SETTLED);
            }
        })
    };
    let rises = || trap.sum(|c| c.level_rises);
    // Nothing gets in between: a stretch that is interrupted is over.
    std::fs::write("/proc/sys/kernel/sched_rt_runtime_us", "-1")?;
    let sibling = Child::fork(|| {
        _ = set_affinity(0, &[SIBLING]);
        if set_real_time(0, 50).is_ok() {
            light();
            spin(LIMIT);
        }
    })?;
    wait_for("the sibling traps", LIMIT, || seen(&trap, &sibling).is_ok_and(|s| s.traps > 0))?;
    let beside = offender()?;
    std::thread::sleep(Duration::from_millis(500));
    let sibling_traps = seen(&trap, &sibling)?.traps;
    ensure!(rises()? == 0, "{} rises beside a sibling in grace", rises()?);
    ensure!(seen(&trap, &beside)?.traps > 0, "the offender did not run");
    ensure!(sibling_traps == 1, "the sibling's period ended: {sibling_traps} traps");
    drop(sibling);
    wait_for("a rise, the sibling idle", LIMIT, || rises().is_ok_and(|n| n > 0))?;
    drop(beside);
    trap.arm(&[0, 1, BESIDE])?;
    let before = rises()?;
    let beside_wide = offender()?;
    std::thread::sleep(WATCHED);
    ensure!(rises()? == before, "{} rises beside a wide sibling", rises()? - before);
    drop(beside_wide);
    trap.off()?;
    pmu.unload()
}
