// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overhead profiles of simulated loads against what was so in them.

use cpumodel::{CpuModel, Platform};
use profile::Settings;
use sim::overhead::{Profiled, profile};
use sim::scenario::Scenario;

fn profiled(name: &str, variant: Option<&str>, policy: &str, samples: u32) -> Profiled {
    let scenario = Scenario::built_in(name).unwrap().unwrap();
    let platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    let times = &platform.times;
    let settings = Settings {
        samples,
        ..Settings::new(times.throttle_ns, platform.longest_halt_ns(), times.relax_ns)
    };
    let workload = scenario.workload(variant).unwrap().clone();
    let spec = policy.parse().unwrap();
    profile(&platform, 1, workload, &spec, 1, &settings).unwrap()
}

/// For loads with long and short gaps, few and many changes, with and without core specialisation:
/// the avoidable part comes out to a tenth of itself, the time at a reduced level to three points.
#[test]
fn profiles_are_true() {
    for (name, policy) in [
        ("thesis-nginx", "fair"),
        ("thesis-nginx", "lane:wide=2"),
        ("parsec-x265", "fair"),
        ("dim-x265-swaptions", "affinity:4"),
    ] {
        let Profiled { profile, truth } = profiled(name, None, policy, 400);
        let (ours, true_frac) =
            (profile.reduced().avoidable_frac().unwrap(), truth.avoidable_frac().unwrap());
        let error = (ours - true_frac).abs() / true_frac;
        assert!(error <= 0.1, "{name} {policy}: {ours} for {true_frac}");
        let reduced = profile.reduced_frac().unwrap() - truth.reduced_frac().unwrap();
        assert!(reduced.abs() <= 0.03, "{name} {policy}: {reduced}");
        assert_eq!(profile.reduced().held, 0, "the pause is long enough");
    }
}

/// Without wide code nothing is at a reduced level, and nothing is found.
#[test]
fn scalar_loads_have_none() {
    let Profiled { profile, truth } = profiled("thesis-nginx", Some("none"), "fair", 100);
    assert_eq!((profile.reduced().seen, truth.reduced_ns), (0, 0));
    assert!(profile.busy > 0 && truth.busy_ns > 0);
}

/// A loop of wide code needs its level all the time, but for the wait for the first grant.
#[test]
fn a_loop_needs_its_level() {
    let Profiled { profile, .. } = profiled("dim-instructions", Some("fma-512"), "fair", 400);
    let avoidable = profile.reduced().avoidable_frac().unwrap();
    assert!(avoidable < 0.05, "{avoidable}");
}

/// Looking does not disturb: however long the pauses, the run is the same to the nanosecond.
#[test]
fn profiling_disturbs_nothing() {
    let scenario = Scenario::built_in("parsec-x265").unwrap().unwrap();
    let platform = Platform::new(&CpuModel::built_in(&scenario.machine).unwrap().unwrap());
    let times = &platform.times;
    let truth_at = |longer: u64| {
        let settings = Settings::new(times.throttle_ns, platform.longest_halt_ns(), times.relax_ns);
        let pause_ns = settings.pause_ns * longer;
        let settings = Settings { samples: 50, pause_ns, ..settings };
        let workload = scenario.workload(None).unwrap().clone();
        let spec = "fair".parse().unwrap();
        profile(&platform, 1, workload, &spec, 1, &settings).unwrap().truth
    };
    assert_eq!(truth_at(1), truth_at(10));
}
