// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is a recorded service predicted? nginx is recorded on the dim-silicon machine under the kernel's
//! scheduler; from that alone the simulator says what wide code costs it and what each means of
//! Turbolane wins, there and on another CPU with more cores. Then both are measured.
//!
//! The recording without wide code is what the loss is relative to; that with it is what every row
//! of the lane is predicted from. Nothing is calibrated by what is predicted.
//!
//! Boots differ by some percent of the throughput, in how many instructions a request has. So each
//! row is measured in several boots, with some more requests each time: equal ones would be equal.

use std::path::Path;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::repo;
use crate::results::BenchResult;
use crate::silicon::nginx::{self, CALLS, OTHER, SMALL, Server};
use crate::silicon::plan::{NONE, WIDE};
use crate::silicon::point::{Bench, Kept};
use crate::silicon::results::mean_error;
use crate::silicon::rows::Planned;
use crate::silicon::{machine, predicted, run_points};

/// The CPU that is recorded, and the other one.
const RECORDED_ON: &str = "xeon-gold-6130";
const OTHER_CPU: &str = "xeon-gold-6154";
/// The load, and the group of the scenarios that are made.
const GROUP: &str = "nginx";
/// Boots of each row, and how many requests each has more than the one before, for each CPU.
const BOOTS: u32 = 3;
const MORE_REQUESTS: u32 = 5;

/// A row: what was measured and predicted, %: for the row without the lane the loss by wide code,
/// for the others the gain against that row.
struct Line {
    name: String,
    /// Of the mean of all boots.
    measured_pct: f64,
    /// By boot.
    of_boots_pct: Vec<f64>,
    predicted_pct: f64,
}

impl Line {
    fn error_points(&self) -> f64 {
        self.predicted_pct - self.measured_pct
    }
}

/// Records, measures, predicts.
pub(crate) fn measure(lab: &Lab) -> Result<Vec<BenchResult>> {
    let home = bench(lab, &SMALL, RECORDED_ON, SMALL.name())?;
    let points = [SMALL.recorded(NONE), SMALL.recorded(WIDE)];
    let kept = run_points(&home, points.iter(), false)?;
    let here = lines(lab, &kept, &booted(lab, &SMALL, RECORDED_ON)?, &SMALL)?;
    let there = lines(lab, &kept, &booted(lab, &OTHER, OTHER_CPU)?, &OTHER)?;
    print(RECORDED_ON, &here);
    print(OTHER_CPU, &there);
    Ok(vec![
        figure("predict.recording_error_points", &here),
        figure("predict.cross_machine_error_points", &there),
    ])
}

/// Where a server's points are measured, and kept below this name.
fn bench<'a>(lab: &'a Lab, server: &Server, cpu: &str, name: &'a str) -> Result<Bench<'a>> {
    let cpus = server.guest_cpus();
    Bench::new(lab, machine(cpu, cpus, "")?, cpus, name)
}

/// A row, as it was planned and in each boot.
struct Booted {
    row: Planned,
    kept: Vec<Kept>,
}

/// All rows of a server.
fn booted(lab: &Lab, server: &Server, cpu: &str) -> Result<Vec<Booted>> {
    let rows = nginx::planned(server, None, false).rows;
    let mut all: Vec<Booted> =
        rows.into_iter().map(|row| Booted { row, kept: Vec::new() }).collect();
    for boot in 0..BOOTS {
        // The first one is that of the experiment, whose points are kept.
        let (name, requests) = match boot {
            0 => (server.name().to_owned(), None),
            boot => {
                let name = format!("{}-boot-{}", server.name(), boot + 1);
                (name, Some(server.requests(MORE_REQUESTS * boot)))
            }
        };
        let planned = nginx::planned(server, requests, false).rows;
        let points = planned.iter().map(|row| &row.point);
        let kept = run_points(&bench(lab, server, cpu, &name)?, points, false)?;
        all.iter_mut().zip(kept).for_each(|(row, kept)| row.kept.push(kept));
    }
    Ok(all)
}

/// Mean error, with the least and the worst.
fn figure(name: &str, lines: &[Line]) -> BenchResult {
    let errors: Vec<f64> = lines.iter().map(Line::error_points).collect();
    mean_error(name, &errors)
}

