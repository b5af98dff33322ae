// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x test`: all checks and tests, in the order in which they are cheapest to
//! fail.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use testbed::{Cache, End, Outcome, Step};

use crate::binaries::Binaries;
use crate::lab::{self, Lab};
use crate::python::Checked;
use crate::silicon::claims;
use crate::suite::{self, Suite};
use crate::{format, package, python, quick, repo, size, tidy, unit};

/// What `vmtests run` exits with when the guest cannot answer the question.
const SKIPPED: i32 = 77;

/// Lines that a failed stage may print; the rest is in its log.
const DETAILS: usize = 150;

/// Arguments of `./x test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only stages and suites whose name contains this: format, lint, tidy,
    /// size, unit, page, metrics, testbed, dkms, package, python, vm/SUITE
    filter: Option<String>,

    /// Only a quick check of a recent change: format, tidy, and the unit tests of packages that
    /// differ from main
    #[arg(long, conflicts_with = "filter")]
    quick: bool,

    /// With --quick: the commit before the change [default: where this branch left main]
    #[arg(long, value_name = "REV", requires = "quick")]
    base: Option<String>,
}

/// Counts of single tests; a check such as the format counts as one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    passed: u32,
    failed: u32,
    skipped: u32,
}

/// What a stage has to say.
struct Verdict {
    tally: Tally,
    /// Printed after the time.
    note: String,
    /// Printed if it failed.
    details: String,
}

type Stage = fn() -> Result<Verdict>;

const STAGES: [(&str, Stage); 11] = [
    ("format", formatting),
    ("lint", lint),
    ("tidy", tree),
    ("size", sizes),
    ("unit", unit),
    ("page", pages),
    ("metrics", metrics),
    ("testbed", guests_boot),
    ("dkms", dkms),
    ("package", packages),
    ("python", python_package),
];

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.quick {
        let stages = STAGES.iter().filter(|(name, _)| matches!(*name, "format" | "tidy"));
        let (mut total, _) = run(stages);
        let start = Instant::now();
        let step = Step::start("unit");
        let verdict = changed(args.base.as_deref());
        drop(step);
        total.add(report("unit", start.elapsed().as_secs_f64(), verdict));
        return Ok(total.shown());
    }
    let filter = args.filter.as_deref().unwrap_or("");
    let (mut total, mut ran) = run(STAGES.iter().filter(|(name, _)| name.contains(filter)));
    // A filter that names a stage asks for nothing else.
    if filter.is_empty() || ran == 0 || filter.starts_with("vm") {
        let start = Instant::now();
        match guests(filter) {
            Ok((tally, suites)) => {
                total.add(tally);
                ran += suites;
            }
            Err(error) => {
                total.add(report("vm", start.elapsed().as_secs_f64(), Err(error)));
                ran += 1;
            }
        }
    }
    if ran == 0 && !filter.is_empty() {
        bail!("no stage or suite has \"{filter}\" in its name; see ./x test --help");
    }
    Ok(total.shown())
}

/// Runs stages one after the other; what came of them, and how many they were.
fn run<'a>(stages: impl Iterator<Item = &'a (&'static str, Stage)>) -> (Tally, usize) {
    let mut total = Tally::default();
    let mut ran = 0;
    for (name, stage) in stages {
        let start = Instant::now();
        let step = Step::start(name);
        let verdict = stage();
        drop(step);
        total.add(report(name, start.elapsed().as_secs_f64(), verdict));
        ran += 1;
    }
    (total, ran)
}

