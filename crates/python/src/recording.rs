// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings that `turbolane record` wrote.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use pyo3::prelude::*;
use trace::{End, Ending, Event, Info, Reader, TraceError, What};

use crate::problem::refused;
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

    fn __len__(&self) -> usize {
        self.events.len()
    }

    fn __repr__(&self) -> String {
        format!("<turbolane.Recording of {}: {} events>", self.info.target, self.events.len())
    }
}
