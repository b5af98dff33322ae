// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test in a guest says that it saw, beside what the machine did.
//!
//! A test on a dim-silicon machine measures through a kernel: energy by RAPL, clocks by APERF and
//! MPERF. The machine's log has the truth, but is outside of the guest. So the test marks moments
//! in the log (port 0xee), writes down what it saw between two of them, and the log is asked here:
//!
//! ```text
//! /out/claims.json: [{"what":"energy_uj","cpu":0,"from":1,"to":2,"seen":12345.0,"within_pct":0.5}]
//! ```
//!
//! | `what` | the truth between the marks |
//! |---|---|
//! | `energy_uj` | energy of the package |
//! | `clock_khz` | cycles of the CPU over the time in which it executed |

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use silicon::{CpuTotals, Log};
use testbed::Outcome;

/// Its name in the guest's /out.
const FILE: &str = "claims.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claim {
    what: What,
    /// Ignored for quantities of the package.
    cpu: usize,
    /// The marks.
    from: u32,
    to: u32,
    seen: f64,
    within_pct: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    EnergyUj,
    ClockKhz,
}

/// Compares the guest's claims with the machine's log: how far the worst is off, in words; an error
/// if one is wrong. Nothing if it left none.
pub(crate) fn check(outcome: &Outcome) -> Result<Option<String>> {
    let path = outcome.out_dir().join(FILE);
    if !path.exists() {
        return Ok(None);
    }
    let log = outcome.silicon_log().context("claims, but no machine's log")?;
    let read = |path: &Path| {
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let errors_pct = compare(&read(&path)?, &read(log)?)?;
    let worst = errors_pct.iter().copied().fold(0.0, f64::max);
    Ok(Some(format!("{} figures, {worst:.3} % off the log at most", errors_pct.len())))
}

/// How far each claim is off, %.
fn compare(claims: &str, log: &str) -> Result<Vec<f64>> {
    let claims: Vec<Claim> = serde_json::from_str(claims).context(FILE)?;
    let log = Log::parse(log)?;
    let (mut errors_pct, mut wrong) = (Vec::new(), Vec::new());
    for claim in &claims {
        let truth = claim.truth(&log)?;
        let error_pct = (claim.seen / truth - 1.0).abs() * 100.0;
        errors_pct.push(error_pct);
        if error_pct > claim.within_pct {
            let Claim { what, cpu, from, to, seen, .. } = claim;
            wrong.push(format!(
                "{what:?}, CPU {cpu}, marks {from} to {to}: seen {seen:.1}, log {truth:.1}: {error_pct:.3} % off"
            ));
        }
    }
    ensure!(wrong.is_empty(), "not what the machine did:\n{}", wrong.join("\n"));
    Ok(errors_pct)
}

impl Claim {
    fn truth(&self, log: &Log) -> Result<f64> {
        let mark = |value| log.mark(value).with_context(|| format!("the log has no mark {value}"));
        let (from, to) = (mark(self.from)?, mark(self.to)?);
        Ok(match self.what {
            What::EnergyUj => to.energy_uj.saturating_sub(from.energy_uj) as f64,
            What::ClockKhz => {
                let totals = |cpus: &[CpuTotals]| {
                    cpus.get(self.cpu).cloned().with_context(|| format!("no CPU {}", self.cpu))
                };
                let between = totals(&to.cpus)?.since(&totals(&from.cpus)?);
                between.cycles as f64 / between.busy_ns.iter().sum::<u64>() as f64 * 1e6
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "mark t_ns=1000 value=1\n\
        cpu t_ns=1000 cpu=0 insns=9 cycles=9 busy_ns=5,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0\n\
        package t_ns=1000 energy_uj=100\n\
        mark t_ns=3000 value=2\n\
        cpu t_ns=3000 cpu=0 insns=9 cycles=2809 busy_ns=505,500 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0\n\
        package t_ns=3000 energy_uj=300\n";

    fn claim(what: &str, cpu: usize, seen: f64) -> String {
        format!(r#"[{{"what":"{what}","cpu":{cpu},"from":1,"to":2,"seen":{seen},"within_pct":1}}]"#)
    }

    #[test]
    fn what_is_right_passes() {
        assert_eq!(compare(&claim("energy_uj", 0, 201.0), LOG).unwrap().len(), 1);
        assert_eq!(compare(&claim("clock_khz", 0, 2_790_000.0), LOG).unwrap().len(), 1);
    }

    #[test]
    fn what_is_wrong_fails() {
        for (claims, part) in [
            (claim("energy_uj", 0, 203.0), "EnergyUj"),
            (claim("energy_uj", 0, f64::from(u32::MAX)), "not what the machine did"),
            (claim("clock_khz", 0, 1_900_000.0), "log 2800000.0"),
            (claim("clock_khz", 7, 1_900_000.0), "no CPU 7"),
            (claim("energy_uj", 0, 201.0).replace("\"to\":2", "\"to\":3"), "no mark 3"),
            (claim("clock", 0, 1.0), "claims.json"),
        ] {
            let error = format!("{:#}", compare(&claims, LOG).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
}
