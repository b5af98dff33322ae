// SPDX-License-Identifier: MIT OR Apache-2.0
//! A simulation's report as an aligned table: one line per policy and load.

use super::{Load, SimReport, SimRun};
use crate::text::{Align, Table, duration, wrap};

/// What is shown where there is no value.
const NONE: &str = "-";

impl SimReport {
    /// The report as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}: ", self.scenario), &self.about, width);
        if let Some(why) = &self.partial {
            text += &wrap("partial: ", why, width);
        }
        let mut machines: Vec<&str> = Vec::new();
        for run in &self.runs {
            if machines.contains(&run.machine.id.as_str()) {
                continue;
            }
            machines.push(&run.machine.id);
            let seconds = run.simulated_ns as f64 / 1e9;
            let limit = run.machine.limit_w.map(|watts| format!(", at most {watts} W a package"));
            text += &format!(
                "\n{} ({} CPUs{}, {seconds:.3} s simulated, seed {})\n",
                run.machine.name,
                run.cpus.len(),
                limit.unwrap_or_default(),
                self.seed
            );
            text += &self.machine_table(&run.machine.id, width);
            if !run.machine.assumed.is_empty() {
                let assumed = run.machine.assumed.join("; ");
                text += &wrap("  assumed, because not published: ", &assumed, width);
            }
        }
        text
    }

    /// The runs on one machine.
    fn machine_table(&self, id: &str, width: usize) -> String {
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
        table.text(width.max(110))
    }

    fn row(&self, run: &SimRun, load: &Load, first: bool) -> Vec<String> {
        let only_first = |text: String| if first { text } else { String::new() };
        let gain = self.base_of(run).filter(|base| !std::ptr::eq(*base, run));
        let gain = gain.and_then(|base| run.gain_pct(base, &load.name));
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
