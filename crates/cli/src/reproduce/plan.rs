// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which simulation stands for which configuration of a paper.
//!
//! Prototypes are played by our policy with their settings: trap or marks, what ends a wide period,
//! how many cores are wide. THESIS counts CPUs, we count cores: its two are our one. What has no
//! counterpart (its automatic sizing) is not simulated rather than replaced.

use machine::{CpuModel, Platform};
use report::papers::Config;
use sim::engine::{Options, Outcome};
use sim::policy_spec::{PolicySpec, simulate};
use sim::scenario::Scenario;

/// How a machine's clocks are changed for an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clocks {
    /// As its file says.
    AsIs,
    /// THESIS 5.4.2: no turbo, 3.10 GHz, 3.00 GHz above level 0.
    Flat,
    /// Every level at the clocks of level 0 (THESIS 5.3: no throttling).
    Unthrottled,
}

/// One simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub machine: String,
    pub scenario: &'static str,
    pub variant: String,
    pub policy: String,
    pub clocks: Clocks,
    /// The group whose work counts.
    pub victim: &'static str,
}

impl Plan {
    /// The plan for a configuration of a paper; `None` if nothing stands for it.
    pub(super) fn of(document: &str, config: &Config) -> Option<Plan> {
        let (scenario, victim) = scenario(document, &config.workload)?;
        let flat = config.workload.ends_with("-flat");
        let plan = Plan {
            machine: config.machine.clone(),
            scenario,
            variant: config.variant.clone(),
            policy: policy(&config.policy)?.into(),
            clocks: if flat { Clocks::Flat } else { Clocks::AsIs },
            victim,
        };
        let loaded = Scenario::built_in(scenario)?.ok()?;
        loaded.workload(Some(&plan.variant)).is_some().then_some(plan)
    }

    /// Names the plan: equal plans are run once.
    pub(super) fn key(&self) -> String {
        let Plan { machine, scenario, variant, policy, clocks, .. } = self;
        format!("{machine} {scenario} {variant} {policy} {clocks:?}")
    }

    /// Simulate it; `None` if it cannot be.
    pub(super) fn run(&self, seed: u64) -> Option<Outcome> {
        let scenario = Scenario::built_in(self.scenario)?.ok()?;
        let model = CpuModel::built_in(&self.machine)?.ok()?;
        let mut platform = Platform::new(&model);
        self.set_clocks(&mut platform);
        let workload = scenario.workload(Some(&self.variant))?.clone();
        let spec: PolicySpec = self.policy.parse().ok()?;
        let options = Options {
            seed,
            duration_ns: scenario.duration_ns,
            warmup_ns: scenario.warmup_ns,
            ..Default::default()
        };
        let run = simulate(&platform, scenario.packages, workload, &spec, options, None);
        Some(run.ok()?.outcome)
    }

    fn set_clocks(&self, platform: &mut Platform) {
        let level_0 = platform.clock_khz[0].clone();
        for (level, row) in platform.clock_khz.iter_mut().enumerate() {
            match self.clocks {
                Clocks::AsIs => {}
                Clocks::Flat => row.fill(if level == 0 { 3_100_000 } else { 3_000_000 }),
                Clocks::Unthrottled => row.clone_from(&level_0),
            }
        }
    }
}

/// The scenario for a workload of a paper, and the group that is measured.
fn scenario(document: &str, workload: &str) -> Option<(&'static str, &'static str)> {
    Some(match (document, workload) {
        ("SFMA", "nginx-brotli") => ("sfma-nginx", "nginx"),
        ("SYSTOR", "nginx-brotli") => ("systor-nginx", "nginx"),
        ("THESIS", "nginx-brotli" | "nginx-brotli-flat") => ("thesis-nginx", "nginx"),
        ("THESIS", "nginx-brotli-low") => ("thesis-nginx-low", "nginx"),
        (_, "openssl-speed") => ("openssl-speed", "openssl"),
        (_, "fault-migrate") => ("fault-migrate", "threads"),
        (_, "type-change") => ("type-changes", "loop"),
        ("SYSTOR", "parsec-x265" | "pts-parsec-x265" | "vips-x265" | "all-figure-6") => {
            ("parsec-x265", "parsec")
        }
        ("SYSTOR", "kernel-build-x265") => ("build-x265", "compiler"),
        _ => return None,
    })
}

/// The scheduler for a policy of the papers.
fn policy(name: &str) -> Option<&'static str> {
    Some(match name {
        "unmodified" => "muqss",
        "cfs" => "fair",
        "modified-idle" => "lane:wide=1,detect=trap",
        // SFMA does not say how many cores were wide: the best of 1, 2 and 3
        "explicit" => "lane:wide=1,detect=hint",
        "explicit-1" | "explicit-2" => "lane:wide=1,detect=hint",
        "trap-return-1" | "trap-return-2" => "lane:wide=1,detect=trap,remigrate=syscall-return",
        "trap-entry-2" => "lane:wide=1,detect=trap,remigrate=syscall-entry",
        "trap-switch-1" => "lane:wide=1,detect=trap,remigrate=context-switch,slice=100us",
        // THESIS 5.2.1: its timeout never noticed the end of a wide period
        "trap-timeout-1" => "lane:wide=1,detect=trap,timeout=100000ms",
        "trap-syscall-3" => "lane:wide=3,detect=trap,remigrate=syscall-entry+timeout,timeout=2ms",
        "trap-syscall-half" => {
            "lane:wide=8,detect=trap,remigrate=syscall-entry+timeout,timeout=2ms"
        }
        _ => return None,
    })
}
