// SPDX-License-Identifier: MIT OR Apache-2.0
//! An asymmetric software transactional memory, as FastLane is one (TURBO 11).
//!
//! Problem: the slides say "up to 50 % speedup with only 2 % more energy" when the right thread is
//! boosted, and neither which loads, nor how many threads. What is known is the algorithm
//! (FastLane, PPoPP 2013, abstract): one thread, the *master*, executes transactions
//! pessimistically, never aborts and has little overhead; the others, *helpers*, speculate, and
//! commit only if they do not conflict with the master.
//!
//! Idea: play the algorithm for loads of all kinds, and boost the master. "Up to" is then the
//! largest gain of any of them.
//!
//! ```text
//!   master  |=== transaction, holds the permit ===|=== the next ===|   ...
//!   helper  |-- speculates --|....waits for permit|check,publish|-- speculates --|
//!                                                   ^ void if a commit since its beginning conflicts
//! ```
//!
//! The permit is first come, first served. Whether a speculation is void is not thrown as a die:
//! each adds the probability that it holds to an account of its thread, and a sum of one pays for a
//! commit. Lengths are drawn, evenly from half to one and a half of the mean: threads of equal
//! lengths fall into step, and boosting one of them breaks or makes the step, for gains of 38 %
//! that no real load has. Each thread has its own series of lengths, the same in each run, so that
//! two runs differ by their settings alone.
//!
//! Threads are spread over the modules first, as every scheduler does; the boosted P-state is the
//! module's, so that with more threads than modules a helper is boosted too. Two busy cores of a
//! module slow each other. Power goes with the square of the voltage times the clock, for each busy
//! core; waiting for the permit is busy. A core without a thread needs nothing, the rest of the
//! package always the same.
//!
//! Limits: all transactions follow the clock; memory waits would only lower the gain.

use cpumodel::{CorePower, PstateModel};

/// What the threads do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The master and its helpers.
    pub threads: usize,
    /// Cycles of a transaction, as the master executes it.
    pub cycles: f64,
    /// A helper's transaction takes that many times as long.
    pub overhead: f64,
    /// To check and publish, share of the helper's transaction.
    pub commit_frac: f64,
    /// Probability that someone's commit voids a speculation.
    pub conflict: f64,
}

/// Where the threads are, and who is boosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The master's module runs at the turbo clock.
    pub boosted: bool,
    /// Threads fill module after module, instead of one module each while there are some.
    pub crowded: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Transactions of all threads per second.
    pub commits_per_s: f64,
    /// Energy of a transaction, uJ.
    pub energy_uj: f64,
}

/// Turns of the permit that are played. The mean of so many lengths is right to half a percent, and
/// the ratio of two runs, which share their lengths, to less.
const TURNS: u32 = 4_000;

struct Thread {
    khz: f64,
    /// Comes for the permit then.
    comes_ns: f64,
    /// Commits of all threads when its speculation began.
    seen: u32,
    /// Share of a commit that its speculations have earned.
    account: f64,
    /// State of its series of lengths.
    series: u64,
}

