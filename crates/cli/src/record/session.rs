// SPDX-License-Identifier: MIT OR Apache-2.0
//! A recording from begin to end: the command, the signals, the progress.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use sched::record::{Options, PERIOD, Prepared, Recorder, Whom};
use trace::{End, Info};

use super::{about_levels, create, tell};
use crate::command::{Supervised, exit_code, watch_signals};
use crate::failure::Failure;

/// How often progress is shown on a terminal, and how often we check that a recorded process still
/// runs.
const LOOK_PERIOD: Duration = Duration::from_millis(500);

/// What to record, and where to.
pub(super) struct Session {
    pub options: Options,
    pub info: Info,
    pub output: PathBuf,
    pub command: Vec<OsString>,
    pub limit: Option<Duration>,
    pub quiet: bool,
}

struct Running {
    command: Supervised,
    shows_progress: bool,
}

impl Session {
    pub(super) fn run(mut self) -> Result<ExitCode, Failure> {
        let signals = watch_signals()?;
        let prepared = Prepared::load(self.options.clone())?;
        self.info.license_counters = about_levels(prepared.levels());
        let mut recorder = prepared.start(self.info.clone(), create(&self.output)?)?;
        if !self.quiet {
            tell(&format!("recording {} to {}", self.info.target, self.output.display()));
            tell(&self.info.license_counters);
        }
        let follows = self.options.whom == Whom::Command;
        if follows {
            recorder.follow_this_thread(true)?;
        }
        let command = Supervised::start(&self.command, false, signals)?;
        if follows {
            recorder.follow_this_thread(false)?;
        }
        recorder.hurry();
        let mut running =
            Running { command, shows_progress: !self.quiet && io::stderr().is_terminal() };
        let status = running.wait(&mut recorder, &self)?;
        let (_, end, bytes) = recorder.stop()?;
        if !self.quiet {
            running.clear_progress();
            tell(&ended(&end, bytes, &self));
        }
        let status = status.or_else(|| running.command.wait());
        Ok(status.map_or(ExitCode::SUCCESS, exit_code))
    }
}

impl Running {
    /// Records until the command ends (its status), or something else says so.
    fn wait(
        &mut self,
        recorder: &mut Recorder<File>,
        session: &Session,
    ) -> Result<Option<ExitStatus>, Failure> {
        let started = Instant::now();
        let mut looked = started;
        loop {
            if self.command.is_stopped_within(PERIOD) {
                return Ok(None);
            }
            recorder.poll()?;
            if let Some(status) = self.command.status()? {
                return Ok(Some(status));
            }
            if session.limit.is_some_and(|limit| started.elapsed() >= limit) {
                return Ok(None);
            }
            if looked.elapsed() >= LOOK_PERIOD {
                looked = Instant::now();
                self.show_progress(recorder);
                if let Whom::Process(pid) = session.options.whom
                    && !hw::task::task_alive(pid)
                {
                    return Ok(None);
                }
            }
        }
    }

    fn show_progress(&self, recorder: &Recorder<File>) {
        if self.shows_progress {
            let (so_far, bytes) = recorder.so_far();
            let text = format!("{} events, {} lost, {}", so_far.events, so_far.lost, size(bytes));
            _ = write!(io::stderr(), "\r\x1b[K{text}");
        }
    }

    fn clear_progress(&self) {
        if self.shows_progress {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn ended(end: &End, bytes: u64, session: &Session) -> String {
    let lost = match end.lost {
        0 => "none lost".to_string(),
        lost => format!("{lost} LOST: try a larger --buffer"),
    };
    let file = session.output.display();
    format!(
        "{} events, {lost}, {}; read them with: turbolane trace {file}",
        end.events,
        size(bytes)
    )
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} bytes"),
        10_240..10_485_760 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
