/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Slices that end between two ticks.
 *
 * Problem: the kernel ends the slice of a task of ours at a tick, however short the
 * slice is. Where thousands of tasks wait for a CPU, a tick for each of them is
 * longer than the kernel's watchdog lets a task wait: any user could end the
 * scheduler by starting that many.
 *
 * Idea: a timer per CPU. It is started with a task's slice where the policy says
 * that ticks would be too late (tl_slice_needs_timer), which no ordinary load needs,
 * and makes its CPU choose again when it fires. The policy decides again then: the
 * timer may belong to a task that has gone, and the CPU's task to a queue that needs
 * no timer.
 *
 * The timer is pinned to its CPU. From Linux 7.0 on, a program with interrupts off,
 * as ours are, starts it through an interrupt to its own CPU: one more for each
 * switch, while there are so many tasks.
 */
#ifndef TL_SLICES_BPF_H
#define TL_SLICES_BPF_H

#include "timers.bpf.h"

struct slice_end {
	struct bpf_timer timer;
	u64 at_ns; /* when the slice of the CPU's task ends */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TL_CPUS_MAX);
	__type(key, u32);
	__type(value, struct slice_end);
} slice_ends SEC(".maps");

static __always_inline bool needs_timer(u32 id)
{
	struct load load;

	if (!id)
		return false;
	load = load_of(id);
	return tl_slice_needs_timer(load.nr_tasks, load.nr_cpus);
}

/* The CPU's task, from the queue with this id (0: none), has this slice from now
 * on. */
static __always_inline void time_slice(s32 cpu, u32 id, u64 slice_ns,
				       u64 now_ns)
{
	struct slice_end *end;
	u32 key = cpu;

	if (!needs_timer(id))
		return;
	end = bpf_map_lookup_elem(&slice_ends, &key);
	if (!end)
		return;
	end->at_ns = now_ns + slice_ns;
	bpf_timer_start(&end->timer, slice_ns, BPF_F_TIMER_CPU_PIN);
}

static int slice_is_over(void *map, u32 *cpu, struct slice_end *end)
{
	u32 id = cpus[*cpu & (TL_CPUS_MAX - 1)].running_clock;

	if (away != TL_AWAY && bpf_ktime_get_ns() >= end->at_ns &&
	    needs_timer(id))
		scx_bpf_kick_cpu(*cpu, TL_KICK_PREEMPT);
	return 0;
}

static __always_inline int create_slice_timers(void)
{
	return create_timers(&slice_ends, slice_is_over);
}

#endif
