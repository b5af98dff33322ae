// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answer in a sentence: how far the worst kernel lowers the clock when all CPUs that were
//! measured are active, as on a busy server.

use super::{Estimate, Row};
use crate::text::duration;

/// What the rows say.
pub fn verdict(rows: &[Row]) -> String {
    let measured = |row: &&Row| clocks(row).is_some();
    let Some(most) = rows.iter().filter(measured).map(|row| row.cell.active).max() else {
        return "not known: no cell has enough quiet repetitions".into();
    };
    let active = match most {
        1 => "with 1 CPU active".to_string(),
        most => format!("with {most} CPUs active"),
    };
    let lowered = rows.iter().filter(|row| row.cell.active == most).filter_map(|row| {
        let (before, steady) = clocks(row)?;
        // Intervals that overlap show no drop.
        (steady.high < before.low).then_some((row, before.value, steady.value))
    });
    // To one per cent, so that noise does not choose among kernels that are alike: the first one
    // counts.
    let share = |(_, before, steady): &(&Row, f64, f64)| (100.0 * steady / before).round();
    let Some((row, before, steady)) = lowered.min_by(|a, b| share(a).total_cmp(&share(b))) else {
        return format!("no kernel lowers the clock measurably {active}");
    };
    let density = match row.cell.one_in {
        1 => String::new(),
        one_in => format!(" (one in {one_in})"),
    };
    let (relax, since) = row.relax();
    let back = match relax {
        Some(relax) => {
            let since = since.trim_end_matches('?');
            let after = duration(relax.value as u64);
            format!("; the clock returns {after} after the {since} wide instruction")
        }
        None => String::new(),
    };
    format!(
        "{}{density} lowers the clock from {:.0} to {:.0} MHz ({:+.0} %) {active}{back}",
        row.cell.kernel,
        before / 1e3,
        steady / 1e3,
        100.0 * (steady / before - 1.0),
    )
}

/// The clock before a kernel and that of the kernel.
fn clocks(row: &Row) -> Option<(Estimate, Estimate)> {
    row.before_khz.zip(row.steady_khz)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A row whose clocks are known to 10 MHz.
    fn row(kernel: &str, active: u32, clocks_mhz: Option<(f64, f64)>) -> Row {
        let estimate = |mhz: f64| {
            let (low, high) = ((mhz - 10.0) * 1e3, (mhz + 10.0) * 1e3);
            json!({ "value": mhz * 1e3, "low": low, "high": high, "n": 9 })
        };
        let value = json!({
            "kernel": kernel, "one_in": 1, "active": active, "class": kernel, "quiet": 9,
            "before_khz": clocks_mhz.map(|(before, _)| estimate(before)),
            "steady_khz": clocks_mhz.map(|(_, steady)| estimate(steady)),
            "notes": [], "course": [],
        });
        serde_json::from_value(value).unwrap()
    }

    /// The largest share at the most active CPUs counts, not a larger one at fewer.
    #[test]
    fn the_worst_drop_of_all_cores_is_named() {
        let mut worst = row("512-fma", 16, Some((2800.0, 1900.0)));
        worst.relax_from_last_ns =
            Some(Estimate { value: 670_000.0, low: 660_000.0, high: 680_000.0, n: 9 });
        worst.counted_from = Some(super::super::CountedFrom::Last);
        let rows = [
            row("512-fma", 1, Some((3700.0, 1000.0))),
            row("scalar", 16, Some((2800.0, 2800.0))),
            row("256-fma", 16, Some((2800.0, 2400.0))),
            worst,
        ];
        assert_eq!(
            verdict(&rows),
            "512-fma lowers the clock from 2800 to 1900 MHz (-32 %) with 16 CPUs active; the \
             clock returns 670us after the last wide instruction"
        );
    }

    /// A difference within the intervals is none, and without figures there is no answer.
    #[test]
    fn no_drop_is_said() {
        let rows = [row("512-fma", 1, Some((2800.0, 2785.0)))];
        assert_eq!(verdict(&rows), "no kernel lowers the clock measurably with 1 CPU active");
        assert!(verdict(&[row("512-fma", 4, None)]).starts_with("not known"));
        assert!(verdict(&[]).starts_with("not known"));
    }
}
