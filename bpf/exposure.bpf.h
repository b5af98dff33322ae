/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Exposure: what the levels of a core cost other code there (policy/exposure.h). It is
 * counted for automatic sizing, which may stand by (policy/standby.h). Nothing is
 * counted if the user has chosen the wide CPUs.
 *
 * A core's levels are written by its siblings, without atomic operations: if two write
 * at the same time, one write is lost until the next tick. Of several other siblings
 * only one is read.
 */
#ifndef TL_EXPOSURE_BPF_H
#define TL_EXPOSURE_BPF_H

#include "../policy/exposure.h"

/* By the core's lowest CPU: a line each. */
struct {
	struct tl_exposure levels;
} __attribute__((aligned(64))) cores[TL_CPUS_MAX];

static __always_inline struct tl_exposure *core_of(const struct tl_cpu *c)
{
	return &cores[c->core & (TL_CPUS_MAX - 1)].levels;
}

static __always_inline struct tl_losses *losses_of(const struct task_ctx *tc,
						   struct tl_cpu *c, u32 level)
{
	u32 party = tl_party(&tc->t.mix, level, tl_task_gives_hints(&tc->t));

	return &c->losses[party & (TL_NR_PARTIES - 1)];
}
_Static_assert(TL_NR_PARTIES == 4, "a mask keeps a party in bounds");

/* The task has run on the CPU for used_ns until now. This and those below are static:
 * kernels before 6.15 allow no other function where a program has disabled preemption. */
static __noinline int watch_run(struct task_ctx *tc, struct tl_cpu *c,
				u32 level, u64 used_ns, u64 now_ns)
{
	u32 sibling, shares;

	if (!tc || !c)
		return 0;
	tc->unread_ns += used_ns;
	sibling = c->sibling & (TL_CPUS_MAX - 1);
	shares = c->sibling != c->number &&
		 cpus[sibling].running_queue != TL_Q_NONE;
	tl_exposure_ran(core_of(c), losses_of(tc, c, level), level, shares,
			used_ns, now_ns);
	return 0;
}

/* What runs on the CPU is of this level from now on. A task that has a better CPU
 * leaves this one before it gets to its wide code. */
static __noinline int watch_level_now(struct task_ctx *tc, struct tl_cpu *c,
				      u32 level, u64 now_ns)
{
	u32 old;

	if (!tc || !c)
		return 0;
	if (level > c->class && tc->t.caps >> (level & 3))
		level = 0;
	old = c->level;
	if (!(old | level))
		return 0;
	c->level = level;
	if (tl_exposure_turns(core_of(c), old, level, now_ns))
		losses_of(tc, c, level)->raises++;
	return 0;
}

/* The running task's level has changed. */
static __always_inline void watch_turn(struct task_ctx *tc, struct tl_cpu *c,
				       u32 old_level, u64 now_ns)
{
	u32 level = tc->t.level;

	if (!watches)
		return;
	if (!old_level && level)
		losses_of(tc, c, level)->sections++;
	watch_level_now(tc, c, level, now_ns);
}

/* So many sections have begun since the task's hints were read last, the last of which
 * goes on if it wants a level: the others were not noticed. */
static __noinline int watch_missed(struct task_ctx *tc, struct tl_cpu *c,
				   u32 begun, u32 want, u64 now_ns)
{
	struct tl_losses *l;
	u64 span_ns;
	u32 nr;

	if (!tc || !c)
		return 0;
	if (want <= TL_LEVEL_MAX && want > tc->level_seen)
		tc->level_seen = want;
	span_ns = tc->unread_ns;
	tc->unread_ns = 0;
	nr = tl_exposure_nr_missed(begun, want && want <= TL_LEVEL_MAX,
				   span_ns);
	if (!nr)
		return 0;
	l = losses_of(tc, c, 1);
	l->sections += nr;
	l->raises += tl_exposure_missed(core_of(c), tc->level_seen ?: 1, nr,
					span_ns, now_ns);
	return 0;
}

/* The task starts on the CPU. */
static __always_inline void watch_start(struct task_ctx *tc, struct tl_cpu *c,
					u64 waited_ns, bool moves, u64 now_ns)
{
	struct tl_losses *l;

	if (!watches)
		return;
	l = losses_of(tc, c, tc->t.level);
	l->wait_ns += waited_ns;
	l->moves += moves;
	watch_level_now(tc, c, tc->t.level, now_ns);
}

/* It goes on, or stops. */
static __always_inline void watch_level(struct task_ctx *tc, struct tl_cpu *c,
					u32 level, u64 now_ns)
{
	if (watches)
		watch_level_now(tc, c, level, now_ns);
}

#endif
