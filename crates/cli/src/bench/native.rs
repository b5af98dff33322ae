// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sweep on this machine.
//!
//! A section is a chain of rotations, each of which waits for the one before: one core cycle each,
//! at whatever clock (`ror`, unlike `add` of a constant, is not folded away by the renamer). Each
//! point is measured once every thread had its turn twice, for the time that was asked for and
//! three sections per thread; what else runs on the machine counts. As long as there are CPUs for
//! them, each thread stays on one (TURBO 10). What another core does, writing P-states or executing
//! sections, the last CPU does: give a thread less than there are CPUs, and it is free for that.
//!
//! The strategies that boost need P-states that a program may set, and are measured if it was asked
//! to. The energy is that of all packages while a point is measured, with everything else that runs
//! there.
//!
//! `hybrid` is the lock that measures its sections and chooses (`locks::hybrid`). Which strategy
//! pays for which length it takes from two sizes of its own, so that the sizes of the sweep judge
//! what it learned.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use hw::{EnergyMeter, Live, task};
use locks::sys::{Affinity, ticks};
use locks::{
    Block, Cost, Costs, Decorated, Decoration, Hybrid, Mcs, Mode, MoveHolder, OtherCore, Owner,
    Plain, RawLock, Sleep, Spin, Strategy, Wait,
};
use pstate::Control;
use report::locks::{BreakEven, Point, Sweep};

use super::timed::{Sums, Timed};

/// Least sections per thread of a point.
const LEAST_SECTIONS: u64 = 3;
/// Turns of each thread before it is measured.
const WARM_UP: u64 = 2;
/// Sizes at which the hybrid lock's costs are measured: below every break-even, above most. A round
/// size of the user's is none of them.
const LEARNS_FROM: [u64; 2] = [23_000, 5_300_000];

/// What is the same for all points.
pub(super) struct Bench<'a> {
    pub(super) threads: u32,
    /// Least time of a point.
    pub(super) least: Duration,
    /// Sets P-states, if it may.
    pub(super) control: Option<&'a Arc<Control>>,
    pub(super) energy: Option<&'a EnergyMeter>,
}

/// What a point has measured.
struct Measured {
    sections: u64,
    taken_ns: f64,
    /// Sections with their locks, without waits.
    held_ns: f64,
    cpu_ns: Option<f64>,
    energy_uj: Option<f64>,
}

