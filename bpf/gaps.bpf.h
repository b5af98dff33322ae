/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks that stay on their wide CPU after a section (policy/gap.h), until a timer
 * fires.
 *
 * Ticks are too coarse for that: a stay lasts microseconds. Each CPU has a timer, which
 * is not set again while it runs: whoever begins to stay notes when the stay is over,
 * and a timer that fires early goes on for the rest. So a task with many short gaps sets
 * it once per break-even time. It fires in vain if a section has begun since: a mark has
 * cleared the note; a hint, which nobody has read, costs one look at the slot.
 *
 * A probe of kind uprobe may use no timer. It sets tc->look instead, as for a task that
 * must leave (detect.bpf.h), and the program at the probe's end sets the timer.
 *
 * The timer is a bpf_timer with the same limits as in slices.bpf.h: from Linux 7.0 on,
 * one more interrupt for each time that it is set with interrupts off.
 */
#ifndef TL_GAPS_BPF_H
#define TL_GAPS_BPF_H

struct gap_end {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TL_CPUS_MAX);
	__type(key, u32);
	__type(value, struct gap_end);
} gap_ends SEC(".maps");

/* By CPU: when its task has stayed for long enough, 0 = it does not stay; and whether
 * the timer runs. Written by the CPU itself, in a line of its own. */
struct gap_note {
	u64 over_ns;
	u32 runs;
} __attribute__((aligned(64))) gap_notes[TL_CPUS_MAX];

static __always_inline struct gap_note *gap_note_of(s32 cpu)
{
	return &gap_notes[cpu & (TL_CPUS_MAX - 1)];
}

/* The CPU's task has changed, or what is known of it: note until when it stays. Whether
 * the timer is to be set. */
static __always_inline bool note_gap(const struct tl_task *t, s32 cpu,
				     u64 now_ns)
{
	struct gap_note *note = gap_note_of(cpu);
	u64 left_ns;

	if (!(cfg.remigrate & TL_REMIGRATE_GAP) && !note->over_ns)
		return false;
	left_ns = tl_gap_left_ns(&t->gap, cfg.rest_below_ns);
	note->over_ns = left_ns ? now_ns + left_ns : 0;
	return left_ns && !note->runs;
}

/* The CPU's task stops. */
static __always_inline void forget_gap(s32 cpu)
{
	struct gap_note *note = gap_note_of(cpu);

	if (note->over_ns)
		note->over_ns = 0;
}

static __always_inline void set_gap_timer(s32 cpu, u64 ns)
{
	u32 key = cpu;
	struct gap_end *end = bpf_map_lookup_elem(&gap_ends, &key);

	if (!end)
		return;
	gap_note_of(cpu)->runs = 1;
	if (bpf_timer_start(&end->timer, ns, BPF_F_TIMER_CPU_PIN))
		gap_note_of(cpu)->runs = 0; /* the tick ends the stay */
}

/* The same, and set it. For programs that may. */
static __always_inline void time_gap(const struct tl_task *t, s32 cpu,
				     u64 now_ns)
{
	if (note_gap(t, cpu, now_ns))
		set_gap_timer(cpu, gap_note_of(cpu)->over_ns - now_ns);
}

static int gap_is_up(void *map, u32 *key, struct gap_end *end)
{
	s32 cpu = *key;
	struct gap_note *note = gap_note_of(cpu);
	u64 over_ns = note->over_ns, now_ns = bpf_ktime_get_ns();

	note->runs = 0;
	if (!over_ns)
		return 0;
	if (over_ns > now_ns) {
		set_gap_timer(cpu, over_ns - now_ns);
		return 0;
	}
	note->over_ns = 0;
	scx_bpf_kick_cpu(cpu, TL_KICK_PREEMPT);
	return 0;
}

static __always_inline int create_gap_timers(void)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		u32 key = cpu;
		struct gap_end *end = bpf_map_lookup_elem(&gap_ends, &key);

		if (!end)
			return -ENOENT;
		bpf_timer_init(&end->timer, &gap_ends, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&end->timer, gap_is_up);
	}
	return 0;
}

#endif
