// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest wait of any task of the machine, as `turbolane record` saw it: from the moment at
//! which a task could run to the one at which it does.
//!
//! The clocks of the tasks themselves say something else in an emulated machine. QEMU executes one
//! virtual CPU at a time, and a task's turn of a tick often passes before its CPU gets there: by
//! the clocks of a thousand busy tasks the longest wait was 4.3 s, three turns in a row, where the
//! kernel saw 1.5 s from each to the next.

use std::fs;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use report::record::RecordSummary;

use crate::guest::set_real_time;
use crate::lane::turbolane;
use crate::recorder;

const TRACE: &str = "/tmp/waits.trace";
/// Of so many events the kernel may leave one out (why, tests/record.rs says): a lost beginning of
/// a turn makes a wait look longer than it was, a lost wake-up hides one, and neither is more
/// likely for a long wait.
const EVENTS_PER_LOST: u64 = 10_000;

/// A recording in progress. It must begin before the machine is busy: what would record starts like
/// any other program.
pub struct RecordedWaits {
    recorder: Child,
}

impl RecordedWaits {
    /// Begin.
    pub fn start() -> Result<Self> {
        let recorder = recorder::start_system(TRACE, &["--quiet"])?;
        let waits = RecordedWaits { recorder };
        waits.read_in_time()?;
        Ok(waits)
    }

    /// Gives the recorder a real-time class: among a thousand busy tasks it
    /// would wait for its own turn while events pile up, and 9 % of them were lost.
    fn read_in_time(&self) -> Result<()> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.recorder.id()))? {
            set_real_time(thread?.file_name().to_string_lossy().parse()?, 1)?;
        }
        Ok(())
    }

    /// End; the longest wait, and a line about it.
    pub fn finish(mut self) -> Result<(Duration, String)> {
        recorder::end(&mut self.recorder)?;
        let summary: RecordSummary =
            serde_json::from_str(&turbolane(&["trace", TRACE, "--json"])?)?;
        let (lost, events) = (summary.lost_events, summary.events);
        ensure!(lost <= 1 + events / EVENTS_PER_LOST, "{lost} events of {events} are lost");
        let longest = summary.tasks.iter().max_by_key(|task| task.longest_wait_ns);
        let longest = longest.context("the recording has no tasks")?;
        let wait = Duration::from_nanos(longest.longest_wait_ns);
        let line = format!(
            "in {} switches of {} tasks ({lost} events of {events} lost) task {} ({}) waited longest, {wait:.1?}",
            summary.switches,
            summary.tasks.len(),
            longest.tid,
            longest.name
        );
        Ok((wait, line))
    }
}

impl Drop for RecordedWaits {
    fn drop(&mut self) {
        // Of a test that failed; harmless if it has ended.
        let _ = self.recorder.kill();
    }
}
