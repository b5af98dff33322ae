// SPDX-License-Identifier: MIT OR Apache-2.0
//! A small report with real licences in it: a Gold 6130 on which each CPU alternates scalar work
//! with short wide sections, unmodified and with one core kept for the wide sections.
//!
//! Not a scheduler: it places the sections by rule, so that the tests of the report need no
//! simulator. The licence of each core is `cpumodel`'s own.

use cpumodel::{CoreLicense, CpuModel, Phase, Platform};
use report::sim::{
    CoreTrack, CpuTrack, CpuUse, Latency, Load, Machine, SimReport, SimRun, TaskNote, Timeline,
    Total,
};

/// Cores of the sample machine; two CPUs each, as Linux numbers them.
pub const CORES: u32 = 6;
/// Length of its timeline.
pub const LENGTH_NS: u64 = 20_000_000;

/// A section of a task: who, from when to when, asking for which level.
type Section = (u32, u64, u64, u8);

/// Numbers that look random and are the same everywhere (Knuth's MMIX constants).
struct Dice(u64);

impl Dice {
    fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) % (high - low)
    }
}

/// How the sample is scheduled.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    /// Wide sections on every CPU.
    Anywhere,
    /// Wide sections on the two CPUs of core 0 only.
    Lane,
    /// No wide sections.
    Scalar,
}

/// Sections of each CPU.
fn sections(rule: Rule) -> Vec<Vec<Section>> {
    let mut dice = Dice(7);
    let mut sections = vec![Vec::new(); 2 * CORES as usize];
    for (cpu, list) in (0..).zip(&mut sections) {
        let of_lane = rule == Rule::Lane && u32::is_multiple_of(cpu, CORES);
        let mut now_ns = dice.between(0, 300_000);
        while now_ns < LENGTH_NS {
            let wide_ns = dice.between(15_000, 40_000);
            let scalar_ns = if of_lane { 12_000 } else { dice.between(500_000, 1_700_000) };
            let idle_ns = dice.between(0, 150_000);
            if of_lane || rule == Rule::Anywhere {
                let task = if of_lane { dice.between(0, 12) as u32 } else { cpu };
                list.push((task, now_ns, now_ns + wide_ns, 2));
                now_ns += wide_ns;
            }
            list.push((cpu, now_ns, now_ns + scalar_ns, 0));
            now_ns += scalar_ns + idle_ns;
        }
        list.retain(|section| section.1 < LENGTH_NS);
        if let Some(last) = list.last_mut() {
            last.2 = last.2.min(LENGTH_NS);
        }
    }
    sections
}

/// The licence of a core whose CPUs run these sections.
fn core_track(core: u32, cpus: &[&Vec<Section>], platform: &Platform) -> CoreTrack {
    let mut edges: Vec<(u64, usize, u8)> = Vec::new();
    for (cpu, list) in cpus.iter().enumerate() {
        for (_, start_ns, end_ns, asks) in list.iter().filter(|section| section.3 > 0) {
            edges.push((*start_ns, cpu, *asks));
            edges.push((*end_ns, cpu, 0));
        }
    }
    edges.sort_unstable();
    let mut license = CoreLicense::default();
    let mut track = CoreTrack { core, ..Default::default() };
    let mut asks = vec![0; cpus.len()];
    let mut note = |license: &CoreLicense, at_ns: u64| {
        let stands = license.phase() == Phase::Halted;
        track.at_ns.push(at_ns);
        track.level.push(license.level());
        let khz = platform.clock_khz(license.level(), CORES as usize);
        track.clock_khz.push(if stands { 0 } else { khz });
        track.throttled.push(license.phase() == Phase::Throttled);
    };
    note(&license, 0);
    edges.push((LENGTH_NS, 0, 0));
    for (at_ns, cpu, level) in edges {
        while license.deadline_ns() < at_ns {
            let due_ns = license.deadline_ns();
            if license.expire(due_ns, &platform.times) {
                note(&license, due_ns);
            }
        }
        asks[cpu] = level;
        let demand = asks.iter().copied().max().unwrap_or(0);
        if license.set_demand(demand, at_ns, &platform.times) {
            note(&license, at_ns);
        }
    }
    track
}

