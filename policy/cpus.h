/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * CPUs: which are wide, where a waking task looks for an idle one, and which
 * tasks a wide task may displace.
 *
 * Complete cores: the siblings of a core share its licence, so they share their
 * class (SYSTOR 2.2).
 *
 * Which cores: the last one of each node in turn, and within a node of each
 * last-level cache in turn (Topology::wide_order), so that a wide task finds a
 * wide CPU in its node (SYSTOR 5, THESIS 6.1). The last ones, because interrupts,
 * housekeeping and most affinity masks written by hand begin at CPU 0. Growing
 * and shrinking the set then touches one core at its edge, never moves the rest.
 *
 * Classes are nested sets of these cores: all wide ones, of them those above
 * class 1, of them those above class 2 ...; the highest class is last. Without
 * tiers (tiers.h) they are one set. Every wide task may use the last core, which
 * has the highest class, because it must take every level.
 */
#ifndef TL_POLICY_CPUS_H
#define TL_POLICY_CPUS_H

#include "queues.h"

/*
 * Which of these cores are wide, and for what: so many of them have a class
 * above c. As many as above[0], or more, is no split at c.
 *
 *   above = { 6, 4, 6 }    rank  5 4 | 3 2 1 0
 *                          class 1 1 | 3 3 3 3
 */
struct tl_split {
	u32 above[TL_LEVEL_MAX];
};

/* Class of the core with this rank in that order. */
tl_inline u32 tl_core_class(u32 rank, const struct tl_split *split)
{
	u32 class = TL_LEVEL_MAX;

#pragma unroll
	for (u32 c = TL_LEVEL_MAX; c > 0; c--)
		if (rank >= split->above[c - 1])
			class = c - 1;
	return class;
}

/*
 * Order in which a task looks for an idle CPU: the class to try as the i-th,
 * TL_NR_CLASSES when there is none left. Wide: the lowest class that fits,
 * then upwards, never below. Others: scalar CPUs, then wide ones, which would
 * be idle otherwise, the one that loses least frequency first.
 */
tl_inline u32 tl_idle_class(const struct tl_task *t, u32 i)
{
	u32 class = tl_task_need(t) + i;

	return class < TL_NR_CLASSES ? class : TL_NR_CLASSES;
}

/*
 * How good a victim the CPU is for a task that needs class `need` and finds no
 * idle CPU: 0 not at all, else the more the better. running_queue is the
 * queue of what runs there, TL_Q_NONE if it is idle or not ours to preempt.
 * Scalar work is only a guest on a wide CPU and can be displaced at any time.
 * Default work has equal rights: it is displaced by wide work that arrives, by
 * a wakeup or from a scalar CPU, not by wide work that has just had its slice;
 * else it would never finish its own. Wide work is never displaced (SYSTOR 3.2).
 */
tl_inline u32 tl_victim_rank(u32 need, u32 class, u32 running_queue,
			     u32 arrives)
{
	u32 near = TL_NR_CLASSES - class;

	if (!need || class < need || running_queue == TL_Q_NONE)
		return 0;
	if (running_queue == TL_Q_SCALAR)
		return TL_NR_CLASSES + near;
	return running_queue == TL_Q_DEFAULT && arrives ? near : 0;
}

/* The best rank there is for this need: no use to look further. */
tl_inline u32 tl_victim_best(u32 need)
{
	return 2 * TL_NR_CLASSES - need;
}

/* Flags of a CPU on the hint page, see bpf/hint_page.h. */
tl_inline u8 tl_cpu_flags(u32 class, u32 nr_scalar_cpus)
{
	if (class == TL_CLASS_NONE)
		return 0;
	return class | (class && nr_scalar_cpus ? 0x80 : 0);
}

#endif
