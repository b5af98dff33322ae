// SPDX-License-Identifier: MIT OR Apache-2.0
//! From samples to a load of the simulator.
//!
//! **Problem.** What wide code costs depends on how often its sections come: the level is held for
//! 670 us after each, so that the same 2 % of wide time slow a core always, or nearly never.
//! Samples a millisecond apart show the share, not the length of sections.
//!
//! **Idea.** Threads with wide code do scalar code and a section by turns, in the share that was
//! sampled, as many threads and as busy as seen; all other threads are scalar. The length of
//! sections comes, best first:
//!
//! 1. from runs of wide samples of a thread, where they are longer than chance makes them;
//! 2. from licence counters: the lengths at which the simulated machine is at a lowered clock for
//!    as long as was counted (`predict.rs`);
//! 3. else several are tried ([`UNKNOWN_NS`]), and the prediction is a range.
//!
//! **The machine** has as many cores as the sampled one, with the clocks of the CPU that is judged.
//! If these are fewer than the part has, it is a slice of it, and the others' cores are taken to be
//! active: clocks are the lowest.
//!
//! **Limits.** Turns are alike; locks and waits for each other are not seen. Threads that were busy
//! for a part of the time sleep after each turn.

use cpumodel::{CpuModel, InsnClass, Platform};
use report::sample::{SampleReport, SampledLoad};
use sim::program::{Builder, Group, Step, Workload};
use sim::rng::Dist;

/// How simulated narrower code is: its level, and its cycles over those of the wide code.
pub(super) type Form = (u8, f64);

/// Sections from a single TLS record to what runs of samples begin to show (half a period).
pub(super) const UNKNOWN_NS: [u64; 3] = [20_000, 100_000, 500_000];
/// Longer runs than this many times those of chance are no chance.
const NOT_BY_CHANCE: f64 = 1.5;
/// From this share of all CPU time on the machine counts as fully busy.
const FULL_FRAC: f64 = 0.9;
/// Threads that are simulated per CPU at most: more only wait.
const THREADS_PER_CPU: usize = 2;
/// Cores that are simulated, if the machine has several packages: packages are alike, and a run
/// takes the longer the more there are.
const CORES_MAX: usize = 64;
/// A turn of threads without wide code.
const OTHER_TURN_NS: u64 = 1_000_000;

/// The simulated machine.
#[derive(Clone)]
pub(super) struct Stage {
    pub platform: Platform,
    pub packages: usize,
    /// Share of the machine that is simulated, with that share of its threads.
    pub part_frac: f64,
}

impl Stage {
    pub(super) fn new(model: &CpuModel, cpus: u32, load: &SampledLoad) -> Self {
        let mut platform = Platform::new(model);
        let cores = load.cores.max(1) as usize;
        // A machine with more cores than its packages hold of this part has more packages of it.
        let packages = (load.packages.max(1) as usize).max(cores.div_ceil(platform.nr_cores));
        let others = platform.nr_cores.saturating_sub(cores.div_ceil(packages));
        platform.nr_cores -= others;
        platform.threads_per_core = (cpus as usize / cores).clamp(1, 2);
        platform.cores_per_llc = platform.cores_per_llc.min(platform.nr_cores);
        for clocks in &mut platform.clock_khz {
            let active = clocks.split_off(others);
            *clocks = active;
        }
        let simulated = packages.min((CORES_MAX / platform.nr_cores).max(1));
        Stage { platform, packages: simulated, part_frac: simulated as f64 / packages as f64 }
    }

    pub(super) fn nr_cores(&self) -> usize {
        self.platform.nr_cores * self.packages
    }

    fn nr_cpus(&self) -> usize {
        self.nr_cores() * self.platform.threads_per_core
    }
}

/// Threads that are alike.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Threads {
    count: usize,
    /// Share of the time in which each runs.
    busy_frac: f64,
}

/// What was sampled, as the simulator needs it.
#[derive(Clone, Debug)]
pub(super) struct Load {
    wide: Threads,
    others: Threads,
    /// Share of wide code in the time of the threads that have any.
    pub wide_frac: f64,
    pub level: u8,
    pub is_full: bool,
    /// By runs of samples, if they are longer than by chance.
    pub section_ns: Option<u64>,
    /// Started as a command: its tasks are scalar until they prove wide.
    pub is_scalar_at_first: bool,
}

