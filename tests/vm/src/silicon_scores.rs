// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores (DIM 5.2) on a machine with dim silicon, where processes of all kinds share cores
//! and say nothing: what the kernel's licence counters make of each of them, beside what it
//! executes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::guest::{Child, nr_cpus};
use crate::lane::{Lane, turbolane};
use crate::silicon::{Class, ask_for_full_clock, scalar, wide};

/// What the processes execute, with the level that it asks for: the power score that each must get.
const KINDS: [(Option<Class>, f64); 5] = [
    (Some(Class::Heavy512), 2.0),
    (Some(Class::Heavy256), 1.0),
    (Some(Class::Light256), 0.0),
    (None, 0.0),
    (None, 0.0),
];

/// For the scores to settle, in the guest's time.
const LIMIT: Duration = Duration::from_secs(4);
/// A score that is off by no more has settled.
const SETTLED: f64 = 0.2;

/// A process and what was made of it.
#[derive(Clone, Debug)]
pub struct Scored {
    /// What it executes.
    pub what: String,
    /// Its score, and the true one.
    pub score: f64,
    /// See `score`.
    pub truth: f64,
}

impl Scored {
    /// How far the score is off.
    pub fn error(&self) -> f64 {
        (self.score - self.truth).abs()
    }
}

/// The scores of all processes when all of them have settled, or when the time is over.
pub fn scores() -> Result<Vec<Scored>> {
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1", "--scores", "on"])?;
    let children = KINDS.map(|(class, _)| Child::fork(move || execute(class)));
    let children = children.into_iter().collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let scored = loop {
        let top = top()?;
        let scored = children.iter().zip(KINDS).map(|(child, (class, truth))| {
            let score = score(&top, child)?;
            Some(Scored { what: format!("{class:?}"), score, truth })
        });
        match scored.collect::<Option<Vec<_>>>() {
            Some(all) if all.iter().all(|one| one.error() <= SETTLED) => break all,
            Some(all) if start.elapsed() > LIMIT => break all,
            None if start.elapsed() > LIMIT => bail!("processes without a score: {top}"),
            _ => {}
        }
    };
    drop(children);
    lane.stop()?;
    for Scored { what, score, truth } in &scored {
        println!("{what}: score {score:.3}, asks for {truth}");
    }
    println!("after {:?}", start.elapsed());
    Ok(scored)
}

fn execute(class: Option<Class>) {
    loop {
        match class {
            Some(class) => wide(class, 1_000),
            None => drop(scalar(10_000)),
        }
    }
}

fn top() -> Result<Value> {
    let text = turbolane(&["top", "--once", "--json", "--interval", "100ms"])?;
    serde_json::from_str(&text).context("what top says")
}

/// The score of a process; `None` before it has one.
fn score(top: &Value, child: &Child) -> Option<f64> {
    let task = top["tasks"].as_array()?.iter().find(|task| task["tid"] == child.pid)?;
    task["power_score"].as_f64()
}
