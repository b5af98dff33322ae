// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suites that run in guests. `tests/vm` is their registry: `vmtests
//! --list` and `vmtests --list-benches` print one JSON object per line.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use testbed::Outcome;

use crate::binaries::Binaries;
use crate::lab::Lab;
use crate::silicon;

/// What a suite wants to run on, as the registry states it. Only the name is
/// required.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Suite {
    /// What `vmtests run NAME` or `vmtests bench NAME` takes.
    pub(crate) name: String,
    /// Benchmarks only: the GROUP of `./x bench GROUP`.
    #[serde(default)]
    pub(crate) group: String,
    /// Benchmarks only: runs on this machine, not in a guest.
    #[serde(default)]
    pub(crate) host: bool,
    /// "qemu" or "bochs".
    #[serde(default = "qemu")]
    emulator: String,
    /// A dim-silicon machine: `CPU[,KEY=VALUE...]`; empty for none.
    #[serde(default)]
    silicon: String,
    #[serde(default = "four")]
    cpus: u32,
    /// As QEMU's `-smp` takes it, e.g. "cores=2,threads=2".
    #[serde(default)]
    topology: String,
    #[serde(default = "two_gib")]
    memory_mib: u32,
    /// As QEMU's `-cpu` takes it.
    #[serde(default = "max")]
    cpu: String,
    /// The time stamp counter counts instructions.
    #[serde(default)]
    icount: bool,
    /// As `icount`, with 2^shift ticks per instruction.
    #[serde(default)]
    icount_shift: Option<u8>,
    /// Series of the kernel, as the testbed names it; empty is its first one.
    #[serde(default)]
    pub(crate) kernel: String,
    /// Added to the kernel command line.
    #[serde(default)]
    kernel_args: String,
    #[serde(default = "two_minutes")]
    limit_s: u64,
    /// Kernel log lines with one of these texts are no findings.
    #[serde(default)]
    allow_log: Vec<String>,
    /// Other schedulers to put into the guest, to compare with: "scx_layered".
    #[serde(default)]
    peers: Vec<String>,
    /// Those with the same word share a guest; empty: one of its own.
    #[serde(default)]
    shares: String,
}

/// So many suites share a guest at most.
const TOGETHER: usize = 5;

/// Suites by the guest that they run in: those guests first that may take longest, so that none is
/// left alone at the end.
pub(crate) fn by_guest(suites: Vec<Suite>) -> Vec<Vec<Suite>> {
    let (alone, shared): (Vec<_>, Vec<_>) =
        suites.into_iter().partition(|suite| suite.shares.is_empty());
    let mut words = BTreeMap::<_, Vec<_>>::new();
    for suite in shared {
        words.entry(suite.shares.clone()).or_default().push(suite);
    }
    let shared = words.values().flat_map(|suites| suites.chunks(TOGETHER).map(<[Suite]>::to_vec));
    let mut guests: Vec<_> = alone.into_iter().map(|suite| vec![suite]).chain(shared).collect();
    guests.sort_by_key(|suites| Reverse(limit_s(suites)));
    guests
}

/// Limit of a guest that runs all of these.
fn limit_s(suites: &[Suite]) -> u64 {
    suites.iter().map(|suite| suite.limit_s).sum()
}

fn qemu() -> String {
    "qemu".to_owned()
}

fn four() -> u32 {
    4
}

fn two_gib() -> u32 {
    2048
}

fn two_minutes() -> u64 {
    120
}

fn max() -> String {
    "max".to_owned()
}

/// Asks the registry for its suites.
pub(crate) fn list(registry: &Path, question: &str) -> Result<Vec<Suite>> {
    let out = Command::new(registry)
        .arg(question)
        .output()
        .with_context(|| format!("cannot start {}", registry.display()))?;
    ensure!(
        out.status.success(),
        "vmtests {question} ended with {}: {}",
        out.status,
        String::from_utf8_lossy(&out.stderr).trim()
    );
    parse(&String::from_utf8_lossy(&out.stdout))
}

fn parse(text: &str) -> Result<Vec<Suite>> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| {
            serde_json::from_str(line)
                .with_context(|| format!("vmtests lists a suite that xtask cannot read: {line}"))
        })
        .collect()
}

