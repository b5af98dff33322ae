/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the parties of tasks lose, in time of a CPU, and what they have of the CPUs: the
 * sums that standby.h weighs. The sources of the constants are there.
 */
#ifndef TL_POLICY_LOSSES_H
#define TL_POLICY_LOSSES_H

#include "exposure.h"

#define TL_STANDBY_MOVE_NS 6000ull
#define TL_STANDBY_RAISE_NS 27000ull
/* Beside a busy sibling a CPU loses 3/8; CPUs are all busy that idle for a 32nd. */
#define TL_STANDBY_SIBLING_Q10 384u
#define TL_STANDBY_IDLE 32u
/* A party with less than a 64th of the CPU time is not asked. */
#define TL_STANDBY_PARTY 64u

/* What the application's figure decides in place of what is seen (goal.h). */
enum tl_standby_goal {
	TL_GOAL_NONE = 0, /* there is none */
	TL_GOAL_BY = 1,
	TL_GOAL_APART = 2,
};

/* What was seen since the last call, sums over all CPUs. */
struct tl_standby_input {
	u64 elapsed_ns; /* wall time since the last call */
	struct tl_losses losses[TL_NR_PARTIES];
	/* while looking: what the tasks that are there did when the scheduler was
	 * last away, and how long that was */
	struct tl_kernel_use kernel[TL_NR_PARTIES];
	u64 kernel_ns;
	/* CPU time that all used then, also those that have come or ended */
	u64 kernel_run_ns;
	u64 wide_wait_ns; /* time that wide tasks waited in queues */
	/* clock that level c + 1 lacks, 1024 = all of it */
	u32 lacks_q10[TL_LEVEL_MAX];
	u32 nr_cpus;
	u32 sees; /* sections are seen, not only their begins */
	u8 news; /* a marked function was called, or a thread gives hints now */
	u8 asks; /* a thread has a target for its CPU (target.h) */
	u16 goal; /* enum tl_standby_goal */
};

/* Whether any level lowers a clock. */
tl_inline u32 tl_standby_has_levels(const struct tl_standby_input *in)
{
	u32 all = 0;

	for (u32 c = 0; c < TL_LEVEL_MAX; c++)
		all |= in->lacks_q10[c];
	return all;
}

/* What a party lost by clocks and raises, ns. */
tl_inline u64 tl_standby_clock_ns(const struct tl_losses *l,
				  const struct tl_standby_input *in)
{
	s64 ns = 0;

	for (u32 c = 0; c < TL_LEVEL_MAX; c++)
		ns += (s64)l->exposed_ns[c] * in->lacks_q10[c] / 1024;
	if (tl_standby_has_levels(in))
		ns += l->raises * TL_STANDBY_RAISE_NS;
	return ns > 0 ? (u64)ns : 0;
}

/* The fraction ns / of_ns, at most 1; 1024 = 1. */
tl_inline u32 tl_standby_share_q10(u64 ns, u64 of_ns)
{
	return of_ns ? (u32)tl_min_u64(ns * 1024 / of_ns, 1024) : 0;
}

/* A party's share of so much time of all CPUs, not counting what it loses; 0 if these
 * are not all busy. */
tl_inline u32 tl_standby_share_of(u64 run_ns, u32 lost_q10, u64 all_run_ns,
				  u64 all_ns)
{
	if (all_run_ns + all_ns / TL_STANDBY_IDLE < all_ns)
		return 0;
	return tl_standby_share_q10(run_ns * (1024 - lost_q10) / 1024, all_ns);
}

/* Time that a party waits for each of its CPU time, 64 times at most. */
tl_inline u32 tl_standby_wait_q10(u64 run_ns, u64 wait_ns)
{
	return run_ns ?
		       (u32)(tl_min_u64(wait_ns, run_ns << 6) * 1024 / run_ns) :
		       0;
}

/* Tasks migrate under the kernel's scheduler, and under ours while it looks: the rarer
 * of the two is what there was before. */
tl_inline void tl_standby_kernel_moves(struct tl_losses *l,
				       const struct tl_kernel_use *kernel)
{
	u64 ran = kernel->run_ns >> 10, runs = l->run_ns >> 10;

	if (ran)
		l->moves = tl_min_u64(l->moves, kernel->moves * runs / ran);
}

#endif
