// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments as benchmark results.

use crate::results::{Baseline, BenchResult, Better};
use crate::silicon::nginx::{ROWS, Row, error_points, find, loss_pct, loss_removed_pct};

/// A result of so many runs that gave one value.
pub(crate) fn exact(name: &str, value: f64, unit: &str, n: u64, better: Better) -> BenchResult {
    BenchResult {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        better,
        n,
        min: value,
        max: value,
        baseline: None,
    }
}

/// The loss, what each row removes of it, the row that gains least against doing nothing, and what a point takes.
pub(crate) fn nginx(rows: &[Row]) -> Vec<BenchResult> {
    let (none, wide) = (find(rows, ROWS[0]), find(rows, ROWS[1]));
    let loss = loss_pct(none, wide);
    let mut results = vec![exact("silicon.loss_pct", loss, "%", 1, Better::Lower)];
    for row in &ROWS[2..] {
        let point = find(rows, row);
        let removed = loss_removed_pct(none, wide, point);
        let name = format!("silicon.loss_removed_pct.{row}");
        let baseline =
            Baseline { name: "requests/s without turbolane".into(), value: wide.per_s() };
        results.push(exact(&name, removed, "%", 1, Better::Higher));
        let name = format!("silicon.requests_per_s.{row}");
        let mut result = exact(&name, point.per_s(), "1/s", 1, Better::Higher);
        result.baseline = Some(baseline);
        results.push(result);
    }
    let changes = ROWS[2..].iter().map(|row| find(rows, row).per_s() / wide.per_s() - 1.0);
    let worst_pct = changes.fold(f64::INFINITY, f64::min) * 100.0;
    let name = "silicon.worst_against_nothing_pct";
    results.push(exact(name, worst_pct, "%", 1, Better::Higher));
    results.push(sim_error(rows));
    results.push(exact("silicon.experiment_s", wide.host_s, "s", 1, Better::Lower));
    results
}

/// The mean error of the simulator's predictions; its scenario is calibrated by the first two rows, which do not count.
fn sim_error(rows: &[Row]) -> BenchResult {
    let errors: Vec<f64> = rows[2..].iter().map(|row| error_points(rows, row).abs()).collect();
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let n = errors.len() as u64;
    let mut result = exact("silicon.sim_error_points", mean, "points", n, Better::Lower);
    result.min = errors.iter().copied().fold(f64::INFINITY, f64::min);
    result.max = errors.iter().copied().fold(0.0, f64::max);
    result
}
