// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the lane would gain: the sampled load in the simulator, under the kernel's fair scheduling
//! and under the lane.
//!
//! The gain is that of all threads' work, each group's by the share of CPU time that it has:
//! throughput where the machine is fully busy, else work per CPU time, for idle CPUs hide what is
//! gained. A range is the lowest and the highest over lengths of sections (`load.rs`) and seeds.
//! The number of wide cores is the one with the best mean. Narrower code instead of the lane
//! (`narrow.rs`) is simulated with the same lengths.
//!
//! Where the CPU counts cycles at levels, only lengths of sections count at which the simulated
//! machine loses as many cycles to lowered clocks as was counted. If another CPU is judged than the
//! one that counted, this takes its levels to be held for as long.

use std::ops::Range;

use report::advise::Prediction;
use sim::engine::{Options, Outcome};
use sim::policy_spec::{PolicySpec, simulate};

use super::load::{Form, Load, Stage, UNKNOWN_NS};
use super::narrow::Alternative;
use crate::failure::Failure;
use crate::sim::{cannot_simulate, in_parallel, input};

/// A run is so many turns of the threads with wide code: the work done is counted in complete
/// turns, which makes it exact to 1/500.
const TURNS: u64 = 500;
/// Simulated time at least and at most.
const DURATION_NS: std::ops::RangeInclusive<u64> = 600_000_000..=20_000_000_000;
const WARMUP_NS: u64 = 200_000_000;
/// Runs with other random numbers, of the best number of wide cores.
const SEEDS: u64 = 3;
/// Wide cores that are tried.
const SIZES: [usize; 6] = [1, 2, 3, 4, 6, 8];
/// Lengths that are compared with the counters.
const LENGTHS_NS: [u64; 10] =
    [5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000];
/// Of these so many that fit best, and what fits them within so many points: where a core is slow
/// all the time, many do.
const FITTING: usize = 2;
const AS_GOOD_PCT: f64 = 2.0;

/// Lengths of sections, and how they are known.
struct Sections {
    ns: Vec<u64>,
    by: &'static str,
}

/// Simulates; `detect` is the lane's setting for how it finds wide code, `reduced_pct` what
/// counters say, `alternative` the narrower code that there could be instead.
pub(super) fn predict(
    load: &Load,
    stage: &Stage,
    detect: &str,
    reduced_pct: Option<f64>,
    alternative: Option<Alternative>,
) -> Result<Option<Prediction>, Failure> {
    let sizes: Vec<usize> =
        SIZES.into_iter().filter(|size| *size * 2 <= stage.nr_cores()).collect();
    if sizes.is_empty() {
        return Ok(None);
    }
    let sections = sections(load, stage, reduced_pct)?;
    let plan: Vec<(u64, u64)> =
        (1..=SEEDS).flat_map(|seed| sections.ns.iter().map(move |ns| (seed, *ns))).collect();
    let outcomes = |policy: &PolicySpec, plan: &[(u64, u64)]| {
        let outcomes = in_parallel(input::jobs(), plan.len(), |index| {
            let (seed, section_ns) = plan[index];
            run(load, stage, policy, (section_ns, seed), None)
        });
        outcomes.into_iter().collect::<Result<Vec<Outcome>, Failure>>()
    };
    let fair = outcomes(&policy("fair"), &plan)?;
    let gains = |lane: &PolicySpec, part: Range<usize>| -> Result<Vec<f64>, Failure> {
        let lane = outcomes(lane, &plan[part.clone()])?;
        Ok(fair[part]
            .iter()
            .zip(&lane)
            .map(|(fair, lane)| gain_pct(fair, lane, load.is_full))
            .collect())
    };
    // The first seed chooses among the sizes.
    let first = 0..sections.ns.len();
    let lane = |size: usize| policy(&format!("lane:wide={size},detect={detect}"));
    let mut best = (sizes[0], gains(&lane(sizes[0]), first.clone())?);
    for size in &sizes[1..] {
        let found = gains(&lane(*size), first.clone())?;
        if mean(found.iter().copied()) > mean(best.1.iter().copied()) {
            best = (*size, found);
        }
    }
    let (size, mut all) = best;
    let narrower = match alternative {
        Some(alternative) => {
            let gains = narrow_gains(load, stage, &alternative, &plan[first.clone()], &fair)?;
            Some(alternative.judged(&gains, &all))
        }
        None => None,
    };
    all.extend(gains(&lane(size), first.end..plan.len())?);
    let reduced = fair.iter().map(|outcome| reduced(outcome, stage));
    Ok(Some(Prediction {
        wide_cores: (size as f64 / stage.part_frac).round() as u32,
        figure: if load.is_full { "throughput" } else { "work per CPU time" }.into(),
        gain_pct: mean(all.iter().copied()),
        least_pct: all.iter().copied().fold(f64::INFINITY, f64::min),
        most_pct: all.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        reduced_least_pct: reduced.clone().fold(f64::INFINITY, f64::min),
        reduced_most_pct: reduced.fold(f64::NEG_INFINITY, f64::max),
        runs: 2 * all.len() as u32,
        sections_ns: sections.ns,
        sections_by: sections.by.into(),
        narrower,
    }))
}

