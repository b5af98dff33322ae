// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that `turbolane record` wrote.

use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::PathBuf;

use cpumodel::CpuSet;
use pyo3::prelude::*;
use report::problem::Problem;
use sim::scenario::recorded::{Arrivals, Collector, Made, Request, Unusable};
use trace::follow::Follower;
use trace::{End, Ending, Event, Info, Reader, TraceError, What};

use crate::machine::Machine;
use crate::problem::refused;
use crate::scenario::Scenario;
use crate::table::Columns;

/// A recording of what the kernel did with tasks.
///
/// `Recording(path)` reads all of it. Events that were lost are counted in `lost`.
#[pyclass(frozen, module = "turbolane._native")]
pub(crate) struct Recording {
    info: Info,
    events: Vec<Event>,
    ending: Option<Ending>,
}

fn read(path: &PathBuf) -> Result<Recording, TraceError> {
    let file = File::open(path).map_err(TraceError::Io)?;
    let mut reader = Reader::new(BufReader::new(file))?;
    let mut events = Vec::new();
    while let Some(event) = reader.next_event()? {
        events.push(event);
    }
    Ok(Recording { info: reader.info().clone(), ending: reader.ending(), events })
}

/// Kind of an event, the task that it names besides its own, and its number: a licence level, a
/// system call, a mark, a CPU, or what was counted.
fn parts(what: &What) -> (&'static str, Option<u32>, Option<i64>) {
    let number = |number: u64| Some(i64::try_from(number).unwrap_or(i64::MAX));
    match what {
        What::Switch { next, why, .. } => ("switch", Some(*next), number(why.code().into())),
        What::Wake { waker, new, .. } => {
            (if *new { "wake-new" } else { "wake" }, Some(*waker), None)
        }
        What::Migrate { to, .. } => ("migrate", None, number((*to).into())),
        What::Fork { parent, .. } => ("fork", Some(*parent), None),
        What::Exit => ("exit", None, None),
        What::Syscall { number: call } => ("syscall", None, number((*call).into())),
        What::SyscallReturn { value } => ("syscall-return", None, Some(*value)),
        What::Mark { mark } => ("mark", None, number((*mark).into())),
        What::MarkReturn { mark } => ("mark-return", None, number((*mark).into())),
        What::Trap { level, .. } => ("trap", None, number((*level).into())),
        What::Task { tgid, .. } => ("task", Some(*tgid), None),
        What::Name { tgid, .. } => ("name", Some(*tgid), None),
        What::Affinity { .. } => ("affinity", None, None),
        What::Class { class } => ("class", None, number((*class).into())),
        What::Stall { ns } => ("stall", None, number(*ns)),
        What::LevelCycles { license_level, .. } => {
            ("level-cycles", None, number((*license_level).into()))
        }
        What::Lost { events } => ("lost", None, number(*events)),
    }
}

impl Recording {
    /// What its tasks did in this part of it, as a scenario.
    fn made(&self, request: &Request<'_>, window_ns: Range<u64>) -> Result<Made, Unusable> {
        let mut collector = Collector::new(&self.info, window_ns, request.counts);
        let mut follower = Follower::new(&self.info);
        self.events.iter().for_each(|event| follower.take(event, &mut collector));
        let end_ns = self.end().map_or(follower.now_ns(), |end| end.at_ns);
        follower.finish(end_ns, &mut collector);
        collector.finish(&self.info, follower.tasks(), end_ns, request)
    }

    /// How it ended; `None` if its file was cut off.
    fn end(&self) -> Option<End> {
        match self.ending {
            Some(Ending::Complete(end)) => Some(end),
            _ => None,
        }
    }
}