impl Load {
    /// `None` if no wide code was seen, or the samples are of a version that did not note the load.
    pub(super) fn of(report: &SampleReport, stage: &Stage) -> Option<Self> {
        let load = report.load.as_ref().filter(|load| load.wide > 0)?;
        let periods = report.time_ns as f64 / report.period_ns.max(1) as f64;
        let is_full = report.busy as f64 >= FULL_FRAC * periods * f64::from(report.cpus.max(1));
        let most = THREADS_PER_CPU * stage.nr_cpus();
        let threads = |count: u32, busy: u64| {
            let part = |number: f64| number * stage.part_frac;
            let count = (part(f64::from(count)).ceil() as usize).min(most);
            let cpus = part(busy as f64 / periods.max(1.0));
            let busy_frac = (cpus / count.max(1) as f64).clamp(0.001, 1.0);
            Threads { count, busy_frac }
        };
        let others_busy = report.busy.saturating_sub(load.wide_threads_busy);
        let mut wide = threads(load.wide_threads, load.wide_threads_busy);
        let mut others = threads(load.other_threads, others_busy);
        if is_full {
            // Who has most of a full machine waits for CPUs, not for anything else.
            let most = if load.wide_threads_busy >= others_busy { &mut wide } else { &mut others };
            most.busy_frac = 1.0;
            most.count = most.count.max(stage.nr_cpus());
        }
        Some(Load {
            wide,
            others,
            wide_frac: load.wide as f64 / load.wide_threads_busy.max(1) as f64,
            level: level(report),
            is_full,
            section_ns: section_ns(report, load),
            is_scalar_at_first: false,
        })
    }

    /// Mean time from turn to turn of all threads with wide code together, if none waits.
    pub(super) fn turn_ns(&self, section_ns: u64) -> u64 {
        let at_once = self.wide.count as f64 * self.wide.busy_frac;
        (section_ns as f64 / self.wide_frac / at_once.max(0.001)) as u64
    }

    /// The simulator's load, with sections of this length; with narrower code in them if `narrow`
    /// says so.
    pub(super) fn workload(
        &self,
        stage: &Stage,
        section_ns: u64,
        narrow: Option<Form>,
    ) -> Workload {
        let platform = &stage.platform;
        let class = class(self.level);
        let mut workload = Workload::new();
        let code = workload.code(class, platform.dense_per_cycle);
        let scalar_ns = (section_ns as f64 * (1.0 / self.wide_frac - 1.0)) as u64;
        let level = platform.level_of(class, platform.dense_per_cycle);
        let low_khz = platform.clock_khz(level, platform.nr_cores);
        // Between sections that come before the level's hold is over the clock stays low.
        let is_low = scalar_ns < platform.times.relax_ns;
        let scalar_khz = if is_low { low_khz } else { platform.clock_khz(0, platform.nr_cores) };
        let mut turn = Builder::new();
        if scalar_ns > 0 {
            turn = turn.work(0, around(cycles(scalar_ns, scalar_khz)));
        }
        let section = cycles(section_ns, low_khz);
        turn = match narrow {
            None => turn.wide(code, self.level, around(section)),
            // code 0 is scalar
            Some((0, ratio)) => turn.work(0, around(times(section, ratio))),
            Some((level, ratio)) => {
                let code = workload.code(self::class(level), platform.dense_per_cycle);
                turn.work(code, around(times(section, ratio)))
            }
        };
        let turn = turn.step(Step::Done);
        let turn_ns = section_ns + scalar_ns;
        self.add(&mut workload, "wide", self.wide, turn, turn_ns);
        let cycles = cycles(OTHER_TURN_NS, platform.clock_khz(0, platform.nr_cores));
        let other = Builder::new().work(0, around(cycles)).step(Step::Done);
        self.add(&mut workload, "others", self.others, other, OTHER_TURN_NS);
        workload
    }

    fn add(&self, w: &mut Workload, name: &str, threads: Threads, turn: Builder, turn_ns: u64) {
        if threads.count == 0 {
            return;
        }
        let sleep_ns = turn_ns as f64 * (1.0 / threads.busy_frac - 1.0);
        let turn = if sleep_ns >= 1000.0 { turn.sleep(around(sleep_ns as u64)) } else { turn };
        let program = w.program(turn.forever(0));
        w.group(Group {
            scalar: self.is_scalar_at_first,
            ..Group::new(name, threads.count, program)
        });
    }
}

/// The instructions that hold a level.
fn class(level: u8) -> InsnClass {
    match level {
        1 => InsnClass::Heavy256,
        2 => InsnClass::Heavy512,
        _ => InsnClass::Amx,
    }
}

fn times(cycles: u64, ratio: f64) -> u64 {
    (cycles as f64 * ratio).round() as u64
}

fn cycles(ns: u64, khz: u32) -> u64 {
    (u128::from(ns) * u128::from(khz) / 1_000_000).max(1) as u64
}

/// A fifth more or less, so that threads do not march in step.
fn around(mean: u64) -> Dist {
    Dist::Uniform(mean * 4 / 5, mean * 6 / 5)
}

/// The highest level with a tenth of the wide samples: rarer ones decide nothing.
fn level(report: &SampleReport) -> u8 {
    let at_least = |level: u8| {
        let those = report.offenders.iter().filter(|offender| offender.sustained_level >= level);
        those.map(|offender| offender.samples).sum::<u64>()
    };
    let all = at_least(1);
    (1..=3).rev().find(|level| at_least(*level) * 10 >= all.max(1)).unwrap_or(1)
}