/// What the guests of these suites need, and those with the usual kernel if others are to boot.
pub(crate) fn lab(binaries: Binaries, suites: &[Suite], with_usual: bool) -> Result<Lab> {
    let in_guests = suites.iter().filter(|suite| !suite.host);
    let kernels = in_guests.map(|suite| suite.kernel.as_str());
    Lab::with_kernels(binaries, kernels.chain(with_usual.then_some("")))
}

/// Boots one guest for all of these.
pub(crate) fn run_together(suites: &[Suite], lab: &Lab) -> Result<Outcome> {
    let first = suites.first().context("no suite to run")?;
    let names = suites.iter().map(|suite| suite.name.as_str());
    let command: Vec<&str> = ["vmtests", "together"].into_iter().chain(names).collect();
    Suite { limit_s: limit_s(suites), ..first.clone() }.run(lab, &command)
}

/// Whether a suite that shared a guest passed, and in which time, s; `None` if it did not get
/// there.
pub(crate) fn ended(stdout: &str, name: &str) -> Option<(bool, f64)> {
    stdout.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_its = words.next() == Some("together") && words.next() == Some(name);
        let seconds = words.next().filter(|_| is_its)?.parse().ok()?;
        Some((words.next() == Some("ok"), seconds))
    })
}

impl Suite {
    /// Boots a guest as the suite wants it and runs `command` there.
    pub(crate) fn run(&self, lab: &Lab, command: &[&str]) -> Result<Outcome> {
        let mut guest = lab
            .guest(&self.kernel)
            .emulator(self.emulator.parse()?)
            .cpus(self.cpus)
            .topology(&self.topology)
            .memory_mib(self.memory_mib)
            .cpu(&self.cpu)
            .icount_shift(self.icount_shift.or(self.icount.then_some(0)))
            .kernel_args(&self.kernel_args)
            .limit(Duration::from_secs(self.limit_s))
            .env("TURBOLANE_OUT", "/out");
        if !self.silicon.is_empty() {
            let machine = silicon::machine(&self.silicon, self.cpus, &self.topology)?;
            guest = guest.silicon(machine);
        }
        for peer in &self.peers {
            let program = testbed::peer(&lab.cache, peer)?;
            guest = guest.payload(program, Path::new("/usr/bin").join(peer));
        }
        for text in &self.allow_log {
            guest = guest.allow_log(text);
        }
        guest.run(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_is_required() {
        let suites = parse("{\"name\":\"a\"}\n\n{\"name\":\"b\",\"cpus\":2}\n").unwrap();
        assert_eq!(suites.len(), 2);
        assert_eq!((suites[0].cpus, suites[1].cpus), (4, 2));
    }

    #[test]
    fn suites_share_guests_and_the_longest_start_first() {
        let line = |n: usize, shares| format!("{{\"name\":\"s{n}\",\"shares\":\"{shares}\"}}\n");
        let words = ["a", "a", "b", "a", "", "a", "b", "a", "a"];
        let text: String = words.iter().enumerate().map(|(n, word)| line(n, word)).collect();
        let guests = by_guest(parse(&text).unwrap());
        let names = |guest: &Vec<Suite>| guest.iter().map(|suite| suite.name.clone()).collect();
        let names: Vec<Vec<String>> = guests.iter().map(names).collect();
        let expected: [&[&str]; 4] =
            [&["s0", "s1", "s3", "s5", "s7"], &["s2", "s6"], &["s4"], &["s8"]];
        assert_eq!(names, expected);
    }

    #[test]
    fn suites_that_share_a_guest_end_by_themselves() {
        let stdout = "noise\ntogether a 1.5 ok\ntogether ab 2.0 failed\n";
        assert_eq!(ended(stdout, "a"), Some((true, 1.5)));
        assert_eq!(ended(stdout, "ab"), Some((false, 2.0)));
        assert_eq!(ended(stdout, "b"), None);
    }

    #[test]
    fn a_misspelt_key_is_refused() {
        assert!(parse(r#"{"name":"a","cpu_count":2}"#).is_err());
    }
}
