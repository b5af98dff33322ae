// SPDX-License-Identifier: MIT OR Apache-2.0
//! The papers' web server (SFMA 4, SYSTOR 4.1): nginx compresses a page and sends it over TLS with
//! ChaCha20-Poly1305. What of AVX-512's loss does each way of telling wide code apart remove? And what had the
//! simulator said?

use anyhow::{Context, Result};
use silicon::{Log, Machine, Settings};

use crate::silicon::picture::{self, Band};
use crate::silicon::point::{Bench, Kept, Measured, Point};
use crate::silicon::predicted::{self, Simulated};

/// The CPU, all of its cores active: the clocks that SFMA 4 gives are 2.8, 2.4 and 1.9 GHz.
pub(crate) const CPU: &str = "xeon-gold-6130";

/// Four for nginx, one for the client.
pub(crate) const CPUS: u32 = 5;

/// Requests of a point: 0.1 s of the guest's time.
pub(crate) const REQUESTS: u32 = 300;

const CIPHER: &str = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3:EVP_CipherUpdate@2";

/// The row without wide code, the row that loses, and the others.
pub(crate) const ROWS: [&str; 5] = ["none", "wide", "marks", "trap", "hints"];

/// The rows of the demo.
pub(crate) const DEMO: &[&str] = ROWS.split_at(4).0;

/// A row that is not measured yet.
struct Planned {
    point: Point,
    meaning: &'static str,
    simulated: Simulated,
}

/// Each row: how it is measured, how it is simulated, and what it means.
fn planned(requests: u32) -> Vec<Planned> {
    let row = |name: &str, code: &str, run: &[&str], simulated: (_, _), meaning| {
        let requests = requests.to_string();
        let words = [&["vmtests", "nginx", code, &requests], run].concat();
        let command = words.iter().map(|&word| word.to_owned()).collect();
        let (variant, policy) = simulated;
        let point = Point { name: name.to_owned(), command };
        Planned { point, meaning, simulated: Simulated { variant, policy } }
    };
    let [none, wide, marks, trap, hints] = ROWS;
    vec![
        row(none, "none", &[], ("none", "fair"), "OpenSSL without AVX2 and AVX-512"),
        row(wide, "wide", &[], ("", "fair"), "OpenSSL with AVX-512"),
        row(
            marks,
            "wide",
            &["--mark", CIPHER],
            ("", "lane:detect=mark"),
            "the same under turbolane run --mark ...CipherUpdate",
        ),
        row(
            trap,
            "wide",
            &["--trap", "avx512"],
            ("", "lane:detect=trap"),
            "the same under turbolane run --trap avx512",
        ),
        row(
            hints,
            "hints",
            &["--wide-cpus", "auto"],
            ("", "lane:detect=hint"),
            "the same under turbolane run, nginx with libturbolane_openssl.so",
        ),
    ]
}

/// Throughput lost by AVX-512, % of that without.
pub(crate) fn loss_pct(none: &Measured, wide: &Measured) -> f64 {
    (1.0 - wide.per_s() / none.per_s()) * 100.0
}

/// How much of that loss a point removes, %.
pub(crate) fn loss_removed_pct(none: &Measured, wide: &Measured, point: &Measured) -> f64 {
    (point.per_s() - wide.per_s()) / (none.per_s() - wide.per_s()) * 100.0
}

/// A measured row.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) meaning: &'static str,
    pub(crate) kept: Kept,
    /// What the simulator says, requests per second.
    pub(crate) predicted_per_s: f64,
}

/// The rows of these names, as many guests at a time as there are CPUs; what was kept is not measured again.
pub(crate) fn rows(
    bench: &Bench<'_>,
    names: &[&str],
    requests: u32,
    again: bool,
) -> Result<Vec<Row>> {
    let mut planned = planned(requests);
    planned.retain(|row| names.contains(&row.point.name.as_str()));
    let kept = super::run_points(bench, planned.iter().map(|row| &row.point), again)?;
    let turbolane = bench.lab.binaries.program("turbolane")?;
    let row = |(row, kept): (Planned, Kept)| -> Result<Row> {
        let predicted_per_s = predicted::per_s(turbolane, &row.simulated)?;
        Ok(Row { name: row.point.name, meaning: row.meaning, kept, predicted_per_s })
    };
    planned.into_iter().zip(kept).map(row).collect()
}

