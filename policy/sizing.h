/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sizing: how many cores are wide.
 *
 * Problem: too few wide cores and wide work queues up while scalar cores run
 * dry; too many and scalar work is spread over slow cores (THESIS 4.3). The
 * thesis takes n * t_wide / t_total of CPU time consumed, which cannot tell
 * "needs no more" from "gets no more"; it chose too many cores and flapped
 * (THESIS 5.2.2).
 *
 * Idea: measure demand, not consumption. Demand is CPU time used plus time
 * spent waiting in a queue, each per unit of time: the mean number of tasks
 * that ran or wanted to, separately for wide work and the rest. While both
 * together fit the machine, wide work gets what it demands; beyond that, the
 * CPUs are split in proportion.
 *
 *   need = wide,                      if wide + rest <= nr_cpus
 *          nr_cpus * wide / (wide + rest), else
 *
 * Both demands are moving averages over tau. Against flapping:
 *   - a core is added only when need exceeds the cores' capacity by a margin,
 *   - a core is given back only when need has stayed a margin below the
 *     smaller set's capacity for the whole hold time,
 *   - growing is at most doubling, shrinking one core, per decision.
 *
 * Unit of need and demand: 1024 = one CPU.
 */
#ifndef TL_POLICY_SIZING_H
#define TL_POLICY_SIZING_H

#include "types.h"

/* Time constant of the averages. Long against a slice (5 ms), so that one
 * burst does not move the set; short against what an operator waits for. */
#define TL_SIZING_TAU_NS 200000000ull
/* A core is given back after need was low for so long: ten times what the
 * averages need to settle would be 2 s; half of that proved steady in the
 * tests of crates/policy. */
#define TL_SIZING_HOLD_NS 1000000000ull
/* Margin either way: an eighth of a CPU. */
#define TL_SIZING_MARGIN_Q10 128u

/* What was seen since the last call, sums over all CPUs and tasks. */
struct tl_sizing_input {
	u64 elapsed_ns;	  /* wall time since the last call, > 0 */
	u64 wide_run_ns;  /* CPU time used by wide tasks */
	u64 wide_wait_ns; /* time wide tasks waited in queues */
	u64 rest_run_ns;  /* the same for all other tasks */
	u64 rest_wait_ns;
	u32 nr_cores;	      /* cores of the machine, >= 1 */
	u32 nr_cpus_per_core; /* SMT siblings, >= 1 */
};

struct tl_sizing {
	u64 wide_q10; /* averages, 1024 = one CPU */
	u64 rest_q10;
	u64 low_ns;	/* how long need has been low */
	u32 nr_wide;	/* cores that are wide now, >= 1 */
	u32 nr_changes; /* how often nr_wide changed */
};

tl_inline u64 tl_ewma_q10(u64 old_q10, u64 sum_ns, u64 elapsed_ns)
{
	u64 now_q10 = sum_ns * 1024 / elapsed_ns;
	u64 weight_q10 = elapsed_ns * 1024 / (elapsed_ns + TL_SIZING_TAU_NS);

	return (now_q10 * weight_q10 + old_q10 * (1024 - weight_q10)) / 1024;
}

/* CPUs that wide work should have, 1024 = one CPU. */
tl_inline u64 tl_sizing_need_q10(const struct tl_sizing *s, u32 nr_cpus)
{
	u64 all_q10 = s->wide_q10 + s->rest_q10;

	if (all_q10 <= (u64)nr_cpus * 1024)
		return s->wide_q10;
	return (u64)nr_cpus * 1024 * s->wide_q10 / all_q10;
}

/*
 * Take in what was seen; returns the number of cores that should be wide:
 * 1..nr_cores - 1, or 1 on a machine of one core. The caller applies it before
 * the next call.
 */
tl_inline u32 tl_sizing_update(struct tl_sizing *s,
			       const struct tl_sizing_input *in)
{
	u64 elapsed_ns = in->elapsed_ns ? in->elapsed_ns : 1;
	u64 core_q10 =
		1024ull * (in->nr_cpus_per_core ? in->nr_cpus_per_core : 1);
	u32 most = in->nr_cores > 1 ? in->nr_cores - 1 : 1;
	u32 old = s->nr_wide ? s->nr_wide : 1, want;
	u64 need_q10;

	s->wide_q10 = tl_ewma_q10(
		s->wide_q10, in->wide_run_ns + in->wide_wait_ns, elapsed_ns);
	s->rest_q10 = tl_ewma_q10(
		s->rest_q10, in->rest_run_ns + in->rest_wait_ns, elapsed_ns);
	need_q10 = tl_sizing_need_q10(s, in->nr_cores * in->nr_cpus_per_core);

	want = old > most ? most : old;
	if (need_q10 > want * core_q10 + TL_SIZING_MARGIN_Q10) {
		u64 fit = (need_q10 - TL_SIZING_MARGIN_Q10 + core_q10 - 1) /
			  core_q10;

		want = fit > 2ull * want ? 2 * want : (u32)fit;
		want = want > most ? most : want;
		s->low_ns = 0;
	} else if (want > 1 &&
		   need_q10 + TL_SIZING_MARGIN_Q10 <= (want - 1) * core_q10) {
		s->low_ns += elapsed_ns;
		if (s->low_ns >= TL_SIZING_HOLD_NS) {
			want--;
			s->low_ns = 0;
		}
	} else {
		s->low_ns = 0;
	}
	if (want != s->nr_wide)
		s->nr_changes++;
	s->nr_wide = want;
	return want;
}

#endif
