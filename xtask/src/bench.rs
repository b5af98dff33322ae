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
use testbed::Step;

use crate::binaries::Binaries;
use crate::lab::{self, Lab};
use crate::repo;
use crate::results::{BenchReport, BenchResult, Outside, checked, print, report, write};
use crate::suite::{self, Suite};
use crate::{package, python, silicon};

/// Arguments of `./x bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The group, or GROUP/NAME for one of its benchmarks; without it, all are listed
    group: Option<String>,
    /// Also write the results to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
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
    let is_outside =
        |outside: &&Outside| group == outside.group && name.is_none_or(|name| outside.name == name);
    let outside: Vec<&Outside> = outside().filter(is_outside).collect();
    let is_known = !chosen.is_empty() || !outside.is_empty();
    ensure!(is_known, "there is no benchmark {wanted}; there are:\n{}", list(&benches));
    let (report, failures) = run(group, &chosen, &outside, binaries)?;
    print(&report.results);
    if let Some(path) = &args.json {
        write(&report, path)?;
    }
    // Behind the results: minutes of the others' measurements are not to be lost.
    ensure!(failures.is_empty(), "benchmarks failed:\n{}", failures.join("\n"));
    Ok(ExitCode::SUCCESS)
}

fn outside() -> impl Iterator<Item = &'static Outside> {
    silicon::bench::OUTSIDE.iter().chain(&package::OUTSIDE).chain(&python::OUTSIDE)
}

/// A line for each group: its name and its benchmarks.
fn list(benches: &[Suite]) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for bench in benches {
        groups.entry(&bench.group).or_default().push(&bench.name);
    }
    for outside in outside() {
        groups.entry(outside.group).or_default().push(outside.name);
    }
    let width = groups.keys().map(|group| group.len()).max().unwrap_or(0);
    let line =
        |(group, names): (&str, Vec<&str>)| format!("{group:<width$}  {}\n", names.join(" "));
    groups.into_iter().map(line).collect()
}

/// Runs the benchmarks, in guests and those that look at guests from outside; what they measured,
/// and what failed.
fn run(
    group: &str,
    benches: &[Suite],
    outside: &[&Outside],
    binaries: Binaries,
) -> Result<(BenchReport, Vec<String>)> {
    let lab = suite::lab(binaries, benches, !outside.is_empty())?;
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
                results.lock().expect("no thread panics holding it").extend(new);
            }
            Err(error) => {
                let text = format!("{}: {error:#}", bench.name);
                failures.lock().expect("no thread panics holding it").push(text);
            }
        }
    };
    host.iter().for_each(one);
    // those that may take longest first
    lab::for_each(&suite::by_guest(guest).concat(), one);
    let mut failures = failures.into_inner().expect("no thread panicked holding it");
    let mut results = results.into_inner().expect("no thread panicked holding it");
    for Outside { name, measure, .. } in outside {
        match measure(&lab) {
            Ok(new) => results.extend(new),
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    Ok((report(group, &lab, results)?, failures))
}

fn run_one(bench: &Suite, lab: &Lab) -> Result<Vec<BenchResult>> {
    if bench.host {
        return run_here(bench, lab.binaries.program("vmtests")?);
    }
    let outcome = bench.run(lab, &["vmtests", "bench", &bench.name])?;
    // What it printed says what its numbers are made of.
    let log = repo::logs()?.join(format!("bench-{}.log", bench.name));
    std::fs::write(&log, &outcome.stdout)
        .with_context(|| format!("cannot write {}", log.display()))?;
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
            results.push(checked(result)?);
        }
    }
    ensure!(!results.is_empty(), "it left no results in $TURBOLANE_OUT/*.json");
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

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
