// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power limit of a package (cpumodel/src/power_limit.rs) in a running simulation. The platform
//! is a Gold 6130 of 160 W, 32 of them asleep: 8 W for a core at its level's all-core clock.

mod common;

use common::*;
use cpumodel::{InsnClass, Platform};
use sim::engine::{Options, Outcome};
use sim::program::{Builder, Group, Workload};
use sim::rng::Dist;
use sim::sched::lane::Wide;

const ALL_CORE_KHZ: f64 = 2_800_000.0;

fn limited(limit_w: f64) -> Platform {
    let mut platform = platform_free();
    platform.limit_w = Some(limit_w);
    platform
}

/// Half a second in which so many scalar tasks and so many dense AVX-512 ones run all the time,
/// each on a CPU of its own, after a tenth.
fn busy(platform: Platform, scalar: usize, wide: usize) -> Outcome {
    let mut w = Workload::new();
    let dense = w.code(InsnClass::Heavy512, 1.0);
    for (name, code, first_cpu, nr_cpus) in
        [("scalar", 0, 0, scalar), ("wide", dense, scalar, wide)]
    {
        for cpu in first_cpu..first_cpu + nr_cpus {
            let forever = w.program(Builder::new().work(code, Dist::Fixed(u64::MAX >> 24)).end());
            let mut group = Group::new(&format!("{name} {cpu}"), 1, forever);
            group.affinity = Some(vec![cpu]);
            w.group(group);
        }
    }
    let options =
        Options { warmup_ns: 100_000_000, duration_ns: 600_000_000, ..Default::default() };
    run(platform, 1, w, lane(Wide::Cores(0)), options)
}

/// Mean clock of all busy CPUs.
fn khz(out: &Outcome) -> f64 {
    out.mean_khz.expect("they ran")
}

/// Of 128 W for the cores, 80 are left: all cores fall to the cube root of 5/8 of their clock, and
/// the package uses what it may.
#[test]
fn a_full_package_keeps_to_its_limit() {
    let out = busy(limited(112.0), 16, 0);
    let want_khz = ALL_CORE_KHZ * (5.0_f64 / 8.0).cbrt();
    assert_near(khz(&out), want_khz, 0.001);
    assert_near(out.energy_j, 112.0 * 0.5, 0.001);
    let free = busy(limited(160.0), 16, 0);
    assert_near(khz(&free), ALL_CORE_KHZ, 0.0001);
}

/// Four cores at 3.5 GHz use 62 W: no reason for a ceiling of 112 W.
#[test]
fn a_part_of_a_package_keeps_its_turbo() {
    assert_near(khz(&busy(limited(112.0), 4, 0)), 3_500_000.0, 0.0001);
}

/// A second busy sibling takes 1.25 times the power: a package that keeps its TDP with one per core
/// falls to the cube root of 1 / 1.25.
#[test]
fn siblings_take_power() {
    let out = busy(limited(160.0), 32, 0);
    assert_near(khz(&out), ALL_CORE_KHZ * 0.8_f64.cbrt(), 0.001);
    assert_near(out.energy_j, 160.0 * 0.5, 0.001);
}

/// Where power is short wide code costs less than the tables say: eight cores at 1.9 GHz use 64 W,
/// which leaves 48 of 64 to the scalar ones, at the cube root of 3/4 of 2.8 GHz.
#[test]
fn wide_code_below_the_ceiling_keeps_its_clock() {
    let out = busy(limited(144.0), 8, 8);
    let mean_khz = |prefix: &str| {
        let groups = out.groups.iter().filter(|g| g.name.starts_with(prefix));
        let khz: Vec<f64> = groups.filter_map(|g| g.mean_khz).collect();
        khz.iter().sum::<f64>() / khz.len() as f64
    };
    assert_near(mean_khz("wide"), 1_900_000.0, 0.001);
    assert_near(mean_khz("scalar"), ALL_CORE_KHZ * 0.75_f64.cbrt(), 0.001);
}

/// A platform without a limit is none whose limit is never reached: nothing else changes.
#[test]
fn no_limit_is_no_look() {
    let (without, with) = (busy(platform_free(), 16, 16), busy(limited(2_000.0), 16, 16));
    assert_eq!(without.mean_khz, with.mean_khz);
    assert_eq!(without.cpus, with.cpus);
    assert!(with.events > without.events, "looks are events");
}
