// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of a stage, and of all of them.

use std::process::ExitCode;

use anyhow::Result;

use crate::repo;

/// Lines that a failed stage may print; the rest is in its log.
const DETAILS: usize = 150;

/// The same where all that failed is shown once more.
const AT_THE_END: usize = 60;

/// Counts of single tests; a check such as the format counts as one.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: u32,
    pub(super) failed: u32,
    pub(super) skipped: u32,
}

/// What a stage has to say.
pub(super) struct Verdict {
    pub(super) tally: Tally,
    /// Printed after the time.
    pub(super) note: String,
    /// Printed if it failed.
    pub(super) details: String,
}

/// What came of some stages.
#[derive(Default)]
pub(super) struct Total {
    tally: Tally,
    /// What was printed of each that failed.
    failures: Vec<String>,
}

/// Prints a stage's line, and what it has to say if it failed.
pub(super) fn report(name: &str, seconds: f64, verdict: Result<Verdict>) -> Total {
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
    let failures = (verdict.tally.failed > 0).then_some(text);
    Total { tally: verdict.tally, failures: failures.into_iter().collect() }
}

impl Total {
    pub(super) fn add(&mut self, other: Self) {
        self.tally.add(other.tally);
        self.failures.extend(other.failures);
    }

    /// Prints it, with what failed once more: whoever reads a long log begins at its end. Returns
    /// the exit code that goes with it.
    pub(super) fn shown(&self) -> ExitCode {
        let Tally { passed, failed, skipped } = self.tally;
        if !self.failures.is_empty() {
            println!("\nfailed:");
        }
        for failure in &self.failures {
            println!("{}", first_lines(failure, AT_THE_END));
        }
        println!("{passed} passed, {failed} failed, {skipped} skipped");
        ExitCode::from(u8::from(failed > 0))
    }
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Verdict {
    pub(super) fn of(good: bool, details: &str) -> Self {
        if good { Self::passed() } else { Self::failed(details.to_owned()) }
    }

    pub(super) fn passed() -> Self {
        let tally = Tally { passed: 1, ..Tally::default() };
        Self { tally, note: String::new(), details: String::new() }
    }

    pub(super) fn failed(details: String) -> Self {
        let tally = Tally { failed: 1, ..Tally::default() };
        Self { tally, note: String::new(), details }
    }

    pub(super) fn skipped() -> Self {
        let tally = Tally { skipped: 1, ..Tally::default() };
        Self { tally, note: String::new(), details: String::new() }
    }
}

/// The first `count` lines of a text.
fn first_lines(text: &str, count: usize) -> String {
    text.lines().take(count).collect::<Vec<_>>().join("\n")
}

/// The verdict of `cargo test`.
pub(super) fn judged(done: &repo::Finished) -> Verdict {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_added_up() {
        let text = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.0s\n\
            test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(count(text), Tally { passed: 13, failed: 2, skipped: 1 });
    }

    #[test]
    fn the_excerpt_shows_the_failure_not_the_noise() {
        let noise = "   Compiling x\n".repeat(500);
        let text = format!("{noise}---- tests::bad stdout ----\nleft: 1\nright: 2\n");
        let shown = excerpt(&text);
        assert!(shown.contains("left: 1") && !shown.contains("Compiling"));
    }
}
