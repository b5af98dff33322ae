// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module with the scheduler: programs that say nothing get core specialisation.
//!
//! Where each single one of many sections counts, the guest's time is that of its instructions
//! (`icount`). Else a busy host may stop a virtual CPU for longer than a wide period lasts, between
//! the wide instruction and the look at the CPU, and the task is back on a scalar CPU by then,
//! rightly.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use hw::trap::{self, Device};

use crate::guest::{Child, cpu, migrations, nr_cpus, scx_state, set_affinity, spin};
use crate::lane::{Lane, stat, stats, turbolane};
use crate::trap::contexts::is_withheld;
use crate::trap::stress::Stress;
use crate::trap::vectors::{heavy, vector_sum};
use crate::trap::{Trap, set};

/// Sections that one task executes.
const SECTIONS: u32 = 150;

/// Executes wide sections with scalar work between them. Returns how many began on a scalar CPU,
/// how many of those did not trap, and how many trapped and were on a scalar CPU still behind
/// their first wide instruction.
fn sections(trap: &Trap, wide_cpu: usize) -> Result<(u32, u32, u32)> {
    let tid = std::process::id() as i32;
    let (mut begun, mut missed, mut stayed) = (0, 0, 0);
    for seed in 0..SECTIONS {
        let steered = trap.device().task_counters(tid)?.steered;
        spin(Duration::from_millis(6));
        let before = cpu();
        heavy();
        let after = cpu();
        vector_sum(u64::from(seed), 2000);
        if before != wide_cpu {
            let trapped = trap.device().task_counters(tid)?.steered > steered;
            begun += 1;
            missed += u32::from(!trapped);
            stayed += u32::from(trapped && after != wide_cpu);
        }
    }
    Ok((begun, missed, stayed))
}

/// Tasks that execute a wide instruction on a scalar CPU are on the wide one at the next.
pub fn migrates() -> Result<()> {
    let wide_cpu = nr_cpus() - 1;
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=2000000")?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1", "--remigrate", "timeout:1ms"])?;
    let (begun, missed, stayed) = sections(&trap, wide_cpu)?;
    println!("{begun} sections began on scalar CPUs, {missed} did not trap, {stayed} stayed");
    ensure!(begun > SECTIONS / 3, "only {begun} of {SECTIONS} began on a scalar CPU");
    ensure!(missed + stayed == 0, "{missed} did not trap, {stayed} stayed of {begun}");
    ensure!(stat(&stats()?, "trap_events")? >= u64::from(begun), "the scheduler saw too few");
    lane.stop()?;
    trap.off()
}

/// Many tasks hold values in their registers while the scheduler moves them to and fro.
pub fn stress_with_migrations() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=1000000 grace_ns=300000")?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1", "--remigrate", "timeout:1ms"])?;
    let stress = Stress::start(24, Duration::from_secs(30))?;
    for round in 0..15 {
        std::thread::sleep(Duration::from_secs(2));
        set("mode", ["grace", "steer"][round % 2])?;
    }
    stress.finish()?;
    let steered = trap.sum(|c| c.steered)?;
    ensure!(steered > 500, "only {steered} traps were told to the scheduler");
    lane.stop()?;
    trap.off()
}

/// A task that may run on scalar CPUs only makes progress under the scheduler too, and wide
/// CPUs that are full of other work do not stop anybody.
pub fn pinned_and_crowded() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=500000")?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let mut crowd = Vec::new();
    for _ in 0..6 {
        crowd.push(Child::fork(|| {
            for seed in 0..2000 {
                vector_sum(seed, 20_000);
            }
        })?);
    }
    let mut pinned = Child::fork(|| {
        let _ = set_affinity(0, &[1]);
        for seed in 0..300 {
            vector_sum(seed, 500);
            spin(Duration::from_millis(1));
        }
    })?;
    ensure!(pinned.wait()? == 0, "the pinned task failed");
    for child in &mut crowd {
        ensure!(child.wait()? == 0, "a task of the crowd failed");
    }
    lane.stop()?;
    trap.off()
}

