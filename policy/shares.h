/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Shares: on a busy machine each party of tasks keeps the CPU time that the kernel's own
 * scheduler gave it.
 *
 * Problem: wide and scalar tasks compete in queues of their own. What a task uses on
 * wide CPUs does not count among scalar tasks, one that sleeps often loses less here
 * than in the kernel's queues, and the number of wide CPUs fixes what wide code can have
 * together. So with equal weights a party gets more than before, and the other one less:
 * a build beside an encoder did 7 % less work, though each task ran faster.
 *
 * Idea: a feedback loop. While standing by, the kernel's scheduler says what share is
 * right. While wide code is kept apart, what a nanosecond of a party's tasks counts on
 * their clocks grows with what they have too much:
 *
 *   counts *= 1 + (share / share before - 1) / 2       each 0.2 s, within 1/2 to 2
 *
 * What is won, a higher clock, is then won by both.
 *
 * Tasks that came or ended while standing by are in no party's sum. Their time is what
 * all tasks used minus what those used that are there, and is taken as time without wide
 * code.
 *
 * After 8 s the factors stay, within 3/4 to 4/3: what the kernel would give now is not
 * known, as the load may have changed. They say how its shares differ from ours, which
 * changes less than the shares do; but they are no longer corrected.
 *
 * Limits. Where not all CPUs are busy, before or now, nothing is changed. Tasks of one
 * party share as their weights say.
 */
#ifndef TL_POLICY_SHARES_H
#define TL_POLICY_SHARES_H

#include "losses.h"

/* As long as a look, whose shares repeat to a few percent; and for so long at most. */
#define TL_SHARES_TUNE_NS 200000000ull
#define TL_SHARES_TUNED_NS 8000000000ull
#define TL_SHARES_ONE_Q10 1024u
#define TL_SHARES_LEAST_Q10 512u
#define TL_SHARES_MOST_Q10 2048u
#define TL_SHARES_STAYS_LEAST_Q10 768u
#define TL_SHARES_STAYS_MOST_Q10 1365u

/* All zero: nothing is known, and all time counts the same. */
struct tl_shares {
	u64 run_ns[TL_NR_PARTIES]; /* since the last change */
	u64 elapsed_ns;		   /* the same of the wall time */
	u64 tuned_ns;		   /* since the shares before are known */
	/* of all CPUs under the kernel's scheduler, 0 = not known, or not busy */
	u32 before_q10[TL_NR_PARTIES];
	u32 counts_q10[TL_NR_PARTIES]; /* for tl_cfg, 0 = 1024 */
};

/* CPU time of all under the kernel's scheduler. */
tl_inline u64 tl_shares_all_ns(const struct tl_standby_input *in)
{
	u64 known_ns = 0;

	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		known_ns += in->kernel[p].run_ns;
	return tl_max_u64(known_ns, in->kernel_run_ns);
}

/* The same for one party. Tasks without wide code get the time that no party with wide
 * code is known to have used. */
tl_inline u64 tl_shares_kernel_ns(const struct tl_standby_input *in, u32 party)
{
	u64 ns = tl_shares_all_ns(in);

	if (party != TL_PARTY_PLAIN)
		return in->kernel[party].run_ns;
	for (u32 p = TL_PARTY_PLAIN + 1; p < TL_NR_PARTIES; p++)
		ns -= in->kernel[p].run_ns;
	return ns;
}

/* A party's share of all CPUs under the kernel's scheduler, excluding what it lost; 0 if
 * it is not known, or they were not busy. */
tl_inline u32 tl_shares_kernel_q10(const struct tl_standby_input *in, u32 party,
				   u32 lost_q10)
{
	return tl_standby_share_of(tl_shares_kernel_ns(in, party), lost_q10,
				   tl_shares_all_ns(in),
				   in->kernel_ns * in->nr_cpus);
}

/* The kernel's scheduler was at work until now. */
tl_inline void tl_shares_begin(struct tl_shares *s,
			       const struct tl_standby_input *in)
{
	*s = (struct tl_shares){};
	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		s->before_q10[p] = tl_shares_kernel_q10(in, p, 0);
}

/* What a party's time counts from now on, of which it has this share. */
tl_inline u32 tl_shares_next_q10(u32 counts_q10, u32 share_q10, u32 before_q10)
{
	s64 more = (s64)share_q10 - before_q10;
	s64 counts = counts_q10 ? counts_q10 : TL_SHARES_ONE_Q10;

	counts += counts * more / before_q10 / 2;
	if (counts < TL_SHARES_LEAST_Q10)
		return TL_SHARES_LEAST_Q10;
	return counts > TL_SHARES_MOST_Q10 ? TL_SHARES_MOST_Q10 : (u32)counts;
}

/* What its time counts for good. */
tl_inline u32 tl_shares_stays_q10(u32 counts_q10)
{
	if (!counts_q10)
		return 0;
	if (counts_q10 < TL_SHARES_STAYS_LEAST_Q10)
		return TL_SHARES_STAYS_LEAST_Q10;
	return counts_q10 > TL_SHARES_STAYS_MOST_Q10 ?
		       TL_SHARES_STAYS_MOST_Q10 :
		       counts_q10;
}

/* Wide code is kept apart: take in what was seen. */
tl_inline void tl_shares_tune(struct tl_shares *s,
			      const struct tl_standby_input *in)
{
	u64 all_ns, run_ns = 0;

	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		s->run_ns[p] += in->losses[p].run_ns;
	s->elapsed_ns += in->elapsed_ns;
	if (s->elapsed_ns < TL_SHARES_TUNE_NS ||
	    s->tuned_ns >= TL_SHARES_TUNED_NS)
		return;
	s->tuned_ns += s->elapsed_ns;
	all_ns = s->elapsed_ns * in->nr_cpus;
	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		run_ns += s->run_ns[p];
	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		u32 share_q10 =
			tl_standby_share_of(s->run_ns[p], 0, run_ns, all_ns);

		s->run_ns[p] = 0;
		if (share_q10 && s->before_q10[p] >= 1024 / TL_STANDBY_PARTY)
			s->counts_q10[p] = tl_shares_next_q10(
				s->counts_q10[p], share_q10, s->before_q10[p]);
		if (s->tuned_ns >= TL_SHARES_TUNED_NS)
			s->counts_q10[p] =
				tl_shares_stays_q10(s->counts_q10[p]);
	}
	s->elapsed_ns = 0;
}

#endif
