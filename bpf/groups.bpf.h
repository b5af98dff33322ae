/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Control groups: which group a task is in, what its effective weight is, and
 * whether its group may run at all. policy/groups.h and policy/bandwidth.h decide
 * what follows from the numbers; held.bpf.h handles tasks that may not run.
 *
 * The kernel says when a group comes, goes or changes, and when a task moves.
 * Groups are in a table, so that a task's context names its group by a number
 * and a pass can go through all of them. Group 0 is the root. A task of the
 * root is neither counted nor limited: that is a comparison per callback, the
 * only cost on a machine whose groups have no CPU controller.
 *
 * A task counts in its group's load from the moment it is queued or put on a CPU
 * until it stops and is not runnable any more. So a wake-up costs one atomic
 * operation, a sleep another, a mere switch none. The counters of a group are
 * in TL_GROUP_SHARDS lines by CPU.
 *
 * CPU time is taken from the budgets in portions of TL_SPENT_NS: each CPU keeps
 * what one group has used there until that is enough, or another group runs.
 *
 * Limits: groups beyond TL_GROUPS_MAX count as part of their parents (their own
 * weight and limit have no effect, those above them do). Only the nearest
 * TL_LIMITERS_MAX limits at or above a group count.
 */
#ifndef TL_GROUPS_BPF_H
#define TL_GROUPS_BPF_H

#include "state.bpf.h"
#include "../policy/groups.h"
#include "../policy/bandwidth.h"

#define TL_GROUPS_MAX 8192
#define TL_GROUP_SHARDS 8
#define TL_LIMITERS_MAX 16
#define TL_SPENT_NS 500000
#define TL_GROUP_UNKNOWN 0xffffffffu

struct group {
	/* read where a task of it is queued or runs; written by the pass */
	struct tl_group g;
	u32 parent;
	u32 limiter; /* nearest group with a limit, itself included; 0 = none */
	u32 is_out;  /* its own budget is used up */
	u32 in_use;
	u32 is_idle;	  /* cpu.idle */
	u32 own_weight;	  /* cpu.weight */
	u32 is_touched;	  /* something was counted since the last pass */
	u32 has_queue;	  /* its queue of held tasks has been made */
	u32 has_held;	  /* and was used: stays, see held.bpf.h */
	u64 competing[2]; /* weights of child groups: this pass's, the last's */

	/* written where a task of it has used CPU time */
	struct tl_budget budget __attribute__((aligned(64)));

	/* weights of its own runnable tasks, a line for some CPUs each */
	struct {
		s64 load;
	} __attribute__((aligned(64))) shard[TL_GROUP_SHARDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TL_GROUPS_MAX);
	__type(key, u32);
	__type(value, struct group);
} groups SEC(".maps");

/* Where a control group is in the table, + 1. */
struct group_ref {
	u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_ref);
} group_refs SEC(".maps");

/* CPU time that a CPU has not taken from the budgets yet. */
struct spent {
	u32 limiter;
	u64 ns;
} __attribute__((aligned(64)));

struct spent spent[TL_CPUS_MAX];
u32 nr_groups = 1;  /* the table is in use up to here */
u32 first_free = 1; /* no entry below is free */

/* The queue of a group's held tasks, see held.bpf.h. */
static __always_inline u64 held_queue_id(u32 slot)
{
	return 1ull << 32 | slot;
}

/* NULL only for the verifier: numbers come from the table. */
static __always_inline struct group *lookup_group(u32 slot)
{
	return bpf_map_lookup_elem(&groups, &slot);
}

/* ---- which group ---- */

static __always_inline u32 slot_of(struct cgroup *cgrp)
{
	struct group_ref *ref =
		bpf_cgrp_storage_get(&group_refs, cgrp, NULL, 0);

	return ref && ref->slot ? ref->slot - 1 : 0;
}

/* Ask the kernel for the task's group: of its first callback only, later moves
 * are reported. */
