// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks of what the scheduler would keep of the settings of control groups.

use hw::cgroups::InForce;
use report::doctor::Check;
use sched::groups::Support;

use super::{Seen, no, ok, warn};

/// `support`: what this kernel lets a scheduler do; `in_force`: what its groups ask for.
pub(super) fn checks(support: Support, in_force: InForce) -> Vec<Check> {
    vec![
        seen(support.weights, in_force.weights, "cpu.weight").check(
            "cgroup-weights",
            "Group weights",
            "without them a group gets CPU time by its number of tasks, whatever its cpu.weight",
        ),
        seen(support.limits, in_force.limits, "cpu.max").check(
            "cgroup-limits",
            "Group limits",
            "without them a group may use all CPUs, whatever its cpu.max",
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
        (true, _) => ok(format!("the scheduler keeps {setting}; {groups}")),
        (false, 0) => warn(
            format!("the scheduler cannot keep {setting}; {groups}"),
            "cpu.weight needs CONFIG_EXT_GROUP_SCHED, cpu.max Linux 6.17 with it",
        ),
        (false, _) => no(
            format!("the scheduler cannot keep {setting}; {groups}"),
            "boot Linux 6.17 or newer with CONFIG_EXT_GROUP_SCHED, or use --mode affinity",
        ),
    }
}

#[cfg(test)]
mod tests {
    use report::doctor::Status;

    use super::*;

    /// A setting that is in force and would be lost is a no; one that nobody uses, or that is kept, is not.
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
