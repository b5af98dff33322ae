// SPDX-License-Identifier: MIT OR Apache-2.0
//! One point of an experiment on the dim-silicon machine: a boot, a load, and what the machine's
//! log says of it.
//!
//! Points are kept in the cache, so that an experiment that was interrupted goes on where it was.
//! The key is a hash of everything that could change a result: our programs, the machine's library,
//! this program (it holds the emulator's patches), the kernel's release and the point's own words.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use silicon::{CpuTotals, Log};
use testbed::Silicon;

use crate::lab::Lab;

/// For boot, load and scheduler together: many times what they take, which is eleven minutes where
/// the size is automatic and the host has other work.
const LIMIT: Duration = Duration::from_secs(3600);

/// What is to be measured.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    /// Its row's name; letters, digits and `-`.
    pub(crate) name: String,
    /// What runs in the guest. It leaves `point.json`, and marks 1 and 2 in the log.
    pub(crate) command: Vec<String>,
}

/// What a load got done.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) load: String,
    /// In the load's unit.
    pub(crate) done: f64,
    /// CPU time for that, s, if the load counts it.
    pub(crate) cpu_s: Option<f64>,
}

/// What was measured between the two marks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Each load.
    pub(crate) done: Vec<Done>,
    /// The time between the marks in the guest, ns.
    pub(crate) ns: u64,
    /// Each CPU of the load.
    pub(crate) cpus: Vec<Busy>,
    /// Time of the host for boot, load and all else, s.
    pub(crate) host_s: f64,
}

/// A CPU between the marks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Busy {
    pub(crate) insns: u64,
    /// By level, ns.
    pub(crate) busy_ns: Vec<u64>,
    /// Instructions of classes that can raise a level.
    pub(crate) wide_insns: u64,
}

impl Busy {
    fn of(totals: CpuTotals) -> Self {
        // all classes but the first, light 256-bit code
        let wide_insns = totals.wide.iter().skip(1).sum();
        Busy { insns: totals.insns, busy_ns: totals.busy_ns, wide_insns }
    }
}

impl Measured {
    /// What the load of this name got done; a load that the point did not report has done nothing.
    fn done(&self, load: &str) -> f64 {
        self.done.iter().find(|done| done.load == load).map_or(0.0, |done| done.done)
    }

    pub(crate) fn per_s(&self, load: &str) -> f64 {
        self.done(load) / self.ns as f64 * 1e9
    }

    /// What a load got done for the CPU time that it had, if that is counted.
    pub(crate) fn per_cpu_s(&self, load: &str) -> Option<f64> {
        let done = self.done.iter().find(|done| done.load == load)?;
        Some(done.done / done.cpu_s?)
    }

    /// Instructions of all CPUs for a unit of a load's work.
    pub(crate) fn insns_per(&self, load: &str) -> f64 {
        self.cpus.iter().map(|cpu| cpu.insns).sum::<u64>() as f64 / self.done(load)
    }

    /// Share of the wide instructions that were executed by other CPUs than the one that executed
    /// most of them, %. An instruction takes a cycle.
    pub(crate) fn wide_elsewhere_pct(&self) -> f64 {
        let all = self.cpus.iter().map(|cpu| cpu.wide_insns);
        let (most, sum) = (all.clone().max().unwrap_or(0), all.sum::<u64>());
        (sum - most) as f64 / sum.max(1) as f64 * 100.0
    }

    /// Share of the CPUs' time that is spent at a level, %.
    pub(crate) fn at_level_pct(&self, level: usize) -> f64 {
        let busy_ns = |cpu: &Busy| cpu.busy_ns.get(level).copied().unwrap_or(0);
        let all_ns = self.ns as f64 * self.cpus.len() as f64;
        self.cpus.iter().map(busy_ns).sum::<u64>() as f64 / all_ns * 100.0
    }
}

/// Where points are measured.
pub(crate) struct Bench<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) machine: Silicon,
    /// CPUs of the guest; the first one is the client's.
    pub(crate) cpus: u32,
    /// Name of the experiment.
    pub(crate) experiment: &'a str,
    /// Hash of everything that is the same for all points.
    inputs: u64,
}

