/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Gaps: whether a task stays on its wide CPU when a wide section has ended.
 *
 * Problem: a hint or a mark shows exactly where a section ends. The next one may begin
 * after a microsecond (a system call, the code between two calls of a cipher) or after
 * a millisecond. A task that leaves for each gap commutes between scalar and wide
 * CPUs; one that never leaves keeps wide CPUs from tasks that need them, and runs its
 * scalar code at the low clock.
 *
 * Idea: to stay costs by the nanosecond, to leave and come back costs once. The
 * break-even time is the one of announced gaps, tl_cfg.rest_below_ns (rest.h). A task
 * that stays for so long, and leaves then, pays at most twice what it would have paid
 * had it known the gap (DIM 4.3 has the same rule for frequencies). One that leaves at
 * once pays less where gaps are long, and without limit more where they are short. So
 * it leaves at once only while two things hold:
 *
 *   lean > 0      to leave at once has been cheaper lately: for each gap, what staying
 *                 costs is added, what leaving costs is subtracted
 *   spent <= slack - break-even
 *                 spent is what all gaps have cost, minus twice the least that
 *                 they could have cost. It never exceeds the slack, and that is the bound:
 *
 *                   cost <= 2 * best in hindsight + slack
 *
 *   gap g           to stay costs   to leave costs   best         spent, if it left
 *   --------------  -------------   --------------   ----------   -----------------
 *   below b.-e.     g               break-even       g            + b.-e. - 2 g
 *   longer          2 break-even    break-even       break-even   - b.-e.
 *
 * What it stays for is never spent. spent does not fall below 0, so what was gained
 * long ago is not lost later.
 *
 * Each task has several leans, one for each pattern of its last three gaps (short or
 * long), since its sections follow each other in the same order again and again. A web
 * server's worker: request, (long) response, record's end, next request:
 *
 *   |= request =|-- long gap --|= response =|.|= end =|.|= request =|-- long ...
 *
 *   wide   |= section =|--- stays ---| leaves       long gap, not expected
 *   wide   |= section =| leaves at once             long gap, expected
 *   wide   |= section =|- stays -|= section =|      short gap
 *
 * A gap is CPU time, as in stay.h: a task that sleeps in it comes back to where it was.
 *
 * A gap that is announced to be long (tl_scalar_for), or has turned out to be longer
 * than announced (rest.h), is left for at once, and teaches nothing.
 *
 * Why not the longer break-even time of stay.h, 50 us, which counts the lower clock
 * only: it was tried. Where several tasks share a wide CPU, each waits for what another
 * stays: a video encoder beside other work (parsec-x265) lost 11 % by marks, and gains
 * 3 % with 15 us, as it does if it leaves at once (simulated, n = 1).
 *
 * Limits. Of hints the kernel does not see a section that begins on a wide CPU; it
 * sees its end, or that it is open when the stay is over. Such a gap counts as longer
 * than it was, but never as one to leave for. What other work waits for is not seen,
 * only feared. A system call inside a section is part of it.
 */
#ifndef TL_POLICY_GAP_H
#define TL_POLICY_GAP_H

#include "stay.h"

/* Costs are counted in 16ths of the break-even time. */
#define TL_GAP_EVEN 16
/* As often in a row it leaves at once for a short gap as it may end a stay too early
 * (stay.h). */
#define TL_GAP_SLACK ((s32)TL_STAY_CALLS * TL_GAP_EVEN)
#define TL_GAP_PATTERNS 8u /* of three gaps */

enum tl_gap_state {
	TL_GAP_NONE = 0, /* a section is open, or there was none yet */
	TL_GAP_STAYS,	 /* on its wide CPU, as a wide task */
	TL_GAP_LATE,	 /* has stayed for the break-even time and left */
	TL_GAP_LEFT,	 /* has left at once */
	TL_GAP_KNOWN,	 /* could not stay, or was announced to be long */
};