__noinline u32 tl_find_group(struct task_struct *p __arg_trusted)
{
	struct cgroup *cgrp;
	u32 slot;

	cgrp = tl_scx_task_cgroup(p);
	if (!cgrp)
		return 0;
	slot = slot_of(cgrp);
	bpf_cgroup_release(cgrp);
	return slot;
}

/* ---- weights ---- */

static __always_inline void count_load(u32 slot, s64 weight)
{
	struct group *group = lookup_group(slot);
	u32 shard = bpf_get_smp_processor_id() / 8 % TL_GROUP_SHARDS;

	if (!group)
		return;
	count_shared_atomic();
	__sync_fetch_and_add(&group->shard[shard].load, weight);
	/* after the count, see sum_load() */
	if (!group->is_touched)
		group->is_touched = 1;
}

/* The task is not runnable any more, or not in its group. */
static __always_inline void groups_idle(struct task_ctx *tc)
{
	u32 slot = tc->counts_in;

	if (!slot)
		return;
	tc->counts_in = 0;
	count_load(slot, -(s64)tc->counted_weight);
}

/* Effective weight of the task, by its group's last factor. */
static __always_inline void groups_weight(struct task_ctx *tc)
{
	struct group *group;

	if (!tc->group)
		return;
	group = lookup_group(tc->group);
	if (group)
		tc->t.weight =
			tl_group_task_weight(group->g.factor, tc->own_weight);
}

/* The task's own weight is another. */
static __always_inline void groups_set_weight(struct task_ctx *tc, u32 weight)
{
	tc->own_weight = weight;
	tc->t.weight = tl_group_task_weight(TL_GROUPS_ONE, weight);
	if (tc->group != TL_GROUP_UNKNOWN)
		groups_weight(tc);
}

/* The task is queued or runs: it counts in its group, and has its weight. */
static __always_inline void groups_active(struct task_struct *p,
					  struct task_ctx *tc)
{
	if (tc->group == TL_GROUP_UNKNOWN)
		tc->group = tl_find_group(p);
	if (!tc->group)
		return;
	if (!tc->counts_in) {
		tc->counts_in = tc->group;
		tc->counted_weight = tc->own_weight;
		count_load(tc->group, tc->own_weight);
	}
	groups_weight(tc);
}

/* ---- budgets ---- */

/* Take what a CPU has spent from the budgets of the group and those above. */
__noinline int tl_take_spent(u32 limiter, u64 ns)
{
	u32 i;

	bpf_for(i, 0, TL_LIMITERS_MAX) {
		struct group *group = lookup_group(limiter), *parent;

		if (!limiter || !group)
			break;
		count_shared_atomic();
		__sync_fetch_and_add(&group->budget.left_ns, -(s64)ns);
		if (group->budget.left_ns <= 0 && !group->is_out &&
		    tl_budget_is_limit(&group->budget))
			group->is_out = 1;
		parent = lookup_group(group->parent);
		limiter = parent ? parent->limiter : 0;
	}
	return 0;
}

/* The task has used CPU time here. */
static __always_inline void groups_charge(struct task_ctx *tc, u64 used_ns)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct group *group;
	struct spent *s;

	if (!tc->group || tc->group == TL_GROUP_UNKNOWN)
		return;
	groups_weight(tc);
	group = lookup_group(tc->group);
	if (!group || !group->limiter || cpu >= TL_CPUS_MAX)
		return;
	s = &spent[cpu];
	if (s->limiter != group->limiter) {
		if (s->limiter)
			tl_take_spent(s->limiter, s->ns);
		s->limiter = group->limiter;
		s->ns = 0;
	}
	s->ns += used_ns;
	if (s->ns >= TL_SPENT_NS) {
		tl_take_spent(s->limiter, s->ns);
		s->ns = 0;
	}
}

/* Whether the group, or one above it, is out. */
__noinline int tl_is_out(u32 limiter)
{
	u32 i;

	bpf_for(i, 0, TL_LIMITERS_MAX) {
		struct group *group = lookup_group(limiter), *parent;

		if (!limiter || !group)
			return 0;
		if (group->is_out)
			return 1;
		parent = lookup_group(group->parent);
		limiter = parent ? parent->limiter : 0;
	}
	return 0;
}

