// SPDX-License-Identifier: MIT OR Apache-2.0
//! Raw samples of the probe, as it records and replays them: JSON lines, a [`Header`] first, then
//! one [`Trace`] per repetition.
//!
//! A repetition is a row of slices. Each slice is work of a known amount between two readings of
//! the time stamp counter: a *meter* slice is a dependency chain of so many cycles, so its time
//! gives the clock; a *payload* slice is so many rounds of the kernel under test, so its time gives
//! how fast the core dispatches it. [`Layout`] says what the slices are, `ticks` how long each
//! took.

use serde::{Deserialize, Serialize};

/// First line of a recording: what all repetitions share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Header {
    /// See [`crate::SCHEMA`].
    pub schema: u32,
    /// Brand string, or the id of a simulated CPU.
    pub machine: String,
    /// Its cores; not in recordings of before.
    #[serde(default)]
    pub cores: Cores,
    /// Frequency of the counter that `ticks` are of.
    pub tsc_khz: f64,
    /// What two readings of the counter cost, within each slice.
    pub overhead_ticks: f64,
    /// Chains that were calibrated.
    pub chains: Vec<Chain>,
    /// Who else says how fast the clock is; not in recordings of before.
    #[serde(default)]
    pub witnesses: Vec<Witness>,
    /// What cannot be measured here, with the reason.
    pub skipped: Vec<Skipped>,
    /// What the machine hides from the probe, in words.
    pub unknown: Vec<String>,
    /// Draws the order of the repetitions.
    pub seed: u64,
    /// Why the measurement is not complete; `null` if it is.
    pub partial: Option<String>,
}

/// How many cores and CPUs the machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cores {
    /// Cores of a package, the most if packages differ; `null` if not known.
    pub per_package: Option<u32>,
    /// CPUs of a core, the most if cores differ; `null` if not known.
    pub threads_per_core: Option<u32>,
}

/// A further dependency chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Chain {
    /// Its instruction.
    pub name: String,
    /// Cycles per instruction that it is taken for.
    pub latency_cycles: u32,
    /// The clock it shows over the clock that the agreed chains show.
    pub ratio: f64,
    /// Whether it is one of those that agree.
    pub agrees: bool,
    /// Why not, e.g. folded at rename; `null` if it agrees.
    pub why_not: Option<String>,
}

/// A counter of the core's cycles, besides the chains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Witness {
    /// `perf cycles` or `APERF/MPERF`.
    pub name: String,
    /// The clock that it shows over a span of scalar code; `null` if it is not there.
    pub clock_khz: Option<f64>,
    /// The clock that the meter's chain shows over the same span.
    pub chain_khz: Option<f64>,
    /// Why it says nothing; `null` if it does.
    pub why_not: Option<String>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Skipped {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What a repetition measures: one cell of the result.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Cell {
    /// Name of the kernel.
    pub kernel: String,
    /// One instruction of the kernel in so many; 1 is dense.
    pub one_in: u32,
    /// CPUs kept busy, this one included.
    pub active: u32,
}

/// Phases of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Scalar, before: which bin the clock is in.
    Pre,
    /// Registers are set up: one slice without known work.
    Prepare,
    /// Payload and meter in turn.
    Block,
    /// Scalar, after: what the clock does.
    Post,
}

/// So many slices of the same kind, or pairs of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Run {
    /// What for.
    pub phase: Phase,
    /// Slices, or pairs where both amounts of work are given.
    pub n: u32,
    /// Rounds of the kernel's loop; 0 for none.
    pub loops: u32,
    /// Cycles of the chain; 0 for none.
    pub cycles: u32,
}

/// The slices of a repetition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Layout {
    /// In order.
    pub runs: Vec<Run>,
    /// Instructions under test per round of the kernel's loop.
    pub wide_per_loop: u32,
}

/// One repetition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Trace {
    /// What it measures.
    pub cell: Cell,
    /// Its slices.
    pub layout: Layout,
    /// Time of each slice, in ticks.
    pub ticks: Vec<u32>,
}

/// What one slice does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Rounds of the kernel's loop.
    Payload(u32),
    /// Cycles of the chain.
    Meter(u32),
    /// Something whose amount does not matter.
    Other,
}

impl Layout {
    /// Slice by slice.
    pub fn slices(&self) -> impl Iterator<Item = (Phase, Work)> + '_ {
        self.runs.iter().flat_map(|run| {
            let payload = (run.loops > 0).then_some(Work::Payload(run.loops));
            let meter = (run.cycles > 0).then_some(Work::Meter(run.cycles));
            let other = (run.loops == 0 && run.cycles == 0).then_some(Work::Other);
            let one = move || [payload, meter, other].into_iter().flatten();
            (0..run.n).flat_map(move |_| one().map(move |work| (run.phase, work)))
        })
    }
}

/// Reads a recording. The error names the line.
pub fn parse(text: &str) -> Result<(Header, Vec<Trace>), String> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let (_, first) = lines.next().ok_or("the file is empty")?;
    let header: Header =
        serde_json::from_str(first).map_err(|error| format!("line 1 is not a header: {error}"))?;
    if header.schema != crate::SCHEMA {
        return Err(format!("schema {} is not known, this is {}", header.schema, crate::SCHEMA));
    }
    let mut traces = Vec::new();
    for (number, line) in lines {
        let at = |what: String| format!("line {}: {what}", number + 1);
        let trace: Trace = serde_json::from_str(line).map_err(|error| at(error.to_string()))?;
        let wanted = trace.layout.slices().count();
        if trace.ticks.len() != wanted {
            return Err(at(format!("{} ticks for {wanted} slices", trace.ticks.len())));
        }
        traces.push(trace);
    }
    Ok((header, traces))
}
