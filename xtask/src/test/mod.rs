// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: all checks and tests, in the order in which they are cheapest to
//! fail.

mod guests;
mod verdict;

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testbed::{Cache, Step};

use self::guests::Job;
use self::verdict::{Tally, Total, Verdict, judged, report};
use crate::binaries::Binaries;
use crate::python::Checked;
use crate::{crates, format, package, python, quick, repo, size, tidy, unit};

/// Arguments of `./x test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only stages and suites whose name contains this: format, lint, tidy,
    /// size, crates, unit, page, metrics, testbed, dkms, package, python, vm/SUITE
    filter: Option<String>,

    /// Only a quick check of a recent change: format, tidy, and the unit tests of packages that
    /// differ from main
    #[arg(long, conflicts_with = "filter")]
    quick: bool,

    /// With --quick: the commit before the change [default: where this branch left main]
    #[arg(long, value_name = "REV", requires = "quick")]
    base: Option<String>,
}

type Stage = fn() -> Result<Verdict>;

const STAGES: [(&str, Stage); 12] = [
    ("format", formatting),
    ("lint", lint),
    ("tidy", tree),
    ("size", sizes),
    ("crates", published),
    ("unit", unit),
    ("page", pages),
    ("metrics", metrics),
    ("testbed", guests_boot),
    ("dkms", dkms),
    ("package", packages),
    ("python", python_package),
];

/// Of these, those that wait for one guest for minutes: the suites' guests run beside them.
const BESIDE_GUESTS: [&str; 1] = ["package"];

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.quick {
        let mut total = Total::default();
        for (name, stage) in STAGES.iter().filter(|(name, _)| matches!(*name, "format" | "tidy")) {
            total.add(run(name, *stage));
        }
        let start = Instant::now();
        let step = Step::start("unit");
        let verdict = changed(args.base.as_deref());
        drop(step);
        total.add(report("unit", start.elapsed().as_secs_f64(), verdict));
        return Ok(total.shown());
    }
    let filter = args.filter.as_deref().unwrap_or("");
    let named = || STAGES.into_iter().filter(|(name, _)| name.contains(filter));
    let mut total = Total::default();
    for (name, stage) in named().filter(|(name, _)| !BESIDE_GUESTS.contains(name)) {
        total.add(run(name, stage));
    }
    let beside = named().filter(|(name, _)| BESIDE_GUESTS.contains(name));
    let mut jobs: Vec<Job> = beside.map(|(name, stage)| Job::Stage(name, stage)).collect();
    let nr_stages = named().count();
    let mut is_known = nr_stages > 0;
    // A filter that names a stage asks for nothing else.
    if filter.is_empty() || nr_stages == 0 || filter.starts_with("vm") {
        let start = Instant::now();
        match guests::jobs(filter) {
            Ok(guests) => {
                is_known |= !guests.is_empty();
                jobs.extend(guests);
            }
            Err(error) => {
                is_known = true;
                total.add(report("vm", start.elapsed().as_secs_f64(), Err(error)));
            }
        }
    }
    if !is_known {
        bail!("no stage or suite has \"{filter}\" in its name; see ./x test --help");
    }
    total.add(guests::run(&jobs));
    Ok(total.shown())
}

/// Runs a stage; what came of it.
fn run(name: &str, stage: Stage) -> Total {
    let start = Instant::now();
    let step = Step::start(name);
    let verdict = stage();
    drop(step);
    report(name, start.elapsed().as_secs_f64(), verdict)
}

fn formatting() -> Result<Verdict> {
    let files = format::misformatted()?;
    let details = format!("not formatted; ./x fmt does it:\n{}", files.join("\n"));
    Ok(Verdict::of(files.is_empty(), &details))
}

/// The newest Rust, 1.N, whose lints this tree is free of. Lints of a newer version are new rules
/// for old code: they are reported and do not fail the test, or the tree would break without a
/// change.
const LINTED_BY: u32 = 99;

fn lint() -> Result<Verdict> {
    let is_newer = cargo_minor()?.is_some_and(|minor| minor > LINTED_BY);
    let mut clippy = repo::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--quiet"]);
    if !is_newer {
        clippy.args(["--", "-D", "warnings"]);
    }
    let done = repo::logged(&mut clippy, "clippy")?;
    let mut verdict = Verdict::of(done.success, &done.text);
    if is_newer && done.success && !done.text.is_empty() {
        verdict.note = format!("newer than Rust 1.{LINTED_BY}, whose lints count: see clippy.log");
    }
    Ok(verdict)
}

