// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel lets a scheduler do for control groups.
//!
//! Weights need CONFIG_EXT_GROUP_SCHED (Linux 6.12 can have it), limits the callback that says what
//! they are (`cgroup_set_bandwidth`, 6.17) too. The kernel's own type information says which
//! callbacks there are; this is asked, not the release, since distributions build and patch kernels
//! as they like.

use hw::cgroups::InForce;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::{Btf, HasSize};
use report::problem::Problem;

use crate::bpf::types;

/// What the scheduler keeps of the settings of control groups on this kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Support {
    /// `cpu.weight`.
    pub weights: bool,
    /// `cpu.max`; needs `weights`.
    pub limits: bool,
}

impl Support {
    /// Everything.
    pub const ALL: Self = Support { weights: true, limits: true };

    /// What this kernel's sched_ext has; nothing if it has no type information.
    pub fn of_this_kernel() -> Self {
        Btf::from_vmlinux().map(|btf| Self::of(&btf)).unwrap_or_default()
    }

    /// What a kernel has whose types these are.
    pub(crate) fn of(btf: &Btf<'_>) -> Self {
        let Some(ops) = btf.type_by_name::<Struct<'_>>("sched_ext_ops").filter(|s| s.size() > 0)
        else {
            return Support::default();
        };
        let has = |name: &str| ops.iter().any(|m| m.name.is_some_and(|n| n == name));
        let weights = has("cgroup_init") && has("cgroup_move");
        Support { weights, limits: weights && has("cgroup_set_bandwidth") }
    }

    /// What of the settings in force would have no effect under the scheduler, and what to do about
    /// it; `None` if there is nothing.
    pub fn lost(&self, in_force: &InForce) -> Option<Problem> {
        let limits = in_force.limits > 0 && !self.limits;
        let weights = in_force.weights > 0 && !self.weights;
        let lost = match (limits, weights) {
            (false, false) => return None,
            (true, false) => groups(in_force.limits, "cpu.max"),
            (false, true) => groups(in_force.weights, "a cpu.weight other than 100"),
            (true, true) => format!(
                "{}, {}",
                groups(in_force.limits, "cpu.max"),
                groups(in_force.weights, "a cpu.weight other than 100")
            ),
        };
        let needs = if self.weights {
            "limits under a sched_ext scheduler need Linux 6.17"
        } else {
            "groups under a sched_ext scheduler need CONFIG_EXT_GROUP_SCHED"
        };
        Some(Problem::new(
            "the scheduler would ignore control group settings that are in force",
            format!("{lost}; {needs}"),
            "boot such a kernel, use --mode affinity, or accept it by --ignore-cgroup-limits",
        ))
    }

    /// Leave out the callbacks that this kernel does not have: it refuses others.
    pub(crate) fn fit(&self, ops: &mut types::sched_ext_ops) {
        let none = std::ptr::null_mut();
        if !self.limits {
            ops.cgroup_set_bandwidth = none;
        }
        if !self.weights {
            ops.cgroup_init = none;
            ops.cgroup_exit = none;
            ops.cgroup_move = none;
            ops.cgroup_set_weight = none;
            ops.cgroup_set_idle = none;
        }
    }
}

/// So many groups with a setting.
fn groups(count: usize, setting: &str) -> String {
    format!("{count} group{} with {setting}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A setting that is in force is lost where the kernel does not say what it is, and only then.
    #[test]
    fn what_is_lost_is_said() {
        let in_force = InForce { limits: 2, weights: 1 };
        assert_eq!(Support::ALL.lost(&in_force), None);
        let weights_only = Support { weights: true, limits: false };
        let problem = weights_only.lost(&in_force).unwrap();
        assert!(problem.why.contains("2 groups with cpu.max;"), "{}", problem.why);
        assert!(problem.why.contains("6.17"), "{}", problem.why);
        assert_eq!(weights_only.lost(&InForce { limits: 0, weights: 3 }), None);
        let problem = Support::default().lost(&in_force).unwrap();
        assert!(
            problem.why.contains("1 group with a cpu.weight other than 100"),
            "{}",
            problem.why
        );
        assert!(problem.why.contains("CONFIG_EXT_GROUP_SCHED"), "{}", problem.why);
        assert_eq!(Support::default().lost(&InForce::default()), None);
    }
}
