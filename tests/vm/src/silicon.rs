// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures a dim-silicon machine from inside: clocks by the time stamp counter, the time that a
//! level is held. What was planted is xeon-gold-6130.toml, all cores active.
//!
//! The machine executes one instruction per cycle, so instructions per tick are the clock. A sample
//! is short; the tick of the kernel and its interrupts spoil few of them, and medians leave those
//! out.

use std::arch::asm;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{Child, set_affinity, tsc};
use crate::measure::median;

/// Frequency of the time stamp counter: the CPU's base clock.
pub const TSC_KHZ: f64 = 2_100_000.0;
/// As planted: from the last wide instruction to the halt before the higher clock.
pub const RELAX_NS: f64 = 670_000.0;
/// As planted: how long that halt takes.
pub const HALT_NS: f64 = 10_000.0;

/// Instructions of a sample of the clock: 4 us. Reading the counter costs a few of them.
const SAMPLE: u64 = 10_000;
/// The same when a halt is looked for.
const SHORT_SAMPLE: u64 = 2_000;
/// Turns of eight wide instructions and two others in a sample of a burst.
const BURST_SAMPLE: u64 = 1_000;

/// What code executes in a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// 256-bit logic.
    Light256,
    /// 256-bit FMA.
    Heavy256,
    /// 512-bit logic.
    Light512,
    /// 512-bit FMA.
    Heavy512,
}

impl Class {
    /// All, with the clock that each gets, kHz.
    pub const ALL: [(Class, f64); 4] = [
        (Class::Light256, 2_800_000.0),
        (Class::Heavy256, 2_400_000.0),
        (Class::Light512, 2_400_000.0),
        (Class::Heavy512, 1_900_000.0),
    ];
}

macro_rules! burst {
    ($turns:expr, $insn:literal) => {
        // SAFETY: changes nothing but vector registers, which are named, and the flags.
        unsafe {
            asm!(
                "2:",
                ".rept 8",
                $insn,
                ".endr",
                "dec {0}",
                "jnz 2b",
                "vzeroupper",
                inout(reg) $turns => _,
                out("xmm0") _,
                out("xmm1") _,
                options(nostack)
            )
        }
    };
}

/// Executes so many turns of ten instructions, eight of the class.
pub fn wide(class: Class, turns: u64) {
    match class {
        Class::Light256 => burst!(turns, "vpxor ymm0, ymm1, ymm1"),
        Class::Heavy256 => burst!(turns, "vfmadd231pd ymm0, ymm1, ymm1"),
        Class::Light512 => burst!(turns, "vpxord zmm0, zmm1, zmm1"),
        Class::Heavy512 => burst!(turns, "vfmadd231pd zmm0, zmm1, zmm1"),
    }
}

/// Executes so many turns of four instructions without a vector; a branch leaves heavy 512-bit code
/// beside them out.
pub fn leave_out(turns: u64) {
    // SAFETY: changes the flags and registers, which are named.
    unsafe {
        asm!(
            "2:",
            "cmp {0}, 0",
            "jne 3f",
            ".rept 8",
            "vfmadd231pd zmm0, zmm1, zmm1",
            ".endr",
            "3:",
            "dec {0}",
            "jnz 2b",
            inout(reg) turns.max(1) => _,
            out("xmm0") _,
            out("xmm1") _,
            options(nostack)
        );
    }
}

/// Executes about so many instructions without a vector; ticks that it took.
pub fn scalar(insns: u64) -> u64 {
    let start = tsc();
    // SAFETY: changes the flags and a register, which is named.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) insns / 2 => _, options(nostack)) };
    tsc() - start
}

fn ns(ticks: u64) -> f64 {
    ticks as f64 * 1e6 / TSC_KHZ
}

/// What a burst showed. Clocks in kHz.
#[derive(Clone, Copy, Debug)]
pub struct Burst {
    /// Before it.
    pub before_khz: f64,
    /// In it, when the licence was granted.
    pub during_khz: f64,
    /// After it, while the level was held.
    pub after_khz: f64,
    /// When the level was no longer held.
    pub later_khz: f64,
    /// From its end to the halt; nothing if there was none.
    pub relax_ns: Option<f64>,
}

/// Has the governor ask for the highest clock of a CPU.
pub fn ask_for_full_clock(cpu: usize) -> Result<()> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
    fs::write(&path, "performance").with_context(|| format!("cannot write {path}"))
}

/// Clock of scalar code: the median of samples.
pub fn clock_khz(samples: usize) -> f64 {
    let clocks: Vec<f64> = (0..samples).map(|_| khz(SAMPLE, scalar(SAMPLE))).collect();
    median(&clocks)
}

fn khz(insns: u64, ticks: u64) -> f64 {
    insns as f64 / ticks as f64 * TSC_KHZ
}

/// Runs a burst of a class for about 400 us on this CPU, after a sleep in which every level is
/// lost.
pub fn burst(class: Class) -> Burst {
    burst_held_for(class, RELAX_NS)
}