#[pymethods]
impl Recording {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let read = py.detach(|| read(&path));
        read.map_err(|error| refused(py, error.problem(format!("cannot read {}", path.display()))))
    }

    /// The program that recorded.
    #[getter]
    fn recorder(&self) -> &str {
        &self.info.recorder
    }

    /// Release of the kernel.
    #[getter]
    fn kernel(&self) -> &str {
        &self.info.kernel
    }

    /// Name of the processor.
    #[getter]
    fn processor(&self) -> &str {
        &self.info.processor
    }

    /// What was recorded: `system`, `pid N` or the command.
    #[getter]
    fn target(&self) -> &str {
        &self.info.target
    }

    /// Marked functions, by number: licence level and name.
    #[getter]
    fn marks(&self) -> Vec<(u8, String)> {
        self.info.marks.iter().map(|mark| (mark.level, mark.name.clone())).collect()
    }

    /// When it began, CLOCK_MONOTONIC, ns.
    #[getter]
    fn start_ns(&self) -> u64 {
        self.info.start_ns
    }

    /// When it ended; `None` if its file was cut off.
    #[getter]
    fn end_ns(&self) -> Option<u64> {
        self.end().map(|end| end.at_ns)
    }

    /// Events that were lost because a buffer was full; `None` if its file was cut off.
    #[getter]
    fn lost(&self) -> Option<u64> {
        self.end().map(|end| end.lost)
    }

    /// All events, in the order of their times. `other` is the task that an event names besides
    /// its own; `number` a licence level, system call, mark, CPU or count (see `kind`).
    fn events<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let all = || self.events.iter();
        let parts: Vec<_> = all().map(|event| parts(&event.what)).collect();
        Columns::new(py)
            .with("at_ns", all().map(|event| event.at_ns))?
            .with("cpu", all().map(|event| event.cpu))?
            .with("tid", all().map(|event| event.tid))?
            .with("kind", parts.iter().map(|part| part.0))?
            .with("other", parts.iter().map(|part| part.1))?
            .with("number", parts.iter().map(|part| part.2))?
            .table()
    }

    /// What the recorded tasks did, as a scenario, recorded on this machine: as `turbolane trace
    /// --scenario` does it, with its options.
    #[pyo3(signature = (
        machine, *, name="recorded", arrivals=None, count=None, none_scale=None,
        active_cores=None, window_ns=None, onto=None, sensitive_frac=1.0,
    ))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn scenario(
        &self,
        py: Python<'_>,
        machine: &Machine,
        name: &str,
        arrivals: Option<&str>,
        count: Option<&str>,
        none_scale: Option<f64>,
        active_cores: Option<usize>,
        window_ns: Option<(u64, u64)>,
        onto: Option<&str>,
        sensitive_frac: f64,
    ) -> PyResult<Scenario> {
        let wrong =
            |what: String, why: &str, next: &str| refused(py, Problem::new(what, why, next));
        let arrivals = match arrivals {
            None => None,
            Some("closed") => Some(Arrivals::Closed),
            Some("open") => Some(Arrivals::Open),
            Some(other) => {
                let what = format!("arrivals cannot be \"{other}\"");
                return Err(wrong(what, "they are \"closed\" or \"open\"", "choose one of them"));
            }
        };
        let marked = |function: &str| {
            self.info.mark(function).ok_or_else(|| {
                let what = format!("the recording has no mark of {function}");
                wrong(what, "only marked functions can be counted", "see Recording.marks")
            })
        };
        let counts = count.map(marked).transpose()?;
        let cpus = |list: &str| {
            list.parse::<CpuSet>().map_err(|error| {
                let what = format!("onto is no list of CPUs: \"{list}\"");
                wrong(what, &error.to_string(), "write it as 0-3,8")
            })
        };
        let onto = onto.map(cpus).transpose()?;
        if none_scale.is_some_and(|scale| !(scale > 0.0 && scale <= 1000.0))
            || !(0.0..=1.0).contains(&sensitive_frac)
            || active_cores.is_some_and(|nr| nr == 0 || nr > machine.platform.nr_cores)
        {
            let why = "none_scale is above 0 and at most 1,000, sensitive_frac 0 to 1, and active_cores are the machine's";
            return Err(wrong("a number is out of range".into(), why, "choose another"));
        }
        let request = Request {
            name: name.to_owned(),
            machine: machine.model.id.clone(),
            platform: &machine.platform,
            active_cores,
            arrivals,
            counts,
            none_scale,
            onto,
            sensitive_frac,
            is_partial: self.end().is_none(),
        };
        let (from_ns, to_ns) = window_ns.unwrap_or((0, u64::MAX));
        let made = py.detach(|| self.made(&request, from_ns..to_ns));
        let made = made.map_err(|why| {
            let next =
                "record a busy service, with marks (turbolane scan --marks) and no lost events";
            wrong("the recording cannot be a scenario".into(), &why.to_string(), next)
        })?;
        Scenario::from_toml(py, made.text)
    }

    fn __len__(&self) -> usize {
        self.events.len()
    }

    fn __repr__(&self) -> String {
        format!("<turbolane.Recording of {}: {} events>", self.info.target, self.events.len())
    }
}
