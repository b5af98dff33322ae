// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which simulation models which configuration of a paper.
//!
//! The papers' prototypes are simulated as such (`sim::sched::prototype`): trap or marks, what ends
//! a wide period, how many CPUs are wide. With [`Instead::Turbolane`] our policy takes their place,
//! with the same detection and the same number of wide cores, or its own where theirs is automatic.

use crate::published::Config;
use cpumodel::{CpuModel, InsnClass, Platform};
use policy::Remigrate;
use sim::engine::{Options, Outcome};
use sim::policy_spec::{PolicySpec, Scheme, simulate};
use sim::scenario::Scenario;
use sim::sched::lane::{Detect, LaneConfig, Wide};
use sim::sched::prototype::{End, PrototypeConfig};

use super::change::{Altered, Change, Clocks, Instead};

/// One simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub machine: String,
    pub scenario: &'static str,
    pub variant: String,
    pub policy: String,
    pub clocks: Clocks,
    /// Whether cores have two CPUs, where the machine has them.
    pub siblings: bool,
    /// The group whose work counts.
    pub victim: &'static str,
    pub instead: Instead,
}

impl Plan {
    /// The plan for a configuration of a paper; `None` if the simulator has none.
    pub(super) fn of(document: &str, config: &Config) -> Option<Plan> {
        let (scenario, victim) = scenario(document, &config.workload)?;
        let flat = config.workload.ends_with("-flat");
        let plan = Plan {
            machine: config.machine.clone(),
            scenario,
            variant: config.variant.clone(),
            policy: policy(document, &config.policy)?.into(),
            clocks: if flat { Clocks::Flat } else { Clocks::AsIs },
            siblings: true,
            victim,
            instead: Instead::Nothing,
        };
        let loaded = Scenario::built_in(scenario)?.ok()?;
        loaded.workload(Some(&plan.variant)).is_some().then_some(plan)
    }

    /// Names the plan: equal plans are run once.
    pub(super) fn key(&self) -> String {
        let Plan { machine, scenario, variant, policy, clocks, siblings, .. } = self;
        let instead = self.instead.label();
        format!("{machine} {scenario} {variant} {policy} {clocks:?} {siblings} {instead}")
    }

    /// The same with something else in the place of what the paper did; the same if that changes
    /// nothing about it.
    pub(super) fn with(&self, instead: Instead) -> Plan {
        let instead = match instead {
            Instead::Turbolane if !self.policy.starts_with("prototype") => Instead::Nothing,
            instead => instead.if_any(|altered| self.is_concerned(altered)),
        };
        Plan { instead, ..self.clone() }
    }

    fn is_concerned(&self, altered: &Altered) -> bool {
        let changes = match altered.change {
            Change::Platform(_) | Change::Workload(_) => true,
            Change::Prototype(change) => self.prototype().is_some_and(|prototype| {
                let mut changed = prototype;
                change(&mut changed);
                changed != prototype
            }),
            Change::Clock(_) | Change::Boost(_) | Change::Locks(_) | Change::Pstates(_) => false,
        };
        changes && (altered.on)(self.scenario, self.clocks)
    }

    fn prototype(&self) -> Option<PrototypeConfig> {
        match self.policy.parse::<PolicySpec>().ok()?.scheme {
            Scheme::Prototype(prototype) => Some(prototype),
            _ => None,
        }
    }

    /// Simulate it; `None` if it cannot be.
    pub(super) fn run(&self, seed: u64) -> Option<Outcome> {
        let scenario = Scenario::built_in(self.scenario)?.ok()?;
        let model = CpuModel::built_in(&self.machine)?.ok()?;
        let mut platform = Platform::new(&model);
        self.set_clocks(&mut platform);
        if !self.siblings {
            (platform.threads_per_core, platform.smt_frac) = (1, 1.0);
        }
        let mut workload = scenario.workload(Some(&self.variant))?.clone();
        let mut spec: PolicySpec = self.policy.parse().ok()?;
        if let (Instead::Turbolane, Scheme::Prototype(prototype)) = (self.instead, &spec.scheme) {
            spec.scheme = Scheme::Lane(turbolane(prototype));
        }
        for altered in self.instead.altered() {
            match (&altered.change, &mut spec.scheme) {
                _ if !self.is_concerned(altered) => {}
                (Change::Platform(change), _) => change(&mut platform),
                (Change::Workload(change), _) => change(&mut workload),
                (Change::Prototype(change), Scheme::Prototype(prototype)) => change(prototype),
                _ => {}
            }
        }
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

/// Our policy with a prototype's detection and its number of wide cores.
fn turbolane(prototype: &PrototypeConfig) -> LaneConfig {
    // Nor does a prototype stand by.
    let mut lane = LaneConfig { stands_by: false, ..LaneConfig::default() };
    if prototype.alpha.is_none() {
        lane.wide = Wide::Cores(prototype.cpus.div_ceil(2));
    }
    if prototype.trap_ns.is_some() {
        lane.detect = Detect::Trap(InsnClass::Light512);
        lane.cfg.remigrate = Remigrate {
            syscall_entry: prototype.end == End::Entry,
            syscall_return: prototype.end == End::Return,
            context_switch: prototype.end == End::Switch,
            timeout: prototype.timeout_ns != u64::MAX,
            ..Remigrate::default()
        }
        .bits();
        lane.cfg.remigrate_timeout_ns = prototype.timeout_ns;
        lane.cfg.slice_wide_ns = prototype.slice_wide_ns;
    }
    lane
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
        ("DIM", "parsec-x265" | "pts-x265") => ("parsec-x265", "parsec"),
        ("DIM", "nginx-x265") => ("dim-nginx-x265", "nginx"),
        ("SYSTOR", "kernel-build-x265") => ("build-x265", "compiler"),
        _ => return None,
    })
}

/// The scheduler for a policy of the papers. Prototypes are `sim::sched::prototype`; THESIS
/// counts CPUs, SYSTOR cores of two.
pub(super) fn policy(document: &str, name: &str) -> Option<&'static str> {
    Some(match name {
        // no core specialisation there, and so no MuQSS; all papers are older than Linux 6.6
        "unmodified" if document == "DIM" => "cfs",
        "unmodified" => "muqss",
        "cfs" => "cfs",
        // nothing is wide, as long as nothing traps
        "modified-idle" => "prototype:cpus=2,end=return",
        // SFMA does not say how many CPUs were wide: free.rs has others
        "explicit" | "explicit-2" => "prototype:cpus=2,detect=mark",
        "explicit-1" => "prototype:cpus=1,detect=mark",
        "all-wide" => "prototype:cpus=28,end=return",
        "trap-return-1" => "prototype:cpus=1,end=return",
        "trap-return-2" => "prototype:cpus=2,end=return",
        "trap-entry-2" => "prototype:cpus=2,end=entry",
        "trap-return-auto-17" => "prototype:cpus=17,end=return,alpha=0.1",
        "trap-entry-auto-8" => "prototype:cpus=8,end=entry,alpha=0.1",
        // THESIS does not name alpha; from 0.001 to 1 it changes the throughput here by less than
        // 0.2 %, so that a ranking of slow and fast averages would be chance: not simulated
        "trap-switch-1" => "prototype:cpus=1,end=switch,slice=100us",
        // THESIS 5.2.1: its timeout never noticed the end of a wide period
        "trap-timeout-1" => "prototype:cpus=1,end=never",
        "trap-syscall-3" => "prototype:cpus=6,end=entry,timeout=2ms",
        "trap-syscall-half" => "prototype:cpus=16,end=entry,timeout=2ms",
        _ => return None,
    })
}