impl Thread {
    /// The next length over the mean: 0.5 to 1.5 (SplitMix64; Steele, Lea, Flood, 2014).
    fn length(&mut self) -> f64 {
        self.series = self.series.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.series;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        0.5 + (bits >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Plays a load; `None` for machines whose power or boosting is not known, and for no one.
pub fn simulate(model: &PstateModel, load: &Load, setting: Setting) -> Option<Outcome> {
    let power = model.power.as_ref()?;
    let modules = usize::try_from(power.modules.value).ok()?;
    model.change.as_ref()?;
    if load.threads == 0 || load.threads > 2 * modules {
        return None;
    }
    let clocks = clocks(model, power, load.threads, setting);
    let mut threads: Vec<Thread> = (0_u64..)
        .zip(&clocks)
        .map(|(series, clock)| Thread {
            khz: clock.works_khz,
            comes_ns: 0.0,
            seen: 0,
            account: 0.0,
            series,
        })
        .collect();
    let (mut free_ns, mut commits) = (0.0_f64, 0);
    for _ in 0..TURNS {
        turn(&mut threads, load, &mut free_ns, &mut commits);
    }
    let busy_mw: f64 = clocks.iter().map(|clock| clock.core_mw).sum();
    let package_mw = power.package_mw.value as f64 + busy_mw;
    let commits_per_s = f64::from(commits) / free_ns * 1e9;
    Some(Outcome { commits_per_s, energy_uj: package_mw * 1e3 / commits_per_s })
}

/// Who comes first gets the permit after those before.
fn turn(threads: &mut [Thread], load: &Load, free_ns: &mut f64, commits: &mut u32) {
    let first = (0..threads.len())
        .min_by(|&a, &b| threads[a].comes_ns.total_cmp(&threads[b].comes_ns))
        .expect("somebody");
    let thread = &mut threads[first];
    let khz = thread.khz;
    let ns = |cycles: f64| cycles * 1e6 / khz;
    let cycles = load.cycles * thread.length();
    let begins_ns = free_ns.max(thread.comes_ns);
    if first == MASTER {
        *free_ns = begins_ns + ns(cycles);
        *commits += 1;
        thread.comes_ns = *free_ns;
        return;
    }
    let speculation = cycles * load.overhead;
    *free_ns = begins_ns + ns(speculation * load.commit_frac);
    let others = i32::try_from(*commits - thread.seen).unwrap_or(i32::MAX);
    thread.account += (1.0 - load.conflict).powi(others);
    if thread.account >= 1.0 {
        thread.account -= 1.0;
        *commits += 1;
    }
    thread.seen = *commits;
    thread.comes_ns = *free_ns + ns(speculation);
}

/// The first thread.
const MASTER: usize = 0;

/// How fast a thread works, and what its core draws.
struct Clock {
    works_khz: f64,
    core_mw: f64,
}

fn clocks(model: &PstateModel, power: &CorePower, threads: usize, setting: Setting) -> Vec<Clock> {
    let modules = usize::try_from(power.modules.value).unwrap_or(1);
    let module = |thread: usize| if setting.crowded { thread / 2 } else { thread % modules };
    (0..threads)
        .map(|thread| {
            let beside = (0..threads).filter(|&other| module(other) == module(thread)).count();
            let boosted = setting.boosted && module(thread) == module(MASTER);
            let khz = if boosted { model.turbo_khz.value } else { model.base_khz.value };
            let shared_frac = power.shared_permille.value as f64 / 1e3;
            let works_khz = khz as f64 * if beside > 1 { shared_frac } else { 1.0 };
            // `simulate` returned for a model without power
            Clock { works_khz, core_mw: model.core_mw(khz).unwrap_or(0.0) }
        })
        .collect()
}

/// The largest gain of boosting, over loads of all kinds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Most {
    /// The load.
    pub load: Load,
    /// More throughput, percent.
    pub speedup_pct: f64,
    /// More energy per transaction, percent; negative for less.
    pub energy_pct: f64,
}

/// FastLane is for few threads (PPoPP 2013, abstract: it wins "in the 1-6 threads range"), and
/// without a helper nothing is asymmetric.
const THREADS: std::ops::RangeInclusive<usize> = 2..=6;
/// From an instrumentation that costs hardly anything to one that costs four times the work.
const OVERHEADS: [f64; 3] = [1.25, 2.0, 4.0];
const COMMIT_FRACS: [f64; 2] = [0.05, 0.3];
const CONFLICTS: [f64; 4] = [0.0, 0.01, 0.1, 1.0];
/// Nothing in the model has a length of its own, so that one is as good as another.
const CYCLES: f64 = 1_000.0;

/// Looks for it; `None` as [`simulate`].
pub fn most(model: &PstateModel, before: Setting, after: Setting) -> Option<Most> {
    let mut best: Option<Most> = None;
    for load in loads() {
        let (plain, boosted) = (simulate(model, &load, before)?, simulate(model, &load, after)?);
        let pct = |after: f64, before: f64| 100.0 * (after / before - 1.0);
        let speedup_pct = pct(boosted.commits_per_s, plain.commits_per_s);
        if best.as_ref().is_none_or(|best| speedup_pct > best.speedup_pct) {
            let energy_pct = pct(boosted.energy_uj, plain.energy_uj);
            best = Some(Most { load, speedup_pct, energy_pct });
        }
    }
    best
}

fn loads() -> impl Iterator<Item = Load> {
    THREADS.flat_map(|threads| {
        OVERHEADS.into_iter().flat_map(move |overhead| {
            COMMIT_FRACS.into_iter().flat_map(move |commit_frac| {
                CONFLICTS.into_iter().map(move |conflict| Load {
                    threads,
                    cycles: CYCLES,
                    overhead,
                    commit_frac,
                    conflict,
                })
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Setting = Setting { boosted: false, crowded: false };
    const BOOSTED: Setting = Setting { boosted: true, crowded: false };

    fn fx() -> PstateModel {
        PstateModel::built_in("fx-8120").unwrap().unwrap()
    }

    fn load(threads: usize, conflict: f64) -> Load {
        Load { threads, cycles: 1_000.0, overhead: 2.0, commit_frac: 0.2, conflict }
    }

    fn of(load: &Load, setting: Setting) -> Outcome {
        simulate(&fx(), load, setting).unwrap()
    }

    /// A master alone commits at its clock, and gains what its clock gains.
    #[test]
    fn a_master_alone_follows_its_clock() {
        let (plain, boosted) = (of(&load(1, 0.0), PLAIN), of(&load(1, 0.0), BOOSTED));
        assert!((plain.commits_per_s / 3.1e6 - 1.0).abs() < 0.02, "{plain:?}");
        let gain = boosted.commits_per_s / plain.commits_per_s;
        assert!((gain - 4.0 / 3.1).abs() < 1e-9, "{boosted:?}");
    }

    /// Helpers help unless they conflict always; then they only disturb.
    #[test]
    fn helpers_help_if_they_do_not_conflict() {
        let alone = of(&load(1, 0.0), PLAIN).commits_per_s;
        assert!(of(&load(2, 0.0), PLAIN).commits_per_s > alone);
        assert!(of(&load(2, 1.0), PLAIN).commits_per_s < alone);
        let some = of(&load(2, 0.1), PLAIN).commits_per_s;
        assert!(
            some < of(&load(2, 0.0), PLAIN).commits_per_s
                && some > of(&load(2, 1.0), PLAIN).commits_per_s
        );
    }

    /// No load gains more than the clock of the boosted thread: what the slides' 50 % need besides
    /// is `./x papers`'s question.
    #[test]
    fn boosting_gains_at_most_the_clock() {
        let most = most(&fx(), PLAIN, BOOSTED).unwrap();
        println!("{most:?}");
        let clock_pct = 100.0 * (4.0 / 3.1 - 1.0);
        assert!(most.speedup_pct > 0.5 * clock_pct && most.speedup_pct <= clock_pct);
        let crowded = Setting { crowded: true, ..PLAIN };
        let alone = super::most(&fx(), crowded, BOOSTED).unwrap();
        println!("{alone:?}");
        assert!(alone.speedup_pct > most.speedup_pct);
    }

    /// A boosted module draws more power than its clock says, and what it takes for a transaction
    /// depends on what the rest of the package takes.
    #[test]
    fn energy_is_power_over_throughput() {
        let mut model = fx();
        let alone = load(1, 0.0);
        let ratio = |model: &PstateModel| {
            let of = |setting| simulate(model, &alone, setting).unwrap().energy_uj;
            of(BOOSTED) / of(PLAIN)
        };
        model.power.as_mut().unwrap().package_mw.value = 0;
        let power = model.power.clone().unwrap();
        let volts = power.turbo_mv.value as f64 / power.base_mv.value as f64;
        assert!((ratio(&model) - volts * volts).abs() < 1e-9);
        model.power.as_mut().unwrap().package_mw.value = 1_000_000_000;
        assert!((ratio(&model) - 3.1 / 4.0).abs() < 1e-3);
    }

    /// More threads than cores, no one, and machines that cannot boost one core are not played.
    #[test]
    fn what_a_machine_cannot_do_fails() {
        assert_eq!(simulate(&fx(), &load(9, 0.0), PLAIN), None);
        assert_eq!(simulate(&fx(), &load(0, 0.0), PLAIN), None);
        let intel = PstateModel::built_in("core-i7-4770").unwrap().unwrap();
        assert_eq!(simulate(&intel, &load(2, 0.0), BOOSTED), None);
    }
}
