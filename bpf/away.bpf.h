/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Away: while the policy stands by (policy/standby.h), the kernel's own scheduler is at
 * work, and ours is loaded but not attached. The loader lets go of it, and attaches it
 * again when it is to look.
 *
 *   loader:       TL_AWAY, detach                  attach       TL_AT_WORK
 *   ------------------------------+-------------+----------------------+---------
 *   callbacks, probes, timers     |  probes     |  tl_init: TL_COMING  |  all
 *                                 |             |  tl_init_task: each  |
 *                                 |             |  callbacks, timers   |
 *
 * Loading anew would take seconds, and lose what was learned of the tasks. What must
 * not be kept is what was true of queues and CPUs: the kernel has removed the queues,
 * and what ran has gone elsewhere. So tl_init sets all that back to how the loader
 * left it. Counters, which only grow, stay, and so do hint slots, and marked calls that
 * are open.
 *
 * Programs that the kernel still calls while away (probes, the bell of targets,
 * switches) find no task in try_lookup_here(), until all are taken. Timers do not start
 * again while it is away; tl_init starts that of the groups' passes.
 *
 * The board says so: no CPU is fit for wide code, and a library does not try to move.
 * The loader gives a sign of life there, because the kernel reports the loader's end
 * only to an attached scheduler.
 */
#ifndef TL_AWAY_BPF_H
#define TL_AWAY_BPF_H

#include "exposure.bpf.h"
#include "held.bpf.h"
#include "stays.bpf.h"

static __always_inline void begin_cpu(u32 cpu)
{
	struct tl_cpu *c = &cpus[cpu & (TL_CPUS_MAX - 1)];

	c->running_queue = TL_Q_NONE;
	c->running_clock = 0;
	c->inside = 0;
	c->to_choose = 0;
	c->quiet_at = 0;
	c->queued_shards = 0;
	c->turns = (struct tl_turns){};
	c->target = (struct tl_target){};
	__builtin_memset(c->charged_ns, 0, sizeof(c->charged_ns));
	c->foreign_ns = 0;
	c->foreign_clock = 0;
	c->pinned = (struct tl_clock){};
	c->looked_ns = 0;
	c->level = 0;
	cores[cpu & (TL_CPUS_MAX - 1)].levels = (struct tl_exposure){};
	stay_notes[cpu & (TL_CPUS_MAX - 1)].over_ns = 0;
	spent[cpu & (TL_CPUS_MAX - 1)] = (struct spent){};
}

static __always_inline void begin_shard(u32 shard)
{
	struct shard *s = &shards[shard & (TL_SHARDS_MAX - 1)];

	__builtin_memset(s->foreign_ns, 0, sizeof(s->foreign_ns));
	__builtin_memset(s->nr_tasks, 0, sizeof(s->nr_tasks));
	__builtin_memset(s->charged_ns, 0, sizeof(s->charged_ns));
	__builtin_memset(s->clock, 0, sizeof(s->clock));
	s->advanced_ns = 0;
}

/* Not static: so the verifier looks at it once. */
__noinline int tl_begin_group(u32 slot)
{
	struct group *group = lookup_group(slot);
	u32 i;

	if (!group)
		return 0;
	group->limiter = 0;
	group->is_out = 0;
	group->in_use = 0;
	group->is_touched = 0;
	group->has_queue = 0;
	group->has_held = 0;
	group->competing[0] = 0;
	group->competing[1] = 0;
	bpf_for(i, 0, TL_GROUP_SHARDS)
		group->shard[i & (TL_GROUP_SHARDS - 1)].load = 0;
	return 0;
}

/* From tl_init, before anything is created. */
static __noinline void begin_anew(void)
{
	u32 i;

	bpf_for(i, 0, nr_cpus)
		begin_cpu(i);
	bpf_for(i, 0, nr_shards)
		begin_shard(i);
	bpf_for(i, 0, nr_groups)
		tl_begin_group(i);
	sends_home = 0;
	nr_groups = 1;
	first_free = 1;
	bpf_for(i, 0, TL_OFFERS_MAX)
		offers[i & (TL_OFFERS_MAX - 1)].slot = 0;
	nr_offers = 0;
}

/* What the kernel has counted of a task. Where it counts no waits, all are 0. */
static __always_inline struct tl_kernel_use
kernel_counts(const struct task_struct *p)
{
	return (struct tl_kernel_use){
		.run_ns = p->se.sum_exec_runtime,
		.wait_ns = tl_run_delay(p),
		.moves = p->se.nr_migrations,
	};
}

/* The scheduler lets go of the task. */
static __always_inline void note_kernel_use(const struct task_struct *p,
					    struct task_ctx *tc)
{
	tc->kernel_before = kernel_counts(p);
}

/* The scheduler takes back the task, which it knew. Tasks that came or ended while it
 * was away are in no sum. */
static __always_inline void take_kernel_use(const struct task_struct *p,
					    struct task_ctx *tc)
{
	struct tl_kernel_use now = kernel_counts(p);

	tc->kernel_use.run_ns = now.run_ns - tc->kernel_before.run_ns;
	tc->kernel_use.wait_ns = now.wait_ns - tc->kernel_before.wait_ns;
	tc->kernel_use.moves = now.moves - tc->kernel_before.moves;
}

/* Sum that up by party, as known now; the loader has cleared the sums. */
SEC("iter/task")
int tl_sum_kernel_use(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct tl_kernel_use *sum;
	struct task_ctx *tc;
	u32 party;

	tc = p ? try_lookup_task(p) : NULL;
	if (!tc)
		return 0;
	party = tl_party(&tc->t.mix, tc->t.level, tl_task_gives_hints(&tc->t));
	sum = &kernel_use[party & (TL_NR_PARTIES - 1)];
	sum->run_ns += tc->kernel_use.run_ns;
	sum->wait_ns += tc->kernel_use.wait_ns;
	sum->moves += tc->kernel_use.moves;
	return 0;
}

/* The board of a scheduler that is away. */
static __always_inline void publish_away(void)
{
	struct tl_hint_board *board = lookup_board();
	u32 cpu;

	if (!board)
		return;
	board->header.alive_ns = bpf_ktime_get_ns();
	board->header.standing_by = 1;
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		board->cpu[cpu] = 0;
	}
	board->header.generation++;
}

/* The loader is there, and its scheduler is away. */
SEC("syscall")
int tl_give_sign(void *unused)
{
	struct tl_hint_board *board = lookup_board();

	if (board)
		board->header.alive_ns = bpf_ktime_get_ns();
	return 0;
}

/* The loader ends, and its scheduler is away. */
SEC("syscall")
int tl_withdraw(void *unused)
{
	struct tl_hint_board *board = lookup_board();

	if (board)
		board->header.active = 0;
	return 0;
}

#endif
