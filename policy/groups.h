/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Groups: how the weights of control groups become weights of tasks.
 *
 * Problem: cpu.weight divides the CPU between the children of a group, level by
 * level, whatever number of tasks is in each. The queues (queues.h) know tasks
 * and one weight for each.
 *
 * Idea: flatten the tree. A group's *load* is what competes inside it: the
 * weights of its own runnable tasks and those of its child groups in which
 * something is runnable. Its *factor* is what one unit of weight inside it is
 * worth at the root:
 *
 *   factor(root)  = 1
 *   factor(group) = factor(parent) * weight(group) / load(group)
 *
 * and a task's effective weight is its own weight times its group's factor.
 * Tasks of the root compete with the root's children by their own weights, as
 * the kernel's own scheduler has it. The sum of the effective weights below a
 * child of the root is that child's weight, so shares come out right at every
 * level; a group in which nothing runs leaves its share to its siblings.
 *
 * Loads change with every wake-up. They are counted at once, but added up and
 * turned into factors by a pass over all groups every TL_GROUPS_PASS_NS: a load
 * that rises counts at once, one that falls counts by halves, so that a group
 * whose tasks sleep for a moment at a time does not gain weight by it. A pass
 * goes through the groups once. A parent hears of its children in the next one,
 * so what changes N levels down is in force after N passes.
 *
 * Numbers: weights are cpu.weight's, 1..10000, and 100 is nice 0 or the default.
 * Factors are in 1/TL_GROUPS_ONE. Effective weights are in 1/TL_WEIGHT_UNIT of a
 * weight, since a thousand tasks may share a group of weight 1: from 1 up to
 * 10000 * TL_WEIGHT_UNIT. A factor is at most 10000 (the weight of a child of
 * the root over a load of 1), so all products fit 64 bits:
 *
 *   factor 10000 * 2^26, times weight 10000, times unit 2^10: below 2^63
 *
 * Limits: a share is late by a pass for each level, and a task's weight is
 * looked at when it is queued and at ticks.
 */
#ifndef TL_POLICY_GROUPS_H
#define TL_POLICY_GROUPS_H

#include "task.h"

/* How often loads become factors. Short for any observer of shares, long compared
 * with the cost of the pass (about 50 ns per group that is idle). */
#define TL_GROUPS_PASS_NS 10000000ull
/* The same while nothing runs in any group. */
#define TL_GROUPS_IDLE_PASS_NS 100000000ull

#define TL_GROUPS_ONE (1ull << 26)
#define TL_GROUP_WEIGHT_MAX 10000u
#define TL_GROUP_WEIGHT_DEFAULT 100u

/* A group's part in the division of CPU time. */
struct tl_group {
	u64 factor; /* in 1/TL_GROUPS_ONE */
	u32 weight; /* 1..TL_GROUP_WEIGHT_MAX */
	u32 load;   /* what competes inside it, 0 = nothing */
};

/* The weight that counts: cpu.idle makes a group as light as can be. */
tl_inline u32 tl_group_weight(u32 weight, u32 is_idle)
{
	if (is_idle || !weight)
		return 1;
	return weight > TL_GROUP_WEIGHT_MAX ? TL_GROUP_WEIGHT_MAX : weight;
}

/* The load after a pass that found now. A sum of counts that are read while
 * they change may be below 0 for a moment. */
tl_inline u32 tl_group_load(u32 before, s64 now)
{
	u32 load;

	if (now < 0)
		now = 0;
	if (now > 0xffffffffll)
		now = 0xffffffffll;
	if (now >= before)
		return (u32)now;
	load = before - (before - (u32)now + 1) / 2;
	/* nothing runs, and less is left than one task of nice 0 */
	return !now && load < TL_GROUP_WEIGHT_DEFAULT ? 0 : load;
}

/* The factor of a group whose parent has this factor. Where nothing runs it is
 * what the first task is to find. */
tl_inline u64 tl_group_factor(u64 parent_factor, u32 weight, u32 load)
{
	u64 factor = parent_factor * weight /
		     (load ? load : TL_GROUP_WEIGHT_DEFAULT);

	return factor ? factor : 1;
}

/* A task's effective weight. */
tl_inline u32 tl_group_task_weight(u64 factor, u32 own_weight)
{
	u64 weight = factor * (own_weight ? own_weight : 1) * TL_WEIGHT_UNIT /
		     TL_GROUPS_ONE;
	u64 most = (u64)TL_GROUP_WEIGHT_MAX * TL_WEIGHT_UNIT;

	if (weight > most)
		return (u32)most;
	return weight ? (u32)weight : 1;
}

/* Whether the group counts in its parent's load: something in it could run. */
tl_inline u32 tl_group_competes(const struct tl_group *g, u32 is_held)
{
	return g->load && !is_held;
}

#endif
