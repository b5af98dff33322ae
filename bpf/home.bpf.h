/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Home: before the scheduler goes because it stands by (away.bpf.h), each task goes back
 * to the CPU that it was taken from.
 *
 * Problem: an attempt to keep wide code apart moves tasks. If it fails, the kernel's own
 * scheduler gets them where they are then, and as long as each has a CPU of its own it
 * leaves them there: beside other siblings than it had chosen, for good.
 *
 *   loader:  tl_send_home     TL_GOING_HOME_NS later, and when every CPU has chosen
 *                             anew: TL_AWAY, detach
 *   ---------+----------------+---------
 *            what waits goes to its home's local queue; every CPU chooses anew;
 *            enqueue does the same with whatever stops or wakes
 *
 * A CPU of a virtual machine may be without a CPU of its host for longer than that time,
 * so one that runs a task notes whether it has chosen since (to_choose). It has when it
 * looks for a task, or starts one that was put on its local queue meanwhile, for which
 * it does not look.
 *
 * A task that does not get there in time stays where it is, and so does one that sleeps:
 * when that wakes, the kernel chooses a CPU for it anyway.
 */
#ifndef TL_HOME_BPF_H
#define TL_HOME_BPF_H

/* Where the task is to go before the scheduler goes; negative: wherever else it belongs. */
static __always_inline s32 home_of(const struct task_struct *p,
				   const struct task_ctx *tc)
{
	s32 home = tc->home;

	return sends_home && home >= 0 &&
			       bpf_cpumask_test_cpu(home, p->cpus_ptr) ?
		       home :
		       -1;
}

/* The same for a task that waits. Not static: see control.bpf.h. */
__noinline s32 tl_home_of(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tc = try_lookup_task(p);

	return tc ? home_of(p, tc) : -1;
}

__noinline int tl_send_queue_home(u32 id)
{
	struct task_struct *p;

	bpf_rcu_read_lock();
	tl_for_each_queued(p, id)
	{
		s32 home = tl_home_of(p);

		if (home >= 0)
			tl_scx_move(tl_queue_iter, p, TL_DSQ_LOCAL_ON | home);
	}
	bpf_rcu_read_unlock();
	return 0;
}

/* The CPU chooses a task. */
static __always_inline void note_choice(struct tl_cpu *c)
{
	if (sends_home && c->to_choose)
		c->to_choose = 0;
}

/* The scheduler is about to stand by. */
SEC("syscall")
int tl_send_home(void *unused)
{
	u32 shard, queue, cpu;

	sends_home = 1;
	bpf_for(shard, 0, nr_shards) {
		bpf_for(queue, 0, TL_NR_QUEUES)
			tl_send_queue_home(tl_queue_id(shard, queue));
	}
	bpf_for(cpu, 0, nr_cpus) {
		struct tl_cpu *c = &cpus[cpu & (TL_CPUS_MAX - 1)];

		/* not where nothing of ours runs: it is idle, offline, or a
		 * realtime task has it */
		c->to_choose = c->running_queue != TL_Q_NONE;
		scx_bpf_kick_cpu(cpu, TL_KICK_PREEMPT);
	}
	return 0;
}

#endif
