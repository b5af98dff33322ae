/* SPDX-License-Identifier: GPL-2.0 */
/*
 * If no CPU is idle for wide work: preempt what has less right to a wide CPU
 * (tl_victim_rank).
 *
 * The list of wide CPUs is walked from the task's own shard on, TL_VICTIM_LOOKS of
 * them at most: a walk through all CPUs of a large machine, with interrupts off,
 * reads as many cache lines that their owners write. A CPU that the walk misses
 * gives up its guest at its own next tick (guest_should_go).
 */
#ifndef TL_VICTIMS_BPF_H
#define TL_VICTIMS_BPF_H

#define TL_VICTIM_LOOKS 16u

/* Wake the CPU if it is idle by the time the task is in its queue: it may be about
 * to become idle and have looked too early, see arrivals.bpf.h. */
static __always_inline void kick_between(const struct tl_cpu *c, s32 cpu,
					 u32 need)
{
	if (c->running_queue == TL_Q_NONE && c->class >= need &&
	    c->class < TL_NR_CLASSES)
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
}

/* Whether there is such. */
static __always_inline bool kick_victim(const struct task_struct *p, u32 need,
					u32 shard, u32 arrives)
{
	u32 best = 0, limit = tl_victim_best(need), nr = nr_wide_cpus, i;
	u32 first = shard_wide_at[shard & (TL_SHARDS_MAX - 1)];
	u32 here = bpf_get_smp_processor_id();
	s32 victim = -1;

	if (nr > TL_CPUS_MAX)
		return false;
	bpf_for(i, 0, nr < TL_VICTIM_LOOKS ? nr : TL_VICTIM_LOOKS) {
		u32 at = first + i < nr ? first + i : first + i - nr;
		u32 cpu = wide_cpus[at & (TL_CPUS_MAX - 1)] & (TL_CPUS_MAX - 1);
		u32 rank;

		cpus[here & (TL_CPUS_MAX - 1)].victim_looks++;
		kick_between(&cpus[cpu], cpu, need);
		rank = tl_victim_rank(need, cpus[cpu].class,
				      cpus[cpu].running_queue, arrives);
		if (rank <= best || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		best = rank;
		victim = cpu;
		if (rank >= limit)
			break;
	}
	cpus[here & (TL_CPUS_MAX - 1)].victim_walks++;
	if (victim < 0)
		return false;
	/* the next one that looks for a victim must find another */
	cpus[victim & (TL_CPUS_MAX - 1)].running_queue = TL_Q_WIDE + need - 1;
	cpus[victim & (TL_CPUS_MAX - 1)].preemptions++;
	scx_bpf_kick_cpu(victim, TL_KICK_PREEMPT);
	return true;
}

#endif
