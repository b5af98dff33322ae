/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Tiers: how many of the wide cores each class gets (SYSTOR 5).
 *
 * Problem: code of level 1 that shares cores with code of level 2 runs at the
 * clock of level 2. Classes of their own keep them apart, but divide the cores:
 * a class that is too small makes its work wait while cores idle, and where
 * all wide work is of one level, cores of another are lost to it (split evenly,
 * a fifth to a third of its throughput).
 *
 * Idea: a class boundary c divides the N wide CPUs between work above it, A,
 * and work of levels 1..c, B. Both are run + wait: tasks pile up at the side that
 * is short, which then gets more. A gets its share, so that its CPUs are as full
 * as all of them were before:
 *
 *   share = N * A / (A + B)
 *
 *                            CPUs to spare             full: A + B > N, and they
 *                                                      run N, or wait for long
 *   A has enough with        15/16 of its share, and   31/32 of its share, and
 *                              CPUs 85 % full at most    no less than 1/8 CPU
 *                                                        below it
 *   A's cores grow below     7/8 of its share, if      15/16 of its share, or
 *                              more than 65 % full       1/4 CPU below it
 *
 * "Or wait for long": default tasks use the wide CPUs too, so that these may be
 * full although wide work does not run on all of them.
 *
 * B is better off: what finds no CPU of its own runs on classes above, whenever
 * these have nothing of theirs (queues.h). A has no other place.
 *
 * There is no split at c, and all of these cores have a class above it, unless
 * it pays:
 *
 *   - A and B each use a quarter of a CPU. Work that is there for less of the
 *     time neither slows much nor gains much.
 *   - where more is wanted than there is, B keeps 7/8 of its share. It runs 3 to
 *     29 % faster by itself (crates/cpumodel/data/cpus), so that it does not lose much by
 *     complete cores where it gains little, and gains where it can.
 *
 * A split that is there may use half as much, and B have 3/4 of its share; else
 * noise would undo it.
 *
 * Steady and quick as sizing.h: a split comes, and A's set shrinks, after the
 * hold time, which regret doubles, and which each change of the wide set begins
 * anew. A split that does not pay goes at once. A's set grows when it was too
 * small for a quarter of a second: waits are counted when they end, so that one
 * period says little, and the shares of a few cores are near to each other.
 *
 * Servable: no set is empty while there are wide cores, and they are nested
 * (cpus.h), so that the last core takes every level.
 *
 * Limits. Default tasks run on wide CPUs of all classes, and are taken to be
 * spread evenly. Work of level c on a higher class is not displaced by that
 * level's own, as no wide work is (SYSTOR 3.2): it ends its slice. A level is
 * what detection takes it for: a trap shows the first of a wide period, and a
 * program whose tasks take turns between levels moves with each turn.
 */
#ifndef TL_POLICY_TIERS_H
#define TL_POLICY_TIERS_H

#include "cpus.h"
#include "sizing.h"

/* What both sides of a split must use to begin with: a quarter of a CPU. */
#define TL_TIER_LEAST_Q10 256u
/* What the lower side must keep of its share. */
#define TL_TIER_KEEP_Q10 896u	  /* 7/8: to begin with */
#define TL_TIER_KEEP_LOW_Q10 768u /* 3/4: to go on */
/* A has its share when it lacks no more than this part of it, and grows when it
 * lacks twice that. */
#define TL_TIER_SLACK 16u
#define TL_TIER_SLACK_FULL 32u /* where more is wanted than there is */
/* A set grows that was too small for so long. */
#define TL_TIER_HIGH_NS 250000000ull
/* 0.65: up to there a set is within 1 % of the best (sizing.h). */
#define TL_TIER_TIGHT_Q10 666u

/* What was seen since the last call, sums over all CPUs and tasks. */
struct tl_tiers_input {
	u64 elapsed_ns;		  /* wall time since the last call, > 0 */
	u64 run_ns[TL_NR_KINDS];  /* CPU time used, by tl_kind() */
	u64 wait_ns[TL_NR_KINDS]; /* time waited in queues */
	u64 mix_wait_ns;	  /* of it for wide code (mix.h) */
	u32 nr_cores;		  /* cores of the machine, >= 1 */
	u32 nr_cpus_per_core;	  /* SMT siblings, >= 1 */
	/* cores that are wide by request, TL_WIDE_AUTO = to be chosen */
	u32 nr_wide;
	u32 tiers;     /* classes by level, 0 = one class */
	u32 nr_useful; /* cores that may become wide (bound.h), 0 = all */
};

#define TL_WIDE_AUTO (~0u)

/* A boundary. */
struct tl_tier {
	/* the cores above it; nr_wide = 0: no split */
	struct tl_sizing set;
	u64 high_ns; /* how long the set has been too small */
	u32 nr_high; /* cores needed at least while it has been */
};

