// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run from taking over to giving back: the command, the signals, the statistics.
//!
//! One thread waits for signals and passes them on as messages; the main thread waits for them
//! with a short timeout, after which it looks whether the scheduler is still there.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request};
use report::problem::Problem;
use sched::autosize::PERIOD;
use sched::config::Config;
use sched::lane::Lane;
use sched::scx::{Ended, Fault};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::stats::Lines;

/// What to run, and what to tell about it.
pub(super) struct Run {
    /// Settings.
    pub config: Config,
    /// What tests make the scheduler do wrong.
    pub fault: Fault,
    /// Command and arguments; empty: until a signal.
    pub command: Vec<OsString>,
    /// The command's C library is to do without AVX-512.
    pub plain_glibc: bool,
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
}

/// Takes over, waits for the end, gives back.
pub(super) fn run(run: Run) -> Result<ExitCode, Failure> {
    let signals = watch_signals().map_err(|error| {
        let next = "report this with the output of turbolane doctor";
        Failure::failed(Problem::new("cannot watch for signals", error.to_string(), next))
    })?;
    let lane = Lane::start(run.config.clone(), run.fault)?;
    if !run.quiet {
        tell(&started(&lane));
        run.notes.iter().for_each(|note| tell(note));
    }
    if !run.command.is_empty() {
        // The command inherits it. Everything else on the machine stays unclassified, so that
        // core specialisation concerns the command (SYSTOR 3.2).
        lane.classify_this_thread_scalar()?;
    }
    let mut supervisor = Supervisor {
        child: spawn(&run.command, run.plain_glibc)?,
        statistics: run.stats.map(|interval| Statistics::new(interval, run.json, &lane)),
        signals,
        stop_requests: 0,
    };
    let end = supervisor.wait(&lane)?;
    let ended = lane.stop();
    match end {
        End::Scheduler(ended) => Err(supervisor.scheduler_lost(&ended)),
        End::Command(status) => match ended.filter(Ended::is_error) {
            Some(ended) => Err(supervisor.scheduler_lost(&ended)),
            None => Ok(exit_code(status)),
        },
        End::Signal => Ok(ExitCode::SUCCESS),
    }
}

pub(crate) fn watch_signals() -> io::Result<Receiver<i32>> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("turbolane-sig".into()).spawn(move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// Takes the forms of glibc's functions that use AVX-512 out of its choice; what the program
/// itself finds by CPUID is not concerned (glibc manual, "Hardware Capability Tunables").
const PLAIN_GLIBC: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW";

pub(crate) fn spawn(command: &[OsString], plain_glibc: bool) -> Result<Option<Child>, Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    if plain_glibc {
        let others = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
        let separator = if others.is_empty() { "" } else { ":" };
        command.env("GLIBC_TUNABLES", format!("{others}{separator}{PLAIN_GLIBC}"));
    }
    let child = command.args(arguments).spawn().map_err(|error| {
        let what = format!("cannot run {}", program.to_string_lossy());
        Failure::failed(Problem::new(what, error.to_string(), "check the command behind --"))
    })?;
    Ok(Some(child))
}

struct Supervisor {
    child: Option<Child>,
    statistics: Option<Statistics>,
    signals: Receiver<i32>,
    stop_requests: u32,
}

impl Supervisor {
    fn wait(&mut self, lane: &Lane) -> Result<End, Failure> {
        loop {
            match self.signals.recv_timeout(PERIOD) {
                Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout) => {}
                Ok(signal) => {
                    if self.stop_requested(signal) {
                        return Ok(End::Signal);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(End::Signal),
            }
            if let Some(ended) = lane.poll()? {
                return Ok(End::Scheduler(ended));
            }
            if let Some(status) = self.child_status()? {
                return Ok(End::Command(status));
            }
            if let Some(statistics) = &mut self.statistics {
                statistics.print_if_due(lane);
            }
        }
    }

    /// Acts on a signal; true if the run is to end now.
    fn stop_requested(&mut self, signal: i32) -> bool {
        self.stop_requests += 1;
        let Some(child) = &self.child else { return true };
        // Ctrl-C has reached the command too: the terminal sends it to the whole group.
        if signal != SIGINT || self.stop_requests > 1 {
            terminate(child);
        }
        self.stop_requests > 2
    }

    fn child_status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        child.try_wait().map_err(|error| {
            let next = "see whether it still runs";
            Failure::failed(Problem::new("cannot wait for the command", error.to_string(), next))
        })
    }

    /// The scheduler ended by itself: the command runs on under the kernel's own, and is waited
    /// for, so that nobody takes its end for that of the run.
    fn scheduler_lost(&mut self, ended: &Ended) -> Failure {
        let why = match (ended.reason.is_empty(), ended.message.is_empty()) {
            (false, false) => format!("{}: {}", ended.reason, ended.message),
            (false, true) => ended.reason.clone(),
            _ => format!("exit kind {}", ended.kind),
        };
        let next = "the kernel's own scheduler runs everything now; see dmesg, then start again";
        if let Some(child) = &mut self.child {
            tell(&format!("the scheduler was ended ({why}); the command runs on without it"));
            // What the command returns no longer matters: the run has failed.
            _ = child.wait();
        }
        Failure::failed(Problem::new("the scheduler was ended", why, next))
    }
}

pub(crate) fn terminate(child: &Child) {
    // SAFETY: kill takes no memory; the child is not yet waited for, so its id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// The command's exit code, or 128 + N if signal N ended it, as shells have it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code as u8)
}

struct Statistics {
    interval: Duration,
    due: Instant,
    lines: Lines,
}

impl Statistics {
    fn new(interval: Duration, json: bool, lane: &Lane) -> Self {
        Statistics {
            interval,
            due: Instant::now() + interval,
            lines: Lines::new(json, lane.stats()),
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

fn started(lane: &Lane) -> String {
    match lane.ask(Request::Status) {
        Reply::Status(status) => format!(
            "{} mode, wide CPUs {}, scalar CPUs {}",
            status.mode,
            none_if_empty(&status.wide_cpus),
            none_if_empty(&status.scalar_cpus)
        ),
        _ => "running".into(),
    }
}

fn none_if_empty(cpus: &str) -> &str {
    if cpus.is_empty() { "none" } else { cpus }
}

fn tell(text: &str) {
    _ = writeln!(io::stderr(), "turbolane: {text}");
}
