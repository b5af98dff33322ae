// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the papers derive, on the scenarios that stand for their experiments.

mod common;

use common::assert_near;
use machine::{CpuModel, Platform};
use sim::engine::{Options, Outcome};
use sim::policy_spec::simulate;
use sim::scenario::Scenario;

fn run(name: &str, variant: &str, policy: &str, change: impl Fn(&mut Platform)) -> Outcome {
    let scenario = Scenario::built_in(name).unwrap().unwrap();
    let model = CpuModel::built_in(&scenario.machine).unwrap().unwrap();
    let mut platform = Platform::new(&model);
    change(&mut platform);
    let options =
        Options { duration_ns: 2_000_000_000, warmup_ns: 500_000_000, ..Default::default() };
    let workload = scenario.workload(Some(variant)).unwrap().clone();
    let spec = policy.parse().unwrap();
    simulate(&platform, scenario.packages, workload, &spec, options, None).unwrap().outcome
}

fn done(out: &Outcome, group: &str) -> f64 {
    out.group(group).unwrap().completed as f64
}

/// Without any throttling AVX-512 can bring the web server of THESIS next to nothing (5.3: 0.56 %),
/// because little of it is the cipher. Halts and throttles are off too.
#[test]
fn amdahl_limits_the_gain() {
    let unthrottled = |platform: &mut Platform| {
        let row = platform.clock_khz[0].clone();
        platform.clock_khz.iter_mut().for_each(|level| level.clone_from(&row));
        (platform.times.throttle_ns, platform.times.halt_ns) = (1, 1);
    };
    let wide = run("thesis-nginx", "avx512", "muqss", unthrottled);
    let none = run("thesis-nginx", "none", "muqss", unthrottled);
    let gain = done(&wide, "nginx") / done(&none, "nginx") - 1.0;
    assert!((-0.002..0.012).contains(&gain), "gains {:.2} %", 100.0 * gain);
}

/// The cost of type changes is proportional to their number (SFMA 4.2, Figure 3): twice the work
/// between two sections halves it.
#[test]
fn type_changes_cost_in_proportion() {
    let scenario = Scenario::built_in("type-changes").unwrap().unwrap();
    let model = CpuModel::built_in(&scenario.machine).unwrap().unwrap();
    let platform = Platform::new(&model);
    let loss = |factor: u64| {
        let mut w = scenario.workload(None).unwrap().clone();
        for step in w.programs.iter_mut().flatten() {
            if let sim::program::Step::Work { cycles: sim::rng::Dist::Fixed(n), .. } = step {
                *n *= factor;
            }
        }
        let rate = |policy: &str| {
            let options = Options { duration_ns: 1_000_000_000, ..Default::default() };
            let spec = policy.parse().unwrap();
            let out = simulate(&platform, 1, w.clone(), &spec, options, None).unwrap().outcome;
            done(&out, "loop")
        };
        1.0 - rate("lane:wide=1") / rate("muqss")
    };
    let (often, seldom) = (loss(1), loss(2));
    assert!(often > 0.01, "{often}");
    assert_near(often / seldom, 2.0, 0.25);
}

/// Automatic sizing is within 1 % of the best fixed number of wide cores on each web server, and
/// keeps it (THESIS 5.2.2: its own was 9 % below, and flapped).
#[test]
fn automatic_sizing_finds_the_best_size() {
    for name in ["thesis-nginx", "sfma-nginx", "systor-nginx"] {
        let served = |policy: &str| done(&run(name, "avx512", policy, |_| ()), "nginx");
        let fixed = (1..=4).map(|cores| served(&format!("lane:wide={cores}")));
        let best = fixed.fold(0.0, f64::max);
        let auto = run(name, "avx512", "lane", |_| ());
        let gap = 1.0 - done(&auto, "nginx") / best;
        assert!(gap < 0.01, "{name}: {:.2} % below the best", 100.0 * gap);
        assert!(auto.sched.resizes <= 2, "{name}: {} changes", auto.sched.resizes);
    }
}

/// Core specialisation removes most of the web servers' licence loss: nearly what the papers'
/// prototypes do (SFMA, SYSTOR: 70 %; here 60 % of it, because the seed is only one). With explicit
/// marks it is half: SFMA's and THESIS' marks contain the network's system calls.
#[test]
fn most_of_the_loss_is_removed() {
    for name in ["thesis-nginx", "sfma-nginx", "systor-nginx"] {
        let served = |variant, policy| done(&run(name, variant, policy, |_| ()), "nginx");
        let none = served("none", "muqss");
        let before = 1.0 - served("avx512", "muqss") / none;
        assert!(before > 0.04, "{name} loses {before}");
        for (policy, left) in [("lane:detect=trap,remigrate=syscall-entry", 0.4), ("lane", 0.5)] {
            let after = 1.0 - served("avx512", policy) / none;
            assert!(after < left * before, "{name} {policy}: {after} of {before} is left");
        }
    }
}
