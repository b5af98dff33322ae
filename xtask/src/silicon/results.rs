// SPDX-License-Identifier: MIT OR Apache-2.0
//! Experiments as benchmark results.

use crate::results::{Baseline, BenchResult, Better, exact};
use crate::silicon::plan::{AUTO, NONE, WIDE};
use crate::silicon::rows::{Load, Row, Rows};

/// The web server: the loss, what each row removes of it, and what a point takes.
pub(crate) fn nginx(rows: &Rows, prefix: &str) -> Vec<BenchResult> {
    let wide = rows.find(WIDE);
    let mut results = losses(rows, prefix);
    let load = &rows.loads[0];
    for row in rows.lanes() {
        let name = format!("{prefix}.requests_per_s.{}", row.name);
        let mut result = exact(&name, row.per_s(load), "1/s", 1, Better::Higher);
        let value = wide.per_s(load);
        result.baseline = Some(Baseline { name: "requests/s without turbolane".into(), value });
        results.push(result);
    }
    results.push(exact(
        &format!("{prefix}.experiment_s"),
        wide.measured().host_s,
        "s",
        1,
        Better::Lower,
    ));
    results
}

/// Whose wide code is where, of rows with one wide CPU: what each row leaves to the others.
pub(crate) fn separation(rows: &Rows) -> Vec<BenchResult> {
    let value = rows.find(WIDE).measured().wide_elsewhere_pct();
    let without = Baseline { name: "without turbolane".into(), value };
    let figure = |row: &Row| {
        let name = match &*row.name {
            "trap" => "trap.libcrypto_wide_time_on_scalar_cpus_pct".to_owned(),
            other => format!("silicon.wide_time_on_scalar_cpus_pct.{other}"),
        };
        let elsewhere = row.measured().wide_elsewhere_pct();
        let mut result = exact(&name, elsewhere, "%", 1, Better::Lower);
        result.baseline = Some(without.clone());
        result
    };
    rows.lanes().filter(|row| !row.name.contains('-')).map(figure).collect()
}

/// Batch work: what gzip loses and wins back, and what each row changes for either load.
pub(crate) fn batch(rows: &Rows) -> Vec<BenchResult> {
    let mut results = losses(rows, "silicon.batch");
    for row in rows.lanes() {
        for load in rows.loads {
            let Some(change) = rows.against_nothing_pct(row, load) else { continue };
            let name = format!("silicon.batch.against_nothing_pct.{}.{}", row.name, load.name);
            results.push(exact(&name, change, "%", 1, Better::Higher));
        }
    }
    results
}

/// The first load's loss by wide code, and how much of it each row removes.
fn losses(rows: &Rows, prefix: &str) -> Vec<BenchResult> {
    let load = &rows.loads[0];
    let per_s = |name: &str| rows.find(name).per_s(load);
    let loss = (1.0 - per_s(WIDE) / per_s(NONE)) * 100.0;
    let mut results = vec![exact(&format!("{prefix}.loss_pct"), loss, "%", 1, Better::Lower)];
    for row in rows.lanes() {
        let Some(removed) = rows.loss_removed_pct(row, load) else { continue };
        let name = format!("{prefix}.loss_removed_pct.{}", row.name);
        results.push(exact(&name, removed, "%", 1, Better::Higher));
    }
    results
}

/// The load that Turbolane changes least to the better, or most to the worse, of all rows of all
/// experiments; and of those with automatic size, which is what users get.
pub(crate) fn worst(experiments: &[&Rows]) -> Vec<BenchResult> {
    let name = "silicon.worst_against_nothing_pct";
    let auto = format!("-{AUTO}");
    let all = worst_of(name, experiments, |_| true);
    [all, worst_of(&format!("{name}.auto"), experiments, |row| row.name.ends_with(&auto))].into()
}

fn worst_of(name: &str, experiments: &[&Rows], counts: impl Fn(&Row) -> bool) -> BenchResult {
    let change = |rows: &Rows, row: &Row, load: &Load| {
        if counts(row) { rows.against_nothing_pct(row, load) } else { None }
    };
    let changes = each(experiments, change);
    let worst = changes.iter().copied().fold(f64::INFINITY, f64::min);
    let mut result = exact(name, worst, "%", changes.len() as u64, Better::Higher);
    result.max = changes.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    result
}

/// The mean error of the simulator's predictions of all loads of all experiments. Their scenarios
/// are calibrated by the rows without Turbolane, which do not count.
pub(crate) fn sim_error(experiments: &[&Rows]) -> BenchResult {
    mean_error("silicon.sim_error_points", &each(experiments, Rows::error_points))
}

/// The mean of some errors, whatever their sign, with the least and the worst.
pub(crate) fn mean_error(name: &str, errors_points: &[f64]) -> BenchResult {
    let errors: Vec<f64> = errors_points.iter().copied().map(f64::abs).collect();
    let n = errors.len() as u64;
    let mean = errors.iter().sum::<f64>() / n as f64;
    let mut result = exact(name, mean, "points", n, Better::Lower);
    result.min = errors.iter().copied().fold(f64::INFINITY, f64::min);
    result.max = errors.iter().copied().fold(0.0, f64::max);
    result
}

/// A figure of each load of each row under Turbolane.
fn each(experiments: &[&Rows], figure: impl Fn(&Rows, &Row, &Load) -> Option<f64>) -> Vec<f64> {
    let mut figures = Vec::new();
    for rows in experiments {
        for row in rows.lanes() {
            figures.extend(rows.loads.iter().filter_map(|load| figure(rows, row, load)));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silicon::rows::tests::rows;

    fn value(results: &[BenchResult], name: &str) -> f64 {
        let result = results.iter().find(|result| result.name == name);
        (result.expect(name).value * 1e6).round() / 1e6
    }

    #[test]
    fn batch_work_has_both_loads() {
        let results = batch(&rows());
        assert_eq!(value(&results, "silicon.batch.loss_pct"), 20.0);
        assert_eq!(value(&results, "silicon.batch.loss_removed_pct.marks"), 75.0);
        assert_eq!(value(&results, "silicon.batch.against_nothing_pct.marks.gzip"), 18.75);
        assert_eq!(value(&results, "silicon.batch.against_nothing_pct.marks.openssl"), -25.0);
    }

    #[test]
    fn the_worst_is_that_of_any_load() {
        let rows = rows();
        let [all, auto] = &worst(&[&rows, &rows])[..] else { panic!("not two") };
        assert_eq!((all.value.round(), all.max.round(), all.n), (-25.0, 19.0, 8));
        assert_eq!((auto.value.round(), auto.max.round(), auto.n), (0.0, 6.0, 4));
    }

    #[test]
    fn errors_of_both_loads_count() {
        let error = sim_error(&[&rows()]);
        let rounded = [error.value, error.min, error.max].map(|value| value.round());
        assert_eq!((rounded, error.n), ([9.0, 0.0, 30.0], 4));
    }
}
