// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what a probe measured: which effects this CPU shows, and so which tools help here.

use report::doctor::Check;
use report::probe::{ProbeReport, Row};

use super::{no, ok, unknown, warn};

/// A fall of the clock below which nothing is to be gained: half a bin of 100 MHz.
pub(crate) const FALL_KHZ: f64 = 50_000.0;

pub(super) const CLOCK_WHY: &str =
    "the lower clock of wide code also slows the code next to it and after it";
pub(super) const START_WHY: &str = "every wide section has this cost at its start: few long sections cost less than many short ones";
pub(super) const RELAX_WHY: &str = "until the clock recovers, scalar code after wide code is slower; core specialisation \
    removes this loss";

/// The checks of a measurement.
pub(super) fn checks(report: &ProbeReport) -> Vec<Check> {
    vec![quiet(report), fall(report), start(report), relax(report)]
}

fn quiet(report: &ProbeReport) -> Check {
    let text = format!("{} of {} repetitions were quiet", report.quiet, report.repetitions);
    let known = report.rows.iter().any(|row| row.steady_khz.is_some());
    let seen = match known {
        true if report.quiet * 2 >= report.repetitions => ok(text),
        true => {
            warn(text, "for exact figures, run `turbolane probe` when the machine is less busy")
        }
        false => unknown(text, "run this again when the machine is less busy"),
    };
    seen.check(
        "effects-quiet",
        "quiet machine",
        "other cores change the clock too; repetitions in which they did are discarded",
    )
}

/// By how much a kernel's clock is below that of scalar code, kHz.
fn below(row: &Row) -> Option<f64> {
    Some(row.before_khz?.value - row.steady_khz?.value)
}

fn fall(report: &ProbeReport) -> Check {
    let known = report.rows.iter().filter_map(|row| Some((row, below(row)?)));
    let worst = known.max_by(|a, b| a.1.total_cmp(&b.1));
    let seen = match worst {
        None => unknown("not measured", "run this again when the machine is less busy"),
        Some((row, khz)) if khz >= FALL_KHZ => {
            ok(format!("{} runs {:.0} MHz below scalar code", row.cell.kernel, khz / 1e3))
        }
        Some(_) => no(
            "no kernel lowers the clock by half a bin",
            "core specialisation has nothing to gain on this CPU, as far as one active core shows",
        ),
    };
    seen.check("effects-clock", "clock falls", CLOCK_WHY)
}

fn start(report: &ProbeReport) -> Check {
    let slow = report.rows.iter().filter_map(|row| Some((row, row.lower_cost_ns?.value)));
    let seen = match slow.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((row, ns)) => ok(format!("{} loses {:.1} us at its start", row.cell.kernel, ns / 1e3)),
        None => no(
            "no throttle and no halt at the start of a block",
            "short wide sections cost nothing extra here",
        ),
    };
    seen.check("effects-start", "slow start", START_WHY)
}

fn relax(report: &ProbeReport) -> Check {
    let known = report.rows.iter().filter_map(|row| Some((row, row.relax().0?.value)));
    let seen = match known.max_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((row, ns)) => {
            ok(format!("the clock recovers {:.2} ms after {}", ns / 1e6, row.cell.kernel))
        }
        None => no(
            "scalar code after a block is not slower, or the recovery of its clock was not seen",
            "only the wide code itself is slower; `turbolane verify` shows whether that matters",
        ),
    };
    seen.check("effects-relax", "slow recovery", RELAX_WHY)
}

#[cfg(test)]
mod tests {
    use cpumodel::CpuModel;
    use probe::{Noise, Plan, Simulated, analyse, run};
    use report::doctor::Status;

    use super::*;

    fn measured(id: &str, kernels: &[&str]) -> Vec<Check> {
        let model = CpuModel::built_in(id).unwrap().unwrap();
        let mut machine = Simulated::new(&model, Noise::SHARED, 1);
        let mut plan = Plan::quick(&machine, &[1], 1);
        plan.cells.retain(|cell| kernels.contains(&cell.kernel.as_str()));
        plan.max_rounds = 12;
        let recording = run(&mut machine, &plan, &mut |_, _| true);
        checks(&analyse(&recording.header, &recording.traces))
    }

    fn statuses(checks: &[Check]) -> Vec<Status> {
        checks.iter().map(|check| check.status).collect()
    }

    /// A CPU with licences shows all effects, with figures; scalar code alone shows none.
    #[test]
    fn effects_are_reported() {
        let wide = measured("xeon-w-2104", &["scalar", "512-fma"]);
        assert_eq!(statuses(&wide), [Status::Ok; 4], "{wide:?}");
        assert!(wide[1].seen.contains("MHz below scalar code"));
        assert!(wide[3].seen.contains("0.6") || wide[3].seen.contains("0.7"), "{}", wide[3].seen);
        let scalar = measured("xeon-w-2104", &["scalar"]);
        assert_eq!(statuses(&scalar)[1..], [Status::No; 3], "{scalar:?}");
    }
}
