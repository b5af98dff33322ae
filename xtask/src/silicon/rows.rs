// SPDX-License-Identifier: MIT OR Apache-2.0
//! An experiment as rows: each a point, what it means, how it is simulated, and which other rows it
//! is compared with.
//!
//! There are two comparisons of rows. What a load loses by wide code, and wins back, is relative to
//! the row *without* wide code. What Turbolane does to a load is relative to *nothing*: the same
//! code under the kernel's scheduler. A load that is itself the wide code has other code without
//! AVX-512, so that for it the second comparison alone means something.

use anyhow::Result;

use crate::silicon::point::{Bench, Kept, Measured, Point};
use crate::silicon::predicted::{self, Predicted, Simulated};

/// A load, whose throughput is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    /// As in `point.json` and as the scenario's group.
    pub(crate) name: &'static str,
    /// What it gets done.
    pub(crate) unit: &'static str,
    /// Whether it is the wide code itself: see above.
    pub(crate) is_wide: bool,
}

/// An experiment that is not measured yet.
pub(crate) struct Experiment {
    /// As in `./x silicon EXPERIMENT`; its points are kept below this name.
    pub(crate) name: &'static str,
    /// CPUs of the guest.
    pub(crate) cpus: u32,
    /// The first is the one that loses.
    pub(crate) loads: &'static [Load],
    pub(crate) rows: Vec<Planned>,
}

/// A row that is not measured yet.
pub(crate) struct Planned {
    pub(crate) point: Point,
    pub(crate) meaning: String,
    pub(crate) simulated: Simulated,
    /// The row without wide code.
    pub(crate) none: String,
    /// For rows under Turbolane: the same code without it.
    pub(crate) nothing: Option<String>,
}

/// A measured row.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) meaning: String,
    pub(crate) kept: Kept,
    none: String,
    nothing: Option<String>,
    predicted: Predicted,
}

/// A measured experiment.
pub(crate) struct Rows {
    pub(crate) cpus: u32,
    pub(crate) loads: &'static [Load],
    pub(crate) rows: Vec<Row>,
}

/// The command of a point.
pub(crate) fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Measures the rows, as many guests at a time as there are CPUs; what was kept is not measured
/// again.
pub(crate) fn measure(bench: &Bench<'_>, experiment: Experiment, again: bool) -> Result<Rows> {
    let kept = super::run_points(bench, experiment.rows.iter().map(|row| &row.point), again)?;
    let turbolane = bench.lab.binaries.program("turbolane")?;
    let row = |(row, kept): (Planned, Kept)| -> Result<Row> {
        let predicted = predicted::simulate(turbolane, &row.simulated)?;
        let Planned { point, meaning, none, nothing, .. } = row;
        Ok(Row { name: point.name, meaning, kept, none, nothing, predicted })
    };
    let rows = experiment.rows.into_iter().zip(kept).map(row).collect::<Result<_>>()?;
    Ok(Rows { cpus: experiment.cpus, loads: experiment.loads, rows })
}

impl Row {
    /// What was measured.
    pub(crate) fn measured(&self) -> &Measured {
        &self.kept.measured
    }

    /// What a load got done per second.
    pub(crate) fn per_s(&self, load: &Load) -> f64 {
        self.measured().per_s(load.name)
    }

    /// Whether it is under Turbolane.
    pub(crate) fn has_lane(&self) -> bool {
        self.nothing.is_some()
    }
}

impl Rows {
    /// The row of this name.
    pub(crate) fn find(&self, name: &str) -> &Row {
        self.rows.iter().find(|row| row.name == name).expect("every row of the list was measured")
    }