/// The gain of narrower code in all its forms, for each entry of the plan, whose outcomes with wide
/// code are `fair`.
fn narrow_gains(
    load: &Load,
    stage: &Stage,
    alternative: &Alternative,
    plan: &[(u64, u64)],
    fair: &[Outcome],
) -> Result<Vec<Vec<f64>>, Failure> {
    let (forms, kernel) = (alternative.forms(), policy("fair"));
    let gains = in_parallel(input::jobs(), plan.len() * forms.len(), |index| {
        let (at, form) = (index / forms.len(), forms[index % forms.len()]);
        let (seed, section_ns) = plan[at];
        let narrow = run(load, stage, &kernel, (section_ns, seed), Some(form))?;
        Ok(gain_pct(&fair[at], &narrow, load.is_full))
    });
    let gains = gains.into_iter().collect::<Result<Vec<f64>, Failure>>()?;
    Ok(gains.chunks(forms.len()).map(<[f64]>::to_vec).collect())
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len().max(1) as f64;
    values.sum::<f64>() / count
}

fn policy(text: &str) -> PolicySpec {
    text.parse().expect("it is written as policies are")
}

fn run(
    load: &Load,
    stage: &Stage,
    policy: &PolicySpec,
    (section_ns, seed): (u64, u64),
    narrow: Option<Form>,
) -> Result<Outcome, Failure> {
    let measured_ns =
        (TURNS * load.turn_ns(section_ns)).clamp(*DURATION_NS.start(), *DURATION_NS.end());
    let duration_ns = WARMUP_NS + measured_ns;
    let options = Options { seed, duration_ns, warmup_ns: WARMUP_NS, ..Default::default() };
    let workload = load.workload(stage, section_ns, narrow);
    let finished = simulate(&stage.platform, stage.packages, workload, policy, options, None);
    Ok(finished.map_err(|error| cannot_simulate("the sampled load", policy, &error))?.outcome)
}

/// How much more work is done: the geometric mean over groups, weighted by the CPU time that each
/// has under the kernel's scheduling, so that neither units of work nor a shift of shares make up a
/// gain.
fn gain_pct(fair: &Outcome, lane: &Outcome, is_full: bool) -> f64 {
    let all_ns: u64 = fair.groups.iter().map(|group| group.cpu_ns).sum();
    let speed = |outcome: &Outcome, group: usize| {
        let done = &outcome.groups[group];
        let time_ns = if is_full { outcome.measured_ns } else { done.cpu_ns };
        // A group that does nothing any more has lost nearly all.
        done.completed.max(1) as f64 / time_ns.max(1) as f64
    };
    let groups = (0..fair.groups.len()).filter(|group| fair.groups[*group].completed > 0);
    let logs = groups.map(|group| {
        let weight = fair.groups[group].cpu_ns as f64 / all_ns.max(1) as f64;
        weight * (speed(lane, group) / speed(fair, group)).ln()
    });
    100.0 * logs.sum::<f64>().exp_m1()
}

