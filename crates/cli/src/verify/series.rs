// SPDX-License-Identifier: MIT OR Apache-2.0
//! The runs of two commands, in random order.
//!
//! The number of runs is fixed before the first one: a user who stops when a difference shows
//! finds differences everywhere. Each pair of runs has both kinds, in an order drawn by a coin, so
//! that what drifts meets both alike.
//!
//! A run that fails is reported, counted and not repeated: the others are worth as much as before,
//! and the test takes groups of unequal size. It is given up when a kind can no longer get to the
//! least number of runs, or when it has not worked once in that many attempts, warming up included:
//! it will not.
//!
//! An interrupt ends the series after the run that it meets. The user has seen none of the results
//! by then, so that it does not depend on them, and the runs that were made can be compared.
//!
//! Limit: if runs of one kind fail more often, or because they would have been slow, those that are
//! left flatter it. That is why the report says how many failed.

use hw::cycles::{FamilyCycles, why_no_cycles};
use probe::compare::LEAST_RUNS;
use report::problem::Problem;
use report::text::wrap;
use report::verify::{Sample, Side};

use super::VerifyArgs;
use super::live::Live;
use super::outcome::{Broken, Done};
use super::work::Work;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::progress::Progress;
use crate::terminal;

/// One kind of runs, as far as it has got.
struct Kind<'a> {
    /// A or B.
    name: &'a str,
    work: &'a Work,
    /// The lane, and whether it is away while this runs; `None` if the command is all.
    lane: Option<(&'a Live, bool)>,
    side: Side,
    /// What taking over and giving back took, run by run.
    around_ns: Vec<f64>,
    /// Runs, those for warming up too.
    attempts: usize,
    /// Whether one of them did not fail.
    has_worked: bool,
}

/// Makes them all. With them, why their clock is not known, if it is not.
pub(super) fn run(
    args: &VerifyArgs,
    a: &Work,
    b: &Work,
    live: Option<&Live>,
    interrupt: &Interrupt,
) -> Result<([Side; 2], Option<String>), Failure> {
    let (mut cycles, no_clock) = match a {
        // has a clock of its own
        Work::Service(_) => (None, None),
        Work::Command(_) => match FamilyCycles::open() {
            Ok(cycles) => (Some(cycles), None),
            Err(error) => (None, Some(why_no_cycles(&error))),
        },
    };
    let lane = |is_away| live.map(|live| (live, is_away));
    let mut kinds = [Kind::new("A", a, lane(true)), Kind::new("B", b, lane(false))];
    let nr_runs = 2 * (usize::from(args.warmup) + usize::from(args.runs));
    let mut progress = Progress::new();
    for _ in 0..args.warmup {
        for kind in &mut kinds {
            kind.run(args, None, cycles.as_mut(), &mut progress, interrupt)?;
        }
    }
    let mut random = fastrand::Rng::with_seed(args.seed);
    for pair in 0..usize::from(args.runs) {
        let first = usize::from(random.bool());
        for (at, kind) in [first, 1 - first].into_iter().enumerate() {
            kinds[kind].run(
                args,
                Some(2 * pair + at),
                cycles.as_mut(),
                &mut progress,
                interrupt,
            )?;
            progress.part(2 * usize::from(args.warmup) + 2 * pair + at + 1, nr_runs, "runs");
        }
    }
    let sides = kinds.map(|kind| {
        let around_ns = probe::stats::median(&kind.around_ns).map(|ns| ns as u64);
        Side { around_ns, ..kind.side }
    });
    Ok((sides, no_clock))
}

impl<'a> Kind<'a> {
    fn new(name: &'a str, work: &'a Work, lane: Option<(&'a Live, bool)>) -> Self {
        let side = Side::of(work.to_string());
        Kind { name, work, lane, side, around_ns: Vec::new(), attempts: 0, has_worked: false }
    }

    /// One run; with its place in the order of all, if it counts.
    fn run(
        &mut self,
        args: &VerifyArgs,
        order: Option<usize>,
        cycles: Option<&mut FamilyCycles>,
        progress: &mut Progress,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        if interrupt.is_seen() {
            return Ok(());
        }
        self.attempts += 1;
        match self.run_once(args, cycles, interrupt) {
            Ok(Done { time_ns, cpu_time_ns, around_ns, clock_khz, metric }) => {
                self.has_worked = true;
                if let Some(order) = order {
                    let sample =
                        Sample { order, time_ns, cpu_time_ns, clock_khz, metric, seed: None };
                    self.side.samples.push(sample);
                    self.around_ns.extend(around_ns.map(|ns| ns as f64));
                }
                Ok(())
            }
            Err(Broken::NotStarted(failure)) => Err(failure),
            // Ctrl-C on a terminal ends the command too.
            Err(Broken::Run { .. }) if interrupt.is_seen() => Ok(()),
            Err(Broken::Run { why, next }) => {
                progress.clear();
                self.tell(&why, order.is_some());
                if order.is_some() {
                    self.side.failed += 1;
                    self.side.failure.get_or_insert_with(|| why.clone());
                }
                self.check(args, &why, next)
            }
        }
    }

    /// The work, with the lane as it is to be.
    fn run_once(
        &self,
        args: &VerifyArgs,
        cycles: Option<&mut FamilyCycles>,
        interrupt: &Interrupt,
    ) -> Result<Done, Broken> {
        let run = || self.work.run(args.metric.as_ref(), cycles, interrupt);
        let Some((live, is_away)) = self.lane else { return run() };
        if is_away {
            let pause = live.without().map_err(Broken::NotStarted)?;
            let done = run();
            pause.end().map_err(Broken::NotStarted)?;
            return done;
        }
        live.with();
        let done = run()?;
        match live.why_not_with().map_err(Broken::NotStarted)? {
            None => Ok(done),
            Some(why) => Err(Broken::Run {
                why: format!("the lane did not separate wide code: {why}"),
                next: "have the load run before and meanwhile",
            }),
        }
    }

    fn tell(&self, why: &str, counts: bool) {
        let so = if counts { "it is not used" } else { "it was a warm-up run" };
        let told = format!("a run of {} failed, {so}: {why}", self.name);
        eprint!("{}", wrap("note: ", &told, terminal::width()));
    }

    /// Fails if going on makes no sense.
    fn check(&self, args: &VerifyArgs, why: &str, next: &str) -> Result<(), Failure> {
        let Side { samples, failed, .. } = &self.side;
        let what = format!("too many runs of \"{}\" failed", self.work);
        if !self.has_worked && self.attempts >= LEAST_RUNS {
            let why = format!("each of {} failed, the last one because {why}", self.attempts);
            return Err(Failure::failed(Problem::new(what, why, next)));
        }
        let runs = usize::from(args.runs);
        if runs - failed < LEAST_RUNS {
            let why = format!(
                "{failed} of {runs} failed and {} worked; a comparison takes {LEAST_RUNS}; the last one failed \
                 because {why}",
                samples.len()
            );
            let next = format!("{next}, or give it more --runs");
            return Err(Failure::failed(Problem::new(what, why, next)));
        }
        Ok(())
    }
}
