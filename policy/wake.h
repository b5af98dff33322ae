/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Wakeups: whether a task that wakes, or comes back from a wide CPU, displaces the one that
 * runs on a CPU.
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
 *
 * A task that comes back from a wide CPU has not slept, but was away just the same: it
 * looks at the scalar CPU where it was last. Else each section that it ends costs it the
 * wait for another one's slice, and one that does nothing but short sections hardly runs:
 * of three `openssl speed` beside three gzips on three CPUs, one of them wide, each
 * encrypted one block of 16 kB every 8 ms (docs/experiments/silicon.md). The same holds
 * for one that wakes on a wide CPU. Who has not slept must have been wide there, and have
 * come less than a millisecond ago: after longer it may have had its slice, and waits for
 * its next turn like others.
 *
 * Limits. The millisecond is counted from the last time that the task was started there,
 * so a task that yields before it ends a long section escapes it. What it gains is
 * bounded by virtual time: it displaces only what has had more than it.
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

/* Where a task was that waits now. */
struct tl_wake_from {
	u32 cpu;
	u32 class;
	u32 shard;
	/* of the lowest class, where it last ran; -1 = nowhere yet */
	s32 scalar_cpu;
	u64 began_ns; /* when it came there */
};
_Static_assert(sizeof(struct tl_wake_from) == 24, "mirrored in Rust");

/* Whether a task that did not sleep has just ended a section there. */
tl_inline u32 tl_wake_comes_back(const struct tl_task *t,
				 const struct tl_wake_from *from, u64 now_ns)
{
	return (t->flags & TL_TASK_WAS_WIDE) &&
	       now_ns - from->began_ns < TL_WAKE_NS;
}

/* The CPU where the task looks for something to displace, -1 = nowhere. */
tl_inline s32 tl_wake_cpu(const struct tl_task *t,
			  const struct tl_wake_from *from, u32 wakes,
			  u64 now_ns)
{
	if (tl_wake_side(t, from->cpu, from->class, from->shard) !=
	    TL_SIDE_NONE)
		return wakes ? (s32)from->cpu : -1;
	if (!tl_task_is_guest(t, from->class))
		return -1;
	return wakes || tl_wake_comes_back(t, from, now_ns) ? from->scalar_cpu :
							      -1;
}

/* The virtual time of a task in a queue with this clock, as it counts here. What others
 * had while it waited for a wide CPU is for that queue to repay, not for this one: a
 * task that comes back has saved up nothing. */
tl_inline u64 tl_wake_vtime_ns(const struct tl_task *t, u64 clock_ns, u32 wakes)
{
	return !wakes && (s64)(t->vtime_ns - clock_ns) < 0 ? clock_ns :
							     t->vtime_ns;
}

/* Whether a task displaces what runs on a CPU: it has just come and waits on this side
 * of the CPU's first step, in the queue on whose clock it is, with this virtual time. */
tl_inline u32 tl_wake_displaces(const struct tl_run *run,
				const struct tl_turns *turns,
				const struct tl_task *t, u64 vtime_ns, u32 side,
				u64 slice_ns, u64 now_ns)
{
	u64 used_ns = now_ns > run->since_ns ? now_ns - run->since_ns : 0;
	u64 charged_ns = tl_weighted_ns(run->weight, used_ns);

	if (run->clock == t->clock)
		return (s64)(run->vtime_ns + charged_ns - vtime_ns) >=
		       (s64)tl_vtime_ns(t, TL_WAKE_NS);
	if (!turns->clock || turns->clock != run->clock)
		return (s64)(now_ns - run->began_ns) >= (s64)TL_WAKE_NS;
	return tl_turns_lead_ns(turns, side, charged_ns, slice_ns) >=
	       (s64)TL_WAKE_NS;
}

#endif
