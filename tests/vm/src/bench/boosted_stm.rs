// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `boost`: a software transactional memory with one boosted writer (TURBO 11: "asymmetric
//! software transactional memory: up to 50% speedup"), on an emulated FX-8120. Time is virtual.
//!
//! The memory is the crate fast-stm: a transaction runs on copies, and checks at its end whether
//! what it has read is still there; if not, it begins anew. One thread, the writer, makes long
//! transactions and six make short ones, each on a CPU of its own. A short one that commits voids
//! the work of a long one that has read what it wrote, so a long one succeeds the less often the
//! longer it takes. A boosted clock therefore wins more than the clock where there are conflicts: a
//! shorter transaction meets fewer of them.
//!
//! ```text
//! writer    |--- reads 240, writes 24 ---x|--- again ---------------|--- next ...
//! others    |-r8w2-|  pause  |-r8w2-|  pause  |-r8w2-| ...
//! ```
//!
//! What TURBO's slides measured is not known but for the sentence; their memory is taken to be
//! FastLane, whose master thread never begins anew. This one is symmetric, so that the boost alone
//! favours the writer.
//!
//! | figure | what |
//! |---|---|
//! | `boost.stm_writer_gain_pct.PAUSE` | transactions of the writer per second, boosted against not; PAUSE: of the others |
//! | `boost.stm_gain_pct` | variables that all threads' committed transactions read and write per second, the pause at which that gains most |
//! | `boost.stm_again_per_commit.PAUSE` | times that a transaction of the writer began anew, boosted, beside without |

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use fast_stm::{TVar, atomically};
use pstate::{Control, Options};

use super::boosted_programs::more_pct;
use crate::guest::{modprobe, monotonic_ns, set_affinity, work};
use crate::measure::{Figure, publish};

/// Runs of each.
const RUNS: u64 = 3;
/// The writer's CPU; its sibling idles, for a module has one clock.
const WRITER: u32 = 0;
const OTHERS: std::ops::Range<usize> = 2..8;
const VARIABLES: usize = 16_384;
/// A transaction reads the first of so many variables and writes the second.
const LONG: (usize, usize) = (240, 24);
const SHORT: (usize, usize) = (8, 2);
/// Rounds of work between two short transactions.
const PAUSES: [(&str, u64); 4] =
    [("long", 200_000), ("middle", 40_000), ("short", 4_000), ("none", 0)];
/// The writer's transactions in a run, and those before.
const COMMITS: u64 = 150;
const WARM_UP: u64 = 10;

/// What a run did.
struct Ran {
    /// Transactions of the writer per second.
    writer_per_s: f64,
    /// Variables of all committed transactions per second.
    variables_per_s: f64,
    /// Times that a transaction of the writer began anew.
    again: f64,
}

/// See the head.
pub fn run() -> Result<()> {
    modprobe("msr")?;
    let (mut figures, mut gains) = (Vec::new(), Vec::new());
    for (name, pause) in PAUSES {
        let (plain, boosted) = (runs(pause, false)?, runs(pause, true)?);
        let more = |rate: fn(&Ran) -> f64| more_pct(&each(&plain, rate), &each(&boosted, rate));
        let figure = |what: &str, unit, better, values: &[f64]| {
            Figure::of(&format!("boost.{what}.{name}"), unit, better, values)
        };
        let writer = more(|ran| ran.writer_per_s);
        figures.push(figure("stm_writer_gain_pct", "%", "higher", &writer)?);
        let without = each(&plain, |ran| ran.again).iter().sum::<f64>() / RUNS as f64;
        let again = each(&boosted, |ran| ran.again);
        let again = figure("stm_again_per_commit", "1", "lower", &again)?;
        figures.push(again.against("not boosted", without));
        let all = more(|ran| ran.variables_per_s);
        gains.push(Figure::of("boost.stm_gain_pct", "%", "higher", &all)?);
    }
    let most = gains.into_iter().max_by(|a, b| a.value.total_cmp(&b.value));
    figures.extend(most.map(|most| most.against("TURBO 11, up to", 50.0)));
    publish("boost-stm", &figures)
}

fn each(runs: &[Ran], of: fn(&Ran) -> f64) -> Vec<f64> {
    runs.iter().map(of).collect()
}

fn runs(pause: u64, boosted: bool) -> Result<Vec<Ran>> {
    let run = |seed| {
        let control = Control::open(&Options::default())?;
        if boosted {
            control.boost(WRITER)?;
        }
        let ran = once(pause, seed);
        let closed = control.close();
        ensure!(closed.failed == 0, "{closed:?}");
        let ran = ran?;
        println!(
            "pause {pause}, boosted {boosted}: {:.0} long transactions/s, each {:.2} times anew, \
             {:.0} variables/s",
            ran.writer_per_s, ran.again, ran.variables_per_s
        );
        Ok(ran)
    };
    (0..RUNS).map(run).collect()
}

fn once(pause: u64, seed: u64) -> Result<Ran> {
    let variables: Vec<TVar<u64>> = (0..VARIABLES as u64).map(TVar::new).collect();
    let (stop, short) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut begun_ns, mut again) = (0, 0);
    std::thread::scope(|scope| -> Result<()> {
        for cpu in OTHERS {
            let (variables, stop, short) = (&variables, &stop, &short);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed << 8 | cpu as u64);
                set_affinity(0, &[cpu])?;
                while !stop.load(Ordering::Relaxed) {
                    transact(variables, &mut rng, SHORT);
                    short.fetch_add(1, Ordering::Relaxed);
                    work(pause);
                }
                anyhow::Ok(())
            });
        }
        set_affinity(0, &[WRITER as usize])?;
        let mut rng = fastrand::Rng::with_seed(seed << 8);
        for commit in 0..WARM_UP + COMMITS {
            if commit == WARM_UP {
                short.store(0, Ordering::Relaxed);
                (begun_ns, again) = (monotonic_ns(), 0);
            }
            again += transact(&variables, &mut rng, LONG);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    let taken_s = (monotonic_ns() - begun_ns) as f64 / 1e9;
    let sizes = |(reads, writes): (usize, usize)| (reads + writes) as f64;
    let variables =
        COMMITS as f64 * sizes(LONG) + short.load(Ordering::Relaxed) as f64 * sizes(SHORT);
    Ok(Ran {
        writer_per_s: COMMITS as f64 / taken_s,
        variables_per_s: variables / taken_s,
        again: again as f64 / COMMITS as f64,
    })
}

/// A transaction on variables by chance, the same ones until it commits; how often it began anew.
fn transact(
    variables: &[TVar<u64>],
    rng: &mut fastrand::Rng,
    (reads, writes): (usize, usize),
) -> u64 {
    let chosen: Vec<&TVar<u64>> =
        (0..reads + writes).map(|_| &variables[rng.usize(..variables.len())]).collect();
    let (read, written) = chosen.split_at(reads);
    let begun = Cell::new(0);
    atomically(|memory| {
        begun.set(begun.get() + 1);
        let mut sum = 0u64;
        for variable in read {
            sum = sum.wrapping_add(variable.read(memory)?);
        }
        for variable in written {
            variable.write(memory, sum)?;
        }
        Ok(())
    });
    begun.get() - 1
}
