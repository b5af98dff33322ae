/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Bound tasks: which cores are wide where tasks may not run everywhere.
 *
 * Problem: sizing says how many. Where every task may run anywhere, the last cores of
 * each node are as good as any. But servers are bound to CPUs by masks and cpusets:
 * their wide code cannot use a wide core outside of these CPUs, and it slows their
 * scalar code wherever it runs. And a scalar program that is bound to the cores that
 * become wide loses what it has.
 *
 * Idea: wide cores are seats, and tasks with the same mask a group that elects them.
 * The next seat goes to the core with the most wide work per seat that this work has
 * already (D'Hondt), so each group gets them in proportion to its wide work,
 * and work that may run anywhere counts everywhere:
 *
 *            sum over groups that may use it: share * wide / (have + 1)
 *   value =  ----------------------------------------------------------  * 5/4 if it
 *            1 + the same sum of            : share * rest / left           is wide now
 *
 *   wide   CPUs that the group's wide code used
 *   rest   CPUs that its other code used
 *   share  how much of the core it may use: a core of two CPUs of which it may use
 *          one is a half
 *   have   its wide cores so far
 *   left   its other cores
 *
 * So among cores that are equally good for wide code, the ones on which less other work
 * depends become wide first. Equal values go by the default order, and without masks all
 * are equal. A core that is wide stays so unless another one is better by a quarter:
 * demands are noisy.
 *
 * Of no use, whatever its value else: a core that no wide code may use, and the last
 * one that a group with other work would have left for it.
 *
 * Limits. What tasks use depends on what they get. Threads that are each bound to a
 * core of their own cannot be separated by any choice.
 */
#ifndef TL_POLICY_BOUND_H
#define TL_POLICY_BOUND_H

#include "types.h"

/* Seats that are given by value; those beyond go by the default order. */
#define TL_BOUND_SEATS 128u
/* Less than an eighth of a CPU of other work needs no core. */
#define TL_BOUND_LEAST_Q10 128u

/* Tasks with the same mask. 1024 = one CPU, or one core. */
struct tl_bound {
	u64 wide_q10;
	u64 rest_q10;
	u64 nr_q10;   /* sum of the shares */
	u64 have_q10; /* of them in cores chosen so far, 0 at first */
	u16 share_q10[TL_CPUS_MAX]; /* by core, 0..1024 */
};

/* Whether this core is the last that the group has left. */
tl_inline u32 tl_bound_is_last(const struct tl_bound *g, u32 share_q10)
{
	return g->rest_q10 >= TL_BOUND_LEAST_Q10 && g->nr_q10 > 1024 &&
	       g->nr_q10 - g->have_q10 <= share_q10;
}

/* What the core is worth; 0 = it is of no use. */
tl_inline u64 tl_bound_value(const struct tl_bound *groups, u32 nr_groups,
			     u32 core, u32 is_wide)
{
	u64 wide_q10 = 0, rest_q10 = 0;

	for (u32 i = 0; i < nr_groups; i++) {
		const struct tl_bound *g = &groups[i];
		u64 share_q10 = g->share_q10[core];

		if (!share_q10)
			continue;
		if (tl_bound_is_last(g, share_q10))
			return 0;
		/* in parts of 2^-20 CPUs, so that small ones count */
		wide_q10 +=
			(g->wide_q10 << 10) * share_q10 / (g->have_q10 + 1024);
		rest_q10 += g->rest_q10 * share_q10 / (g->nr_q10 - g->have_q10);
	}
	if (is_wide)
		wide_q10 = wide_q10 * 5 / 4;
	return wide_q10 * 1024 / (1024 + rest_q10);
}

/* The core is wide from now on. */
tl_inline void tl_bound_take(struct tl_bound *groups, u32 nr_groups, u32 core)
{
	for (u32 i = 0; i < nr_groups; i++)
		groups[i].have_q10 += groups[i].share_q10[core];
}

/*
 * Order cores as they are to become wide. order has them in the default order, and
 * is_wide says by core which are wide now. Returns how many are of use, which come
 * first; all, if no wide code was seen.
 */
tl_inline u32 tl_bound_order(struct tl_bound *groups, u32 nr_groups, u16 *order,
			     u32 nr_cores, const u8 *is_wide)
{
	u32 seats = nr_cores < TL_BOUND_SEATS ? nr_cores : TL_BOUND_SEATS;
	u32 seat;

	for (seat = 0; seat < seats; seat++) {
		u64 best_value = 0;
		u32 best = seat;
		u16 core;

		for (u32 i = seat; i < nr_cores; i++) {
			u64 value = tl_bound_value(groups, nr_groups, order[i],
						   is_wide[order[i]]);

			if (value > best_value) {
				best_value = value;
				best = i;
			}
		}
		if (!best_value)
			break;
		core = order[best];
		for (; best > seat; best--)
			order[best] = order[best - 1];
		order[seat] = core;
		tl_bound_take(groups, nr_groups, core);
	}
	return seat && seat < seats ? seat : nr_cores;
}

#endif
