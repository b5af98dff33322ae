// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `turbolane probe` finds on a dim-silicon machine, beside what was planted there: all
//! through a stock kernel and the time stamp counter.
//!
//! The machine executes one instruction per cycle; a real core executes the probe's loop counters
//! beside its chains. So clocks come out 2 to 3 % low: two of 102 instructions, and the readings of
//! the counter.

use anyhow::{Context, Result, ensure};
use cpumodel::{CpuModel, Platform};
use report::probe::{Estimate, ProbeReport, Row};

use crate::guest::nr_cpus;
use crate::lane::turbolane;
use crate::silicon::ask_for_full_clock;

/// The CPU file, and how many of its cores are active.
pub const CPU: &str = "xeon-gold-6130";
const ACTIVE: usize = 16;

/// Kernels with the level they ask for, dense, and the changes of the clock on the way there.
pub const KERNELS: [(&str, u8, f64); 3] =
    [("256-fma", 1, 1.0), ("512-int", 1, 1.0), ("512-fma", 2, 2.0)];

/// What was found and what was planted.
pub struct Found {
    /// Kernel and quantity.
    pub what: String,
    /// How far it is off, %.
    pub error_pct: f64,
}

/// Runs the probe with these kernels, at most 10 s of the guest's time.
pub fn probe(kernels: &[(&str, u8, f64)]) -> Result<Vec<Found>> {
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    let names: Vec<&str> = kernels.iter().map(|(name, ..)| *name).collect();
    let json = turbolane(&["probe", "--quick", "--kernels", &names.join(","), "--json"])?;
    let report: ProbeReport = serde_json::from_str(&json).context("the probe's report")?;
    let model = CpuModel::built_in(CPU).context("no such CPU")??;
    let platform = Platform::new(&model);
    let mut found = Vec::new();
    for &(name, level, changes) in kernels {
        let row = |row: &&Row| row.cell.kernel == name && row.cell.one_in == 1;
        let row = report.rows.iter().find(row).with_context(|| format!("no row {name}: {json}"))?;
        let clock = |level| f64::from(platform.clock_khz(level, ACTIVE));
        let times = &platform.times;
        let planted: [(&str, &Option<Estimate>, f64); 7] = [
            ("clock before", &row.before_khz, clock(0)),
            ("settled clock", &row.steady_khz, clock(level)),
            ("clock after", &row.after_khz, clock(level)),
            ("throttle", &row.throttle_ns, times.throttle_ns as f64),
            ("halts", &row.halt_ns, changes * times.halt_ns as f64),
            ("relax time", &row.relax_from_last_ns, times.relax_ns as f64),
            ("halt before the raise", &row.raise_halt_ns, times.halt_ns as f64),
        ];
        for (quantity, estimate, planted) in planted {
            let estimate = estimate.with_context(|| format!("{name}: no {quantity}: {json}"))?;
            let error_pct = (estimate.value / planted - 1.0).abs() * 100.0;
            println!(
                "{name}: {quantity} {:.0}, planted {planted:.0}: {error_pct:.2} %",
                estimate.value
            );
            found.push(Found { what: format!("{name}: {quantity}"), error_pct });
        }
    }
    ensure!(!found.is_empty(), "no kernel was asked for");
    Ok(found)
}
