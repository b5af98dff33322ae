// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzzes the policy for a time, or shows the end of one case. `./x bench sim` runs it.
//!
//! ```text
//!   fuzz SECONDS [FIRST_SEED]    cases until the time is up; stops at the first failure
//!   fuzz case SEED [LINES]       the last events before the end or the failure of one case
//! ```

use std::collections::VecDeque;
use std::process::ExitCode;
use std::time::Instant;

use sim::events::{Happened, Sink};
use sim::fuzz::{run_case, run_case_seen};

/// Keeps the last events as text. Stops keeping at the first event after a failure would have
/// been reported, because the case goes on to its end: hence `until_ns`.
struct Tail {
    lines: VecDeque<String>,
    most: usize,
    until_ns: u64,
}

impl Sink for Tail {
    const WANTED: bool = true;
    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        if at_ns > self.until_ns {
            return;
        }
        self.lines.push_back(format!("{at_ns:>12} {what:?}"));
        if self.lines.len() > self.most {
            self.lines.pop_front();
        }
    }
}

fn number(arg: Option<&String>) -> Option<u64> {
    arg.and_then(|text| text.parse().ok())
}

fn show(seed: u64, most: usize) -> ExitCode {
    let outcome = run_case(seed, None);
    let until_ns = match &outcome {
        Err(sim::fuzz::Failure::Broken { violation, .. }) => violation.at_ns,
        _ => u64::MAX,
    };
    let mut tail = Tail { lines: VecDeque::new(), most, until_ns };
    let _ = run_case_seen(seed, None, &mut tail);
    tail.lines.iter().for_each(|line| println!("{line}"));
    match outcome {
        Ok(checked) => println!("seed {seed}: {checked:?}"),
        Err(failure) => {
            println!("{failure}");
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "case") {
        let most = number(args.get(2)).unwrap_or(60) as usize;
        return show(number(args.get(1)).unwrap_or(0), most);
    }
    let seconds = number(args.first()).unwrap_or(10);
    let first = number(args.get(1)).unwrap_or(0);
    let begun = Instant::now();
    let (mut seed, mut decisions, mut events) = (first, 0, 0);
    while begun.elapsed().as_secs() < seconds {
        match run_case(seed, None) {
            Ok(checked) => {
                decisions += checked.decisions;
                events += checked.events;
            }
            Err(failure) => {
                println!("{failure}");
                return ExitCode::from(1);
            }
        }
        seed += 1;
    }
    let cases = seed - first;
    println!(
        "{cases} cases from seed {first}, {decisions} decisions, {events} events: no violation"
    );
    ExitCode::SUCCESS
}
