// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks by section size and strategy: what `turbolane bench locks` says, measured here or
//! modelled.

mod html;

use serde::{Deserialize, Serialize};

use crate::SCHEMA;
use crate::csv;
use crate::text::{Align, Table};

/// The whole document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LockBench {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// One per machine and number of threads.
    pub sweeps: Vec<Sweep>,
}

/// All sizes and strategies on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sweep {
    /// Id of the model; `null`: this machine, measured.
    pub model: Option<String>,
    /// Threads that want the lock all the time.
    pub threads: u32,
    /// How P-states are set, or why not; `null` in a model.
    pub pstates: Option<String>,
    /// By size, then strategy.
    pub points: Vec<Point>,
    /// From which size each strategy's effective clock is above that of spinning; there may be
    /// larger ones where it is not.
    pub break_evens: Vec<BreakEven>,
}

/// One size under one strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Point {
    /// Length of the section, core cycles.
    pub section_cycles: u64,
    /// How waiters wait and what owners do.
    pub strategy: String,
    /// Sections that were measured; `null` in a model.
    pub sections: Option<u64>,
    /// From one section to the next, all threads together; `null` if the machine cannot do it.
    pub time_ns: Option<f64>,
    /// CPU time of all threads per section.
    pub cpu_time_ns: Option<f64>,
    /// Cycles of the section over the time that it and its lock took. In a model that is TURBO's
    /// f_CS, without the wait; measured it is the section's cycles over `time_ns`.
    pub effective_khz: Option<u64>,
    /// Energy of the package per section, nJ; `null`: not readable here, or the model does not know
    /// its power.
    pub energy_nj: Option<f64>,
}

/// Where a strategy begins to pay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BreakEven {
    /// Which.
    pub strategy: String,
    /// Size, cycles; `null`: nowhere among those that were looked at, or the machine cannot do it.
    pub section_cycles: Option<f64>,
}

impl LockBench {
    /// A document of this schema.
    pub fn new(sweeps: Vec<Sweep>) -> Self {
        LockBench { schema: SCHEMA, sweeps }
    }

    /// As aligned tables.
    pub fn text(&self, width: usize) -> String {
        self.sweeps.iter().map(|sweep| sweep.text(width)).collect::<Vec<_>>().join("\n")
    }

    /// As tables of Markdown.
    pub fn markdown(&self) -> String {
        self.sweeps.iter().map(Sweep::markdown).collect::<Vec<_>>().join("\n")
    }

    /// As CSV: one line per size and strategy.
    pub fn csv(&self) -> String {
        let rows = self.sweeps.iter().flat_map(|sweep| {
            let (model, threads) = (sweep.model.as_deref(), sweep.threads);
            sweep.points.iter().map(move |point| CsvRow { model, threads, point })
        });
        csv::table(&rows.collect::<Vec<_>>())
    }
}

/// A line of CSV: a size and strategy.
#[derive(Serialize)]
struct CsvRow<'a> {
    model: Option<&'a str>,
    threads: u32,
    #[serde(flatten)]
    point: &'a Point,
}

impl Sweep {
    fn text(&self, width: usize) -> String {
        let mut text = self.what();
        if let Some(pstates) = &self.pstates {
            text += &format!("  P-states: {pstates}\n");
        }
        text += &self.table().text(width);
        self.break_evens.iter().for_each(|even| text += &format!("  {}\n", self.even_text(even)));
        text
    }

    fn markdown(&self) -> String {
        let mut text = self.what();
        if let Some(pstates) = &self.pstates {
            text += &format!("\nP-states: {pstates}\n");
        }
        text += &format!("\n{}\n", self.table().markdown());
        self.break_evens.iter().for_each(|even| text += &format!("- {}\n", self.even_text(even)));
        text
    }

    fn what(&self) -> String {
        let what = match &self.model {
            Some(id) => format!("model of {id}"),
            None => "this machine, measured".into(),
        };
        format!("{what}, {} threads\n", self.threads)
    }

