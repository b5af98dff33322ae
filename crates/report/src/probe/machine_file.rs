// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the probe found as a CPU file, which `turbolane sim --machine FILE` reads.
//!
//! Problem: a CPU file wants levels and rules; the probe has clocks by kernel.
//!
//! Idea: the settled clocks of dense kernels, at the smallest number of active CPUs, fall into
//! groups at least half a bin apart: each group is a level, the fastest is level 0. A class asks
//! for the level that its slowest kernel's clock is in, dense and sparse each. The times of a
//! change are the medians of the rows of the highest level that shows them. What was not seen stays
//! unknown, and `sim` says what it assumes for it.
//!
//! Clocks whose interval is wider than half a bin on either side do not count, except those that
//! are certainly below scalar code's: on a busy machine a dense kernel's clock is known within 80
//! MHz, and that it is lower matters more. A class whose dense kernels have no clock is left out,
//! as nothing is known about it.
//!
//! Limits: the file describes one package (`sim --packages` has more), and all its cores have as
//! many CPUs as the one that has most. Classes that no kernel of this CPU could show are left out,
//! which says that the part has none. Clocks are made to fall with levels and active CPUs where
//! noise turned them round: a reader refuses anything else.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Estimate, ProbeReport, Row};

/// Clocks closer than half a bin of 100 MHz are one level.
const LEVEL_KHZ: f64 = 50_000.0;

/// A kernel whose width is a state of the registers: no class's rule.
const STATE_KERNEL: &str = "dirty-upper";

/// The file's text; the error says why there is none.
pub fn machine_file(report: &ProbeReport) -> Result<String, String> {
    let known: Vec<(&Row, Estimate)> = report
        .rows
        .iter()
        .filter_map(|row| Some((row, row.steady_khz.filter(|found| counts(report, row, found))?)))
        .collect();
    let first = known.iter().map(|(row, _)| row.cell.active).min();
    let first = first.ok_or("no clock is known within half a bin: too few quiet repetitions")?;
    let scalar = known.iter().find(|(row, _)| row.cell.active == first && row.class == "scalar");
    let (_, scalar) = scalar.ok_or("the clock of scalar code is not known within half a bin")?;
    let levels = levels(&known, first, scalar.value);
    let mut text = head(report);
    let active_counts: Vec<u32> = {
        let mut counts: Vec<u32> = known.iter().map(|(row, _)| row.cell.active).collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    };
    let mut below: BTreeMap<u32, u32> = BTreeMap::new();
    for (level, centre) in levels.iter().enumerate() {
        write_level(
            &mut text,
            report,
            &known,
            &levels,
            (level, *centre),
            &active_counts,
            &mut below,
        );
    }
    write_rules(&mut text, report, &known, &levels, first);
    write_times(&mut text, report, &levels);
    Ok(text)
}

/// Whether a row's clock distinguishes its level from the neighbouring one, or at least from scalar
/// code's.
fn counts(report: &ProbeReport, row: &Row, found: &Estimate) -> bool {
    let is_peer = |other: &&Row| other.class == "scalar" && other.cell.active == row.cell.active;
    let scalar = report.rows.iter().find(is_peer).and_then(|row| row.steady_khz);
    let is_narrow = (found.high - found.low) / 2.0 <= LEVEL_KHZ;
    is_narrow || scalar.is_some_and(|scalar| found.high <= scalar.low - LEVEL_KHZ)
}

fn source(report: &ProbeReport, found: &Estimate) -> String {
    format!("turbolane probe on {}, median of {} repetitions", report.machine, found.n)
}

fn head(report: &ProbeReport) -> String {
    let name = report.machine.replace(['"', '\\'], " ");
    let id: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let words: Vec<&str> = id.split('-').filter(|word| !word.is_empty()).collect();
    let mut text = String::from("# SPDX-License-Identifier: MIT OR Apache-2.0\n");
    let partial = report.partial.iter().map(|why| format!("the measurement is partial: {why}"));
    let unknown: Vec<String> = report.unknown.iter().cloned().chain(partial).collect();
    let heading = if unknown.is_empty() { "" } else { " What it could not know:" };
    _ = writeln!(text, "# Written by turbolane probe, seed {}.{heading}", report.seed);
    unknown.iter().for_each(|what| _ = writeln!(text, "# - {}", what.replace('\n', " ")));
    _ = writeln!(text, "schema = {}", cpumodel::CPU_FILE_SCHEMA);
    _ = writeln!(text, "id = \"probed-{}\"", words.join("-"));
    _ = writeln!(text, "name = \"{name} (probed)\"");
    let count = |count: u32| {
        let source = format!("turbolane probe on {name}: the kernel's topology");
        format!("{{ value = {count}, source = \"{source}\", sureness = \"verified\" }}")
    };
    if let Some(cores) = report.cores.per_package {
        _ = writeln!(text, "nr_cores = {}", count(cores));
    }
    if let Some(threads) = report.cores.threads_per_core {
        _ = writeln!(text, "smt.threads_per_core = {}", count(threads));
    }
    text
}

/// Centres of the groups of clocks, fastest first; level 0 is that of scalar code or faster.
fn levels(known: &[(&Row, Estimate)], active: u32, scalar_khz: f64) -> Vec<f64> {
    let of_first = known.iter().filter(|(row, _)| row.cell.active == active);
    let mut clocks: Vec<f64> = of_first.map(|(_, found)| found.value).collect();
    clocks.sort_unstable_by(|a, b| f64::total_cmp(b, a));
    let mut levels = vec![scalar_khz];
    for khz in clocks {
        if levels[levels.len() - 1] - khz >= LEVEL_KHZ {
            levels.push(khz);
        }
    }
    levels
}

