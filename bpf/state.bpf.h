/* SPDX-License-Identifier: GPL-2.0 */
/* All state of the scheduler: tables set by the loader, per-task and per-CPU
 * state, and the look-ups. */
#ifndef TL_STATE_BPF_H
#define TL_STATE_BPF_H

/* ---- set before load, constant for the verifier ---- */
const volatile u32 nr_cpus = 1;
const volatile u32 nr_shards = 1;
const volatile u32 nr_scopes = 1;
const volatile u32 fault; /* enum tl_fault */
const volatile s32 loader_tgid = -1;
/* shard_order[shard][i]: the i-th nearest shard, itself first */
const volatile u8 shard_order[TL_SHARDS_MAX][TL_SHARDS_MAX];
/* CPUs in topology order; of each shard, and of each scope (classes.bpf.h) */
const volatile u16 cpu_at[TL_CPUS_MAX];
const volatile struct tl_range shard_cpus[TL_SHARDS_MAX];
const volatile struct tl_range scope_cpus[TL_SCOPES_MAX];

/* ---- settings, may change at any time ---- */
struct tl_cfg cfg;
/* Whether exposure is counted (exposure.bpf.h). */
u32 watches;
/* Whether the kernel's own scheduler is at work, enum tl_away; see away.bpf.h. */
u32 away;
/* It is about to be: tasks go where they came from; see home.bpf.h. */
u32 sends_home;
/* Class that each CPU is to have; takes effect by tl_apply_classes. */
u8 want_class[TL_CPUS_MAX];
/* 1: the class has changed, and the CPU has not been made to choose anew. */
u8 class_changed[TL_CPUS_MAX];

/* ---- what runs ---- */
struct tl_cpu cpus[TL_CPUS_MAX];
struct tl_exit exited;
/* By enum tl_party, sums of kernel_use; see away.bpf.h. */
struct tl_kernel_use kernel_use[TL_NR_PARTIES];
/* Hint slots that threads were given; wraps. */
u32 slots_given;
/* Changes with each change of the classes. Never 0: a task's caps_generation
 * of 0 asks for a new look. */
u32 class_generation = 1;
/* Bit c: some CPU has class c. */
u32 classes_present = 1;
u32 nr_scalar_cpus;
/* The wide CPUs, in topology order, and where those of a shard begin. */
u16 wide_cpus[TL_CPUS_MAX];
u32 nr_wide_cpus;
u16 shard_wide_at[TL_SHARDS_MAX];

/*
 * The queues of a shard: a line of what changes with each task that waits, one
 * of what changes with the classes, and the clocks, which change every few
 * milliseconds (clocks.bpf.h).
 */
struct shard {
	u64 arrivals; /* tasks that entered a queue; see arrivals.bpf.h */
	/* what CPUs of other shards have charged, by queue */
	u64 foreign_ns[TL_NR_QUEUES];
	u8 classes __attribute__((aligned(64))); /* bit per class of its CPUs */
	u8 nr_cpus[TL_NR_QUEUES];   /* CPUs that are there for a queue */
	u32 nr_tasks[TL_NR_QUEUES]; /* that waited or ran at the last advance */
	u64 advanced_ns __attribute__((aligned(64))); /* last advance */
	u64 charged_ns[TL_NR_QUEUES];		      /* sum of charges then */
	u64 sum_ns; /* of the advance in progress */
	u32 nr_running;
	struct tl_clock clock[TL_NR_QUEUES];
} __attribute__((aligned(64))) shards[TL_SHARDS_MAX];

struct task_ctx {
	struct tl_task t;
	u64 counted_ns; /* up to when its CPU time is counted */
	/* class_generation that t.caps belongs to, 0 = look again */
	u32 caps_generation;
	u32 pinned;   /* its affinity holds one CPU only */
	u32 slot;     /* number of its hint slot + 1, 0 = none */
	u32 hint_seq; /* the slot's values when last read */
	u32 hint_want;
	/* the kernel's count of its execs when it was given the slot */
	u64 exec_id;
	u32 went_first; /* it was placed before all queues */
	s32 last_cpu;	/* where it last started, -1 = nowhere yet */
	s32 scalar_cpu; /* the same, of the lowest class */
	u64 began_ns;	/* when it last started */
	/* where it was when the scheduler came, -1 = it has come to be since */
	s32 home;
	/* set by probes, which may not act: look at the task's place when
	 * the probe is done */
	u32 look;
	/* a tracing program is in the middle of changing t: begin_report() */
	u32 in_report;
	/* leave the CPU once migration is possible; see leave.bpf.h */
	u32 move;
	/* its control group, see groups.bpf.h: number in the table; the one
	 * among whose runnable tasks it counts, 0 = none; with which weight */
	u32 group;
	u32 counts_in;
	u32 counted_weight;
	u32 own_weight; /* by its nice value, 1..10000 */
	/* held.bpf.h: when it was set aside without having run since, 0 = it
	 * is not; when it was last */
	u64 held_since_ns;
	u64 held_ns;
	/* rules.bpf.h: rules and set of groups at the last look, 0 = look again; the
	 * rule of its name with its number */
	u32 rules_generation;
	u32 rule_by_name;
	u64 css_seen;
	u64 utime;    /* user time by its last tick, see groups_tick() */
	u32 may_hold; /* it has not left user code since its group is out */
	/* exposure.bpf.h: CPU time since its hints were read, and the highest
	 * level that was read */
	u64 unread_ns;
	u32 level_seen;
	/* away.bpf.h: what the kernel had counted when the scheduler left, and
	 * counted while it was away */
	struct tl_kernel_use kernel_before;
	struct tl_kernel_use kernel_use;
	struct tl_calls calls; /* of marked functions, without sessions only */
	struct tl_task_sums sums;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

/* What applications may read (hint_page.h). The loader freezes it: from then
 * on only programs here write it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct tl_hint_board);
} hint_board SEC(".maps");

/* What one process may write. */
struct hint_area_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct tl_hint_area));
};

/* By number; the daemon makes them, as processes come. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, TL_HINT_AREAS);
	__type(key, u32);
	__array(values, struct hint_area_map);
} hint_areas SEC(".maps");

/* NULL for a task that the scheduler has not been given yet. */
static __always_inline struct task_ctx *try_lookup_task(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, NULL, 0);
}

/* Every task in our callbacks went through init_task: NULL is impossible. */
static __always_inline struct task_ctx *lookup_task(struct task_struct *p)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (!tc)
		tl_scx_error("task %d has no context", p->pid);
	return tc;
}

static __always_inline struct tl_cpu *lookup_cpu(s32 cpu)
{
	if ((u32)cpu >= nr_cpus) {
		tl_scx_error("cpu %d of %d is unknown", cpu, nr_cpus);
		return NULL;
	}
	/* the mask is for the verifier, which does not know nr_cpus */
	return &cpus[cpu & (TL_CPUS_MAX - 1)];
}

/* Before each atomic operation on memory that several CPUs write, except those
 * per request and per period. */
static __always_inline void count_shared_atomic(void)
{
	u32 here = bpf_get_smp_processor_id();

	if (here < TL_CPUS_MAX)
		cpus[here].shared_atomics++;
}

static __always_inline struct tl_hint_board *lookup_board(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&hint_board, &key);
}

static __always_inline u32 shard_of_cpu(s32 cpu)
{
	struct tl_cpu *c = lookup_cpu(cpu);

	return c ? c->shard & (TL_SHARDS_MAX - 1) : 0;
}

#endif
