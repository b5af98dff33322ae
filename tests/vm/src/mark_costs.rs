// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a call of a marked function costs, in instructions, on a dim-silicon machine: there a clock
//! is as good as a counter of instructions, for without wide code a core executes one in each
//! cycle.
//!
//! ```text
//! vmtests mark-costs
//! ```
//!
//! One thread calls an empty function that is not marked; marked, with an argument that does not
//! count; marked, bound to the wide CPU, so that it never moves; and marked, beside idle scalar
//! CPUs, so that it moves twice.

use anyhow::Result;

use crate::guest::{monotonic_ns, nr_cpus, set_affinity, work};
use crate::lane::{Lane, stats};
use crate::load;
use crate::probe_site::{self, marked_with};
use crate::silicon::ask_for_full_clock;

/// Calls that are timed, and scalar work around each.
const CALLS: u64 = 2000;
const WORK: u64 = 2000;
/// A core's clock without wide code, GHz.
const CLOCK_GHZ: f64 = 2.8;

/// Prints a line for each case.
pub fn print() -> Result<()> {
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    let least = format!("{}@2,min-arg3=1024", probe_site::mark());
    let every = format!("{}@2", probe_site::mark());
    let last = nr_cpus() - 1;
    let plain_ns = loop_ns(0);
    println!("unmarked: {plain_ns:.0} ns for a call and the work around it");
    let everywhere: Vec<usize> = (0..=last).collect();
    for (name, mark, cpus) in [
        ("ignored", &least, &everywhere[..]),
        ("stays", &every, &everywhere[last..]),
        ("moves", &every, &everywhere),
    ] {
        let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1", "--mark", mark])?;
        load::become_scalar();
        set_affinity(0, cpus)?;
        let cost_ns = loop_ns(5) - plain_ns;
        set_affinity(0, &everywhere)?;
        println!("{name}: {:.0} instructions", cost_ns * CLOCK_GHZ);
        println!("{}", stats()?);
        lane.stop()?;
    }
    Ok(())
}

/// Time of a call with the work around it, ns.
fn loop_ns(length: u64) -> f64 {
    let call = || {
        marked_with(length, || {
            work(WORK);
        });
        work(WORK);
    };
    (0..CALLS / 10).for_each(|_| call());
    let start_ns = monotonic_ns();
    (0..CALLS).for_each(|_| call());
    (monotonic_ns() - start_ns) as f64 / CALLS as f64
}
