// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run from taking over to giving back: the scheduler, the command, the statistics.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request};
use report::json_line;
use report::lane::LaneStatus;
use report::problem::Problem;
use sched::autosize::PERIOD;
use sched::config::Config;
use sched::lane::{Event, Lane, StartSuccessor, TakenFrom};
use sched::scx::{Ended, Fault, MarkChange};

use super::journal::{self, Journal};
use super::metrics::{self, Metrics};
use super::notify::Manager;
use super::standby::Standby;
use crate::command::{Supervised, exit_code, watch_signals};
use crate::failure::{Failure, tell};
use crate::output_file;
use crate::stats::{LineFormat, Lines};

/// The flag of a run that takes over.
const TAKE_OVER: &str = "--take-over";

/// What to run, and what to report about it.
pub(super) struct Run {
    /// Settings.
    pub config: Config,
    /// What tests make the scheduler do wrong.
    pub fault: Fault,
    /// From a run that there is.
    pub take_over: bool,
    /// Command and arguments; empty: until a signal.
    pub command: Vec<OsString>,
    /// The command's C library is to do without AVX-512.
    pub plain_glibc: bool,
    /// Where to write how long the command took.
    pub times: Option<PathBuf>,
    /// File for Prometheus.
    pub metrics: Option<PathBuf>,
    /// Interval between two lines of statistics.
    pub stats: Option<Duration>,
    /// Statistics as JSON.
    pub json: bool,
    /// Errors only.
    pub quiet: bool,
    /// What the user should know at the start.
    pub notes: Vec<String>,
}

/// Why the loop ended.
enum End {
    /// A signal, and there is nothing (more) to wait for.
    Signal,
    /// The command ended.
    Command(ExitStatus),
    /// The scheduler is gone.
    Scheduler(Ended),
    /// This process has taken over.
    TakenOver(u32),
}

/// Takes over, waits for the end, gives back.
pub(super) fn run(run: Run) -> Result<ExitCode, Failure> {
    let signals = watch_signals()?;
    run.times.as_deref().map_or(Ok(()), output_file::check_writable)?;
    run.metrics.as_deref().map_or(Ok(()), metrics::check_writable)?;
    let (lane, before) = if run.take_over {
        let (lane, before) = Lane::take_over(run.config.clone(), run.fault)?;
        (lane, Some(before))
    } else {
        (Lane::start(run.config.clone(), run.fault)?, None)
    };
    let metrics = run.metrics.as_deref().map(Metrics::start).transpose()?;
    let journal = Journal::from_environment();
    let status = status(&lane);
    let started = status.as_ref().map_or("running".into(), started);
    if !run.quiet {
        if let Some(TakenFrom { pid, gap }) = before {
            let text =
                format!("took over from process {pid} within {:.1} ms", gap.as_secs_f64() * 1e3);
            let (pid, gap) = (pid.to_string(), gap.as_micros().to_string());
            journal.report(
                journal::Event::TookOver,
                &text,
                &[("OTHER_PID", &pid), ("GAP_US", &gap)],
            );
        }
        let fields = status.as_ref().map_or(Vec::new(), |status| fields(status).to_vec());
        journal.report(journal::Event::Started, &started, &fields);
        run.notes.iter().for_each(|note| journal.report(journal::Event::Note, note, &[]));
    }
    let manager = Manager::from_environment();
    if !run.command.is_empty() {
        // The command inherits it. Everything else on the machine stays unclassified, so that
        // core specialisation concerns the command (SYSTOR 3.2).
        lane.classify_this_thread_scalar()?;
    } else {
        // Without a manager nobody would know the process that runs then.
        lane.let_take_over(manager.is_there().then(successor).transpose()?);
    }
    let mut supervisor = Supervisor {
        command: Supervised::start(&run.command, run.plain_glibc, signals)?,
        statistics: run.stats.map(|interval| Statistics::new(interval, run.json, &lane)),
        manager,
        metrics,
        journal,
        standby: Standby::default(),
        quiet: run.quiet,
    };
    supervisor.manager.ready(&started);
    let end = supervisor.wait(&lane)?;
    match end {
        End::TakenOver(pid) => supervisor.manager.taken_over_by(pid),
        _ => supervisor.manager.stopping(),
    }
    supervisor.metrics = None;
    let ended = lane.stop();
    match end {
        End::Scheduler(ended) => Err(supervisor.scheduler_lost(&ended)),
        End::Command(status) => match ended.filter(Ended::is_error) {
            Some(ended) => Err(supervisor.scheduler_lost(&ended)),
            None => {
                if let (Some(path), Some(times)) = (run.times, supervisor.command.times()) {
                    output_file::write(&path, json_line(&times) + "\n")?;
                }
                Ok(exit_code(status))
            }
        },
        End::TakenOver(pid) => {
            if !run.quiet {
                let fields = [("OTHER_PID", &*pid.to_string())];
                let text = format!("process {pid} has taken over");
                supervisor.journal.report(journal::Event::TakenOver, &text, &fields);
            }
            Ok(ExitCode::SUCCESS)
        }
        End::Signal => Ok(ExitCode::SUCCESS),
    }
}