/// What `run` is given here: QEMU has AVX to withhold, whose heavy code is level 1. A busy host may
/// stop a virtual CPU for tens of milliseconds; a wide period must be longer.
const RUN: [&str; 8] =
    ["--mode", "scx", "--trap", "avx", "--trap-level", "1", "--remigrate", "timeout:100ms"];

/// `turbolane run --trap` loads the module, arms the scalar CPUs, follows when they change, and
/// leaves nothing behind; killed, it leaves nothing armed.
pub fn run_and_leave() -> Result<()> {
    let args = [&RUN[..], &["--wide-cpus", "1"]].concat();
    let lane = Lane::start(&args)?;
    let armed = || -> Result<u32> { Ok(Device::open()?.info()?.cpus_armed) };
    ensure!(armed()? == 3, "{} CPUs are armed, not the three scalar ones", armed()?);
    ensure!(trap::setting("wide_level")? == "1", "the level did not arrive");
    crate::lane::set(&["wide-cpus=2-3", "trap-mode=steer"])?;
    ensure!(armed()? == 2, "{} CPUs are armed after a change to two scalar ones", armed()?);
    ensure!(trap::setting("mode")? == "steer", "the mode did not arrive");
    refused_change()?;
    ensure!(armed()? == 2, "{} CPUs are armed after a change that was refused", armed()?);
    let before = stats()?;
    let (mut on_wide, mut moved) = (0, 0);
    // Nothing is withheld from this program until the session has read it.
    set_affinity(0, &[0])?;
    ensure!(is_withheld(&Device::open()?, Duration::from_secs(60)), "this program is not read");
    set_affinity(0, &[0, 1, 2, 3])?;
    for _ in 0..20 {
        spin(Duration::from_millis(250));
        // In this order: to read a file takes wide code of the C library, and so a trap.
        let begins_there = cpu() >= 2;
        let migrations_before = migrations();
        heavy();
        // It stays for 50 us (policy/stay.h), in which a busy host may stop its CPU; and the
        // scheduler's answer is an interrupt, which comes a little later there.
        let arrives = (0..20).any(|_| {
            let is_there = cpu() >= 2 || migrations() > migrations_before;
            spin(Duration::from_millis(1));
            is_there
        });
        on_wide += u32::from(begins_there || arrives);
        moved += u64::from(!begins_there);
    }
    ensure!(on_wide == 20, "behind {on_wide} of 20 wide instructions on a wide CPU");
    let after = stats()?;
    let grown = |name| anyhow::Ok(stat(&after, name)? - stat(&before, name)?);
    let heard = grown("trap_events")?;
    ensure!(
        moved > 0 && heard >= moved,
        "the scheduler heard of {heard} traps, {moved} of 20 wide instructions began on a scalar \
         CPU: {after}"
    );
    ensure!(grown("migrations_to_wide")? >= moved, "{moved} tasks were to go: {after}");
    lane.stop()?;
    ensure!(!trap::is_loaded(), "the module stayed");

    let lane = Lane::start(&args)?;
    lane.signal(libc::SIGKILL);
    lane.wait()?;
    ensure!(trap::is_loaded(), "who removed the module?");
    ensure!(armed()? == 0, "{} CPUs are armed by a dead process", armed()?);
    // Left over from a run that was killed, it serves the next one.
    Lane::start(&args)?.stop()?;
    crate::trap::unload()
}

