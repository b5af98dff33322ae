// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane verify` found: two kinds of runs of a command, or two policies on a scenario of
//! the simulator, and whether they differ.

mod html;

use serde::{Deserialize, Serialize};

use crate::csv;
use crate::text::{Align, Table, wrap};

/// The metric of commands when no number in their output was asked for.
pub const TIME: &str = "time";

/// The document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct VerifyReport {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Draws the order of the runs of a command, and the seeds of simulated ones.
    pub seed: u64,
    /// Runs of each kind, warming up not counted.
    pub runs: usize,
    /// Why fewer were made, such as an interrupt; `null` if all were.
    #[serde(default)]
    pub partial: Option<String>,
    /// What was simulated; `null` if this machine ran a command.
    pub simulated: Option<Simulated>,
    /// The smallest difference that matters.
    pub margin_pct: f64,
    /// The one kind.
    pub a: Side,
    /// The other.
    pub b: Side,
    /// What is compared: `time`, the pattern of the number in the output, or what it is of a
    /// simulated load.
    pub metric: String,
    /// Whether less of it is better.
    pub smaller_is_better: bool,
    /// The comparison of the metric.
    pub effect: Effect,
    /// The comparison of CPU time, less being better.
    pub cpu_time: Effect,
    /// The comparison of the clocks at which they ran, kHz, more being better; `null` if no one
    /// counts cycles.
    #[serde(default)]
    pub clock: Option<Effect>,
    /// Why the clock is not known; `null` if it is, and of simulated runs.
    #[serde(default)]
    pub no_clock: Option<String>,
    /// What the effect means, in words.
    pub verdict: String,
}

/// A scenario whose policies are compared. Nothing in such a report was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Simulated {
    /// Name of the scenario.
    pub scenario: String,
    /// Its variant; `null` for the scenario as in its file.
    pub variant: Option<String>,
    /// Id of the CPU model.
    pub machine: String,
    /// The load that is looked at.
    pub load: String,
    /// What of it is compared.
    pub figure: Figure,
}

/// What of a simulated load is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Units of work per second.
    Throughput,
    /// CPU time of a unit of work.
    CpuTime,
    /// Median of the response times.
    P50,
    /// Their 99th percentile.
    P99,
}

/// One kind of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Side {
    /// What was executed; for simulated runs the policy.
    pub command: String,
    /// Run by run, in the order in which they were made.
    pub samples: Vec<Sample>,
    /// What `turbolane run` took before the command's start and after its end, median; not part of
    /// its time. `null` if the command ran without it.
    #[serde(default)]
    pub around_ns: Option<u64>,
    /// Runs that failed and have no sample, warming up not counted.
    pub failed: usize,
    /// Why the first of them failed; `null` if none did.
    pub failure: Option<String>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sample {
    /// Its place in the order of all runs.
    pub order: usize,
    /// Time from start to end; of a simulated run the simulated time.
    pub time_ns: u64,
    /// CPU time of the command and its children, user and system, and of a `turbolane run` above it
    /// meanwhile; of a simulated run that of one unit of the load's work.
    pub cpu_time_ns: u64,
    /// Mean clock of the command and its children while they ran, of all modes; `null` if no one
    /// counts cycles.
    #[serde(default)]
    pub clock_khz: Option<f64>,
    /// The number in its output, or the figure of the simulated load; `null` if none was asked for.
    pub metric: Option<f64>,
    /// What `turbolane sim --seed` takes to repeat the run; `null` for runs of a command.
    pub seed: Option<u64>,
}

/// A line of CSV: a run.
#[derive(Serialize)]
struct CsvRow<'a> {
    side: &'a str,
    command: &'a str,
    run: &'a Sample,
    /// Why runs are missing.
    partial: Option<&'a str>,
}

impl Side {
    /// Of which nothing was run yet.
    pub fn of(command: impl Into<String>) -> Self {
        let command = command.into();
        Side { command, samples: Vec::new(), around_ns: None, failed: 0, failure: None }
    }
}

impl Figure {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Figure::Throughput => "work per second",
            Figure::CpuTime => "CPU time per unit of work",
            Figure::P50 => "median response time",
            Figure::P99 => "p99 response time",
        }
    }

    /// Whether less of it is better: of all but the amount of work.
    pub fn smaller_is_better(self) -> bool {
        self != Figure::Throughput
    }
}

/// A change from a to b.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Effect {
    /// Median of a.
    pub a: f64,
    /// Median of b.
    pub b: f64,
    /// Change from a to b.
    pub change_pct: f64,
    /// Interval of 95 %.
    pub low_pct: f64,
    /// See `low_pct`.
    pub high_pct: f64,
    /// In one word.
    pub verdict: Verdict,
    /// Runs of each kind that a verdict would take; `null` if there is one.
    pub runs_needed: Option<usize>,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// b is better.
    Better,
    /// b is worse.
    Worse,
    /// A difference larger than the margin is ruled out.
    NoDifference,
    /// There is no verdict.
    NotEnoughRuns,
}

