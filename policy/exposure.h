/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Exposure: what the licence levels of a core cost the code that runs there.
 *
 * Problem: whether keeping wide code apart pays depends on how much other code runs
 * at its clock. Where few tasks have many cores, or all code is wide, that is
 * nothing, however much wide code there is. The clock itself is not seen
 * everywhere: a virtual machine has no counter of it.
 *
 * Idea: the scheduler knows when code of which level runs on a core, and the
 * hardware keeps a level for a hold time after it. So for each core
 *
 *   until[c] = end of the last code above level c, plus the hold time; for ever,
 *              as long as such code runs
 *
 *   CPU 0   | scalar |== level 2 ==|   scalar            | scalar
 *   CPU 1   |  scalar           . exposed to level 2 ... |
 *                    ^             ^--- hold time -------^
 *
 * CPU time before until[c] is exposed to level c + 1: to the highest such level,
 * above its own. Weighted by the clock that a level lacks, it is the time lost.
 *
 * Hints are read now and then only, so sections are missed, but counted by the slot's
 * sequence number. So many of them in a span of CPU time are taken to come again in
 * the next one:
 *
 *   until = now + min(span, missed sections * hold time)
 *
 * More things cost time: code that raises a level waits for it, a task that moves
 * carries its cache after it, and one whose sibling is busy has half a core. They are
 * counted, and weighted in standby.h.
 *
 * Parties: tasks that have wide code of late (mix.h), and those that have none. What
 * serves one may harm the other.
 *
 * Limits. A level is what detection takes it for. Levels that hold for an entire
 * package are taken for a core's. When one of two wide siblings ends, the
 * other's level is counted from its next tick on.
 */
#ifndef TL_POLICY_EXPOSURE_H
#define TL_POLICY_EXPOSURE_H

#include "mix.h"
#include "types.h"

/* How long a level is held: 670 us (DIM 4), 650 us (Downs 2020). */
#define TL_LEVEL_HOLD_NS 670000ull
#define TL_FOR_EVER (~0ull)

/* A core's levels, shared by its siblings. All zero: none was ever raised. */
struct tl_exposure {
	u64 until_ns[TL_LEVEL_MAX]; /* end of levels above 0, 1, 2; see above */
};

/* What tasks of one party did and lost. Sums that only grow, or differences. */
struct tl_losses {
	u64 run_ns; /* CPU time */
	/* of it, exposed to level c + 1, minus time of code which is of this
	 * level itself and exposed to a higher one: may wrap below 0 */
	u64 exposed_ns[TL_LEVEL_MAX];
	u64 shared_ns; /* of CPU time, beside a busy sibling */
	u64 wait_ns;   /* time waited in queues */
	u64 moves;     /* starts on another CPU than before */
	u64 raises;    /* levels raised */
	u64 sections;  /* how often a task turned wide */
};

/* What tasks of one party did under the kernel's own scheduler. */
struct tl_kernel_use {
	u64 run_ns;  /* CPU time */
	u64 wait_ns; /* time waited in queues */
	u64 moves;   /* migrations */
};

/* A task with wide code is of the party of its highest level. */
enum tl_party {
	TL_PARTY_PLAIN = 0, /* no wide code of late */
	TL_NR_PARTIES = 1 + TL_LEVEL_MAX,
};

/* The party of a task that is of this level now: wide for a thousandth of its CPU
 * time is wide, and so is a task that gives hints. */
tl_inline u32 tl_party(const struct tl_mix *m, u32 level, u32 hints)
{
	u32 top = tl_mix_level(m);

	if (!level && !hints && m->wide_ns <= m->run_ns / 1024)
		return TL_PARTY_PLAIN;
	top = level > top ? level : top;
	return top ? top : 1;
}

/* What runs on the core was of one level and is of another, or of none; now_ns > 0.
 * Returns whether the core must raise its level for it. */
tl_inline u32 tl_exposure_turns(struct tl_exposure *e, u32 old_level,
				u32 new_level, u64 now_ns)
{
	u32 raises = 0;

#pragma unroll
	for (u32 c = 0; c < TL_LEVEL_MAX; c++) {
		if (c < new_level) {
			raises |= e->until_ns[c] < now_ns;
			e->until_ns[c] = TL_FOR_EVER;
		} else if (c < old_level) {
			e->until_ns[c] = now_ns + TL_LEVEL_HOLD_NS;
		}
	}
	return raises;
}

/* Of so many sections begun in span_ns of CPU time, the last one of which may be open:
 * those that were not noticed. What a program says is bounded: a microsecond each. */
tl_inline u32 tl_exposure_nr_missed(u32 begun, u32 is_open, u64 span_ns)
{
	u64 most = span_ns / 1000 + 1;
	u32 nr = begun && is_open ? begun - 1 : begun;

	return nr < most ? nr : (u32)most;
}

/* So many sections of this level, in span_ns of CPU time until now, were not noticed
 * as they came and went. Returns how often the core must have raised its level. */
tl_inline u32 tl_exposure_missed(struct tl_exposure *e, u32 level, u32 nr,
				 u64 span_ns, u64 now_ns)
{
	u64 held_ns = nr * TL_LEVEL_HOLD_NS;
	u32 raises = nr;

	if (held_ns >= span_ns) {
		held_ns = span_ns;
		raises = e->until_ns[0] < now_ns;
	}
#pragma unroll
	for (u32 c = 0; c < TL_LEVEL_MAX; c++)
		if (c < level && e->until_ns[c] < now_ns + held_ns)
			e->until_ns[c] = now_ns + held_ns;
	return raises;
}

/* Code of this level has run on the core for used_ns until now; shares: a sibling is
 * busy. */
tl_inline void tl_exposure_ran(const struct tl_exposure *e, struct tl_losses *l,
			       u32 level, u32 shares, u64 used_ns, u64 now_ns)
{
	u64 begin_ns = now_ns - used_ns, seen_ns = 0;

	l->run_ns += used_ns;
	if (shares)
		l->shared_ns += used_ns;
#pragma unroll
	for (u32 c = TL_LEVEL_MAX; c > 0; c--) {
		u64 until_ns = e->until_ns[c - 1], ns;

		if (c <= level || until_ns <= begin_ns)
			continue;
		ns = until_ns < now_ns ? until_ns - begin_ns : used_ns;
		if (ns <= seen_ns)
			continue;
		l->exposed_ns[c - 1] += ns - seen_ns;
		seen_ns = ns;
	}
	/* no index that BPF's verifier would have to follow */
#pragma unroll
	for (u32 c = 1; c <= TL_LEVEL_MAX; c++)
		l->exposed_ns[c - 1] -= c == level ? seen_ns : 0;
}

#endif
