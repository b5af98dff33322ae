// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `trap`: what the trap module costs, and that it never loses anything. Instructions are
//! those of all CPUs; the others are idle, so that what is counted is the path.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use hw::trap::Verdict;
use sched::questions::Watch;

use crate::guest::{Child, cpu, nr_cpus, set_affinity, spin, tsc, wait_for};
use crate::lane::Lane;
use crate::measure::{Figure, median, publish};
use crate::trap::contexts;
use crate::trap::hash::Hashing;
use crate::trap::stress::Stress;
use crate::trap::vectors::heavy;
use crate::trap::{Trap, load_beside, set, sites};

const UNIT: &str = "instructions";
/// The median of so many is the same in each run.
const SAMPLES: usize = 100;
/// 100 samples take less than a second of the guest's time if each round gives one.
const SAMPLES_LIMIT: Duration = Duration::from_secs(60);
/// Longer than all periods of grace that are set here, and than a tick of 4 ms.
const PAUSE: Duration = Duration::from_millis(6);

/// Instructions of one wide instruction that is sure to trap: `stay` on the CPU, or not. On a busy
/// host many rounds give nothing: the period of grace was not over yet, or the task was elsewhere.
/// So it goes on until there are enough.
fn traps(trap: &Trap, start_cpu: usize, stays: bool) -> Result<Vec<f64>> {
    let tid = std::process::id() as i32;
    let (mut counts, mut no_trap, mut elsewhere, mut rounds) = (Vec::new(), 0, 0, 0_usize);
    let begin = Instant::now();
    while counts.len() < SAMPLES && begin.elapsed() < SAMPLES_LIMIT {
        rounds += 1;
        spin(PAUSE);
        if cpu() != start_cpu && stays {
            elsewhere += 1;
            continue;
        }
        let before = trap.device().task_counters(tid)?.traps;
        let from = cpu();
        let start = tsc();
        heavy();
        let cost = tsc() - start;
        let moved = cpu() != from;
        if trap.device().task_counters(tid)?.traps != before + 1 {
            no_trap += 1;
        } else if moved == stays {
            elsewhere += 1;
        } else {
            counts.push(cost as f64);
        }
    }
    let got = format!(
        "{} samples of {SAMPLES} in {rounds} rounds and {:.1} s: {no_trap} rounds without one trap, in {elsewhere} the \
         task was on another CPU than wanted",
        counts.len(),
        begin.elapsed().as_secs_f64()
    );
    ensure!(counts.len() == SAMPLES, "{got}");
    println!("{got}");
    Ok(counts)
}

/// `trap.stay_instructions`: the task is pinned, the scheduler is told, and leaves it here.
/// `trap.migrate_instructions`: from a scalar CPU to the next instruction on the wide one.
///
/// Where the latter go (one typical passage of 11,324, by a plugin of QEMU): 890 for the trap, what
/// is decided and the policy's note of it; 970 for the policy's kick of its own CPU, which
/// sched_ext passes on by an interrupt; 3,800 for the kernel's choice of what runs next there, the
/// policy's placing included; 1,900 until the task is moved and the wide CPU told, for which
/// sched_ext takes a second interrupt; 2,600 on the wide CPU from its idle loop to the program. The
/// remaining 1,100 are the scalar CPU's way to its idle loop, at the same time as the latter.
pub fn paths() -> Result<()> {
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=1000000 exec_grace_ns=0")?;
    set_affinity(0, &[0])?;
    let alone = traps(&trap, 0, true)?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1", "--remigrate", "timeout:1ms"])?;
    let stay = traps(&trap, 0, true)?;
    set_affinity(0, &(0..nr_cpus()).collect::<Vec<_>>())?;
    let migrate = traps(&trap, 0, false)?;
    lane.stop()?;
    trap.off()?;
    publish(
        "trap-paths",
        &[
            Figure::of("trap.stay_instructions", UNIT, "lower", &stay)?,
            Figure::of("trap.unheard_instructions", UNIT, "lower", &alone)?,
            Figure::of("trap.migrate_instructions", UNIT, "lower", &migrate)?
                .against("THESIS 5.4.2, kernel instructions per migration", 11_000.0),
        ],
    )
}

/// Instructions of a call, least of many: what interrupts add is left out.
fn least(mut call: impl FnMut()) -> f64 {
    let mut least = u64::MAX;
    for _ in 0..2000 {
        let start = tsc();
        call();
        least = least.min(tsc() - start);
    }
    least as f64
}

