// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of the CPU: is there anything to gain, and what do the cores look like.

use hw::Facts;
use hw::cpu::{Features, Vendor};
use hw::license::{LicenseCounters, license_counters};
use report::doctor::Check;

use super::{no, ok, unknown, warn};
use crate::doctor::count;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    vec![class(facts), cores(facts), smt(facts), counters(facts), hardware(facts)]
}

fn class(facts: &Facts) -> Check {
    let cpu = &facts.cpu;
    let level = cpu.features.highest_license_level();
    let sets = instruction_sets(&cpu.features);
    let seen = match (cpu.vendor, level) {
        (Vendor::Intel, 0) => no(
            format!("Intel, {sets}: no instructions that raise the licence level"),
            "nothing to do: this CPU keeps its turbo without Turbolane",
        ),
        (Vendor::Intel, level) => ok(format!("Intel, {sets}: licence levels 0 to {level}")),
        _ => no(
            format!("{}, {sets}: no licence levels", cpu.vendor_id),
            "measure before you expect a gain; everything can still be tried out",
        ),
    };
    seen.check(
        "cpu-class",
        "CPU class",
        "only Intel CPUs lower their frequency for wide code and keep it low for a while afterwards; \
         Turbolane removes that loss",
    )
}

fn instruction_sets(features: &Features) -> String {
    let mut sets: Vec<&str> = Vec::new();
    for (there, name) in [
        (features.avx2, "AVX2"),
        (features.fma, "FMA"),
        (features.avx512f, "AVX-512"),
        (features.amx_tile, "AMX"),
    ] {
        if there {
            sets.push(name);
        }
    }
    if sets.is_empty() { "neither AVX2 nor AVX-512".into() } else { sets.join(" ") }
}

fn cores(facts: &Facts) -> Check {
    let topology = &facts.topology;
    let cores = topology.cores().len();
    let text = format!(
        "{} in {}, {}, {}",
        count(cores, "core"),
        count(topology.llcs().len(), "last-level cache"),
        count(topology.nodes().len(), "node"),
        count(topology.packages().len(), "package"),
    );
    let seen = if cores < 2 {
        no(text, "use a machine with two cores or more")
    } else if facts.cpu.hybrid {
        warn(
            format!("{text}, of different types"),
            "choose wide cores among the fast ones with --wide-cpus LIST",
        )
    } else if !facts.kernel.isolated.is_empty() {
        warn(
            format!("{text}; CPUs {} are isolated", facts.kernel.isolated),
            "leave isolated CPUs out of --wide-cpus: the scheduler places no task on them",
        )
    } else {
        ok(text)
    };
    seen.check(
        "cores",
        "Cores",
        "wide code gets cores of its own, so the machine needs at least two cores of one type",
    )
}

fn smt(facts: &Facts) -> Check {
    let seen = if facts.topology.has_smt() {
        ok("on: the siblings of a wide CPU are wide too, since a core has one licence")
    } else {
        match facts.smt_active {
            Some(true) => unknown(
                "the kernel reports SMT as on, but no core has two CPUs",
                "do not trust this machine's core numbers; choose --wide-cpus by hand",
            ),
            _ => ok("off: every CPU is a core"),
        }
    };
    seen.check("smt", "SMT siblings", "siblings share a core, and therefore its licence level")
}

fn counters(facts: &Facts) -> Check {
    let (counters, generation) = license_counters(&facts.cpu);
    let model = generation.map_or_else(
        || format!("family {} model {}", facts.cpu.family, facts.cpu.model),
        str::to_string,
    );
    let seen = match counters {
        LicenseCounters::Levels { .. } if !facts.pmu.core => no(
            format!("{model} has them, but the kernel has no core PMU"),
            "on a virtual machine enable the virtual PMU; otherwise use hints and marks",
        ),
        LicenseCounters::Levels { throttle: true } => {
            ok(format!("cycles per level and throttled cycles ({model})"))
        }
        LicenseCounters::Levels { throttle: false } => {
            ok(format!("cycles per level; throttled cycles are not counted ({model})"))
        }
        LicenseCounters::Undescribed => unknown(
            format!("{model} has events LICENSE_1 to 3, which are not documented"),
            "use hints and marks",
        ),
        LicenseCounters::Absent => {
            no(format!("none on {model}"), "use hints and marks, which need no counters")
        }
        LicenseCounters::Unknown => unknown(
            format!("{model} is in no table"),
            "use hints and marks, which need no counters",
        ),
    };
    seen.check(
        "license-counters",
        "Licence counters",
        "they show which task raised the level, without hints or marks; recognised by model number, \
         which a virtual machine may falsify",
    )
}

fn hardware(facts: &Facts) -> Check {
    let seen = match &facts.cpu.hypervisor {
        None => ok("no hypervisor"),
        Some(name) => {
            let name = if name.is_empty() { "unnamed" } else { name };
            warn(
                format!("virtual machine ({name})"),
                "measure on bare metal, or on a machine whose CPUs are pinned and not shared",
            )
        }
    };
    seen.check(
        "hardware",
        "Real hardware",
        "the host decides where virtual CPUs run: the cores and siblings seen here may not be \
         real, and other virtual machines change the clock",
    )
}