    fn even_text(&self, even: &BreakEven) -> String {
        let from = even.section_cycles.map_or("-".into(), cycles);
        let but = match self.exceptions(even).as_slice() {
            [] => String::new(),
            sizes => format!(", but not at {}", sizes.join(", ")),
        };
        format!("{} beats spin from {from}{but}", even.strategy)
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&[
            ("  SECTION", Align::Right),
            ("STRATEGY", Align::Left),
            ("TIME", Align::Right),
            ("CPU TIME", Align::Right),
            ("EFFECTIVE", Align::Right),
            ("ENERGY", Align::Right),
        ]);
        let mut last = 0;
        for point in &self.points {
            let size = if point.section_cycles == last {
                String::new()
            } else {
                cycles(point.section_cycles as f64)
            };
            last = point.section_cycles;
            let clock = point.effective_khz.map(|khz| format!("{:.0} MHz", khz as f64 / 1e3));
            table.row(vec![
                format!("  {size}"),
                point.strategy.clone(),
                time(point.time_ns),
                time(point.cpu_time_ns),
                clock.unwrap_or("-".into()),
                energy(point.energy_nj),
            ]);
        }
        table
    }

    /// Sizes above a break-even at which the strategy is no better than spinning.
    fn exceptions(&self, even: &BreakEven) -> Vec<String> {
        let of = |strategy: &str, size: u64| {
            let is = |p: &&Point| p.strategy == strategy && p.section_cycles == size;
            self.points.iter().find(is).and_then(|point| point.effective_khz)
        };
        let is_exception = |point: &&Point| {
            let size = point.section_cycles;
            point.strategy == "spin"
                && even.section_cycles.is_some_and(|from| size as f64 > from)
                && of(&even.strategy, size) <= point.effective_khz
                && of(&even.strategy, size).is_some()
        };
        let found = self.points.iter().filter(is_exception);
        found.map(|point| cycles(point.section_cycles as f64)).collect()
    }
}

fn cycles(value: f64) -> String {
    match value {
        1e6.. => format!("{:.2} M cycles", value / 1e6),
        1e3.. => format!("{:.0} k cycles", value / 1e3),
        _ => format!("{value:.0} cycles"),
    }
}

fn time(ns: Option<f64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns @ 1e6..) => format!("{:.2} ms", ns / 1e6),
        Some(ns @ 1e3..) => format!("{:.2} us", ns / 1e3),
        Some(ns) => format!("{ns:.0} ns"),
    }
}

fn energy(nj: Option<f64>) -> String {
    match nj {
        None => "-".into(),
        Some(nj @ 1e6..) => format!("{:.2} mJ", nj / 1e6),
        Some(nj @ 1e3..) => format!("{:.2} uJ", nj / 1e3),
        Some(nj) => format!("{nj:.0} nJ"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_a_dash_and_null() {
        let point = Point {
            section_cycles: 1_000,
            strategy: "owner".into(),
            sections: None,
            time_ns: None,
            cpu_time_ns: Some(2_500.0),
            effective_khz: None,
            energy_nj: None,
        };
        let even = BreakEven { strategy: "owner".into(), section_cycles: None };
        let sweep = Sweep {
            model: None,
            threads: 2,
            pstates: Some("none: as requested".into()),
            points: vec![point],
            break_evens: vec![even],
        };
        let bench = LockBench::new(vec![sweep]);
        let text = bench.text(100);
        assert!(text.contains("1 k cycles") && text.contains("2.50 us"), "{text}");
        assert!(text.contains("P-states: none"), "{text}");
        assert!(text.contains("owner beats spin from -"), "{text}");
        let point = |size, strategy: &str, khz| Point {
            section_cycles: size,
            strategy: strategy.into(),
            effective_khz: Some(khz),
            ..bench.sweeps[0].points[0].clone()
        };
        let points =
            [(10, 5), (20, 8), (30, 7)].map(|(k, khz)| point(k * 1_000, "owner", khz)).into_iter();
        let spins = [10, 20, 30].map(|k| point(k * 1_000, "spin", 7));
        let even = BreakEven { strategy: "owner".into(), section_cycles: Some(15_000.0) };
        let points = points.chain(spins).collect();
        let sweep = Sweep { points, break_evens: vec![even], ..bench.sweeps[0].clone() };
        let text = LockBench::new(vec![sweep]).text(100);
        assert!(
            text.contains("owner beats spin from 15 k cycles, but not at 30 k cycles"),
            "{text}"
        );
        assert!(crate::json_line(&bench).contains("\"energy_nj\":null"));
    }
}