/* All zero is the start: one wide core, if it is to be chosen, and no split. */
struct tl_tiers {
	struct tl_sizing wide;		       /* the wide cores */
	struct tl_tier tier[TL_LEVEL_MAX - 1]; /* above class 1, ... */
	struct tl_split split;		       /* what follows from them */
};

/* Sum of what was counted of levels first..last. */
tl_inline u64 tl_tiers_sum(const u64 *by_kind, u32 first, u32 last)
{
	u64 sum = 0;

#pragma unroll
	for (u32 level = 1; level <= TL_LEVEL_MAX; level++)
		if (level >= first && level <= last)
			sum += by_kind[tl_kind(TL_WIDE, level)];
	return sum;
}

/* What was seen, for the boundary of a class: work above it, and work of other
 * levels of at least 1 below it. */
tl_inline struct tl_sizing_input tl_tiers_at(const struct tl_tiers_input *in,
					     u32 class)
{
	struct tl_sizing_input at = {
		.elapsed_ns = in->elapsed_ns,
		.wide_run_ns =
			tl_tiers_sum(in->run_ns, class + 1, TL_LEVEL_MAX),
		.wide_wait_ns =
			tl_tiers_sum(in->wait_ns, class + 1, TL_LEVEL_MAX),
		.rest_run_ns = tl_tiers_sum(in->run_ns, 1, class),
		.rest_wait_ns = tl_tiers_sum(in->wait_ns, 1, class),
		.nr_cores = in->nr_cores,
		.nr_cpus_per_core = in->nr_cpus_per_core,
		.nr_useful = in->nr_useful,
	};

	if (class)
		return at;
	at.mix_wait_ns = in->mix_wait_ns;
	at.rest_run_ns = in->run_ns[TL_DEFAULT] + in->run_ns[TL_SCALAR];
	at.rest_wait_ns = in->wait_ns[TL_DEFAULT] + in->wait_ns[TL_SCALAR];
	return at;
}

/* What A asks of the wide cores. */
struct tl_tier_need {
	u64 grow_q10;	/* grow, if the set is below this */
	u64 shrink_q10; /* shrink, if a smaller set holds this */
	u64 share_q10;	/* its share, if not all get what they want, else 0 */
};

/* Whether there are not enough wide CPUs for all wide work. */
tl_inline u32 tl_tier_all_full(const struct tl_sizing *s, u64 all_q10)
{
	u64 run_q10 = s->wide_run_q10 + s->rest_run_q10;
	u64 both_q10 = s->wide_run_q10 + s->wide_wait_q10 + s->rest_q10;

	return both_q10 > all_q10 &&
	       (run_q10 + TL_SIZING_MARGIN_Q10 > all_q10 ||
		2 * both_q10 > 3 * run_q10);
}

tl_inline struct tl_tier_need tl_tier_need(const struct tl_sizing *s,
					   u64 all_q10)
{
	u64 run_q10 = s->wide_run_q10, a_q10 = run_q10 + s->wide_wait_q10;
	u64 share_q10 = all_q10 * a_q10 / tl_max_u64(a_q10 + s->rest_q10, 1);
	u64 slack_q10 = share_q10 / TL_TIER_SLACK;
	struct tl_tier_need need = {};

	if (tl_tier_all_full(s, all_q10)) {
		slack_q10 = tl_min_u64(share_q10 / TL_TIER_SLACK_FULL,
				       TL_SIZING_MARGIN_Q10);
		need.shrink_q10 = share_q10 - slack_q10;
		need.grow_q10 = share_q10 - 2 * slack_q10;
		need.share_q10 = share_q10;
		return need;
	}
	need.shrink_q10 = tl_max_u64(share_q10 - slack_q10,
				     run_q10 * 1024 / TL_SIZING_FULL_LOW_Q10);
	need.grow_q10 = tl_min_u64(share_q10 - 2 * slack_q10,
				   run_q10 * 1024 / TL_TIER_TIGHT_Q10);
	return need;
}

/* Whether a split pays that leaves so many cores to the work below it; is_there:
 * there is one now. */
tl_inline u32 tl_tier_pays(const struct tl_sizing *s,
			   const struct tl_tier_need *need, u32 nr_below,
			   u64 core_q10, u64 all_q10, u32 is_there)
{
	u64 below_q10 = nr_below * core_q10;
	u64 least_q10 = is_there ? TL_TIER_LEAST_Q10 / 2 : TL_TIER_LEAST_Q10;
	u64 keep_q10 = is_there ? TL_TIER_KEEP_LOW_Q10 : TL_TIER_KEEP_Q10;

	if (!below_q10 ||
	    tl_min_u64(s->wide_run_q10, s->rest_run_q10) < least_q10)
		return 0;
	return !need->share_q10 ||
	       below_q10 * 1024 >= (all_q10 - need->share_q10) * keep_q10;
}

/* The set is too small, for `fit` cores: what it has been too small for, when it
 * was so for long enough; until then the old size. */
