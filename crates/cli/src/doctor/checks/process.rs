// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what this process may use of the machine: in a container that can be less than
//! everything.

use cpumodel::CpuSet;
use hw::Facts;
use report::doctor::Check;

use super::{ok, warn};

/// `allowed`: its affinity mask. `quota`: CPUs that its control group may use up, if there is a
/// limit.
pub(super) fn checks(facts: &Facts, allowed: &CpuSet, quota: Option<f64>) -> Vec<Check> {
    vec![cpus(facts, allowed), time(allowed, quota)]
}

fn cpus(facts: &Facts, allowed: &CpuSet) -> Check {
    let online = facts.topology.online();
    let seen = if online.is_subset(allowed) {
        ok("all")
    } else {
        let here: CpuSet = online.iter().filter(|cpu| allowed.contains(*cpu)).collect();
        let text = format!("{} of {} ({here})", here.len(), online.len());
        warn(text, "run it without taskset, or with a larger CPU set of the container")
    };
    seen.check("allowed-cpus", "Allowed CPUs", "probe and verify see and use only these")
}

fn time(allowed: &CpuSet, quota: Option<f64>) -> Check {
    let seen = match quota {
        Some(cpus) if cpus < allowed.len() as f64 => {
            let text = format!("a quota of {cpus:.2} CPUs");
            warn(text, "measure in a control group without cpu.max (v1: cpu.cfs_quota_us)")
        }
        _ => ok("no quota"),
    };
    seen.check(
        "cpu-quota",
        "CPU time",
        "a quota can stop all CPUs for up to a tenth of a second, which leaves gaps in measurements",
    )
}

#[cfg(test)]
mod tests {
    use hw::Recorded;
    use report::doctor::Status;

    use super::*;

    /// A part of the CPUs, or of their time, is reported; all of them, or a quota that allows more,
    /// is fine.
    #[test]
    fn what_is_withheld_is_reported() {
        let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines/skylake-sp");
        let facts = Facts::read(&Recorded::open(machine.as_ref()).unwrap()).unwrap();
        let all = facts.topology.online();
        let found = |allowed: &CpuSet, quota| {
            let found = checks(&facts, allowed, quota);
            [found[0].status, found[1].status]
        };
        assert_eq!(found(&all, None), [Status::Ok, Status::Ok]);
        assert_eq!(found(&all, Some(all.len() as f64)), [Status::Ok, Status::Ok]);
        assert_eq!(found(&all, Some(0.5)), [Status::Ok, Status::Warn]);
        let one: CpuSet = "0".parse().unwrap();
        assert_eq!(found(&one, Some(1.0)), [Status::Warn, Status::Ok]);
        let found = &checks(&facts, &one, Some(0.5));
        assert!(found[0].seen.starts_with("1 of ") && found[0].seen.ends_with("(0)"), "{found:?}");
        assert_eq!(found[1].seen, "a quota of 0.50 CPUs");
    }
}
