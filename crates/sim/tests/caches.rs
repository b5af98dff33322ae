// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPUs of two caches share their load (policy/locality.h), however the tasks began.

mod common;

use common::*;
use sim::engine::{Action, Options};
use sim::policy_spec::{PolicySpec, simulate};
use sim::program::{Builder, Group, Workload};
use sim::rng::Dist;

/// Two caches with two cores each, one thread a core.
fn two_caches() -> cpumodel::Platform {
    let mut platform = platform();
    let others = platform.nr_cores - 4;
    (platform.nr_cores, platform.cores_per_llc, platform.threads_per_core) = (4, 2, 1);
    for clocks in &mut platform.clock_khz {
        *clocks = clocks.split_off(others);
    }
    platform
}

/// Busy tasks of these weights, that begin on the one cache or on the other.
fn hogs(on: [&[u32]; 2]) -> Workload {
    let mut w = Workload::new();
    let piece = Builder::new().work(0, Dist::Uniform(900_000, 1_100_000));
    let program = w.program(piece.syscall(Dist::Fixed(1000)).forever(0));
    for (weights, cpus) in on.iter().zip([[0, 1], [2, 3]]) {
        for &weight in *weights {
            let affinity = Some(cpus.to_vec());
            w.group(Group { affinity, weight, ..Group::new("hog", 1, program) });
        }
    }
    w
}

/// CPU time of each in twelve seconds, s, two seconds after all may use all CPUs.
fn got_s(on: [&[u32]; 2]) -> Vec<f64> {
    let workload = hogs(on);
    let free = |group: usize| (1_000_000_000, Action::Affinity(group as u16, vec![0, 1, 2, 3]));
    let options = Options {
        duration_ns: 15_000_000_000,
        warmup_ns: 3_000_000_000,
        actions: (0..workload.groups.len()).map(free).collect(),
        ..Options::default()
    };
    let policy: PolicySpec = "lane:wide=0,detect=hint".parse().unwrap();
    let run = simulate(&two_caches(), 1, workload, &policy, options, None).unwrap();
    run.outcome.groups.iter().map(|group| group.cpu_ns as f64 / 1e9).collect()
}

/// The luckiest over the last.
fn ratio(got_s: &[f64]) -> f64 {
    let most = got_s.iter().copied().fold(0.0, f64::max);
    most / got_s.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Slices of one length run in step, so whose head is due first is the same at each comparison:
/// 4 and 8 tasks stayed so for ever, with half as much for the eight.
#[test]
fn equal_tasks_get_the_same() {
    for (many, few) in [(18, 6), (10, 2), (7, 1), (13, 3), (22, 2), (40, 10)] {
        let got_s = got_s([&vec![100; many], &vec![100; few]]);
        assert!(ratio(&got_s) < 1.1, "{many} and {few}: {got_s:.2?}");
    }
}

/// Four heavy tasks and forty light ones are even where they began; tasks that move between caches
/// must not take from the heavy ones what their weight gives them.
#[test]
fn weights_count_between_caches() {
    let got_s = got_s([&[1000; 4], &[100; 40]]);
    let mean = |got_s: &[f64]| got_s.iter().sum::<f64>() / got_s.len() as f64;
    let times = mean(&got_s[..4]) / mean(&got_s[4..]);
    assert!((8.0..12.0).contains(&times), "{times:.2} instead of 10 times: {got_s:.2?}");
}
