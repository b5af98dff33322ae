// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane trace --scenario`: a recorded service as a scenario of the simulator.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use cpumodel::CpuSet;
use report::problem::Problem;
use report::text::{duration, wrap};
use sched::parse::duration_ns;
use sim::scenario::Scenario;
use sim::scenario::recorded::{Arrivals, Collector, Made, Request, Unusable};
use trace::{Ending, Info};

use super::export::{RecordedOn, mark};
use super::{follow, open};
use crate::failure::Failure;
use crate::output_file;
use crate::terminal;

/// A scenario of what was recorded.
#[derive(Args)]
pub(super) struct ScenarioArgs {
    /// Write what the recorded tasks did as a scenario for `turbolane sim`
    ///
    /// Each task becomes a program: cycles of scalar and wide code, sleeps, and waits for the tasks
    /// that woke it. Marks, or recorded licence levels, show what is wide. `turbolane sim OUT
    /// --machine ID` then predicts what the service gets done on that CPU under each policy. Needs
    /// --machine.
    #[arg(long, value_name = "OUT", requires = "machine", group = "work")]
    #[arg(conflicts_with_all = ["json", "check", "perfetto", "timeline"])]
    scenario: Option<PathBuf>,
    /// With --scenario: what ends sleeps that no recorded task ended
    ///
    /// closed: such a sleep lasts as long as recorded, so a faster machine gets more done. open:
    /// such sleeps end at the recorded rate, so a faster machine answers sooner. The default is
    /// closed if the CPUs limit the load (its tasks seldom sleep, or wait for CPUs for a tenth of
    /// the time that they run), otherwise open.
    #[arg(long, value_name = "MODE", requires = "scenario")]
    arrivals: Option<ArrivalsArg>,
    /// With --scenario: count returns from this marked function as work [default: millions of
    /// cycles]
    #[arg(long, value_name = "FUNCTION", requires = "scenario")]
    count: Option<String>,
    /// With --scenario: add a variant `none`, in which wide code is scalar and takes N times as
    /// many cycles
    #[arg(long, value_name = "N", requires = "scenario", value_parser = scale)]
    none_scale: Option<f64>,
    /// With --scenario: take only this part of the recording, as FROM-TO since its start, such as
    /// 2s-5s; FROM- takes everything after FROM
    #[arg(long, value_name = "FROM-TO", requires = "scenario", value_parser = window)]
    window: Option<Range<u64>>,
    /// With --scenario: tasks that were bound to CPUs run on these CPUs instead; if there are more
    /// CPUs than before, the number of tasks grows in proportion
    #[arg(long, value_name = "LIST", requires = "scenario", value_parser = cpus)]
    onto: Option<CpuSet>,
    /// With --scenario: part of the work that follows the clock, 0 to 1; the rest waits for memory,
    /// and is as fast on every machine
    #[arg(long, value_name = "N", default_value_t = 1.0, requires = "scenario")]
    #[arg(value_parser = sensitive)]
    sensitive_frac: f64,
}

/// Reads `--sensitive-frac`.
fn sensitive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(frac) if (0.0..=1.0).contains(&frac) => Ok(frac),
        _ => Err("write a number from 0 to 1".into()),
    }
}

/// Reads `--onto`.
fn cpus(text: &str) -> Result<CpuSet, String> {
    match text.parse::<CpuSet>() {
        Ok(cpus) if !cpus.is_empty() => Ok(cpus),
        Ok(_) => Err("it is empty; write CPUs such as 0-3,8".into()),
        Err(error) => Err(format!("{error}; write CPUs such as 0-3,8")),
    }
}

/// Reads `--window`.
fn window(text: &str) -> Result<Range<u64>, String> {
    let wrong = || "write two times, such as 2s-5s, or 2s- for the rest".to_owned();
    let (from, to) = text.split_once('-').ok_or_else(wrong)?;
    let time =
        |text: &str| duration_ns(text).map_err(|error| format!("{}; {}", error.why, error.next));
    let (from_ns, to_ns) = (time(from)?, if to.is_empty() { u64::MAX } else { time(to)? });
    if from_ns < to_ns {
        Ok(from_ns..to_ns)
    } else {
        Err(format!("it ends before it begins; {}", wrong()))
    }
}

/// As [`Arrivals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ArrivalsArg {
    Closed,
    Open,
}

/// Reads `--none-scale`.
fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1000.0 => Ok(scale),
        _ => Err("write a number above 0 and up to 1,000".into()),
    }
}

