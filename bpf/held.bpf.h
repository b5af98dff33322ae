/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Held tasks: set aside because their group is out of budget, and brought back.
 *
 * Each group has a queue of its own for them (a DSQ that no CPU serves). It is
 * ordered by the time for which a task has waited since it last ran, so that all
 * get their turn. A pass, every TL_GROUPS_PASS_NS, begins new periods and says
 * how many tasks of which group may come back; the next CPU that looks for work
 * (ops.dispatch) moves them to their queues, since a timer may not move tasks.
 * The pass wakes an idle CPU for that; if none is idle, a CPU does it at the end
 * of a slice.
 *
 * A held task runs for a moment every TL_HELD_MOST_NS (policy/bandwidth.h): it is
 * moved as if it could run; running() sees that its group has no budget and sends
 * it away at once. So the kernel's watchdog does not take it for stalled.
 *
 * The queues stay when their group goes: the next group in the table gets them,
 * and the pass looks at all of them, so a task cannot be lost in one.
 *
 *   queue id   63 .. 32   31 .. 0
 *              1          group's number in the table
 */
#ifndef TL_HELD_BPF_H
#define TL_HELD_BPF_H

#include "groups.bpf.h"

/* Groups whose tasks come back after one pass; others come with the next. */
#define TL_OFFERS_MAX 128
#define TL_RETURN_ALL 0x7fffffffu

/* Tasks that may come back: of which group, how many. */
struct offer {
	u32 slot; /* 0 = taken */
	u32 count;
	u32 with_old; /* and those that need a sign of life */
};

struct offer offers[TL_OFFERS_MAX];
u32 nr_offers; /* > 0: a CPU that looks for work takes them */

struct pass {
	struct bpf_timer timer;
	u64 count;
	u64 looked_ns; /* when signs of life were last looked for */
	u32 first;     /* offers begin with this group, another each time */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct pass);
} passes SEC(".maps");

/* Set the task aside. Those that have waited longest come first, whether they
 * were brought back in between and did not get to run. */
static __always_inline void hold(struct task_struct *p, struct task_ctx *tc,
				 u64 enq_flags)
{
	struct group *group = lookup_group(tc->group);
	u64 now_ns = bpf_ktime_get_ns();

	if (group && !group->has_held)
		group->has_held = 1;
	if (!tc->held_since_ns)
		tc->held_since_ns = now_ns;
	tc->held_ns = now_ns;
	tl_scx_insert_vtime(p, held_queue_id(tc->group), cfg.slice_ns,
			    tc->held_since_ns, enq_flags);
}

/* ---- the pass ---- */

/* Its own runnable tasks. What is counted before is_touched is read here is
 * seen, what is counted later sets it again. */
static __always_inline s64 sum_load(struct group *group)
{
	s64 sum = 0;
	u32 i;

	__sync_lock_test_and_set(&group->is_touched, 0);
	bpf_for(i, 0, TL_GROUP_SHARDS)
		sum += group->shard[i & (TL_GROUP_SHARDS - 1)].load;
	if (sum > 0)
		group->is_touched = 1;
	return sum;
}

/* Load, factor and limiter of a group, from what its parent and its children
 * had in this pass or the last. */
static __always_inline void pass_shares(struct group *group, u32 slot,
					struct group *parent, u64 count)
{
	u64 *competing = &group->competing[(count + 1) & 1];
	s64 now = (s64)*competing;

	*competing = 0;
	if (group->is_touched)
		now += sum_load(group);
	if (now || group->g.load)
		group->g.load = tl_group_load(group->g.load, now);
	group->g.factor = tl_group_factor(parent->g.factor, group->g.weight,
					  group->g.load);
	group->limiter = tl_budget_is_limit(&group->budget) ? slot :
							      parent->limiter;
	if (tl_group_competes(&group->g, group->is_out))
		parent->competing[count & 1] += group->g.weight;
}

static __always_inline void pass_budget(struct group *group, u64 now_ns)
{
	s64 more_ns = tl_budget_refill(&group->budget, now_ns);

	if (more_ns)
		__sync_fetch_and_add(&group->budget.left_ns, more_ns);
	group->is_out = group->budget.left_ns <= 0;
}

/* How many of its held tasks may come back: by the least budget. */
__noinline u32 tl_nr_returns(u32 limiter)
{
	u32 i, count = TL_RETURN_ALL;

	bpf_for(i, 0, TL_LIMITERS_MAX) {
		struct group *group = lookup_group(limiter), *parent;
		u32 own;

		if (!limiter || !group)
			break;
		own = tl_budget_returns(group->budget.left_ns);
		if (own < count)
			count = own;
		parent = lookup_group(group->parent);
		limiter = parent ? parent->limiter : 0;
	}
	return count;
}

