/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Queues: where a runnable task waits, and in which order a CPU serves them.
 *
 * Problem: wide work must never wait for scalar work on a wide CPU and
 * never run on a scalar CPU; scalar work must not starve; unclassified tasks, and
 * those whose affinity leaves no choice, must run whatever the others do (SYSTOR
 * 3.2, figure 4).
 *
 * Idea: per shard one queue for default tasks, one for scalar tasks and one
 * for each class of wide CPUs (one in all without tiers). A CPU goes through
 * *steps*; the queues of a step share the CPU, an earlier step goes strictly
 * before a later one:
 *
 *   class  step 0              step 1         step 2         last step
 *   0      scalar + default
 *   1      wide[1] + default   scalar
 *   2      wide[2] + default   wide[1]        scalar
 *   3      wide[3] + default   wide[2]        wide[1]        scalar
 *
 * A shard is a few CPUs (at most TL_SHARD_CPUS) that share a last-level cache: one
 * queue for more would be one lock for all of them.
 *
 * A step is looked for in the CPU's own shard first, then in the others, nearest
 * first, before the next step. So a wide CPU takes any wide work of the
 * machine before it takes scalar work of its own shard.
 *
 * A task waits in a shard that holds a CPU for it: one that its affinity allows
 * and that serves its queue in the first step (of scalar tasks: a scalar CPU).
 * Elsewhere it could starve: CPUs that always have work of their own shard rarely
 * look further.
 *
 * Strict order starves no one: wide tasks have the wide CPUs of their class
 * and above; scalar tasks have the scalar CPUs, and a scalar task that may
 * use none counts as default. The queues of step 0 take turns, below.
 *
 * Within a queue tasks are ordered by the keys of clock.h. The queues of a step
 * share the CPU by turns.h.
 *
 * A task that may run on one CPU only waits in that CPU's own queue (*pinned*),
 * which takes its turn in step 0: in a shared queue every other CPU would have to
 * step over it.
 *
 * Queue ids, which are DSQ ids in the kernel:
 *
 *   63 .. 32   31       30 .. 16   15 .. 8      7 .. 0
 *   +--------+--------+----------+------------+--------+
 *   | 0      | 0      | 0        | shard + 1  | queue  |   an id is never 0
 *   +--------+--------+----------+------------+--------+
 *   | 0      | pinned | 0        | cpu                 |
 *   +--------+--------+----------+---------------------+
 */
#ifndef TL_POLICY_QUEUES_H
#define TL_POLICY_QUEUES_H

#include "turns.h"

enum tl_queue {
	TL_Q_DEFAULT = 0,
	TL_Q_SCALAR = 1,
	TL_Q_WIDE = 2, /* + class - 1 */
	TL_NR_QUEUES = 2 + TL_LEVEL_MAX,
	TL_Q_NONE = 255,
};

#define TL_ID_PINNED (1u << 31)

tl_inline u32 tl_queue_id(u32 shard, u32 queue)
{
	return ((shard + 1) << 8) | queue;
}

/* The queue of the tasks that may run on this CPU only. */
tl_inline u32 tl_pinned_id(u32 cpu)
{
	return TL_ID_PINNED | cpu;
}

tl_inline u32 tl_id_is_pinned(u32 id)
{
	return id >> 31;
}

/* The CPU of a pinned queue's id. */
tl_inline u32 tl_id_cpu(u32 id)
{
	return id & ~TL_ID_PINNED;
}

/* The shard of another queue's id. */
tl_inline u32 tl_id_shard(u32 id)
{
	return (id >> 8) - 1;
}
_Static_assert(TL_NR_QUEUES <= 255, "a queue fits its byte");
_Static_assert(TL_SHARDS_MAX < 255, "a shard fits its byte");
_Static_assert(TL_CPUS_MAX < TL_ID_PINNED, "a CPU fits below the bit");

/* Highest class in caps, 0 if none: caps is never empty for a task that can
 * run at all. */
tl_inline u32 tl_highest_class(u32 caps)
{
	u32 c = TL_LEVEL_MAX;

#pragma unroll
	for (u32 i = 0; i < TL_LEVEL_MAX; i++)
		if (c && !(caps >> c & 1))
			c--;
	return c;
}

/* Lowest class in caps, 0 if there is none. */
tl_inline u32 tl_lowest_class(u32 caps)
{
	u32 class = 0;

#pragma unroll
	for (u32 c = TL_LEVEL_MAX; c > 0; c--)
		if (caps >> c & 1)
			class = c;
	return caps & 1 ? 0 : class;
}

/*
 * Class of CPU the task needs: the lowest of those its affinity holds that is
 * at least its level. Where there is none, the highest it may use: a wide
 * task that is allowed scalar CPUs only runs there (SYSTOR 3.2, case 2).
 */
tl_inline u32 tl_task_need(const struct tl_task *t)
{
	if (t->type != TL_WIDE)
		return 0;
#pragma unroll
	for (u32 c = 1; c <= TL_LEVEL_MAX; c++)
		if (c >= t->level && (t->caps >> c & 1))
			return c;
	return tl_highest_class(t->caps);
}

/* Queue of its shard that the task waits in, unless it is pinned. A scalar task that may
 * use wide CPUs only counts as default there (SYSTOR 3.2, case 1). */
tl_inline u32 tl_task_queue(const struct tl_task *t)
{
	u32 need = tl_task_need(t);

	if (need)
		return TL_Q_WIDE + need - 1;
	if (t->type == TL_DEFAULT || !(t->caps & 1))
		return TL_Q_DEFAULT;
	return TL_Q_SCALAR;
}

/* Class of the CPUs that are there for a queue; TL_NR_CLASSES if all are. */
tl_inline u32 tl_queue_class(u32 queue)
{
	if (queue == TL_Q_DEFAULT)
		return TL_NR_CLASSES;
	return queue == TL_Q_SCALAR ? 0 : queue - TL_Q_WIDE + 1;
}

tl_inline u32 tl_nr_steps(u32 class)
{
	return class + 1;
}

/* The queue of a step that is not TL_Q_DEFAULT. */
tl_inline u32 tl_step_queue(u32 class, u32 step)
{
	return class > step ? TL_Q_WIDE + class - step - 1 : TL_Q_SCALAR;
}

/* Whether the default queue belongs to a step. */
tl_inline u32 tl_step_has_default(u32 step)
{
	return step == 0;
}

/* Step at which a CPU of this class serves the queue; tl_nr_steps(class) if
 * never. */
tl_inline u32 tl_queue_step(u32 class, u32 queue)
{
	if (queue == TL_Q_DEFAULT)
		return 0;
	if (queue == TL_Q_SCALAR)
		return class;
	queue -= TL_Q_WIDE - 1;
	return queue <= class ? class - queue : class + 1;
}

/* Whether a CPU of this class may run the tasks of the queue at all. */
tl_inline u32 tl_queue_fits(u32 queue, u32 class)
{
	return tl_queue_step(class, queue) < tl_nr_steps(class);
}

tl_inline u32 tl_task_fits(const struct tl_task *t, u32 class)
{
	return tl_queue_fits(tl_task_queue(t), class);
}

/* Whether the task, on a CPU of this class, only fills time that wide work
 * may claim at any moment: it leaves as soon as there is a better place. */
tl_inline u32 tl_task_is_guest(const struct tl_task *t, u32 class)
{
	return class && tl_task_queue(t) == TL_Q_SCALAR;
}

#endif
