// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x bench GROUP`: runs a group of benchmarks and merges their results.
//!
//! Each benchmark leaves files `*.json` in the folder `$TURBOLANE_OUT`, each an
//! array of results. A result carries its unit, what is better, how many
//! repetitions it comes from and their extremes: a number without them is not
//! accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use testbed::Step;

use crate::binaries::Binaries;
use crate::lab::Lab;
use crate::repo;
use crate::silicon;
use crate::silicon::bench::{OUTSIDE, Outside};
use crate::suite::{self, Suite};

/// Raised with each incompatible change of the file's format.
const SCHEMA: u32 = 1;

/// Arguments of `./x bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group, or GROUP/NAME for one benchmark of it; without it, all are listed
    group: Option<String>,
    /// Write the results to this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct Report {
    schema: u32,
    group: String,
    commit: String,
    machine: Machine,
    results: Vec<BenchResult>,
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
    /// Repetitions behind `value`.
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

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let binaries = Binaries::build()?;
    let benches = suite::list(binaries.program("vmtests")?, "--list-benches")?;
    let Some(wanted) = &args.group else {
        print!("{}", list(&benches));
        return Ok(ExitCode::SUCCESS);
    };
    let (group, name) = match wanted.split_once('/') {
        Some((group, name)) => (group, Some(name)),
        None => (wanted.as_str(), None),
    };
    let is_chosen =
        |bench: &&Suite| bench.group == group && name.is_none_or(|name| bench.name == name);
    let chosen: Vec<Suite> = benches.iter().filter(is_chosen).cloned().collect();
    let is_outside = |outside: &&Outside| {
        group == silicon::GROUP && name.is_none_or(|name| outside.name == name)
    };
    let outside: Vec<&Outside> = OUTSIDE.iter().filter(is_outside).collect();
    let is_known = !chosen.is_empty() || !outside.is_empty();
    ensure!(is_known, "there is no benchmark {wanted}; there are:\n{}", list(&benches));
    let (report, failures) = run(group, &chosen, &outside, binaries)?;
    print(&report.results);
    if let Some(path) = &args.json {
        report.write(path)?;
    }
    // Behind the results: minutes of the others' measurements are not to be lost.
    ensure!(failures.is_empty(), "benchmarks failed:\n{}", failures.join("\n"));
    Ok(ExitCode::SUCCESS)
}

/// A line for each group: its name and its benchmarks.
fn list(benches: &[Suite]) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for bench in benches {
        groups.entry(&bench.group).or_default().push(&bench.name);
    }
    groups.entry(silicon::GROUP).or_default().extend(OUTSIDE.iter().map(|outside| outside.name));
    let width = groups.keys().map(|group| group.len()).max().unwrap_or(0);
    let line =
        |(group, names): (&str, Vec<&str>)| format!("{group:<width$}  {}\n", names.join(" "));
    groups.into_iter().map(line).collect()
}

/// Runs the benchmarks, in guests and those that look at guests from outside; what they measured, and what failed.
fn run(
    group: &str,
    benches: &[Suite],
    outside: &[&Outside],
    binaries: Binaries,
) -> Result<(Report, Vec<String>)> {
    let lab = Lab::prepare(binaries, benches, !outside.is_empty())?;
    let results = Mutex::new(Vec::new());
    let failures = Mutex::new(Vec::new());
    // On this machine one after the other, so that they do not disturb each
    // other's times; guests count instructions or compare within themselves.
    let (host, guest): (Vec<Suite>, Vec<Suite>) =
        benches.iter().cloned().partition(|bench| bench.host);
    let one = |bench: &Suite| {
        let step = Step::start(&format!("bench {}", bench.name));
        match run_one(bench, &lab) {
            Ok(new) => {
                step.done();
                results.lock().expect("nobody panics holding it").extend(new);
            }
            Err(error) => {
                let text = format!("{}: {error:#}", bench.name);
                failures.lock().expect("nobody panics holding it").push(text);
            }
        }
    };
    host.iter().for_each(one);
    suite::for_each(&guest, one);
    let mut failures = failures.into_inner().expect("nobody panicked holding it");
    let mut results = results.into_inner().expect("nobody panicked holding it");
    for Outside { name, measure } in outside {
        match measure(&lab) {
            Ok(new) => results.extend(new),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    Ok((report(group, &lab, results)?, failures))
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

fn run_one(bench: &Suite, lab: &Lab) -> Result<Vec<BenchResult>> {
    if bench.host {
        return run_here(bench, lab.binaries.program("vmtests")?);
    }
    let outcome = bench.run(lab, &["vmtests", "bench", &bench.name])?;
    if !outcome.is_clean() {
        for finding in &outcome.findings {
            eprintln!("kernel log, line {}: {}", finding.number, finding.line);
        }
        bail!(
            "{}\n{}\n{}",
            outcome.summary(),
            testbed::last_lines(&outcome.stdout, 20),
            testbed::last_lines(&outcome.stderr, 20)
        );
    }
    read_results(outcome.out_dir())
}

/// A benchmark that needs no guest.
fn run_here(bench: &Suite, program: &Path) -> Result<Vec<BenchResult>> {
    let out = tempfile::tempdir().context("cannot make a folder for the results")?;
    let mut command = Command::new(program);
    command.args(["bench", &bench.name]).env("TURBOLANE_OUT", out.path());
    let done = repo::logged(&mut command, &format!("bench-{}", bench.name))?;
    ensure!(done.success, "it failed:\n{}", testbed::last_lines(&done.text, 30));
    read_results(out.path())
}

fn read_results(folder: &Path) -> Result<Vec<BenchResult>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut results = Vec::new();
    for entry in entries {
        let path = entry.context("cannot list the results")?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).context("cannot read a result")?;
        let new: Vec<BenchResult> = serde_json::from_str(&text)
            .with_context(|| format!("{} is not an array of results", path.display()))?;
        for result in new {
            results.push(result.checked()?);
        }
    }
    ensure!(!results.is_empty(), "it left no results in $TURBOLANE_OUT/*.json");
    Ok(results)
}

impl BenchResult {
    /// Refuses numbers that contradict themselves.
    fn checked(self) -> Result<Self> {
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

fn print(results: &[BenchResult]) {
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

    #[test]
    fn results_are_read_from_all_files() {
        let dir = tempfile::tempdir().unwrap();
        let one = |name: &str| {
            format!(
                r#"[{{"name":"{name}","value":1,"unit":"ns","better":"lower","n":1,"min":1,"max":1,"baseline":null}}]"#
            )
        };
        std::fs::write(dir.path().join("a.json"), one("a")).unwrap();
        std::fs::write(dir.path().join("b.json"), one("b")).unwrap();
        std::fs::write(dir.path().join("notes.txt"), "x").unwrap();
        assert_eq!(read_results(dir.path()).unwrap().len(), 2);
    }
}