/// Instructions per switch between two tasks on one CPU: half a turn of two that pass a byte.
fn per_switch() -> Result<Vec<f64>> {
    // Most batches are over before the next tick, and the median has none.
    const TURNS: u64 = 25;
    const BATCHES: u64 = 400;
    let (mut there, mut back) = ([0; 2], [0; 2]);
    for pipe in [&mut there, &mut back] {
        // SAFETY: room for two descriptors.
        ensure!(unsafe { libc::pipe(pipe.as_mut_ptr()) } == 0, "there is no pipe left");
    }
    let pass = |from: i32, to: i32| {
        let mut byte = 0_u8;
        // SAFETY: one byte each.
        unsafe {
            libc::read(from, (&raw mut byte).cast(), 1) == 1
                && libc::write(to, (&raw const byte).cast(), 1) == 1
        }
    };
    let mut echo = Child::fork(|| {
        for _ in 0..=TURNS * BATCHES {
            pass(there[0], back[1]);
        }
    })?;
    let turn = || {
        // SAFETY: one byte.
        unsafe { libc::write(there[1], [1_u8].as_ptr().cast(), 1) };
        let mut byte = 0_u8;
        // SAFETY: one byte.
        unsafe { libc::read(back[0], (&raw mut byte).cast(), 1) };
    };
    turn();
    let mut counts = Vec::new();
    for _ in 0..BATCHES {
        let start = tsc();
        for _ in 0..TURNS {
            turn();
        }
        counts.push((tsc() - start) as f64 / (2 * TURNS) as f64);
    }
    ensure!(echo.wait()? == 0, "the other side failed");
    Ok(counts)
}

/// `trap.syscall_extra_instructions`, `trap.switch_extra_instructions`: with a CPU armed, minus
/// without the module.
pub fn extra() -> Result<()> {
    set_affinity(0, &[0])?;
    let getppid = || {
        // SAFETY: no arguments.
        unsafe { libc::syscall(libc::SYS_getppid) };
    };
    spin(PAUSE);
    let (call_before, switch_before) = (least(getppid), per_switch()?);
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=100000 exec_grace_ns=0")?;
    spin(PAUSE);
    let (call_armed, switch_armed) = (least(getppid), per_switch()?);
    trap.off()?;
    let base = median(&switch_before);
    let switch_extra: Vec<f64> = switch_armed.iter().map(|count| count - base).collect();
    let switch_pct: Vec<f64> = switch_extra.iter().map(|extra| 100.0 * extra / base).collect();
    publish(
        "trap-extra",
        &[
            Figure::of(
                "trap.syscall_extra_instructions",
                UNIT,
                "lower",
                &[call_armed - call_before],
            )?
            .against("getppid without the module", call_before),
            Figure::of("trap.switch_extra_instructions", UNIT, "lower", &switch_extra)?
                .against("a switch by pipe without the module", base),
            Figure::of("trap.switch_extra_pct", "%", "lower", &switch_pct)?,
        ],
    )
}

/// `trap.reduced_xstate_sites`: executions of any XSAVE*, XRSTOR* of the kernel with a reduced
/// XCR0, of `n`.
pub fn xstate() -> Result<()> {
    let places = sites::find()?;
    load_beside("turbolane_xcheck", &format!("sites={}", places.join(",")))?;
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=1000000 grace_ns=300000")?;
    let time = Duration::from_secs(60);
    let (stress, hashing) = (Stress::start(16, time)?, Hashing::start(time)?);
    hashing.finish()?;
    stress.finish()?;
    let (executed, reduced, _) = sites::counts()?;
    trap.off()?;
    sites::unload()?;
    publish("trap-xstate", &[Figure::count("trap.reduced_xstate_sites", reduced, executed)])
}

/// `trap.stress_errors`: ten minutes of registers held over everything, while modes, armed sets
/// and the module itself change. `n` is the number of traps.
pub fn stress() -> Result<()> {
    const TIME: Duration = Duration::from_secs(600);
    let stress = Stress::start(24, TIME)?;
    let start = Instant::now();
    let mut traps = 0;
    while start.elapsed() < TIME {
        let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=2000000 grace_ns=500000")?;
        let hashing = Hashing::start(Duration::from_secs(20))?;
        for round in 0..25 {
            std::thread::sleep(Duration::from_secs(1));
            set("mode", ["grace", "steer", "count"][round % 3])?;
            trap.arm([&[0, 1, 2][..], &[1, 3], &[0, 1, 2, 3], &[]][round % 4])?;
        }
        hashing.finish()?;
        traps += trap.sum(|c| c.traps)?;
        trap.off()?;
    }
    // An error ends the benchmark: there is no figure but 0.
    stress.finish()?;
    publish("trap-stress", &[Figure::count("trap.stress_errors", 0, traps)])
}

