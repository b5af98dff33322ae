// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest run gave.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::logscan::Finding;
use crate::process::Scratch;

/// How a guest run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The command ended with this exit code (128 + N if signal N killed it),
    /// and the guest delivered everything.
    Exited(i32),
    /// The limit passed; the guest was ended from outside.
    TimedOut,
    /// The guest ended without an exit code: a panic, or a crash of the
    /// emulator. The text says what is known: a line, then the last words of
    /// the emulator and of the kernel's console.
    Died(String),
}

/// Everything that came back from a guest.
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The command's standard output.
    pub stdout: String,
    /// The command's standard error.
    pub stderr: String,
    /// The whole kernel log; only what reached the console if the guest did
    /// not get to its end.
    pub kernel_log: String,
    /// What the CPUs and tasks of a guest did when its limit passed, if it could say so.
    pub hangs_at: String,
    /// Complaints of the kernel that were not allowed.
    pub findings: Vec<Finding>,
    /// Time from the emulator's start to the command's start, in seconds;
    /// `None` if the command never started.
    pub boot_s: Option<f64>,
    /// CPU time of the emulator from the command's start to the end, in seconds.
    pub command_cpu_s: Option<f64>,
    /// Time of the whole run without earlier attempts, in seconds.
    pub total_s: f64,
    /// Boots that died before the command started and were repeated.
    pub retries: u32,
    pub(crate) silicon_log: Option<PathBuf>,
    pub(crate) out_dir: PathBuf,
    pub(crate) _scratch: Scratch,
}

impl Outcome {
    /// Whether the command succeeded and the kernel had nothing to complain
    /// about.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.end == End::Exited(0) && self.findings.is_empty()
    }

    /// The exit code as a shell would report it: the command's own, 124 after
    /// a timeout, 125 for a guest that died.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self.end {
            End::Exited(code) => code,
            End::TimedOut => 124,
            End::Died(_) => 125,
        }
    }

    /// The folder with what the command left in `/out`; it lasts as long as
    /// this value.
    #[must_use]
    pub fn out_dir(&self) -> &Path {
        &self.out_dir
    }

    /// The log of a dim-silicon machine, whose form `crates/silicon` documents; it lasts as long as
    /// this value.
    #[must_use]
    pub fn silicon_log(&self) -> Option<&Path> {
        self.silicon_log.as_deref()
    }

    /// One line about how it went, for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = match &self.end {
            End::Exited(code) => format!("exit code {code}"),
            End::TimedOut => "time limit reached".to_owned(),
            End::Died(why) => {
                format!("guest died: {}", why.lines().next().unwrap_or_default())
            }
        };
        if let Some(boot_s) = self.boot_s {
            text += &format!(", boot {boot_s:.1} s");
        }
        text += &format!(", total {:.1} s", self.total_s);
        if let Some((boot_s, cpu_s)) = self.boot_s.zip(self.command_cpu_s) {
            // one thread emulates all CPUs
            let busy = cpu_s / (self.total_s - boot_s).max(0.1);
            text += &format!(", busy {:.0} %", 100.0 * busy);
        }
        if self.retries > 0 {
            text += ", 1 boot repeated after the emulator crashed";
        }
        if !self.findings.is_empty() {
            text += &format!(", {} kernel log findings", self.findings.len());
        }
        text
    }

    /// Copies what the command left in `/out` to `to`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn copy_out(&self, to: &Path) -> Result<()> {
        std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
        let from = self.out_dir.join(".");
        crate::process::output(std::process::Command::new("cp").arg("-r").args([&*from, to]))?;
        Ok(())
    }
}
