// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `probe`: what the frequency probe and the comparison of runs are worth. On this machine,
//! no guest.
//!
//! - `probe.meter_error_pct`: cycles of chains of known length, computed from the clock of meter
//!   slices around them; over trials in which no gap fell into those slices.
//! - `probe.repeatability`, `.relax_pct`: two full measurements of this CPU, one after the other:
//!   the largest difference of a settled clock that both know, and of a relax time. Left out where
//!   fewer than two rows are known in both, as on a machine that is never quiet.
//! - `probe.detects_planted_effects`: simulated CPUs with known times, given to the probe, on
//!   a shared machine with neighbours, interrupts and steal: the worst error of any parameter.
//! - `verify.false_positive_pct`: a synthetic program compared with itself.

use std::time::{Duration, Instant};

use ::probe::compare::{Verdict, compare};
use ::probe::{
    Live, Machine, Noise, Plan, ProbeError, Simulated, analyse, meter_error, run as measure,
};
use anyhow::{Context, Result};
use cpumodel::{CpuModel, Ns, Sourced, Sureness};
use report::probe::raw::Cell;
use report::probe::{Estimate, ProbeReport, Row};

use crate::measure::{Figure, publish};

/// Trials of the meter; a calm machine keeps most of them.
const METER_TRIALS: usize = 4_000;
/// Blocks of trials, of which each gives a median.
const METER_BLOCKS: usize = 10;
/// Of one measurement of this CPU, as of `turbolane probe`.
const LIVE: Duration = Duration::from_secs(120);
/// Rounds on a simulated CPU: 60 repetitions of each cell.
const ROUNDS: usize = 30;
/// Throttle, halt and relax times that are planted, ns: Skylake-SP's (DIM 4), Intel's manual's,
/// short ones.
const PLANTED: [(u64, u64, u64); 3] =
    [(9_300, 10_000, 670_000), (20_000, 11_000, 2_000_000), (5_000, 8_000, 350_000)];
/// Comparisons of a program with itself, and runs of each kind.
const COMPARISONS: usize = 2_000;
const RUNS: usize = 10;

/// Measure and publish.
pub fn run() -> Result<()> {
    let mut figures = vec![planted()?, false_positives()?];
    match Live::new(&hw::Live) {
        Ok(live) => figures.extend(on_this_cpu(live)?),
        Err(error @ (ProbeError::NoInvariantTsc | ProbeError::MeterDisagrees { .. })) => {
            eprintln!("this CPU is not measured: {error}");
        }
        Err(error) => return Err(error).context("cannot measure this CPU"),
    }
    publish("probe", &figures)
}

fn on_this_cpu(mut live: Live) -> Result<Vec<Figure>> {
    let errors = meter_error(live.calibration(), METER_TRIALS, 1);
    let blocks = errors.chunks(errors.len().div_ceil(METER_BLOCKS).max(1));
    let medians: Vec<f64> =
        blocks.filter_map(::probe::stats::median).map(|error| 100.0 * error).collect();
    let mut figures = Vec::new();
    if !medians.is_empty() {
        figures.push(Figure::of("probe.meter_error_pct", "%", "lower", &medians)?);
    }
    let agreeing = live.calibration().chains.iter().filter(|chain| chain.agrees);
    let spread: Vec<f64> = agreeing.map(|chain| 100.0 * (chain.ratio - 1.0).abs()).collect();
    figures.push(worst("probe.chain_spread_pct", "%", &spread));
    let (_, most) = live.cells();
    let mut active = vec![1, most];
    active.dedup();
    let mut once = || {
        let plan = Plan::full(&live, &active, 1);
        let start = Instant::now();
        let recording =
            measure(&mut live as &mut dyn Machine, &plan, &mut |_, _| start.elapsed() < LIVE);
        analyse(&recording.header, &recording.traces)
    };
    let (one, other) = (once(), once());
    let clocks = differences(&one, &other, |row| row.steady_khz);
    let clocks: Vec<f64> = clocks.iter().map(|(one, other)| (one - other).abs() / 1e3).collect();
    if clocks.len() >= 2 {
        figures.push(worst("probe.repeatability", "MHz", &clocks));
    }
    let relax = differences(&one, &other, |row| row.relax().0);
    let relax: Vec<f64> =
        relax.iter().map(|(one, other)| 100.0 * (one / other - 1.0).abs()).collect();
    if !relax.is_empty() {
        figures.push(worst("probe.repeatability.relax_pct", "%", &relax));
    }
    Ok(figures)
}

