// SPDX-License-Identifier: MIT OR Apache-2.0
//! The only FFI to policy/: c/native.c, name for name.

use crate::{Cfg, Mix, Score, Sizing, SizingInput, Split, Target, Task, Tiers, TiersInput, Turns};

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
    pub(crate) fn tlp_task_slice_ns(t: *const Task, cfg: *const Cfg) -> u64;
    pub(crate) fn tlp_queue_id(llc: u32, queue: u32) -> u32;
    pub(crate) fn tlp_queue_class(queue: u32) -> u32;
    pub(crate) fn tlp_lowest_class(caps: u32) -> u32;
    pub(crate) fn tlp_nr_steps(class: u32) -> u32;
    pub(crate) fn tlp_step_queue(class: u32, step: u32) -> u32;
    pub(crate) fn tlp_step_has_default(step: u32) -> u32;
    pub(crate) fn tlp_queue_step(class: u32, queue: u32) -> u32;
    pub(crate) fn tlp_vtime_charge(t: *mut Task, used_ns: u64);
    pub(crate) fn tlp_vtime_place(
        t: *mut Task,
        id: u32,
        old_clock_ns: u64,
        new_clock_ns: u64,
        slice_ns: u64,
    );
    pub(crate) fn tlp_vtime_step(t: *const Task, used_ns: u64, nr_tasks: u32) -> u64;
    pub(crate) fn tlp_turns_own_first(turns: *const Turns) -> u32;
    pub(crate) fn tlp_turns_begin(turns: *mut Turns, id: u32, nr_tasks: u32);
    pub(crate) fn tlp_turns_end(turns: *mut Turns);
    pub(crate) fn tlp_turns_charge(turns: *mut Turns, t: *const Task, used_ns: u64, slice_ns: u64);
    pub(crate) fn tlp_turns_may_go_first(turns: *const Turns, slice_ns: u64) -> u32;
    pub(crate) fn tlp_turns_charge_first(
        turns: *mut Turns,
        went_first: u32,
        used_ns: u64,
        slice_ns: u64,
    );
    pub(crate) fn tlp_charge(
        t: *mut Task,
        turns: *mut Turns,
        cfg: *const Cfg,
        used_ns: u64,
        nr_tasks: u32,
        went_first: u32,
    ) -> u64;
    pub(crate) fn tlp_core_class(rank: u32, split: *const Split) -> u32;
    pub(crate) fn tlp_idle_class(t: *const Task, i: u32) -> u32;
    pub(crate) fn tlp_victim_rank(need: u32, class: u32, running_queue: u32, arrives: u32) -> u32;
    pub(crate) fn tlp_victim_best(need: u32) -> u32;
    pub(crate) fn tlp_cpu_flags(class: u32, nr_scalar_cpus: u32) -> u8;
    pub(crate) fn tlp_sizing_update(s: *mut Sizing, input: *const SizingInput) -> u32;
    pub(crate) fn tlp_tiers_update(t: *mut Tiers, input: *const TiersInput) -> u32;
    pub(crate) fn tlp_mix_ran(m: *mut Mix, used_ns: u64, level: u32);
    pub(crate) fn tlp_mix_wide_ns(m: *const Mix, waited_ns: u64, level: u32) -> u64;
    pub(crate) fn tlp_score_switch(s: *mut Score, before: u32, now: u32, run_ns: u64) -> u32;
    pub(crate) fn tlp_score_level(s: *const Score) -> u32;
    pub(crate) fn tlp_rest_stays(cfg: *const Cfg, phase_ns: u64) -> u32;
    pub(crate) fn tlp_rest_is_over(cfg: *const Cfg, until_ns: u64, now_ns: u64) -> u32;
    pub(crate) fn tlp_target_tell(t: *mut Target, asked_q10: u32, is_tick: u32) -> u32;
}