fn timeline(sections: &[Vec<Section>], platform: &Platform) -> Timeline {
    let cpu_track = |(cpu, list): (usize, &Vec<Section>)| CpuTrack {
        cpu: cpu as u32,
        core: cpu as u32 % CORES,
        start_ns: list.iter().map(|section| section.1).collect(),
        end_ns: list.iter().map(|section| section.2).collect(),
        task: list.iter().map(|section| section.0).collect(),
        asks: list.iter().map(|section| section.3).collect(),
    };
    let task = |number| TaskNote { name: format!("nginx-{number}"), load: Some(0) };
    let core = |core: u32| {
        let siblings = [&sections[core as usize], &sections[(core + CORES) as usize]];
        core_track(core, &siblings, platform)
    };
    Timeline {
        start_ns: 0,
        end_ns: LENGTH_NS,
        tasks: (0..2 * CORES).map(task).collect(),
        cpus: sections.iter().enumerate().map(cpu_track).collect(),
        cores: (0..CORES).map(core).collect(),
        dropped: 0,
    }
}

/// Shares of the timeline by level, and mean clock, of one core.
fn core_shares(track: &CoreTrack) -> (Vec<f64>, f64) {
    let (mut shares, mut khz) = (vec![0.0; 3], 0.0);
    for at in 0..track.at_ns.len() {
        let end_ns = track.at_ns.get(at + 1).copied().unwrap_or(LENGTH_NS);
        let share = (end_ns - track.at_ns[at]) as f64 / LENGTH_NS as f64;
        shares[usize::from(track.level[at])] += share;
        khz += share * f64::from(track.clock_khz[at]);
    }
    (shares, khz)
}

fn run(policy: &str, about: &str, rule: Rule, work_per_s: f64) -> SimRun {
    let lane = rule == Rule::Lane;
    let model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
    let platform = Platform::new(&model);
    let timeline = timeline(&sections(rule), &platform);
    let shares: Vec<_> = timeline.cores.iter().map(core_shares).collect();
    let cpu = |cpu: u32| {
        let (residency_frac, khz) = shares[(cpu % CORES) as usize].clone();
        CpuUse {
            cpu,
            core: cpu % CORES,
            class: lane.then_some(if cpu.is_multiple_of(CORES) { 3 } else { 0 }),
            busy_frac: 0.93,
            mean_khz: Some(khz),
            residency_frac,
        }
    };
    let mean =
        |level: usize| shares.iter().map(|share| share.0[level]).sum::<f64>() / f64::from(CORES);
    let latency = |p50_ns: u64| Latency {
        count: 20_000,
        mean_ns: p50_ns + p50_ns / 8,
        p50_ns,
        p90_ns: 2 * p50_ns,
        p99_ns: 4 * p50_ns,
        p999_ns: 7 * p50_ns,
        max_ns: 11 * p50_ns,
    };
    SimRun {
        machine: Machine {
            id: model.id,
            name: model.name,
            levels: model.levels.into_iter().map(|level| level.name).collect(),
            limit_w: platform.limit_w,
            assumed: platform.assumed,
        },
        policy: policy.into(),
        policy_about: about.into(),
        simulated_ns: LENGTH_NS,
        loads: vec![
            Load {
                name: "nginx".into(),
                wide: true,
                work_per_s: Some(work_per_s),
                work: "request".into(),
                cpu_per_work_ns: Some(12.0 * 0.93e9 / work_per_s),
                mean_khz: Some(shares[0].1),
                reduced_frac: 1.0 - mean(0),
                starts_per_s: 3.0 * work_per_s,
                latency: Some(latency((4e12 / work_per_s / 100.0) as u64)),
            },
            Load {
                name: "kernel build".into(),
                wide: false,
                work_per_s: Some(work_per_s / 1000.0),
                work: "file".into(),
                cpu_per_work_ns: None,
                mean_khz: Some(shares[1].1),
                reduced_frac: 0.0,
                starts_per_s: 500.0,
                latency: None,
            },
        ],
        total: Total {
            busy_frac: 0.93,
            mean_khz: Some(shares.iter().map(|share| share.1).sum::<f64>() / f64::from(CORES)),
            residency_frac: (0..3).map(mean).collect(),
            migrations_per_s: if lane { 26_400.0 } else { 830.0 },
            wide_set_changes_per_s: 0.0,
            energy_j: None,
        },
        cpus: (0..2 * CORES).map(cpu).collect(),
        timeline: Some(timeline),
    }
}

/// The report.
pub fn sample() -> SimReport {
    let runs = vec![
        run("unmodified", "Every task may run on every CPU.", Rule::Anywhere, 7_940.0),
        run("static-2", "Core 0 is wide and stays so; all else is scalar.", Rule::Lane, 8_712.0),
        run("scalar only", "The same load without wide instructions.", Rule::Scalar, 8_790.0),
    ];
    let about = "A web server whose encryption uses AVX-512 for 15 to 40 microseconds at a time, on \
                 one machine under three policies.";
    SimReport::new("nginx-openssl", about, 42, runs)
}
