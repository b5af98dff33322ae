/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Power scores (policy/score.h) from licence counters: which tasks ask for
 * which level, where no hint, mark or trap says so.
 *
 * The kernel's scheduler is about to choose what runs next on this CPU, with
 * interrupts off. What level the CPU has at this moment is seen as the paper's
 * prototype sees it: all counters are read twice in a row, and the one that
 * went on between the reads names the level (DIM 5.2 rule 2). From one such
 * look to the next the same task has run; what its score says now counts before
 * stopping() and enqueue() ask where the task belongs.
 *
 * This is a tracing program, because the scheduler's programs may not read counters. The
 * function that it watches is called first thing by __schedule(), whether or
 * not another task is chosen, and is a global one of RCU.
 *
 * The loader looks through the files of processes that have a score (crates/sched/src/questions/
 * code.rs), and leaves in code_levels what it has found; tl_know_code() gives it to their
 * tasks, by rule 5 of policy/score.h.
 *
 * Cost: six reads of a counter at each call of the scheduler.
 *
 * Limits: those of the score. While the kernel takes turns with others'
 * counters, and on a CPU without, there is no look: the next one then is of a
 * time in which more than one task may have run, and says nothing.
 */
#ifndef TL_SCORE_BPF_H
#define TL_SCORE_BPF_H

#include "levels.bpf.h"

#define TL_LEVEL_UNKNOWN TL_LEVELS

/* By process: tl_score.code of its tasks. Emptied when they have it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_CODE_LEVELS_MAX);
	__type(key, u32);
	__type(value, u32);
} code_levels SEC(".maps");

/* This CPU's level at this moment. */
static __always_inline u32 level_now(void)
{
	u64 cycles[TL_LEVELS] = {};
	u32 level;

	if (!tl_levels_since(cycles) || !tl_levels_since(cycles))
		return TL_LEVEL_UNKNOWN;
	level = cycles[1] > cycles[0];
	if (cycles[2] > cycles[level])
		level = 2;
	return cycles[level] ? level : TL_LEVEL_UNKNOWN;
}

/* The current task ran from the last look to this one. */
static __always_inline void score_run(struct here *h, u32 before, u32 now,
				      u64 since_ns, u64 now_ns)
{
	struct tl_score *score = &h->tc->t.score;
	u32 level;

	if (!tl_score_switch(score, before, now, now_ns - since_ns))
		return;
	level = tl_score_level(score);
	if (level == score->level)
		return;
	h->c->score_events++;
	tl_tell(h->tc, h->c, TL_EV_SCORE, level, now_ns);
}

SEC("?fentry/rcu_note_context_switch")
int BPF_PROG(tl_feed_score, bool preempted)
{
	u32 before, now, cpu = bpf_get_smp_processor_id();
	u64 since_ns, now_ns;
	struct here h;

	if (cpu >= TL_CPUS_MAX || away)
		return 0;
	now = level_now();
	now_ns = bpf_ktime_get_ns();
	before = cpus[cpu].license_level;
	since_ns = cpus[cpu].looked_ns;
	cpus[cpu].license_level = now;
	cpus[cpu].looked_ns = now_ns;
	if (!since_ns || before == TL_LEVEL_UNKNOWN || now == TL_LEVEL_UNKNOWN)
		return 0;
	/* kernel threads: see policy/score.h */
	if (!try_lookup_here(&h) || (h.p->flags & PF_KTHREAD))
		return 0;
	score_run(&h, before, now, since_ns, now_ns);
	return 0;
}

/* Each task takes it into account at its next switch. */
SEC("iter/task")
int tl_know_code(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct task_ctx *tc;
	u32 tgid, *code;

	if (!p)
		return 0;
	tgid = p->tgid;
	code = bpf_map_lookup_elem(&code_levels, &tgid);
	tc = code ? try_lookup_task(p) : NULL;
	if (tc)
		tc->t.score.code = *code;
	return 0;
}

SEC("?tp_btf/sched_process_exec")
int BPF_PROG(tl_new_program, struct task_struct *p)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (tc)
		tl_score_exec(&tc->t.score);
	return 0;
}

#endif
