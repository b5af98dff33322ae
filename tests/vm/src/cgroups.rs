// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control groups (v2) with tasks that compute, for tests and benchmarks of CPU shares and limits.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::{Child, control_groups, work};

/// A control group with the CPU controller; its tasks end and it goes away when it is dropped.
pub struct Group {
    path: PathBuf,
    hogs: Vec<Child>,
}

impl Group {
    /// A group directly below the root.
    pub fn top(name: &str) -> Result<Self> {
        Self::at(control_groups()?.join(name))
    }

    /// A group below this one.
    pub fn child(&self, name: &str) -> Result<Self> {
        self.write("cgroup.subtree_control", "+cpu")?;
        Self::at(self.path.join(name))
    }

    fn at(path: PathBuf) -> Result<Self> {
        fs::create_dir(&path).with_context(|| format!("mkdir {}", path.display()))?;
        Ok(Group { path, hogs: Vec::new() })
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Set a file of the group.
    pub fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.path.join(file);
        fs::write(&path, text).with_context(|| format!("{text} > {}", path.display()))
    }

    /// Set `cpu.weight`.
    pub fn weight(self, weight: u32) -> Result<Self> {
        self.write("cpu.weight", &weight.to_string())?;
        Ok(self)
    }

    /// Set `cpu.max` to a percentage of one CPU, in periods of 100 ms.
    pub fn percent(self, percent: u32) -> Result<Self> {
        self.write("cpu.max", &format!("{} 100000", percent * 1000))?;
        Ok(self)
    }

    /// Add so many tasks that compute for ever.
    pub fn hogs(self, count: usize) -> Result<Self> {
        self.tasks(count, || {
            loop {
                work(10_000);
            }
        })
    }

    /// Add so many tasks that do this.
    pub fn tasks(mut self, count: usize, body: impl Fn() + Copy) -> Result<Self> {
        for _ in 0..count {
            self.hogs.push(self.task(body)?);
        }
        Ok(self)
    }

    /// A task of this group, in the caller's hands.
    pub fn task(&self, body: impl FnOnce()) -> Result<Child> {
        let procs = self.path.join("cgroup.procs");
        Child::fork(move || {
            // The child joins by itself, so that it does nothing elsewhere.
            if fs::write(&procs, "0").is_ok() {
                body();
            }
        })
    }

    /// CPU time that the group has used, with the groups below it.
    pub fn used(&self) -> Result<Duration> {
        let text = fs::read_to_string(self.path.join("cpu.stat"))?;
        let us =
            text.lines().find_map(|line| line.strip_prefix("usage_usec ")).context("no usage")?;
        Ok(Duration::from_micros(us.parse()?))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
        self.hogs.clear();
        // A task that has just ended may hold it for a moment.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// What a group has used, and when that was. The machine that reads it is busy with the groups: on
/// a loaded host a reading came seconds after the one before it, so each group has times of its
/// own, and a reading that took long is made again.
struct Reading {
    used: Duration,
    at: Instant,
    took: Duration,
}

impl Reading {
    fn now(group: &Group) -> Result<Self> {
        let begun = Instant::now();
        let used = group.used()?;
        let took = begun.elapsed();
        Ok(Reading { used, at: begun + took / 2, took })
    }

    /// The quickest of some.
    fn of(group: &Group) -> Result<Self> {
        let mut best = Self::now(group)?;
        for _ in 0..10 {
            if best.took < Duration::from_millis(5) {
                break;
            }
            let next = Self::now(group)?;
            if next.took < best.took {
                best = next;
            }
        }
        Ok(best)
    }
}

/// CPUs' worth of time that each group gets while this lasts.
pub fn measure(groups: &[&Group], settle: Duration, time: Duration) -> Result<Vec<f64>> {
    let readings =
        || groups.iter().map(|group| Reading::of(group)).collect::<Result<Vec<Reading>>>();
    std::thread::sleep(settle);
    let before = readings()?;
    std::thread::sleep(time);
    let rate = |(before, after): (&Reading, &Reading)| {
        (after.used - before.used).as_secs_f64() / (after.at - before.at).as_secs_f64()
    };
    Ok(before.iter().zip(&readings()?).map(rate).collect())
}

/// The greatest distance of a share got from the share due, in percent of the share due. Shares are
/// parts of what all got.
pub fn share_error_pct(got: &[f64], due: &[f64]) -> f64 {
    let (all_got, all_due): (f64, f64) = (got.iter().sum(), due.iter().sum());
    let error = |(got, due): (&f64, &f64)| (got / all_got / (due / all_due) - 1.0).abs() * 100.0;
    got.iter().zip(due).map(error).fold(0.0, f64::max)
}
