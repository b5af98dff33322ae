/* SPDX-License-Identifier: GPL-2.0 */
/* A timer for each CPU, in an array by CPU of what begins with one. */
#ifndef TL_TIMERS_BPF_H
#define TL_TIMERS_BPF_H

static __always_inline int create_timers(void *timers, void *fires)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		u32 key = cpu;
		struct bpf_timer *timer = bpf_map_lookup_elem(timers, &key);

		if (!timer)
			return -ENOENT;
		bpf_timer_init(timer, timers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(timer, fires);
	}
	return 0;
}

#endif
