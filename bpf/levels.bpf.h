/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Licence levels of the CPU that a program runs on, from its counters.
 *
 * Problem: CORE_POWER.LVLn_TURBO_LICENSE count the cycles that a core spends at
 * each level. Whose cycles they were is known only where tasks change, in the
 * kernel, with a runqueue locked.
 *
 * Idea: user space opens the three counters of each CPU as one group and puts
 * them into a map; a program reads those of its own CPU, which the kernel lets
 * it do anywhere, and subtracts what they were the last time.
 *
 *   level_counters   | CPU 0: LVL0 LVL1 LVL2 | CPU 1: LVL0 LVL1 LVL2 | ...
 *
 * Interrupts must be off, so that no other program reads between a counter and
 * its note: as in a context switch, or in a timer's interrupt.
 *
 * Limits: a CPU whose counters were not put in (it came online later) has none.
 * Where the kernel takes turns with others' counters, sums are too small and
 * shares stay true, since the three are counted together.
 */
#ifndef TL_LEVELS_BPF_H
#define TL_LEVELS_BPF_H

#define TL_LEVELS 3u

/* The loader sets the number of entries, TL_LEVELS for each CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, TL_LEVELS);
	__type(key, u32);
	__type(value, u32);
} level_counters SEC(".maps");

struct level_notes {
	u64 cycles[TL_LEVELS];
	u64 noted; /* 1 once the counters were read */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct level_notes);
} level_notes SEC(".maps");

/*
 * Cycles of this CPU at each level since the last call here; false if there
 * was none, or there are no counters.
 */
static __always_inline bool tl_levels_since(u64 cycles[TL_LEVELS])
{
	u32 first = bpf_get_smp_processor_id() * TL_LEVELS;
	struct bpf_perf_event_value now;
	struct level_notes *notes;
	bool noted;
	u32 zero = 0;

	notes = bpf_map_lookup_elem(&level_notes, &zero);
	if (!notes)
		return false;
	noted = notes->noted;
	for (u32 level = 0; level < TL_LEVELS; level++) {
		if (bpf_perf_event_read_value(&level_counters, first + level,
					      &now, sizeof(now)))
			return false;
		cycles[level] = now.counter - notes->cycles[level];
		notes->cycles[level] = now.counter;
	}
	notes->noted = 1;
	return noted;
}

#endif
