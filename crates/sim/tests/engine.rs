// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine does what its head says: rates, licences, costs, conservation, determinism.

mod common;

use common::*;
use cpumodel::InsnClass;
use sim::engine::{Action, Engine, Options};
use sim::events::Quiet;
use sim::program::{Arrivals, Builder, Group, LockKind, Memory, OWN_INBOX, Source, Step, Workload};
use sim::rng::Dist;
use sim::sched::lane::{Detect, Wide};

/// One task alone computes at the turbo clock of one active core.
#[test]
fn one_task_runs_at_its_clock() {
    let mut w = Workload::new();
    let p = w.program(Builder::new().work(0, Dist::Fixed(370_000_000)).end());
    w.group(Group::new("one", 1, p));
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    // 370 M cycles at 3.7 GHz
    assert_near(out.groups[0].cpu_ns as f64, 100e6, 0.001);
    assert_near(out.groups[0].mean_khz.unwrap(), 3_700_000.0, 0.001);
}

/// Of work that waits for memory a part does not follow the clock: it takes as long at each.
#[test]
fn memory_does_not_follow_the_clock() {
    let took_ns = |sensitive_frac: f64, wide: bool| {
        let mut w = Workload::new();
        let heavy = w.code(InsnClass::Heavy512, 1.0);
        let (builder, cycles) = (Builder::new(), Dist::Fixed(1_000_000));
        let builder = if wide { builder.wide(heavy, 2, cycles) } else { builder.work(0, cycles) };
        let p = w.program(builder.end());
        let memory = Memory { sensitive_frac, reference_khz: Some(2_800_000) };
        w.group(Group { memory, ..Group::new("one", 1, p) });
        let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
        out.groups[0].cpu_ns as f64
    };
    for sensitive in [0.0, 0.5, 1.0] {
        let rate = |ghz: f64| 1.0 / (sensitive / ghz + (1.0 - sensitive) / 2.8);
        assert_near(took_ns(sensitive, false), 1e6 / rate(3.7), 0.001);
        // Throttled and halted as in `wide_code_takes_its_licence`, then at 3.5 GHz.
        let throttled = 9_000.0 * rate(3.7) / 4.0;
        assert_near(took_ns(sensitive, true), 31_000.0 + (1e6 - throttled) / rate(3.5), 0.001);
    }
}

/// Siblings share: two tasks on one core take 2 / smt_frac times as long as one.
#[test]
fn siblings_share_their_core() {
    let mut w = Workload::new();
    let p = w.program(Builder::new().work(0, Dist::Fixed(370_000_000)).end());
    let mut g = Group::new("two", 2, p);
    g.affinity = Some(vec![0, 16]);
    w.group(g);
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    assert_near(out.groups[0].cpu_ns as f64, 2.0 * 100e6 * 2.0 / 1.25, 0.001);
}

/// More active cores lower the clock of all, at the power control unit's next look.
#[test]
fn active_cores_lower_the_clock() {
    let mut w = Workload::new();
    let p = w.program(Builder::new().work(0, Dist::Fixed(280_000_000)).end());
    // one for each scalar core: 13 to 16 active cores are one bucket
    w.group(Group::new("all", 15, p));
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    assert_near(out.mean_khz.unwrap(), 2_800_000.0, 0.01);
}

/// Dense 512-bit code: throttled, halted, then at the clock of level 2 (Downs 2020 for the times).
#[test]
fn wide_code_takes_its_licence() {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let p = w.program(Builder::new().wide(heavy, 2, Dist::Fixed(35_000_000)).end());
    w.group(Group::new("wide", 1, p));
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    // 9 us at a quarter of 3.7 GHz, twice 11 us of nothing, the rest at 3.5 GHz
    let throttled = 9_000.0 * 3.7 / 4.0;
    let expected = 31_000.0 + (35e6 - throttled) / 3.5;
    assert_near(out.groups[0].cpu_ns as f64, expected, 0.001);
    let wide_cpu = out.cpus.iter().max_by_key(|c| c.busy_ns).unwrap();
    // and the yield of the hint
    assert!((31_000..31_200).contains(&wide_cpu.level_ns[0]), "{:?}", wide_cpu.level_ns);
}

