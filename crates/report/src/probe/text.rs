// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe's report as tables of 80 columns and more.

use super::raw::Witness;
use super::{CountedFrom, Estimate, ProbeReport, Row};
use crate::text::{Align, Table, duration, wrap};

/// Narrowest tables that keep their columns.
const MIN_WIDTH: usize = 100;

impl ProbeReport {
    /// The report as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap("machine: ", &self.machine, width);
        if let Some(why) = &self.partial {
            text += &wrap("PARTIAL: ", why, width);
        }
        text += &wrap("verdict: ", &self.verdict, width);
        text += &wrap("samples: ", &self.samples(), width);
        text += &wrap("meter:   ", &self.meter_text(), width);
        for witness in &self.meter.witnesses {
            text += &wrap("witness: ", &Self::witness_text(witness), width);
        }
        for (active, bins) in self.bins_by_active() {
            let label = format!("clock before, {active} active: ");
            text += &wrap(&label, &bins, width);
        }
        text += "\n";
        text += &self.clocks().text(width.max(MIN_WIDTH));
        text += "\n";
        text += &self.changes().text(width.max(MIN_WIDTH));
        text += "\nMedians; +- is half the 95 % interval; - is not visible, or unknown (--json says which).\n";
        for skipped in &self.skipped {
            text += &wrap("skipped: ", &format!("{}: {}", skipped.what, skipped.why), width);
        }
        for what in &self.unknown {
            text += &wrap("unknown: ", what, width);
        }
        text
    }

    fn samples(&self) -> String {
        let share = 100.0 * self.quiet as f64 / (self.repetitions as f64).max(1.0);
        format!(
            "{} repetitions, {} of them quiet ({share:.0} %), seed {}",
            self.repetitions, self.quiet, self.seed
        )
    }

    fn meter_text(&self) -> String {
        let (agree, not): (Vec<_>, Vec<_>) = self.meter.chains.iter().partition(|one| one.agrees);
        let names: Vec<&str> = agree.iter().map(|one| one.name.as_str()).collect();
        let out = not.iter().map(|one| {
            format!("; not {} ({})", one.name, one.why_not.as_deref().unwrap_or("unknown"))
        });
        let spread = agree.iter().map(|one| (one.ratio - 1.0).abs()).fold(0.0, f64::max);
        let chains = match names.is_empty() {
            true => "none needed".into(),
            false => format!("{} agree within {:.2} %", names.join(", "), 100.0 * spread),
        };
        format!(
            "counter at {:.1} MHz, {:.1} ns to read; chains: {chains}{}",
            self.meter.tsc_khz / 1e3,
            self.meter.overhead_ns,
            out.collect::<String>()
        )
    }

    fn witness_text(witness: &Witness) -> String {
        let name = &witness.name;
        match (witness.clock_khz, witness.chain_khz) {
            (Some(clock_khz), Some(chain_khz)) => format!(
                "{name}: {:.0} MHz where the chains show {:.0}, {:+.2} %",
                clock_khz / 1e3,
                chain_khz / 1e3,
                100.0 * (chain_khz / clock_khz - 1.0)
            ),
            _ => format!("{name}: {}", witness.why_not.as_deref().unwrap_or("unknown")),
        }
    }

    fn bins_by_active(&self) -> Vec<(u32, String)> {
        let mut all: Vec<(u32, String)> = Vec::new();
        for bin in self.bins.iter().filter(|bin| bin.share_frac >= 0.01) {
            let mark = if bin.quiet { " (quiet)" } else { "" };
            let mhz = bin.clock_khz / 1_000;
            let one = format!("{mhz} MHz {:.0} %{mark}", 100.0 * bin.share_frac);
            match all.last_mut() {
                Some((active, text)) if *active == bin.active => *text += &format!(", {one}"),
                _ => all.push((bin.active, one)),
            }
        }
        all
    }

    fn clocks(&self) -> Table {
        let mut table = Table::new(&[
            ("KERNEL", Align::Left),
            ("ONE IN", Align::Right),
            ("ACTIVE", Align::Right),
            ("N", Align::Right),
            ("BEFORE", Align::Right),
            ("SETTLED MHz", Align::Right),
            ("AFTER", Align::Right),
            ("PER CYCLE", Align::Right),
            ("BREAK-EVEN", Align::Right),
            ("", Align::Left),
        ]);
        for row in &self.rows {
            let mhz = |found: &Option<Estimate>| cell(found, |e| format!("{:.0}", e.value / 1e3));
            let mut cells = row.cell.cells();
            cells.extend([
                row.quiet.to_string(),
                mhz(&row.before_khz),
                cell(&row.steady_khz, |e| spread(e, 1e3, 0)),
                mhz(&row.after_khz),
                cell(&row.wide_per_cycle, |e| format!("{:.2}", e.value)),
                row.break_even_ns.map_or("-".into(), |ns| duration(ns as u64)),
                String::new(),
            ]);
            table.row(cells);
        }
        table
    }

    fn changes(&self) -> Table {
        let mut table = Table::new(&[
            ("KERNEL", Align::Left),
            ("ONE IN", Align::Right),
            ("ACTIVE", Align::Right),
            ("THROTTLE us", Align::Right),
            ("AT", Align::Right),
            ("HALT us", Align::Right),
            ("FULL RATE us", Align::Right),
            ("COST us", Align::Right),
            ("RELAX us", Align::Right),
            ("SINCE", Align::Left),
            ("HALT us", Align::Right),
            ("", Align::Left),
        ]);
        for row in self.rows.iter().filter(|row| row.shows_change()) {
            let us = |found: &Option<Estimate>| cell(found, |e| spread(e, 1e3, 1));
            let mut cells = row.cell.cells();
            let (relax, since) = row.relax();
            cells.extend([
                us(&row.throttle_ns),
                cell(&row.throttle_frac, |e| format!("{:.2}", e.value)),
                us(&row.halt_ns),
                us(&row.full_ns),
                us(&row.lower_cost_ns),
                us(&relax),
                since.into(),
                us(&row.raise_halt_ns),
                String::new(),
            ]);
            table.row(cells);
        }
        table
    }
}

impl super::raw::Cell {
    fn cells(&self) -> Vec<String> {
        vec![self.kernel.clone(), self.one_in.to_string(), self.active.to_string()]
    }
}

impl Row {
    /// Whether its start or end shows anything.
    fn shows_change(&self) -> bool {
        [self.throttle_ns, self.halt_ns, self.full_ns, self.relax_from_last_ns]
            .iter()
            .any(Option::is_some)
    }

    /// The relax time as the hardware counts it, and since when.
    pub fn relax(&self) -> (Option<Estimate>, &'static str) {
        match self.counted_from {
            Some(CountedFrom::First) => (self.relax_from_first_ns, "first"),
            Some(CountedFrom::Last) => (self.relax_from_last_ns, "last"),
            Some(CountedFrom::Unclear) => (self.relax_from_last_ns, "last?"),
            None => (None, ""),
        }
    }
}

fn cell(found: &Option<Estimate>, text: impl Fn(&Estimate) -> String) -> String {
    found.as_ref().map_or("-".into(), text)
}

fn spread(found: &Estimate, unit: f64, decimals: usize) -> String {
    let half = (found.high - found.low) / 2.0 / unit;
    format!("{:.decimals$} +-{half:.decimals$}", found.value / unit)
}
