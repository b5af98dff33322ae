/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The recorder's programs: what the kernel does with tasks, as records of 24
 * bytes (trace.h) in one log per CPU (log.bpf.h).
 *
 * Problem: a recorder that costs as much as a context switch records itself.
 *
 * Idea: a log per CPU, so that no two CPUs write to one line; a record of
 * fixed size that is written in place; no wake-up of the reader, which looks twenty
 * times a second (the logs hold longer, crates/sched/src/record/). What can be
 * computed later, the reader does. Names and affinities are not in the records:
 * an iterator reports them once, at the start, and three rare events report the
 * changes.
 *
 * Scope: all tasks, or the tasks that the loader names and what they fork. A
 * switch is recorded if either task of it is followed, so that a followed
 * task's begin and end are both there.
 *
 * Wake-ups: sched_waking reports which task wakes which, in the waker's context,
 * when the woken task's wait begins. sched_wakeup, which follows, would only
 * repeat that the task is runnable, for another 150 ns; it is not recorded. Only
 * sched_wakeup knows whether the task had really gone to sleep, or was woken
 * before: the reader derives that (crates/sched/src/record/wakes.rs).
 *
 * Order: a record's time is taken when its place in the log is, with preemption
 * off. The reader merges the logs.
 *
 * Stalls: the host may stop a virtual CPU because it runs something else. The
 * guest sees a CPU that idles while tasks wait, or a task that runs and makes no
 * progress. If requested, the loader lets a software clock of perf call
 * tl_trace_beat on each CPU, idle or not; if a beat comes much later than the
 * one before, nothing was executed there in between, not even an interrupt (or
 * interrupts were off, which excuses the CPU as well).
 *
 * Licence levels: the growth of a CPU's counters is recorded at each switch, for
 * the task that stops, so that every cycle has its task; and every millisecond
 * while a task runs, by another clock of perf (tl_trace_levels), so that a
 * change within a long run is seen. If only some tasks are followed, the
 * counters are read when one of them begins.
 *
 * Lost: a full log drops the record and counts it, by CPU. A program that the
 * kernel skips because it runs on this CPU already is counted by the kernel
 * (recursion_misses); the loader adds both.
 *
 * Limits: what a task executes is not seen, marks aside. When a level changed
 * is known to the millisecond; for how long it was held, to the cycle.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "../policy/task.h"
#include "levels.bpf.h"
#include "log.bpf.h"
#include "marks.bpf.h"
#include "trace.h"

char LICENSE[] SEC("license") = "GPL";

/* since 6.10; without, a probe of a mark that is preempted delays its record */
void bpf_preempt_disable(void) __ksym __weak;
void bpf_preempt_enable(void) __ksym __weak;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

/* ---- set before load ---- */
const volatile u32 everybody;	 /* 1 all tasks, 0 those that are followed */
const volatile u32 lane_known;	 /* 1 the map tasks is the scheduler's */
const volatile u32 nr_words = 1; /* of an affinity, 64 CPUs each */
const volatile u64 stall_ns;	 /* least time between beats that is recorded */
const volatile u32 has_levels;	 /* 1 there are counters of licence levels */
const volatile u32 has_rules;	 /* 1 calls of some marks may not count */

/* Last beat, by CPU; by the CPU, in interrupts; CLOCK_MONOTONIC; 0 none yet. */
u64 beats_ns[TL_TRACE_CPUS_MAX];

struct followed {
	u32 follow;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct followed);
} recorded SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tl_calls);
} marked_calls SEC(".maps");

/* The scheduler's, where it runs (bpf/state.bpf.h), under its name, which libbpf
 * gives to a map that is used again. Its values begin with a struct tl_task. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tl_task);
} tasks SEC(".maps");

static __always_inline u64 both(u32 low, u32 high)
{
	return low | (u64)high << 32;
}

/* ---- which tasks ---- */

static __always_inline struct followed *try_lookup(struct task_struct *p)
{
	return bpf_task_storage_get(&recorded, p, NULL, 0);
}

