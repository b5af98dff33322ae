// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recording: loads bpf/trace.bpf.c, reads what it writes, writes the file.
//!
//! Each CPU has a log and, for what is rare, a ring (`bpf/log.bpf.h`). They are looked into every
//! [`PERIOD`]; of [`BUFFER_BYTES`] the log holds 1.3 s of 200,000 events a second on one CPU. That
//! is the reader's time to be late: because of a disk, or of other tasks. Events that do not fit
//! are lost; the file has their number.
//!
//! Events of all CPUs are written in one order of time. What is younger than [`HOLD_NS`] waits in
//! its log, because a CPU may have taken the time of an event that it has not finished.
//!
//! Where the CPU counts cycles at licence levels, they are read too (`levels.bpf.h`).
//!
//! Nothing remains after the end: programs, probes and rings are file descriptors of this process.

mod bpf;
mod clock;
mod lane;
mod log;
mod order;
mod programs;
mod raw;
mod tasks;
mod wakes;

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use cpumodel::CpuSet;
use libbpf_rs::{MapHandle, RingBuffer, RingBufferBuilder};
use report::problem::Problem;
use trace::{End, Event, Info, MarkInfo, TraceError, What, Writer};

use crate::clock::monotonic_ns;
use crate::error::{Error, Result};
use crate::levels;
use crate::marks::ResolvedMark;
use log::{Counters, Logs};
use order::{Item, Order};
use programs::Programs;
use raw::{Events, Record};

/// How often the logs are to be read ([`Recorder::poll`]).
pub const PERIOD: Duration = Duration::from_millis(50);
/// Bytes of a CPU's log and ring, unless that makes more than [`BUFFERS_BYTES_MAX`] in all.
pub const BUFFER_BYTES: usize = 8 << 20;
/// Most bytes of all logs and rings.
pub const BUFFERS_BYTES_MAX: usize = 1 << 30;
/// Age at which an event is written. A record is made in well under a microsecond; a virtual CPU
/// may be halted in the middle.
const HOLD_NS: u64 = 10_000_000;
/// How often the file is brought up to date, lost events are recorded and the lane's classes are
/// looked at.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// Who is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Every task.
    Everybody,
    /// This process, its children, and theirs.
    Process(u32),
    /// What [`Recorder::follow_this_thread`] says.
    Command,
}

/// Wide code from the entry of one function to the entry of another, as programs with hints have
/// it: from `tl_wide_begin` to `tl_wide_end` or `tl_scalar_for`.
#[derive(Clone, Debug)]
pub struct Section {
    /// It begins here, with the level that is recorded.
    pub begin: ResolvedMark,
    /// It ends here, wherever of these comes first; the first one gives it its name.
    pub ends: Vec<ResolvedMark>,
}

/// What is recorded.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who.
    pub whom: Whom,
    /// System calls too.
    pub syscalls: bool,
    /// When a CPU executes nothing ([`clock`]).
    pub stalls: bool,
    /// Marked functions.
    pub marks: Vec<ResolvedMark>,
    /// Sections that begin in one function and end in another; numbered after the marks.
    pub sections: Vec<Section>,
    /// Bytes of a CPU's log and ring: a power of two, and a page or more; `None`: see
    /// [`BUFFER_BYTES`].
    pub buffer_bytes: Option<usize>,
}

/// A recording that runs.
pub struct Recorder<W: Write> {
    rings: RingBuffer<'static>,
    _ring_maps: Vec<MapHandle>,
    order: Rc<RefCell<Order>>,
    logs: Logs,
    output: Output<W>,
    lost: Vec<u64>,
    classes: Option<lane::Classes>,
    flushed: Instant,
    // Last: the logs are read before they go.
    programs: Programs,
}

/// What is written, and the file.
struct Output<W: Write> {
    events: Events,
    writer: Writer<W>,
}

impl<W: Write> Output<W> {
    /// Most records go here, so nothing is moved: what a record says is written from where it was
    /// made.
    fn record(&mut self, record: &Record) -> std::result::Result<(), TraceError> {
        let Output { events, writer } = self;
        events.tell(record, |tid, what| writer.push_what(record.at_ns, record.cpu, tid, what))
    }

    fn item(&mut self, item: &Item) -> std::result::Result<(), TraceError> {
        match item {
            Item::Record(record) => self.record(record),
            Item::Event(event) => self.writer.push(event),
        }
    }
}

