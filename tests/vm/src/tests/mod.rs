// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tests. A name that ends in `_fail` provokes a failure and shows that it is a clean one.

mod affinity;
mod changes;
mod container;
pub mod control;
mod cpus;
mod gaps;
pub mod groups;
pub mod hint_attacks;
mod isolated;
mod license_counters;
pub mod lifecycle;
mod limits;
pub mod marks;
pub mod marks_follow;
mod pauses;
mod perf_script;
mod placement;
mod preload;
mod profile_live;
pub mod pstate;
pub mod pstate_scheduler;
pub mod record;
pub mod record_levels;
mod rules;
pub mod scores;
mod silicon;
mod silicon_advise;
mod silicon_amx;
mod silicon_boost;
mod silicon_energy;
mod silicon_license;
mod silicon_pstate;
mod silicon_verify;
mod storms;
pub mod take_over;
mod top;
mod trap;
mod trap_amx;
pub mod trap_attacks;
mod trap_avx512;
mod trap_contexts;
mod trap_detection;
mod trap_input;
mod trap_lane;
mod trap_levels;
mod trap_light;
mod trap_sleep;
pub mod waits;
pub mod wakes;

use crate::fake_pmu::CPU_WITH_LEVELS;
use crate::suite::Case;

/// All tests.
pub const ALL: &[Case] = &[
    Case::new("placement", placement::every_source_and_ending).limit_s(400),
    Case::new("placement_smt", placement::siblings_share_their_class).topology("cores=2,threads=2"),
    Case::new("placement_cores", placement::siblings_go_to_idle_cores)
        .topology("cores=2,threads=2"),
    Case::new("placement_llcs", placement::across_llcs).topology("sockets=2,cores=2").limit_s(300),
    Case::new("placement_tiers", placement::tiers),
    Case::new("placement_rests", placement::rests),
    Case::new("preloaded_hints", preload::openssl).shares("preloaded").limit_s(300),
    Case::new("preloaded_marks", preload::marks).shares("preloaded").limit_s(300),
    Case::new("gaps", gaps::stays_and_leaves).shares("marks"),
    Case::new("gaps_without_sessions", gaps::stays_and_leaves_without_sessions).shares("marks"),
    Case::new("gaps_last_syscalls", gaps::leaves_in_last_syscalls).shares("clients"),
    Case::new("marks_guests_stay", marks::guests_stay).shares("marks"),
    Case::new("marks_filtered", marks::filtered).shares("marks"),
    Case::new("marks_filtered_without_sessions", marks::filtered_without_sessions).shares("marks"),
    Case::new("marks_filtered_record", marks::recorded).small(),
    Case::new("marks_follow", marks_follow::follows_the_file).shares("clients").limit_s(240),
    Case::new("work_conservation", placement::work_conservation).shares("ends"),
    Case::new("lifecycle", lifecycle::start_and_stop).shares("ends"),
    Case::new("kill_9", lifecycle::kill_9).shares("ends"),
    Case::new("kill_9_any_moment", lifecycle::kill_9_any_moment).limit_s(600),
    Case::new("container", container::everything).shares("ends"),
    Case::new("control", control::many_clients).shares("clients").limit_s(400),
    Case::new("control_reload", control::reloads).small(),
    Case::new("take_over", take_over::hints_are_kept).shares("clients").limit_s(300),
    Case::new("take_over_fail", take_over::failures_change_nothing).shares("ends"),
    Case::new("take_over_back", take_over::failed_successor).shares("ends"),
    Case::new("take_over_service", take_over::service_is_upgraded).shares("ends"),
    Case::new("control_local_user_fail", control::a_local_user_fails)
        .shares("clients")
        .limit_s(400),
    Case::new("isolated_cpus_fail", isolated::isolated_cpus).kernel_args("isolcpus=3"),
    Case::new("two_loaders_fail", lifecycle::two_loaders_fail).shares("ends"),
    Case::new("bpf_error_fail", lifecycle::bpf_error_fail).allow_log(&["sched_ext: "]),
    Case::new("stall_fail", lifecycle::stall_fail).allow_log(&["sched_ext: "]),
    Case::new("bad_input_fail", lifecycle::bad_input_fail).small(),
    Case::new("affinity", affinity::odd_masks),
    Case::new("no_starvation", affinity::nobody_starves).limit_s(400),
    Case::new("short_runs_starve_nobody", affinity::short_runs_starve_nobody).icount(),
    Case::new("affinity_mode", affinity::affinity_mode).small(),
    Case::new("settings", changes::settings_change_under_load),
    Case::new("hotplug", changes::hotplug).limit_s(400).allow_log(&["sched_ext: "]),
    Case::new("cgroups", changes::cgroup_moves).shares("preloaded"),
    Case::new("group_weights", groups::weights).limit_s(300),
    Case::new("group_far_weights", groups::far_weights)
        .shares("virtual")
        .virtual_time()
        .limit_s(300),
    Case::new("group_limits", groups::limits).limit_s(300),
    Case::new("group_standby", groups::standing_by)
        .cpu("max,vendor=AuthenticAMD")
        .virtual_time()
        .limit_s(300),
    Case::new("group_wide", groups::wide_tasks).shares("preloaded").limit_s(300),
    Case::new("group_held", groups::many_held_tasks).limit_s(400),
    Case::new("group_storm", groups::delegated_storm).limit_s(300),
    Case::new("rules_by_group", rules::by_group).limit_s(300),
    Case::new("rules_by_name", rules::by_name).limit_s(300),
    Case::new("quota", limits::quota).small(),
    Case::new("waits", waits::a_light_task_beside_thirty)
        .shares("virtual")
        .virtual_time()
        .limit_s(500),
    Case::new("waits_hundreds", waits::hundreds_of_all_weights)
        .shares("virtual")
        .virtual_time()
        .limit_s(500),
    Case::new("waits_thousands", waits::thousands_for_one_cpu)
        .shares("virtual")
        .virtual_time()
        .limit_s(500),
    Case::new("waits_llcs", waits::caches_share_their_load)
        .topology("sockets=2,cores=2")
        .virtual_time()
        .limit_s(500),
    Case::new("wakes", wakes::tasks_that_sleep)
        .silicon("xeon-gold-6130")
        .shares("silicon-2")
        .limit_s(300),
    Case::new("wakes_after_sections", wakes::tasks_that_come_back)
        .silicon("xeon-gold-6130")
        .shares("silicon-2")
        .limit_s(300),
    Case::new("storms", storms::fork_and_exec).shares("clients"),
    Case::new("kernel_threads", storms::kernel_threads).shares("preloaded"),
    Case::new("pstate", pstate::ways).small(),
    Case::new("pstate_ends", pstate::ends).limit_s(400),
    Case::new("pstate_scheduler", pstate_scheduler::follows_threads)
        .limit_s(400)
        .allow_log(&["sched_ext: "]),
    Case::new("record", record::command).virtual_time().limit_s(300),
    Case::new("record_6_12", record::command).kernel_6_12().virtual_time().limit_s(300),
    Case::new("record_system", record::system).limit_s(400),
    Case::new("license_counters", license_counters::everything)
        .shares("levels")
        .cpu(CPU_WITH_LEVELS)
        .icount(),
    Case::new("scores", scores::place_tasks)
        .shares("levels")
        .cpu(CPU_WITH_LEVELS)
        .icount()
        .limit_s(400),
    Case::new("record_levels", record_levels::everything)
        .shares("levels")
        .cpu(CPU_WITH_LEVELS)
        .icount()
        .limit_s(600),
    Case::new("perf_script", perf_script::everything)
        .shares("levels")
        .cpu(CPU_WITH_LEVELS)
        .icount()
        .limit_s(300),
    Case::new("profile_live", profile_live::everything)
        .shares("levels")
        .cpu(CPU_WITH_LEVELS)
        .icount()
        .limit_s(900),
    Case::new("hint_attacks", hint_attacks::scribblers).shares("clients").limit_s(400),
    Case::new("hint_attacks_read", hint_attacks::spies).small(),
    Case::new("hint_attacks_threads", hint_attacks::many_threads).limit_s(600),
    Case::new("hint_attacks_flood", hint_attacks::floods).limit_s(600),
    Case::new("one_cpu", cpus::one_cpu).cpus(1),
    Case::new("two_cpus", cpus::two_cpus).cpus(2),
    Case::new("all_wide_and_none", cpus::all_wide_and_none),
    Case::new("standby_levels", cpus::keeps_apart_with_levels)
        .shares("intel")
        .cpu("max,vendor=GenuineIntel"),
    Case::new("standby_bound", cpus::wide_where_it_is_bound)
        .shares("intel")
        .cpu("max,vendor=GenuineIntel")
        .limit_s(300),
    Case::new("standby_no_levels", cpus::stands_by_without_levels)
        .shares("amd")
        .cpu("max,vendor=AuthenticAMD"),
    Case::new("standby_goal", cpus::follows_a_figure)
        .shares("amd")
        .cpu("max,vendor=AuthenticAMD")
        .limit_s(300),
    Case::new("standby_home", cpus::goes_home).shares("clients"),
    Case::new("pauses", pauses::leave_the_machine_and_end).shares("clients"),
    Case::new("verify_live", pauses::are_for_comparisons).limit_s(240),
    Case::new("verify_live_service", pauses::services_are_compared).shares("clients").limit_s(300),
    Case::new("standby_storm", cpus::goes_and_comes_back).limit_s(300),
    Case::new("standby_ends", cpus::ends_standing_by).shares("amd").cpu("max,vendor=AuthenticAMD"),
    Case::new("trap", trap::withholds_and_returns).small(),
    Case::new("trap_stress", trap::stress).limit_s(240),
    Case::new("trap_xstate_sites", trap::xstate_sites).shares("sites").limit_s(240),
    Case::new("trap_xstate_sites_traced", trap::xstate_sites_traced).shares("sites").limit_s(240),
    Case::new("trap_xstate_sites_unhooked_fail", trap::xstate_sites_unhooked_fail).allow_log(&[
        "turbolane_trap: ",
        "test_leave_out_hooks",
        "Bad FPU state",
    ]),
    Case::new("trap_pinned", trap::pinned_tasks_complete).small(),
    Case::new("trap_illegal_opcode", trap::illegal_opcode).small(),
    Case::new("trap_user_xrstor", trap::user_xrstor).allow_log(&["general protection fault ip"]),
    Case::new("trap_signal_frames_32", trap::signal_frames_32).small(),
    Case::new("trap_ptrace", trap::ptrace).small(),
    Case::new("trap_core_dump", trap::core_dump).small(),
    Case::new("trap_kernel_vectors", trap::kernel_vector_code).small(),
    Case::new("trap_hotplug", trap::hotplug),
    Case::new("trap_hibernation", trap_sleep::hibernation).limit_s(240),
    Case::new("trap_reload", trap::reload),
    Case::new("trap_kvm", trap::virtual_machines),
    Case::new("trap_exec", trap::new_programs_see_everything).small(),
    Case::new("trap_light_and_heavy", trap_light::light_and_heavy).small(),
    Case::new("trap_glances", trap_light::glances).icount().limit_s(240),
    Case::new("trap_levels", trap_levels::everything).cpu(CPU_WITH_LEVELS).icount().limit_s(400),
    Case::new("trap_levels_smt", trap_levels::siblings)
        .cpu(CPU_WITH_LEVELS)
        .topology("cores=2,threads=2")
        .icount()
        .limit_s(400),
    Case::new("trap_detection", trap_detection::programs_find_what_is_withheld).limit_s(240),
    Case::new("trap_contexts", trap_contexts::foreign_contexts),
    Case::new("trap_6_12_contexts", trap_contexts::foreign_contexts).kernel_6_12(),
    Case::new("trap_attacks", trap_attacks::by_files).limit_s(300),
    Case::new("trap_attacks_device", trap_attacks::by_device).limit_s(150),
    Case::new("trap_attacks_races", trap_attacks::by_races).limit_s(300),
    Case::new("trap_avx512", trap_avx512::everything).bochs().limit_s(1200),
    Case::new("silicon", silicon::everything)
        .silicon("xeon-gold-6130")
        .cpus(4)
        .topology("cores=2,threads=2")
        .limit_s(300),
    Case::new("silicon_amx", silicon_amx::everything).silicon("xeon-6980p").cpus(2).limit_s(300),
    Case::new("silicon_probe", silicon::probe_finds_it)
        .silicon("xeon-gold-6130")
        .shares("silicon-2")
        .limit_s(600),
    Case::new("silicon_pstate", silicon_pstate::moves_the_clock)
        .silicon("xeon-gold-6130,others=0")
        .limit_s(300),
    Case::new("silicon_boost", silicon_boost::moves_single_cores)
        .silicon("fx-8120")
        .topology("cores=2,threads=2")
        .cpus(4)
        .limit_s(300),
    Case::new("silicon_advise", silicon_advise::finds_and_predicts)
        .silicon("xeon-gold-6130")
        .shares("silicon-4")
        .cpus(4)
        .limit_s(600),
    Case::new("silicon_verify", silicon_verify::gain)
        .silicon("xeon-gold-6130")
        .shares("silicon-4")
        .cpus(4)
        .limit_s(1800),
    Case::new("trap_amx", trap_amx::everything).bochs_amx().limit_s(900),
    Case::new("trap_rate_limit", trap::rate_limit).small(),
    Case::new("trap_migrates", trap_lane::migrates).icount().limit_s(600),
    Case::new("trap_lane_stress", trap_lane::stress_with_migrations).limit_s(600),
    Case::new("trap_lane_pinned", trap_lane::pinned_and_crowded).shares("trap").limit_s(600),
    Case::new("trap_run", trap_lane::run_and_leave).shares("trap").limit_s(600),
    Case::new("trap_run_fail", trap_lane::run_fail).shares("trap").limit_s(600),
    Case::new("trap_unsigned_fail", trap_lane::unsigned_fail)
        .kernel_args("module.sig_enforce=1")
        .allow_log(&["turbolane_trap"]),
    Case::new("trap_lockdown_fail", trap_lane::unsigned_fail)
        .kernel_args("lockdown=integrity")
        .allow_log(&["Lockdown: "]),
    Case::new("trap_plain_glibc", trap_lane::plain_glibc).shares("trap").limit_s(600),
    Case::new("trap_6_12", trap::withholds_and_returns).kernel_6_12(),
    Case::new("trap_stress_6_12", trap::short_stress).kernel_6_12().limit_s(240),
    Case::new("trap_xstate_sites_6_12", trap::xstate_sites).kernel_6_12().limit_s(240),
    Case::new("trap_parameters_fail", trap_input::parameters_fail).small(),
    Case::new("trap_taken_fail", trap_input::taken_fail).small(),
    Case::new("trap_device_fail", trap_input::device_fail).small(),
    Case::new("trap_in_use_fail", trap_input::in_use_fail).small(),
];
