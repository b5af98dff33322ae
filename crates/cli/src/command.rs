// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command that `run` and `record` start, and the signals that end both.
//!
//! One thread waits for signals and passes them on as messages; the main thread waits for them
//! with a short timeout, after which it looks at what it runs for.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use hw::cpu_time;
use report::SCHEMA;
use report::problem::Problem;
use report::times::Times;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Takes the forms of glibc's functions that use AVX-512 out of its choice; what the program
/// itself finds by CPUID is not concerned (glibc manual, "Hardware Capability Tunables").
const PLAIN_GLIBC: &str = "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW";

/// The signals that end a run, and the command's end, from now on.
pub(crate) fn watch_signals() -> Result<Receiver<i32>, Failure> {
    let watch = || -> io::Result<Receiver<i32>> {
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
    };
    watch().map_err(|error| {
        let next = "report this with the output of turbolane doctor";
        Failure::failed(Problem::new("cannot watch for signals", error.to_string(), next))
    })
}

/// A command that runs, if there is one, until it or a signal ends it.
pub(crate) struct Supervised {
    child: Option<Child>,
    started: Started,
    times: Option<Times>,
    signals: Receiver<i32>,
    stop_requests: u32,
}

/// What was on the clocks when the command started.
struct Started {
    at: Instant,
    children_ns: u64,
    own_ns: u64,
}

impl Supervised {
    /// Starts the command; none if it is empty.
    pub(crate) fn start(
        command: &[OsString],
        plain_glibc: bool,
        signals: Receiver<i32>,
    ) -> Result<Self, Failure> {
        let started = Started::now();
        let child = spawn(command, plain_glibc)?;
        Ok(Supervised { child, started, times: None, signals, stop_requests: 0 })
    }

    /// Waits that long, less if a signal comes. True if the run is to end now.
    pub(crate) fn is_stopped_within(&mut self, time: Duration) -> bool {
        match self.signals.recv_timeout(time) {
            Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout) => false,
            Ok(signal) => self.stop_requested(signal),
            Err(RecvTimeoutError::Disconnected) => true,
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

    /// How the command ended, if it has.
    pub(crate) fn status(&mut self) -> Result<Option<ExitStatus>, Failure> {
        let Some(child) = &mut self.child else { return Ok(None) };
        let status = child.try_wait().map_err(|error| {
            let next = "see whether it still runs";
            Failure::failed(Problem::new("cannot wait for the command", error.to_string(), next))
        })?;
        if status.is_some() && self.times.is_none() {
            self.times = Some(self.started.until_now());
        }
        Ok(status)
    }

    /// How long the command took, once its end has been seen.
    pub(crate) fn times(&self) -> Option<Times> {
        self.times
    }

    /// Whether there is a command.
    pub(crate) fn has_command(&self) -> bool {
        self.child.is_some()
    }

    /// Waits for the command's end; `None` if there is none to be had.
    pub(crate) fn wait(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.wait().ok()
    }
}

impl Started {
    fn now() -> Self {
        let (children_ns, own_ns) = (cpu_time::children_ns(), cpu_time::own_ns());
        Started { at: Instant::now(), children_ns, own_ns }
    }

    fn until_now(&self) -> Times {
        Times {
            schema: SCHEMA,
            time_ns: self.at.elapsed().as_nanos() as u64,
            cpu_time_ns: cpu_time::children_ns().saturating_sub(self.children_ns),
            own_cpu_time_ns: cpu_time::own_ns().saturating_sub(self.own_ns),
        }
    }
}

fn spawn(command: &[OsString], plain_glibc: bool) -> Result<Option<Child>, Failure> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    if plain_glibc {
        let others = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
        let separator = if others.is_empty() { "" } else { ":" };
        command.env("GLIBC_TUNABLES", format!("{others}{separator}{PLAIN_GLIBC}"));
    }
    start(command.args(arguments)).map(Some)
}

/// Starts what is given after `--`.
pub(crate) fn start(command: &mut Command) -> Result<Child, Failure> {
    command.spawn().map_err(|error| {
        let what = format!("cannot run {}", command.get_program().to_string_lossy());
        Failure::failed(Problem::new(what, error.to_string(), "check the command after --"))
    })
}

fn terminate(child: &Child) {
    // SAFETY: kill takes no memory; the child is not yet waited for, so its id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// The command's exit code, or 128 + N if signal N ended it, as shells have it.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    ExitCode::from(code as u8)
}
