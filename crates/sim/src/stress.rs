// SPDX-License-Identifier: MIT OR Apache-2.0
//! A load that measures the engine itself: `sim.events_per_s`.
//!
//! Four tasks per CPU that compute for 20 us to 8 ms and sleep for up to 2 ms; every eighth is wide
//! in a quarter of its bursts. Licences, ticks and all costs are on; cores have two siblings, a
//! package at most 64 cores, a last-level cache at most 16.

use cpumodel::{CpuModel, InsnClass, Known, LicenseLevel, Platform, Sourced, Sureness};

use crate::engine::{Engine, Options, RunError};
use crate::events::Quiet;
use crate::program::{Builder, Group, Step, Workload};
use crate::rng::Dist;
use crate::sched::lane::{Lane, LaneConfig, Wide};
use crate::sys::{Layout, Sys};

fn known<T>(value: T) -> Known<T> {
    let source = "chosen for the benchmark".into();
    Some(Sourced { value, source, sureness: Sureness::Assumed })
}

fn workload(nr_cpus: usize) -> Workload {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    // cycles at 3 GHz
    let burst = Dist::Uniform(20 * 3_000, 8_000 * 3_000);
    let pause = Dist::Uniform(10_000, 2_000_000);
    let scalar = w.program(Builder::new().work(0, burst).sleep(pause).forever(0));
    let mixed = Builder::new()
        .work(0, burst)
        .sleep(pause)
        .step(Step::Repeat { slot: 0, times: Dist::Fixed(2), to: 0 })
        .wide(heavy, 2, burst)
        .sleep(pause)
        .forever(0);
    let mixed = w.program(mixed);
    let mut others = Group::new("scalar", nr_cpus * 7 / 2, scalar);
    others.scalar = true;
    w.group(others);
    w.group(Group::new("mixed", nr_cpus / 2, mixed));
    w
}

/// The load on a machine of so many CPUs: a power of two from 4 to 1,024. A sixteenth of its
/// cores are wide. It never ends: use `run_until`.
pub fn engine(nr_cpus: usize) -> Engine<Lane, Quiet> {
    let per_package = (nr_cpus / 2).min(64);
    let model = CpuModel {
        nr_cores: known(per_package as u32),
        cores_per_llc: known(per_package.min(16) as u32),
        levels: vec![LicenseLevel::default(); 3],
        ..Default::default()
    };
    let platform = Platform::new(&model);
    let sys = Sys::new(Layout::new(&platform.topology(nr_cpus / 2 / per_package)));
    let wide = Wide::Cores((nr_cpus / 32).max(1));
    let sched = Lane::new(&sys, LaneConfig { wide, ..Default::default() });
    let options = Options { duration_ns: u64::MAX / 4, ..Default::default() };
    Engine::new(platform, sys, sched, Quiet, workload(nr_cpus), options)
}

/// Run on until a time. Compiled here, so that whoever measures gets the code that `simulate` is:
/// the engine is generic, and a caller's crate would compile it by its own settings.
pub fn run_until(engine: &mut Engine<Lane, Quiet>, until_ns: u64) -> Result<(), RunError> {
    engine.run_until(until_ns)
}
