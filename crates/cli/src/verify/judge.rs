// SPDX-License-Identifier: MIT OR Apache-2.0
//! From two groups of runs to the report: what a command did and what the simulator says go through
//! the same test and get the same words.

use probe::compare::{Comparison, LEAST_RUNS, RankTest, Verdict};
use report::problem::Problem;
use report::verify::{Effect, Sample, Side, Simulated, VerifyReport};

use super::VerifyArgs;
use crate::failure::Failure;

/// What is compared.
pub(super) struct Question {
    /// As the report names it.
    pub(super) metric: String,
    pub(super) smaller_is_better: bool,
    pub(super) simulated: Option<Simulated>,
    /// Why the clock of the runs is not known.
    pub(super) no_clock: Option<String>,
}

pub(super) fn report(
    args: &VerifyArgs,
    question: Question,
    [a, b]: [Side; 2],
) -> Result<VerifyReport, Failure> {
    let Question { metric, smaller_is_better, simulated, no_clock } = question;
    let partial = partial(args, &a, &b)?;
    let value = |sample: &Sample| sample.metric.unwrap_or(sample.time_ns as f64);
    let cpu_time_ns = |sample: &Sample| sample.cpu_time_ns.max(1) as f64;
    let margin = args.margin / 100.0;
    let test = RankTest::new(a.samples.len(), b.samples.len());
    let effect = effect(test, &a, &b, value, smaller_is_better, margin)?;
    let cpu_time = self::effect(test, &a, &b, cpu_time_ns, true, margin)?;
    let has_clocks = a.samples.iter().chain(&b.samples).all(|sample| sample.clock_khz.is_some());
    let clock_khz = |sample: &Sample| sample.clock_khz.unwrap_or_default();
    let clock =
        has_clocks.then(|| self::effect(test, &a, &b, clock_khz, false, margin)).transpose()?;
    let stood_still = || "the cycle counter did not advance in a run".to_string();
    let is_missing = clock.is_none() && simulated.is_none();
    let no_clock = is_missing.then(|| no_clock.unwrap_or_else(stood_still));
    Ok(VerifyReport {
        schema: report::SCHEMA,
        seed: args.seed,
        runs: usize::from(args.runs),
        partial,
        simulated,
        margin_pct: args.margin,
        metric,
        smaller_is_better,
        verdict: effect.words(args.margin),
        effect,
        cpu_time,
        clock,
        no_clock,
        a,
        b,
    })
}

/// Why runs are missing: only an interrupt ends them early. Fails if too few were made for a
/// comparison.
fn partial(args: &VerifyArgs, a: &Side, b: &Side) -> Result<Option<String>, Failure> {
    let made: usize = [a, b].iter().map(|side| side.samples.len() + side.failed).sum();
    let all = 2 * usize::from(args.runs);
    let why = format!("interrupted after {made} of {all} runs");
    if a.samples.len().min(b.samples.len()) >= LEAST_RUNS {
        return Ok((made < all).then_some(why));
    }
    Err(Failure::unsupported(Problem::new(
        "there are not enough runs for a verdict",
        format!("{why}; a comparison takes {LEAST_RUNS} of each kind"),
        "let it run for longer, or ask for fewer --runs",
    )))
}

fn effect(
    test: Option<RankTest>,
    a: &Side,
    b: &Side,
    value: impl Fn(&Sample) -> f64,
    smaller_is_better: bool,
    margin_frac: f64,
) -> Result<Effect, Failure> {
    let values = |side: &Side| -> Vec<f64> { side.samples.iter().map(&value).collect() };
    let (a, b) = (values(a), values(b));
    let compared = test.and_then(|test| test.compare(&a, &b, smaller_is_better, margin_frac));
    let Some(found) = compared else {
        return Err(Failure::failed(Problem::new(
            "the runs cannot be compared",
            "a value is 0 or negative, so there is no ratio",
            "choose a --metric that is positive",
        )));
    };
    let Comparison { ratio, low, high, verdict } = found;
    let pct = |ratio: f64| 100.0 * (ratio - 1.0);
    let median = |values: &[f64]| probe::stats::median(values).unwrap_or(0.0);
    let (verdict, runs_needed) = match verdict {
        Verdict::Better => (report::verify::Verdict::Better, None),
        Verdict::Worse => (report::verify::Verdict::Worse, None),
        Verdict::Same => (report::verify::Verdict::NoDifference, None),
        Verdict::NotEnough { runs } => (report::verify::Verdict::NotEnoughRuns, Some(runs)),
    };
    Ok(Effect {
        a: median(&a),
        b: median(&b),
        change_pct: pct(ratio),
        low_pct: pct(low),
        high_pct: pct(high),
        verdict,
        runs_needed,
    })
}
