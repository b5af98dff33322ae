/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that stay on their wide CPU without an open section (policy/gap.h, stay.h),
 * until a timer fires.
 *
 * Ticks are too coarse for that: a stay lasts microseconds. Each CPU has a timer, which
 * is not set again while it runs: a task that begins to stay notes when the stay is over,
 * and a timer that fires early goes on for the rest. So a task with many short gaps sets
 * it once per break-even time. It fires in vain if a section has begun since: a mark has
 * cleared the note; a hint, which has not been read yet, costs one look at the slot.
 *
 * A probe of kind uprobe may use no timer. It sets tc->look instead, as for a task that
 * must leave (detect.bpf.h), and the program at the probe's end sets the timer.
 *
 * The timer is a bpf_timer with the same limits as in slices.bpf.h: from Linux 7.0 on,
 * one more interrupt for each time that it is set with interrupts off.
 */
#ifndef TL_STAYS_BPF_H
#define TL_STAYS_BPF_H

#include "timers.bpf.h"

struct stay_end {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TL_CPUS_MAX);
	__type(key, u32);
	__type(value, struct stay_end);
} stay_ends SEC(".maps");

/* By CPU: when its task has stayed for long enough, 0 = it does not stay; and whether
 * the timer runs. Written by the CPU itself, in a line of its own. */
struct stay_note {
	u64 over_ns;
	u32 runs;
} __attribute__((aligned(64))) stay_notes[TL_CPUS_MAX];

static __always_inline struct stay_note *stay_note_of(s32 cpu)
{
	return &stay_notes[cpu & (TL_CPUS_MAX - 1)];
}

/* The CPU's task has changed, or what is known of it: note until when it stays. Not while
 * all CPUs take everything: then there is no CPU to leave for. Whether the timer is to
 * be set. */
static __always_inline bool note_stay(const struct tl_task *t, s32 cpu,
				      u64 now_ns)
{
	struct stay_note *note = stay_note_of(cpu);
	u64 left_ns;

	left_ns = classes_present > 1 ? tl_task_stays_ns(t, &cfg) : 0;
	if (!left_ns && !note->over_ns)
		return false;
	note->over_ns = left_ns ? now_ns + left_ns : 0;
	return left_ns && !note->runs;
}

/* The CPU's task stops. */
static __always_inline void forget_stay(s32 cpu)
{
	struct stay_note *note = stay_note_of(cpu);

	if (note->over_ns)
		note->over_ns = 0;
}

static __always_inline void set_stay_timer(s32 cpu, u64 ns)
{
	u32 key = cpu;
	struct stay_end *end = bpf_map_lookup_elem(&stay_ends, &key);

	if (!end)
		return;
	stay_note_of(cpu)->runs = 1;
	if (bpf_timer_start(&end->timer, ns, BPF_F_TIMER_CPU_PIN))
		stay_note_of(cpu)->runs = 0; /* the tick ends the stay */
}

/* The same, and set it. For programs that may. */
static __always_inline void time_stay(const struct tl_task *t, s32 cpu,
				      u64 now_ns)
{
	if (note_stay(t, cpu, now_ns))
		set_stay_timer(cpu, stay_note_of(cpu)->over_ns - now_ns);
}

static int stay_is_up(void *map, u32 *key, struct stay_end *end)
{
	s32 cpu = *key;
	struct stay_note *note = stay_note_of(cpu);
	u64 over_ns = note->over_ns, now_ns = bpf_ktime_get_ns();

	note->runs = 0;
	if (!over_ns || away == TL_AWAY)
		return 0;
	if (over_ns > now_ns) {
		set_stay_timer(cpu, over_ns - now_ns);
		return 0;
	}
	note->over_ns = 0;
	scx_bpf_kick_cpu(cpu, TL_KICK_PREEMPT);
	return 0;
}

static __always_inline int create_stay_timers(void)
{
	return create_timers(&stay_ends, stay_is_up);
}

#endif
