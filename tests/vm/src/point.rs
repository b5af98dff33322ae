// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the points of all experiments on dim silicon share: `turbolane run` around the load, the
//! marks in the machine's log, and `point.json`, where the load says what it got done between the
//! marks.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use trace::Reader;

use crate::guest::{nr_cpus, wait_for};
use crate::lane::{Lane, stats, turbolane};
use crate::recorder;
use crate::silicon::ask_for_full_clock;

/// The port whose writes the machine notes in its log.
const PORT: u16 = 0xee;

/// A program that is stopped when dropped.
pub struct Running(Child);

impl Running {
    /// Starts it.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let name = command.get_program().display().to_string();
        Ok(Running(command.spawn().with_context(|| format!("{name} cannot be started"))?))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: our own child, not yet waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_none())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // What it started ends with it.
        self.signal(libc::SIGTERM);
        let _ = self.0.wait();
    }
}

/// What a part of the load got done between the marks.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Whose work: the name of the load.
    pub load: &'static str,
    /// How much, in the load's unit.
    pub done: f64,
    /// CPU time that it had for that, s, if that is counted.
    pub cpu_s: Option<f64>,
}

/// How long a point is, and before that its load; `None` for what it usually is.
pub fn with_warm_up(text: &str) -> Result<(usize, Option<usize>)> {
    Ok(match text.split_once('+') {
        Some((length, warm_up)) => (length.parse()?, Some(warm_up.parse()?)),
        None => (text.parse()?, None),
    })
}

/// All CPUs but the first, which is the client's and turbolane's: the lane's wide CPUs are the last
/// ones. All get their full clock.
pub fn load_cpus() -> Result<Vec<usize>> {
    let last = nr_cpus().checked_sub(1).filter(|&last| last > 0);
    let last = last.context("one CPU for the client and one for the load are needed")?;
    (0..=last).try_for_each(ask_for_full_clock)?;
    Ok((1..=last).collect())
}

/// Writes a mark to the machine's log, with what all CPUs have done.
pub fn mark(value: u8) -> Result<()> {
    // SAFETY: permission for one port, which a machine with dim silicon has and others ignore.
    let allowed = unsafe { libc::ioperm(PORT.into(), 1, 1) };
    ensure!(allowed == 0, "no access to port {PORT:#x}: {}", std::io::Error::last_os_error());
    // SAFETY: an OUT to that port; it touches no memory.
    unsafe {
        std::arch::asm!("out dx, al", in("dx") PORT, in("al") value, options(nomem, nostack));
    }
    Ok(())
}

/// A recording of a load, for a scenario (`turbolane trace --scenario`).
pub struct Recording {
    recorder: Child,
    file: PathBuf,
}

impl Recording {
    /// `turbolane record` of this process and its children, at work.
    pub fn start(pid: u32, options: &[&str]) -> Result<Self> {
        let file = out_dir().join("load.trace");
        let (pid, path) = (pid.to_string(), file.display().to_string());
        let recorder = recorder::start(&[&["-o", &path, "--pid", &pid], options].concat())?;
        wait_for("no recording appears", Duration::from_secs(60), || {
            fs::metadata(&file).is_ok_and(|file| file.len() > 0)
        })?;
        Ok(Recording { recorder, file })
    }

    /// Ends it, and leaves in `load.window` which part of it was measured, as `--window` takes it:
    /// from this time by CLOCK_MONOTONIC on, for so long.
    pub fn end(mut self, begin_s: f64, seconds: f64) -> Result<()> {
        recorder::end(&mut self.recorder)?;
        let start_ns = Reader::new(fs::File::open(&self.file)?)?.info().start_ns;
        let from_ns = ((begin_s * 1e9) as u64).checked_sub(start_ns);
        let from_ns = from_ns.context("the load began before its recording")?;
        let to_ns = from_ns + (seconds * 1e9) as u64;
        fs::write(out_dir().join("load.window"), format!("{from_ns}ns-{to_ns}ns"))
            .context("cannot write the recording's window")
    }
}

/// Where what is kept goes.
fn out_dir() -> PathBuf {
    std::env::var("TURBOLANE_OUT").unwrap_or_else(|_| "/out".into()).into()
}

/// The scheduler that a load is measured under.
pub struct Scheduler {
    /// Nothing: the kernel's own.
    lane: Option<Lane>,
    start_s: f64,
}

impl Scheduler {
    /// `turbolane run` with these arguments; without any, the kernel's scheduler.
    pub fn start(run: &[&str]) -> Result<Self> {
        let start = Instant::now();
        let lane = if run.is_empty() { None } else { Some(Lane::start(run)?) };
        Ok(Scheduler { lane, start_s: start.elapsed().as_secs_f64() })
    }

    /// Ends it and leaves what the load did, and what the scheduler counted, in
    /// `$TURBOLANE_OUT/point.json`.
    pub fn end(self, loads: &[Done], seconds: f64) -> Result<()> {
        let mut counted = Value::Null;
        if let Some(lane) = self.lane {
            counted = serde_json::to_value(stats()?)?;
            counted["trap_module"] = trap_counters();
            print!("{}", turbolane(&["ctl", "status"])?);
            lane.stop()?;
        }
        let result = json!({
            "loads": loads,
            "seconds": seconds,
            "lane_start_s": self.start_s,
            "stats": counted,
        });
        for Done { load, done, .. } in loads {
            println!("{load}: {:.1} per second, in {:.3} ms", done / seconds, seconds * 1e3);
        }
        fs::write(out_dir().join("point.json"), result.to_string())
            .context("cannot write the point's result")
    }
}

/// What the trap module has counted on all CPUs; null without it.
fn trap_counters() -> Value {
    let Ok(device) = hw::trap::Device::open() else { return Value::Null };
    let of = |cpu| device.cpu_counters(cpu).ok();
    let sum = |field: fn(&hw::trap::CpuCounters) -> u64| {
        (0..nr_cpus() as u32).filter_map(of).map(|counters| field(&counters)).sum::<u64>()
    };
    json!({
        "traps": sum(|c| c.traps),
        "traps_heavy": sum(|c| c.traps_heavy),
        "traps_light": sum(|c| c.traps_light),
        "steered": sum(|c| c.steered),
        "reductions": sum(|c| c.reductions),
        "live_returns": sum(|c| c.live_returns),
        "grace_returns": sum(|c| c.grace_returns),
        "level_rises": sum(|c| c.level_rises),
        "glances": sum(|c| c.glances),
        "unread_returns": sum(|c| c.unread_returns),
    })
}