/// Starts the program that is installed now where ours was, with our arguments.
fn successor() -> Result<StartSuccessor, Failure> {
    // Now, for later the file is another one.
    let program = env::current_exe().map_err(|error| {
        let what = "cannot find the program of this run";
        Failure::failed(Problem::new(what, error.to_string(), "see whether /proc is mounted"))
    })?;
    Ok(Box::new(move || {
        let mut args: Vec<OsString> = env::args_os().skip(1).collect();
        if !args.iter().any(|arg| arg == TAKE_OVER) {
            args.push(TAKE_OVER.into());
        }
        let mut command = Command::new(&program);
        // The watchdog is for the service, whichever process that is.
        command.args(args).stdin(Stdio::null()).env_remove("WATCHDOG_PID");
        let mut child = command.spawn()?;
        let pid = child.id();
        // One that fails is waited for, so that who asked sees that it is gone.
        thread::Builder::new().name("turbolane-next".into()).spawn(move || child.wait())?;
        Ok(pid)
    }))
}

struct Supervisor {
    command: Supervised,
    statistics: Option<Statistics>,
    manager: Manager,
    metrics: Option<Metrics>,
    journal: Journal,
    standby: Standby,
    quiet: bool,
}

impl Supervisor {
    fn wait(&mut self, lane: &Lane) -> Result<End, Failure> {
        loop {
            self.manager.alive();
            if let Some(metrics) = &mut self.metrics {
                metrics.write_if_due(lane);
            }
            if self.command.is_stopped_within(PERIOD) {
                return Ok(End::Signal);
            }
            match lane.poll()? {
                Some(Event::Ended(ended)) => return Ok(End::Scheduler(ended)),
                Some(Event::TakenOver(pid)) => return Ok(End::TakenOver(pid)),
                Some(Event::TakenBack(pid)) => {
                    let text = format!("process {pid} has failed to take over; this run continues");
                    let fields = [("OTHER_PID", &*pid.to_string())];
                    self.journal.report(journal::Event::TakenBack, &text, &fields);
                }
                Some(Event::Marks(changes)) => changes.iter().for_each(|c| self.report_mark(c)),
                None => {}
            }
            if self.journal.is_there() && !self.quiet {
                self.standby.report_if_changed(lane, &self.journal);
            }
            if let Some(status) = self.command.status()? {
                return Ok(End::Command(status));
            }
            if let Some(statistics) = &mut self.statistics {
                statistics.print_if_due(lane);
            }
        }
    }

    /// A marked function is elsewhere now, or nowhere.
    fn report_mark(&self, change: &MarkChange) {
        let mark = change.mark.to_string();
        let file = change.mark.file.display();
        match &change.lost {
            Some(why) => {
                let text = format!("the mark {mark} is lost: {why}");
                let fields = [("MARK", &*mark), ("REASON", why)];
                self.journal.report(journal::Event::MarkLost, &text, &fields);
            }
            None if self.quiet => {}
            None => {
                let text = format!("{file} was replaced: {mark} is watched in the new file");
                self.journal.report(journal::Event::MarkMoved, &text, &[("MARK", &mark)]);
            }
        }
    }

    /// The scheduler ended by itself. The command continues under the kernel's own scheduler; we
    /// wait for it, so that its end is not mistaken for the end of the run.
    fn scheduler_lost(&mut self, ended: &Ended) -> Failure {
        let why = match (ended.reason.is_empty(), ended.message.is_empty()) {
            (false, false) => format!("{}: {}", ended.reason, ended.message),
            (false, true) => ended.reason.clone(),
            _ => format!("exit kind {}", ended.kind),
        };
        if self.journal.is_there() {
            let text = format!("the scheduler was ended: {why}");
            self.journal.report(journal::Event::SchedulerEnded, &text, &[("REASON", &why)]);
        }
        let next = "the kernel's own scheduler runs everything now; see dmesg, then start again";
        if self.command.has_command() {
            tell(&format!("the scheduler was ended ({why}); the command runs on without it"));
            // What the command returns no longer matters: the run has failed.
            self.command.wait();
        }
        Failure::failed(Problem::new("the scheduler was ended", why, next))
    }
}

struct Statistics {
    interval: Duration,
    due: Instant,
    lines: Lines,
}

impl Statistics {
    fn new(interval: Duration, json: bool, lane: &Lane) -> Self {
        let format = if json { LineFormat::Json } else { LineFormat::Text };
        Statistics {
            interval,
            due: Instant::now() + interval,
            lines: Lines::new(format, lane.stats()),
        }
    }

    fn print_if_due(&mut self, lane: &Lane) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        // From the due time on, not from now: intervals do not drift. After a long halt of the
        // machine, missed ones are left out.
        while self.due <= now {
            self.due += self.interval;
        }
        let line = self.lines.next(lane.stats());
        // Standard output belongs to the command. Nobody may be reading standard error.
        _ = io::stderr().write_all(line.as_bytes());
    }
}

/// What the lane says at the start.
fn status(lane: &Lane) -> Option<LaneStatus> {
    match lane.ask(Request::Status) {
        Reply::Status(status) => Some(status),
        _ => None,
    }
}

/// How the run began.
fn started(status: &LaneStatus) -> String {
    let [wide, scalar] = [&status.wide_cpus, &status.scalar_cpus].map(|cpus| none_if_empty(cpus));
    format!("{} mode, wide CPUs {wide}, scalar CPUs {scalar}", status.mode)
}

/// The same as fields of [`journal::Event::Started`].
fn fields(status: &LaneStatus) -> [(&'static str, &str); 4] {
    [
        ("VERSION", env!("CARGO_PKG_VERSION")),
        ("MODE", &status.mode),
        ("WIDE_CPUS", &status.wide_cpus),
        ("SCALAR_CPUS", &status.scalar_cpus),
    ]
}

fn none_if_empty(cpus: &str) -> &str {
    if cpus.is_empty() { "none" } else { cpus }
}
