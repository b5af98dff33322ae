// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane trace --perfetto` and `--timeline`: a recording in other programs' formats.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use clap::Args;
use cpumodel::{CpuModel, Platform, Times};
use dvfs::Core;
use report::problem::Problem;
use report::text::wrap;
use report::timeline::{self, Header, Moment};
use sched::parse::{ParseError, duration_ns};
use trace::Info;
use trace::demand::Bound;
use trace::follow::Visit;
use trace::perfetto::Perfetto;
use trace::timeline::{Calls, Export, Hardware, Of, Scored, Timeline};

use super::{follow, open};
use crate::failure::{Failure, unwritable};
use crate::output_file;
use crate::sim::input::model;
use crate::terminal;

/// A timeline of one CPU or one task.
#[derive(Args)]
pub(super) struct TimelineArgs {
    /// Write what one CPU or task executed as a timeline for `turbolane sim --replay`
    ///
    /// Time in marked functions is work of their level, other time on the CPU is scalar work, the
    /// rest is idle. If the recording has licence levels but no marks, time at a raised level is
    /// wide work, excluding the hold time after it. A CPU's timeline has the level that power
    /// scores predict at each switch, for --dvfs switches. Needs --machine, and --cpu or --task.
    #[arg(long, value_name = "OUT", requires = "machine", requires = "whose", group = "work")]
    #[arg(conflicts_with_all = ["json", "check", "perfetto"])]
    timeline: Option<std::path::PathBuf>,
    /// With --timeline: use the base clock, for `turbolane sim --replay --no-turbo`
    #[arg(long, requires = "timeline", conflicts_with = "active_cores")]
    no_turbo: bool,
    /// With --timeline: this CPU, from a recording of the entire machine
    #[arg(long, value_name = "N", requires = "timeline", group = "whose")]
    cpu: Option<u16>,
    /// With --timeline: this task
    #[arg(long, value_name = "TID", requires = "timeline", group = "whose")]
    task: Option<u32>,
    /// With --timeline: marked functions that receive a request and send the reply, to derive hints
    /// from
    ///
    /// A server can give a hint to raise the clock when it has received all of a request (DIM
    /// 6.2.2): that is when READ returns for the last time before WRITE is called. Also counts
    /// requests. For `turbolane sim --replay --dvfs hints`.
    #[arg(long, value_name = "READ,WRITE", requires = "timeline", value_parser = pair)]
    hint: Option<(String, String)>,
    /// With --timeline: how long the recorded hardware held a level [default: the machine's]
    ///
    /// With 0ns, all time at a raised level is wide work.
    #[arg(long, value_name = "DURATION", requires = "timeline", value_parser = duration_ns)]
    hold: Option<u64>,
    /// With --timeline: take the most wide work that explains the recorded levels, instead of the
    /// least
    ///
    /// They differ if the CPU was idle when a level ended: the hold time may have begun when the
    /// CPU became idle, or have ended then.
    #[arg(long, requires = "timeline")]
    most: bool,
}

/// The CPU that was recorded.
#[derive(Args)]
pub(super) struct RecordedOn {
    /// With --timeline or --scenario: model of the recorded CPU, whose clock converts time to
    /// cycles
    #[arg(long, value_name = "ID|FILE", requires = "work")]
    pub(super) machine: Option<String>,
    /// With --timeline or --scenario: number of active cores [default: all; with --scenario: as
    /// many as the recorded tasks kept busy]
    #[arg(long, value_name = "N", requires = "work")]
    pub(super) active_cores: Option<usize>,
}

impl RecordedOn {
    /// The model, if one is given, and its platform; the active cores are some of its own.
    pub(super) fn read(&self) -> Result<Option<(CpuModel, Platform)>, Failure> {
        let Some(machine) = &self.machine else { return Ok(None) };
        let model = model(machine)?;
        let platform = Platform::new(&model);
        if let Some(active) = self.active_cores
            && (active == 0 || active > platform.nr_cores)
        {
            let what = format!("{} has no {active} cores", model.id);
            let next = format!("--active-cores is 1 to {}", platform.nr_cores);
            return Err(Failure::failed(Problem::new(what, "they set its clock", next)));
        }
        Ok(Some((model, platform)))
    }
}

/// Reads `--hint`.
fn pair(text: &str) -> Result<(String, String), ParseError> {
    let parts = text.split_once(',').filter(|(a, b)| !a.is_empty() && !b.is_empty());
    let (a, b) = parts.ok_or_else(|| ParseError {
        why: format!("\"{text}\" is not a pair of functions"),
        next: "write both, such as SSL_read,SSL_write".into(),
    })?;
    Ok((a.into(), b.into()))
}

/// Writes the recording for Perfetto. Returns what is to be said of it.
pub(super) fn perfetto(path: &Path, out: &Path) -> Result<String, Failure> {
    let mut reader = open(path)?;
    let info = reader.info().clone();
    let cannot = |error: io::Error| unwritable(out, &error);
    let mut writer =
        Perfetto::new(BufWriter::new(File::create(out).map_err(cannot)?), &info).map_err(cannot)?;
    let (follower, _) = follow(path, &mut reader, &mut writer)?;
    writer.finish(&info, &follower).map_err(cannot)?;
    Ok(format!("wrote {}: open it on ui.perfetto.dev\n", out.display()))
}

