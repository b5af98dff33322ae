/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rests: scalar phases between two wide sections that are too short to leave for.
 *
 * Problem: a thread that ends a wide section leaves its wide CPU, and comes back for
 * the next one. Each move is a migration. If the next section begins after a few
 * microseconds, the moves cost more than the wide CPU loses by the scalar code.
 *
 * Idea: the application knows how long its code stays scalar (DIM 7.1: hints about
 * future instruction usage), and says so with the end of its section,
 * tl_scalar_for(ns). A phase below the break-even time is a rest: the task stays,
 * and counts as wide, since it will be so again before it could have been moved. A
 * longer one is an end like any other: the task leaves at once.
 *
 *   wide  |=== section ===|-- rest --|=== section ===|        shorter: stays
 *   wide  |=== section ===|                      |=== ...     longer: leaves,
 *   scalar                |------ phase ---------|            comes back
 *
 * break-even: there and back, twice a migration; what the caches lose comes on top,
 * so a task that stays for exactly that long gains a little.
 *
 * A rest that lasts longer than announced was announced wrongly: the task counts as
 * scalar from then on, as at the end of a section, when the slot is next read
 * (whenever the task stops, and at ticks). The announcement is a thread's word in
 * memory that it may write at will: an end that is further away than any rest may
 * be has passed already.
 *
 * Limits: a task that sleeps in a rest and wakes up after it is placed as a wide task
 * once more.
 */
#ifndef TL_POLICY_REST_H
#define TL_POLICY_REST_H

#include "types.h"

/* Whether a task stays for a scalar phase of that length; 0 = length not announced. */
tl_inline u32 tl_rest_stays(const struct tl_cfg *cfg, u64 phase_ns)
{
	return phase_ns && phase_ns < cfg->rest_below_ns;
}

/* Whether a rest that was to end at until_ns has ended. */
tl_inline u32 tl_rest_is_over(const struct tl_cfg *cfg, u64 until_ns,
			      u64 now_ns)
{
	return now_ns >= until_ns || until_ns - now_ns >= cfg->rest_below_ns;
}

#endif
