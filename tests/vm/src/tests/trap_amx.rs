// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module with AMX, which only Bochs has: one scalar CPU, one wide. The kernel's own trap
//! for tiles (XFD) stays what it is beside ours. One boot for all, because a boot in Bochs takes as
//! long as a test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::{Child, cpu, set_affinity, spin};
use crate::lane::Lane;
use crate::trap::sections::SCHEDULER;
use crate::trap::tiles::{hold, permit, product_is_right, tiles, touch};
use crate::trap::vectors::mix;
use crate::trap::{Trap, set};

/// The scalar CPU, which is armed, and the wide one.
const SCALAR: usize = 0;
const WIDE: usize = 1;

/// Sections that one task executes.
const SECTIONS: u32 = 40;
/// Of the guest's time, which passes at about the same rate.
const STRESS: Duration = Duration::from_secs(4);

/// All of them.
pub fn everything() -> Result<()> {
    let flags = std::fs::read_to_string("/proc/cpuinfo")?;
    ensure!(flags.contains(" amx_tile "), "this CPU, or its kernel, has no AMX");
    not_permitted().context("a program without permission")?;
    permit().context("permission for tiles")?;
    pinned().context("a pinned program")?;
    sections().context("sections")?;
    stress().context("stress")
}

/// Who has not asked the kernel for tiles gets the kernel's own answer, on an armed CPU too.
fn not_permitted() -> Result<()> {
    let full = end_of_touch(SCALAR)?;
    let trap = Trap::withholding("amx", "mode=steer")?;
    trap.arm(&[SCALAR])?;
    let (armed, unarmed) = (end_of_touch(SCALAR)?, end_of_touch(WIDE)?);
    ensure!(full >= ILLEGAL, "the kernel let it use tiles: {full}");
    ensure!(armed == full && unarmed == full, "{armed} and {unarmed} instead of {full}");
    ensure!(trap.sum(|c| c.traps)? > 0, "nothing trapped on the armed CPU");
    trap.off()
}

/// Exit codes of a child that got SIGILL: this, twice the signal's code, and whether its address is
/// that of the instruction.
const ILLEGAL: i32 = 32;

/// How a child ends that touches a tile on this CPU.
fn end_of_touch(cpu: usize) -> Result<i32> {
    extern "C" fn handler(_: i32, info: &libc::siginfo_t, context: &libc::ucontext_t) {
        // SAFETY: SIGILL has an address.
        let address = unsafe { info.si_addr() } as i64;
        let is_there = address == context.uc_mcontext.gregs[libc::REG_RIP as usize];
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(ILLEGAL + 2 * info.si_code + i32::from(is_there)) }
    }
    let mut child = Child::fork(|| {
        let _ = set_affinity(0, &[cpu]);
        // SAFETY: the handler ends the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGILL, &action, std::ptr::null_mut());
        }
        touch();
    })?;
    child.wait()
}

/// A task that may run on the armed CPU only traps and gets its results there.
fn pinned() -> Result<()> {
    let trap = Trap::withholding("amx", "mode=steer hold_ns=500000 grace_ns=500000")?;
    trap.arm(&[SCALAR])?;
    set_affinity(0, &[SCALAR])?;
    for seed in 0..50 {
        spin(Duration::from_millis(2));
        ensure!(product_is_right(seed), "product {seed} is wrong");
    }
    set_affinity(0, &[SCALAR, WIDE])?;
    let traps = trap.sum(|c| c.traps)?;
    ensure!(traps >= 20, "only {traps} of 50 sections trapped");
    trap.off()
}

/// Sections that begin on the scalar CPU are on the wide one behind their first tile instruction.
fn sections() -> Result<()> {
    let trap = Trap::withholding("amx", "mode=grace")?;
    trap.arm(&[SCALAR])?;
    let lane = Lane::start(&SCHEDULER)?;
    let mut arrived = 0;
    for seed in 0..SECTIONS {
        // With no other load nothing would take the task off the wide CPU.
        set_affinity(0, &[SCALAR])?;
        spin(Duration::from_millis(12));
        set_affinity(0, &[SCALAR, WIDE])?;
        touch();
        arrived += u32::from(cpu() == WIDE);
        ensure!(product_is_right(u64::from(seed)), "product {seed} is wrong");
    }
    println!("{arrived} of {SECTIONS} sections moved to the wide CPU");
    ensure!(arrived * 100 >= SECTIONS * 97, "only {arrived} of {SECTIONS} moved");
    lane.stop()?;
    trap.off()
}

