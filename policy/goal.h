/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The application's own figure decides whether wide code is kept apart.
 *
 * Problem: standby.h weighs what it can see: clocks, moves, waits. An application
 * knows what it is for: requests per second, a response time, frames. THESIS 6.1
 * asks for a closed loop that optimises that.
 *
 * Idea: an experiment, again and again. In blocks of a few seconds wide code is kept
 * apart or the scheduler stands by, in the order
 *
 *   by apart | apart by | by apart | apart by ...
 *
 * so that a load that grows or shrinks favours neither. Two blocks are a pair, whose
 * gain is the difference of their means over the mean of both. Student's t of these
 * gains says whether they show anything (single samples depend on those before them):
 *
 *   after 4 pairs or more: t^2 > 10.1?  yes, and it is a gain:  apart
 *                                       yes, and it is a loss:  stand by
 *   after 12 pairs, still no:                                   stand by
 *
 * What was found is kept for 5 minutes, then tried anew; each time it is found again
 * twice as long, up to an hour.
 *
 * A figure that never changes shows nothing: it stands by. While none comes it stands
 * by, too, and begins anew when one does.
 *
 * After a change of side the next samples are not counted: those within 0.6 s, which
 * sizing takes to give wide code its CPUs, and one more, since a sample may be about the
 * time before it.
 *
 * Constants. 10.1: t^2 of three degrees of freedom at 2.5 %, of one side. With more pairs
 * less would do; since it is asked after each pair, the same bound is kept. Times are
 * round numbers: 4 pairs of 1 s samples take half a minute, a tenth of what they
 * decide about at first.
 *
 * Limits. What an application says is believed. A figure that is an average over much
 * more than a sample mixes both sides, which shows as no difference.
 */
#ifndef TL_POLICY_GOAL_H
#define TL_POLICY_GOAL_H

#include "types.h"

/* Samples of a block. */
#define TL_GOAL_SAMPLES 3u
#define TL_GOAL_PAIRS_MIN 4u
#define TL_GOAL_PAIRS_MAX 12u
/* t^2, times ten. */
#define TL_GOAL_T2_X10 101u
/* From a change of side to the first sample that is all about the new one. */
#define TL_GOAL_SKIP_NS 600000000ull
#define TL_GOAL_HOLD_NS 300000000000ull
#define TL_GOAL_HOLD_MAX_NS 3600000000000ull
/* No sample for so many periods is none. */
#define TL_GOAL_SILENT 5u
/* The largest value; 2^10 blocks of samples stay below 2^64. */
#define TL_GOAL_VALUE_MAX (1ull << 40)
#define TL_GOAL_ONE_Q16 65536ll

enum tl_goal_found {
	TL_GOAL_NOTHING_YET = 0,
	TL_GOAL_BETTER = 1,	   /* apart is better */
	TL_GOAL_WORSE = 2,	   /* it is worse */
	TL_GOAL_NO_DIFFERENCE = 3, /* none that shows */
	TL_GOAL_CONSTANT = 4,	   /* the figure never changes */
	TL_GOAL_SILENT_NOW = 5,	   /* there is none */
};

/* What came since the last call. */
struct tl_goal_input {
	u64 elapsed_ns;
	u64 every_ns;  /* period of the samples */
	u64 value;     /* of a sample */
	u32 has_value; /* one came */
	u32 lower;     /* less is better */
};

/* All zero is the start. */
struct tl_goal {
	u64 side_ns;   /* since the side was changed */
	u64 silent_ns; /* since the last sample */
	u64 kept_ns;   /* since it was found */
	u64 hold_ns;   /* how long what was found is kept */
	u64 sum;       /* of the block's samples */
	u64 first;     /* sum of the pair's first block */
	u64 value;     /* the last sample */
	/* of the measurement's pairs: the sums of their gains, 1 = 2^16, and of their
	 * squares, 1 = 2^32 */
	s64 gains_q16;
	u64 squares_q32;
	u32 nr_pairs;
	u16 nr_blocks;
	u8 nr_samples; /* of the block */
	u8 found;      /* enum tl_goal_found, of the last measurement */
	u8 measures;   /* a measurement goes on */
	u8 primed;     /* a sample of this side was passed over */
	u8 varies;     /* values differ */
	u8 began;      /* a sample came since the measurement began */
	u8 reserved[4];
};

/* Whether wide code is kept apart in a block: by apart apart by. */
tl_inline u32 tl_goal_side(u32 block)
{
	return ((block + 1) >> 1) & 1;
}