/// How far the simulator's change against the first row is from the measured one, percentage points.
pub(crate) fn error_points(rows: &[Row], row: &Row) -> f64 {
    let none = &rows[0];
    let predicted = row.predicted_per_s / none.predicted_per_s;
    (predicted - row.kept.measured.per_s() / none.kept.measured.per_s()) * 100.0
}

/// The row of this name.
pub(crate) fn find<'a>(rows: &'a [Row], name: &str) -> &'a Measured {
    let row = rows.iter().find(|row| row.name == name);
    &row.expect("every row of the list was measured").kept.measured
}

/// The rows for people.
pub(crate) fn table(rows: &[Row]) -> String {
    let (none, wide) = (find(rows, ROWS[0]), find(rows, ROWS[1]));
    let mut text = format!(
        "{:<6} {:>10} {:>8} {:>12} {:>9} {:>20} {:>13} {:>7}\n",
        "ROW",
        "REQUESTS/S",
        "CHANGE",
        "LOSS REMOVED",
        "SIMULATED",
        "LEVEL 0 / 1 / 2, %",
        "INSNS/REQUEST",
        "HOST"
    );
    for row in rows {
        let Row { name, kept: Kept { measured, .. }, .. } = row;
        let change = (measured.per_s() / none.per_s() - 1.0) * 100.0;
        let removed = if ROWS[..2].contains(&name.as_str()) {
            "-".to_owned()
        } else {
            format!("{:.1} %", loss_removed_pct(none, wide, measured))
        };
        let levels: Vec<String> =
            (0..3).map(|level| format!("{:.1}", measured.at_level_pct(level))).collect();
        text += &format!(
            "{name:<6} {:>10.0} {:>8} {removed:>12} {:>9} {:>20} {:>11.0} k {:>5.0} s\n",
            measured.per_s(),
            format!("{change:+.1} %"),
            format!("{:+.1} %", change + error_points(rows, row)),
            levels.join(" / "),
            measured.insns_per_request() / 1000.0,
            measured.host_s
        );
    }
    text += "\nSIMULATED is the change that turbolane sim predicts on a model of this machine.\n\n";
    for Row { name, meaning, .. } in rows {
        text += &format!("{name:<6} {meaning}\n");
    }
    text
}

/// The rows as a page: clock and level of each core.
pub(crate) fn picture(rows: &[Row]) -> Result<String> {
    let read = |row: &Row| -> Result<Log> {
        let text = std::fs::read_to_string(&row.kept.log).context("the log of a point")?;
        Ok(Log::parse(&text)?)
    };
    let logs = rows.iter().map(read).collect::<Result<Vec<Log>>>()?;
    let band = |row: &Row, log| {
        let Row { meaning, kept, .. } = row;
        Band { heading: format!("{:.0} requests/s: {meaning}", kept.measured.per_s()), log }
    };
    let bands: Vec<Band<'_>> = rows.iter().zip(&logs).map(|(row, log)| band(row, log)).collect();
    let machine = Machine::new(&Settings::parse(CPU)?, CPUS, 1)?;
    let heading = "nginx on an emulated Xeon Gold 6130";
    let about = "Debian's kernel, nginx, OpenSSL and wrk on a machine whose clocks and licence levels \
        are a model. nginx runs on CPUs 1 to 4, the client on CPU 0.";
    Ok(picture::page(heading, about, &bands, machine.clocks(), CPUS as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(requests: u64) -> Measured {
        Measured { requests, ns: 1_000_000_000, cpus: Vec::new(), host_s: 1.0 }
    }

    #[test]
    fn losses_are_shares() {
        let (none, wide) = (measured(1000), measured(800));
        assert!((loss_pct(&none, &wide) - 20.0).abs() < 1e-9);
        assert!((loss_removed_pct(&none, &wide, &measured(950)) - 75.0).abs() < 1e-9);
        assert!(loss_removed_pct(&none, &wide, &measured(700)) < 0.0);
    }

    #[test]
    fn every_row_is_a_point() {
        let names: Vec<String> = planned(300).into_iter().map(|row| row.point.name).collect();
        assert_eq!(names, ROWS);
    }
}