/* Whether others would wait for the task if it was set aside: it is exiting, may
 * not migrate (serve.bpf.h), or is in an RCU read section, for which the entire
 * kernel waits. It goes on, and its group has a debt. */
static __always_inline bool must_not_be_held(const struct task_struct *p)
{
	/* what the kernel counts for the current task around our programs */
	s32 own = p == bpf_get_current_task_btf();

	if (p->flags & (PF_EXITING | PF_KTHREAD))
		return true;
	if (tl_migration_disabled(p) > (u32)own || tl_rcu_nesting(p) > own)
		return true;
	return p->signal->flags & SIGNAL_GROUP_EXIT;
}

/* Whether the task's group, or one above it, is out. */
static __always_inline bool group_is_out(const struct task_ctx *tc)
{
	struct group *group;

	if (!tc->group || tc->group == TL_GROUP_UNKNOWN)
		return false;
	group = lookup_group(tc->group);
	return group && group->limiter && tl_is_out(group->limiter);
}

/* Whether the task is to be set aside now. */
static __always_inline bool groups_throttled(const struct task_struct *p,
					     const struct task_ctx *tc)
{
	return tc->may_hold && group_is_out(tc) && !must_not_be_held(p);
}

/*
 * The running task's tick. In the kernel a task may hold a lock that all tasks
 * need (a task that writes to cgroup.procs holds that of all control groups), so
 * it is only set aside when a tick has interrupted its user code: the tick has
 * just been added to its user time. One that is found in the kernel goes on, at
 * the expense of its group's later periods. Returns whether it is to go.
 */
static __always_inline bool groups_tick(const struct task_struct *p,
					struct task_ctx *tc)
{
	u64 utime = p->utime;
	bool in_user = utime != tc->utime;

	if (!tc->group)
		return false;
	tc->utime = utime;
	if (!in_user)
		return false;
	tc->may_hold = group_is_out(tc);
	return groups_throttled(p, tc);
}

/* It runs, and is not sent away: it may be in the kernel from now on. */
static __always_inline void groups_run(const struct task_struct *p,
				       struct task_ctx *tc)
{
	if (!tc->group)
		return;
	tc->may_hold = 0;
	tc->held_since_ns = 0;
	tc->utime = p->utime;
}

/* ---- what the kernel reports ---- */

/* A free entry of the table; 0 if there is none. Groups come and go under the
 * kernel's lock of all control groups, one at a time. */
static __always_inline u32 take_slot(void)
{
	u32 slot;

	bpf_for(slot, first_free, TL_GROUPS_MAX) {
		struct group *group = lookup_group(slot);

		if (!group || group->in_use)
			continue;
		first_free = slot + 1;
		if (slot >= nr_groups)
			nr_groups = slot + 1;
		return slot;
	}
	return 0;
}

/* The entry of the group above. */
static __always_inline u32 slot_above(struct cgroup *cgrp)
{
	struct cgroup *above;
	u32 slot;

	if (cgrp->level <= 0)
		return 0;
	above = bpf_cgroup_ancestor(cgrp, cgrp->level - 1);
	if (!above)
		return 0;
	slot = slot_of(above);
	bpf_cgroup_release(above);
	return slot;
}

static __always_inline void set_limit(struct group *group, u32 slot,
				      u64 period_us, u64 quota_us, u64 burst_us)
{
	struct group *parent = lookup_group(group->parent);

	tl_budget_set(&group->budget, period_us, quota_us, burst_us,
		      bpf_ktime_get_ns());
	group->is_out = 0;
	if (tl_budget_is_limit(&group->budget))
		group->limiter = slot;
	else
		group->limiter = parent ? parent->limiter : 0;
}

/* The counts of runnable tasks stay as they are: one that is exiting may still
 * count in a group that is gone. */