static ERRORS: AtomicU64 = AtomicU64::new(0);
static SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Tiles are held over system calls, preemption, signals whose handlers use tiles, fork, and
/// migrations by the scheduler.
fn stress() -> Result<()> {
    let trap = Trap::withholding("avx512,amx", "mode=steer hold_ns=2000000 grace_ns=500000")?;
    trap.arm(&[SCALAR])?;
    let lane = Lane::start(&SCHEDULER)?;
    let mut child = Child::fork(|| {
        // SAFETY: the handler touches tiles and one atomic only.
        unsafe { libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t) };
        let workers: Vec<_> =
            (1..=6_u64).map(|id| std::thread::spawn(move || worker(id))).collect();
        let panics = workers.into_iter().filter_map(|worker| worker.join().err()).count() as u64;
        let (errors, signals) = (ERRORS.load(Ordering::Relaxed), SIGNALS.load(Ordering::Relaxed));
        println!("stress: {errors} errors, {signals} signals");
        // SAFETY: ends the child at once; its threads are joined.
        unsafe { libc::_exit(if errors + panics > 0 { 3 } else { i32::from(signals == 0) }) }
    })?;
    for round in 0..STRESS.as_secs() as usize {
        std::thread::sleep(Duration::from_secs(1));
        set("mode", ["grace", "steer", "count"][round % 3])?;
    }
    let code = child.wait()?;
    let (traps, steered) = (trap.sum(|c| c.traps)?, trap.sum(|c| c.steered)?);
    println!("{traps} traps, {steered} told to the scheduler");
    ensure!(code != 3, "tiles lost their values; stdout says which");
    ensure!(code == 0, "the stress ended with {code}");
    ensure!(traps > 100 && steered > 50, "too little happened");
    lane.stop()?;
    trap.off()
}

extern "C" fn on_signal(_: i32) {
    touch();
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn error(what: &str, id: u64) {
    ERRORS.fetch_add(1, Ordering::Relaxed);
    println!("stress: thread {id}: {what}");
}

fn worker(id: u64) {
    // SAFETY: no arguments.
    let tid = i64::from(unsafe { libc::gettid() });
    let (start, mut seed) = (Instant::now(), id * 1_000_003);
    for round in id.. {
        seed = mix(seed + 1);
        let held = tiles(seed);
        let (spins, calls) = (1 + seed % 20_000, seed >> 40 & 3);
        if hold(&held, libc::SYS_sched_yield, [0; 2], calls, spins).0 != held {
            error("tiles changed over system calls", id);
        }
        if !product_is_right(seed) {
            error("a product is wrong", id);
        }
        if round % 4 == 0 {
            let signal = [tid, i64::from(libc::SIGUSR1)];
            if hold(&held, libc::SYS_tkill, signal, 1, 1 + seed % 100) != (held.clone(), 0) {
                error("tiles changed over a signal", id);
            }
        }
        if round % 16 == 0 {
            hold_over_fork(id, &held);
        }
        spin(Duration::from_micros(seed % 4000));
        if round % 8 == 0 {
            std::thread::sleep(Duration::from_micros(1 + seed % 3000));
        }
        if start.elapsed() > STRESS {
            return;
        }
    }
}

/// The parent finds what was there. The child does not: the kernel gives it empty tiles, as x86's
/// ABI allows.
fn hold_over_fork(id: u64, held: &crate::trap::tiles::Tiles) {
    let (after, pid) = hold(held, libc::SYS_fork, [0; 2], 1, 0);
    if pid == 0 {
        // SAFETY: ends the child without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    if *after != *held {
        error("tiles changed over fork", id);
    }
    if pid < 0 || (Child { pid: pid as i32 }).wait().ok() != Some(0) {
        error("a forked child died", id);
    }
}