/* Whether wide code is to be kept apart now. */
tl_inline u32 tl_goal_apart(const struct tl_goal *g)
{
	return g->measures ? tl_goal_side(g->nr_blocks) :
			     g->found == TL_GOAL_BETTER;
}

tl_inline void tl_goal_measure(struct tl_goal *g)
{
	g->measures = 1;
	g->gains_q16 = 0;
	g->squares_q32 = 0;
	g->nr_pairs = 0;
	g->nr_blocks = 0;
	g->nr_samples = 0;
	g->sum = 0;
	g->varies = 0;
	g->began = 0;
}

tl_inline void tl_goal_find(struct tl_goal *g, u32 found)
{
	if (g->found != found || !g->hold_ns)
		g->hold_ns = TL_GOAL_HOLD_NS;
	else
		g->hold_ns = tl_min_u64(2 * g->hold_ns, TL_GOAL_HOLD_MAX_NS);
	g->found = (u8)found;
	g->measures = 0;
	g->kept_ns = 0;
}

/* Whether the gains show anything: t^2 = S^2 (n - 1) / (n Q - S^2). */
tl_inline u32 tl_goal_shows(const struct tl_goal *g)
{
	u64 n = g->nr_pairs;
	u64 s2 = (u64)(g->gains_q16 * g->gains_q16), nq = n * g->squares_q32;

	return s2 && 10 * s2 * (n - 1) > TL_GOAL_T2_X10 * (nq - s2);
}

/* A pair is complete. */
tl_inline void tl_goal_pair(struct tl_goal *g, u32 lower)
{
	u32 apart_is_last = tl_goal_side(g->nr_blocks);
	u64 apart = apart_is_last ? g->sum : g->first;
	u64 by = apart_is_last ? g->first : g->sum;
	u64 both = (apart + by) / 2;
	s64 gain_q16 = 0;

	if (both)
		gain_q16 = ((s64)apart - (s64)by) * TL_GOAL_ONE_Q16 / (s64)both;
	if (lower)
		gain_q16 = -gain_q16;
	g->gains_q16 += gain_q16;
	g->squares_q32 += (u64)(gain_q16 * gain_q16);
	g->nr_pairs++;
	if (g->nr_pairs < TL_GOAL_PAIRS_MIN)
		return;
	if (!g->varies)
		tl_goal_find(g, TL_GOAL_CONSTANT);
	else if (tl_goal_shows(g))
		tl_goal_find(g,
			     g->gains_q16 > 0 ? TL_GOAL_BETTER : TL_GOAL_WORSE);
	else if (g->nr_pairs >= TL_GOAL_PAIRS_MAX)
		tl_goal_find(g, TL_GOAL_NO_DIFFERENCE);
}

/* A sample of the block. */
tl_inline void tl_goal_sample(struct tl_goal *g, const struct tl_goal_input *in)
{
	u64 value = tl_min_u64(in->value, TL_GOAL_VALUE_MAX);

	g->varies |= g->began && value != g->value;
	g->began = 1;
	g->value = value;
	if (g->side_ns < TL_GOAL_SKIP_NS)
		return;
	if (!g->primed) {
		g->primed = 1;
		return;
	}
	g->sum += value;
	if (++g->nr_samples < TL_GOAL_SAMPLES)
		return;
	if (g->nr_blocks & 1)
		tl_goal_pair(g, in->lower);
	else
		g->first = g->sum;
	g->nr_blocks++;
	g->nr_samples = 0;
	g->sum = 0;
}

/* None has come for too long. */
tl_inline void tl_goal_miss(struct tl_goal *g)
{
	g->found = TL_GOAL_SILENT_NOW;
	g->hold_ns = 0;
	g->measures = 0;
}

/* Take in what came; true if what tl_goal_apart() says has changed. */
tl_inline u32 tl_goal_update(struct tl_goal *g, const struct tl_goal_input *in)
{
	u32 old = tl_goal_apart(g);

	g->side_ns += in->elapsed_ns;
	g->kept_ns += in->elapsed_ns;
	g->silent_ns = in->has_value ? 0 : g->silent_ns + in->elapsed_ns;
	if (g->silent_ns > TL_GOAL_SILENT * in->every_ns) {
		tl_goal_miss(g);
	} else if (g->measures) {
		if (in->has_value)
			tl_goal_sample(g, in);
	} else if (in->has_value && (!g->hold_ns || g->kept_ns >= g->hold_ns)) {
		tl_goal_measure(g);
	}
	if (tl_goal_apart(g) == old)
		return 0;
	g->side_ns = 0;
	g->primed = 0;
	return 1;
}

#endif
