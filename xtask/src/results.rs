// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of benchmarks ([`report::bench`]): where they come from, whether they make sense, and
//! the file that they are written to.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use report::bench::BenchMachine;
pub(crate) use report::bench::{Baseline, BenchReport, BenchResult, Better};

use crate::lab::Lab;
use crate::repo;

/// A benchmark that is not one of `vmtests`: it looks at guests from outside, or at what is
/// shipped.
pub(crate) struct Outside {
    /// As in `./x bench GROUP/NAME`.
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) measure: fn(&Lab) -> Result<Vec<BenchResult>>,
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
pub(crate) fn report(group: &str, lab: &Lab, results: Vec<BenchResult>) -> Result<BenchReport> {
    Ok(BenchReport::new(group, commit()?, machine(&lab.kernels())?, results))
}

/// Writes a report as JSON.
pub(crate) fn write(report: &BenchReport, path: &Path) -> Result<()> {
    let text = serde_json::to_string_pretty(report).context("cannot write JSON")? + "\n";
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Refuses numbers that contradict themselves.
pub(crate) fn checked(result: BenchResult) -> Result<BenchResult> {
    let BenchResult { name, value, n, min, max, .. } = &result;
    let finite = [value, min, max].iter().all(|number| number.is_finite());
    ensure!(
        finite && *n > 0 && min <= value && value <= max,
        "result {name} makes no sense: value {value} of n={n} in {min}..{max}"
    );
    ensure!(!result.unit.is_empty(), "result {name} has no unit");
    Ok(result)
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

fn machine(guest_kernels: &[&str]) -> Result<BenchMachine> {
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
    Ok(BenchMachine {
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
        assert!(checked(result(2.0, 1.0, 3.0)).is_ok());
        assert!(checked(result(4.0, 1.0, 3.0)).is_err());
        assert!(checked(result(f64::NAN, 1.0, 3.0)).is_err());
        assert!(checked(BenchResult { n: 0, ..result(2.0, 1.0, 3.0) }).is_err());
    }

    #[test]
    fn better_has_a_direction() {
        let base = Baseline { name: "old".into(), value: 4.0 };
        assert!(comparison(&result(2.0, 1.0, 3.0), &base).contains("2.00x"));
    }

    /// A file that is written here follows docs/schemas/bench.json, and one whose keys changed does
    /// not.
    #[test]
    fn the_file_follows_its_schema() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.json");
        let compared = BenchResult {
            baseline: Some(Baseline { name: "old".into(), value: 4.0 }),
            ..result(2.0, 1.0, 3.0)
        };
        let results = vec![compared, exact("size", 14.0, "MB", 1, Better::Lower)];
        let machine = machine(&[]).unwrap();
        write(&BenchReport::new("unit", "none".into(), machine, results), &path).unwrap();
        let read = |path: &Path| -> serde_json::Value {
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let schema = read(&repo::root().join("docs/schemas/bench.json"));
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let complaints = |document: &serde_json::Value| -> Vec<String> {
            validator.iter_errors(document).map(|error| error.to_string()).collect()
        };
        let mut document = read(&path);
        assert_eq!(complaints(&document), [""; 0]);
        assert_eq!(document["results"][0]["name"], "size", "sorted: {document}");
        document["results"][0]["better"] = "smaller".into();
        document["machine"].as_object_mut().unwrap().remove("guest_kernel");
        assert_eq!(complaints(&document).len(), 2, "{document}");
    }
}
