// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests. A name that ends in `_fail` provokes a failure and shows that it is a clean one.

mod affinity;
mod changes;
mod cpus;
mod lifecycle;
mod placement;
mod storms;

use crate::suite::Case;

/// All tests.
pub const ALL: &[Case] = &[
    Case::new("placement", placement::every_source_and_ending).limit_s(400),
    Case::new("placement_smt", placement::siblings_share_their_class).topology("cores=2,threads=2"),
    Case::new("placement_llcs", placement::across_llcs).topology("sockets=2,cores=2").limit_s(300),
    Case::new("placement_tiers", placement::tiers),
    Case::new("work_conservation", placement::work_conservation),
    Case::new("lifecycle", lifecycle::start_and_stop),
    Case::new("kill_9", lifecycle::kill_9),
    Case::new("two_loaders_fail", lifecycle::two_loaders_fail),
    Case::new("bpf_error_fail", lifecycle::bpf_error_fail).allow_log(&["sched_ext: "]),
    Case::new("stall_fail", lifecycle::stall_fail).allow_log(&["sched_ext: "]),
    Case::new("bad_input_fail", lifecycle::bad_input_fail),
    Case::new("affinity", affinity::odd_masks),
    Case::new("no_starvation", affinity::nobody_starves).limit_s(400),
    Case::new("affinity_mode", affinity::affinity_mode),
    Case::new("settings", changes::settings_change_under_load),
    Case::new("hotplug", changes::hotplug).limit_s(400).allow_log(&["sched_ext: "]),
    Case::new("cgroups", changes::cgroup_moves),
    Case::new("storms", storms::fork_and_exec),
    Case::new("kernel_threads", storms::kernel_threads),
    Case::new("one_cpu", cpus::one_cpu).cpus(1),
    Case::new("two_cpus", cpus::two_cpus).cpus(2),
    Case::new("all_wide_and_none", cpus::all_wide_and_none),
];
