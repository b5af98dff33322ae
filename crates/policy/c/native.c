/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The native build of policy/: one external function per entry point. */
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int32_t s32;
typedef int64_t s64;

#include "bandwidth.h"
#include "bound.h"
#include "goal.h"
#include "groups.h"
#include "locality.h"
#include "mark.h"
#include "mix.h"
#include "rest.h"
#include "score.h"
#include "sizing.h"
#include "standby.h"
#include "target.h"
#include "tiers.h"
#include "wake.h"

#define EXPORT(ret, name, params, call) \
	ret tlp_##name params           \
	{                               \
		return call;            \
	}

EXPORT(void, task_init,
       (struct tl_task * t, const struct tl_cfg *cfg, u8 type, u8 level,
	u64 now_ns),
       tl_task_init(t, cfg, type, level, now_ns))
EXPORT(u32, task_classify_scalar, (struct tl_task * t),
       tl_task_classify_scalar(t))
EXPORT(u32, task_set_rule, (struct tl_task * t, u32 rule),
       tl_task_set_rule(t, rule))
EXPORT(u32, task_gives_hints, (const struct tl_task *t), tl_task_gives_hints(t))
EXPORT(u32, rule_choose, (u32 by_group, u32 by_name),
       tl_rule_choose(by_group, by_name))
EXPORT(void, task_renew, (struct tl_task * t), tl_task_renew(t))
EXPORT(u32, task_event,
       (struct tl_task * t, const struct tl_cfg *cfg, u32 event, u32 level,
	u64 now_ns),
       tl_task_event(t, cfg, event, level, now_ns))
EXPORT(void, task_ran, (struct tl_task * t, u64 used_ns, u32 level),
       tl_task_ran(t, used_ns, level))
EXPORT(u64, wide_timeout_ns, (void), TL_WIDE_TIMEOUT_NS)
EXPORT(u64, level_hold_ns, (void), TL_LEVEL_HOLD_NS)
EXPORT(u64, first_look_ns, (void), TL_STANDBY_PAUSE_NS)
EXPORT(u64, going_home_ns, (void), TL_GOING_HOME_NS)
EXPORT(u64, going_home_max_ns, (void), TL_GOING_HOME_MAX_NS)
EXPORT(u64, stay_least_ns, (void), TL_STAY_LEAST_NS)
EXPORT(u32, task_syscall_matters, (const struct tl_task *t),
       tl_task_syscall_matters(t))
EXPORT(u32, task_bequest, (const struct tl_task *t), tl_task_bequest(t))
EXPORT(u32, task_bequest_type, (const struct tl_task *t, u32 level),
       tl_task_bequest_type(t, (u8)level))
EXPORT(u64, task_stays_ns, (const struct tl_task *t, const struct tl_cfg *cfg),
       tl_task_stays_ns(t, cfg))
EXPORT(u32, task_need, (const struct tl_task *t), tl_task_need(t))
EXPORT(u32, task_queue, (const struct tl_task *t), tl_task_queue(t))
EXPORT(u32, task_fits, (const struct tl_task *t, u32 class),
       tl_task_fits(t, class))
EXPORT(u32, task_is_guest, (const struct tl_task *t, u32 class),
       tl_task_is_guest(t, class))
EXPORT(u32, must_leave, (const struct tl_task *t, u32 class, u32 wanted),
       tl_must_leave(t, class, wanted))
EXPORT(u64, task_slice_ns, (const struct tl_task *t, const struct tl_cfg *cfg),
       tl_task_slice_ns(t, cfg))
EXPORT(u32, queue_id, (u32 shard, u32 queue), tl_queue_id(shard, queue))
EXPORT(u32, pinned_id, (u32 cpu), tl_pinned_id(cpu))
EXPORT(u32, queue_class, (u32 queue), tl_queue_class(queue))
EXPORT(u32, nr_steps, (u32 class), tl_nr_steps(class))
EXPORT(u32, step_queue, (u32 class, u32 step), tl_step_queue(class, step))
EXPORT(u32, step_has_default, (u32 step), tl_step_has_default(step))
EXPORT(u32, queue_step, (u32 class, u32 queue), tl_queue_step(class, queue))
EXPORT(u64, slice_in_round_ns, (u64 slice_ns, u32 nr_tasks, u32 nr_cpus),
       tl_slice_in_round_ns(slice_ns, nr_tasks, nr_cpus))
EXPORT(u64, slice_from_ns,
       (const struct tl_task *t, const struct tl_clock *clock, u64 slice_ns,
	u32 nr_tasks, u32 nr_cpus),
       tl_slice_from_ns(t, clock, slice_ns, nr_tasks, nr_cpus))
EXPORT(u64, most_wait_ns, (u64 slice_ns, u32 nr_tasks, u32 nr_cpus),
       tl_most_wait_ns(slice_ns, nr_tasks, nr_cpus))
EXPORT(u64, vtime_charge, (struct tl_task * t, u64 used_ns),
       tl_vtime_charge(t, used_ns))
