// SPDX-License-Identifier: MIT OR Apache-2.0
//! Break-even times and replays as aligned tables.

use super::{BreakEven, Replay, ReplayRun, Step};
use crate::text::{Align, Table, duration, wrap};

/// Narrowest table that keeps its columns.
const MIN_WIDTH: usize = 100;

impl BreakEven {
    /// The break-even times as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let levels = self.levels.iter().enumerate();
        let levels: Vec<String> = levels.map(|(level, name)| format!("{level} {name}")).collect();
        let mut text = wrap(&format!("{}: ", self.name), &levels.join(", "), width);
        text += &wrap(
            "the hardware's timeout: ",
            &format!("{} for every step", duration(self.relax_time_ns)),
            width,
        );
        let mut table = Table::new(&[
            ("  ACTIVE CORES", Align::Right),
            ("LEVELS", Align::Left),
            ("LOW", Align::Right),
            ("HIGH", Align::Right),
            ("COST DOWN", Align::Right),
            ("COST UP", Align::Right),
            ("BREAK-EVEN", Align::Right),
            ("", Align::Left),
        ]);
        self.steps.iter().for_each(|step| table.row(step.cells()));
        text += &table.text(width.max(MIN_WIDTH));
        text + &assumed(&self.assumed, width)
    }
}

impl Step {
    fn cells(&self) -> Vec<String> {
        let cores = if self.active_from == self.active_to {
            self.active_from.to_string()
        } else {
            format!("{}-{}", self.active_from, self.active_to)
        };
        let us = |ns: f64| format!("{:.1} us", ns / 1e3);
        vec![
            cores,
            format!("{}-{}", self.low_level, self.high_level),
            mhz(self.low_khz),
            mhz(self.high_khz),
            us(self.lower_cost_ns),
            us(self.raise_cost_ns),
            self.break_even_ns.map_or("never".into(), us),
            String::new(),
        ]
    }
}

impl Replay {
    /// The replay as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text = wrap(&format!("{}: ", self.timelines.join(" beside ")), &self.about, width);
        let clocks: Vec<String> = self.clock_khz.iter().map(|&khz| mhz(khz)).collect();
        text += &format!(
            "\n{} ({} cores active: {}; {}, seed {})\n",
            self.machine_name,
            self.active_cores,
            clocks.join(", "),
            if self.recorded { "recorded" } else { "modelled, not recorded" },
            self.seed
        );
        for demand in self.demand.iter().flatten() {
            text += &wrap("wide work: ", &demand.text(), width);
        }
        let mut table = Table::new(&[
            ("  POLICY", Align::Left),
            ("TIME", Align::Right),
            ("WORK/s", Align::Right),
            ("CHANGE", Align::Right),
            ("LOST", Align::Right),
            ("LEVEL>0", Align::Right),
            ("CHANGES/s", Align::Right),
            ("ENERGY", Align::Right),
            ("WHAT IT DOES", Align::Left),
        ]);
        for (index, run) in self.runs.iter().enumerate() {
            table.row(run.cells(index == 0));
        }
        text += &table.text(width.max(MIN_WIDTH));
        text + &assumed(&self.assumed, width)
    }
}

impl ReplayRun {
    fn cells(&self, is_base: bool) -> Vec<String> {
        let seconds = self.time_ns as f64 / 1e9;
        let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let above_ns: u64 = self.level_ns.iter().skip(1).sum();
        let above = if self.time_ns == 0 { 0.0 } else { above_ns as f64 / self.time_ns as f64 };
        vec![
            format!("  {}", self.policy),
            duration(self.time_ns),
            self.work_per_s.map_or("-".into(), |work| format!("{work:.1}")),
            if is_base { "-".into() } else { format!("{:+.2} %", self.gain_pct) },
            format!("{:.2} %", self.lost_pct),
            format!("{:.1} %", 100.0 * above),
            format!("{:.0}", per_s(self.raises + self.lowers)),
            energy(self.energy_j),
            self.policy_about.clone(),
        ]
    }
}

fn energy(joule: f64) -> String {
    if joule < 1.0 { format!("{:.1} mJ", 1e3 * joule) } else { format!("{joule:.1} J") }
}

fn mhz(khz: u32) -> String {
    format!("{:.0} MHz", f64::from(khz) / 1e3)
}

fn assumed(assumed: &[String], width: usize) -> String {
    match assumed {
        [] => String::new(),
        _ => wrap("  assumed, because not published: ", &assumed.join("; "), width),
    }
}
