// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `boost`, programs that know nothing of it: libturbolane_preload.so boosts threads that
//! hold a pthread mutex that others wait for, on an emulated FX-8120. Time is virtual.
//!
//! | figure | what |
//! |---|---|
//! | `boost.preload_resize_gain_pct.*` | a resize of a table under the lock that its readers wait for (`locked_table.rs`): by how much it is shorter, as TURBO 11 counts |
//! | `boost.memcached_resize_gain_pct` | items per second while Debian's memcached is filled and its table doubled four times |
//! | `boost.preload_overhead_pct` | memcached with one thread, whose mutexes no thread waits for: what decorating them costs |

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::guest::modprobe;
use crate::locked_table::Ran;
use crate::measure::{Figure, publish};
use crate::memcached::Memcached;

/// Runs of each.
const RUNS: usize = 3;
/// Threads of the table, a CPU for each; one is left for who writes P-states.
const THREADS: &str = "7";
const SERVER: &str = "server 7\n";
/// Items, from 2^13 buckets to 2^17.
const ITEMS: usize = 110_000;
const THREADS_FILLED: usize = 4;
/// Items that one thread stores and another reads.
const READ: usize = 30_000;

/// The rules of a run; nothing is preloaded without.
#[derive(Debug)]
pub(super) struct Rules(pub Option<&'static str>);

/// glibc's mutexes.
pub(super) const NONE: Rules = Rules(None);
const OWNER: Rules = Rules(Some("all = owner\n"));
const DELEGATE: Rules = Rules(Some("all = delegate\n"));

impl Rules {
    /// As an environment.
    pub(super) fn environment(&self) -> Result<Vec<(&'static str, &'static str)>> {
        const FILE: &str = "/tmp/locks";
        let Some(rules) = self.0 else { return Ok(Vec::new()) };
        fs::write(FILE, format!("{rules}{SERVER}"))?;
        Ok(vec![("LD_PRELOAD", "libturbolane_preload.so"), ("TURBOLANE_LOCKS", FILE)])
    }
}

/// See the head.
pub fn run() -> Result<()> {
    modprobe("msr")?;
    let mut figures = Vec::new();
    let plain = tables(&NONE)?;
    for (name, rules) in [("owner", OWNER), ("delegate", DELEGATE)] {
        let boosted = tables(&rules)?;
        let resize_ns = |runs: &[Ran]| runs.iter().map(|ran| ran.resize_ns).collect::<Vec<_>>();
        let shorter = more_pct(&resize_ns(&boosted), &resize_ns(&plain));
        let figure =
            Figure::of(&format!("boost.preload_resize_gain_pct.{name}"), "%", "higher", &shorter)?;
        figures.push(figure.against("TURBO 11, memory included", 9.0));
    }
    let fills = |rules: &Rules| {
        repeated(|| Memcached::start(THREADS_FILLED, &rules.environment()?)?.fill(ITEMS))
    };
    let figure = |name: &str, better, plain: &[f64], other: &[f64], pct: &[f64]| {
        println!("{name}: {plain:.0?} requests/s by glibc, {other:.0?} by the library");
        Figure::of(name, "%", better, pct)
    };
    let (plain, owner) = (fills(&NONE)?, fills(&OWNER)?);
    let gains = more_pct(&plain, &owner);
    let resized = figure("boost.memcached_resize_gain_pct", "higher", &plain, &owner, &gains)?;
    figures.push(resized.against("TURBO 11", 9.0));
    let reads = |rules: &Rules| {
        repeated(|| {
            let memcached = Memcached::start(1, &rules.environment()?)?;
            memcached.fill(READ)?;
            memcached.read(READ)
        })
    };
    let (plain, owner) = (reads(&NONE)?, reads(&OWNER)?);
    let costs: Vec<f64> = more_pct(&plain, &owner).iter().map(|pct| -pct).collect();
    figures.push(figure("boost.preload_overhead_pct", "lower", &plain, &owner, &costs)?);
    publish("boost-programs", &figures)
}

/// By how much each of the second is more than that of the first, percent.
pub(super) fn more_pct(before: &[f64], after: &[f64]) -> Vec<f64> {
    before.iter().zip(after).map(|(before, after)| (after / before - 1.0) * 100.0).collect()
}

fn repeated(run: impl Fn() -> Result<f64>) -> Result<Vec<f64>> {
    (0..RUNS).map(|_| run()).collect()
}

fn tables(rules: &Rules) -> Result<Vec<Ran>> {
    let run = |_| {
        let mut table = Command::new("/proc/self/exe");
        table.args(["locked-table", THREADS]).envs(rules.environment()?);
        let done = table.output()?;
        let (said, why) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        ensure!(done.status.success() && why.is_empty(), "locked-table: {why}");
        let ran = Ran::parse(&said)?;
        println!(
            "{:?}: {:.0} ns a resize, {:.0} look-ups/s",
            rules.0, ran.resize_ns, ran.look_ups_per_s
        );
        Ok(ran)
    };
    (0..RUNS).map(run).collect()
}
