/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Mix: how much of a task's work is wide.
 *
 * Problem: time waited says that CPUs are short, but not for what. A task that
 * turns wide again and again waits now for a scalar CPU, now for a wide one,
 * and longer wherever there are fewer. Counted by the queue that it waits in,
 * what it wants depends on how the CPUs are divided, which it is to decide.
 *
 * Idea: it waits to get on with its work, and that is mixed as its CPU time has
 * been. So of each wait, in whatever queue, this much is for wide code:
 *
 *   wait * wide CPU time / CPU time
 *
 * CPU time of the last 0.2 to 0.4 s that the task ran: the sums are halved
 * whenever they come to 0.4 s. The highest level of that time is kept too.
 *
 * Limits. What a task wants may change with its next phase. One that has not run
 * yet wants what it is.
 */
#ifndef TL_POLICY_MIX_H
#define TL_POLICY_MIX_H

#include "types.h"

/* Many slices (5 ms), so that a wide period or two more do not change the mix;
 * and as long as what sizing averages over. */
#define TL_MIX_NS 400000000u

/* A task's mix. All zero for a new task.
 *
 *   0     4      8       9            10      16
 *   +-----+------+-------+------------+-------+
 *   | run | wide | level | last level |   0   |
 *   +-----+------+-------+------------+-------+
 */
struct tl_mix {
	u32 run_ns;    /* CPU time, below TL_MIX_NS */
	u32 wide_ns;   /* of it as a wide task */
	u8 level;      /* the highest since the sums were halved */
	u8 last_level; /* and before that */
	u8 reserved[6];
};
_Static_assert(sizeof(struct tl_mix) == 16, "drawn above; mirrored in Rust");

/* The task ran, wide at this level, or at 0 not. */
tl_inline void tl_mix_ran(struct tl_mix *m, u64 used_ns, u32 level)
{
	u32 ns = used_ns < TL_MIX_NS ? (u32)used_ns : TL_MIX_NS;

	m->run_ns += ns;
	if (level)
		m->wide_ns += ns;
	if (level > m->level)
		m->level = (u8)level;
	if (m->run_ns >= TL_MIX_NS) {
		m->run_ns /= 2;
		m->wide_ns /= 2;
		m->last_level = m->level;
		m->level = 0;
	}
}

/* The highest level of late. */
tl_inline u32 tl_mix_level(const struct tl_mix *m)
{
	return m->level > m->last_level ? m->level : m->last_level;
}

/* Of the time that the task waited, as one of this level: for wide code, ns. */
tl_inline u64 tl_mix_wide_ns(const struct tl_mix *m, u64 waited_ns, u32 level)
{
	u32 wide_q10;

	if (!m->run_ns)
		return level ? waited_ns : 0;
	wide_q10 = (u32)(m->wide_ns * 1024ull / m->run_ns);
	return waited_ns * wide_q10 / 1024;
}

#endif