/// A scalar task is told how long it ran on a core that its sibling holds at level 2, and how often
/// it was started.
#[test]
fn a_victim_is_told_its_time_at_a_low_clock() {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let offender = w.program(Builder::new().wide(heavy, 2, Dist::Fixed(u64::MAX >> 20)).end());
    let twice = Builder::new().work(0, Dist::Fixed(37_000_000)).sleep(Dist::Fixed(1_000_000));
    let victim = w.program(twice.work(0, Dist::Fixed(37_000_000)).end());
    for (name, program, cpu) in
        [("offender", offender, 0), ("beside", victim, 16), ("apart", victim, 1)]
    {
        let mut group = Group::new(name, 1, program);
        group.affinity = Some(vec![cpu]);
        w.group(group);
    }
    let out = run(platform_free(), 1, w, lane(Wide::Cores(0)), secs(1));
    let (beside, apart) = (out.group("beside").unwrap(), out.group("apart").unwrap());
    // all but the first 31 us, in which the offender's licence is asked for
    assert!(beside.cpu_ns - beside.reduced_ns < 40_000, "{beside:?}");
    assert_eq!(apart.reduced_ns, 0);
    assert_eq!((beside.starts, apart.starts), (2, 2));
}

/// A victim's slowdown after a burst: scalar code keeps the low clock for the hold time, no longer.
#[test]
fn the_hold_slows_what_follows() {
    let mut w = Workload::new();
    let heavy = w.code(InsnClass::Heavy512, 1.0);
    let burst = Dist::Fixed(1_000_000);
    let p = Builder::new().work(heavy, burst).work(0, Dist::Fixed(37_000_000)).end();
    let p = w.program(p);
    w.group(Group::new("mixed", 1, p));
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    let low = out.cpus.iter().map(|c| c.level_ns[2]).sum::<u64>();
    // the burst's rest, 670 us of hold, 11 us of the change back
    let burst_ns = (1e6 - 9_000.0 * 3.7 / 4.0) / 3.5;
    assert_near(low as f64, burst_ns + 681_000.0, 0.001);
}

/// The same seed gives the same run, another one does not.
#[test]
fn the_seed_is_the_whole_input() {
    let go = |seed| {
        let options = Options { seed, ..secs(1) };
        run(platform(), 1, web_server(40), lane(Wide::Cores(2)), options)
    };
    assert_eq!(go(3), go(3));
    assert_ne!(go(3), go(4));
}

/// Requests are answered once each: what was asked is answered or on its way.
#[test]
fn requests_are_conserved() {
    let clients = 40;
    let out = run(platform(), 1, web_server(clients), lane(Wide::Cores(2)), secs(1));
    let source = &out.sources[0];
    assert!(source.latency.count() > 1000, "{}", source.latency.count());
    assert!(source.asked - source.latency.count() <= clients as u64);
    assert_eq!(out.groups[0].completed, source.latency.count());
}

/// The wide set keeps wide code off the other CPUs, whatever tells it.
#[test]
fn wide_code_stays_on_wide_cpus() {
    for detect in [Detect::Hint, Detect::Mark, Detect::Trap(InsnClass::Light512)] {
        let config = sim::sched::lane::LaneConfig { detect, ..lane(Wide::Cores(2)) };
        let out = run(platform(), 1, web_server(200), config, secs(1));
        let low: Vec<u64> = out.cpus.iter().map(|c| c.level_ns[1] + c.level_ns[2]).collect();
        let on_wide: u64 = [14, 15, 30, 31].iter().map(|&cpu| low[cpu]).sum();
        let all: u64 = low.iter().sum();
        assert!(on_wide > 0 && on_wide == all, "{detect:?}: {low:?}");
        assert_eq!(out.sched.degraded_ns, 0);
    }
}

/// A lock serialises: n sections of a length take n times that, whoever holds it.
#[test]
fn locks_serialise() {
    for fair in [false, true] {
        let mut w = Workload::new();
        w.locks.push(LockKind { fair });
        let b = Builder::new();
        let p = b
            .step(Step::Lock { lock: 0 })
            .work(0, Dist::Fixed(28_000_000))
            .step(Step::Unlock { lock: 0 })
            .end();
        let p = w.program(p);
        w.group(Group::new("holders", 8, p));
        let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
        let ended_ns = out.groups[0].ended_ns.expect("all end");
        // never more than two cores active: 3.7 GHz
        assert_near(ended_ns as f64, 8.0 * 28e6 / 3.7, 0.01);
    }
}

