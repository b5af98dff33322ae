// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of benchmarks, and the file that they are written to.
//!
//! A result carries its unit, what is better, how many repetitions it comes from and their
//! extremes: a number without them is not accepted.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::lab::Lab;
use crate::repo;

/// Raised with each incompatible change of the file's format.
const SCHEMA: u32 = 1;

/// A benchmark that is not one of `vmtests`: it looks at guests from outside, or at what is
/// shipped.
pub(crate) struct Outside {
    /// As in `./x bench GROUP/NAME`.
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Lab) -> Result<Vec<BenchResult>>,
}

#[derive(Serialize)]
pub(crate) struct Report {
    schema: u32,
    group: String,
    commit: String,
    machine: Machine,
    pub(crate) results: Vec<BenchResult>,
}

/// Where the numbers come from.
#[derive(Serialize)]
struct Machine {
    cpu: String,
    cpus: usize,
    memory_mib: u64,
    kernel: String,
    emulator: String,
    /// Of the guests; `null` if no guest was booted.
    guest_kernel: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BenchResult {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: String,
    pub(crate) better: Better,
    /// Repetitions that `value` comes from.
    pub(crate) n: u64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) baseline: Option<Baseline>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    Higher,
    Lower,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Baseline {
    pub(crate) name: String,
    pub(crate) value: f64,
}

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

/// The report of what was measured in a lab.
pub(crate) fn report(group: &str, lab: &Lab, mut results: Vec<BenchResult>) -> Result<Report> {
    results.sort_by(|a: &BenchResult, b| a.name.cmp(&b.name));
    let machine = machine(&lab.kernels())?;
    Ok(Report { schema: SCHEMA, group: group.to_owned(), commit: commit()?, machine, results })
}

impl Report {
    /// Writes it as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("cannot write JSON")? + "\n";
        std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

impl BenchResult {
    /// Refuses numbers that contradict themselves.
    pub(crate) fn checked(self) -> Result<Self> {
        let finite = [self.value, self.min, self.max].iter().all(|number| number.is_finite());
        ensure!(
            finite && self.n > 0 && self.min <= self.value && self.value <= self.max,
            "result {} makes no sense: value {} of n={} in {}..{}",
            self.name,
            self.value,
            self.n,
            self.min,
            self.max
        );
        ensure!(!self.unit.is_empty(), "result {} has no unit", self.name);
        Ok(self)
    }
}

pub(crate) fn print(results: &[BenchResult]) {
    let width = results.iter().map(|result| result.name.len()).max().unwrap_or(0);
    for result in results {
        let BenchResult { name, value, unit, n, min, max, .. } = result;
        println!("{name:<width$}  {value:>14.3} {unit}  (n={n}, {min:.3}..{max:.3}){}", {
            result.baseline.as_ref().map_or(String::new(), |base| comparison(result, base))
        });
    }
}

fn comparison(result: &BenchResult, base: &Baseline) -> String {
    if base.value == 0.0 || result.value == 0.0 {
        return format!("; {}: {:.3}", base.name, base.value);
    }
    let gain = match result.better {
        Better::Higher => result.value / base.value,
        Better::Lower => base.value / result.value,
    };
    format!("; {:.2}x as good as {} ({:.3})", gain, base.name, base.value)
}

fn commit() -> Result<String> {
    let dirty = !repo::output("git", &["status", "--porcelain"])?.is_empty();
    // Before the first commit there is none to name.
    let head = repo::output("git", &["rev-parse", "HEAD"]).unwrap_or_else(|_| "none".to_owned());
    Ok(if dirty { format!("{head}-dirty") } else { head })
}

fn machine(guest_kernels: &[&str]) -> Result<Machine> {
    let field = |path: &str, key: &str| -> Result<String> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let line = text.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(':'));
        Ok(value.map_or("unknown", |(_, value)| value.trim()).to_owned())
    };
    let memory = field("/proc/meminfo", "MemTotal")?;
    let kib: u64 = memory.trim_end_matches(" kB").parse().unwrap_or(0);
    let emulator = if guest_kernels.is_empty() {
        "none".to_owned()
    } else {
        repo::output("qemu-system-x86_64", &["--version"])?
    };
    Ok(Machine {
        cpu: field("/proc/cpuinfo", "model name")?,
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        memory_mib: kib / 1024,
        kernel: repo::output("uname", &["-r"])?,
        emulator: emulator.lines().next().unwrap_or_default().to_owned(),
        guest_kernel: (!guest_kernels.is_empty()).then(|| guest_kernels.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: f64, min: f64, max: f64) -> BenchResult {
        BenchResult {
            name: "trap".into(),
            value,
            unit: "instructions".into(),
            better: Better::Lower,
            n: 3,
            min,
            max,
            baseline: None,
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(result(2.0, 1.0, 3.0).checked().is_ok());
        assert!(result(4.0, 1.0, 3.0).checked().is_err());
        assert!(result(f64::NAN, 1.0, 3.0).checked().is_err());
        assert!(BenchResult { n: 0, ..result(2.0, 1.0, 3.0) }.checked().is_err());
    }

    #[test]
    fn better_has_a_direction() {
        let base = Baseline { name: "old".into(), value: 4.0 };
        assert!(comparison(&result(2.0, 1.0, 3.0), &base).contains("2.00x"));
    }
}
