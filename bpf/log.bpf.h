/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the recorder's programs write: a log per CPU, and a ring as well.
 *
 * Problem: a record of 24 bytes is written in a nanosecond, but the kernel's
 * ring buffer takes 25 to reserve and submit it: a lock, interrupts off and on,
 * a check for readers that sleep. Only a CPU itself writes to its ring, so none
 * of it is needed.
 *
 * Idea: slots in memory that the recorder maps (crates/sched/src/record/log.rs),
 * and two counters.
 *
 *   logs[cpu]   written 7   read 3   busy 0
 *                                        v read        v written
 *   slots   | CPU 0's | CPU 1's:  ...  | 3 | 4 | 5 | 6 |  free  ... | ...
 *
 * The CPU fills slot `written` and then counts it: x86 lets no later store be
 * seen before an earlier one, so a counted record is complete. The recorder
 * counts what it has read, in the other counter.
 *
 * Interrupts: a program may be interrupted, between any two instructions, by
 * something that is recorded too. A program that finds the log busy has
 * interrupted such a program, and writes to the CPU's ring instead. A program
 * that finds it free may be interrupted before it sets `busy`, but then the
 * other one has finished before `written` is read. The same holds if a task is
 * preempted while the log is busy: its CPU's log waits for it, and others write
 * to the ring.
 *
 * A log is in order of time, as far as a CPU's clock is. A ring is nearly.
 *
 * The ring is also for records of other lengths.
 */
#ifndef TL_LOG_BPF_H
#define TL_LOG_BPF_H

#include <bpf/bpf_helpers.h>
#include "trace.h"

/* ---- set before load ---- */
const volatile u32 slots_shift; /* a CPU has 2^slots_shift slots */

struct tl_trace_log logs[TL_TRACE_CPUS_MAX];

/* The loader sets the number of entries. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct tl_trace_event);
} slots SEC(".maps");

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
};

/* The loader sets the number of entries and puts the rings in. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* Volatile: interrupts and the recorder look at each step. */
static __always_inline volatile struct tl_trace_log *log_of(u32 cpu)
{
	return &logs[cpu & (TL_TRACE_CPUS_MAX - 1)];
}

static __always_inline void count_lost(u32 cpu)
{
	__sync_fetch_and_add(&log_of(cpu)->lost, 1);
}

/* A record of this size on this CPU's ring, its head filled; or NULL. */
static __always_inline void *try_reserve(u64 size, u8 kind, u32 tid)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct tl_trace_event *event;

	event = ring ? bpf_ringbuf_reserve(ring, size, 0) : NULL;
	if (!event) {
		count_lost(cpu);
		return NULL;
	}
	event->at_ns = bpf_ktime_get_ns();
	event->tid = tid;
	event->cpu = cpu;
	event->kind = kind;
	event->flags = 0;
	return event;
}

/* Out of line, since it is rare. `at_ns` 0: now. */
static __noinline void emit_beside(u64 at_ns, u8 kind, u32 tid, u8 flags,
				   u64 arg)
{
	struct tl_trace_event *event = try_reserve(sizeof(*event), kind, tid);

	if (!event)
		return;
	if (at_ns)
		event->at_ns = at_ns;
	event->flags = flags;
	event->arg = arg;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* The slot after the last one that was written; NULL: it is not read yet. */
static __always_inline struct tl_trace_event *
try_slot(const volatile struct tl_trace_log *log, u32 cpu)
{
	u32 shift = slots_shift;
	u64 nr_slots = 1ull << shift, written = log->written;
	u32 index = (cpu << shift) + (written & (nr_slots - 1));

	if (written - log->read >= nr_slots)
		return NULL;
	return bpf_map_lookup_elem(&slots, &index);
}

/* `at_ns` 0: now. */
static __always_inline void emit_at(u64 at_ns, u8 kind, u32 tid, u8 flags,
				    u64 arg)
{
	u32 cpu = bpf_get_smp_processor_id();
	volatile struct tl_trace_log *log = log_of(cpu);
	struct tl_trace_event *event;

	if (log->busy) {
		emit_beside(at_ns, kind, tid, flags, arg);
		return;
	}
	log->busy = 1;
	event = try_slot(log, cpu);
	if (event) {
		event->at_ns = at_ns ?: bpf_ktime_get_ns();
		event->tid = tid;
		event->cpu = cpu;
		event->kind = kind;
		event->flags = flags;
		event->arg = arg;
		barrier();
		log->written++;
	} else {
		count_lost(cpu);
	}
	log->busy = 0;
}

static __always_inline void emit(u8 kind, u32 tid, u8 flags, u64 arg)
{
	emit_at(0, kind, tid, flags, arg);
}

#endif
