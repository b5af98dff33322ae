// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sweep on this machine.
//!
//! A section is a chain of rotations, each of which waits for the one before: one core cycle each, at whatever
//! clock (`ror`, unlike `add` of a constant, is not folded away by the renamer). Each point runs for at least 30 ms
//! and three sections per thread; what else runs on the machine counts. Boosting needs P-states that a program may set; until a backend is
//! there the strategies that boost are not measured.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use locks::sys::Affinity;
use locks::{Block, Decorated, Mcs, MoveHolder, RawLock, Sleep, Spin};
use report::locks::{BreakEven, Point, Sweep};

/// Least time and sections per thread of a point.
const LEAST: Duration = Duration::from_millis(30);
const LEAST_SECTIONS: u64 = 3;

/// All sizes and strategies.
pub(super) fn sweep(sizes: &[u64], threads: u32) -> Sweep {
    let mut points = Vec::new();
    for &cycles in sizes {
        points.push(point(cycles, "spin", threads, Some(&Mcs::new(Spin))));
        points.push(point(cycles, "block", threads, Some(&Mcs::new(Block))));
        points.push(point(cycles, "futex", threads, Some(&Mcs::new(Sleep))));
        let mover = target().map(|mover| Decorated::new(Mcs::new(Spin), mover));
        points.push(point(cycles, "migrate", threads, mover.as_ref()));
    }
    let break_evens = ["block", "futex", "migrate"].map(|strategy| break_even(strategy, &points));
    Sweep { model: None, threads, points, break_evens: break_evens.into() }
}

/// The last CPU that this process may run on.
fn target() -> Option<MoveHolder> {
    let allowed = Affinity::current().ok()?;
    let last = (0..1024).rev().find(|cpu| allowed.has(*cpu))?;
    MoveHolder::new(last)
}

/// The least size from which the strategy was quicker than spinning at all sizes above.
fn break_even(strategy: &str, points: &[Point]) -> BreakEven {
    let mut from = None;
    for spin in points.iter().filter(|point| point.strategy == "spin") {
        let same = |point: &&Point| {
            point.strategy == strategy && point.section_cycles == spin.section_cycles
        };
        let other_ns = points.iter().find(same).and_then(|point| point.time_ns);
        match (spin.time_ns, other_ns) {
            (Some(spin_ns), Some(ns)) if ns < spin_ns => {
                from = from.or(Some(spin.section_cycles as f64));
            }
            _ => from = None,
        }
    }
    BreakEven { strategy: strategy.into(), section_cycles: from }
}

/// So many core cycles.
fn work(cycles: u64) {
    let mut value = 1_u64;
    for _ in 0..cycles / 16 {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: rotates a register.
        unsafe {
            std::arch::asm!(
                "ror {0}, 1", "ror {0}, 1", "ror {0}, 1", "ror {0}, 1",
                "ror {0}, 1", "ror {0}, 1", "ror {0}, 1", "ror {0}, 1",
                "ror {0}, 1", "ror {0}, 1", "ror {0}, 1", "ror {0}, 1",
                "ror {0}, 1", "ror {0}, 1", "ror {0}, 1", "ror {0}, 1",
                inout(reg) value, options(pure, nomem, nostack)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for _ in 0..16 {
            value = std::hint::black_box(value.rotate_right(1));
        }
    }
    std::hint::black_box(value);
}

/// CPU time of this process, ns.
fn cpu_ns() -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    (done == 0).then(|| now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

fn point(cycles: u64, name: &str, threads: u32, lock: Option<&impl RawLock>) -> Point {
    let measured = lock.map(|lock| measure(cycles, threads, lock));
    let time_ns = measured.as_ref().map(|(sections, taken_ns, _)| taken_ns / *sections as f64);
    Point {
        section_cycles: cycles,
        strategy: name.into(),
        sections: measured.as_ref().map(|(sections, ..)| *sections),
        time_ns,
        cpu_time_ns: measured.and_then(|(sections, _, cpu_ns)| Some(cpu_ns? / sections as f64)),
        effective_khz: time_ns.map(|ns| (cycles as f64 / ns * 1e6) as u64),
        energy_nj: None,
    }
}

/// Sections, their time, and the CPU time of all threads.
fn measure(cycles: u64, threads: u32, lock: &impl RawLock) -> (u64, f64, Option<f64>) {
    let (start, stop, total) =
        (Barrier::new(threads as usize + 1), AtomicBool::new(false), AtomicU64::new(0));
    let (mut begun, mut cpu) = (Instant::now(), None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                start.wait();
                let mut sections = 0;
                while sections < LEAST_SECTIONS || !stop.load(Ordering::Relaxed) {
                    lock.lock();
                    work(cycles);
                    // SAFETY: acquired above.
                    unsafe { lock.unlock() };
                    sections += 1;
                }
                total.fetch_add(sections, Ordering::Relaxed);
            });
        }
        (begun, cpu) = (Instant::now(), cpu_ns());
        start.wait();
        std::thread::sleep(LEAST);
        stop.store(true, Ordering::Relaxed);
    });
    let taken_ns = begun.elapsed().as_nanos() as f64;
    let used_ns = cpu.zip(cpu_ns()).map(|(before, after)| (after - before) as f64);
    (total.into_inner(), taken_ns, used_ns)
}