/// `trap.foreign_contexts_wrong`: contexts, saved and restored by the program itself from code in
/// files, in anonymous memory, in memfds, in deleted files and in memory that was written before,
/// that got wrong registers back, of `n`.
pub fn foreign_contexts() -> Result<()> {
    const EACH: u64 = 600;
    let settings = "mode=count grace_ns=10000 exec_grace_ns=0 withhold_unread=0";
    let trap = Trap::on(&[0], settings)?;
    let (wrong, all) = contexts::all(&trap, &contexts::PLACES, EACH)?;
    trap.off()?;
    publish("trap-contexts", &[Figure::count("trap.foreign_contexts_wrong", wrong, all)])
}

/// A pipeline of small dynamic programs.
const PIPELINE: &str =
    "for i in 1 2 3 4 5 6 7 8; do ls -lR /usr/share/perl5 /etc | sort | md5sum; done";

/// `trap.dynamic_program_traps_per_s` and its share of all instructions, on an ordinary shell
/// pipeline with everything armed and nothing wide in it.
pub fn dynamic() -> Result<()> {
    let trap = Trap::on(&(0..nr_cpus()).collect::<Vec<_>>(), "mode=grace")?;
    set_affinity(0, &[0])?;
    let stay = median(&traps(&trap, 0, true)?);
    set_affinity(0, &(0..nr_cpus()).collect::<Vec<_>>())?;
    let (mut per_s, mut share_pct) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let before = trap.sum(|c| c.traps)?;
        let (start, start_tsc) = (Instant::now(), tsc());
        let done = Command::new("sh").args(["-c", PIPELINE]).stdout(Stdio::null()).status()?;
        ensure!(done.success(), "the pipeline failed");
        let traps = (trap.sum(|c| c.traps)? - before) as f64;
        per_s.push(traps / start.elapsed().as_secs_f64());
        share_pct.push(100.0 * traps * stay / (tsc() - start_tsc) as f64);
    }
    trap.off()?;
    publish(
        "trap-dynamic",
        &[
            Figure::of("trap.dynamic_program_traps_per_s", "1/s", "lower", &per_s)?,
            Figure::of("trap.dynamic_program_share_pct", "%", "lower", &share_pct)?,
        ],
    )
}

/// String work for ever, in a program whose files hold no wide code.
const STRINGS: &str =
    r#"while (1) { my $s = "light" x 2000; $n += index($s, "wide"); $s =~ tr/a-z/A-Z/; }"#;

/// `trap.known_light_traps_per_s`: a program that uses light code all the time, after its files
/// have been scanned; the baseline is the same program before.
pub fn known_light() -> Result<()> {
    let trap = Trap::on(&(0..nr_cpus()).collect::<Vec<_>>(), "mode=grace")?;
    let mut program = Command::new("perl").args(["-e", STRINGS]).spawn()?;
    let result = compare_known(&trap, program.id());
    program.kill()?;
    program.wait()?;
    let (unknown, known) = result?;
    trap.off()?;
    let figure = Figure::of("trap.known_light_traps_per_s", "1/s", "lower", &known)?;
    let figure = figure.against("before its files were scanned", median(&unknown));
    publish("trap-known-light", &[figure])
}

/// Traps per second of the program as it starts, and once it is known to be light.
fn compare_known(trap: &Trap, pid: u32) -> Result<(Vec<f64>, Vec<f64>)> {
    let task = || trap.device().task_counters(pid.cast_signed());
    let rates = || -> Result<Vec<f64>> {
        let mut rates = Vec::new();
        for _ in 0..5 {
            let (before, start) = (task()?.traps, Instant::now());
            std::thread::sleep(Duration::from_secs(2));
            rates.push((task()?.traps - before) as f64 / start.elapsed().as_secs_f64());
        }
        Ok(rates)
    };
    std::thread::sleep(Duration::from_secs(1));
    let unknown = rates()?;
    let mut watch = Watch::new();
    wait_for("the program is known to be light", Duration::from_secs(150), || {
        watch.look_at(pid, trap.device());
        task().is_ok_and(|task| task.verdict == Verdict::Light as u32)
    })?;
    Ok((unknown, rates()?))
}
