// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane trace --perfetto` and `--timeline`: a recording in other programs' formats.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use clap::Args;
use machine::Platform;
use report::problem::Problem;
use report::timeline::{self, Header};
use trace::Info;
use trace::follow::Visit;
use trace::perfetto::Perfetto;
use trace::timeline::{Of, Timeline};

use super::{follow, open};
use crate::failure::{Failure, unwritable};
use crate::sim::input::model;

/// A timeline of one CPU or one task.
#[derive(Args)]
pub(super) struct TimelineArgs {
    /// Write what one CPU or task executed as a timeline for `turbolane sim --replay`
    ///
    /// Time inside of marked functions is work of their level, other time on the CPU is scalar work, the
    /// rest is idle. Needs --machine, and --cpu or --task.
    #[arg(long, value_name = "OUT", requires = "machine", requires = "whose")]
    #[arg(conflicts_with_all = ["json", "check", "perfetto"])]
    timeline: Option<std::path::PathBuf>,
    /// With --timeline: the CPU model whose clock the time is counted in
    #[arg(long, value_name = "ID|FILE", requires = "timeline")]
    machine: Option<String>,
    /// With --timeline: cores of it that are active [default: all]
    #[arg(long, value_name = "N", requires = "timeline")]
    active_cores: Option<usize>,
    /// With --timeline: this CPU, of a recording of the whole machine
    #[arg(long, value_name = "N", requires = "timeline", group = "whose")]
    cpu: Option<u16>,
    /// With --timeline: the task with this number
    #[arg(long, value_name = "TID", requires = "timeline", group = "whose")]
    task: Option<u32>,
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
    pub(super) fn write(&self, path: &Path) -> Result<Option<String>, Failure> {
        let (Some(out), Some(machine)) = (&self.timeline, &self.machine) else { return Ok(None) };
        let of = match (self.cpu, self.task) {
            (Some(cpu), _) => Of::Cpu(cpu),
            (None, Some(tid)) => Of::Task(tid),
            (None, None) => unreachable!("clap asks for one of them"),
        };
        let model = model(machine)?;
        let platform = Platform::new(&model);
        let active = self.active_cores.unwrap_or(platform.nr_cores);
        if active == 0 || active > platform.nr_cores {
            let what = format!("{} has no {active} cores", model.id);
            let next = format!("--active-cores is 1 to {}", platform.nr_cores);
            return Err(Failure::failed(Problem::new(what, "they set its clock", next)));
        }
        let level_max = platform.nr_levels() as u8 - 1;
        let mut collected = Timeline::new(of, platform.clock_khz(0, active), level_max);
        let info = read_for(path, of, &mut collected)?;
        let periods = collected.periods();
        if periods.is_empty() {
            let what = format!("{} holds nothing that {} ran", path.display(), name(of));
            let next = "turbolane trace FILE lists the tasks that ran";
            return Err(Failure::failed(Problem::new(what, "so there is no timeline", next)));
        }
        let header = Header {
            schema: report::SCHEMA,
            timeline: path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            about: format!("{} of a recording of: {}", name(of), info.target),
            machine: model.id.clone(),
            active_cores: Some(active),
            work: "run".into(),
            recorded: true,
        };
        let count = periods.len();
        fs::write(out, timeline::write(&header, periods.into_iter()))
            .map_err(|error| unwritable(out, &error))?;
        let out = out.display();
        Ok(Some(format!("wrote {out}: {count} periods; turbolane sim --replay {out}\n")))
    }
}

/// Follows the recording. What ran on a CPU is known only if everybody was recorded.
fn read_for(path: &Path, of: Of, to: &mut dyn Visit) -> Result<Info, Failure> {
    let mut reader = open(path)?;
    let info = reader.info().clone();
    if matches!(of, Of::Cpu(_)) && !info.everybody {
        let what = format!("{} does not tell what a CPU ran", path.display());
        let next = "use --task, or record the whole machine: turbolane record --system";
        return Err(Failure::failed(Problem::new(what, "only some tasks were recorded", next)));
    }
    follow(path, &mut reader, to)?;
    Ok(info)
}

fn name(of: Of) -> String {
    match of {
        Of::Cpu(cpu) => format!("CPU {cpu}"),
        Of::Task(tid) => format!("task {tid}"),
    }
}