EXPORT(void, vtime_place,
       (struct tl_task * t, u32 id, u64 old_vtime_ns,
	const struct tl_clock *clock, u64 slice_ns, u64 most_wait_ns),
       tl_vtime_place(t, id, old_vtime_ns, clock, slice_ns, most_wait_ns))
EXPORT(u64, task_key,
       (const struct tl_task *t, u64 old_vtime_ns, const struct tl_clock *clock,
	u64 slice_ns, u64 most_wait_ns, u64 now_ns),
       tl_task_key(t, old_vtime_ns, clock, slice_ns, most_wait_ns, now_ns))
EXPORT(void, clock_advance,
       (struct tl_clock * clock, u64 charged_ns, u32 nr_tasks, u32 nr_waiting,
	u64 now_ns),
       tl_clock_advance(clock, charged_ns, nr_tasks, nr_waiting, now_ns))
EXPORT(u32, turns_choose,
       (struct tl_turns * turns, const struct tl_sides *sides, u64 slice_ns,
	u64 now_ns),
       tl_turns_choose(turns, sides, slice_ns, now_ns))
EXPORT(void, turns_begin,
       (struct tl_turns * turns, u32 side, u32 clock, u32 nr_tasks,
	u32 nr_cpus),
       tl_turns_begin(turns, side, clock, nr_tasks, nr_cpus))
EXPORT(void, turns_end, (struct tl_turns * turns), tl_turns_end(turns))
EXPORT(u64, charge,
       (struct tl_task * t, struct tl_turns *turns, const struct tl_cfg *cfg,
	u64 used_ns, u32 went_first),
       tl_charge(t, turns, cfg, used_ns, went_first))
EXPORT(u32, goes_first,
       (const struct tl_turns *turns, u32 is_vital, u32 wakes, u64 slice_ns),
       tl_goes_first(turns, is_vital, wakes, slice_ns))
EXPORT(u32, waits_here,
       (u32 queue_class, u32 caps, u32 here_class, u32 allowed, u32 everywhere,
	u32 shard_classes),
       tl_waits_here(queue_class, caps, here_class, allowed, everywhere,
		     shard_classes))
EXPORT(u32, waits_at_class, (u32 queue_class, u32 caps),
       tl_waits_at_class(queue_class, caps))
EXPORT(u32, may_stay,
       (const struct tl_task *t, u32 class, u32 better_idle, u32 better_core),
       tl_may_stay(t, class, better_idle, better_core))
EXPORT(u32, leaves_core, (u32 is_first, u32 nr_ticks),
       tl_leaves_core(is_first, nr_ticks))
EXPORT(u32, compares_now, (u32 nr_looks), tl_compares_now(nr_looks))
EXPORT(u64, running_key, (u64 key_ns, u64 now_ns),
       tl_running_key(key_ns, now_ns))
EXPORT(u32, helps,
       (const struct tl_backlog *own, const struct tl_backlog *other,
	u64 slice_ns),
       tl_helps(own, other, slice_ns))
EXPORT(u32, look_class, (const struct tl_task *t, u32 i), tl_look_class(t, i))
EXPORT(u32, look_scope, (const struct tl_task *t, u32 i), tl_look_scope(t, i))
EXPORT(u32, core_class, (u32 rank, const struct tl_split *split),
       tl_core_class(rank, split))
EXPORT(u32, victim_rank, (u32 need, u32 class, u32 queue, u32 arrives),
       tl_victim_rank(need, class, queue, arrives))
EXPORT(u32, victim_best, (u32 need), tl_victim_best(need))
EXPORT(u8, cpu_flags, (u32 class, u32 nr_scalar_cpus),
       tl_cpu_flags(class, nr_scalar_cpus))
EXPORT(u32, sizing_update,
       (struct tl_sizing * s, const struct tl_sizing_input *in),
       tl_sizing_update(s, in))
EXPORT(u32, tiers_update,
       (struct tl_tiers * t, const struct tl_tiers_input *in),
       tl_tiers_update(t, in))
EXPORT(u32, bound_order,
       (struct tl_bound * groups, u32 nr_groups, u16 *order, u32 nr_cores,
	const u8 *is_wide),
       tl_bound_order(groups, nr_groups, order, nr_cores, is_wide))
EXPORT(void, tiers_resume, (struct tl_tiers * t), tl_tiers_resume(t))
EXPORT(u32, goal_apart, (const struct tl_goal *g), tl_goal_apart(g))
EXPORT(u32, goal_update, (struct tl_goal * g, const struct tl_goal_input *in),
       tl_goal_update(g, in))
EXPORT(u32, standby_is_away, (const struct tl_standby *s),
       tl_standby_is_away(s))
EXPORT(u32, standby_keeps_marks, (const struct tl_standby *s),
       tl_standby_keeps_marks(s))
EXPORT(u32, standby_update,
       (struct tl_standby * s, const struct tl_standby_input *in),
       tl_standby_update(s, in))