fn print(cpu: &str, lines: &[Line]) {
    println!("{cpu:<16} {:>10} {:>10} {:>8}  BOOTS", "MEASURED", "PREDICTED", "POINTS");
    for line in lines {
        let Line { name, measured_pct, of_boots_pct, predicted_pct } = line;
        let error = line.error_points();
        let boots: Vec<String> = of_boots_pct.iter().map(|pct| format!("{pct:+.2}")).collect();
        let boots = boots.join(" ");
        println!(
            "{name:<16} {measured_pct:>+8.2} % {predicted_pct:>+8.2} % {error:>+8.2}  {boots}"
        );
    }
}

/// Each row with wide code of a server on its machine, as measured and as the recordings predict.
fn lines(lab: &Lab, recordings: &[Kept], rows: &[Booted], server: &Server) -> Result<Vec<Line>> {
    let folder = repo::logs()?;
    let scenario = |kept: &Kept, code: &str| -> Result<String> {
        let to = folder.join(format!("{}-{code}.toml", server.name()));
        make(lab, kept, server, &to)?;
        Ok(to.display().to_string())
    };
    let (none, wide) = (scenario(&recordings[0], NONE)?, scenario(&recordings[1], WIDE)?);
    let turbolane = lab.binaries.program("turbolane")?;
    let rates = |row: &Booted| -> Result<Rates> {
        let scenario = if row.row.point.name == NONE { &none } else { &wide };
        let policy = &row.row.simulated.policy;
        let predicted = predicted::run(turbolane, scenario, server.machine(), "", policy)?;
        let predicted = predicted.get(GROUP).copied();
        Ok(Rates {
            measured: row.kept.iter().map(|kept| kept.measured.per_s(GROUP)).collect(),
            predicted: predicted.with_context(|| format!("{scenario} has no group {GROUP}"))?,
        })
    };
    let find = |name: &str| {
        let found = rows.iter().find(|row| row.row.point.name == name);
        rates(found.with_context(|| format!("there is no row {name}"))?)
    };
    let (none, wide) = (find(NONE)?, find(WIDE)?);
    let mut lines = vec![wide.against(WIDE, &none)];
    for row in rows.iter().filter(|row| row.row.nothing.is_some()) {
        lines.push(rates(row)?.against(&row.row.point.name, &wide));
    }
    Ok(lines)
}

/// What a row gets done per second: requests in each boot, and calls as predicted.
struct Rates {
    measured: Vec<f64>,
    predicted: f64,
}

impl Rates {
    fn mean(&self) -> f64 {
        self.measured.iter().sum::<f64>() / self.measured.len() as f64
    }

    fn against(&self, name: &str, other: &Rates) -> Line {
        let pct = |one: f64, other: f64| (one / other - 1.0) * 100.0;
        let boots = self.measured.iter().zip(&other.measured);
        Line {
            name: name.to_owned(),
            measured_pct: pct(self.mean(), other.mean()),
            of_boots_pct: boots.map(|(one, other)| pct(*one, *other)).collect(),
            predicted_pct: pct(self.predicted, other.predicted),
        }
    }
}

/// A recording as a scenario, for a server's CPUs.
fn make(lab: &Lab, kept: &Kept, server: &Server, to: &Path) -> Result<()> {
    let (file, window) = kept.recording()?;
    let turbolane = lab.binaries.program("turbolane")?.display().to_string();
    let (file, to) = (file.display().to_string(), to.display().to_string());
    let (active, onto) = (SMALL.guest_cpus().to_string(), format!("1-{}", server.guest_cpus() - 1));
    let mut args = vec!["trace", &file, "--scenario", &to, "--machine", SMALL.machine()];
    args.extend(["--active-cores", &active, "--arrivals", "closed", "--count", CALLS]);
    args.extend(["--window", &window, "--onto", &onto]);
    print!("{}", repo::output(&turbolane, &args)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_compared_by_their_means() {
        let none = Rates { measured: vec![100.0, 300.0], predicted: 1000.0 };
        let wide = Rates { measured: vec![90.0, 230.0], predicted: 700.0 };
        let line = wide.against("wide", &none);
        assert!((line.measured_pct + 20.0).abs() < 1e-9);
        assert!((line.of_boots_pct[0] + 10.0).abs() < 1e-9 && line.of_boots_pct.len() == 2);
        assert!((line.error_points() + 10.0).abs() < 1e-9);
        let figure = figure("f", &[line, wide.against("same", &wide)]);
        assert!((figure.value - 5.0).abs() < 1e-9 && (figure.max - 10.0).abs() < 1e-9);
        assert_eq!((figure.min, figure.n), (0.0, 2));
    }
}
