/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the scheduler shares with the program that loaded it (crates/sched).
 * The skeleton generates the Rust side from this header's BTF.
 */
#ifndef TL_LANE_H
#define TL_LANE_H

#include "../policy/exposure.h"
#include "../policy/locality.h"
#include "../policy/target.h"
#include "../policy/wake.h"

/*
 * One CPU: what it is, what it does, what it has counted. Written by the CPU
 * itself except class, shard and scope; read by all. Counters only grow.
 */
struct tl_cpu {
	/* what it is; by the loader before it applies the classes */
	/* highest level that may run here, 0 = scalar; or TL_CLASS_NONE */
	u32 class;
	u32 shard; /* index of the CPUs that it shares queues with */
	/* its last-level cache and its node as scopes (classes.bpf.h); 0 where
	 * that would be the entire machine */
	u16 scope[2];
	/* its own number; the lowest CPU of its core; the next one of its core,
	 * its own number if there is none */
	u16 number;
	u16 core;
	u16 sibling;
	/* what it does */
	u32 running_queue; /* enum tl_queue of its task, TL_Q_NONE = none */
	/* queue id whose clock its task is on, 0 = none */
	u32 running_clock;
	/* a task waits here that was switched out with migration disabled;
	 * see inside.bpf.h */
	u32 inside;
	u32 looks; /* looks for work; wraps */
	/* 1: it has not chosen a task since it was to send its own home; see
	 * home.bpf.h */
	u32 to_choose;
	u32 helped; /* which other shard it compares itself with next */
	/* arrivals when it last found no work, 0 = it found some; see
	 * arrivals.bpf.h */
	u64 quiet_at;
	/* bit i: it has queued a task in shard i and not looked after it since;
	 * see arrivals.bpf.h */
	u64 queued_shards;
	struct tl_turns turns;	 /* of the queues that it serves */
	struct tl_run run;	 /* its task, for who comes */
	struct tl_target target; /* what was sent to its governor */
	/* by queue of its shard: what its tasks have used, on their clocks; of
	 * clocks.bpf.h */
	u64 charged_ns[TL_NR_QUEUES];
	/* what tasks on another shard's clock have used here and that clock does
	 * not know yet, and which clock that is */
	u64 foreign_ns;
	u32 foreign_clock;
	struct tl_clock pinned; /* clock of the tasks pinned to it */
	/* where scores are fed, see score.bpf.h: its licence level at the last
	 * look, and when that was, 0 = never */
	u32 license_level;
	u64 looked_ns;
	u32 level; /* of what runs here, where that is watched (exposure.bpf.h) */
	/* what it has counted */
	/* by tl_kind(): CPU time, time that tasks which started here had waited,
	 * tasks started */
	u64 run_ns[TL_NR_KINDS];
	u64 wait_ns[TL_NR_KINDS];
	u64 runs[TL_NR_KINDS];
	u64 mix_wait_ns; /* of time waited, for wide code (policy/mix.h) */
	/* wide tasks' time here although the class is too low: affinity left
	 * no other CPU */
	u64 degraded_ns;
	/* wide tasks' time here in the kernel, before they move to a wide CPU */
	u64 leaving_ns;
	u64 guest_ns;	/* scalar tasks' time on this wide CPU */
	u64 migrations; /* tasks started that ran elsewhere before */
	u64 to_wide;	/* of them wide ones, from a CPU too low for them */
	u64 from_wide;	/* of them others, from a wide CPU to this scalar one */
	u64 misfits;	/* tasks started here that were sent on */
	u64 type_changes;   /* by events seen on this CPU */
	u64 hint_events;    /* hint begin/end events */
	u64 mark_events;    /* entries to and returns from marks */
	u64 trap_events;    /* from the trap module */
	u64 score_events;   /* tasks whose score spoke for another level */
	u64 heuristic_ends; /* periods ended by a heuristic or timeout */
	u64 preemptions;    /* kicks sent to displace non-wide work */
	/* searches for a victim, and CPUs that they looked at */
	u64 victim_walks;
	u64 victim_looks;
	/* atomic operations on lines that other CPUs write, too */
	u64 shared_atomics;
	u64 steals; /* tasks taken from another shard's queue */
	/* ticks that saw wide code where it must not be (degraded tasks not
	 * counted, nor those that reported at this tick or are leaving) */
	u64 tick_wide_on_scalar;
	/* tasks that waited while a CPU for them was idle, found by this
	 * CPU's later looks */
	u64 overlooked;
	u64 target_changes; /* new targets sent to its governor */
	u64 ticks;
	/* by enum tl_party; only where automatic sizing may stand by */
	struct tl_losses losses[TL_NR_PARTIES];
} __attribute__((aligned(64)));