/// A value of each row that both reports know.
fn differences(
    one: &ProbeReport,
    other: &ProbeReport,
    of: impl Fn(&Row) -> Option<Estimate>,
) -> Vec<(f64, f64)> {
    let twin = |row: &Row| other.rows.iter().find(|twin| twin.cell == row.cell);
    let pair = |row: &Row| Some((of(row)?.value, of(twin(row)?)?.value));
    one.rows.iter().filter_map(pair).collect()
}

fn worst(name: &str, unit: &'static str, values: &[f64]) -> Figure {
    let max = values.iter().copied().fold(0.0, f64::max);
    let min = values.iter().copied().fold(max, f64::min);
    let n = values.len() as u64;
    Figure { name: name.into(), value: max, unit, better: "lower", n, min, max, baseline: None }
}

/// The worst error of any parameter, over all planted sets.
fn planted() -> Result<Figure> {
    let mut errors = Vec::new();
    for (throttle_ns, halt_ns, relax_ns) in PLANTED {
        let mut model = CpuModel::built_in("xeon-gold-6130").context("it is built in")??;
        let known = |value| {
            let source = "planted".into();
            Some(Sourced { value: Ns(value), source, sureness: Sureness::Assumed })
        };
        model.transition.throttle_ns = known(throttle_ns);
        model.transition.halt_ns = known(halt_ns);
        model.transition.relax_ns = known(relax_ns);
        let mut machine = Simulated::new(&model, Noise::SHARED, relax_ns);
        let cell = |kernel: &str| Cell { kernel: kernel.into(), one_in: 1, active: 16 };
        let cells = vec![cell("512-fma"), cell("256-fma"), cell("512-int")];
        let plan = Plan { cells, seed: 1, max_rounds: ROUNDS };
        let recording = measure(&mut machine, &plan, &mut |_, _| true);
        for row in analyse(&recording.header, &recording.traces).rows {
            errors.extend(row_errors(&machine, &row)?);
        }
    }
    Ok(worst("probe.detects_planted_effects", "%", &errors))
}

fn row_errors(machine: &Simulated, row: &Row) -> Result<Vec<f64>> {
    let kernel = ::probe::Kernel::named(&row.cell.kernel).context("it is one of ours")?;
    let (platform, active) = (machine.platform(), row.cell.active as usize);
    let level = machine.level(kernel, row.cell.one_in);
    let times = platform.times;
    let all = [
        (row.steady_khz, f64::from(platform.clock_khz(level, active))),
        (row.throttle_ns, times.throttle_ns as f64),
        (row.throttle_frac, platform.throttle_frac),
        (row.halt_ns, times.halts_ns(0, level) as f64),
        (row.lower_cost_ns, ::dvfs::Core::new(platform, active).lower_cost_ns(0, level)),
        (row.relax_from_last_ns, times.relax_ns as f64),
        (row.raise_halt_ns, times.halt_ns as f64),
    ];
    let error = |(found, truth): (Option<Estimate>, f64)| {
        let found = found.with_context(|| format!("an effect was not seen: {:?}", row.notes))?;
        Ok(100.0 * (found.value / truth - 1.0).abs())
    };
    all.into_iter().map(error).collect()
}

/// Times of a program with itself: a base, noise to one side, now and then a long run.
fn false_positives() -> Result<Figure> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut runs = || -> Vec<f64> {
        let mut one = || {
            let tail = if random.u8(0..10) == 0 { 0.3 * random.f64() } else { 0.0 };
            1.0 - 0.02 * (1.0 - random.f64()).ln() + tail
        };
        (0..RUNS).map(|_| one()).collect()
    };
    let mut blocks = Vec::new();
    for _ in 0..COMPARISONS / 100 {
        let mut different = 0;
        for _ in 0..100 {
            let found = compare(&runs(), &runs(), true, 0.01).context("ten runs are enough")?;
            different += u32::from(matches!(found.verdict, Verdict::Better | Verdict::Worse));
        }
        blocks.push(f64::from(different));
    }
    let mean = blocks.iter().sum::<f64>() / blocks.len() as f64;
    let (min, max) = (
        blocks.iter().copied().fold(f64::INFINITY, f64::min),
        blocks.iter().copied().fold(0.0, f64::max),
    );
    Ok(Figure {
        name: "verify.false_positive_pct".into(),
        value: mean,
        unit: "%",
        better: "lower",
        n: COMPARISONS as u64,
        min,
        max,
        baseline: None,
    })
}
