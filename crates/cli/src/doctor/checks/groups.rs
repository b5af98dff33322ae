// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of which control group settings the scheduler would honour.

use hw::cgroups::InForce;
use report::doctor::Check;
use sched::groups::Support;

use super::{Seen, no, ok, warn};

/// `support`: what this kernel lets a scheduler do; `in_force`: the settings that its groups use.
pub(super) fn checks(support: Support, in_force: InForce) -> Vec<Check> {
    vec![
        seen(support.weights, in_force.weights, "cpu.weight").check(
            "cgroup-weights",
            "Group weights",
            "if they are not honoured, a group's CPU time follows its number of tasks, not its cpu.weight",
        ),
        seen(support.limits, in_force.limits, "cpu.max").check(
            "cgroup-limits",
            "Group limits",
            "if they are not honoured, a group can use all CPUs, whatever its cpu.max",
        ),
    ]
}

fn seen(kept: bool, in_force: usize, setting: &str) -> Seen {
    let groups = match in_force {
        0 => "no group uses it".to_string(),
        1 => "1 group uses it".to_string(),
        n => format!("{n} groups use it"),
    };
    match (kept, in_force) {
        (true, _) => ok(format!("the scheduler honours {setting}; {groups}")),
        (false, 0) => warn(
            format!("the scheduler cannot honour {setting}; {groups}"),
            "cpu.weight needs CONFIG_EXT_GROUP_SCHED; cpu.max needs Linux 6.17 as well",
        ),
        (false, _) => no(
            format!("the scheduler cannot honour {setting}; {groups}"),
            "boot Linux 6.17 or newer with CONFIG_EXT_GROUP_SCHED, or use --mode affinity",
        ),
    }
}

#[cfg(test)]
mod tests {
    use report::doctor::Status;

    use super::*;

    /// A setting that is in force and would be lost is a no; one that no group uses, or that is
    /// honoured, is not.
    #[test]
    fn what_is_lost_is_a_no() {
        let status = |support, limits, weights| {
            checks(support, InForce { limits, weights })
                .iter()
                .map(|c| c.status)
                .collect::<Vec<_>>()
        };
        assert_eq!(status(Support::ALL, 3, 1), [Status::Ok, Status::Ok]);
        assert_eq!(status(Support::default(), 0, 0), [Status::Warn, Status::Warn]);
        let weights = Support { weights: true, limits: false };
        assert_eq!(status(weights, 1, 1), [Status::Ok, Status::No]);
        assert_eq!(status(Support::default(), 0, 2), [Status::No, Status::Warn]);
    }
}