/// So many core cycles, to a multiple of 256.
fn work(cycles: u64) {
    let mut value = 1_u64;
    for _ in 0..cycles.div_ceil(256) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: rotates a register.
        unsafe {
            std::arch::asm!(
                ".rept 256",
                "ror {0}, 1",
                ".endr",
                inout(reg) value,
                options(pure, nomem, nostack)
            );
        }
        #[cfg(not(target_arch = "x86_64"))]
        for _ in 0..256 {
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

/// CPUs that this process may run on, ascending.
fn allowed_cpus() -> Vec<u32> {
    let allowed = task::get_affinity(std::process::id()).unwrap_or_default();
    allowed.iter().filter_map(|cpu| u32::try_from(cpu).ok()).collect()
}

/// A lock, decorated and measured.
type Measurable<L, D> = Decorated<L, Timed<D>>;

/// A queue lock whose waiters wait so.
fn lock<W: Wait, D: Decoration>(wait: W, decoration: D) -> Measurable<Mcs<W>, D> {
    Decorated::new(Mcs::new(wait), Timed::new(decoration))
}

impl Bench<'_> {
    /// All sizes and strategies.
    pub(super) fn sweep(&self, sizes: &[u64]) -> Sweep {
        let costs = self.learn();
        let points: Vec<Point> =
            sizes.iter().flat_map(|&cycles| self.all(cycles, costs.as_ref())).collect();
        let others = ["block", "futex", "owner", "delegate", "migrate", "hybrid"];
        let break_evens = others.map(|strategy| break_even(strategy, &points));
        let threads = self.threads;
        Sweep { model: None, threads, pstates: None, points, break_evens: break_evens.into() }
    }

    /// All strategies at one size, in the order of their names in TURBO 7 and 9.
    fn all(&self, cycles: u64, costs: Option<&Costs>) -> Vec<Point> {
        let mut points = self.fixed(cycles);
        let mode = Mode::new();
        let chooses = costs.zip(self.control).map(|(costs, control)| {
            let inner = Hybrid::lock(&mode, *costs, control.clone(), self.spare());
            Decorated::new(inner, Timed::new(Plain))
        });
        let hybrid = self.boosting_spare(|| self.point(cycles, "hybrid", chooses.as_ref()));
        // what it does before it waits is not apart from the wait
        points.push(Point { effective_khz: None, ..hybrid });
        points
    }

    /// Those that do the same at every size.
    fn fixed(&self, cycles: u64) -> Vec<Point> {
        let owner = self.control.map(|control| lock(Spin, Owner::new(control.clone())));
        let delegate = self.writer().map(|by| lock(Spin, Owner::new(by)));
        let mover = self.spare().and_then(MoveHolder::new).map(|mover| lock(Spin, mover));
        vec![
            self.point(cycles, "spin", Some(&lock(Spin, Plain))),
            self.point(cycles, "block", Some(&lock(Block, Plain))),
            self.point(cycles, "futex", Some(&lock(Sleep, Plain))),
            self.point(cycles, "owner", owner.as_ref()),
            self.point(cycles, "delegate", delegate.as_ref()),
            self.boosting_spare(|| self.point(cycles, "migrate", mover.as_ref())),
        ]
    }

    /// The CPU that does things for others.
    fn spare(&self) -> Option<u32> {
        allowed_cpus().last().copied()
    }

    /// A server thread there that sets P-states for others; `None` if it cannot be started.
    fn writer(&self) -> Option<OtherCore<Arc<Control>>> {
        let control = self.control?;
        let highest = control.clocks().topology.possible().highest()?;
        let nr_cpus = u32::try_from(highest).ok()? + 1;
        OtherCore::new(control.clone(), nr_cpus, self.spare()).ok()
    }

    /// Does something while the spare CPU has its turbo (TURBO 9: "statically boosted core").
    fn boosting_spare<R>(&self, during: impl FnOnce() -> R) -> R {
        let boosted = self.control.zip(self.spare());
        // a request that is refused shows in the figures
        let set = |set: fn(&Control, u32) -> Result<(), pstate::Error>| {
            boosted.map(|(control, cpu)| set(control, cpu))
        };
        _ = set(Control::boost);
        let result = during();
        _ = set(Control::restore);
        result
    }

    /// What each strategy that the hybrid lock has costs at two sizes.
    fn learn(&self) -> Option<Costs> {
        self.control?;
        let [short, long] = LEARNS_FROM.map(|cycles| self.fixed(cycles));
        let time_ns = |points: &[Point], name: &str| {
            points.iter().find(|point| point.strategy == name).and_then(|point| point.time_ns)
        };
        let more_ns = time_ns(&long, "spin")? - time_ns(&short, "spin")?;
        let ns_per_cycle = more_ns / (LEARNS_FROM[1] - LEARNS_FROM[0]) as f64;
        let per_ns = ticks_per_ns();
        let point = |points: &[Point], name, cycles: u64| {
            Some((cycles as f64 * ns_per_cycle * per_ns, time_ns(points, name)? * per_ns))
        };
        let cost = |name| {
            let [from, to] = LEARNS_FROM;
            Cost::through(point(&short, name, from)?, point(&long, name, to)?)
        };
        let names = Strategy::ALL.map(|strategy| match strategy {
            Strategy::Spin => "spin",
            Strategy::Block => "block",
            Strategy::Boost => "owner",
            Strategy::Move => "migrate",
        });
        Some(Costs(names.map(cost)))
    }

    fn point<L: RawLock, D: Decoration>(
        &self,
        cycles: u64,
        name: &str,
        lock: Option<&Measurable<L, D>>,
    ) -> Point {
        let measured = lock.map(|lock| self.measure(cycles, lock));
        let per_section = |value: fn(&Measured) -> Option<f64>| {
            let measured = measured.as_ref()?;
            Some(value(measured)? / measured.sections as f64)
        };
        let held_ns = per_section(|measured| Some(measured.held_ns));
        Point {
            section_cycles: cycles,
            strategy: name.into(),
            sections: measured.as_ref().map(|measured| measured.sections),
            time_ns: per_section(|measured| Some(measured.taken_ns)),
            cpu_time_ns: per_section(|measured| measured.cpu_ns),
            effective_khz: held_ns.map(|ns| (cycles as f64 / ns * 1e6) as u64),
            energy_nj: per_section(|measured| Some(measured.energy_uj? * 1e3)),
        }
    }

    fn measure<L: RawLock, D: Decoration>(&self, cycles: u64, lock: &Measurable<L, D>) -> Measured {
        let sums = || lock.decoration().sums();
        let cpus = allowed_cpus();
        let threads = self.threads as usize;
        let places = (0..threads).map(|thread| {
            let cpu = cpus.get(thread).filter(|_| threads <= cpus.len())?;
            Affinity::one(*cpu)
        });
        let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for place in places {
                let (start, stop) = (&start, &stop);
                scope.spawn(move || {
                    // one that may not stay there is measured all the same
                    _ = place.map(|place| place.apply());
                    start.wait();
                    sections(cycles, lock, stop);
                });
            }
            start.wait();
            let turns = |turns: u64| turns * u64::from(self.threads);
            self.wait_for(|| sums().sections >= turns(WARM_UP));
            let before = Moment::now(sums(), self.energy);
            std::thread::sleep(self.least);
            self.wait_for(|| sums().sections >= before.sums.sections + turns(LEAST_SECTIONS));
            let after = Moment::now(sums(), self.energy);
            stop.store(true, Ordering::Relaxed);
            before.until(&after, self.energy)
        })
    }

    fn wait_for(&self, is_done: impl Fn() -> bool) {
        while !is_done() {
            std::thread::sleep(self.least / 10);
        }
    }
}

