/* SPDX-License-Identifier: GPL-2.0 */
/* All state of the scheduler: tables set by the loader, per-task and per-CPU
 * state, and the look-ups. */
#ifndef TL_STATE_BPF_H
#define TL_STATE_BPF_H

/* ---- set before load, constant for the verifier ---- */
const volatile u32 nr_cpus = 1;
const volatile u32 nr_llcs = 1;
const volatile u32 fault; /* enum tl_fault */
const volatile s32 loader_tgid = -1;
/* llc_order[llc][i]: the i-th nearest LLC, itself first */
const volatile u8 llc_order[TL_LLCS_MAX][TL_LLCS_MAX];

/* ---- settings, may change at any time ---- */
struct tl_cfg cfg;
/* Class that each CPU is to have; takes effect by tl_apply_classes. */
u8 want_class[TL_CPUS_MAX];

/* ---- what runs ---- */
struct tl_cpu cpus[TL_CPUS_MAX];
struct tl_exit exited;
/* Changes with each change of the classes. Never 0: a task's caps_generation
 * of 0 asks for a new look. */
u32 class_generation = 1;
/* Bit c: some CPU has class c. */
u32 classes_present = 1;
u32 nr_scalar_cpus;
/* The same as classes_present, for each LLC. */
u8 llc_classes[TL_LLCS_MAX];
/* The queues of an LLC: a line of what changes with each task that waits or
 * stops, and one of counts. */
struct llc_queues {
	u64 clock_ns[7];   /* virtual-time clock of each queue */
	u64 arrivals;	   /* tasks that entered a queue; see arrivals.bpf.h */
	u32 nr_running[8]; /* tasks of the queue that run, by their clock */
	u32 nr_waiting[8]; /* that wait, when last asked for */
} llcs[TL_LLCS_MAX];
_Static_assert(TL_NR_QUEUES <= 7, "a cache line of clocks");

struct task_ctx {
	struct tl_task t;
	u64 counted_ns; /* up to when its CPU time is counted */
	/* class_generation that t.caps belongs to, 0 = look again */
	u32 caps_generation;
	u32 slot;     /* slot on the hint page + 1, 0 = none */
	u32 hint_seq; /* the slot's values when last read */
	u32 hint_want;
	/* the kernel's count of its execs when it was given the slot */
	u64 exec_id;
	u32 went_first; /* it was placed before all queues */
	u32 runs_of; /* queue id among whose running tasks it counts, 0 = none */
	s32 last_cpu; /* where it last started, -1 = nowhere yet */
	/* set by probes, which may not act: look at the task's place when
	 * the probe is done */
	u32 look;
	/* leave the CPU once migration is possible; see leave.bpf.h */
	u32 move;
	struct tl_task_sums sums;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, struct tl_hint_page);
} hint_page SEC(".maps");

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

static __always_inline struct tl_hint_page *lookup_page(void)
{
	u32 key = 0;

	return bpf_map_lookup_elem(&hint_page, &key);
}

/* The LLC's and the queue's part of a queue id, within the tables' bounds. */
static __always_inline struct llc_queues *queues_of(u32 id)
{
	return &llcs[tl_queue_llc(id) & (TL_LLCS_MAX - 1)];
}

static __always_inline u32 queue_of(u32 id)
{
	return (id & 7) < TL_NR_QUEUES ? id & 7 : 0;
}

/* Clock of the queue with this id; ids come from tl_queue_id(). */
static __always_inline u64 *queue_clock(u32 id)
{
	return &queues_of(id)->clock_ns[queue_of(id)];
}

static __always_inline u32 llc_of_cpu(s32 cpu)
{
	struct tl_cpu *c = lookup_cpu(cpu);

	return c ? c->llc & (TL_LLCS_MAX - 1) : 0;
}

#endif