static __always_inline void begin_group(struct group *group, u32 slot,
					u32 above,
					struct scx_cgroup_init_args *args)
{
	struct group *parent = lookup_group(above);

	group->parent = above;
	group->own_weight = args->weight;
	group->is_idle = tl_scx_is_idle(args);
	group->g.weight = tl_group_weight(group->own_weight, group->is_idle);
	group->g.load = 0;
	group->g.factor = tl_group_factor(
		parent ? parent->g.factor : TL_GROUPS_ONE, group->g.weight, 0);
	if (tl_scx_has_bandwidth(args))
		set_limit(group, slot, args->bw_period_us, args->bw_quota_us,
			  args->bw_burst_us);
	else
		set_limit(group, slot, 0, 0, 0);
	group->in_use = 1;
}

SEC("struct_ops.s/tl_cgroup_init")
s32 BPF_PROG(tl_cgroup_init, struct cgroup *cgrp,
	     struct scx_cgroup_init_args *args)
{
	struct group_ref *ref;
	struct group *group;
	u32 slot, above = slot_above(cgrp);
	s32 err;

	ref = bpf_cgrp_storage_get(&group_refs, cgrp, NULL,
				   BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!ref)
		return -ENOMEM;
	slot = cgrp->level > 0 ? take_slot() : 0;
	/* the root has no share and no limit; beyond the table, see above */
	ref->slot = (slot ?: above) + 1;
	group = lookup_group(slot);
	if (!slot || !group)
		return 0;
	if (!group->has_queue) {
		err = scx_bpf_create_dsq(held_queue_id(slot), -1);
		if (err)
			return err;
		group->has_queue = 1;
	}
	begin_group(group, slot, above, args);
	return 0;
}

/* Its entry, if it has one of its own. */
static __always_inline struct group *try_own_group(struct cgroup *cgrp,
						   u32 *slot)
{
	struct group *group;

	*slot = slot_of(cgrp);
	if (!*slot || (slot_above(cgrp) == *slot))
		return NULL;
	group = lookup_group(*slot);
	return group && group->in_use ? group : NULL;
}

SEC("struct_ops.s/tl_cgroup_exit")
void BPF_PROG(tl_cgroup_exit, struct cgroup *cgrp)
{
	u32 slot;
	struct group *group = try_own_group(cgrp, &slot);

	if (!group)
		return;
	set_limit(group, slot, 0, 0, 0);
	group->in_use = 0;
	if (slot < first_free)
		first_free = slot;
}

/* The task counts in its new group when it is queued there; the kernel has
 * taken it from its queue. */
SEC("struct_ops/tl_cgroup_move")
void BPF_PROG(tl_cgroup_move, struct task_struct *p, struct cgroup *from,
	      struct cgroup *to)
{
	struct task_ctx *tc = lookup_task(p);

	if (!tc)
		return;
	groups_idle(tc);
	/* it may be moving itself, and so be in the kernel */
	tc->may_hold = 0;
	tc->group = slot_of(to);
	groups_set_weight(tc, tc->own_weight);
}

SEC("struct_ops/tl_cgroup_set_weight")
void BPF_PROG(tl_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	u32 slot;
	struct group *group = try_own_group(cgrp, &slot);

	if (!group)
		return;
	group->own_weight = weight;
	group->g.weight = tl_group_weight(weight, group->is_idle);
}

SEC("struct_ops/tl_cgroup_set_idle")
void BPF_PROG(tl_cgroup_set_idle, struct cgroup *cgrp, bool idle)
{
	u32 slot;
	struct group *group = try_own_group(cgrp, &slot);

	if (!group)
		return;
	group->is_idle = idle;
	group->g.weight = tl_group_weight(group->own_weight, idle);
}

SEC("struct_ops/tl_cgroup_set_bandwidth")
void BPF_PROG(tl_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us,
	      u64 quota_us, u64 burst_us)
{
	u32 slot;
	struct group *group = try_own_group(cgrp, &slot);

	if (group)
		set_limit(group, slot, period_us, quota_us, burst_us);
}

#endif
