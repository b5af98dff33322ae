// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane run` as a child process of a test.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::guest::{scx_state, wait_for};

/// Counts the schedulers that have been enabled.
pub const ENABLED: &str = "/sys/kernel/sched_ext/enable_seq";

/// The binary under test.
pub const TURBOLANE: &str = "turbolane";

/// The binary that was built beside this one, else the one that is installed.
pub fn beside() -> Result<PathBuf> {
    let beside = std::env::current_exe()?.with_file_name(TURBOLANE);
    Ok(if beside.exists() { beside } else { TURBOLANE.into() })
}

/// A start takes some four seconds in an emulated machine, most of them in the verifier, and many
/// times that in Bochs or beside other guests.
const START_LIMIT: Duration = Duration::from_secs(240);

/// A running scheduler; killed when dropped.
pub struct Lane {
    child: Child,
    log: String,
}

/// How `turbolane run` ended.
#[derive(Debug)]
pub struct End {
    /// Exit code; 128 + signal if it was killed.
    pub code: i32,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Lane {
    /// Start `turbolane run ARGS` and wait until it is in force.
    pub fn start(args: &[&str]) -> Result<Self> {
        Self::start_by(&[TURBOLANE], args)
    }

    /// The same, started by this command.
    pub fn start_by(command: &[&str], args: &[&str]) -> Result<Self> {
        let mut lane = Self::spawn_by(command, args)?;
        let up = wait_for("the scheduler is not up", START_LIMIT, || {
            lane.child.try_wait().ok().flatten().is_some() || turbolane(&["ctl", "status"]).is_ok()
        });
        if up.is_err() || lane.child.try_wait()?.is_some() {
            bail!("turbolane run {args:?} did not come up: {}", lane.stderr());
        }
        Ok(lane)
    }

    /// Start it without waiting for anything.
    pub fn spawn(args: &[&str]) -> Result<Self> {
        Self::spawn_by(&[TURBOLANE], args)
    }

    fn spawn_by(command: &[&str], args: &[&str]) -> Result<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let n = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = format!("/tmp/turbolane-{}-{n}.log", std::process::id());
        let child = Command::new(command[0])
            .args(&command[1..])
            .arg("run")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log)?)
            .process_group(0)
            .spawn()
            .context("turbolane cannot be started")?;
        Ok(Lane { child, log })
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// What it has written to stderr so far.
    pub fn stderr(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ctrl-C; then the kernel's scheduler must be back.
    pub fn stop(self) -> Result<End> {
        self.signal(libc::SIGINT);
        let end = self.wait()?;
        ensure!(scx_state() == "disabled", "after Ctrl-C sched_ext is {}", scx_state());
        Ok(end)
    }

    /// Send it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.pid(), signal) };
    }

    /// Wait for its end.
    pub fn wait(mut self) -> Result<End> {
        let mut status = None;
        wait_for("turbolane run does not end", START_LIMIT, || {
            status = self.child.try_wait().ok().flatten();
            status.is_some()
        })?;
        use std::os::unix::process::ExitStatusExt;
        let code = status.map_or(-1, |s| s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or(0)));
        Ok(End { code, stderr: self.stderr() })
    }
}

impl Drop for Lane {
    /// A test that fails drops its lane: say what the scheduler had to say.
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_some_and(|status| !status.success())) {
            eprintln!("turbolane run had ended: {}", self.stderr());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Run `turbolane ARGS` to its end; its stdout, or an error with its stderr.
pub fn turbolane(args: &[&str]) -> Result<String> {
    let output = Command::new(TURBOLANE).args(args).stdin(Stdio::null()).output()?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "turbolane {args:?}: {}: {stdout}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}

/// Change settings of the running scheduler.
pub fn set(changes: &[&str]) -> Result<()> {
    let mut args = vec!["ctl", "set"];
    args.extend_from_slice(changes);
    turbolane(&args).map(drop)
}

/// Take a CPU away or give it back, and wait until the scheduler is in force again: the kernel ends
/// it at each such change, and counts how often one was enabled.
pub fn plug(cpu: usize, online: bool) -> Result<()> {
    let enabled_before = read(ENABLED);
    let to = if online { "1" } else { "0" };
    fs::write(format!("/sys/devices/system/cpu/cpu{cpu}/online"), to)
        .with_context(|| format!("CPU {cpu}: online={online} is refused"))?;
    wait_for("the scheduler is not back", Duration::from_secs(120), || {
        read(ENABLED) != enabled_before
            && scx_state() == "enabled"
            && turbolane(&["ctl", "status"]).is_ok()
    })
}

/// Waits until `turbolane ctl status` says this.
pub fn status_becomes(text: &str) -> Result<()> {
    let mut last = String::new();
    let found = wait_for(text, Duration::from_secs(20), || {
        last = turbolane(&["ctl", "status"]).unwrap_or_default();
        last.contains(text)
    });
    found.with_context(|| format!("{last}\n{}", stats().unwrap_or_default()))
}

/// Statistics of the running scheduler.
pub fn stats() -> Result<Value> {
    Ok(serde_json::from_str(&turbolane(&["stats", "--json"])?)?)
}

/// One statistic.
pub fn stat(stats: &Value, key: &str) -> Result<u64> {
    stats[key].as_u64().with_context(|| format!("no statistic {key} in {stats}"))
}

/// Text of a file, empty if there is none.
pub fn read(path: &str) -> String {
    let mut text = String::new();
    if let Ok(mut file) = fs::File::open(path) {
        let _ = file.read_to_string(&mut text);
    }
    text
}
