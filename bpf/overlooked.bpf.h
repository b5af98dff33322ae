/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The later look: a CPU that has queued tasks makes sure that no idle CPU has
 * overlooked them (arrivals.bpf.h).
 */
#ifndef TL_OVERLOOKED_BPF_H
#define TL_OVERLOOKED_BPF_H

/* Tasks of a queue for which a later look looks for idle CPUs. Those at the head
 * may be bound to busy ones. */
#define TL_LOOK_AHEAD 8

/* Kick the shard's other CPUs that are between task and idle: they may have looked
 * too early; and those that are idle beside tasks pinned to them. */
__noinline int tl_kick_those_between(u32 shard)
{
	const struct cpumask *idle;
	u32 first, i, here = bpf_get_smp_processor_id();
	int kicked = 0;

	if (shard >= TL_SHARDS_MAX)
		return 0;
	idle = scx_bpf_get_idle_cpumask();
	first = shard_cpus[shard].first;
	bpf_for(i, 0, shard_cpus[shard].nr) {
		u32 cpu = cpu_at[(first + i) & (TL_CPUS_MAX - 1)] &
			  (TL_CPUS_MAX - 1);

		if (cpus[cpu].running_queue != TL_Q_NONE ||
		    cpus[cpu].class >= TL_NR_CLASSES || cpu == here)
			continue;
		if (bpf_cpumask_test_cpu(cpu, idle) &&
		    !nr_queued(tl_pinned_id(cpu)))
			continue;
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
		kicked++;
	}
	scx_bpf_put_idle_cpumask(idle);
	return kicked;
}

/* Claim and wake idle CPUs for the tasks that wait in this shard. Returns for how
 * many there was one. */
__noinline int tl_find_overlooked(u32 shard)
{
	struct task_struct *p;
	u32 queue;
	int found = 0;

	bpf_for(queue, 0, TL_NR_QUEUES) {
		u32 id = tl_queue_id(shard, queue), seen = 0;

		if (!nr_queued(id))
			continue;
		tl_for_each_queued(p, id)
		{
			struct task_ctx *tc = try_lookup_task(p);
			s32 cpu = -1;

			if (tc)
				cpu = claim_idle(p, tc, scx_bpf_task_cpu(p));
			if (cpu >= 0) {
				scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
				found++;
			}
			if (++seen >= TL_LOOK_AHEAD)
				break;
		}
	}
	return found;
}

/* The CPU looks after what it has queued since it last did so, and after the tasks
 * of these shards. */
static __always_inline void look_after_queued(struct tl_cpu *c, u64 which)
{
	u64 noted = 0;
	u32 shard;

	if (c->queued_shards) /* a full barrier after it has queued */
		noted = __sync_lock_test_and_set(&c->queued_shards, 0);
	if (noted) {
		which |= noted;
		bpf_for(shard, 0, nr_shards) {
			if (!(noted >> (shard & (TL_SHARDS_MAX - 1)) & 1))
				continue;
			count_arrival(shard);
			tl_kick_those_between(shard);
		}
	}
	if (!which || !is_any_idle())
		return;
	bpf_for(shard, 0, nr_shards) {
		if (which >> (shard & (TL_SHARDS_MAX - 1)) & 1)
			c->overlooked += tl_find_overlooked(shard);
	}
}

#endif
