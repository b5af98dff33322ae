// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only FFI to policy/: c/native.c, name for name.

use crate::{
    Backlog, Budget, Calls, Cfg, Clock, Exposure, Losses, Mix, Score, Sides, Sizing, SizingInput,
    Split, Standby, StandbyInput, Target, Task, Tiers, TiersInput, Turns,
};

unsafe extern "C" {
    pub(crate) fn tlp_task_init(
        t: *mut Task,
        cfg: *const Cfg,
        parent_type: u8,
        parent_level: u8,
        now_ns: u64,
    );
    pub(crate) fn tlp_task_classify_scalar(t: *mut Task) -> u32;
    pub(crate) fn tlp_task_event(
        t: *mut Task,
        cfg: *const Cfg,
        event: u32,
        level: u32,
        now_ns: u64,
    ) -> u32;
    pub(crate) fn tlp_task_need(t: *const Task) -> u32;
    pub(crate) fn tlp_task_queue(t: *const Task) -> u32;
    pub(crate) fn tlp_task_fits(t: *const Task, class: u32) -> u32;
    pub(crate) fn tlp_task_is_guest(t: *const Task, class: u32) -> u32;
    pub(crate) fn tlp_must_leave(t: *const Task, class: u32, wanted: u32) -> u32;
    pub(crate) fn tlp_task_slice_ns(t: *const Task, cfg: *const Cfg) -> u64;
    pub(crate) fn tlp_queue_id(shard: u32, queue: u32) -> u32;
    pub(crate) fn tlp_pinned_id(cpu: u32) -> u32;
    pub(crate) fn tlp_queue_class(queue: u32) -> u32;
    pub(crate) fn tlp_nr_steps(class: u32) -> u32;
    pub(crate) fn tlp_step_queue(class: u32, step: u32) -> u32;
    pub(crate) fn tlp_step_has_default(step: u32) -> u32;
    pub(crate) fn tlp_queue_step(class: u32, queue: u32) -> u32;
    pub(crate) fn tlp_slice_in_round_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
    pub(crate) fn tlp_slice_from_ns(
        t: *const Task,
        clock: *const Clock,
        slice_ns: u64,
        nr_tasks: u32,
        nr_cpus: u32,
    ) -> u64;
    pub(crate) fn tlp_most_wait_ns(slice_ns: u64, nr_tasks: u32, nr_cpus: u32) -> u64;
    pub(crate) fn tlp_vtime_charge(t: *mut Task, used_ns: u64) -> u64;
    pub(crate) fn tlp_vtime_place(
        t: *mut Task,
        id: u32,
        old_vtime_ns: u64,
        clock: *const Clock,
        slice_ns: u64,
        most_wait_ns: u64,
    );
    pub(crate) fn tlp_task_key(
        t: *const Task,
        old_vtime_ns: u64,
        clock: *const Clock,
        slice_ns: u64,
        most_wait_ns: u64,
        now_ns: u64,
    ) -> u64;
    pub(crate) fn tlp_clock_advance(
        clock: *mut Clock,
        charged_ns: u64,
        nr_tasks: u32,
        nr_waiting: u32,
        now_ns: u64,
    );
    pub(crate) fn tlp_turns_choose(turns: *mut Turns, sides: *const Sides, now_ns: u64) -> u32;
    pub(crate) fn tlp_turns_begin(
        turns: *mut Turns,
        side: u32,
        clock: u32,
        nr_tasks: u32,
        nr_cpus: u32,
    );
    pub(crate) fn tlp_turns_end(turns: *mut Turns);
    pub(crate) fn tlp_charge(
        t: *mut Task,
        turns: *mut Turns,
        cfg: *const Cfg,
        used_ns: u64,
        went_first: u32,
    ) -> u64;
    pub(crate) fn tlp_goes_first(
        turns: *const Turns,
        is_vital: u32,
        wakes: u32,
        slice_ns: u64,
    ) -> u32;
    pub(crate) fn tlp_waits_here(
        queue_class: u32,
        caps: u32,
        here_class: u32,
        allowed: u32,
        everywhere: u32,
        shard_classes: u32,
    ) -> u32;
    pub(crate) fn tlp_waits_at_class(queue_class: u32, caps: u32) -> u32;
    pub(crate) fn tlp_may_stay(
        t: *const Task,
        class: u32,
        better_idle: u32,
        better_core: u32,
    ) -> u32;
    pub(crate) fn tlp_leaves_core(is_first: u32, nr_ticks: u32) -> u32;
    pub(crate) fn tlp_compares_now(nr_looks: u32) -> u32;
    pub(crate) fn tlp_running_key(key_ns: u64, now_ns: u64) -> u64;
    pub(crate) fn tlp_helps(own: *const Backlog, other: *const Backlog, slice_ns: u64) -> u32;
    pub(crate) fn tlp_look_class(t: *const Task, i: u32) -> u32;
    pub(crate) fn tlp_look_scope(t: *const Task, i: u32) -> u32;
    pub(crate) fn tlp_core_class(rank: u32, split: *const Split) -> u32;
    pub(crate) fn tlp_idle_class(t: *const Task, i: u32) -> u32;
    pub(crate) fn tlp_victim_rank(need: u32, class: u32, running_queue: u32, arrives: u32) -> u32;
    pub(crate) fn tlp_victim_best(need: u32) -> u32;
    pub(crate) fn tlp_cpu_flags(class: u32, nr_scalar_cpus: u32) -> u8;
    pub(crate) fn tlp_sizing_update(s: *mut Sizing, input: *const SizingInput) -> u32;
    pub(crate) fn tlp_tiers_update(t: *mut Tiers, input: *const TiersInput) -> u32;
    pub(crate) fn tlp_tiers_resume(t: *mut Tiers);
    pub(crate) fn tlp_standby_update(s: *mut Standby, input: *const StandbyInput) -> u32;
    pub(crate) fn tlp_party(m: *const Mix, level: u32, hints: u32) -> u32;
    pub(crate) fn tlp_exposure_nr_missed(begun: u32, is_open: u32, span_ns: u64) -> u32;
    pub(crate) fn tlp_exposure_missed(
        e: *mut Exposure,
        level: u32,
        nr: u32,
        span_ns: u64,
        now_ns: u64,
    ) -> u32;
    pub(crate) fn tlp_exposure_turns(
        e: *mut Exposure,
        old_level: u32,
        new_level: u32,
        now_ns: u64,
    ) -> u32;
    pub(crate) fn tlp_exposure_ran(
        e: *const Exposure,
        l: *mut Losses,
        level: u32,
        shares: u32,
        used_ns: u64,
        now_ns: u64,
    );
    pub(crate) fn tlp_task_ran(t: *mut Task, used_ns: u64, level: u32);
    #[cfg(test)]
    pub(crate) fn tlp_wide_timeout_ns() -> u64;
    #[cfg(test)]
    pub(crate) fn tlp_level_hold_ns() -> u64;
    #[cfg(test)]
    pub(crate) fn tlp_stay_least_ns() -> u64;
    pub(crate) fn tlp_task_syscall_matters(t: *const Task) -> u32;
    pub(crate) fn tlp_task_bequest(t: *const Task) -> u32;
    pub(crate) fn tlp_task_bequest_type(t: *const Task, level: u32) -> u32;
    pub(crate) fn tlp_task_stays_ns(t: *const Task, cfg: *const Cfg) -> u64;
    pub(crate) fn tlp_mix_ran(m: *mut Mix, used_ns: u64, level: u32);
    pub(crate) fn tlp_mix_wide_ns(m: *const Mix, waited_ns: u64, level: u32) -> u64;
    pub(crate) fn tlp_score_switch(s: *mut Score, before: u32, now: u32, run_ns: u64) -> u32;
    pub(crate) fn tlp_score_level(s: *const Score) -> u32;
    pub(crate) fn tlp_mark_rule(level: u32, arg: u32, least: u32, number: u32) -> u64;
    pub(crate) fn tlp_mark_number(rule: u64) -> u32;
    pub(crate) fn tlp_mark_level(rule: u64) -> u32;
    pub(crate) fn tlp_mark_counts(rule: u64, value: u64) -> u32;
    pub(crate) fn tlp_calls_enter(calls: *mut Calls, counts: u32) -> u32;
    pub(crate) fn tlp_calls_return(calls: *mut Calls) -> u32;
    pub(crate) fn tlp_rest_stays(cfg: *const Cfg, phase_ns: u64) -> u32;
    pub(crate) fn tlp_rest_is_over(cfg: *const Cfg, until_ns: u64, now_ns: u64) -> u32;
    pub(crate) fn tlp_group_weight(weight: u32, is_idle: u32) -> u32;
    pub(crate) fn tlp_group_load(before: u32, now: i64) -> u32;
    pub(crate) fn tlp_group_factor(parent_factor: u64, weight: u32, load: u32) -> u64;
    pub(crate) fn tlp_group_task_weight(factor: u64, own_weight: u32) -> u32;
    pub(crate) fn tlp_budget_set(
        b: *mut Budget,
        period_us: u64,
        quota_us: u64,
        burst_us: u64,
        now_ns: u64,
    );
    pub(crate) fn tlp_budget_refill(b: *mut Budget, now_ns: u64) -> i64;
    pub(crate) fn tlp_budget_returns(left_ns: i64) -> u32;
    pub(crate) fn tlp_target_tell(t: *mut Target, asked_q10: u32, is_tick: u32) -> u32;
}