/// What was used until one moment.
struct Moment {
    at: Instant,
    sums: Sums,
    cpu_ns: Option<u64>,
    energy: Option<hw::EnergyReading>,
}

impl Moment {
    fn now(sums: Sums, energy: Option<&EnergyMeter>) -> Self {
        let energy = energy.and_then(|meter| meter.read(&Live));
        Moment { at: Instant::now(), sums, cpu_ns: cpu_ns(), energy }
    }

    fn until(&self, after: &Moment, meter: Option<&EnergyMeter>) -> Measured {
        let ticks = after.sums.ticks - self.sums.ticks;
        let used = self.energy.as_ref().zip(after.energy.as_ref()).zip(meter);
        Measured {
            sections: after.sums.sections - self.sums.sections,
            taken_ns: after.at.duration_since(self.at).as_nanos() as f64,
            held_ns: ticks as f64 / ticks_per_ns(),
            cpu_ns: self.cpu_ns.zip(after.cpu_ns).map(|(before, after)| (after - before) as f64),
            energy_uj: used.map(|((before, after), meter)| meter.between_uj(before, after) as f64),
        }
    }
}

/// How fast [`ticks`] counts.
fn ticks_per_ns() -> f64 {
    static FOUND: std::sync::OnceLock<f64> = std::sync::OnceLock::new();
    *FOUND.get_or_init(|| {
        let (begun, first) = (Instant::now(), ticks());
        std::thread::sleep(Duration::from_millis(20));
        (ticks() - first) as f64 / begun.elapsed().as_nanos() as f64
    })
}

/// One thread's sections until it is stopped.
fn sections(cycles: u64, lock: &impl RawLock, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        lock.lock();
        work(cycles);
        // SAFETY: acquired above.
        unsafe { lock.unlock() };
    }
}

