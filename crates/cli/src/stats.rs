// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane stats`: what a running scheduler has counted.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use report::ctl::{Reply, Request};
use report::lane::LaneStats;
use report::metrics::{Format, Scrape};
use report::problem::Problem;
use report::stats::Statistics;
use report::text::wrap;
use report::{Document, csv, json_line};
use sched::parse::{ParseError, duration_at_least};

use crate::client::{At, Client};
use crate::failure::{Failure, print};
use crate::table_format::TableFormat;
use crate::terminal;

/// Show the statistics of a running scheduler
///
/// Without --monitor: all statistics since its start, with the meaning of each number. With it: one
/// line per interval, for that interval only, until Ctrl-C.
#[derive(Args)]
#[command(after_long_help = "\
Examples:
  turbolane stats                      all statistics since the start
  turbolane stats --monitor 1s         one line per second
  turbolane stats --monitor 1s --json  the same for a program
  turbolane stats --openmetrics        all statistics for a collector of metrics")]
pub(crate) struct StatsArgs {
    /// Print a line per interval until Ctrl-C
    #[arg(long, value_name = "INTERVAL", value_parser = interval)]
    monitor: Option<Duration>,
    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,
    /// Print OpenMetrics text
    ///
    /// The same metrics as in the file of `turbolane run --metrics`.
    #[arg(long, conflicts_with_all = ["monitor", "json", "format"])]
    openmetrics: bool,
    /// Print the statistics in another format; csv: a line per interval with --monitor
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<TableFormat>,
    /// Explain every statistic and exit
    #[arg(long)]
    help_stats: bool,
    #[command(flatten)]
    at: At,
}

/// Lines between two repetitions of the titles.
const LINES_PER_HEAD: usize = 20;

/// Shortest interval: shorter ones measure the monitor.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Reads an interval between two lines of statistics.
pub(crate) fn interval(text: &str) -> Result<Duration, ParseError> {
    duration_at_least(text, MIN_INTERVAL, "an interval below 100ms measures the monitor")
}

/// What `--help-stats` prints.
pub(crate) fn help() -> String {
    let width = terminal::width();
    let head = "Statistics of turbolane run and turbolane stats. JSON keys are the names below; null \
        means unknown. COLUMN is the title of the column in the lines per interval. They show the growth of a \
        counter over the interval, and the latest value of a gauge.";
    format!("{}\n{}", wrap("", head, width), LaneStats::help(width))
}

/// How a line per interval is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// The most important ones, below titles.
    Text,
    /// A document.
    Json,
    /// Cells, below one line of names.
    Csv,
}

/// Statistics over one interval after the other, as lines.
pub(crate) struct Lines {
    format: LineFormat,
    printed: usize,
    last: LaneStats,
}

impl Lines {
    /// Lines that start from `first`.
    pub(crate) fn new(format: LineFormat, first: LaneStats) -> Self {
        Lines { format, printed: 0, last: first }
    }

    /// What happened since the last call, with titles above it now and then.
    pub(crate) fn next(&mut self, now: LaneStats) -> String {
        let interval = now.since(&self.last);
        self.last = now;
        let printed = self.printed;
        self.printed += 1;
        match self.format {
            LineFormat::Json => json_line(&Document::new(interval)) + "\n",
            LineFormat::Csv => {
                let table = csv::table(&[interval]);
                let with_names = if printed == 0 { 0 } else { 1 };
                table.split_inclusive('\n').skip(with_names).collect()
            }
            LineFormat::Text if printed.is_multiple_of(LINES_PER_HEAD) => {
                format!("{}\n{}\n", LaneStats::line_head(), interval.line())
            }
            LineFormat::Text => interval.line() + "\n",
        }
    }
}

/// Prints the statistics of the running scheduler.
pub(crate) fn main(args: &StatsArgs) -> Result<ExitCode, Failure> {
    if args.help_stats {
        print(&help())?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.monitor.is_some() && args.format == Some(TableFormat::Markdown) {
        return Err(Failure::failed(Problem::new(
            "cannot use --format markdown with --monitor",
            "a line per interval is no table of Markdown",
            "use --format csv, or leave --monitor out",
        )));
    }
    let mut client = Client::connect(&args.at)?;
    let first = fetch(&mut client)?;
    if args.openmetrics {
        print(&openmetrics(&mut client, first)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(interval) = args.monitor else {
        let text = match args.format {
            Some(TableFormat::Csv) => csv::table(&[first]),
            Some(TableFormat::Markdown) => first.table().markdown(),
            None if args.json => json_line(&Document::new(first)) + "\n",
            None => first.table().text(terminal::width()),
        };
        print(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let format = match args.format {
        Some(TableFormat::Csv) => LineFormat::Csv,
        _ if args.json => LineFormat::Json,
        _ => LineFormat::Text,
    };
    let mut lines = Lines::new(format, first);
    loop {
        std::thread::sleep(interval);
        let line = lines.next(fetch(&mut client)?);
        print(&line)?;
    }
}

fn openmetrics(client: &mut Client, stats: LaneStats) -> Result<String, Failure> {
    match client.ask(&Request::Status)? {
        Reply::Status(status) => {
            let version = env!("CARGO_PKG_VERSION").into();
            Ok(Scrape { version, status, stats }.text(Format::OpenMetrics))
        }
        other => Err(crate::client::unexpected(&other)),
    }
}

fn fetch(client: &mut Client) -> Result<LaneStats, Failure> {
    match client.ask(&Request::Stats)? {
        Reply::Stats(stats) => Ok(*stats),
        other => Err(crate::client::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Titles come first and again after a screenful; each line is about its own interval.
    #[test]
    fn lines_repeat_their_titles() {
        let at = |migrations| LaneStats { migrations: Some(migrations), ..LaneStats::default() };
        let mut lines = Lines::new(LineFormat::Text, at(10));
        let first = lines.next(at(15));
        assert!(first.starts_with(&LaneStats::line_head()), "{first}");
        assert!(first.lines().nth(1).is_some_and(|line| line.contains(" 5 ")), "{first}");
        for _ in 1..LINES_PER_HEAD {
            assert_eq!(lines.next(at(15)).lines().count(), 1);
        }
        assert_eq!(lines.next(at(15)).lines().count(), 2);
    }

    /// CSV has its names once.
    #[test]
    fn csv_has_one_head() {
        let at = |migrations| LaneStats { migrations: Some(migrations), ..LaneStats::default() };
        let mut lines = Lines::new(LineFormat::Csv, at(10));
        let first = lines.next(at(15));
        let (head, line) = first.split_once("\r\n").unwrap();
        assert!(head.starts_with("interval_ns,wide_cpus,"), "{head}");
        assert!(line.contains(",5,"), "{line}");
        assert_eq!(lines.next(at(15)).matches('\n').count(), 1);
    }

    /// An interval needs its unit and a sensible length.
    #[test]
    fn bad_intervals_fail() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert!(interval("1").unwrap_err().why.contains("has no unit"));
        assert!(interval("1ms").unwrap_err().why.contains("below 100ms"));
    }
}
