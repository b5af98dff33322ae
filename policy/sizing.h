/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sizing: how many cores are wide.
 *
 * Problem: too few wide cores and wide work queues up while scalar cores run
 * dry; too many and scalar work is spread over slow cores (THESIS 4.3). The
 * thesis takes n * t_wide / t_total of CPU time consumed, which is the same for
 * "needs no more" and "gets no more"; it chose too many cores and flapped
 * (THESIS 5.2.2). Demand, CPU time plus time waited, is no better measure by
 * itself: tasks pile up at whichever set is short, so the demand seen depends
 * on the size chosen, and one size seems too small, the next too large.
 *
 * Idea: ask whether the set at hand is full. Below that, CPU time is what wide
 * work needs; only a full set's queue says that it needs more.
 *
 *   W = wide_run               CPUs that wide work uses; of a set that is full
 *       wide_run + wide_wait     or that has a long queue: would like to use
 *   R = rest_run + rest_wait   CPUs that all other work would like to use
 *   N                          CPUs
 *
 *   need = N - R, the CPUs that the rest leaves, but
 *          at least W:        where all CPUs are wanted, wide ones are full too
 *          at most  W / 0.55: where they are not, wide tasks hardly wait, and
 *                             seldom share a core
 *   need = the share of wide work at most, where more is wanted than there is
 *
 * The share is of what the tasks want, wherever they wait for it (mix.h), with D
 * the CPUs that their wide code uses and waits for, and T those of everything:
 *
 *   share = N * D / T, if T > N
 *
 * Full: less than an eighth of a CPU idles or does other work. The queue of a
 * set says little before that: a closed load of 30 tasks lets 3 or 10 of
 * them wait at sizes that hardly differ.
 *
 * The set grows when need exceeds it by a margin: to what is needed, at most
 * by half. It shrinks when a smaller set would hold need all of the hold time,
 * with W / 0.85, W / 0.40 and a room of N - R + N / 8, so that noise does not
 * undo what noise did: to what is needed, at most to half its size. Where only
 * the share says so, by one core: it is the less certain measure.
 *
 * All are moving averages over tau that begin anew with each change of the
 * set: what was seen with another size says little about this one.
 *
 * Regret: a set that must grow again soon after it shrank goes back to where
 * it was, and the hold time doubles; one that needs not halves it. So a load
 * that looks different from either of two sizes is not tried again and again.
 *
 * Limits. A share is fair between tasks, as a scheduler is that gives each the
 * same time. Which division of CPUs that all tasks want is best depends on the
 * program: sizes that suit one program differ from those that suit another by a
 * core or two.
 *
 * Unit of all demands: 1024 = one CPU.
 */
#ifndef TL_POLICY_SIZING_H
#define TL_POLICY_SIZING_H

#include "types.h"

/* Time constant of the averages. Long against a slice (5 ms), so that one
 * burst does not move the set; short against what an operator waits for. */
#define TL_SIZING_TAU_NS 200000000ull
/* A set shrinks after need was low for so long, five times what the averages
 * need to settle; and at most so long, after repeated regret. */
#define TL_SIZING_HOLD_NS 1000000000ull
#define TL_SIZING_HOLD_MAX_NS (64 * TL_SIZING_HOLD_NS)
/* Margin up and down, and what a full set has idle: an eighth of a CPU. */
#define TL_SIZING_MARGIN_Q10 128u
/*
 * How full a set may be, 1024 = all CPUs busy with wide work. From a sweep over
 * the sizes of every scenario of data/scenarios: on machines that have idle
 * CPUs, sets up to 65 % full are within 1 % of the best, one of 83 % is not.
 */
#define TL_SIZING_LIGHT_Q10 563u     /* 0.55: grow, where there is room */
#define TL_SIZING_FULL_LOW_Q10 870u  /* 0.85: shrink */
#define TL_SIZING_LIGHT_LOW_Q10 410u /* 0.40: shrink, where there is room */
/* More than any machine has; keeps sums of strange inputs within 64 bits. */
#define TL_SIZING_MOST_Q10 (1ull << 32)

/* What was seen since the last call, sums over all CPUs and tasks. */
struct tl_sizing_input {
	u64 elapsed_ns;	  /* wall time since the last call, > 0 */
	u64 wide_run_ns;  /* CPU time used by wide tasks */
	u64 wide_wait_ns; /* time wide tasks waited in queues */
	u64 rest_run_ns;  /* the same for all other tasks */
	u64 rest_wait_ns;
	/* of all time waited, for wide code by the tasks' mixes (mix.h);
	 * unused at a boundary between classes */
	u64 mix_wait_ns;
	u32 nr_cores;	      /* cores of the machine, >= 1 */
	u32 nr_cpus_per_core; /* SMT siblings, >= 1 */
	u32 nr_useful;	      /* cores that may become wide, 0 = all */
};