/// A recording that could begin: everything is loaded, nothing is recorded.
pub struct Prepared {
    options: Options,
    programs: Programs,
    logs: Logs,
    ring_maps: Vec<MapHandle>,
    lane: Option<lane::Lane>,
    levels: std::result::Result<(), String>,
    nr_cpus: usize,
}

impl Prepared {
    /// Loads what is needed: what this machine refuses, it refuses here.
    pub fn load(options: Options) -> Result<Self> {
        let nr_cpus = libbpf_rs::num_possible_cpus()
            .map_err(|e| Error::failed("cannot find out how many CPUs there are", e))?
            .min(cpumodel::MAX_CPUS);
        let lane = lane::Lane::find();
        let (counters, levels) = match levels::open(nr_cpus) {
            Ok(counters) => (Some(counters), Ok(())),
            Err(why) => (None, Err(why)),
        };
        let lane_tasks = lane.as_ref().map(|lane| &lane.tasks);
        let (programs, logs, ring_maps) = Programs::load(&options, nr_cpus, lane_tasks, counters)?;
        Ok(Prepared { options, programs, logs, ring_maps, lane, levels, nr_cpus })
    }

    /// Whether licence levels will be recorded, or why not.
    pub fn levels(&self) -> std::result::Result<(), &str> {
        self.levels.as_ref().copied().map_err(String::as_str)
    }

    /// Begins to record to `out`. `info` is what the caller knows; the rest is filled in.
    pub fn start<W: Write>(self, mut info: Info, out: W) -> Result<Recorder<W>> {
        let Prepared { options, mut programs, logs, ring_maps, lane, nr_cpus, .. } = self;
        let order = Rc::new(RefCell::new(Order::default()));
        let rings = read_rings(&ring_maps, &order)?;
        info.everybody = options.whom == Whom::Everybody;
        info.lane = lane.is_some();
        info.start_ns = monotonic_ns();
        info.syscalls = options.syscalls;
        info.marks = options.marks.iter().map(mark_info).collect();
        info.marks.extend(options.sections.iter().map(section_info));
        info.stalls = options.stalls;
        info.affinities = programs.sees_affinities();
        let online = info.cpus.parse().unwrap_or(CpuSet::EMPTY);
        programs.attach(&options, &online)?;
        let followed = programs.follow_tree(&options.whom)?;
        tell_tasks(&programs, &followed, info.start_ns, &mut order.borrow_mut())?;
        let mut recorder = Recorder {
            rings,
            _ring_maps: ring_maps,
            order,
            logs,
            output: Output {
                events: Events::default(),
                writer: Writer::new(out, &info).map_err(write_error)?,
            },
            lost: vec![0; nr_cpus],
            classes: lane.map(|lane| lane.classes),
            flushed: Instant::now(),
            programs,
        };
        recorder.look_at_classes(info.start_ns);
        recorder.write_before(info.start_ns + 1)?;
        recorder.output.writer.flush().map_err(write_error)?;
        Ok(recorder)
    }
}

impl<W: Write> Recorder<W> {
    /// Whether the calling thread, and what it starts from now on, is recorded.
    pub fn follow_this_thread(&self, follow: bool) -> Result<()> {
        self.programs.follow(hw::task::own_tid(), follow)
    }

    /// Lets the calling thread go before others: what it reads too late is lost.
    pub fn hurry(&self) {
        // SAFETY: a system call on the calling thread's priority, without memory. If it fails, the
        // thread goes on as it is.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) };
    }