static __always_inline struct followed *try_create(struct task_struct *p)
{
	return bpf_task_storage_get(&recorded, p, NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline bool is_wanted(struct task_struct *p)
{
	struct followed *f;

	if (everybody)
		return true;
	f = try_lookup(p);
	return f && f->follow;
}

/* ---- licence levels ---- */

/* Interrupts are off. `told`: the task that has run until now is recorded. */
static __always_inline void look_at_levels(u32 tid, bool told)
{
	u64 at_ns = bpf_ktime_get_ns();
	u64 cycles[TL_LEVELS] = {};

	if (!tl_levels_since(cycles) || !told)
		return;
	/* one look, one time */
	for (u32 level = 0; level < TL_LEVELS; level++)
		if (cycles[level])
			emit_at(at_ns, TL_TRACE_LEVEL, tid, level,
				cycles[level]);
}

SEC("?perf_event")
int tl_trace_levels(void *context)
{
	struct task_struct *p = bpf_get_current_task_btf();

	/* What idle CPUs count is recorded when they are no longer idle. */
	if (p->pid && is_wanted(p))
		look_at_levels(p->pid, true);
	return 0;
}

/* ---- scheduling ---- */

/* What the lane's scheduler takes the task for; 0 = it does not say. */
static __always_inline u8 lane_of(struct task_struct *p)
{
	struct tl_task *t;

	if (!lane_known)
		return 0;
	t = bpf_task_storage_get(&tasks, p, NULL, 0);
	if (!t)
		return 0;
	return TL_TRACE_LANE_KNOWN | (t->level & 7) << 4 | (t->type & 15);
}

/* States of include/linux/sched.h; they have not changed since 4.14. */
#define TASK_INTERRUPTIBLE 1u
#define TASK_ENDS \
	(0x10u | 0x20u | 0x80u) /* EXIT_DEAD, EXIT_ZOMBIE, TASK_DEAD */

static __always_inline u8 why_stopped(bool preempted, u32 state)
{
	if (preempted || !state)
		return TL_TRACE_PREEMPTED;
	if (state & TASK_ENDS)
		return TL_TRACE_ENDS;
	return state & TASK_INTERRUPTIBLE ? TL_TRACE_SLEEPS : TL_TRACE_BLOCKS;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(tl_trace_switch, bool preempted, struct task_struct *prev,
	     struct task_struct *next, u32 state)
{
	bool stops = is_wanted(prev);
	u8 flags;

	if (!stops && !is_wanted(next))
		return 0;
	if (has_levels)
		look_at_levels(prev->pid, stops);
	flags = why_stopped(preempted, state);
	/* Newer kernels switch migration off while this runs, and prev is the
	 * current task: 1 may be us. One that did so itself once is missed. */
	if (prev->migration_disabled > 1)
		flags |= TL_TRACE_BOUND;
	emit(TL_TRACE_SWITCH, prev->pid, flags,
	     both(next->pid, lane_of(prev) | lane_of(next) << 8));
	return 0;
}

/* An int until 7.2, then one byte; the lowest is what counts. Without the
 * barrier the compiler makes a load of the field of it, whose size has to fit. */
static __always_inline bool is_queued(struct task_struct *p)
{
	u64 at = bpf_core_field_offset(p->on_rq);

	barrier_var(at);
	return *((u8 *)p + at);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(tl_trace_wake, struct task_struct *p)
{
	if (is_wanted(p))
		emit(TL_TRACE_WAKE, p->pid, is_queued(p) ? 0 : TL_TRACE_OFF,
		     both(bpf_get_current_pid_tgid(), p->thread_info.cpu));
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(tl_trace_wake_new, struct task_struct *p)
{
	if (is_wanted(p))
		emit(TL_TRACE_WAKE, p->pid, TL_TRACE_NEW,
		     both(bpf_get_current_pid_tgid(), 0));
	return 0;
}

SEC("tp_btf/sched_migrate_task")
int BPF_PROG(tl_trace_migrate, struct task_struct *p, int to)
{
	if (is_wanted(p))
		emit(TL_TRACE_MIGRATE, p->pid, 0, both(to, p->thread_info.cpu));
	return 0;
}

/* ---- which tasks exist ---- */

static __always_inline void emit_name(struct task_struct *p, const char *name)
{
	struct tl_trace_name *record;

	record = try_reserve(sizeof(*record), TL_TRACE_NAME, p->pid);
	if (!record)
		return;
	record->event.arg = p->tgid;
	bpf_probe_read_kernel(record->name, sizeof(record->name), name);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(tl_trace_fork, struct task_struct *parent,
	     struct task_struct *child)
{
	struct followed *f;

	if (!is_wanted(parent))
		return 0;
	f = try_create(child);
	if (f)
		f->follow = 1;
	else
		count_lost(bpf_get_smp_processor_id());
	emit(TL_TRACE_FORK, child->pid, 0, both(parent->pid, child->tgid));
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(tl_trace_exit, struct task_struct *p)
{
	if (is_wanted(p))
		emit(TL_TRACE_EXIT, p->pid, 0, 0);
	return 0;
}

/* A new name: by exec, which has become it, or by prctl. */
SEC("tp_btf/task_rename")
int BPF_PROG(tl_trace_rename, struct task_struct *p, const char *name)
{
	if (is_wanted(p))
		emit_name(p, name);
	return 0;
}

/* exec gives the thread that calls it the number of its process; tasks that it
 * was recorded under the old one. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(tl_trace_exec, struct task_struct *p, u32 old_tid)
{
	if (is_wanted(p) && old_tid != (u32)p->pid) {
		emit(TL_TRACE_EXIT, old_tid, 0, 0);
		emit_name(p, p->comm);
	}
	return 0;
}

SEC("?fexit/set_cpus_allowed_common")
int BPF_PROG(tl_trace_affinity, struct task_struct *p)
{
	struct tl_trace_cpus *record;
	u32 bytes = nr_words * 8;

	if (!is_wanted(p))
		return 0;
	record = try_reserve(sizeof(*record), TL_TRACE_AFFINITY, p->pid);
	if (!record)
		return 0;
	if (bytes > sizeof(record->words))
		bytes = sizeof(record->words);
	record->event.arg = nr_words;
	bpf_probe_read_kernel(record->words, bytes, &p->cpus_mask);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return 0;
}

/* All tasks that exist, for the loader, which reads it as a file. */
SEC("iter/task")
int tl_trace_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct tl_trace_task task = {};
	u32 bytes = nr_words * 8;

	if (!p)
		return 0;
	task.tid = p->pid;
	task.tgid = p->tgid;
	task.kernel = !!(p->flags & PF_KTHREAD);
	task.cpu = p->thread_info.cpu;
	/* four bytes until 7.2, then one; the lowest is what counts */
	bpf_probe_read_kernel(&task.running, 1,
			      (void *)p + bpf_core_field_offset(p->on_cpu));
	task.parent_tgid = p->real_parent->tgid;
	if (bytes > sizeof(task.words))
		bytes = sizeof(task.words);
	bpf_probe_read_kernel(task.name, sizeof(task.name), p->comm);
	bpf_probe_read_kernel(task.words, bytes, &p->cpus_mask);
	bpf_seq_write(ctx->meta->seq, &task, sizeof(task));
	return 0;
}

/* ---- what programs do ---- */

/* System calls that the kernel itself makes a task call for uprobes. */
#define NR_URETPROBE 335
#define NR_UPROBE 336

SEC("?tp_btf/sys_enter")
int BPF_PROG(tl_trace_syscall, struct pt_regs *regs, long nr)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (nr != NR_URETPROBE && nr != NR_UPROBE && is_wanted(p))
		emit(TL_TRACE_SYSCALL, p->pid, 0, nr);
	return 0;
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(tl_trace_sysret, struct pt_regs *regs, long ret)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (is_wanted(p))
		emit(TL_TRACE_SYSRET, p->pid, 0, ret);
	return 0;
}

/* The task's calls of marked functions; NULL where all of them count. */
static __always_inline struct tl_calls *try_lookup_calls(struct task_struct *p)
{
	if (!has_rules)
		return NULL;
	return bpf_task_storage_get(&marked_calls, p, NULL,
				    BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline int on_mark(struct task_struct *p, u8 kind, u64 rule)
{
	if (bpf_ksym_exists(bpf_preempt_disable))
		bpf_preempt_disable();
	emit(kind, p->pid, 0, tl_mark_number(rule));
	if (bpf_ksym_exists(bpf_preempt_disable))
		bpf_preempt_enable();
	return 0;
}

/* The cookie is the rule of policy/mark.h, with the mark's number. */
SEC("uprobe")
int tl_trace_mark(struct pt_regs *regs)
{
	struct task_struct *p = bpf_get_current_task_btf();
	u64 rule = bpf_get_attach_cookie(regs);
	bool counts = call_counts(regs, rule);
	struct tl_calls *calls;

	if (!is_wanted(p))
		return 0;
	calls = try_lookup_calls(p);
	if (calls)
		counts = tl_calls_enter(calls, counts);
	return counts ? on_mark(p, TL_TRACE_MARK, rule) : 0;
}

SEC("uretprobe")
int tl_trace_mark_return(struct pt_regs *regs)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct tl_calls *calls;

	if (!is_wanted(p))
		return 0;
	calls = try_lookup_calls(p);
	if (calls && !tl_calls_return(calls))
		return 0;
	return on_mark(p, TL_TRACE_MARK_RETURN, bpf_get_attach_cookie(regs));
}

/* The end of a section, where another function begins (--hints). */
SEC("uprobe")
int tl_trace_section_end(struct pt_regs *regs)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!is_wanted(p))
		return 0;
	return on_mark(p, TL_TRACE_MARK_RETURN, bpf_get_attach_cookie(regs));
}

/* Its begin. */
SEC("uprobe")
int tl_trace_section(struct pt_regs *regs)
{
	struct task_struct *p = bpf_get_current_task_btf();

	if (!is_wanted(p))
		return 0;
	return on_mark(p, TL_TRACE_MARK, bpf_get_attach_cookie(regs));
}

/* The trap module's event, see trap_event.h. */
SEC("?tp_btf/turbolane_wide")
int BPF_PROG(tl_trace_trap, struct task_struct *p, u32 level, unsigned long ip)
{
	if (is_wanted(p))
		emit(TL_TRACE_TRAP, p->pid, level, ip);
	return 0;
}

/* ---- stalls ---- */

SEC("?perf_event")
int tl_trace_beat(void *context)
{
	u32 cpu = bpf_get_smp_processor_id();
	u64 now_ns = bpf_ktime_get_ns();
	u64 *beat_ns = &beats_ns[cpu & (TL_TRACE_CPUS_MAX - 1)];
	u64 since_ns = *beat_ns;

	*beat_ns = now_ns;
	if (since_ns && now_ns - since_ns > stall_ns)
		emit(TL_TRACE_STALL, 0, 0, now_ns - since_ns);
	return 0;
}

/* ---- requests of the loader ---- */

SEC("syscall")
int tl_trace_follow(struct tl_trace_follow_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct followed *f;

	if (!p)
		return -ESRCH;
	f = try_create(p);
	if (f)
		f->follow = args->follow;
	bpf_task_release(p);
	return f ? 0 : -ENOMEM;
}