struct tl_sizing {
	u64 wide_run_q10; /* averages since the last change */
	u64 wide_wait_q10;
	u64 rest_run_q10;
	u64 rest_q10;	  /* run and wait */
	u64 mix_wait_q10; /* what of both waits is for wide code */
	u64 settled_ns;	  /* how long they have been taken */
	u64 low_ns;	  /* how long need has been low */
	u64 hold_ns;	  /* how long it must be; 0 = TL_SIZING_HOLD_NS */
	u64 shrunk_ns;	  /* since the set shrank; large if that is over */
	u32 nr_before;	  /* cores before that, 0 = never shrank */
	u32 nr_low;	  /* cores needed at most while need has been low */
	u32 nr_wide;	  /* cores that are wide now, >= 1 */
	u32 nr_changes;	  /* how often nr_wide changed */
};

/* Take a sample in. The first after a change of the set is the average. */
tl_inline u64 tl_sizing_average_q10(const struct tl_sizing *s, u64 old_q10,
				    u64 sum_ns, u64 elapsed_ns)
{
	u64 now_q10 =
		tl_min_u64(sum_ns * 1024 / elapsed_ns, TL_SIZING_MOST_Q10);
	u64 weight_q10 = elapsed_ns * 1024 / (elapsed_ns + TL_SIZING_TAU_NS);

	if (!s->settled_ns)
		return now_q10;
	return (now_q10 * weight_q10 + old_q10 * (1024 - weight_q10)) / 1024;
}

tl_inline void tl_sizing_observe(struct tl_sizing *s,
				 const struct tl_sizing_input *in)
{
	u64 elapsed_ns = in->elapsed_ns ? in->elapsed_ns : 1;

	s->wide_run_q10 = tl_sizing_average_q10(s, s->wide_run_q10,
						in->wide_run_ns, elapsed_ns);
	s->wide_wait_q10 = tl_sizing_average_q10(s, s->wide_wait_q10,
						 in->wide_wait_ns, elapsed_ns);
	s->rest_run_q10 = tl_sizing_average_q10(s, s->rest_run_q10,
						in->rest_run_ns, elapsed_ns);
	s->rest_q10 = tl_sizing_average_q10(
		s, s->rest_q10, in->rest_run_ns + in->rest_wait_ns, elapsed_ns);
	s->mix_wait_q10 = tl_sizing_average_q10(s, s->mix_wait_q10,
						in->mix_wait_ns, elapsed_ns);
	s->settled_ns += elapsed_ns;
	if (s->shrunk_ns < TL_SIZING_HOLD_MAX_NS)
		s->shrunk_ns += elapsed_ns;
}

/* Whether the set cannot take more wide work: its CPUs are full, or other tasks
 * with equal rights keep wide ones waiting. */
tl_inline u32 tl_sizing_is_full(const struct tl_sizing *s, u64 set_q10)
{
	return s->wide_run_q10 + TL_SIZING_MARGIN_Q10 > set_q10 ||
	       s->wide_wait_q10 > 2 * s->wide_run_q10;
}

/* CPUs that wide work should have: the room that the rest leaves, within these
 * bounds. */
tl_inline u64 tl_sizing_need_q10(const struct tl_sizing *s, u64 least_q10,
				 u64 most_q10, u64 all_q10)
{
	u64 room_q10 = all_q10 > s->rest_q10 ? all_q10 - s->rest_q10 : 0;

	return tl_min_u64(tl_max_u64(room_q10, least_q10), most_q10);
}

/* The share of the wide work, if there are not CPUs for all, else more than
 * there are. */
tl_inline u64 tl_sizing_share_q10(const struct tl_sizing *s, u64 all_q10)
{
	u64 wide_q10 = s->wide_run_q10 + s->mix_wait_q10;
	u64 both_q10 = s->wide_run_q10 + s->wide_wait_q10 + s->rest_q10;

	return both_q10 > all_q10 ? all_q10 * wide_q10 / both_q10 : ~0ull;
}

/* Cores for so much. */
tl_inline u32 tl_sizing_cores(u64 need_q10, u64 core_q10)
{
	return (u32)tl_min_u64((need_q10 + core_q10 - 1) / core_q10, 1u << 30);
}

/* The set must grow. Did it shrink too early? Then it shall wait longer before
 * it tries again; the size that it had, else more than there are. */
