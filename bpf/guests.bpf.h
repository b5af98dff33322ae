/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Guests: whether scalar work on a wide CPU should make room.
 *
 * Two ask: the tick, for whatever runs there, and a task that has just become a
 * guest, at the end of its wide section. The tick looks everywhere; the task, which
 * may end a section every few microseconds, only at what its CPU serves before it
 * and that no other CPU takes first: its own shard, and wide work of any shard.
 */
#ifndef TL_GUESTS_BPF_H
#define TL_GUESTS_BPF_H

/* Whether a queue of the shard that the CPU serves in one of these steps holds
 * anything. */
static __always_inline bool shard_has_work(const struct tl_cpu *c, u32 shard,
					   u32 nr_steps, u32 first_queue)
{
	u32 queue;

	bpf_for(queue, first_queue, TL_NR_QUEUES) {
		if (tl_queue_step(c->class & 3, queue) >= nr_steps)
			continue;
		if (nr_queued(tl_queue_id(shard, queue)))
			return true;
	}
	return false;
}

/* Whether a queue that the CPU serves in one of these steps holds anything. */
static __always_inline bool has_work_in_steps(const struct tl_cpu *c, s32 cpu,
					      u32 nr_steps)
{
	u32 i;

	if (nr_queued(tl_pinned_id(cpu)))
		return true;
	bpf_for(i, 0, nr_shards)
		if (shard_has_work(c, i, nr_steps, 0))
			return true;
	return false;
}

/* The same, as far as a new guest looks. */
static __always_inline bool has_work_near(const struct tl_cpu *c, s32 cpu,
					  u32 nr_steps)
{
	u32 i;

	if (nr_queued(tl_pinned_id(cpu)) ||
	    shard_has_work(c, c->shard, nr_steps, 0))
		return true;
	bpf_for(i, 0, nr_shards) {
		/* wide work waits in shards with wide CPUs */
		if (i == c->shard ||
		    !(shards[i & (TL_SHARDS_MAX - 1)].classes & ~1u))
			continue;
		if (shard_has_work(c, i, nr_steps, TL_Q_WIDE))
			return true;
	}
	return false;
}

/* Whether the task is a guest that should go now: something waits that goes
 * before it (its kick may have been lost, e.g. to a change of the classes), or
 * a scalar CPU is idle. */
static __always_inline bool guest_should_go(struct task_struct *p,
					    struct task_ctx *tc,
					    struct tl_cpu *c, s32 cpu)
{
	return tl_task_is_guest(&tc->t, c->class) &&
	       (better_place_idle(p, SCRATCH_CALLBACK) ||
		has_work_in_steps(c, cpu, tl_nr_steps(c->class & 3) - 1));
}

/* Whether it is certain, without another look, that a running task has no reason to
 * leave. */
static __always_inline bool is_in_place(const struct task_ctx *tc,
					const struct tl_cpu *c)
{
	return tc->caps_generation == class_generation &&
	       !tl_must_leave(&tc->t, c->class, 1);
}

/* Whether a running task should give up its CPU after its type changed. CPUs
 * that look for a task to displace must see its new type before the queues are
 * looked at: a wide task that comes later finds a guest here. */
static __always_inline bool must_leave(struct task_struct *p,
				       struct task_ctx *tc, struct tl_cpu *c,
				       s32 cpu)
{
	u32 wanted = 0;

	refresh_caps(p, tc);
	__sync_lock_test_and_set(&c->running_queue, tl_task_queue(&tc->t));
	if (tl_task_is_guest(&tc->t, c->class))
		wanted = better_place_idle(p, SCRATCH_PROBE) ||
			 has_work_near(c, cpu, tl_nr_steps(c->class & 3) - 1);
	return tl_must_leave(&tc->t, c->class, wanted);
}

#endif