impl Effect {
    /// In words.
    pub fn words(&self, margin_pct: f64) -> String {
        let (change, low, high) = (self.change_pct, self.low_pct, self.high_pct);
        let interval = format!("{change:+.1} %, 95 % interval {low:+.1} to {high:+.1} %");
        match self.verdict {
            Verdict::Better => format!("better: {interval}"),
            Verdict::Worse => format!("worse: {interval}"),
            Verdict::NoDifference => {
                format!("no difference found: more than {margin_pct} % is ruled out ({interval})")
            }
            Verdict::NotEnoughRuns => format!(
                "not enough runs for a verdict ({interval}); to find a difference of {margin_pct} %, make {} runs \
                 of each kind",
                self.runs_needed.map_or("more".into(), |runs| format!("about {runs}"))
            ),
        }
    }
}

impl VerifyReport {
    /// The report as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("A: ", &self.a.command, width);
        text += &wrap("B: ", &self.b.command, width);
        text += &self.runs_text(width);
        if let Some(why) = &self.partial {
            text += &wrap("partial: ", why, width);
        }
        for (name, side) in [("A", &self.a), ("B", &self.b)] {
            if let Some(around_ns) = side.around_ns {
                let time = shown(around_ns as f64, true);
                let told = format!(
                    "each run of {name} took {time} more to load and unload the scheduler, which is not compared"
                );
                text += &wrap("note: ", &told, width);
            }
            if let Some(why) = &side.failure {
                let (failed, runs) = (side.failed, self.runs);
                let told = format!(
                    "{failed} of {runs} runs of {name} failed and are not used; the first: "
                );
                text += &wrap("partial: ", &(told + why), width);
            }
        }
        text += "\n";
        text += &self.table().text(width);
        if let Some(why) = &self.no_clock {
            text += &wrap("clock: not known: ", why, width);
        }
        let label =
            if self.simulated.is_some() { "verdict, of simulated runs: " } else { "verdict: " };
        text + "\n" + &wrap(label, &self.verdict, width)
    }

    /// The comparison as Markdown.
    pub fn markdown(&self) -> String {
        let what = self.runs_text(usize::MAX);
        let partial =
            self.partial.as_ref().map_or(String::new(), |why| format!("partial: {why}\n\n"));
        let (a, b, verdict) = (&self.a.command, &self.b.command, &self.verdict);
        let table = self.table().markdown();
        format!("A: `{a}`\\\nB: `{b}`\n\n{what}\n{partial}{table}\nverdict: {verdict}\n")
    }

    /// As CSV: one line per run.
    pub fn csv(&self) -> String {
        let sides = [("a", &self.a), ("b", &self.b)];
        let rows = sides.into_iter().flat_map(|(name, side)| {
            let (command, partial) = (&side.command, self.partial.as_deref());
            let row = move |run| CsvRow { side: name, command, run, partial };
            side.samples.iter().map(row)
        });
        csv::table(&rows.collect::<Vec<_>>())
    }

    /// What is compared.
    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("", Align::Left),
            ("A", Align::Right),
            ("B", Align::Right),
            ("B AGAINST A", Align::Left),
        ]);
        let figure = self.simulated.as_ref().map(|simulated| simulated.figure);
        let is_time = figure.map_or(self.metric == TIME, |figure| figure != Figure::Throughput);
        let cpu_time = if figure.is_some() { Figure::CpuTime.name() } else { "CPU time" };
        let rows =
            [(self.metric.as_str(), &self.effect, is_time), (cpu_time, &self.cpu_time, true)];
        // asked for, the CPU time is in the first row
        let nr_rows = if figure == Some(Figure::CpuTime) { 1 } else { 2 };
        for (name, effect, is_time) in &rows[..nr_rows] {
            table.row(vec![
                name.to_string(),
                shown(effect.a, *is_time),
                shown(effect.b, *is_time),
                effect.words(self.margin_pct),
            ]);
        }
        if let Some(clock) = &self.clock {
            let mhz = |khz: f64| format!("{:.0} MHz", khz / 1e3);
            let told = clock.words(self.margin_pct);
            table.row(vec!["clock".into(), mhz(clock.a), mhz(clock.b), told]);
        }
        table
    }

    /// How many runs of what, and how they were made.
    fn runs_text(&self, width: usize) -> String {
        let (runs, seed) = (self.runs, self.seed);
        let Some(Simulated { scenario, variant, machine, load, .. }) = &self.simulated else {
            return format!("{runs} runs of each in random order, seed {seed}\n");
        };
        let variant = variant.as_ref().map_or(String::new(), |name| format!(", variant {name}"));
        let told = format!(
            "load {load} of scenario {scenario}{variant} on a model of {machine}, {runs} runs of each \
             with a seed of its own, drawn by seed {seed}; nothing was measured"
        );
        wrap("simulated: ", &told, width)
    }
}

/// A value of the table: four digits and more, so that one per cent is seen.
fn shown(value: f64, is_time: bool) -> String {
    /// From where on a unit is used, ns.
    const UNITS: [(f64, f64, &str); 2] = [(1e8, 1e9, "s"), (1e5, 1e6, "ms")];
    if !is_time {
        return format!("{value:.4}");
    }
    let (_, scale, unit) =
        UNITS.into_iter().find(|(from, ..)| value >= *from).unwrap_or((0.0, 1e3, "us"));
    format!("{:.3} {unit}", value / scale)
}
