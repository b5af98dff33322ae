// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites that run in guests.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use testbed::{End, Outcome};

use super::Stage;
use super::verdict::{Total, Verdict, report};
use crate::binaries::Binaries;
use crate::lab::{self, Lab};
use crate::silicon::claims;
use crate::suite::{self, Suite};

/// What `vmtests run` exits with when the guest cannot answer the question.
const SKIPPED: i32 = 77;

/// What keeps a CPU busy for a while, beside others that do so.
pub(super) enum Job {
    /// A stage that waits for a guest for most of its time.
    Stage(&'static str, Stage),
    /// A guest for one suite or several.
    Guest(Arc<Lab>, Vec<Suite>),
}

/// A guest for each suite whose name fits, or for several.
pub(super) fn jobs(filter: &str) -> Result<Vec<Job>> {
    let binaries = Binaries::build()?;
    let mut suites = suite::list(binaries.program("vmtests")?, "--list")?;
    suites.retain(|suite| format!("vm/{}", suite.name).contains(filter));
    if suites.is_empty() {
        return Ok(Vec::new());
    }
    let lab = Arc::new(suite::lab(binaries, &suites, false)?);
    let guests = suite::by_guest(suites).into_iter();
    Ok(guests.map(|suites| Job::Guest(Arc::clone(&lab), suites)).collect())
}

/// Does as many of these at a time as there are CPUs, in this order.
pub(super) fn run(jobs: &[Job]) -> Total {
    let total = Mutex::new(Total::default());
    lab::for_each(jobs, |job| {
        let came = match job {
            Job::Stage(name, stage) => super::run(name, *stage),
            Job::Guest(lab, suites) => match suites.as_slice() {
                [suite] => alone(suite, lab),
                suites => together(suites, lab),
            },
        };
        total.lock().expect("no thread panics holding it").add(came);
    });
    total.into_inner().expect("no thread panicked holding it")
}

fn alone(suite: &Suite, lab: &Lab) -> Total {
    let start = Instant::now();
    let outcome = suite.run(lab, &["vmtests", "run", &suite.name]);
    let verdict = outcome.map(|outcome| judge(suite, &outcome));
    report(&format!("vm/{}", suite.name), start.elapsed().as_secs_f64(), verdict)
}

/// One guest for all of these: each has its own verdict, but for complaints of the kernel, of which
/// any may be the cause.
fn together(suites: &[Suite], lab: &Lab) -> Total {
    let start = Instant::now();
    let outcome = suite::run_together(suites, lab);
    let mut total = Total::default();
    for suite in suites {
        let verdict = match &outcome {
            Ok(outcome) => judge_together(suite, outcome),
            Err(error) => (Verdict::failed(format!("{error:#}")), start.elapsed().as_secs_f64()),
        };
        total.add(report(&format!("vm/{}", suite.name), verdict.1, Ok(verdict.0)));
    }
    total
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
    if !outcome.hangs_at.is_empty() {
        text += &format!("CPUs and tasks when the limit passed:\n{}\n", outcome.hangs_at);
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
}
