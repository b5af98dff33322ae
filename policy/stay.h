/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Staying: how long a task that has trapped counts as wide.
 *
 * Problem: a trap shows where a wide section begins. Nothing shows where it ends:
 * wide CPUs withhold nothing, so the task does not trap there again. If it counts as
 * wide for long, it waits for wide CPUs with scalar work while scalar CPUs idle. If
 * it leaves too early, it traps at once and comes back.
 *
 * Idea: the first is paid by the nanosecond, the second once. Scalar code on a wide
 * CPU loses the difference of the clocks, about a third (2.8 and 1.9 GHz: SFMA 4). To
 * leave and come back costs two migrations and a trap, about 16 us. So a task that
 * stays until it has lost as much as that pays at most twice what it would have paid
 * had it known the future (DIM 4.3 has the same rule for frequencies):
 *
 *   least = 16 us / (1 - 1.9 / 2.8) = 50 us
 *
 * That is CPU time since its last trap, or since it has reached a wide CPU: while it
 * waits for one, or sleeps, it gets nowhere.
 *
 * The end is looked at when the task stops, at ticks, at system calls, and when a timer
 * says that it has come: ticks are milliseconds apart, and a wide CPU that each of several
 * tasks occupies until the next one is too slow for them all. A section mostly ends
 * before a system call (THESIS 4.4). So stays end there, however short they were, until
 * the task has come back too early several times in a row.
 *
 * Each task learns from the gap, also CPU time, between the end of a period and
 * the next trap. A loop that is wide throughout traps as soon as it has left, and
 * would raise the licence of a scalar CPU each time.
 *
 *   stay = min(least * 2^(early - 3), wide timeout); least, or a system call, while
 *          early is below 3
 *
 *   gap, from the last evidence on      early
 *   ----------------------------------  -------
 *   below 2 * stay: it left too early   + 1
 *   longer                              halved, or 0 from 3 down
 *
 *   trap |== stay ==|- gap -| trap |==== 2 stay ====|-- gap --| trap ...
 *
 * A task that inherited its level has not trapped: it stays for the wide timeout.
 *
 * Limits: what other work waits for is not in the rule; a task stays no
 * longer on a machine whose wide CPUs no other task wants.
 */
#ifndef TL_POLICY_STAY_H
#define TL_POLICY_STAY_H

#include "types.h"

#define TL_STAY_LEAST_NS 50000ull
/* As often in a row it leaves at system calls too early before it stays. A worker that
 * has two or three short sections between long scalar ones never gets there. */
#define TL_STAY_CALLS 3u
/* 50 us * 2^(14 - 3) = 102 ms: the wide timeout unless it was set. */
#define TL_STAY_EARLY_MOST 14u

/* All zero is a task that trapped a moment ago for the first time.
 *
 *   0        4           5      8
 *   +--------+-----------+------+
 *   | ran_ns | early     | zero |
 *   +--------+-----------+------+
 */
struct tl_stay {
	u32 ran_ns; /* CPU time since its last evidence; saturates */
	u8 early;   /* how often it left too early, see above */
	u8 zero[3];
};
_Static_assert(sizeof(struct tl_stay) == 8, "drawn above; mirrored in Rust");

/* A task that has never trapped, or that has inherited a level. */
tl_inline void tl_stay_init(struct tl_stay *s, u32 inherited)
{
	s->ran_ns = inherited ? 0 : ~0u;
	s->early = inherited ? TL_STAY_EARLY_MOST : 0;
}

/* The task ran. */
tl_inline void tl_stay_ran(struct tl_stay *s, u64 used_ns)
{
	s->ran_ns = used_ns < ~0u - s->ran_ns ? s->ran_ns + (u32)used_ns : ~0u;
}

/* How long it stays. */
tl_inline u64 tl_stay_ns(const struct tl_stay *s, u64 wide_timeout_ns)
{
	u32 early = s->early < TL_STAY_EARLY_MOST ? s->early :
						    TL_STAY_EARLY_MOST;
	u64 ns = TL_STAY_LEAST_NS
		 << (early > TL_STAY_CALLS ? early - TL_STAY_CALLS : 0);

	return ns < wide_timeout_ns ? ns : wide_timeout_ns;
}

/* Whether it has stayed for long enough; a timeout of 0 is never. */
tl_inline u32 tl_stay_is_over(const struct tl_stay *s, u64 wide_timeout_ns,
			      u32 at_syscall)
{
	return wide_timeout_ns && ((at_syscall && s->early < TL_STAY_CALLS) ||
				   s->ran_ns >= tl_stay_ns(s, wide_timeout_ns));
}

/* How much longer it stays if it goes on running; 0 = no longer. */
tl_inline u64 tl_stay_left_ns(const struct tl_stay *s, u64 wide_timeout_ns)
{
	u64 ns = tl_stay_ns(s, wide_timeout_ns);

	return s->ran_ns < ns ? ns - s->ran_ns : 0;
}

/* It has trapped; had_left: it did not count as wide any more. */
tl_inline void tl_stay_trapped(struct tl_stay *s, u64 wide_timeout_ns,
			       u32 had_left)
{
	if (had_left && s->ran_ns / 2 >= tl_stay_ns(s, wide_timeout_ns))
		s->early = s->early > TL_STAY_CALLS ? s->early / 2 : 0;
	else if (had_left && s->early < TL_STAY_EARLY_MOST)
		s->early++;
	s->ran_ns = 0;
}

#endif