/// A point that was measured, with the machine's log of it.
pub(crate) struct Kept {
    pub(crate) measured: Measured,
    pub(crate) log: PathBuf,
}

impl Kept {
    /// The load's recording, if it was one, and the part of it between the marks.
    pub(crate) fn recording(&self) -> Result<(PathBuf, String)> {
        let file = self.log.with_extension("trace");
        let window = std::fs::read_to_string(self.log.with_extension("window"))
            .with_context(|| format!("{} has no window", file.display()))?;
        Ok((file, window))
    }
}

impl<'a> Bench<'a> {
    pub(crate) fn new(
        lab: &'a Lab,
        machine: Silicon,
        cpus: u32,
        experiment: &'a str,
    ) -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        let this = std::env::current_exe().context("this program has no file")?;
        let payload = lab.binaries.payload.iter().map(|(host, _)| host);
        for file in payload.chain([&machine.library, &this]) {
            let bytes =
                std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            bytes.hash(&mut hasher);
        }
        (lab.images("").kernel.release.as_str(), &machine.settings, cpus).hash(&mut hasher);
        Ok(Bench { lab, machine, cpus, experiment, inputs: hasher.finish() })
    }

    /// The point's result, measured now unless it was kept.
    pub(crate) fn get(&self, point: &Point, again: bool) -> Result<Kept> {
        let folder = self.lab.cache.root().join("experiments").join(self.experiment);
        let mut hasher = DefaultHasher::new();
        (self.inputs, &point.command).hash(&mut hasher);
        let key = hasher.finish();
        let result = folder.join(format!("{}.json", point.name));
        let log = folder.join(format!("{}.log", point.name));
        if let Some(measured) = read(&result, key).filter(|_| !again && log.exists()) {
            return Ok(Kept { measured, log });
        }
        let measured = self.measure(point, &log)?;
        let text = serde_json::to_string(&Record { key, measured: measured.clone() })?;
        write_whole(&result, &text)?;
        Ok(Kept { measured, log })
    }

    fn measure(&self, point: &Point, log_to: &Path) -> Result<Measured> {
        let guest = self
            .lab
            .guest("")
            .silicon(self.machine.clone())
            .cpus(self.cpus)
            .limit(LIMIT)
            .env("TURBOLANE_OUT", "/out");
        let words: Vec<&str> = point.command.iter().map(String::as_str).collect();
        let outcome = guest.run(&words)?;
        for finding in &outcome.findings {
            eprintln!("{}: kernel log, line {}: {}", point.name, finding.number, finding.line);
        }
        ensure!(
            outcome.is_clean(),
            "point {}: {}\n{}",
            point.name,
            outcome.summary(),
            testbed::last_lines(&outcome.stderr, 20)
        );
        let from = outcome.silicon_log().context("the machine left no log")?;
        let text = std::fs::read_to_string(from).context("the machine's log cannot be read")?;
        let report = std::fs::read_to_string(outcome.out_dir().join("point.json"))
            .context("the load left no point.json")?;
        let report: Report = serde_json::from_str(&report).context("point.json")?;
        let measured = evaluate(&text, report, self.cpus, outcome.total_s)
            .with_context(|| format!("point {}", point.name))?;
        write_whole(log_to, &text)?;
        for kind in ["trace", "window"] {
            let from = outcome.out_dir().join(format!("load.{kind}"));
            if from.exists() {
                let to = log_to.with_extension(kind);
                std::fs::copy(&from, &to)
                    .with_context(|| format!("cannot write {}", to.display()))?;
            }
        }
        Ok(measured)
    }
}

/// What the load says of itself.
#[derive(Deserialize)]
struct Report {
    loads: Vec<Done>,
}

#[derive(Serialize, Deserialize)]
struct Record {
    key: u64,
    measured: Measured,
}

/// A kept result, if it is there and has this key.
fn read(path: &Path, key: u64) -> Option<Measured> {
    let record: Record = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    (record.key == key).then_some(record.measured)
}