impl TimelineArgs {
    /// Writes the timeline, if one is asked for. Returns what is to be said of it.
    pub(super) fn write(&self, path: &Path, on: &RecordedOn) -> Result<Option<String>, Failure> {
        let Some(out) = &self.timeline else { return Ok(None) };
        let Some((model, platform)) = on.read()? else { return Ok(None) };
        let of = match (self.cpu, self.task) {
            (Some(cpu), _) => Of::Cpu(cpu),
            (None, Some(tid)) => Of::Task(tid),
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let active = on.active_cores.unwrap_or(platform.nr_cores);
        let core = self.core(&platform, &model, active)?;
        let bound = if self.most { Bound::Most } else { Bound::Least };
        let mut collected = Timeline::new(of, self.hardware(&core)).with_bound(bound);
        if let Some((takes, answers)) = &self.hint {
            let info = open(path)?.info().clone();
            let (takes, answers) = (mark(path, &info, takes)?, mark(path, &info, answers)?);
            collected = collected.with_hints(Calls { takes, answers });
        }
        let info = read_for(path, of, &mut collected)?;
        let Export { periods, demand, switches, scores } = collected.export();
        if periods.is_empty() {
            let what = format!("{} has no time in which {} ran", path.display(), name(of));
            let next = "turbolane trace FILE lists the tasks that ran; perf samples do not show when a task ran";
            return Err(Failure::failed(Problem::new(what, "so there is no timeline", next)));
        }
        let header = Header {
            schema: report::SCHEMA,
            timeline: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            about: format!("{} of a recording of: {}", name(of), info.target),
            machine: model.id.clone(),
            active_cores: Some(active),
            work: if self.hint.is_some() { "request" } else { "run" }.into(),
            recorded: true,
            demand,
        };
        let mut count = format!("{} periods", periods.len());
        if self.hint.is_some() {
            let requests =
                periods.iter().filter(|period| period.moments.contains(&Moment::Request)).count();
            count += &format!(", {requests} requests");
        }
        output_file::write(out, timeline::write(&header, periods.into_iter()))?;
        let out = out.display();
        let how = if self.no_turbo { " --no-turbo" } else { "" };
        let mut text = format!("wrote {out}: {count}; turbolane sim --replay {out}{how}\n");
        let mut tell = |label: &str, what: &str| text += &wrap(label, what, terminal::width());
        if let Some(demand) = demand {
            tell("wide work: ", &demand.text());
            let is_assumed = platform.assumed.iter().any(|what| what.contains("relax"));
            if self.hold.is_none() && is_assumed {
                let why = format!("that of {} is not published", model.id);
                tell("hold: ", &format!("{why}; measure it (turbolane probe), and give --hold"));
            }
        }
        if switches > 0 {
            tell("switches: ", &switches_text(switches, &scores));
        }
        Ok(Some(text))
    }

    /// A core of the machine that was recorded.
    fn core(&self, platform: &Platform, model: &CpuModel, active: usize) -> Result<Core, Failure> {
        if !self.no_turbo {
            return Ok(Core::new(platform, active));
        }
        Core::at_base(platform, model).ok_or_else(|| {
            let why = format!("the base clocks of {} are not known for every level", model.id);
            let next = "write them into a copy of its CPU file";
            Failure::failed(Problem::new("cannot use --no-turbo", why, next))
        })
    }

    fn hardware(&self, core: &Core) -> Hardware {
        let relax_ns = self.hold.unwrap_or(core.times.relax_ns);
        Hardware { clock_khz: core.clock_khz.clone(), times: Times { relax_ns, ..core.times } }
    }
}

/// Tasks whose scores are printed.
const SCORES_MAX: usize = 8;

fn switches_text(switches: usize, scores: &[Scored]) -> String {
    let score = |task: &Scored| format!("{} {} {:.2}", task.name, task.tid, task.score);
    let told: Vec<String> = scores.iter().take(SCORES_MAX).map(score).collect();
    let more = match scores.len().saturating_sub(SCORES_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "{switches} between tasks, with what power scores expect of the next (now {}{more})",
        told.join(", ")
    )
}

/// Follows the recording. What ran on a CPU is known only if all tasks were recorded.
fn read_for(path: &Path, of: Of, to: &mut dyn Visit) -> Result<Info, Failure> {
    let mut reader = open(path)?;
    let info = reader.info().clone();
    if matches!(of, Of::Cpu(_)) && !info.everybody {
        let what = format!("{} does not show what a CPU ran", path.display());
        let next = "use --task, or record the entire machine: turbolane record --system (perf samples do \
                    not show when a task ran)";
        return Err(Failure::failed(Problem::new(what, "only some tasks were recorded", next)));
    }
    follow(path, &mut reader, to)?;
    Ok(info)
}

/// The mark of a function.
pub(super) fn mark(path: &Path, info: &Info, function: &str) -> Result<u32, Failure> {
    info.mark(function).ok_or_else(|| {
        let names: Vec<&str> = info.marks.iter().map(|mark| mark.name.as_str()).collect();
        let what = format!("{} has no mark of the function {function}", path.display());
        let why = match names.is_empty() {
            true => "nothing was marked".into(),
            false => format!("it has marks of {}", names.join(", ")),
        };
        let next = "record it: turbolane record --mark FILE:FUNCTION";
        Failure::failed(Problem::new(what, why, next))
    })
}

fn name(of: Of) -> String {
    match of {
        Of::Cpu(cpu) => format!("CPU {cpu}"),
        Of::Task(tid) => format!("task {tid}"),
    }
}