    /// To be called every [`PERIOD`].
    pub fn poll(&mut self) -> Result<()> {
        let now_ns = monotonic_ns();
        self.consume()?;
        self.write_before(now_ns.saturating_sub(HOLD_NS))?;
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            self.flushed = Instant::now();
            self.tell_lost(now_ns);
            self.look_at_classes(now_ns);
            self.output.writer.flush().map_err(write_error)?;
        }
        Ok(())
    }

    /// What was written so far, and how many bytes that is.
    pub fn so_far(&self) -> (End, u64) {
        (self.output.writer.so_far(), self.output.writer.bytes())
    }

    /// Ends the recording: what was written to, how it ended, and its bytes.
    ///
    /// Programs are detached one after another, for a second on a slow machine: those that are left
    /// record wake-ups whose switches no one sees any more. So nothing after the first counts.
    pub fn stop(mut self) -> Result<(W, End, u64)> {
        let end_ns = monotonic_ns();
        self.programs.detach();
        self.consume()?;
        self.tell_lost(end_ns);
        self.tell_skipped(end_ns);
        self.write_before(end_ns + 1)?;
        self.output.writer.finish(end_ns).map_err(write_error)
    }

    fn consume(&self) -> Result<()> {
        self.rings.consume().map_err(|e| Error::failed("cannot read the recorder's rings", e))
    }

    fn write_before(&mut self, moment_ns: u64) -> Result<()> {
        let Recorder { output, order, .. } = self;
        let mut order = order.borrow_mut();
        let mut others = order.before(moment_ns).peekable();
        let taken = self.logs.take_before(self.programs.counters(), moment_ns, |record| {
            while let Some(other) = others.next_if(|other| other.at_ns() <= record.at_ns) {
                output.item(&other)?;
            }
            output.record(record)
        });
        let rest = |()| others.try_for_each(|other| output.item(&other));
        taken.and_then(rest).map_err(write_error)
    }

    fn tell(&self, at_ns: u64, cpu: usize, what: What) {
        let event = Event { at_ns, cpu: cpu as u16, tid: 0, what };
        self.order.borrow_mut().push(Item::Event(event));
    }

    fn tell_lost(&mut self, at_ns: u64) {
        let now: Vec<u64> = self.programs.counters().iter().map(Counters::lost).collect();
        for (cpu, (now, before)) in now.iter().zip(&self.lost).enumerate() {
            if now > before {
                self.tell(at_ns, cpu, What::Lost { events: now - before });
            }
        }
        self.lost = now;
    }

    /// What the kernel left out, because a program ran on its CPU already. It does not say on
    /// which; they are recorded for CPU 0.
    fn tell_skipped(&self, at_ns: u64) {
        let events = self.programs.skipped();
        if events > 0 {
            self.tell(at_ns, 0, What::Lost { events });
        }
    }

    fn look_at_classes(&mut self, at_ns: u64) {
        let Some(classes) = &mut self.classes else { return };
        let changed = classes.changed(self.lost.len());
        changed.into_iter().for_each(|(cpu, class)| self.tell(at_ns, cpu, What::Class { class }));
    }
}

fn read_rings(maps: &[MapHandle], order: &Rc<RefCell<Order>>) -> Result<RingBuffer<'static>> {
    let failed = |e| Error::failed("cannot read the recorder's rings", e);
    let mut builder = RingBufferBuilder::new();
    for map in maps {
        let order = Rc::clone(order);
        let take = move |record: &[u8]| {
            if let Some(item) = Item::of_bytes(record) {
                order.borrow_mut().push(item);
            }
            0
        };
        builder.add(map, take).map_err(failed)?;
    }
    builder.build().map_err(failed)
}

/// Records who is there when the recording begins.
fn tell_tasks(
    programs: &Programs,
    followed: &HashSet<u32>,
    at_ns: u64,
    order: &mut Order,
) -> Result<()> {
    for task in programs.tasks()? {
        let (cpu, tid) = (task.cpu, task.tid);
        let what = What::Task {
            tgid: task.tgid,
            kernel: task.kernel,
            running: task.running,
            followed: followed.contains(&tid),
            name: task.name,
        };
        order.push(Item::Event(Event { at_ns, cpu, tid, what }));
        let what = What::Affinity { cpus: Box::new(task.affinity) };
        order.push(Item::Event(Event { at_ns, cpu, tid, what }));
    }
    Ok(())
}

fn mark_info(mark: &ResolvedMark) -> MarkInfo {
    let file = mark.path.file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    let name = match &mark.symbol {
        Some(symbol) => format!("{file}:{symbol}"),
        None => format!("{file}:+{:#x}", mark.entry_offset),
    };
    MarkInfo { level: mark.level as u8, name }
}

fn section_info(section: &Section) -> MarkInfo {
    let end = section.ends.first().and_then(|end| end.symbol.as_deref()).unwrap_or("its end");
    let begin = mark_info(&section.begin);
    MarkInfo { name: format!("{} to {end}", begin.name), ..begin }
}

fn write_error(error: TraceError) -> Error {
    let next = "is the disk full? What was written before can be read";
    Error::Failed(Problem::new("cannot write the recording", error.to_string(), next))
}
