// SPDX-License-Identifier: MIT OR Apache-2.0
//! Is a recorded service predicted? nginx is recorded on the dim-silicon machine under the kernel's
//! scheduler; from that alone the simulator says what wide code costs it and what each means of
//! Turbolane wins, there and on another CPU with more cores. Then both are measured.
//!
//! The recording without wide code is what the loss is relative to; that with it is what every row
//! of the lane is predicted from. Nothing is calibrated by what is predicted.

use std::path::Path;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::repo;
use crate::results::{BenchResult, Better, exact};
use crate::silicon::nginx::{self, CALLS, OTHER, SMALL, Server};
use crate::silicon::plan::{NONE, WIDE};
use crate::silicon::point::{Bench, Kept};
use crate::silicon::rows::{self, Row, Rows};
use crate::silicon::{machine, predicted, run_points};

/// The CPU that is recorded, and the other one.
const RECORDED_ON: &str = "xeon-gold-6130";
const OTHER_CPU: &str = "xeon-gold-6154";
/// Group of the scenarios that are made.
const GROUP: &str = "nginx";

/// A row: what was measured and predicted, %: for the row without the lane the loss by wide code,
/// for the others the gain against that row.
struct Line {
    name: String,
    measured_pct: f64,
    predicted_pct: f64,
}

impl Line {
    fn error_points(&self) -> f64 {
        self.predicted_pct - self.measured_pct
    }
}

/// Records, measures, predicts.
pub(crate) fn measure(lab: &Lab) -> Result<Vec<BenchResult>> {
    let home = bench(lab, &SMALL, RECORDED_ON)?;
    let points = [SMALL.recorded(NONE), SMALL.recorded(WIDE)];
    let kept = run_points(&home, points.iter(), false)?;
    let measured = |bench: &Bench<'_>, server: &Server| {
        rows::measure(bench, nginx::planned(server, None, false), false)
    };
    let here = measured(&home, &SMALL)?;
    let there = measured(&bench(lab, &OTHER, OTHER_CPU)?, &OTHER)?;
    let here = lines(lab, &kept, &here, &SMALL)?;
    let there = lines(lab, &kept, &there, &OTHER)?;
    print(RECORDED_ON, &here);
    print(OTHER_CPU, &there);
    Ok(vec![
        figure("predict.recording_error_points", &here),
        figure("predict.cross_machine_error_points", &there),
    ])
}

fn bench<'a>(lab: &'a Lab, server: &Server, cpu: &str) -> Result<Bench<'a>> {
    let cpus = server.guest_cpus();
    Bench::new(lab, machine(cpu, cpus, "")?, cpus, server.name())
}

/// Mean error, with the least and the worst.
fn figure(name: &str, lines: &[Line]) -> BenchResult {
    let errors: Vec<f64> = lines.iter().map(|line| line.error_points().abs()).collect();
    let n = errors.len() as u64;
    let mut figure = exact(name, errors.iter().sum::<f64>() / n as f64, "points", n, Better::Lower);
    figure.min = errors.iter().copied().fold(f64::INFINITY, f64::min);
    figure.max = errors.iter().copied().fold(0.0, f64::max);
    figure
}

fn print(cpu: &str, lines: &[Line]) {
    println!("{cpu:<16} {:>10} {:>10} {:>8}", "MEASURED", "PREDICTED", "POINTS");
    for line in lines {
        let Line { name, measured_pct, predicted_pct } = line;
        let error = line.error_points();
        println!("{name:<16} {measured_pct:>+8.2} % {predicted_pct:>+8.2} % {error:>+8.2}");
    }
}

/// Each row with wide code of a server on its machine, as measured and as the recordings predict.
fn lines(lab: &Lab, recordings: &[Kept], rows: &Rows, server: &Server) -> Result<Vec<Line>> {
    let folder = repo::logs()?;
    let scenario = |kept: &Kept, code: &str| -> Result<String> {
        let to = folder.join(format!("{}-{code}.toml", server.name()));
        make(lab, kept, server, &to)?;
        Ok(to.display().to_string())
    };
    let (none, wide) = (scenario(&recordings[0], NONE)?, scenario(&recordings[1], WIDE)?);
    let turbolane = lab.binaries.program("turbolane")?;
    let simulate = |row: &Row| -> Result<f64> {
        let scenario = if row.name == NONE { &none } else { &wide };
        let rates = predicted::run(turbolane, scenario, server.machine(), "", row.policy())?;
        rates.get(GROUP).copied().with_context(|| format!("{scenario} has no group {GROUP}"))
    };
    let load = &rows.loads[0];
    let rate = |name: &str| -> Result<(f64, f64)> {
        let row = rows.find(name);
        Ok((row.per_s(load), simulate(row)?))
    };
    let (none, wide) = (rate(NONE)?, rate(WIDE)?);
    let change = |name: &str, of: (f64, f64), to: (f64, f64)| Line {
        name: name.to_owned(),
        measured_pct: (of.0 / to.0 - 1.0) * 100.0,
        predicted_pct: (of.1 / to.1 - 1.0) * 100.0,
    };
    let mut lines = vec![change(WIDE, wide, none)];
    for row in rows.lanes() {
        lines.push(change(&row.name, rate(&row.name)?, wide));
    }
    Ok(lines)
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