fn cargo_minor() -> Result<Option<u32>> {
    let version = repo::cargo().arg("--version").output().context("cannot run cargo")?;
    Ok(minor(&String::from_utf8_lossy(&version.stdout)))
}

/// 95 of "cargo 1.95.0 (f2d3ce0bd 2026-03-21)".
fn minor(version: &str) -> Option<u32> {
    version.split_whitespace().nth(1)?.split('.').nth(1)?.parse().ok()
}

fn tree() -> Result<Verdict> {
    let complaints = tidy::check(&tidy::Tree::load()?);
    Ok(Verdict::of(complaints.is_empty(), &complaints.join("\n")))
}

/// Libraries that programs of any kind carry along are small.
fn sizes() -> Result<Verdict> {
    let (fits, note) = size::check()?;
    Ok(Verdict { note: note.clone(), ..Verdict::of(fits, &note) })
}

/// The published crates build from their packages alone.
fn published() -> Result<Verdict> {
    if cargo_minor()?.is_none_or(|minor| minor < crates::NEEDED) {
        let note = format!("cargo 1.{} or newer packs crates that use each other", crates::NEEDED);
        return Ok(Verdict { note, ..Verdict::skipped() });
    }
    let (found, note) = crates::check()?;
    Ok(Verdict { note, ..Verdict::of(found.is_empty(), &found.join("\n")) })
}

fn unit() -> Result<Verdict> {
    // All of them, however many fail: one run shows everything.
    Ok(judged(&unit::test()?))
}

/// The unit tests of the packages that have changed.
fn changed(base: Option<&str>) -> Result<Verdict> {
    let (packages, targets) = quick::changed(base)?;
    if packages.is_empty() {
        return Ok(Verdict { note: "no package has changed".into(), ..Verdict::skipped() });
    }
    let mut args = targets;
    args.extend(packages.iter().flat_map(|package| ["-p", package]));
    args.push("--no-fail-fast");
    let verdict = judged(&repo::logged(repo::cargo().arg("test").args(&args), "quick")?);
    let note = format!("{}: {}", verdict.note, packages.join(" "));
    Ok(Verdict { note, ..verdict })
}

/// The tests that look at HTML reports in a browser; `./x test` installs one if it can.
fn pages() -> Result<Verdict> {
    let done = unit::ignored("page", |_| ())?;
    match done.text.lines().find_map(|line| line.strip_prefix("skipped (77): ")) {
        Some(why) => Ok(Verdict { note: why.to_owned(), ..Verdict::skipped() }),
        None => Ok(judged(&done)),
    }
}

/// Prometheus accepts the metrics of a run, and its alerts do what they should.
fn metrics() -> Result<Verdict> {
    let promtool = testbed::promtool(&Cache::open()?)?;
    Ok(judged(&unit::ignored("cli", |tests| {
        tests.arg("metrics::").env("PROMTOOL", promtool);
    })?))
}

/// The tests of the test machines themselves, which boot some.
fn guests_boot() -> Result<Verdict> {
    testbed::prepare(&Cache::open()?)?;
    Ok(judged(&unit::ignored("guest", |_| ())?))
}

/// The module as users install it is the one that the guests test.
fn dkms() -> Result<Verdict> {
    let cache = Cache::open()?;
    let images = testbed::prepare(&cache)?;
    let difference = package::compare_dkms(&cache, &images.kernel)?;
    Ok(Verdict::of(difference.is_none(), &difference.unwrap_or_default()))
}

/// The package installs on a fresh machine, works there, and leaves nothing after its purge.
fn packages() -> Result<Verdict> {
    let (is_good, note, details) = package::check()?;
    Ok(Verdict { note, ..Verdict::of(is_good, &details) })
}

/// The Python package's wheel, its style, types and tests.
fn python_package() -> Result<Verdict> {
    let interpreter = match python::interpreter() {
        Ok(interpreter) => interpreter,
        Err(error) => return Ok(Verdict { note: format!("{error:#}"), ..Verdict::skipped() }),
    };
    let binaries = Binaries::build()?;
    let python = python::Python::prepare(interpreter)?;
    let Checked { passed, failed, skipped, note, details } =
        python.check(binaries.program("turbolane")?)?;
    Ok(Verdict { tally: Tally { passed, failed, skipped }, note, details })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read() {
        assert_eq!(minor("cargo 1.95.0 (f2d3ce0bd 2026-03-21)"), Some(95));
        assert_eq!(minor("cargo 1.100.0-nightly (f2d3ce0bd 2026-03-21)"), Some(100));
        assert_eq!(minor("cargo"), None);
    }
}