/*
 * What a task has done since the scheduler first saw it. Counters only grow.
 * Written by the CPU that it runs on.
 */
struct tl_task_sums {
	u64 run_ns;	  /* CPU time */
	u64 wide_run_ns;  /* CPU time as a wide task */
	u64 level_run_ns; /* its level, summed over its CPU time */
	u32 migrations;	  /* starts on another CPU than before; wraps */
	u32 traps;	  /* its events from the trap module; wraps */
};

/*
 * One task, as the iterator tl_list_tasks writes it.
 *
 *   0       8         16                 48    52     56        64   68
 *   +-------+---------+------------------+-----+------+---------+----+------+
 *   | start | counted | struct           | tid | tgid | score   | cpu| comm |
 *   |       |         | tl_task_sums     |     |      |         |    | [16] |
 *   +-------+---------+------------------+-----+------+---------+----+------+
 *   84: type, level, two bytes 0; 88 in all
 *
 * The Rust twin is crates/sched/src/tasks.rs.
 */
struct tl_task_row {
	u64 start_ns;	/* when it was forked; CLOCK_MONOTONIC, as all here */
	u64 counted_ns; /* up to when its CPU time is counted */
	struct tl_task_sums sums;
	u32 tid;
	u32 tgid;
	struct tl_score score;
	s32 cpu; /* where it last started */
	char comm[16];
	u8 type;  /* enum tl_type */
	u8 level; /* licence level, 0 unless type is TL_WIDE */
	u16 zero;
};
_Static_assert(sizeof(struct tl_task_row) == 88, "drawn above; read by Rust");

/*
 * One task that may not run everywhere, as the iterator tl_list_bound writes it; all
 * since the scheduler first saw it. 160 bytes. The Rust twin is crates/sched/src/bound.rs.
 */
struct tl_bound_row {
	u64 start_ns; /* when it was forked, CLOCK_MONOTONIC */
	u64 run_ns;
	u64 wide_run_ns;
	u32 tid;
	u32 zero;
	u64 cpus[TL_CPUS_MAX / 64]; /* bit by CPU */
};
_Static_assert(sizeof(struct tl_bound_row) == 160, "read by Rust");

_Static_assert(TL_SHARDS_MAX <= 64, "a bit for each shard");

/* CPUs in topology order (node, cache, number): so many, from the first on. */
struct tl_range {
	u16 first;
	u16 nr;
};

/* Machine, nodes, last-level caches: what tl_range is given for. Those that find
 * no place here are left out: a search goes on in the next larger one. */
#define TL_SCOPES_MAX 320u

/* How the scheduler ended. */
struct tl_exit {
	u32 kind; /* enum scx_exit_kind, 0 = still there */
	u32 reserved;
	s64 code; /* exit code, bits of enum scx_exit_code */
	char reason[64];
	char message[256];
};

/* Argument of the syscall program tl_set_slot. */
struct tl_slot_args {
	u32 tid;
	u32 tgid; /* the slot is refused if the thread is another process's */
	u32 slot;
};

/* Argument of the syscall program tl_publish. */
struct tl_publish_args {
	u64 rest_below_ns;
	u32 nr_cpus;
	u32 reserved;
	u16 lacks_q10[4];
};

/* Argument of the syscall program tl_classify_scalar. */
struct tl_classify_args {
	u32 tid;
};

/* Rules that there can be (bpf/rules.bpf.h). */
#define TL_RULES_MAX 128u
/* Processes whose code is made known at once (score.bpf.h). */
#define TL_CODE_LEVELS_MAX 4096u
/* Control groups that they can be for: instances of units, and containers. */
#define TL_RULE_GROUPS_MAX 2048u

/* A rule of the user, of a control group or a name. */
struct tl_rule_entry {
	u32 rule;   /* enum tl_rule */
	u32 number; /* which one it is for the loader, below TL_RULES_MAX */
};

/* Where the scheduler is while it stands by (away.bpf.h). */
enum tl_away {
	TL_AT_WORK = 0,
	TL_AWAY = 1,   /* set by the loader, before it lets go */
	TL_COMING = 2, /* set by tl_init: tasks are being taken */
};

/* Faults that tests provoke on purpose. */
enum tl_fault {
	TL_FAULT_NONE = 0,
	TL_FAULT_ERROR = 1, /* report an impossible state after a while */
	TL_FAULT_STALL = 2, /* leave every task in its queue */
};

#endif
