// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines and loads that several tests use.
#![allow(dead_code)] // each test binary uses its part

use cpumodel::{
    CpuModel, InsnClass, Khz, Known, LicenseLevel, Platform, Sourced, Sureness, TurboBin,
};
use sim::engine::{Engine, Options, Outcome};
use sim::events::Quiet;
use sim::program::{Arrivals, Builder, Group, OWN_INBOX, Source, Step, Workload};
use sim::rng::Dist;
use sim::sched::lane::{Lane, LaneConfig, Wide};
use sim::sys::{Layout, Sys};

pub fn known<T>(value: T) -> Known<T> {
    Some(Sourced { value, source: "test".into(), sureness: Sureness::Assumed })
}

fn level(ghz10: [u32; 5]) -> LicenseLevel {
    let bin = |(up_to_cores, ghz10): (u32, u32)| TurboBin {
        up_to_cores,
        clock: Khz::of_mega(ghz10 * 100),
    };
    let bins = [2, 4, 8, 12, 16].into_iter().zip(ghz10).map(bin);
    LicenseLevel { turbo: known(bins.collect()), ..Default::default() }
}

/// A Xeon Gold 6130, DIM Table 1; SMT throughput 1.25.
pub fn model() -> CpuModel {
    CpuModel {
        name: "Gold 6130".into(),
        nr_cores: known(16),
        levels: vec![
            level([37, 35, 34, 31, 28]),
            level([36, 34, 31, 26, 24]),
            level([35, 31, 24, 21, 19]),
        ],
        ..Default::default()
    }
}

pub fn platform() -> Platform {
    Platform::new(&model())
}

/// So many cores of the package, whose others are active too.
pub fn part_of_a_platform(nr_cores: usize) -> Platform {
    let mut platform = platform();
    let others = platform.nr_cores - nr_cores;
    platform.nr_cores = nr_cores;
    platform.cores_per_llc = nr_cores;
    for clocks in &mut platform.clock_khz {
        *clocks = clocks.split_off(others);
    }
    platform
}

/// The same without costs, for exact sums.
pub fn platform_free() -> Platform {
    let mut platform = platform();
    let c = &mut platform.costs;
    for cost in [
        &mut c.context_switch_ns,
        &mut c.migration_ns,
        &mut c.refill_core_ns,
        &mut c.refill_llc_ns,
        &mut c.trap_ns,
        &mut c.syscall_ns,
        &mut c.tick_ns,
    ] {
        *cost = 0;
    }
    platform
}

pub fn machine_of(platform: Platform, packages: usize) -> (Platform, Sys) {
    let sys = Sys::new(Layout::new(&platform.topology(packages)));
    (platform, sys)
}

pub fn lane(wide: Wide) -> LaneConfig {
    LaneConfig { wide, ..Default::default() }
}

pub fn secs(secs: u64) -> Options {
    Options { duration_ns: secs * 1_000_000_000, ..Default::default() }
}

/// A run with the lane scheduler.
pub fn run(
    platform: Platform,
    packages: usize,
    workload: Workload,
    config: LaneConfig,
    options: Options,
) -> Outcome {
    let (platform, sys) = machine_of(platform, packages);
    let sched = Lane::new(&sys, config);
    Engine::new(platform, sys, sched, Quiet, workload, options).run().expect("a run that ends")
}

/// 32 workers that encrypt for 15 us in a wide section, compress for 2.5 ms, encrypt again and
/// answer: as the server of THESIS 5.2, whose requests take 2.5 ms and trap 2.2 times (Table 5.7).
pub fn web_server(clients: usize) -> Workload {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 0.8);
    let b = Builder::new().call(Step::Take { queue: OWN_INBOX });
    let p = b
        .wide(heavy, 2, Dist::Fixed(40_000))
        .work(0, Dist::Exponential(7_000_000))
        .wide(heavy, 2, Dist::Fixed(40_000))
        .syscall(Dist::Fixed(30_000))
        .step(Step::Done)
        .forever(0);
    let p = w.program(p);
    let mut workers = Group::new("workers", 32, p);
    workers.scalar = true;
    let workers = w.group(workers);
    w.sources.push(Source {
        name: "clients".into(),
        arrivals: Arrivals::Closed { clients, think_ns: Dist::Fixed(50_000) },
        to_group: workers,
        start_ns: 0,
    });
    w
}

pub fn assert_near(found: f64, expected: f64, tolerance: f64) {
    let off = (found / expected - 1.0).abs();
    assert!(off <= tolerance, "{found} instead of {expected}: off by {:.3} %", off * 100.0);
}

/// One task: a section of 20 us, after which it may say that it rests, scalar code of so many
/// cycles (3 GHz at most), and again. Beside it scalar tasks on all CPUs, and as many that stay
/// wide as there are wide CPUs, so that one waits whenever a section ends.
pub fn alternating(rest_ns: u64, scalar_cycles: u64) -> Workload {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let p = Builder::new()
        .step(Step::WideBegin { level: 2 })
        .work(heavy, Dist::Fixed(50_000))
        .step(Step::WideEnd { rest_ns })
        .work(0, Dist::Fixed(scalar_cycles))
        .step(Step::Done)
        .forever(0);
    let p = w.program(p);
    w.group(Group::new("alternates", 1, p));
    let p = Builder::new().step(Step::WideBegin { level: 2 }).work(heavy, Dist::Fixed(3_000_000));
    let p = w.program(p.forever(1));
    w.group(Group::new("wide", 2, p));
    let p = w.program(Builder::new().work(0, Dist::Fixed(3_000_000)).forever(0));
    w.group(Group::new("scalar", 30, p));
    w
}

/// Rounds of the task of [`alternating`].
pub fn rounds(out: &Outcome) -> u64 {
    out.group("alternates").unwrap().completed
}
