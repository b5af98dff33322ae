/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the tracing programs (trace.bpf.c) send to the recorder (crates/sched,
 * record/). The skeleton generates the Rust side from this header's BTF.
 *
 * A record is 24 bytes, and each kind says what its fields hold:
 *
 *   kind          tid of     flags                 arg
 *   SWITCH        outgoing   why, bound            next's tid, lane of both
 *   WAKE          woken      new, off              waker, CPU of the woken
 *   MIGRATE       task       0                     to, from
 *   FORK          child      0                     parent's tid, child's tgid
 *   EXIT          task       0                     0
 *   SYSCALL       task       0                     number
 *   SYSRET        task       0                     what it returned
 *   MARK          task       0                     number of the mark
 *   MARK_RETURN   task       0                     number of the mark
 *   TRAP          task       licence level         address of the instruction
 *   NAME          task       0                     tgid; struct tl_trace_name
 *   AFFINITY      task       0                     words; struct tl_trace_cpus
 *   STALL         0          0                     ns since the last beat
 *   LEVEL         task       licence level         core cycles at it
 *
 *              63        40 39      32 31             0
 *   SWITCH    +------------+----------+----------------+
 *             | lane: next | lane:prev|   next's tid   |
 *             +------------+----------+----------------+
 *   lane: 7 known, 6..4 level, 3..0 type of policy/types.h
 *
 *   the others with two values: the first in the low half
 */
#ifndef TL_TRACE_H
#define TL_TRACE_H

#define TL_TRACE_CPUS_MAX 1024u
#define TL_TRACE_WORDS_MAX (TL_TRACE_CPUS_MAX / 64)

enum tl_trace_kind {
	TL_TRACE_SWITCH = 1,
	TL_TRACE_WAKE = 2,
	TL_TRACE_MIGRATE = 3,
	TL_TRACE_FORK = 4,
	TL_TRACE_EXIT = 5,
	TL_TRACE_SYSCALL = 6,
	TL_TRACE_SYSRET = 7,
	TL_TRACE_MARK = 8,
	TL_TRACE_MARK_RETURN = 9,
	TL_TRACE_TRAP = 10,
	TL_TRACE_NAME = 11, /* it has this name from now on */
	TL_TRACE_AFFINITY = 12,
	TL_TRACE_STALL = 16,
	TL_TRACE_LEVEL = 17,
};

/* flags of SWITCH: why the task stopped */
#define TL_TRACE_PREEMPTED 0u
#define TL_TRACE_SLEEPS 1u /* interruptible */
#define TL_TRACE_BLOCKS 2u /* uninterruptible */
#define TL_TRACE_ENDS 3u
#define TL_TRACE_WHY 3u
#define TL_TRACE_BOUND 4u /* it may not migrate now */

/* flags of WAKE */
#define TL_TRACE_NEW 1u /* for the first time */
#define TL_TRACE_OFF 2u /* it sleeps, or will have stopped in a moment */

/* The lane's part of SWITCH. */
#define TL_TRACE_LANE_KNOWN 0x80u

struct tl_trace_event {
	u64 at_ns; /* CLOCK_MONOTONIC */
	u32 tid;
	u16 cpu; /* on which it was seen */
	u8 kind; /* enum tl_trace_kind */
	u8 flags;
	u64 arg;
};

/* What a CPU has written (log.bpf.h); a line of the cache. */
struct tl_trace_log {
	u64 written; /* records in all; by the CPU */
	u64 read;    /* of these; by the recorder */
	u64 busy;    /* 1 a program is about to write; by the CPU */
	u64 lost;    /* records dropped, those for the ring too; by the CPU */
	u64 unused[4];
} __attribute__((aligned(64)));

struct tl_trace_name {
	struct tl_trace_event event;
	char name[16];
};

struct tl_trace_cpus {
	struct tl_trace_event event;
	u64 words[TL_TRACE_WORDS_MAX]; /* as many as arg says */
};

/* What the iterator over all tasks writes, one after the other. */
struct tl_trace_task {
	u32 tid;
	u32 tgid;
	u32 parent_tgid;
	u16 cpu;    /* on which it runs, waits or ran last */
	u8 kernel;  /* 1 a kernel thread */
	u8 running; /* 1 it runs */
	char name[16];
	u64 words[TL_TRACE_WORDS_MAX]; /* its affinity */
};

/* Argument of the syscall program tl_trace_follow. */
struct tl_trace_follow_args {
	u32 tid;
	u32 follow; /* 1 record this task and its children, 0 no longer */
};

_Static_assert(sizeof(struct tl_trace_event) == 24, "no holes");
_Static_assert(sizeof(struct tl_trace_log) == 64, "one line");
_Static_assert(sizeof(struct tl_trace_name) == 40, "no holes");
_Static_assert(sizeof(struct tl_trace_task) == 160, "no holes");

#endif