/* Offer its held tasks; true if there are any. */
__noinline int tl_pass_held(u32 slot, u32 with_old)
{
	struct group *group = lookup_group(slot);
	struct offer *offer;
	u32 count;

	if (!group || !group->has_held ||
	    scx_bpf_dsq_nr_queued(held_queue_id(slot)) <= 0)
		return 0;
	count = tl_nr_returns(group->limiter);
	if ((!count && !with_old) || nr_offers >= TL_OFFERS_MAX)
		return 1;
	offer = &offers[nr_offers & (TL_OFFERS_MAX - 1)];
	offer->count = count;
	offer->with_old = with_old;
	offer->slot = slot;
	nr_offers++;
	return 1;
}

/* One group's turn in the pass; true if something goes on in it. */
__noinline int tl_pass_group(u32 slot, u64 count, u64 now_ns)
{
	struct group *group = lookup_group(slot), *parent;

	if (!group || !group->in_use)
		return 0;
	parent = lookup_group(group->parent);
	if (!parent)
		return 0;
	pass_shares(group, slot, parent, count);
	if (tl_budget_is_limit(&group->budget))
		pass_budget(group, now_ns);
	return group->g.load || group->is_out;
}

/* Someone is to take the offers. */
static __always_inline void wake_for_offers(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u32 cpu = bpf_cpumask_any_distribute(idle);

	scx_bpf_put_idle_cpumask(idle);
	if (cpu < nr_cpus)
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
}

static int pass_all(void *map, int *key, struct pass *pass)
{
	u64 now_ns = bpf_ktime_get_ns(), count = pass->count++;
	u32 slot, with_old = now_ns - pass->looked_ns >= TL_HELD_LOOK_NS;
	u32 nr = nr_groups, first = pass->first;
	int active = 0;

	if (away == TL_AWAY)
		return 0;
	bpf_for(slot, 1, nr)
		active |= tl_pass_group(slot, count, now_ns);
	if (!nr_offers) {
		if (with_old)
			pass->looked_ns = now_ns;
		bpf_for(slot, 1, nr) {
			u32 at = slot + first;

			active |= tl_pass_held(at < nr ? at : at - nr + 1,
					       with_old);
		}
		pass->first = first + 1 < nr - 1 ? first + 1 : 0;
	}
	if (nr_offers)
		wake_for_offers();
	bpf_timer_start(&pass->timer,
			active ? TL_GROUPS_PASS_NS : TL_GROUPS_IDLE_PASS_NS, 0);
	return 0;
}

static __always_inline int start_passes(void)
{
	u32 key = 0;
	struct pass *pass = bpf_map_lookup_elem(&passes, &key);
	struct group *root = lookup_group(0);

	if (!pass || !root)
		return -ENOENT;
	root->g.factor = TL_GROUPS_ONE;
	root->in_use = 1;
	bpf_timer_init(&pass->timer, &passes, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&pass->timer, pass_all);
	return bpf_timer_start(&pass->timer, TL_GROUPS_PASS_NS, 0);
}

/* ---- bringing back; from ops.dispatch ---- */

/* Where a held task is to go now, though its group's tasks may not come back yet:
 * 0 = nowhere. (Functions that are not static: see control.bpf.h.) */
__noinline u32 tl_way_out(struct task_struct *p __arg_trusted, u64 now_ns)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (!tc ||
	    (now_ns - tc->held_ns < TL_HELD_MOST_NS && !must_not_be_held(p)))
		return 0;
	return tl_right_queue(p);
}

/* The task is about to go to this queue; returns its key there. */
__noinline u64 tl_leave_held(struct task_struct *p __arg_trusted, u32 to)
{
	u64 slice_ns = cfg.slice_ns;

	return tl_join_queue(try_lookup_task(p), to, &slice_ns);
}

/* Move so many held tasks of a group to the queues where they belong, and with
 * them those that need a sign of life. */
__noinline int tl_return_held(u32 slot, u32 count, u32 with_old)
{
	u64 now_ns = bpf_ktime_get_ns(), id = held_queue_id(slot);
	struct task_struct *p;

	tl_for_each_queued(p, id)
	{
		u32 to;
		u64 key_ns;

		if (!count && !with_old)
			break;
		to = count ? tl_right_queue(p) : tl_way_out(p, now_ns);
		if (!to)
			continue;
		key_ns = tl_leave_held(p, to);
		tl_scx_move_vtime(tl_queue_iter, p, to, key_ns);
		if (count)
			count--;
	}
	return 0;
}

/* A CPU looks for work: it takes the offers, if there are any. */
static __always_inline void bring_back(s32 cpu)
{
	u32 i, nr = nr_offers;
	struct tl_cpu *c;

	if (!nr)
		return;
	bpf_for(i, 0, nr) {
		struct offer *offer = &offers[i & (TL_OFFERS_MAX - 1)];
		u32 slot = __sync_lock_test_and_set(&offer->slot, 0);

		if (slot)
			tl_return_held(slot, offer->count, offer->with_old);
	}
	nr_offers = 0;
	c = lookup_cpu(cpu);
	if (c)
		look_after_queued(c, 0);
}

#endif