tl_inline u32 tl_sizing_regret(struct tl_sizing *s)
{
	if (!s->nr_before || s->shrunk_ns >= s->hold_ns)
		return ~0u;
	s->hold_ns = tl_min_u64(2 * s->hold_ns, TL_SIZING_HOLD_MAX_NS);
	return s->nr_before;
}

/* The set is too small: its next size towards `want`. */
tl_inline u32 tl_sizing_grow(struct tl_sizing *s, u32 old, u32 want)
{
	u32 before = tl_sizing_regret(s);

	want = tl_min_u64(want, (u64)old + (old + 1) / 2);
	return tl_min_u64(want, before);
}

/* Need is low, for a set of `fit` cores: what it was low for, when it has been so
 * for the hold time; until then the old size. */
tl_inline u32 tl_sizing_shrink(struct tl_sizing *s, u32 old, u32 fit,
			       u64 elapsed_ns)
{
	if (!s->low_ns || fit > s->nr_low)
		s->nr_low = fit;
	s->low_ns += elapsed_ns;
	if (s->low_ns < s->hold_ns)
		return old;
	if (s->nr_before && s->shrunk_ns >= 2 * s->hold_ns)
		s->hold_ns = tl_max_u64(s->hold_ns / 2, TL_SIZING_HOLD_NS);
	s->nr_before = old;
	s->shrunk_ns = 0;
	return s->nr_low;
}

/* Cores that a set could shrink to; at least `want` if it should not. */
tl_inline u32 tl_sizing_fit(const struct tl_sizing *s, u32 want, u64 wide_q10,
			    u64 all_q10, u64 core_q10)
{
	u64 used_q10 = tl_sizing_need_q10(
		s, wide_q10 * 1024 / TL_SIZING_FULL_LOW_Q10,
		wide_q10 * 1024 / TL_SIZING_LIGHT_LOW_Q10, all_q10 * 9 / 8);
	u64 share_q10 = tl_sizing_share_q10(s, all_q10);
	u32 fit = tl_sizing_cores(used_q10 + TL_SIZING_MARGIN_Q10, core_q10);

	if (fit < want || want < 2)
		return fit;
	return share_q10 <= (want - 1) * core_q10 - TL_SIZING_MARGIN_Q10 ?
		       want - 1 :
		       fit;
}

/*
 * Take in what was seen; returns the number of cores that should be wide:
 * 1..nr_cores - 1, or 1 on a machine of one core; none beyond nr_useful. The caller
 * applies it before the next call.
 */
tl_inline u32 tl_sizing_update(struct tl_sizing *s,
			       const struct tl_sizing_input *in)
{
	u64 core_q10 =
		1024ull * (in->nr_cpus_per_core ? in->nr_cpus_per_core : 1);
	u64 all_q10 = in->nr_cores * core_q10;
	u32 most = in->nr_cores > 1 ? in->nr_cores - 1 : 1;
	u32 useful = in->nr_useful ? in->nr_useful : most;
	u32 old = s->nr_wide ? s->nr_wide : 1;
	u32 want = old, fit;
	u64 wide_q10, need_q10;

	most = tl_min_u64(most, useful);
	want = tl_min_u64(want, most);
	if (!s->hold_ns)
		s->hold_ns = TL_SIZING_HOLD_NS;
	tl_sizing_observe(s, in);
	wide_q10 = s->wide_run_q10;
	if (tl_sizing_is_full(s, want * core_q10))
		wide_q10 += s->wide_wait_q10;
	need_q10 = tl_sizing_need_q10(
		s, wide_q10, wide_q10 * 1024 / TL_SIZING_LIGHT_Q10, all_q10);
	need_q10 = tl_min_u64(need_q10, tl_sizing_share_q10(s, all_q10));
	fit = tl_sizing_fit(s, want, wide_q10, all_q10, core_q10);
	if (need_q10 > want * core_q10 + TL_SIZING_MARGIN_Q10) {
		fit = tl_sizing_cores(need_q10 - TL_SIZING_MARGIN_Q10,
				      core_q10);
		want = tl_min_u64(tl_sizing_grow(s, want, fit), most);
		s->low_ns = 0;
	} else if (fit < want) {
		fit = tl_sizing_shrink(s, want, fit, in->elapsed_ns);
		want = tl_max_u64(fit, (want + 1) / 2);
	} else {
		s->low_ns = 0;
	}
	if (want != old) {
		s->nr_changes++;
		s->settled_ns = 0;
		s->low_ns = 0;
	}
	s->nr_wide = want;
	return want;
}

#endif