/// A change that the module does not take leaves everything as it was, also what came before it in
/// the request.
fn refused_change() -> Result<()> {
    let settings = turbolane(&["ctl", "get", "--json"])?;
    let file = "/sys/module/turbolane_trap/parameters/wide_level";
    let run = |args: &[&str]| -> Result<()> {
        ensure!(std::process::Command::new(args[0]).args(&args[1..]).status()?.success());
        Ok(())
    };
    // The session reads the level now and then to judge processes: it must find one, and may hold
    // the file open.
    run(&["mount", "--bind", file, file])?;
    run(&["mount", "-o", "remount,bind,ro", file])?;
    let refused = crate::lane::set(&["wide-cpus=1", "slice=7ms", "trap-level=2"]);
    run(&["umount", "--lazy", file])?;
    let Err(refused) = refused else { bail!("a level arrived where nothing can be written") };
    ensure!(refused.to_string().contains("wide_level"), "{refused}");
    let after = turbolane(&["ctl", "get", "--json"])?;
    ensure!(after == settings, "{after} instead of {settings}");
    ensure!(trap::setting("wide_level")? == "1", "the level changed");
    Ok(())
}

/// What cannot be trapped is refused before anything is changed.
pub fn run_fail() -> Result<()> {
    let refused = |args: &[&str], code: i32, word: &str| -> Result<()> {
        let end = Lane::spawn(args)?.wait()?;
        ensure!(end.code == code, "run {args:?} ends with {}: {}", end.code, end.stderr);
        ensure!(end.stderr.contains(word), "run {args:?} says: {}", end.stderr);
        ensure!(!trap::is_loaded() && scx_state() == "disabled", "run {args:?} changed something");
        Ok(())
    };
    refused(&["--mode", "scx", "--trap", "avx512"], 77, "no avx512")?;
    refused(&["--mode", "scx", "--trap", "amx"], 77, "no amx")?;
    refused(&["--mode", "affinity", "--trap", "avx"], 77, "affinity")?;
    refused(&["--trap", "everything"], 2, "everything")?;
    refused(&["--trap", "avx", "--trap-level", "4"], 2, "licence level")?;
    // Loaded by somebody else for something else: theirs stays as it is.
    crate::trap::load("components=avx")?;
    let other = Device::open()?;
    other.arm(&[0].into_iter().collect())?;
    let end = Lane::spawn(&[&RUN[..], &["--wide-cpus", "1"]].concat())?.wait()?;
    ensure!(end.code == 2 && end.stderr.contains("armed"), "{}: {}", end.code, end.stderr);
    ensure!(other.info()?.cpus_armed == 1, "the other's CPUs changed");
    has_avx_on(0)?;
    has_avx_on(1)?;
    drop(other);
    crate::trap::unload()
}

/// `doctor` says the same of an armed CPU as of another.
fn has_avx_on(cpu: usize) -> Result<()> {
    let out = std::process::Command::new("taskset")
        .args(["-c", &cpu.to_string(), crate::lane::TURBOLANE, "doctor"])
        .output()?;
    let report = String::from_utf8_lossy(&out.stdout);
    ensure!(report.contains("AVX2"), "doctor on CPU {cpu} knows of no AVX2: {report}");
    Ok(())
}

/// A kernel that takes signed modules only: the reason is told, and nothing has changed.
pub fn unsigned_fail() -> Result<()> {
    let end = Lane::spawn(&RUN)?.wait()?;
    ensure!(end.code == 77 && end.stderr.contains("signed"), "{}: {}", end.code, end.stderr);
    ensure!(!trap::is_loaded() && scx_state() == "disabled", "something changed");
    Ok(())
}

/// A command's own C library can be kept from AVX-512, and other tunables stay.
pub fn plain_glibc() -> Result<()> {
    let out = std::process::Command::new(crate::lane::TURBOLANE)
        .args(["run", "--mode", "scx", "--quiet", "--plain-glibc", "--"])
        .args(["sh", "-c", "echo $GLIBC_TUNABLES"])
        .env("GLIBC_TUNABLES", "glibc.malloc.check=0")
        .output()?;
    let shown = String::from_utf8_lossy(&out.stdout);
    let expected = "glibc.malloc.check=0:glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW";
    ensure!(shown.trim() == expected, "the command sees {shown}");
    Ok(())
}