/// A file that exists complete or not at all.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().context("a file without a folder")?;
    let new = path.with_extension("new");
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&new, text))
        .and_then(|()| std::fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn evaluate(log: &str, report: Report, cpus: u32, host_s: f64) -> Result<Measured> {
    let log = Log::parse(log)?;
    let (first, second) = (log.mark(1), log.mark(2));
    let (first, second) = first.zip(second).context("the load set no marks 1 and 2")?;
    ensure!(first.t_ns < second.t_ns, "the marks are in the wrong order");
    let servers = cpus as usize - 1;
    let pairs = second.cpus.iter().zip(&first.cpus).skip(1);
    let busy: Vec<Busy> = pairs.map(|(now, then)| Busy::of(now.since(then))).collect();
    ensure!(busy.len() == servers, "the marks lack CPUs");
    let ns = second.t_ns - first.t_ns;
    Ok(Measured { done: report.loads, ns, cpus: busy, host_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "mark t_ns=1000 value=1\n\
        cpu t_ns=1000 cpu=0 insns=90 cycles=90 busy_ns=40,0,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0,0,0,0,0\n\
        cpu t_ns=1000 cpu=1 insns=100 cycles=100 busy_ns=40,0,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0,0,0,0,0\n\
        mark t_ns=3000 value=2\n\
        cpu t_ns=3000 cpu=0 insns=900 cycles=900 busy_ns=40,0,0 halted_ns=0 throttled_ns=0 needed_ns=0 wide=0,0,0,0,0\n\
        cpu t_ns=3000 cpu=1 insns=500 cycles=500 busy_ns=1040,0,500 halted_ns=20 throttled_ns=0 needed_ns=0 wide=0,0,0,9,0\n";

    fn report() -> Report {
        Report { loads: vec![Done { load: "nginx".to_owned(), done: 4.0, cpu_s: None }] }
    }

    #[test]
    fn a_point_is_what_lies_between_the_marks() {
        let measured = evaluate(LOG, report(), 2, 1.0).unwrap();
        assert_eq!(measured.cpus.len(), 1, "the client's CPU does not count");
        assert!((measured.per_s("nginx") - 2e6).abs() < 1e-6);
        assert!((measured.insns_per("nginx") - 100.0).abs() < 1e-9);
        assert!((measured.at_level_pct(0) - 50.0).abs() < 1e-9);
        assert!((measured.at_level_pct(2) - 25.0).abs() < 1e-9);
    }

    /// Light 256-bit code is not wide; with no wide code there is none elsewhere.
    #[test]
    fn wide_code_is_where_most_of_it_is() {
        let cpu = |t_ns: u32, cpu: u32, wide: &str| {
            let rest = "busy_ns=1 halted_ns=0 throttled_ns=0 needed_ns=0";
            format!("cpu t_ns={t_ns} cpu={cpu} insns=9 cycles=9 {rest} wide={wide}\n")
        };
        let elsewhere_pct = |wide: [&str; 4]| {
            let at = |t_ns, wide: [&str; 4]| -> String {
                let cpus = (0..).zip(wide).map(|(n, wide)| cpu(t_ns, n, wide));
                format!("mark t_ns={t_ns} value={t_ns}\n") + &cpus.collect::<String>()
            };
            let log = at(1, ["0,0,0,0,0"; 4]) + &at(2, wide);
            evaluate(&log, report(), 4, 1.0).unwrap().wide_elsewhere_pct()
        };
        let found = elsewhere_pct(["0,9,9,9,0", "9,0,1,0,0", "9,9,0,0,0", "9,0,0,90,0"]);
        assert!((found - 10.0).abs() < 1e-9, "{found}");
        assert_eq!(elsewhere_pct(["0,0,0,0,0", "9,0,0,0,0", "0,0,0,0,0", "0,0,0,0,0"]), 0.0);
    }

    #[test]
    fn logs_without_marks_are_refused() {
        assert!(evaluate("", report(), 2, 1.0).is_err());
        assert!(evaluate(LOG, report(), 4, 1.0).is_err());
    }

    #[test]
    fn results_are_kept_by_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b.json");
        let measured = evaluate(LOG, report(), 2, 1.0).unwrap();
        write_whole(&path, &serde_json::to_string(&Record { key: 7, measured }).unwrap()).unwrap();
        assert!(read(&path, 7).is_some());
        assert!(read(&path, 8).is_none());
    }
}
