/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Power score: what licence level a task's code asks for, learnt by watching
 * (DIM 5.2).
 *
 * Problem: a program gives no hints, and its wide functions are not known. Counters
 * show the licence level that a CPU has, not the one that the code requests: a level
 * is held for 670 us after the last wide instruction (DIM 4), so a task finds its
 * predecessor's level on the CPU, and would be blamed for it.
 *
 * Idea: the task that runs while the level changes is most likely the cause. A
 * task that runs for longer than a level is held is the cause of whatever level
 * there is. Other runs show nothing. Samples are averaged, because some are wrong:
 * a change takes up to 20 us from the request, and the task may have gone by then.
 *
 * DIM's rules, with S the score, L the level at the end of a run and L0 at its
 * begin:
 *
 *   1. a new task has S = 0
 *   2. L is sampled at each context switch
 *   3. L = L0 and a short run: nothing
 *   4. the run lasted more than 1 ms, or
 *      L < L0 and L < S (it "decreases below"), or
 *      L > L0 and L > S ("or increases above the current power score"):
 *
 *        S' = 0.2 * L + 0.8 * S
 *
 * And one of ours. A scanner may know the highest level that any instruction of the task's
 * process asks for (DIM 5.2 has it set the scores of processes without wide code to 0):
 *
 *   5. L is higher than that: it is another's demand, a sibling's or a predecessor's, and
 *      the run says nothing. A score that is higher was made by such runs, and is 0
 *
 * So a score near 1 says that the task asks for level 1, near 2 for level 2. It
 * forgets within some ten samples: 0.8^10 = 0.1.
 *
 * The score is rounded to a level. A score that varies around the middle between
 * two levels would move its task back and forth, so a level once chosen is kept
 * until the score is a quarter beyond the middle (TL_SCORE_MARGIN_Q10).
 *
 * Limits. Siblings share a licence, so with SMT the level may be the sibling's (DIM 5.2:
 * "this technique only works" without), unless rule 5 excludes it. A task whose wide code
 * is over for longer than the hold whenever it leaves the CPU scores 0: DIM samples at
 * the end of a run, and sees nothing of what was between. Work that a task asks of an
 * interrupt or the kernel counts as its own, up to the level of its own code. Kernel
 * threads that wake go first on the CPU where they are (queues.h), whatever its class: the
 * caller does not score them.
 *
 * Unit of scores: 1024 = level 1. Rounding keeps an average two units away from
 * the level that it nears: 0.002.
 */
#ifndef TL_POLICY_SCORE_H
#define TL_POLICY_SCORE_H

#include "types.h"

/* Rule 4: "more than 1 ms apart - longer than the frequency delay" of 670 us. */
#define TL_SCORE_LONG_NS 1000000ull
/* A quarter of a level. One sample moves a score of 0.75 to 0.95 or 0.6: two in
 * a row must disagree to get from one side of the margin to the other. */
#define TL_SCORE_MARGIN_Q10 256u

#define TL_SCORE_MAX_Q10 (TL_LEVEL_MAX << 10)

/* A task's score. All zero for a new task: rule 1.
 *
 *   0       2       3       4         8
 *   +-------+-------+-------+---------+
 *   | score | level | code  | samples |
 *   +-------+-------+-------+---------+
 */
struct tl_score {
	u16 score_q10; /* 1024 = level 1; 0..TL_SCORE_MAX_Q10 */
	u8 level;      /* that the task is believed to ask for */
	/* 1 + the highest level of an instruction in its process's files, 0 = not known */
	u8 code;
	u32 nr_samples; /* runs that said something; saturates */
};
_Static_assert(sizeof(struct tl_score) == 8, "drawn above; mirrored in Rust");

/* Rules 3 and 4: whether a run that began at level before and ends at level now
 * says something about the task. */
tl_inline u32 tl_score_counts(const struct tl_score *s, u32 before, u32 now,
			      u64 run_ns)
{
	if (run_ns > TL_SCORE_LONG_NS)
		return 1;
	if (now < before)
		return (now << 10) < s->score_q10;
	return now > before && (now << 10) > s->score_q10;
}

/* The highest level that the task can ask for. */
tl_inline u32 tl_score_most(const struct tl_score *s)
{
	return s->code && s->code <= TL_LEVEL_MAX ? s->code - 1u : TL_LEVEL_MAX;
}

/* A process was looked through: the highest level of its code; above TL_LEVEL_MAX: it
 * cannot be said. */
tl_inline u8 tl_score_code(u32 level)
{
	return level > TL_LEVEL_MAX ? 0 : (u8)(level + 1);
}

/* What is known of a process's code holds for a new thread of it. A new process is not
 * known: it may go on to load code of its own. */
tl_inline void tl_score_inherit(struct tl_score *child,
				const struct tl_score *parent)
{
	child->code = parent->code;
}

/* It calls exec. */
tl_inline void tl_score_exec(struct tl_score *s)
{
	s->code = 0;
}

/* A task leaves its CPU after run_ns without a context switch. Levels above
 * TL_LEVEL_MAX count as that. True if it says something about the task, or what is known of
 * its code does. */
tl_inline u32 tl_score_switch(struct tl_score *s, u32 before, u32 now,
			      u64 run_ns)
{
	u32 level = now > TL_LEVEL_MAX ? TL_LEVEL_MAX : now;
	u32 most = tl_score_most(s), void_score = s->score_q10 > most << 10;

	if (before > TL_LEVEL_MAX)
		before = TL_LEVEL_MAX;
	if (void_score)
		s->score_q10 = 0;
	if (level > most || !tl_score_counts(s, before, level, run_ns))
		return void_score;
	/* (L + 4 S) / 5, rounded */
	s->score_q10 = ((level << 10) + 4u * s->score_q10 + 2) / 5;
	if (s->nr_samples != ~0u)
		s->nr_samples++;
	return 1;
}

/* The level that the score speaks for: the nearest, or what is believed. */
tl_inline u32 tl_score_level(const struct tl_score *s)
{
	const u32 beyond = 512 + TL_SCORE_MARGIN_Q10;
	u32 score = s->score_q10, believed = (u32)s->level << 10;

	if (score >= believed + beyond)
		return (score + 1024 - beyond) >> 10;
	if (score + beyond <= believed)
		return (score + beyond) >> 10;
	return s->level;
}

#endif