/// The level whose clock is nearest.
fn level_of(levels: &[f64], khz: f64) -> usize {
    let far = |at: &usize| (levels[*at] - khz).abs();
    (0..levels.len()).min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(0)
}

fn write_level(
    text: &mut String,
    report: &ProbeReport,
    known: &[(&Row, Estimate)],
    levels: &[f64],
    (level, centre): (usize, f64),
    counts: &[u32],
    below: &mut BTreeMap<u32, u32>,
) {
    // Kernels that define the level, by their clock at the smallest count.
    let members: Vec<(&str, u32)> = known
        .iter()
        .filter(|(row, found)| {
            row.cell.active == counts[0] && level_of(levels, found.value) == level
        })
        .map(|(row, _)| (row.cell.kernel.as_str(), row.cell.one_in))
        .collect();
    let mut clocks = Vec::new();
    let mut last = u32::MAX;
    for active in counts {
        let of_level = known.iter().filter(|(row, _)| {
            row.cell.active == *active
                && members.contains(&(row.cell.kernel.as_str(), row.cell.one_in))
        });
        let mut all: Vec<f64> = of_level.map(|(_, found)| found.value).collect();
        all.sort_unstable_by(f64::total_cmp);
        let khz = all.get(all.len() / 2).copied().unwrap_or(centre);
        // Tens of MHz, as good as the meter is.
        let khz = ((khz / 1e4).round() * 1e4) as u32;
        let khz = khz.min(last).min(below.get(active).copied().unwrap_or(u32::MAX));
        (last, _) = (khz, below.insert(*active, khz));
        clocks.push((*active, khz));
    }
    let name = if level == 0 { "scalar".to_string() } else { format!("level {level}") };
    let row = |pick: fn(&(u32, u32)) -> u32| {
        let all: Vec<String> = clocks.iter().map(|one| pick(one).to_string()).collect();
        all.join(", ")
    };
    let n = members.len();
    _ = write!(
        text,
        "\n[[level]]\nname = \"{name}\"\n[level.turbo]\nup_to_cores = [{}]\nclock_khz = [{}]\n\
         source = \"turbolane probe on {}: {n} kernels\"\nsureness = \"verified\"\n",
        row(|one| one.0),
        row(|one| one.1),
        report.machine.replace(['"', '\\'], " "),
    );
}

fn write_rules(
    text: &mut String,
    report: &ProbeReport,
    known: &[(&Row, Estimate)],
    levels: &[f64],
    active: u32,
) {
    let mut rules: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let has_dense = |class: &str| {
        let is_dense = |(row, _): &(&Row, Estimate)| {
            row.cell.active == active && row.cell.one_in == 1 && row.class == class
        };
        known.iter().any(is_dense)
    };
    for (row, found) in known {
        if row.cell.active != active || row.cell.kernel == STATE_KERNEL || row.class == "unknown" {
            continue;
        }
        if !has_dense(&row.class) {
            continue;
        }
        let level = level_of(levels, found.value);
        let rule = rules.entry(&row.class).or_default();
        if row.cell.one_in == 1 {
            rule.1 = rule.1.max(level);
        } else {
            // The sparsest stands for a single instruction; rows are sorted by density.
            rule.0 = rule.0.max(if row.cell.one_in >= 80 { level } else { 0 });
        }
    }
    _ = writeln!(
        text,
        "\n[rules]\nsource = \"turbolane probe on {}: settled clocks, dense and one in 80\"\n\
         sureness = \"derived\"\n[rules.class]",
        report.machine.replace(['"', '\\'], " "),
    );
    // Level 0 is what scalar code runs at, by definition.
    rules.insert("scalar", (0, 0));
    for (class, (single, dense)) in rules {
        _ = writeln!(text, "{class} = [{single}, {}]", dense.max(single));
    }
}

/// Times, from the rows of the highest level that shows them. Not from level 0, where nothing is
/// granted: the first slices of any block are a little slow, since its code is not in the caches.
fn write_times(text: &mut String, report: &ProbeReport, levels: &[f64]) {
    let best = |of: &dyn Fn(&Row) -> Option<Estimate>| {
        let rows = report
            .rows
            .iter()
            .filter_map(|row| Some((level_of(levels, row.steady_khz?.value), of(row)?)))
            .filter(|(level, _)| *level > 0);
        rows.max_by_key(|(level, found)| (*level, found.n)).map(|(_, found)| found)
    };
    text.push_str("\n[transition]\n");
    let mut line = |key: &str, found: Option<Estimate>, whole: bool| {
        let Some(found) = found else { return };
        let value =
            if whole { format!("{:.0}", found.value) } else { format!("{:.3}", found.value) };
        _ = writeln!(
            text,
            "{key} = {{ value = {value}, source = \"{}\", sureness = \"verified\" }}",
            source(report, &found).replace(['"', '\\'], " ")
        );
    };
    line("throttle_ns", best(&|row| row.throttle_ns), true);
    line("throttle_frac", best(&|row| row.throttle_frac.filter(|e| e.value <= 1.0)), false);
    // The core halts once for each level on the way up, and once on the way down.
    let one_of_several = |row: &Row| {
        let changes = level_of(levels, row.steady_khz?.value).max(1) as f64;
        let all = row.halt_ns?;
        Some(Estimate {
            value: all.value / changes,
            low: all.low / changes,
            high: all.high / changes,
            ..all
        })
    };
    line("halt_ns", best(&|row| row.raise_halt_ns).or_else(|| best(&one_of_several)), true);
    line("relax_ns", best(&|row| row.relax().0), true);
}
