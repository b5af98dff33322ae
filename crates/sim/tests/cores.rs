// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that siblings share (policy/locality.h): a task goes to a core that idles.

mod common;

use common::*;
use sim::program::{Builder, Group, Workload};
use sim::rng::Dist;
use sim::sched::lane::Wide;

/// 100 ms at 2.8 GHz, the clock of 16 active cores.
const LONG: u64 = 280_000_000;
const SHORT: u64 = LONG / 10;

/// As many tasks as siblings, so that those of a group share their cores with each other: the long
/// ones would do so to their end, which takes 160 ms, when half of the cores idle.
#[test]
fn tasks_leave_shared_cores_for_idle_ones() {
    let mut w = Workload::new();
    for cycles in [LONG, SHORT, LONG, SHORT] {
        let program = w.program(Builder::new().work(0, Dist::Fixed(cycles)).end());
        w.group(Group::new("half of the siblings of half of the cores", 8, program));
    }
    let out = run(platform_free(), 1, w, lane(Wide::Cores(0)), secs(1));
    // 8 tasks: 16 ms of sharing, then the rest alone, and a tick in between
    let longest = [&out.groups[0], &out.groups[2]].map(|g| g.cpu_ns as f64 / 8e6);
    assert!(longest.iter().all(|&ms| (100.0..115.0).contains(&ms)), "CPU time, ms: {longest:?}");
}
