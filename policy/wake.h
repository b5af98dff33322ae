/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Wakeups: whether a task that wakes displaces the one that runs on its CPU.
 *
 * Problem: a queue's order says which task is next, not when. Where all CPUs are busy, a task
 * that wakes waits until the slice of another one ends, 20 ms divided by the CPUs that
 * serve its queue. Take a task that is bound to a CPU, works for 100 us and sleeps for
 * 200 us: it needs a third of the CPU. Beside a task that never sleeps it is due a half,
 * but does 27 times less than alone; if it may run on four CPUs, 2.5 times less.
 *
 * Idea: a task that wakes displaces the one that runs on the CPU where it was, if that has
 * had a millisecond more:
 *
 *   same queue      its virtual time is that much ahead
 *   another queue   that queue's side is that much ahead (turns.h)
 *   none            it has run for that long: it came past the queues, by a wakeup of
 *                   an idle CPU or before all others. From then on its side counts
 *
 * So a task that wants less than its share waits for a millisecond at most for one of
 * its weight, and one that wants more has no virtual time to displace others with. A
 * millisecond is what the kernel's fair scheduler had for this
 * (sysctl_sched_wakeup_granularity, Linux 2.6.23 to 6.5); it bounds the switches, too.
 *
 * Only that CPU is looked at, and only if it serves the task's queue in its first step:
 * of a machine's CPUs it is as good as any, and its caches may be warm. Wide tasks look
 * for scalar ones to displace first (victims in cpus.h).
 */
#ifndef TL_POLICY_WAKE_H
#define TL_POLICY_WAKE_H

#include "queues.h"

/* What the task that runs must have had more. */
#define TL_WAKE_NS 1000000ull

/*
 * What runs on a CPU. All zero: nothing.
 *
 *   0        8        16       24      28
 *   +--------+--------+--------+-------+--------+
 *   | vtime  | since  | began  | clock | weight |
 *   +--------+--------+--------+-------+--------+
 */
struct tl_run {
	u64 vtime_ns; /* of the task when it was last charged */
	u64 since_ns; /* that time */
	u64 began_ns; /* when it came */
	u32 clock;    /* queue id whose clock vtime_ns is on */
	u32 weight;
};
_Static_assert(sizeof(struct tl_run) == 32, "drawn above; mirrored in Rust");

/* The CPU's task was charged. */
tl_inline void tl_run_note(struct tl_run *run, const struct tl_task *t,
			   u64 now_ns)
{
	run->vtime_ns = t->vtime_ns;
	run->since_ns = now_ns;
	run->clock = t->clock;
	run->weight = t->weight;
}

/* A task begins to run on the CPU. */
tl_inline void tl_run_begins(struct tl_run *run, const struct tl_task *t,
			     u64 now_ns)
{
	tl_run_note(run, t, now_ns);
	run->began_ns = now_ns;
}

/* The side of this CPU on which the task waits, if that is one of its first step;
 * TL_SIDE_NONE: it is not. */
tl_inline u32 tl_wake_side(const struct tl_task *t, u32 cpu, u32 class,
			   u32 shard)
{
	u32 queue = tl_task_queue(t);

	if (t->clock == tl_pinned_id(cpu))
		return TL_SIDE_PINNED;
	if (class >= TL_NR_CLASSES || tl_queue_step(class, queue) ||
	    t->clock != tl_queue_id(shard, queue))
		return TL_SIDE_NONE;
	return queue == TL_Q_DEFAULT ? TL_SIDE_DEFAULT : TL_SIDE_OWN;
}

/* Whether a task displaces what runs on a CPU: it has just woken and waits on this side
 * of the CPU's first step, in the queue on whose clock it is. */
tl_inline u32 tl_wake_displaces(const struct tl_run *run,
				const struct tl_turns *turns,
				const struct tl_task *t, u32 side, u64 slice_ns,
				u64 now_ns)
{
	u64 used_ns = now_ns > run->since_ns ? now_ns - run->since_ns : 0;
	u64 charged_ns = tl_weighted_ns(run->weight, used_ns);

	if (run->clock == t->clock)
		return (s64)(run->vtime_ns + charged_ns - t->vtime_ns) >=
		       (s64)tl_vtime_ns(t, TL_WAKE_NS);
	if (!turns->clock || turns->clock != run->clock)
		return (s64)(now_ns - run->began_ns) >= (s64)TL_WAKE_NS;
	return tl_turns_lead_ns(turns, side, charged_ns, slice_ns) >=
	       (s64)TL_WAKE_NS;
}

#endif
