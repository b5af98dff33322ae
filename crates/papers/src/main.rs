// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program `papers`: prints the papers' figures next to simulated ones.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use papers::published::{PAPER_FILES, Paper};
use papers::{Effort, reproduce};
use report::json_line;
use report::problem::Problem;

/// Columns of the text, where the terminal does not say how wide it is.
const COLUMNS: usize = 100;
const FOUND: u8 = 1;
const FAILED: u8 = 2;

/// Simulate the papers' experiments and compare the results with the published figures
///
/// Prints each figure of the evaluations next to the simulated one (mean of all seeds, and standard
/// deviation), with the error, and whether the figure calibrated the model, follows from what was
/// put in, or is predicted. Constants that no unmitigated figure sets are varied; where they change
/// a figure, its range is printed, and it is predicted only if the entire range is within the
/// tolerance. Core specialisation is simulated with the papers' prototypes; the result of
/// Turbolane's policy is shown alongside. A miss is followed by the same experiment with the change
/// that is held to be its cause, or by "not explained".
#[derive(Parser)]
#[command(name = "papers", bin_name = "papers", max_term_width = 100)]
#[command(after_long_help = "\
Exit codes: 0 done; 1 a published ranking does not hold; 2 there is no such paper, or the output
cannot be written.

Examples:
  ./x papers                 all five papers
  ./x papers --seeds 1       the same in a fifth of the time
  ./x papers systor --json")]
struct Args {
    /// Short names of papers [default: SFMA, SYSTOR, THESIS, DIM and TURBO]
    #[arg(value_name = "PAPER")]
    papers: Vec<String>,
    /// Simulate with random seeds 1 to N
    #[arg(long, value_name = "N", default_value_t = Effort::FULL.seeds)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    run(&Args::parse()).unwrap_or_else(|problem| {
        // Nothing is left to do about a standard error that is closed.
        _ = io::stderr().write_all(problem.text(columns()).as_bytes());
        ExitCode::from(FAILED)
    })
}

fn run(args: &Args) -> Result<ExitCode, Problem> {
    let all: Vec<String> = PAPER_FILES.map(|(name, _)| name.to_string()).into();
    let names = if args.papers.is_empty() { &all } else { &args.papers };
    let papers = names.iter().map(|name| paper(name)).collect::<Result<Vec<_>, _>>()?;
    let reproduction = reproduce(&papers, Effort::of(args.seeds));
    let text = match args.json {
        true => json_line(&reproduction) + "\n",
        false => reproduction.text(columns()),
    };
    print(&text)?;
    let holds = reproduction.score.order_violations == 0;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}

/// A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<(), Problem> {
    let mut out = io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Problem::new("cannot write the output", error.to_string(), "check where it goes"))
        }
        _ => Ok(()),
    }
}

fn columns() -> usize {
    std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok()).unwrap_or(COLUMNS)
}

fn paper(name: &str) -> Result<Paper, Problem> {
    let Some(paper) = Paper::built_in(name) else {
        let known: Vec<&str> = PAPER_FILES.iter().map(|(name, _)| *name).collect();
        return Err(Problem::new(
            format!("there is no paper \"{name}\""),
            format!("the papers are {}", known.join(", ")),
            "name one of them",
        ));
    };
    paper.map_err(|error| {
        let what = format!("cannot use the built-in data of {name}, line {}", error.line);
        Problem::new(what, error.what, error.next)
    })
}