/// Prints a stage's line, and what it has to say if it failed.
fn report(name: &str, seconds: f64, verdict: Result<Verdict>) -> Tally {
    let verdict = verdict.unwrap_or_else(|error| Verdict::failed(format!("{error:#}")));
    let word = match verdict.tally {
        Tally { failed: 1.., .. } => "FAILED",
        Tally { passed: 0, .. } => "skipped",
        _ => "ok",
    };
    let mut text = format!("{name:<24} {word:<7} {seconds:>6.1} s  {}", verdict.note);
    if verdict.tally.failed > 0 {
        for line in verdict.details.lines().take(DETAILS) {
            text += &format!("\n    {line}");
        }
    }
    // One call, so that lines of parallel suites do not mix.
    println!("{}", text.trim_end());
    verdict.tally
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
    let version = repo::cargo().arg("--version").output().context("cannot run cargo")?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let is_newer = minor(&version).is_some_and(|minor| minor > LINTED_BY);
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

/// The package installs into a fresh root, works there, and leaves nothing after its purge.
fn packages() -> Result<Verdict> {
    if let Some(note) = package::why_not()? {
        return Ok(Verdict { note, ..Verdict::skipped() });
    }
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

/// The verdict of `cargo test`.
fn judged(done: &repo::Finished) -> Verdict {
    let mut tally = count(&done.text);
    if !done.success && tally.failed == 0 {
        // It did not build, or a test program crashed.
        tally.failed = 1;
    }
    let note = format!("{} passed", tally.passed);
    // An ignored test is not skipped: a later stage runs it.
    tally.skipped = 0;
    Verdict { tally, note, details: excerpt(&done.text) }
}

/// Adds up the "test result:" lines of `cargo test`.
fn count(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |what: &str| {
            line.split("; ")
                .flat_map(|part| part.split(". "))
                .find_map(|part| part.strip_suffix(what)?.trim().parse::<u32>().ok())
                .unwrap_or(0)
        };
        tally.add(Tally {
            passed: number("passed"),
            failed: number("failed"),
            skipped: number("ignored"),
        });
    }
    tally
}

/// What of a long log helps to see why it failed: errors with what follows
/// them, and the output of failed tests.
fn excerpt(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_start = |line: &&str| {
        line.starts_with("error") || line.starts_with("---- ") || line.starts_with("failures:")
    };
    let mut kept: Vec<&str> = Vec::new();
    let mut until = 0;
    for (index, line) in lines.iter().enumerate() {
        if is_start(line) {
            until = index + 25;
        }
        if index < until {
            kept.push(line);
        }
    }
    if kept.is_empty() {
        kept = lines[lines.len().saturating_sub(30)..].to_vec();
    }
    kept.join("\n")
}

/// Boots a guest for each suite whose name fits. Returns also how many did.
fn guests(filter: &str) -> Result<(Tally, usize)> {
    let binaries = Binaries::build()?;
    let mut suites = suite::list(binaries.program("vmtests")?, "--list")?;
    suites.retain(|suite| format!("vm/{}", suite.name).contains(filter));
    if suites.is_empty() {
        return Ok((Tally::default(), 0));
    }
    let lab = suite::lab(binaries, &suites, false)?;
    let total = Mutex::new(Tally::default());
    let nr_suites = suites.len();
    lab::for_each(&suite::by_guest(suites), |suites| {
        let tally = match suites.as_slice() {
            [suite] => alone(suite, &lab),
            suites => together(suites, &lab),
        };
        total.lock().expect("no thread panics holding it").add(tally);
    });
    Ok((total.into_inner().expect("no thread panicked holding it"), nr_suites))
}

fn alone(suite: &Suite, lab: &Lab) -> Tally {
    let start = Instant::now();
    let outcome = suite.run(lab, &["vmtests", "run", &suite.name]);
    let verdict = outcome.map(|outcome| judge(suite, &outcome));
    report(&format!("vm/{}", suite.name), start.elapsed().as_secs_f64(), verdict)
}

/// One guest for all of these: each has its own verdict, but for complaints of the kernel, of which
/// any may be the cause.
fn together(suites: &[Suite], lab: &Lab) -> Tally {
    let start = Instant::now();
    let outcome = suite::run_together(suites, lab);
    let mut tally = Tally::default();
    for suite in suites {
        let verdict = match &outcome {
            Ok(outcome) => judge_together(suite, outcome),
            Err(error) => (Verdict::failed(format!("{error:#}")), start.elapsed().as_secs_f64()),
        };
        tally.add(report(&format!("vm/{}", suite.name), verdict.1, Ok(verdict.0)));
    }
    tally
}

fn judge_together(suite: &Suite, outcome: &Outcome) -> (Verdict, f64) {
    let (passed, seconds) =
        suite::ended(&outcome.stdout, &suite.name).unwrap_or((false, outcome.total_s));
    let mut verdict = match passed && outcome.findings.is_empty() {
        true => Verdict::passed(),
        false => Verdict::failed(details(outcome) + &how_to_repeat(suite)),
    };
    verdict.note = "in a shared guest".into();
    (verdict, seconds)
}

fn how_to_repeat(suite: &Suite) -> String {
    format!("repeat it: ./x test vm/{}\n", suite.name)
}

/// A suite passes if it says so, the kernel has nothing to complain about, and a dim-silicon
/// machine did what the suite saw.
fn judge(suite: &Suite, outcome: &Outcome) -> Verdict {
    let mut note = outcome.summary();
    let mut verdict = match outcome.end {
        End::Exited(0) if outcome.findings.is_empty() => match claims::check(outcome) {
            Ok(compared) => {
                note.extend(compared.map(|compared| format!("; {compared}")));
                Verdict::passed()
            }
            Err(error) => Verdict::failed(format!("{error:#}\n{}", details(outcome))),
        },
        End::Exited(SKIPPED) if outcome.findings.is_empty() => Verdict::skipped(),
        _ => Verdict::failed(details(outcome)),
    };
    verdict.note = note;
    if verdict.tally.skipped > 0 {
        verdict.note = last_line(&outcome.stdout).unwrap_or("no reason given").to_owned();
    }
    if verdict.tally.failed > 0 {
        verdict.details += &how_to_repeat(suite);
    }
    verdict
}

fn details(outcome: &Outcome) -> String {
    let mut text = String::new();
    if let End::Died(why) = &outcome.end {
        text += &format!("{why}\n");
    }
    for finding in &outcome.findings {
        text += &format!("kernel log, line {}: {}\n", finding.number, finding.line);
    }
    for (name, output) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if !output.trim().is_empty() {
            text += &format!("{name}:\n{}\n", testbed::last_lines(output, 40));
        }
    }
    if let Some(first) = outcome.findings.first() {
        text += &format!("kernel log:\n{}\n", log_from(&outcome.kernel_log, first.number));
    }
    text
}

