// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's report as an aligned table: one line per policy and load.

use serde::Serialize;

use super::{Load, SimReport, SimRun, Total};
use crate::csv;
use crate::text::{Align, Table, duration, wrap};

/// A line of CSV: a load in a run.
#[derive(Serialize)]
struct CsvRow<'a> {
    scenario: &'a str,
    seed: u64,
    partial: Option<&'a str>,
    machine: &'a str,
    limit_w: Option<f64>,
    policy: &'a str,
    simulated_ns: u64,
    change_pct: Option<f64>,
    load: &'a Load,
    total: &'a Total,
}

/// What is shown where there is no value.
const NONE: &str = "-";

impl SimReport {
    /// The report as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}: ", self.scenario), &self.about, width);
        if let Some(why) = &self.partial {
            text += &wrap("partial: ", why, width);
        }
        for run in self.first_runs() {
            text += &format!("\n{}\n", self.machine(run));
            text += &self.machine_table(&run.machine.id).text(width.max(110));
            if !run.machine.assumed.is_empty() {
                let assumed = run.machine.assumed.join("; ");
                text += &wrap("  assumed, because not published: ", &assumed, width);
            }
        }
        text
    }

    /// The same as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("**{}**: {}\n", self.scenario, self.about);
        if let Some(why) = &self.partial {
            text += &format!("\npartial: {why}\n");
        }
        for run in self.first_runs() {
            text += &format!("\n{}\n\n", self.machine(run));
            text += &self.machine_table(&run.machine.id).markdown();
            if !run.machine.assumed.is_empty() {
                let assumed = run.machine.assumed.join("; ");
                text += &format!("\nassumed, because not published: {assumed}\n");
            }
        }
        text
    }

    /// As CSV: one line per run and load.
    pub fn csv(reports: &[SimReport]) -> String {
        let rows: Vec<CsvRow<'_>> = reports.iter().flat_map(SimReport::csv_rows).collect();
        csv::table(&rows)
    }

    fn csv_rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        let loads = self.runs.iter().flat_map(|run| run.loads.iter().map(move |load| (run, load)));
        loads.map(|(run, load)| CsvRow {
            scenario: &self.scenario,
            seed: self.seed,
            partial: self.partial.as_deref(),
            machine: &run.machine.id,
            limit_w: run.machine.limit_w,
            policy: &run.policy,
            simulated_ns: run.simulated_ns,
            change_pct: self.change_pct(run, load),
            load,
            total: &run.total,
        })
    }

    /// The first run of each machine.
    fn first_runs(&self) -> impl Iterator<Item = &SimRun> {
        self.runs
            .iter()
            .filter(|run| self.base_of(run).is_some_and(|base| std::ptr::eq(base, *run)))
    }

    /// A machine and what its runs have in common.
    fn machine(&self, run: &SimRun) -> String {
        let seconds = run.simulated_ns as f64 / 1e9;
        let limit = run.machine.limit_w.map(|watts| format!(", at most {watts} W a package"));
        format!(
            "{} ({} CPUs{}, {seconds:.3} s simulated, seed {})",
            run.machine.name,
            run.cpus.len(),
            limit.unwrap_or_default(),
            self.seed
        )
    }

    /// Against the run that it is compared with.
    fn change_pct(&self, run: &SimRun, load: &Load) -> Option<f64> {
        let base = self.base_of(run).filter(|base| !std::ptr::eq(*base, run));
        base.and_then(|base| run.gain_pct(base, &load.name))
    }

    /// The runs on one machine.
    fn machine_table(&self, id: &str) -> Table {
        let mut table = Table::new(&[
            ("  POLICY", Align::Left),
            ("LOAD", Align::Left),
            ("WORK/s", Align::Right),
            ("CHANGE", Align::Right),
            ("CPU/WORK", Align::Right),
            ("P50", Align::Right),
            ("P99", Align::Right),
            ("CLOCK", Align::Right),
            ("LEVEL>0", Align::Right),
            ("MIGR/s", Align::Right),
            ("ENERGY", Align::Right),
            ("", Align::Left),
        ]);
        for run in self.runs.iter().filter(|run| run.machine.id == id) {
            for (at, load) in run.loads.iter().enumerate() {
                table.row(self.row(run, load, at == 0));
            }
        }
        table
    }

    fn row(&self, run: &SimRun, load: &Load, first: bool) -> Vec<String> {
        let only_first = |text: String| if first { text } else { String::new() };
        let gain = self.change_pct(run, load);
        let latency = |pick: fn(&super::Latency) -> u64| {
            load.latency.as_ref().map_or(NONE.into(), |latency| duration(pick(latency)))
        };
        let total = &run.total;
        vec![
            only_first(format!("  {}", run.policy)),
            load.name.clone(),
            load.work_per_s.map_or(NONE.into(), |work| format!("{work:.1}")),
            gain.map_or(NONE.into(), |gain| format!("{gain:+.1}%")),
            load.cpu_per_work_ns.map_or(NONE.into(), |ns| duration(ns as u64)),
            latency(|latency| latency.p50_ns),
            latency(|latency| latency.p99_ns),
            load.mean_khz.map_or(NONE.into(), |khz| format!("{:.0}MHz", khz / 1e3)),
            load.mean_khz.map_or(NONE.into(), |_| format!("{:.1}%", 100.0 * load.reduced_frac)),
            only_first(format!("{:.0}", total.migrations_per_s)),
            only_first(total.energy_j.map_or(NONE.into(), |joule| format!("{joule:.0}J"))),
            String::new(),
        ]
    }
}