fn sections(load: &Load, stage: &Stage, reduced_pct: Option<f64>) -> Result<Sections, Failure> {
    if let Some(ns) = load.section_ns {
        return Ok(Sections { ns: vec![ns / 2, ns, ns * 2], by: "from runs of samples" });
    }
    let Some(counted) = reduced_pct else {
        return Ok(Sections {
            ns: UNKNOWN_NS.to_vec(),
            by: "not known: samples are too far apart",
        });
    };
    let simulated = in_parallel(input::jobs(), LENGTHS_NS.len(), |index| {
        let outcome = run(load, stage, &policy("fair"), (LENGTHS_NS[index], 1), None)?;
        Ok(reduced(&outcome, stage))
    });
    let simulated = simulated.into_iter().collect::<Result<Vec<f64>, Failure>>()?;
    Ok(Sections { ns: fitting(&simulated, counted), by: "fitted to licence counters" })
}

/// The lengths whose simulated share is nearest to the counted one, ascending.
fn fitting(simulated_pct: &[f64], counted_pct: f64) -> Vec<u64> {
    let mut by_distance: Vec<(f64, u64)> = simulated_pct
        .iter()
        .zip(LENGTHS_NS)
        .map(|(simulated, ns)| ((simulated - counted_pct).abs(), ns))
        .collect();
    by_distance.sort_by(|a, b| a.0.total_cmp(&b.0));
    let as_good = by_distance.first().map_or(0.0, |(distance, _)| distance + AS_GOOD_PCT);
    let fit = by_distance.iter().enumerate();
    let fit = fit.filter(|(at, (distance, _))| *at < FITTING || *distance <= as_good);
    let mut nearest: Vec<u64> = fit.map(|(_, (_, ns))| *ns).collect();
    nearest.sort_unstable();
    nearest
}

/// Share of cycles at a level above 0, percent.
fn reduced(outcome: &Outcome, stage: &Stage) -> f64 {
    let cores = stage.platform.nr_cores;
    let (mut low, mut all) = (0.0, 0.0);
    for (level, ns) in outcome.cpus.iter().flat_map(|cpu| cpu.level_ns.iter().enumerate()) {
        let cycles = *ns as f64 * f64::from(stage.platform.clock_khz(level as u8, cores));
        all += cycles;
        low += if level > 0 { cycles } else { 0.0 };
    }
    100.0 * low / f64::max(all, 1.0)
}

#[cfg(test)]
mod tests {
    use cpumodel::CpuModel;
    use report::advise::{Narrower, ThanLane};
    use report::sample::{Offender, SampledLoad};

    use super::super::load::tests::sampled;
    use super::super::narrow::alternative;
    use super::*;

    fn stage_and_load(wide: u64, is_full: bool) -> (Stage, Load) {
        let load = SampledLoad {
            cores: 4,
            packages: 1,
            wide_threads: 8,
            wide_threads_busy: if is_full { 4000 } else { 1000 },
            wide,
            runs: wide,
            ..SampledLoad::default()
        };
        let busy = load.wide_threads_busy;
        let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        let stage = Stage::new(&model, 4, &load);
        let report = sampled(load, busy);
        let mut load = Load::of(&report, &stage).unwrap();
        load.level = 2;
        (stage, load)
    }

    /// Short sections on all of four cores, counted at a lowered clock all the time: one core of
    /// 1.9 GHz instead of four, (3 * 2.8 + 1.9) / (4 * 1.9) is 36 % more, less what moving costs
    /// (vm/silicon_verify measures 20 to 40 %).
    #[test]
    fn a_slowed_machine_gains() {
        let (stage, load) = stage_and_load(160, true);
        let found = predict(&load, &stage, "hint", Some(100.0), None).unwrap().unwrap();
        assert_eq!(found.wide_cores, 1, "{found:?}");
        assert!((20.0..40.0).contains(&found.gain_pct), "{found:?}");
        assert!(found.least_pct <= found.gain_pct && found.gain_pct <= found.most_pct);
    }