/// Of a kernel log, what was found and what follows: a stall is followed by what each CPU did.
const LOG_LINES: usize = 160;

/// A log from a little before a line on; lines are numbered from 1.
fn log_from(log: &str, line: usize) -> String {
    let lines: Vec<&str> = log.lines().skip(line.saturating_sub(4)).take(LOG_LINES).collect();
    lines.join("\n")
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().rfind(|line| !line.trim().is_empty())
}

impl Tally {
    /// Prints it; the exit code that goes with it.
    fn shown(self) -> ExitCode {
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped);
        ExitCode::from(u8::from(self.failed > 0))
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Verdict {
    fn of(good: bool, details: &str) -> Self {
        if good { Self::passed() } else { Self::failed(details.to_owned()) }
    }

    fn passed() -> Self {
        let tally = Tally { passed: 1, ..Tally::default() };
        Self { tally, note: String::new(), details: String::new() }
    }

    fn failed(details: String) -> Self {
        let tally = Tally { failed: 1, ..Tally::default() };
        Self { tally, note: String::new(), details }
    }

    fn skipped() -> Self {
        let tally = Tally { skipped: 1, ..Tally::default() };
        Self { tally, note: String::new(), details: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_shown_from_what_was_found_on() {
        let log: Vec<String> = (1..400).map(|line| format!("line {line}")).collect();
        let shown = log_from(&log.join("\n"), 100);
        assert!(shown.starts_with("line 97\n") && shown.ends_with("line 256"), "{shown}");
        assert_eq!(log_from("a\nb", 1), "a\nb");
    }

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let text = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Tally { passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn a_version_is_read() {
        assert_eq!(minor("cargo 1.95.0 (f2d3ce0bd 2026-03-21)"), Some(95));
        assert_eq!(minor("cargo 1.100.0-nightly (f2d3ce0bd 2026-03-21)"), Some(100));
        assert_eq!(minor("cargo"), None);
    }

    #[test]
    fn the_excerpt_shows_the_failure_not_the_noise() {
        let noise = "   Compiling x\n".repeat(500);
        let text = format!("{noise}---- tests::bad stdout ----\nleft: 1\nright: 2\n");
        let shown = excerpt(&text);
        assert!(shown.contains("left: 1") && !shown.contains("Compiling"));
    }
}