/// The least size from which the effective clock is above that of spinning: where a line between
/// the first size where it is and the one before says that they are equal.
fn break_even(strategy: &str, points: &[Point]) -> BreakEven {
    let khz = |name: &str, cycles: u64| {
        let same = |point: &&Point| point.strategy == name && point.section_cycles == cycles;
        points.iter().find(same).and_then(|point| point.effective_khz)
    };
    let mut sizes: Vec<u64> = points.iter().map(|point| point.section_cycles).collect();
    sizes.dedup();
    // logarithms of the size, and of the clock over that of spinning
    let ratios: Vec<(f64, f64)> = sizes
        .into_iter()
        .filter_map(|cycles| {
            let ratio = khz(strategy, cycles)? as f64 / khz("spin", cycles)? as f64;
            Some(((cycles as f64).ln(), ratio.ln()))
        })
        .collect();
    let first = ratios.iter().position(|(_, ratio)| *ratio > 0.0);
    let from = first.map(|first| {
        let (size, ratio) = ratios[first];
        let Some((size_before, ratio_before)) = first.checked_sub(1).map(|before| ratios[before])
        else {
            return size.exp();
        };
        let frac = ratio_before / (ratio_before - ratio);
        (size_before + frac * (size - size_before)).exp()
    });
    BreakEven { strategy: strategy.into(), section_cycles: from }
}

#[cfg(test)]
mod tests {
    use cpumodel::PstateModel;
    use pstate::ManualTime;

    use super::*;

    fn bench(control: Option<&Arc<Control>>) -> Bench<'_> {
        Bench { threads: 2, least: Duration::from_millis(3), control, energy: None }
    }

    /// With P-states the strategies that boost are measured and leave the clock as it was; without
    /// they are unknown, and nothing else is.
    #[test]
    fn strategies_that_boost_need_pstates() {
        let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
        let time = Arc::new(ManualTime::default());
        let control = Arc::new(Control::simulate(&model, time.clone()).unwrap());
        let swept = bench(Some(&control)).sweep(&[1_000]);
        let names: Vec<_> = swept.points.iter().map(|point| point.strategy.as_str()).collect();
        assert_eq!(names, ["spin", "block", "futex", "owner", "delegate", "migrate", "hybrid"]);
        assert!(swept.points.iter().all(|point| point.sections.is_some_and(|some| some >= 6)));
        time.pass_ns(1_000_000_000);
        assert!((0..8).all(|cpu| control.clock_khz(cpu) == Ok(3_100_000)));

        let swept = bench(None).sweep(&[1_000]);
        let known = |name: &str| {
            swept.points.iter().any(|point| point.strategy == name && point.time_ns.is_some())
        };
        assert!(known("spin") && known("migrate"));
        assert!(!known("owner") && !known("delegate") && !known("hybrid"));
    }

    fn point(section_cycles: u64, strategy: &str, effective_khz: u64) -> Point {
        Point {
            section_cycles,
            strategy: strategy.into(),
            sections: None,
            time_ns: None,
            cpu_time_ns: None,
            effective_khz: Some(effective_khz),
            energy_nj: None,
        }
    }

    /// Halfway between two sizes by their logarithms, where the clocks' ratios are inverse.
    #[test]
    fn break_evens_lie_between_sizes() {
        let points = |ratios: [(u64, u64); 4]| -> Vec<Point> {
            ratios
                .into_iter()
                .flat_map(|(size, khz)| [point(size, "spin", 1000), point(size, "owner", khz)])
                .collect()
        };
        let of = |ratios| break_even("owner", &points(ratios)).section_cycles;
        let found = of([(100, 300), (1_000, 500), (10_000, 2000), (100_000, 900)]).unwrap();
        assert!((found / 3162.3 - 1.0).abs() < 1e-3, "{found}");
        let found = of([(100, 1001), (200, 1001), (300, 999), (400, 1001)]).unwrap();
        assert!((found - 100.0).abs() < 1e-6, "{found}");
        assert_eq!(of([(100, 999), (200, 999), (300, 1000), (400, 999)]), None);
        assert_eq!(
            break_even("futex", &points([(1, 1), (2, 2), (3, 3), (4, 4)])).section_cycles,
            None
        );
    }
}