/// The same where a level is held for another time.
pub fn burst_held_for(class: Class, hold_ns: f64) -> Burst {
    std::thread::sleep(Duration::from_millis(3));
    clock_khz(20);
    let before_khz = clock_khz(100);
    // Request and grant: 40 us at most. Then samples.
    wide(class, 30_000 / 10);
    let mut during = Vec::new();
    let mut end = 0;
    for _ in 0..100 {
        let start = tsc();
        wide(class, BURST_SAMPLE);
        end = tsc();
        during.push(khz(10 * BURST_SAMPLE, end - start));
    }
    let (after, relax_ns) = follow(end, hold_ns);
    Burst {
        before_khz,
        during_khz: median(&during),
        after_khz: median(&after),
        later_khz: clock_khz(100),
        relax_ns,
    }
}

/// Samples until the core halts: the clocks before that, and when it was. A halt may come between
/// two samples, so what is looked at is the time from one to the next.
fn follow(end: u64, hold_ns: f64) -> (Vec<f64>, Option<f64>) {
    let (mut clocks, mut start) = (Vec::new(), end);
    loop {
        let ticks = scalar(SHORT_SAMPLE);
        let next = tsc();
        let (since_ns, took_ns) = (ns(start - end), ns(next - start));
        // Near its time, and as long as a halt: an interrupt is neither.
        if took_ns > 0.9 * HALT_NS && since_ns > 0.9 * hold_ns {
            return (clocks, Some(since_ns + took_ns / 2.0 - HALT_NS / 2.0));
        }
        if since_ns > 1.1 * hold_ns {
            return (clocks, None);
        }
        clocks.push(khz(SHORT_SAMPLE, ticks));
        start = next;
    }
}

/// Executes code of a class for this long.
pub fn wide_for(class: Class, time: Duration) {
    let start = tsc();
    while ns(tsc() - start) < time.as_nanos() as f64 {
        wide(class, BURST_SAMPLE);
    }
}

/// A process that executes code of a class on a CPU, until it is dropped.
pub fn busy(cpu: usize, class: Class) -> Result<Child> {
    Child::fork(|| {
        if set_affinity(0, &[cpu]).is_ok() {
            loop {
                wide(class, BURST_SAMPLE);
            }
        }
    })
}

/// The relative error, %.
pub fn error_pct(found: f64, planted: f64) -> f64 {
    (found / planted - 1.0).abs() * 100.0
}

/// How far clocks and hold time are off, %: the worst of all classes, each over so many bursts.
pub fn errors_pct(bursts: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut clocks, mut relaxes) = (Vec::new(), Vec::new());
    let full_khz = Class::ALL[0].1;
    for (class, low_khz) in Class::ALL {
        let seen: Vec<Burst> = (0..bursts).map(|_| burst(class)).collect();
        let of = |field: fn(&Burst) -> f64| median(&seen.iter().map(field).collect::<Vec<f64>>());
        for (what, found_khz, planted_khz) in [
            ("before", of(|burst| burst.before_khz), full_khz),
            ("during", of(|burst| burst.during_khz), low_khz),
            ("after", of(|burst| burst.after_khz), low_khz),
            ("later", of(|burst| burst.later_khz), full_khz),
        ] {
            let error = error_pct(found_khz, planted_khz);
            println!("{class:?} {what}: {:.1} MHz, {error:.3} % off", found_khz / 1000.0);
            clocks.push(error);
        }
        let relax: Vec<f64> = seen.iter().filter_map(|burst| burst.relax_ns).collect();
        if low_khz == full_khz {
            ensure!(relax.is_empty(), "{class:?} halts the core: {relax:?}");
            continue;
        }
        ensure!(!relax.is_empty(), "{class:?}: the level is never given up");
        let error = error_pct(median(&relax), RELAX_NS);
        println!("{class:?}: held for {:.1} us, {error:.3} % off", median(&relax) / 1000.0);
        relaxes.push(error);
    }
    Ok((clocks, relaxes))
}

/// The worst of some errors.
pub fn worst(errors: &[f64]) -> Result<f64> {
    errors.iter().copied().reduce(f64::max).context("nothing was measured")
}

/// Threads that each execute so many million instructions of the kind that compiled code has.
pub fn mix(threads: &str, million_insns: &str) -> Result<()> {
    let turns = million_insns.parse::<u64>()? * 1_000_000 / 11;
    let threads: Vec<_> = (0..threads.parse::<u32>()?)
        .map(|_| std::thread::spawn(move || mix_turns(turns)))
        .collect();
    for thread in threads {
        thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    }
    Ok(())
}

/// Multiplication, logic, loads and stores in 16 KiB, branches: eleven instructions a turn.
fn mix_turns(turns: u64) {
    let mut table = [0u32; 4096];
    // SAFETY: the indices have twelve bits, the table has 4,096 entries; all registers are named.
    unsafe {
        asm!(
            "2:",
            "imul eax, eax, 16777619",
            "xor eax, ecx",
            "mov edx, eax",
            "shr edx, 20",
            "add dword ptr [rsi + rdx * 4], eax",
            "mov edi, eax",
            "and edi, 4095",
            "test byte ptr [rsi + rdi * 4], 1",
            "jz 3f",
            "3:",
            "dec rcx",
            "jnz 2b",
            inout("rcx") turns.max(1) => _,
            in("rsi") table.as_mut_ptr(),
            inout("eax") 1 => _,
            out("edx") _,
            out("edi") _,
            options(nostack)
        );
    }
}