tl_inline u32 tl_tier_grow(struct tl_tier *t, u32 old, u32 fit, u64 elapsed_ns)
{
	if (!t->high_ns || fit < t->nr_high)
		t->nr_high = fit;
	t->high_ns += elapsed_ns;
	t->set.low_ns = 0;
	if (t->high_ns < TL_TIER_HIGH_NS)
		return old;
	return tl_sizing_grow(&t->set, old, t->nr_high);
}

/* Its next size: old, a smaller or a greater one, or nr_wide. */
tl_inline u32 tl_tier_next(struct tl_tier *t, const struct tl_tier_need *need,
			   u32 old, u32 nr_wide, u64 core_q10, u64 elapsed_ns)
{
	u32 is_there = old < nr_wide;
	u64 all_q10 = nr_wide * core_q10;
	u32 fit = tl_max_u64(tl_sizing_cores(need->shrink_q10, core_q10), 1);

	if (is_there &&
	    !tl_tier_pays(&t->set, need, nr_wide - old, core_q10, all_q10, 1)) {
		tl_sizing_regret(&t->set);
		return nr_wide;
	}
	if (need->grow_q10 > old * core_q10)
		return tl_tier_grow(t, old,
				    tl_sizing_cores(need->grow_q10, core_q10),
				    elapsed_ns);
	t->high_ns = 0;
	if (fit < old && tl_tier_pays(&t->set, need, nr_wide - fit, core_q10,
				      all_q10, is_there))
		return tl_sizing_shrink(&t->set, old, fit, elapsed_ns);
	t->set.low_ns = 0;
	return old;
}

/* What was seen until now says little about what comes. */
tl_inline void tl_tier_forget(struct tl_tier *t)
{
	t->set.settled_ns = 0;
	t->set.low_ns = 0;
	t->high_ns = 0;
}

/* Take in what was seen at a boundary; returns how many of nr_wide cores are to
 * be above it, 1..nr_wide. */
tl_inline u32 tl_tier_update(struct tl_tier *t,
			     const struct tl_sizing_input *in, u32 nr_wide)
{
	u64 core_q10 =
		1024ull * (in->nr_cpus_per_core ? in->nr_cpus_per_core : 1);
	struct tl_sizing *s = &t->set;
	u32 old = s->nr_wide ? tl_min_u64(s->nr_wide, nr_wide) : nr_wide, want;
	struct tl_tier_need need;

	if (!s->hold_ns)
		s->hold_ns = TL_SIZING_HOLD_NS;
	tl_sizing_observe(s, in);
	need = tl_tier_need(s, nr_wide * core_q10);
	want = tl_tier_next(t, &need, old, nr_wide, core_q10, in->elapsed_ns);
	want = tl_min_u64(want, nr_wide);
	if (want != old)
		tl_tier_forget(t);
	s->nr_wide = want < nr_wide ? want : 0;
	return want;
}

/* The cores were not divided for a while: sizes stay, averages begin anew. */
tl_inline void tl_tiers_resume(struct tl_tiers *t)
{
	t->wide.settled_ns = 0;
	t->wide.low_ns = 0;
	for (u32 c = 0; c < TL_LEVEL_MAX - 1; c++)
		tl_tier_forget(&t->tier[c]);
}

/* The same at each boundary, the highest first; the sets are nested. */
tl_inline void tl_tiers_split(struct tl_tiers *t,
			      const struct tl_tiers_input *in, u32 nr_wide,
			      u32 resized)
{
	u32 least = 1; /* what the boundary above has, if there is a split */

#pragma unroll
	for (u32 c = TL_LEVEL_MAX - 1; c > 0; c--) {
		struct tl_tier *tier = &t->tier[c - 1];
		struct tl_sizing_input at = tl_tiers_at(in, c);
		u32 above = nr_wide;

		if (resized)
			tl_tier_forget(tier);
		if (in->tiers && nr_wide)
			above = tl_tier_update(tier, &at, nr_wide);
		else
			tier->set.nr_wide = 0;
		above = tl_max_u64(above, least);
		if (above < nr_wide)
			least = above;
		t->split.above[c] = above < nr_wide ? above : nr_wide;
	}
}

/* Take in what was seen; true if the split has changed. The caller applies it
 * before the next call. */
tl_inline u32 tl_tiers_update(struct tl_tiers *t,
			      const struct tl_tiers_input *in)
{
	struct tl_split old = t->split;
	u32 nr_wide = in->nr_wide, changed = 0;

	if (nr_wide == TL_WIDE_AUTO) {
		struct tl_sizing_input at = tl_tiers_at(in, 0);

		nr_wide = tl_sizing_update(&t->wide, &at);
	}
	t->split.above[0] = nr_wide;
	tl_tiers_split(t, in, nr_wide, nr_wide != old.above[0]);
#pragma unroll
	for (u32 c = 0; c < TL_LEVEL_MAX; c++)
		changed |= t->split.above[c] != old.above[c];
	return changed;
}

#endif