/// Tasks that meet at a barrier leave it together.
#[test]
fn barriers_meet() {
    let mut w = Workload::new();
    w.barriers.push(4);
    let p =
        Builder::new().work(0, Dist::Uniform(1_000, 9_000_000)).step(Step::Barrier { barrier: 0 });
    let p = w.program(p.step(Step::Done).end());
    w.group(Group::new("parties", 4, p));
    let out = run(platform(), 1, w, lane(Wide::Cores(1)), secs(1));
    assert_eq!((out.groups[0].completed, out.groups[0].ended_ns.is_some()), (4, true));
}

/// Children run, and the group ends with its last one.
#[test]
fn forks_run_and_end() {
    let mut w = Workload::new();
    let child = w.program(Builder::new().work(0, Dist::Fixed(1_000_000)).end());
    let children = w.group(Group::new("children", 0, child));
    let b = Builder::new();
    let from = b.here();
    let parent = b
        .step(Step::Fork { group: children })
        .sleep(Dist::Fixed(1_000_000))
        .step(Step::Repeat { slot: 0, times: Dist::Fixed(9), to: from })
        .end();
    let parent = w.program(parent);
    w.group(Group::new("parent", 1, parent));
    let out = run(platform_free(), 1, w, lane(Wide::Cores(1)), secs(1));
    assert_near(out.group("children").unwrap().cpu_ns as f64, 10.0 * 1e6 / 3.7, 0.01);
}

/// Work goes on while CPUs come and go; the last one stays.
#[test]
fn hotplug_loses_nobody() {
    let mut w = Workload::new();
    let p = w.program(Builder::new().work(0, Dist::Fixed(100_000_000)).end());
    let mut pinned = Group::new("pinned", 3, p);
    pinned.affinity = Some(vec![1]);
    w.group(Group::new("free", 40, p));
    w.group(pinned);
    let ms = |ms: u64| ms * 1_000_000;
    let mut actions: Vec<(u64, Action)> =
        (0..32).map(|cpu| (ms(cpu as u64 / 2), Action::Online(cpu, false))).collect();
    actions.extend((0..4).map(|cpu| (ms(100), Action::Online(cpu, true))));
    let out = run(platform(), 1, w, lane(Wide::Cores(2)), Options { actions, ..secs(20) });
    assert!(out.groups.iter().all(|g| g.ended_ns.is_some()), "{:?}", out.groups);
}

/// A loop without work is refused with its group's name instead of running for ever.
#[test]
fn an_endless_program_fails() {
    let mut w = Workload::new();
    let p = w.program(Builder::new().step(Step::Done).forever(0));
    w.group(Group::new("busy-nothing", 1, p));
    let (platform, sys) = machine_of(platform(), 1);
    let sched = sim::sched::lane::Lane::new(&sys, lane(Wide::Cores(1)));
    let error = Engine::new(platform, sys, sched, Quiet, w, secs(1)).run().unwrap_err();
    assert!(error.to_string().contains("busy-nothing"), "{error}");
}

/// An open source has the rate that it says.
#[test]
fn open_sources_keep_their_rate() {
    let mut w = Workload::new();
    let b = Builder::new().call(Step::Take { queue: OWN_INBOX }).work(0, Dist::Fixed(100_000));
    let p = w.program(b.step(Step::Done).forever(0));
    let group = w.group(Group::new("workers", 4, p));
    w.sources.push(Source {
        name: "load".into(),
        arrivals: Arrivals::Open { gap_ns: Dist::Exponential(100_000) },
        to_group: group,
        start_ns: 0,
    });
    let out = run(platform(), 1, w, lane(Wide::Cores(1)), secs(5));
    assert_near(out.sources[0].asked as f64, 50_000.0, 0.02);
    assert!(out.sources[0].latency.percentile_ns(50.0).unwrap() < 100_000);
}