    /// Rows under Turbolane.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.has_lane())
    }

    /// The row that a change of a load is relative to, if that means something.
    fn reference(&self, row: &Row, load: &Load) -> Option<&Row> {
        if load.is_wide {
            return row.nothing.as_deref().map(|name| self.find(name));
        }
        (row.name != row.none).then(|| self.find(&row.none))
    }

    /// Change of a load's throughput against its reference, %.
    pub(crate) fn change_pct(&self, row: &Row, load: &Load) -> Option<f64> {
        let reference = self.reference(row, load)?;
        Some((row.per_s(load) / reference.per_s(load) - 1.0) * 100.0)
    }

    /// The same of what it got done for its CPU time: by that, clocks alone count, and not who had
    /// how much of the CPUs. `None` if CPU time is not counted.
    pub(crate) fn change_per_cpu_s_pct(&self, row: &Row, load: &Load) -> Option<f64> {
        let reference = self.reference(row, load)?;
        let per_cpu_s = |row: &Row| row.measured().per_cpu_s(load.name);
        Some((per_cpu_s(row)? / per_cpu_s(reference)? - 1.0) * 100.0)
    }

    /// The same as the simulator has it.
    pub(crate) fn simulated_pct(&self, row: &Row, load: &Load) -> Option<f64> {
        let reference = self.reference(row, load)?;
        let per_s = |row: &Row| row.predicted.get(load.name).copied();
        Some((per_s(row)? / per_s(reference)? - 1.0) * 100.0)
    }

    /// How far the simulator is off, percentage points.
    pub(crate) fn error_points(&self, row: &Row, load: &Load) -> Option<f64> {
        Some(self.simulated_pct(row, load)? - self.change_pct(row, load)?)
    }

    /// Change of a load's throughput against the same code without Turbolane, %.
    pub(crate) fn against_nothing_pct(&self, row: &Row, load: &Load) -> Option<f64> {
        let nothing = self.find(row.nothing.as_deref()?);
        Some((row.per_s(load) / nothing.per_s(load) - 1.0) * 100.0)
    }

    /// How much of the loss by wide code a row removes, %.
    pub(crate) fn loss_removed_pct(&self, row: &Row, load: &Load) -> Option<f64> {
        let (none, nothing) = (self.find(&row.none), self.find(row.nothing.as_deref()?));
        let lost = none.per_s(load) - nothing.per_s(load);
        (!load.is_wide).then(|| (row.per_s(load) - nothing.per_s(load)) / lost * 100.0)
    }

    /// The rows for people: a line for each load of each row.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<14} {:<8} {:>16} {:>9} {:>9} {:>9} {:>9} {:>8} {:>20} {:>10} {:>6}\n",
            "ROW",
            "LOAD",
            "PER SECOND",
            "CHANGE",
            "BY CPU",
            "SIMULATED",
            "NOTHING",
            "REMOVED",
            "LEVEL 0 / 1 / 2, %",
            "INSNS",
            "HOST"
        );
        for row in &self.rows {
            for (index, load) in self.loads.iter().enumerate() {
                text += &self.line(row, load, index == 0);
            }
        }
        text += "\nCHANGE is against the row without wide code; for a load that is the wide code itself, against the same \
            without\nTurbolane. BY CPU is the same of the work for its CPU time. SIMULATED is the change that turbolane sim predicts on a model of this machine. NOTHING is the \
            change\nagainst the same code without Turbolane. REMOVED is the share of the loss by wide code that is won back. \
            Levels\nand INSNS are those of all CPUs but the first, INSNS per unit of the first load.\n\n";
        for Row { name, meaning, .. } in &self.rows {
            text += &format!("{name:<14} {meaning}\n");
        }
        text
    }

    fn line(&self, row: &Row, load: &Load, is_first: bool) -> String {
        let percent = |value: Option<f64>| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:+.1} %"))
        };
        let measured = row.measured();
        let levels: Vec<String> =
            (0..3).map(|level| format!("{:.1}", measured.at_level_pct(level))).collect();
        let (levels, insns, host) = match is_first {
            true => (
                levels.join(" / "),
                format!("{:.0} k", measured.insns_per(load.name) / 1000.0),
                format!("{:.0} s", measured.host_s),
            ),
            false => Default::default(),
        };
        let line = format!(
            "{:<14} {:<8} {:>16} {:>9} {:>9} {:>9} {:>9} {:>8} {levels:>20} {insns:>10} {host:>6}",
            if is_first { &row.name } else { "" },
            load.name,
            format!("{:.1} {}", row.per_s(load), load.unit),
            percent(self.change_pct(row, load)),
            percent(self.change_per_cpu_s_pct(row, load)),
            percent(self.simulated_pct(row, load)),
            percent(self.against_nothing_pct(row, load)),
            percent(self.loss_removed_pct(row, load)),
        );
        line.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::silicon::point::Done;

    pub(crate) const LOADS: [Load; 2] = [
        Load { name: "gzip", unit: "MB", is_wide: false },
        Load { name: "openssl", unit: "MB", is_wide: true },
    ];

    /// A row of a load that loses and of one that is wide, as measured and as simulated.
    pub(crate) fn row(name: &str, done: [f64; 2], predicted: [f64; 2]) -> Row {
        let loads = LOADS.iter().zip(done);
        let done = loads
            .map(|(load, done)| Done { load: load.name.to_owned(), done, cpu_s: Some(2.0) })
            .collect();
        let predicted = LOADS.iter().zip(predicted);
        let is_lane = !["none", "wide"].contains(&name);
        Row {
            name: name.to_owned(),
            meaning: String::new(),
            kept: Kept {
                measured: Measured { done, ns: 1_000_000_000, cpus: Vec::new(), host_s: 1.0 },
                log: "".into(),
            },
            none: "none".to_owned(),
            nothing: is_lane.then(|| "wide".to_owned()),
            predicted: predicted.map(|(load, per_s)| (load.name.to_owned(), per_s)).collect(),
        }
    }

    pub(crate) fn rows() -> Rows {
        let rows = vec![
            row("none", [1000.0, 50.0], [2000.0, 9.0]),
            row("wide", [800.0, 400.0], [1600.0, 800.0]),
            row("marks", [950.0, 300.0], [1800.0, 840.0]),
            row("marks-auto", [850.0, 400.0], [1700.0, 800.0]),
        ];
        Rows { cpus: 5, loads: &LOADS, rows }
    }

    fn near(value: Option<f64>, wanted: f64) -> bool {
        value.is_some_and(|value| (value - wanted).abs() < 1e-9)
    }

    #[test]
    fn a_load_that_loses_is_compared_with_no_wide_code() {
        let rows = rows();
        let (wide, marks, gzip) = (&rows.rows[1], &rows.rows[2], &LOADS[0]);
        assert!(near(rows.change_pct(wide, gzip), -20.0));
        assert!(near(rows.change_pct(marks, gzip), -5.0));
        assert!(near(rows.simulated_pct(marks, gzip), -10.0));
        assert!(near(rows.change_per_cpu_s_pct(marks, gzip), -5.0));
        assert!(near(rows.error_points(marks, gzip), -5.0));
        assert!(near(rows.loss_removed_pct(marks, gzip), 75.0));
        assert!(near(rows.against_nothing_pct(marks, gzip), 18.75));
        assert_eq!(rows.change_pct(&rows.rows[0], gzip), None);
        assert_eq!(rows.loss_removed_pct(wide, gzip), None);
    }

    #[test]
    fn wide_code_is_compared_with_itself() {
        let rows = rows();
        let (wide, marks, openssl) = (&rows.rows[1], &rows.rows[2], &LOADS[1]);
        assert!(near(rows.change_pct(marks, openssl), -25.0));
        assert!(near(rows.against_nothing_pct(marks, openssl), -25.0));
        assert!(near(rows.error_points(marks, openssl), 30.0));
        assert_eq!(rows.change_pct(wide, openssl), None);
        assert_eq!(rows.loss_removed_pct(marks, openssl), None);
    }

    #[test]
    fn a_table_has_a_line_for_each_load() {
        let table = rows().table();
        assert_eq!(table.lines().filter(|line| line.contains("openssl")).count(), 4);
        assert!(table.contains("+18.8 %") && table.contains("-25.0 %"));
    }
}