    /// So does the same load that starts as a command, whose tasks are scalar until they prove
    /// wide.
    #[test]
    fn a_command_gains_alike() {
        let (stage, mut load) = stage_and_load(160, true);
        load.is_scalar_at_first = true;
        let found = predict(&load, &stage, "hint", Some(100.0), None).unwrap().unwrap();
        assert!((20.0..40.0).contains(&found.gain_pct), "{found:?}");
    }

    /// By traps it gains too, though no system call shows where a section ends (policy/stay.h).
    #[test]
    fn traps_gain_without_system_calls() {
        let (stage, load) = stage_and_load(160, true);
        let found = predict(&load, &stage, "trap", Some(100.0), None).unwrap().unwrap();
        assert!(found.gain_pct > 5.0 && found.least_pct > 0.0, "{found:?}");
    }

    /// The same samples without counters leave the length of sections open, and the range says so.
    #[test]
    fn unknown_sections_widen_the_range() {
        let (stage, load) = stage_and_load(160, true);
        let width = |reduced_pct| {
            let found = predict(&load, &stage, "hint", reduced_pct, None).unwrap().unwrap();
            found.most_pct - found.least_pct
        };
        assert!(width(None) > 2.0 * width(Some(100.0)), "{} {}", width(None), width(Some(100.0)));
    }

    fn narrower(load: &Load, stage: &Stage, function: &str) -> Narrower {
        let offender = Offender {
            function: function.into(),
            file: "/usr/lib/libcrypto.so.3".into(),
            file_offset: None,
            process: "p".into(),
            license_level: 2,
            sustained_level: 2,
            samples: 100,
        };
        let alternative = alternative(&[&offender], load.level);
        let found = predict(load, stage, "hint", Some(100.0), alternative).unwrap().unwrap();
        found.narrower.unwrap()
    }

    /// Four cores at 1.9 GHz because of 4 % of wide code. Scalar code of the same length instead
    /// would have 2.8 GHz everywhere, 2.8 / 1.9 = 47 % more; at level 1 it is 2.4 GHz, and with
    /// four times the cycles for the wide 4 %, 1.26 / 1.12 = 13 % more. The lane is between them
    /// (`a_slowed_machine_gains`).
    #[test]
    fn narrower_code_gains_by_its_clock() {
        let (stage, load) = stage_and_load(160, true);
        let found = narrower(&load, &stage, "f");
        assert!((11.0..15.0).contains(&found.least_pct), "{found:?}");
        assert!((44.0..50.0).contains(&found.most_pct), "{found:?}");
        assert_eq!(found.than_lane, ThanLane::Undecided);
    }

    /// The more of the time is wide, the more narrower code costs: with half of it, and 1.47 to
    /// 1.96 times the cycles, there is less to gain than at the same clock alone, and it can lose.
    #[test]
    fn narrower_code_costs_by_its_share() {
        let (stage, load) = stage_and_load(160, true);
        let few = narrower(&load, &stage, "ChaCha20_16x");
        let (stage, load) = stage_and_load(2000, true);
        let many = narrower(&load, &stage, "ChaCha20_16x");
        assert!(many.most_pct < few.most_pct - 10.0, "{many:?} {few:?}");
        assert!(many.least_pct < 0.0, "{many:?}");
    }

    /// Where nearly all code is wide there is nothing to keep apart, and no gain is made up.
    #[test]
    fn wide_code_alone_gains_nothing() {
        let (stage, load) = stage_and_load(3990, true);
        let found = predict(&load, &stage, "hint", None, None).unwrap().unwrap();
        assert!(found.gain_pct < 1.0, "{found:?}");
    }

    /// The more of the time counters say the clock was low, the shorter the sections that explain
    /// it.
    #[test]
    fn counters_choose_the_length() {
        let simulated: Vec<f64> = (0..10).map(|at| 100.0 - 10.0 * f64::from(at)).collect();
        assert_eq!(fitting(&simulated, 99.0), [5_000, 10_000]);
        assert_eq!(fitting(&simulated, 12.0), [2_000_000, 5_000_000]);
        let saturated = [100.0, 99.9, 99.0, 90.0, 50.0, 30.0, 10.0, 5.0, 2.0, 1.0];
        assert_eq!(fitting(&saturated, 98.4), [5_000, 10_000, 20_000]);
    }
}
