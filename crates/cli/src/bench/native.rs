// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sweep on this machine.
//!
//! A section is a chain of rotations, each of which waits for the one before: one core cycle each,
//! at whatever clock (`ror`, unlike `add` of a constant, is not folded away by the renamer). Each
//! point runs for at least 30 ms and three sections per thread; what else runs on the machine
//! counts. The strategies that boost need P-states that a program may set, and are measured if it
//! was asked to. The energy is that of all packages while a point is measured, with everything else
//! that runs there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hw::{EnergyMeter, Live};
use locks::sys::Affinity;
use locks::{Block, Decorated, Mcs, MoveHolder, OtherCore, Owner, RawLock, Sleep, Spin};
use pstate::Control;
use report::locks::{BreakEven, Point, Sweep};

/// Least time and sections per thread of a point.
const LEAST: Duration = Duration::from_millis(30);
const LEAST_SECTIONS: u64 = 3;

/// All sizes and strategies; those that boost by `control`, if there is one.
pub(super) fn sweep(
    sizes: &[u64],
    threads: u32,
    control: Option<&Arc<Control>>,
    energy: Option<&EnergyMeter>,
) -> Sweep {
    let bench = Bench { threads, energy };
    let points: Vec<Point> = sizes.iter().flat_map(|&cycles| bench.all(cycles, control)).collect();
    let others = ["block", "futex", "owner", "delegate", "migrate"];
    let break_evens = others.map(|strategy| break_even(strategy, &points));
    Sweep { model: None, threads, pstates: None, points, break_evens: break_evens.into() }
}

/// What is the same for all points.
struct Bench<'a> {
    threads: u32,
    energy: Option<&'a EnergyMeter>,
}

/// What a point has measured.
struct Measured {
    sections: u64,
    taken_ns: f64,
    cpu_ns: Option<f64>,
    energy_uj: Option<f64>,
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

impl Bench<'_> {
    /// All strategies at one size, in the order of their names in TURBO 7 and 9.
    fn all(&self, cycles: u64, control: Option<&Arc<Control>>) -> Vec<Point> {
        let spin = || Mcs::new(Spin);
        let owner = control.map(|control| Decorated::new(spin(), Owner::new(control.clone())));
        let delegate = control.and_then(writer).map(|by| Decorated::new(spin(), Owner::new(by)));
        let mover = target().map(|mover| Decorated::new(spin(), mover));
        vec![
            self.point(cycles, "spin", Some(&spin())),
            self.point(cycles, "block", Some(&Mcs::new(Block))),
            self.point(cycles, "futex", Some(&Mcs::new(Sleep))),
            self.point(cycles, "owner", owner.as_ref()),
            self.point(cycles, "delegate", delegate.as_ref()),
            self.point(cycles, "migrate", mover.as_ref()),
        ]
    }

    fn point(&self, cycles: u64, name: &str, lock: Option<&impl RawLock>) -> Point {
        let measured = lock.map(|lock| self.measure(cycles, lock));
        let per_section = |value: fn(&Measured) -> Option<f64>| {
            let measured = measured.as_ref()?;
            Some(value(measured)? / measured.sections as f64)
        };
        let time_ns = per_section(|measured| Some(measured.taken_ns));
        Point {
            section_cycles: cycles,
            strategy: name.into(),
            sections: measured.as_ref().map(|measured| measured.sections),
            time_ns,
            cpu_time_ns: per_section(|measured| measured.cpu_ns),
            effective_khz: time_ns.map(|ns| (cycles as f64 / ns * 1e6) as u64),
            energy_nj: per_section(|measured| Some(measured.energy_uj? * 1e3)),
        }
    }

    fn measure(&self, cycles: u64, lock: &impl RawLock) -> Measured {
        let (start, stop, total) =
            (Barrier::new(self.threads as usize + 1), AtomicBool::new(false), AtomicU64::new(0));
        let energy = || self.energy.and_then(|meter| meter.read(&Live));
        let (mut begun, mut cpu, mut energy_before) = (Instant::now(), None, None);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    start.wait();
                    total.fetch_add(sections(cycles, lock, &stop), Ordering::Relaxed);
                });
            }
            (begun, cpu, energy_before) = (Instant::now(), cpu_ns(), energy());
            start.wait();
            std::thread::sleep(LEAST);
            stop.store(true, Ordering::Relaxed);
        });
        let used = energy_before.zip(energy()).zip(self.energy);
        Measured {
            sections: total.into_inner(),
            taken_ns: begun.elapsed().as_nanos() as f64,
            cpu_ns: cpu.zip(cpu_ns()).map(|(before, after)| (after - before) as f64),
            energy_uj: used
                .map(|((before, after), meter)| meter.between_uj(&before, &after) as f64),
        }
    }
}

/// A server thread that sets P-states for others; `None` if it cannot be started.
fn writer(control: &Arc<Control>) -> Option<OtherCore<Arc<Control>>> {
    let highest = control.clocks().topology.possible().highest()?;
    OtherCore::new(control.clone(), u32::try_from(highest).ok()? + 1, None).ok()
}

/// One thread's sections until it is stopped: how many.
fn sections(cycles: u64, lock: &impl RawLock, stop: &AtomicBool) -> u64 {
    let mut sections = 0;
    while sections < LEAST_SECTIONS || !stop.load(Ordering::Relaxed) {
        lock.lock();
        work(cycles);
        // SAFETY: acquired above.
        unsafe { lock.unlock() };
        sections += 1;
    }
    sections
}

#[cfg(test)]
mod tests {
    use machine::PstateModel;
    use pstate::ManualTime;

    use super::*;

    /// With P-states the strategies that boost are measured and leave the clock as it was; without
    /// they are unknown, and nothing else is.
    #[test]
    fn strategies_that_boost_need_pstates() {
        let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
        let time = Arc::new(ManualTime::default());
        let control = Arc::new(Control::simulate(&model, time.clone()).unwrap());
        let swept = sweep(&[1_000], 2, Some(&control), None);
        let names: Vec<_> = swept.points.iter().map(|point| point.strategy.as_str()).collect();
        assert_eq!(names, ["spin", "block", "futex", "owner", "delegate", "migrate"]);
        assert!(swept.points.iter().all(|point| point.sections.is_some_and(|some| some >= 6)));
        time.pass_ns(1_000_000_000);
        assert!((0..8).all(|cpu| control.clock_khz(cpu) == Ok(3_100_000)));

        let swept = sweep(&[1_000], 2, None, None);
        let known = |name: &str| {
            swept.points.iter().any(|point| point.strategy == name && point.time_ns.is_some())
        };
        assert!(known("spin") && known("migrate") && !known("owner") && !known("delegate"));
    }
}