/// The mean length of a section, where samples show it. By chance alone a run of samples that are
/// wide each with probability p has 1 / (1 - p) of them.
fn section_ns(report: &SampleReport, load: &SampledLoad) -> Option<u64> {
    let p = load.wide as f64 / load.wide_threads_busy.max(1) as f64;
    let run = load.wide as f64 / load.runs.max(1) as f64;
    let is_chance = p >= 0.95 || run < NOT_BY_CHANCE / (1.0 - p);
    (!is_chance).then_some((run * report.period_ns as f64) as u64)
}

#[cfg(test)]
pub(super) mod tests {
    use report::sample::Offender;

    use super::*;

    /// A second of samples, a millisecond apart, on four CPUs.
    pub(crate) fn sampled(load: SampledLoad, busy: u64) -> SampleReport {
        SampleReport {
            time_ns: 1_000_000_000,
            period_ns: 1_000_000,
            cpus: 4,
            busy,
            load: Some(load),
            ..SampleReport::default()
        }
    }

    fn gold() -> CpuModel {
        CpuModel::built_in("xeon-gold-6130").unwrap().unwrap()
    }

    fn load() -> SampledLoad {
        SampledLoad {
            cores: 4,
            packages: 1,
            wide_threads: 4,
            wide_threads_busy: 3600,
            wide: 144,
            runs: 138,
            ..SampledLoad::default()
        }
    }

    /// A slice of a part runs at the clocks of a full part; a larger machine has more packages.
    #[test]
    fn machines_are_cut_out_of_parts() {
        let small = Stage::new(&gold(), 4, &load());
        assert_eq!((small.nr_cpus(), small.packages), (4, 1));
        assert_eq!(small.platform.clock_khz(0, 4), 2_800_000);
        assert_eq!(small.platform.clock_khz(2, 4), 1_900_000);
        let large = SampledLoad { cores: 40, packages: 2, ..SampledLoad::default() };
        let large = Stage::new(&gold(), 80, &large);
        assert!(large.packages == 3 && large.nr_cpus() >= 80, "{}", large.nr_cpus());
        let huge = SampledLoad { cores: 1024, packages: 64, ..SampledLoad::default() };
        let huge = Stage::new(&gold(), 2048, &huge);
        assert_eq!((huge.nr_cpus(), huge.part_frac), (128, 4.0 / 64.0));
    }

    /// Share, threads and business are those of the samples; scattered samples give no length, runs
    /// do.
    #[test]
    fn loads_are_as_sampled() {
        let stage = Stage::new(&gold(), 4, &load());
        let of = |load, busy| Load::of(&sampled(load, busy), &stage).unwrap();
        let short = of(load(), 3800);
        assert!(short.is_full && (short.wide_frac - 0.04).abs() < 1e-9, "{short:?}");
        assert_eq!((short.section_ns, short.wide.count), (None, 4));
        let long = of(SampledLoad { runs: 12, ..load() }, 3800);
        assert_eq!(long.section_ns, Some(12_000_000));
        let idle = of(SampledLoad { wide_threads_busy: 1000, wide: 40, ..load() }, 1000);
        assert!(!idle.is_full && (idle.wide.busy_frac - 0.25).abs() < 1e-9, "{idle:?}");
        assert!(Load::of(&sampled(SampledLoad { wide: 0, ..load() }, 3800), &stage).is_none());
    }

    /// Property, over all CPU files and machines of all sizes: a stage has a core, a clock for each
    /// number of active ones that falls with it, and no more of the machine than there is; it fits
    /// the policy's tables.
    #[test]
    fn every_machine_has_a_stage() {
        for (id, _) in cpumodel::CPU_FILES {
            let model = CpuModel::built_in(id).unwrap().unwrap();
            for (cores, packages, threads) in
                [1, 2, 3, 7, 16, 40, 128, 500, 1024].into_iter().flat_map(|cores| {
                    [1, 2, 8].into_iter().flat_map(move |p| [1, 2].map(|t| (cores, p, t)))
                })
            {
                let load = SampledLoad { cores, packages, ..SampledLoad::default() };
                let stage = Stage::new(&model, cores * threads, &load);
                assert!(stage.nr_cores() >= 1 && stage.nr_cpus() <= policy::CPUS_MAX, "{id}");
                assert!(stage.part_frac > 0.0 && stage.part_frac <= 1.0, "{id} {cores} {packages}");
                for clocks in &stage.platform.clock_khz {
                    assert_eq!(clocks.len(), stage.platform.nr_cores + 1, "{id} {cores}");
                    assert!(clocks.is_sorted_by(|a, b| a >= b), "{id} {clocks:?}");
                }
            }
        }
    }

    /// The rare function of a high level does not decide, the common one does.
    #[test]
    fn the_common_level_counts() {
        let offender = |sustained_level, samples| Offender {
            function: String::new(),
            file: String::new(),
            file_offset: None,
            process: String::new(),
            license_level: 3,
            sustained_level,
            samples,
        };
        let report = |rare| SampleReport {
            offenders: vec![offender(1, 90), offender(2, rare), offender(0, 1000)],
            ..SampleReport::default()
        };
        assert_eq!((level(&report(5)), level(&report(10))), (1, 2));
    }
}