impl ScenarioArgs {
    /// Writes the scenario, if one is asked for. Returns what is to be said of it.
    pub(super) fn write(&self, path: &Path, on: &RecordedOn) -> Result<Option<String>, Failure> {
        let Some(out) = &self.scenario else { return Ok(None) };
        let Some((_, platform)) = on.read()? else { return Ok(None) };
        let mut reader = open(path)?;
        let info = reader.info().clone();
        let counts = match &self.count {
            Some(function) => Some(mark(path, &info, function)?),
            None => None,
        };
        let window_ns = self.window.clone().unwrap_or(0..u64::MAX);
        let mut collector = Collector::new(&info, window_ns, counts);
        let (follower, ending) = follow(path, &mut reader, &mut collector)?;
        let end_ns = ending.at_ns(follower.now_ns());
        let request = Request {
            name: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            machine: on.machine.clone().unwrap_or_default(),
            platform: &platform,
            active_cores: on.active_cores,
            arrivals: self.arrivals.map(|arrivals| match arrivals {
                ArrivalsArg::Closed => Arrivals::Closed,
                ArrivalsArg::Open => Arrivals::Open,
            }),
            counts,
            none_scale: self.none_scale,
            onto: self.onto,
            sensitive_frac: self.sensitive_frac,
            is_partial: matches!(ending, Ending::Partial { .. }),
        };
        let made = collector
            .finish(&info, follower.tasks(), end_ns, &request)
            .map_err(|why| unusable(path, &info, why))?;
        if let Err(error) = Scenario::from_toml(&made.text) {
            // Then this program is at fault, and the file would be refused later.
            return Err(Failure::failed(Problem::bad_data(&out.display().to_string(), &error)));
        }
        output_file::write(out, &made.text)?;
        Ok(Some(text(out, &made)))
    }
}

fn unusable(path: &Path, info: &Info, why: Unusable) -> Failure {
    let next = match &why {
        Unusable::Lost(_) => "record again with a larger --buffer, or for a shorter time".into(),
        Unusable::NoWide => format!(
            "record with marks (turbolane scan --marks FILE PROGRAM, record --marks FILE), or where licence counters are ({})",
            match info.license_counters.as_str() {
                "" => "the recording says nothing about them",
                counters => counters,
            }
        ),
        Unusable::Empty => {
            "record while the service is busy; --window must lie in the recording".into()
        }
        Unusable::TooSmall { .. } => "give the CPU that was recorded: --machine".into(),
        Unusable::Uncounted => "--count takes a marked function that the service calls".into(),
    };
    let what = format!("cannot make a scenario of {}", path.display());
    Failure::failed(Problem::new(what, why.to_string(), next))
}

/// Groups that are printed.
const GROUPS_MAX: usize = 12;

fn text(out: &Path, made: &Made) -> String {
    let out = out.display();
    let mut text = format!("wrote {out}; turbolane sim {out} -p fair -p lane\n\n");
    text += &format!(
        "{:<16} {:>6} {:>9} {:>7} {:>12}\n",
        "GROUP", "TASKS", "CPU TIME", "WIDE", "WOKEN"
    );
    let per_s = |nr: u64| nr as f64 * 1e9 / made.recorded_ns.max(1) as f64;
    for group in made.groups.iter().take(GROUPS_MAX) {
        text += &format!(
            "{:<16} {:>6} {:>7.1} % {:>5.1} % {:>10.1}/s\n",
            group.name,
            group.tasks,
            group.share * 100.0,
            group.wide * 100.0,
            per_s(group.arrivals)
        );
    }
    let more = made.groups.len().saturating_sub(GROUPS_MAX);
    if more > 0 {
        text += &format!("and {more} more\n");
    }
    text += "\n";
    let mut note = |label: &str, what: &str| text += &wrap(label, what, terminal::width());
    note("work:     ", &format!("counted as: {}", made.work));
    note(
        "arrivals: ",
        match made.arrivals {
            Arrivals::Closed => {
                "closed: what ends sleeps takes as long as it did (--arrivals open: it comes at the recorded rate)"
            }
            Arrivals::Open => {
                "open: what ends sleeps comes at the recorded rate (--arrivals closed: it takes as long as it did)"
            }
        },
    );
    let clock = match made.counted {
        true => "counted by the CPU".to_owned(),
        false => format!(
            "time at the clock that the licence model gives each core, with {} active cores",
            made.active_cores
        ),
    };
    note("cycles:   ", &clock);
    if made.window_ns < made.recorded_ns {
        let (used, all) = (duration(made.window_ns), duration(made.recorded_ns));
        note("window:   ", &format!("the first {used} of {all}: more would be too many steps"));
    }
    for gap in &made.gaps {
        note("note:     ", gap);
    }
    let (tasks, share) = made.left_out;
    if tasks > 0 {
        let share = share * 100.0;
        note("left out: ", &format!("{tasks} tasks that ran little, {share:.1} % of all CPU time"));
    }
    text
}