EXPORT(u32, party, (const struct tl_mix *m, u32 level, u32 hints),
       tl_party(m, level, hints))
EXPORT(u32, exposure_nr_missed, (u32 begun, u32 is_open, u64 span_ns),
       tl_exposure_nr_missed(begun, is_open, span_ns))
EXPORT(u32, exposure_missed,
       (struct tl_exposure * e, u32 level, u32 nr, u64 span_ns, u64 now_ns),
       tl_exposure_missed(e, level, nr, span_ns, now_ns))
EXPORT(u32, exposure_turns,
       (struct tl_exposure * e, u32 old_level, u32 new_level, u64 now_ns),
       tl_exposure_turns(e, old_level, new_level, now_ns))
EXPORT(void, exposure_ran,
       (const struct tl_exposure *e, struct tl_losses *l, u32 level, u32 shares,
	u64 used_ns, u64 now_ns),
       tl_exposure_ran(e, l, level, shares, used_ns, now_ns))
EXPORT(void, mix_ran, (struct tl_mix * m, u64 used_ns, u32 level),
       tl_mix_ran(m, used_ns, level))
EXPORT(u64, mix_wide_ns, (const struct tl_mix *m, u64 waited_ns, u32 level),
       tl_mix_wide_ns(m, waited_ns, level))
EXPORT(u32, score_switch,
       (struct tl_score * s, u32 before, u32 now, u64 run_ns),
       tl_score_switch(s, before, now, run_ns))
EXPORT(u32, score_level, (const struct tl_score *s), tl_score_level(s))
EXPORT(u32, score_code, (u32 level), tl_score_code(level))
EXPORT(u64, mark_rule, (u32 level, u32 arg, u32 least, u32 number),
       tl_mark_rule(level, arg, least, number))
EXPORT(u32, mark_level, (u64 rule), tl_mark_level(rule))
EXPORT(u32, mark_number, (u64 rule), tl_mark_number(rule))
EXPORT(u32, mark_counts, (u64 rule, u64 value), tl_mark_counts(rule, value))
EXPORT(u32, calls_enter, (struct tl_calls * calls, u32 counts),
       tl_calls_enter(calls, counts))
EXPORT(u32, calls_return, (struct tl_calls * calls), tl_calls_return(calls))
EXPORT(u32, rest_stays, (const struct tl_cfg *cfg, u64 phase_ns),
       tl_rest_stays(cfg, phase_ns))
EXPORT(u32, rest_is_over, (const struct tl_cfg *cfg, u64 until_ns, u64 now_ns),
       tl_rest_is_over(cfg, until_ns, now_ns))
EXPORT(u32, target_tell, (struct tl_target * t, u32 asked_q10, u32 is_tick),
       tl_target_tell(t, asked_q10, is_tick))
EXPORT(u32, group_weight, (u32 weight, u32 is_idle),
       tl_group_weight(weight, is_idle))
EXPORT(u32, group_load, (u32 before, s64 now), tl_group_load(before, now))
EXPORT(u64, group_factor, (u64 parent_factor, u32 weight, u32 load),
       tl_group_factor(parent_factor, weight, load))
EXPORT(u32, group_task_weight, (u64 factor, u32 own_weight),
       tl_group_task_weight(factor, own_weight))
EXPORT(void, budget_set,
       (struct tl_budget * b, u64 period_us, u64 quota_us, u64 burst_us,
	u64 now_ns),
       tl_budget_set(b, period_us, quota_us, burst_us, now_ns))
EXPORT(s64, budget_refill, (struct tl_budget * b, u64 now_ns),
       tl_budget_refill(b, now_ns))
EXPORT(u32, budget_returns, (s64 left_ns), tl_budget_returns(left_ns))
EXPORT(void, run_note,
       (struct tl_run * run, const struct tl_task *t, u64 now_ns),
       tl_run_note(run, t, now_ns))
EXPORT(void, run_begins,
       (struct tl_run * run, const struct tl_task *t, u64 now_ns),
       tl_run_begins(run, t, now_ns))
EXPORT(u32, wake_side, (const struct tl_task *t, u32 cpu, u32 class, u32 shard),
       tl_wake_side(t, cpu, class, shard))
EXPORT(void, task_comes, (struct tl_task * t), tl_task_comes(t))
EXPORT(s32, wake_cpu,
       (const struct tl_task *t, const struct tl_wake_from *from, u32 wakes,
	u64 now_ns),
       tl_wake_cpu(t, from, wakes, now_ns))
EXPORT(u32, wake_displaces,
       (const struct tl_run *run, const struct tl_turns *turns,
	const struct tl_task *t, u64 clock_ns, u32 wakes, u32 side,
	u64 slice_ns, u64 now_ns),
       tl_wake_displaces(run, turns, t, tl_wake_vtime_ns(t, clock_ns, wakes),
			 side, slice_ns, now_ns))
