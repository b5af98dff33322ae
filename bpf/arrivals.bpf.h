/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arrivals: how a CPU knows that there is nothing for it, without looking.
 *
 * Problem: a CPU that has nothing to do goes through the queues of all shards,
 * then, when the kernel has marked it idle, once more: in between, another CPU
 * may have queued a task because it found no idle CPU. Each queue costs 150
 * instructions, and most looks find nothing, as they did the last time.
 *
 * Idea: every shard counts the tasks that enter its queues. A CPU that went
 * through all queues in vain notes the sum (quiet_at). As long as the sum is the
 * same nothing was queued since: tasks only get into a queue by being counted,
 * and whatever makes a queued task fit for more CPUs (a new affinity, new
 * classes) counts too. Then a CPU whose task gives it up does not look, and a CPU
 * that has just been marked idle sleeps.
 *
 * A count is a write to a line that many CPUs read, and on a busy machine, where
 * no look is in vain, no CPU compares it. So the lowest bit of a shard's word says
 * that it is watched. A CPU sets the bits of the words whose sum it is about to
 * note. A CPU that queues counts only if the bit is set; adding 1 counts and clears
 * the bit. A noted sum is made of words with the bit set: a word without it is in
 * no CPU's sum. Words only grow, so a sum that is the same says that each word
 * is.
 *
 * A CPU that wakes from idle always looks. The count comes first, the task is in
 * its queue only when ops.enqueue() has returned; in between a CPU may go through
 * the queues, not find the task, and note the new sum:
 *
 *   queues a task               goes idle
 *   count, if watched           is between task and idle (running_queue)
 *   look again for idle CPUs    read the sum, go through the queues
 *   ops.enqueue() returns:      watch: if the sum is another one now,
 *     the task is queued          go through the queues once more
 *   kick the CPU found          note the sum, be marked idle by the kernel
 *   later: look after it        read the sum: another one? look again
 *
 * Count and look, mark and read are each a full barrier apart: if the sum that
 * is read last is the old one, the idle CPU is found. If it is the new one when
 * it is watched, the CPU may be between its task and idle when the other looks.
 * So the CPU that queues a task notes the shard, and looks once more when the task
 * is certainly in its queue: at its next callback, which is its next tick or when
 * it goes idle; a CPU that queues in an interrupt while it idles sends itself
 * there. That look counts again, if the
 * shard is watched, for CPUs that run and have noted the sum too early; kicks the
 * CPUs between task and idle of that shard (kicks are decided under the CPU's own
 * lock: one that has become idle looks again, one that runs a task need not);
 * then claims idle CPUs for the tasks that wait (tl_find_overlooked()). Wide work,
 * which has few CPUs to go to, kicks those in between at once (kick_victim()).
 *
 * A CPU whose task could go on watches and compares its own shard only: a task
 * that waits elsewhere has CPUs of its own, and help (policy/locality.h) may
 * come a slice later.
 *
 * tests/loom (arrivals.rs) goes through the orders of these steps. It finds a
 * lost task if any of these is left out: the comparison when idle, the look after
 * a word was first watched, any part of the later look. The second look when a task
 * is queued only saves time.
 *
 * Limits: the later look goes through the first tasks of each queue only
 * (TL_LOOK_AHEAD), and kicks CPUs of the shard and wide ones only. Ticks repeat
 * it, one shard after the other. A CPU that looks in vain while others queue looks
 * twice.
 */
#ifndef TL_ARRIVALS_BPF_H
#define TL_ARRIVALS_BPF_H

/* A noted sum may include this word. */
#define TL_WATCHED 1

/* Something other than a new task: certainly, and whether it is watched or not. */
static __always_inline void count_change(u32 shard)
{
	count_shared_atomic();
	__sync_fetch_and_add(&shards[shard & (TL_SHARDS_MAX - 1)].arrivals,
			     2 * TL_WATCHED);
}

/* A task enters a queue of the shard, or has entered it, a full barrier ago. If two
 * CPUs count at a time, the bit stays set, and one arrival more is counted than needed. */
static __always_inline void count_arrival(u32 shard)
{
	struct shard *s = &shards[shard & (TL_SHARDS_MAX - 1)];

	if (!(s->arrivals & TL_WATCHED))
		return;
	count_shared_atomic();
	__sync_fetch_and_add(&s->arrivals, TL_WATCHED);
}

/* Returns the word as it was when it was watched. If it were read again, it might
 * have been counted since, and the sum would hold a word that is not watched. */
static __always_inline u64 watch_shard(u32 shard)
{
	struct shard *s = &shards[shard & (TL_SHARDS_MAX - 1)];
	u64 word = *(volatile u64 *)&s->arrivals; /* once */

	if (word & TL_WATCHED)
		return word;
	count_shared_atomic();
	return __sync_fetch_and_or(&s->arrivals, TL_WATCHED) | TL_WATCHED;
}

/* This CPU queues a task in this shard: it is to look after it. The idle task
 * has no tick. */
static __always_inline void note_queued(u32 shard)
{
	u32 here = bpf_get_smp_processor_id();

	if (here >= TL_CPUS_MAX)
		return;
	cpus[here].queued_shards |= 1ull << (shard & (TL_SHARDS_MAX - 1));
	if (!bpf_get_current_task_btf()->pid)
		scx_bpf_kick_cpu(here, TL_KICK_IDLE);
}

/* Of one shard, + 1: never 0. */
static __always_inline u64 nr_arrivals_at(u32 shard)
{
	return 1 + shards[shard & (TL_SHARDS_MAX - 1)].arrivals;
}

/* Sum over all shards, + 1: never 0. */
static __always_inline u64 nr_arrivals(void)
{
	u64 sum = 1 + shards[0].arrivals;
	u32 shard;

	if (nr_shards > 1)
		bpf_for(shard, 1, nr_shards)
			sum += shards[shard & (TL_SHARDS_MAX - 1)].arrivals;
	return sum;
}

/* Watch all shards, or one; returns their sum. If it is not the sum that was read
 * before the queues were looked through, they must be once more. */
static __always_inline u64 watch_arrivals(bool all, u32 own)
{
	u64 sum = 1;
	u32 shard;

	if (!all)
		return 1 + watch_shard(own);
	bpf_for(shard, 0, nr_shards)
		sum += watch_shard(shard);
	return sum;
}

#endif
