/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arrivals: how a CPU knows that there is nothing for it, without looking.
 *
 * Problem: a CPU that has nothing to do goes through the queues of all LLCs,
 * then, when the kernel has marked it idle, once more: a task may have been
 * queued in between by somebody who found no idle CPU. Each queue costs 150
 * instructions, and most looks find nothing, as they did the last time.
 *
 * Idea: every LLC counts the tasks that enter its queues. A CPU that went
 * through all queues in vain notes the sum it read before that (quiet_at). As
 * long as the sum is the same nothing was queued since: tasks only get into a
 * queue by being counted, and whatever makes a queued task fit for more CPUs (a
 * new affinity, new classes) counts too. Then a CPU whose task gives it up does
 * not look, and a CPU that has just been marked idle sleeps.
 *
 * A CPU that wakes from idle always looks. The count comes first, the task is in
 * its queue only when ops.enqueue() has returned; in between a CPU may have
 * noted the new sum and not found the task. It is idle then, and is woken by
 * whoever queued:
 *
 *   queues a task               goes idle
 *   count                       read the sum
 *   look again for idle CPUs    go through the queues, note the sum
 *   ops.enqueue() returns:      be marked idle by the kernel
 *     the task is queued        read the sum: another one? look again
 *   kick who was found          (kicked: look again)
 *
 * Count and look, mark and read are each a full barrier apart: if the sum that
 * is read last is the old one, the idle CPU is found. If it is the new one when
 * it is read first, the CPU may be just between its task and idle when the
 * other looks: wide work, which has few CPUs to go to, kicks such a CPU too
 * (kick_victim()). Kicks are interrupts, sent after ops.enqueue() has returned.
 *
 * Limits: other work does not look for CPUs between task and idle. Other CPUs
 * of its class take it when their slice ends, and ticks of busy CPUs look for
 * tasks that wait although a CPU is idle (tl_find_overlooked()).
 */
#ifndef TL_ARRIVALS_BPF_H
#define TL_ARRIVALS_BPF_H

static __always_inline void count_arrival(u32 llc)
{
	__sync_fetch_and_add(&llcs[llc & (TL_LLCS_MAX - 1)].arrivals, 1);
}

/* Sum over all LLCs, + 1: never 0. */
static __always_inline u64 nr_arrivals(void)
{
	u64 sum = 1 + llcs[0].arrivals;
	u32 llc;

	if (nr_llcs > 1)
		bpf_for(llc, 1, nr_llcs)
			sum += llcs[llc & (TL_LLCS_MAX - 1)].arrivals;
	return sum;
}

#endif