/* All zero is a task without sections so far.
 *
 *   0        4       12      13      14      15     16
 *   +--------+-------+-------+-------+-------+------+
 *   | ran_ns | lean  | spent | level | state | past |
 *   +--------+-------+-------+-------+-------+------+
 */
struct tl_gap {
	u32 ran_ns; /* CPU time since the section ended; saturates */
	s8 lean[TL_GAP_PATTERNS]; /* by past; within TL_GAP_SLACK of 0 */
	u8 spent;		  /* 0..TL_GAP_SLACK */
	u8 level;		  /* of the last section, 0 = there was none */
	u8 state;		  /* enum tl_gap_state */
	u8 past; /* the last three gaps, the latest in bit 0: 1 = long */
};
_Static_assert(sizeof(struct tl_gap) == 16, "drawn above; mirrored in Rust");
_Static_assert(TL_GAP_SLACK + TL_GAP_EVEN <= 127, "lean is a signed byte");

/* even_ns below is the break-even time; 0: no task stays. */

/* The level as which it stays, 0 = it does not. */
tl_inline u8 tl_gap_level(const struct tl_gap *g)
{
	return g->state == TL_GAP_STAYS ? g->level : 0;
}

/* The task ran. */
tl_inline void tl_gap_ran(struct tl_gap *g, u64 used_ns)
{
	g->ran_ns = used_ns < ~0u - g->ran_ns ? g->ran_ns + (u32)used_ns : ~0u;
}

/* How long it stays yet if it goes on running; 0 = no longer, or it does not stay. */
tl_inline u64 tl_gap_left_ns(const struct tl_gap *g, u64 even_ns)
{
	if (g->state != TL_GAP_STAYS || g->ran_ns >= even_ns)
		return 0;
	return even_ns - g->ran_ns;
}

tl_inline u32 tl_gap_is_over(const struct tl_gap *g, u64 even_ns)
{
	return g->state == TL_GAP_STAYS && g->ran_ns >= even_ns;
}

/* It does not stay any longer. */
tl_inline void tl_gap_leave(struct tl_gap *g)
{
	if (g->state == TL_GAP_STAYS)
		g->state = TL_GAP_LATE;
}

/* A section of this level has ended; whether its task may stay at all. */
tl_inline void tl_gap_begins(struct tl_gap *g, u8 level, u32 may_stay)
{
	s32 lean = g->lean[g->past & (TL_GAP_PATTERNS - 1)];

	g->ran_ns = 0;
	g->level = level;
	if (!may_stay)
		g->state = TL_GAP_KNOWN;
	else if (lean > 0 && g->spent + TL_GAP_EVEN <= TL_GAP_SLACK)
		g->state = TL_GAP_LEFT;
	else
		g->state = TL_GAP_STAYS;
}

tl_inline s32 tl_gap_clamp(s32 value, s32 least, s32 most)
{
	return value < least ? least : value > most ? most : value;
}

/* The next section begins, or has begun and is over already: learn from the gap. */
tl_inline void tl_gap_ends(struct tl_gap *g, u64 even_ns)
{
	s32 gap = g->ran_ns < even_ns ?
			  (s32)(g->ran_ns * (u64)TL_GAP_EVEN / even_ns) :
			  TL_GAP_EVEN;
	u32 is_long = g->ran_ns >= even_ns && g->state != TL_GAP_STAYS;
	u32 at = g->past & (TL_GAP_PATTERNS - 1);
	u8 state = g->state;

	g->state = TL_GAP_NONE;
	if (state == TL_GAP_NONE || state == TL_GAP_KNOWN)
		return;
	g->lean[at] =
		tl_gap_clamp(g->lean[at] + (is_long ? gap : gap - TL_GAP_EVEN),
			     -TL_GAP_SLACK, TL_GAP_SLACK);
	g->past = (at << 1 | is_long) & (TL_GAP_PATTERNS - 1);
	if (state == TL_GAP_LEFT)
		g->spent = tl_gap_clamp(g->spent + TL_GAP_EVEN - 2 * gap, 0,
					TL_GAP_SLACK);
}

#endif
