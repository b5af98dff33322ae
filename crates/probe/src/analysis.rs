// SPDX-License-Identifier: MIT OR Apache-2.0
//! From repetitions to what a CPU does: a pure function of a recording.
//!
//! Problem: on a shared machine most of what a repetition shows is the work of others. An effect of
//! the licence is what the quiet repetitions have in common.
//!
//! Idea:
//! 1. Only repetitions count that began in the quiet bin of their number of active CPUs
//!    (`stats::quiet_khz`) and whose clock was calm before the block.
//! 2. An effect is visible if most of them show it: interrupts come at random times, so a gap at
//!    the same place in more than half of the repetitions is a halt. Its size is the median of all
//!    of them, with an interval from order statistics.
//! 3. The relax time is computed only if the clock fell at all. It is given since the last and
//!    since the first wide instruction; blocks of two lengths show which one the hardware uses.
//!
//! "Not visible" is an answer, and says why.
//!
//! Limits: intervals are those of the sampling; a regime that lasts longer than the measurement is
//! not seen as one.

use std::collections::BTreeMap;

use cpumodel::Times;
use dvfs::Core;
use report::probe::raw::{Cell, Header, Trace};
use report::probe::{Bin, CountedFrom, Estimate, Meter, ProbeReport, Row};

use crate::course::course;
use crate::kernel::Kernel;
use crate::repetition::{CLOCK_STEP_KHZ, Repetition};
use crate::stats::{bin_khz, estimate, is_in_bin, median, quiet_khz};

/// Quiet repetitions below which nothing is said of a cell.
pub(crate) const LEAST_QUIET: usize = 6;

/// A repetition with the cell that it measured.
pub(crate) type Examined = (Cell, Repetition);

/// What one repetition shows; `None` if it shows nothing.
pub(crate) fn examine(header: &Header, trace: &Trace) -> Option<Examined> {
    Some((trace.cell.clone(), Repetition::of(header, trace)?))
}

/// The report of a recording.
pub fn analyse(header: &Header, traces: &[Trace]) -> ProbeReport {
    let (kept, all): (Vec<&Trace>, Vec<Examined>) =
        traces.iter().filter_map(|trace| Some((trace, examine(header, trace)?))).unzip();
    let quiet = quiet(&all);
    let mut rows = rows(&all);
    for row in &mut rows {
        let of_cell = quiet.iter().filter(|at| all[**at].0 == row.cell);
        let inside: Vec<(&Trace, &Repetition)> =
            of_cell.map(|at| (kept[*at], &all[*at].1)).collect();
        if inside.len() >= LEAST_QUIET {
            row.course = course(header, &inside);
        }
    }
    ProbeReport {
        schema: report::SCHEMA,
        machine: header.machine.clone(),
        cores: header.cores,
        seed: header.seed,
        verdict: report::probe::verdict(&rows),
        partial: header.partial.clone(),
        repetitions: traces.len(),
        quiet: quiet.len(),
        meter: Meter {
            tsc_khz: header.tsc_khz,
            overhead_ns: header.overhead_ticks * 1e6 / header.tsc_khz,
            chains: header.chains.clone(),
            witnesses: header.witnesses.clone(),
        },
        bins: bins(&all, &centres(&all)),
        rows,
        skipped: header.skipped.clone(),
        unknown: header.unknown.clone(),
    }
}

/// Which repetitions count.
fn quiet(all: &[Examined]) -> Vec<usize> {
    let centres = centres(all);
    let counts = |(cell, one): &Examined| {
        one.calm && centres.get(&cell.active).is_some_and(|khz| is_in_bin(one.before_khz, *khz))
    };
    (0..all.len()).filter(|at| counts(&all[*at])).collect()
}

/// The rows, without courses.
pub(crate) fn rows(all: &[Examined]) -> Vec<Row> {
    let mut cells: BTreeMap<&Cell, Vec<&Repetition>> =
        all.iter().map(|(cell, _)| (cell, Vec::new())).collect();
    for at in quiet(all) {
        let (cell, one) = &all[at];
        cells.entry(cell).or_default().push(one);
    }
    let mut rows: Vec<Row> = cells.into_iter().map(|(cell, inside)| row(cell, &inside)).collect();
    take_off_scalar_start(&mut rows);
    let order = |row: &Row| {
        let at = crate::kernel::KERNELS.iter().position(|kernel| kernel.name == row.cell.kernel);
        (row.cell.active, at, row.cell.one_in)
    };
    rows.sort_by_key(order);
    rows
}

/// The quiet clock by active CPUs.
fn centres(all: &[Examined]) -> BTreeMap<u32, f64> {
    let mut clocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (cell, one) in all {
        clocks.entry(cell.active).or_default().push(one.before_khz);
    }
    clocks.into_iter().filter_map(|(active, all)| Some((active, quiet_khz(&all)?))).collect()
}

fn bins(all: &[Examined], centres: &BTreeMap<u32, f64>) -> Vec<Bin> {
    let mut counts: BTreeMap<(u32, std::cmp::Reverse<u32>), usize> = BTreeMap::new();
    let mut totals: BTreeMap<u32, usize> = BTreeMap::new();
    for (cell, one) in all {
        let active = cell.active;
        *counts.entry((active, std::cmp::Reverse(bin_khz(one.before_khz)))).or_default() += 1;
        *totals.entry(active).or_default() += 1;
    }
    let bin = |((active, std::cmp::Reverse(clock_khz)), count): ((u32, _), usize)| Bin {
        active,
        clock_khz,
        share_frac: count as f64 / totals[&active] as f64,
        quiet: centres.get(&active).is_some_and(|khz| is_in_bin(f64::from(clock_khz), *khz)),
    };
    counts.into_iter().map(bin).collect()
}

/// One cell from its quiet repetitions.
fn row(cell: &Cell, all: &[&Repetition]) -> Row {
    let class = Kernel::named(&cell.kernel).map_or("unknown", |kernel| kernel.class.name());
    let mut row = Row {
        cell: cell.clone(),
        class: class.into(),
        quiet: all.len(),
        before_khz: None,
        steady_khz: None,
        after_khz: None,
        wide_per_cycle: None,
        throttle_ns: None,
        throttle_frac: None,
        halt_ns: None,
        full_ns: None,
        lower_cost_ns: None,
        relax_from_last_ns: None,
        relax_from_first_ns: None,
        counted_from: None,
        raise_halt_ns: None,
        break_even_ns: None,
        notes: Vec::new(),
        course: Vec::new(),
    };
    if all.len() < LEAST_QUIET {
        row.notes.push(format!("only {} quiet repetitions, {LEAST_QUIET} are needed", all.len()));
        return row;
    }
    row.before_khz = over(all, |one| Some(one.before_khz));
    row.steady_khz = over(all, |one| one.steady_khz);
    row.after_khz = over(all, |one| one.after_khz);
    row.wide_per_cycle = over(all, |one| one.wide_per_cycle);
    start(&mut row, all);
    relax(&mut row, all);
    row.break_even_ns = break_even_ns(&row);
    row
}

/// What the block's start shows.
fn start(row: &mut Row, all: &[&Repetition]) {
    row.throttle_ns = seen(row, "throttle", all, |one| one.throttle_ns);
    if row.throttle_ns.is_some() {
        row.throttle_frac = over(all, |one| one.throttle_frac);
    }
    row.full_ns = seen(row, "time to the full rate", all, |one| one.full_ns);
    row.halt_ns = seen(row, "halt at the start", all, |one| positive(one.halt_ns));
    if row.full_ns.is_some() || row.halt_ns.is_some() {
        row.lower_cost_ns = over(all, |one| Some(one.lower_cost_ns));
    }
}

/// The start of any block is a little slow, because its code is not in the caches. What scalar code
/// shows, and what costs no more than that, is no effect of wide code.
fn take_off_scalar_start(rows: &mut [Row]) {
    let is_scalar = |row: &Row| row.cell.kernel == "scalar";
    let of_scalar = rows.iter().filter(|row| is_scalar(row));
    let costs: Vec<(u32, Estimate)> =
        of_scalar.filter_map(|row| Some((row.cell.active, row.lower_cost_ns?))).collect();
    for row in rows {
        let scalar = costs.iter().find(|(active, _)| *active == row.cell.active);
        let is_more = |(_, scalar): &(u32, Estimate)| {
            !is_scalar(row) && row.lower_cost_ns.is_none_or(|cost| cost.low > scalar.high)
        };
        if scalar.is_none_or(is_more) {
            continue;
        }
        (row.throttle_ns, row.throttle_frac, row.halt_ns) = (None, None, None);
        (row.full_ns, row.lower_cost_ns) = (None, None);
        row.notes.push("slow start: not visible, no slower than that of scalar code".into());
    }
}

/// When the clock returns.
fn relax(row: &mut Row, all: &[&Repetition]) {
    let fell = row.before_khz.zip(row.after_khz).map(|(before, after)| before.value - after.value);
    if fell.is_none_or(|khz| khz < CLOCK_STEP_KHZ) {
        row.notes.push("relax time: not visible, scalar code after the block is not slower".into());
        return;
    }
    let slow_end = |one: &&&Repetition| {
        one.raised_ns.is_none()
            && one.end_khz.is_some_and(|khz| khz < one.before_khz - CLOCK_STEP_KHZ)
    };
    let late = all.iter().filter(slow_end).count();
    if late * 2 > all.len() {
        let what = "relax time: longer than the time watched after a block";
        row.notes.push(format!("{what} ({late} of {} repetitions)", all.len()));
        return;
    }
    row.relax_from_last_ns =
        seen(row, "relax time", all, |one| Some(one.raised_ns? - one.block_ns));
    if row.relax_from_last_ns.is_none() {
        return;
    }
    row.relax_from_first_ns = over(all, |one| one.raised_ns);
    row.counted_from = Some(counted_from(all));
    row.raise_halt_ns = seen(row, "halt when the clock rises", all, |one| {
        one.raised_ns.and(positive(one.raise_halt_ns))
    });
}

/// Which of the two times does not depend on the block's length.
fn counted_from(all: &[&Repetition]) -> CountedFrom {
    let Some(middle_ns) = median(&all.iter().map(|one| one.block_ns).collect::<Vec<_>>()) else {
        return CountedFrom::Unclear;
    };
    let raised = all.iter().filter_map(|one| Some((one.block_ns, one.raised_ns?)));
    let (long, short): (Vec<_>, Vec<_>) = raised.partition(|(block_ns, _)| *block_ns > middle_ns);
    let medians = |group: &[(f64, f64)]| {
        let block = median(&group.iter().map(|(block, _)| *block).collect::<Vec<_>>())?;
        let first = median(&group.iter().map(|(_, raised)| *raised).collect::<Vec<_>>())?;
        (group.len() >= 3).then_some((block, first))
    };
    let (Some(long), Some(short)) = (medians(&long), medians(&short)) else {
        return CountedFrom::Unclear;
    };
    // 0: the rise did not move with the block's end; 1: it moved as far.
    let moved = (long.1 - short.1) / (long.0 - short.0).max(1.0);
    match moved {
        _ if long.0 < short.0 * 1.2 => CountedFrom::Unclear,
        0.75..1.25 => CountedFrom::Last,
        -0.25..0.25 => CountedFrom::First,
        _ => CountedFrom::Unclear,
    }
}

/// DIM 4.3 with what was measured; see `dvfs::break_even_ns`. Nothing, unless the clock falls for
/// certain: the intervals lie apart.
fn break_even_ns(row: &Row) -> Option<f64> {
    let (before, steady) = (row.before_khz?, row.steady_khz?);
    let (high, low) = (before.value, steady.value);
    if high - low < CLOCK_STEP_KHZ || steady.high >= before.low {
        return None;
    }
    if row.lower_cost_ns.is_some_and(|cost| cost.low <= 0.0) {
        return None;
    }
    // The measured cost is given to the model as if all of it were halt: only the sum counts.
    let lower_ns = row.lower_cost_ns.map_or(0.0, |cost| cost.value);
    let raise_ns = row.raise_halt_ns.map_or(0.0, |cost| cost.value);
    let core = Core {
        clock_khz: vec![high as u32, low as u32],
        times: Times {
            throttle_ns: 0,
            halt_ns: ((lower_ns + raise_ns) / 2.0).max(0.0) as u64,
            relax_ns: 0,
        },
        throttle_frac: 1.0,
        smt_frac: 1.0,
        busy_w: vec![0.0; 2],
    };
    dvfs::break_even_ns(&core, 1, 0)
}

fn over(all: &[&Repetition], of: impl Fn(&Repetition) -> Option<f64>) -> Option<Estimate> {
    estimate(&all.iter().filter_map(|one| of(one)).collect::<Vec<_>>())
}

/// An effect, if more than half of the repetitions show it; else a note.
fn seen(
    row: &mut Row,
    what: &str,
    all: &[&Repetition],
    of: impl Fn(&Repetition) -> Option<f64>,
) -> Option<Estimate> {
    let found = over(all, of);
    let n = found.map_or(0, |found| found.n);
    if n * 2 > all.len() {
        return found;
    }
    row.notes.push(format!("{what}: not visible, in {n} of {} repetitions", all.len()));
    None
}

fn positive(ns: f64) -> Option<f64> {
    (ns > 0.0).then_some(ns)
}
