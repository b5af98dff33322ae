/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's sched_ext interface, and the only place that knows how it
 * differs between versions. It is not a stable ABI: functions are renamed
 * (6.13: dispatch -> dsq_insert, consume -> dsq_move_to_local), gain siblings
 * (6.19: dsq_peek, task_set_slice) and lose arguments. Every function is
 * declared weak, and a tl_scx_*() wrapper takes the newest one that exists.
 * The verifier removes the branches that do not.
 *
 * Tried on 7.3. The names for 6.12 are here so that a port is this file only.
 */
#ifndef TL_COMPAT_BPF_H
#define TL_COMPAT_BPF_H

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* values are the kernel's; read from its BTF at load */
enum scx_ops_flags {
	SCX_OPS_KEEP_BUILTIN_IDLE = 1,
	SCX_OPS_ENQ_LAST = 2,
};
enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ull,
	SCX_ENQ_HEAD = 1ull << 16,
	SCX_ENQ_REENQ = 1ull << 40,
	SCX_ENQ_LAST = 1ull << 41,
};
enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};
enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};
enum scx_dsq_id_flags {
	SCX_DSQ_FLAG_BUILTIN = 1ull << 63,
	SCX_DSQ_LOCAL = (1ull << 63) | 2,
	SCX_DSQ_LOCAL_ON = 3ull << 62,
};
#define tl_enum(type, name) bpf_core_enum_value(enum type, name)
#define TL_ENQ_WAKEUP tl_enum(scx_enq_flags, SCX_ENQ_WAKEUP)
#define TL_ENQ_HEAD tl_enum(scx_enq_flags, SCX_ENQ_HEAD)
#define TL_ENQ_REENQ tl_enum(scx_enq_flags, SCX_ENQ_REENQ)
#define TL_ENQ_LAST tl_enum(scx_enq_flags, SCX_ENQ_LAST)
#define TL_KICK_IDLE tl_enum(scx_kick_flags, SCX_KICK_IDLE)
#define TL_KICK_PREEMPT tl_enum(scx_kick_flags, SCX_KICK_PREEMPT)
#define TL_TASK_QUEUED tl_enum(scx_ent_flags, SCX_TASK_QUEUED)
#define TL_DSQ_LOCAL tl_enum(scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define TL_DSQ_LOCAL_ON tl_enum(scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)

s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(s32 cpu, u64 flags) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
bool scx_bpf_task_running(const struct task_struct *p) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
const struct cpumask *scx_bpf_get_idle_smtmask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
void scx_bpf_error_bstr(char *fmt, unsigned long long *data, u32 size) __ksym;
u32 scx_bpf_reenqueue_local(void) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice_ns,
			u64 enq_flags) __ksym __weak;
void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice_ns,
		      u64 enq_flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice_ns,
			      u64 vtime, u64 enq_flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(
	struct task_struct *p,
	struct scx_bpf_dsq_insert_vtime_args *args) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice_ns,
			    u64 vtime, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq_id) __ksym __weak;
bool scx_bpf_consume(u64 dsq_id) __ksym __weak;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it,
				u64 vtime) __ksym __weak;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it,
					 u64 vtime) __ksym __weak;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it,
				     struct task_struct *p, u64 dsq_id,
				     u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p,
			    u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p,
		      u64 dsq_id, u64 enq_flags) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it,
			       struct task_struct *p, u64 dsq_id,
			       u64 enq_flags) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice_ns) __ksym __weak;
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id) __ksym __weak;
void scx_bpf_cpuperf_set(s32 cpu, u32 perf) __ksym __weak;

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id,
			 u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;

struct bpf_cpumask *bpf_cpumask_create(void) __ksym;
void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_and(struct bpf_cpumask *dst, const struct cpumask *a,
		     const struct cpumask *b) __ksym;
bool bpf_cpumask_empty(const struct cpumask *cpumask) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a,
			    const struct cpumask *b) __ksym;
u32 bpf_cpumask_any_distribute(const struct cpumask *mask) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
void bpf_preempt_disable(void) __ksym;
void bpf_preempt_enable(void) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
bool bpf_session_is_return(void) __ksym __weak;
bool bpf_session_is_return___ctx(void *regs) __ksym __weak;
struct cgroup *scx_bpf_task_cgroup(struct task_struct *p) __ksym __weak;
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, s32 level) __ksym;
void bpf_cgroup_release(struct cgroup *cgrp) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

/* Report an impossible state: the scheduler is unloaded and the kernel's own
 * takes over (invariant 4). */
#define tl_scx_error(fmt, args...)                                        \
	({                                                                \
		static char ___fmt[] = fmt;                               \
		unsigned long long ___param[___bpf_narg(args) ?: 1] = {}; \
		___bpf_fill(___param, args);                              \
		scx_bpf_error_bstr(___fmt, ___param, sizeof(___param));   \
	})

/* Whether a program of a session was called for the function's return. From 7.0
 * on the kernel wants to know what the program was called with. */
static __always_inline bool tl_session_is_return(void *regs)
{
	if (bpf_ksym_exists(bpf_session_is_return___ctx))
		return bpf_session_is_return___ctx(regs);
	return bpf_ksym_exists(bpf_session_is_return) &&
	       bpf_session_is_return();
}

static __always_inline void tl_scx_insert(struct task_struct *p, u64 dsq_id,
					  u64 slice_ns, u64 enq_flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, dsq_id, slice_ns, enq_flags);
	else
		scx_bpf_dispatch(p, dsq_id, slice_ns, enq_flags);
}

static __always_inline void tl_scx_insert_vtime(struct task_struct *p,
						u64 dsq_id, u64 slice_ns,
						u64 vtime_ns, u64 enq_flags)
{
	if (bpf_ksym_exists(__scx_bpf_dsq_insert_vtime)) {
		struct scx_bpf_dsq_insert_vtime_args args = {
			.dsq_id = dsq_id,
			.slice = slice_ns,
			.vtime = vtime_ns,
			.enq_flags = enq_flags,
		};

		__scx_bpf_dsq_insert_vtime(p, &args);
	} else if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime)) {
		scx_bpf_dsq_insert_vtime(p, dsq_id, slice_ns, vtime_ns,
					 enq_flags);
	} else {
		scx_bpf_dispatch_vtime(p, dsq_id, slice_ns, vtime_ns,
				       enq_flags);
	}
}

static __always_inline bool tl_scx_move_to_local(u64 dsq_id)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(dsq_id);
	return scx_bpf_consume(dsq_id);
}

static __always_inline void tl_scx_set_slice(struct task_struct *p,
					     u64 slice_ns)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice_ns);
	else
		p->scx.slice = slice_ns;
}

static __always_inline bool tl_scx_has_cpuperf(void)
{
	return bpf_ksym_exists(scx_bpf_cpuperf_set);
}

/* From a callback of the scheduler: only for the CPU that it is about. */
static __always_inline void tl_scx_set_cpuperf(s32 cpu, u32 target_q10)
{
	if (bpf_ksym_exists(scx_bpf_cpuperf_set))
		scx_bpf_cpuperf_set(cpu, target_q10);
}

/* What waits on this CPU's local queue is to be placed anew. */
static __always_inline void tl_scx_reenqueue_local(void)
{
	if (bpf_ksym_exists(scx_bpf_reenqueue_local))
		scx_bpf_reenqueue_local();
}

/* The control group of a task, with a reference; NULL where the kernel gives a
 * scheduler none. */
static __always_inline struct cgroup *tl_scx_task_cgroup(struct task_struct *p)
{
	return bpf_ksym_exists(scx_bpf_task_cgroup) ? scx_bpf_task_cgroup(p) :
						      NULL;
}

/* cpu.idle of a new group, where the kernel says it. */
static __always_inline bool
tl_scx_is_idle(const struct scx_cgroup_init_args *args)
{
	return bpf_core_field_exists(args->sched_idle) && args->sched_idle;
}

/* Whether the kernel reports cpu.max: from 6.17 on. */
static __always_inline bool
tl_scx_has_bandwidth(const struct scx_cgroup_init_args *args)
{
	return bpf_core_field_exists(args->bw_quota_us);
}

/* How often the task has disabled its migration, and is in an RCU read section.
 * Kernels that are not preemptible have no such counts, nor tasks that are switched
 * out there. */
static __always_inline u32 tl_migration_disabled(const struct task_struct *p)
{
	return bpf_core_field_exists(p->migration_disabled) ?
		       p->migration_disabled :
		       0;
}

static __always_inline s32 tl_rcu_nesting(const struct task_struct *p)
{
	return bpf_core_field_exists(p->rcu_read_lock_nesting) ?
		       p->rcu_read_lock_nesting :
		       0;
}

struct bpf_subprog_info___tl {
	bool might_sleep;
} __attribute__((preserve_access_index));

/* For programs at tracepoints that call functions which are not static. The verifier
 * allows that where preemption is disabled from 6.15 on, where it knows which functions
 * sleep; kernels before run these programs with preemption disabled. */
static __always_inline bool tl_is_preemptible_at_tracepoint(void)
{
	return bpf_core_field_exists(struct bpf_subprog_info___tl, might_sleep);
}

static __always_inline void tl_tracepoint_begin(void)
{
	if (tl_is_preemptible_at_tracepoint())
		bpf_preempt_disable();
}

static __always_inline void tl_tracepoint_end(void)
{
	if (tl_is_preemptible_at_tracepoint())
		bpf_preempt_enable();
}

/* Walk a queue; tl_queue_iter is the iterator inside the loop, named by
 * libbpf's bpf_for_each. */
#define tl_for_each_queued(p, dsq_id) bpf_for_each(scx_dsq, p, dsq_id, 0)
#define tl_queue_iter (&___it)

/* Move a task that the loop is at to this queue, by this key. Before 6.13 the
 * function has another name; 6.12 has it. */
#define tl_scx_move_vtime(iter, p, dsq_id, vtime)                              \
	({                                                                     \
		bool ___moved;                                                 \
		if (bpf_ksym_exists(scx_bpf_dsq_move_vtime)) {                 \
			scx_bpf_dsq_move_set_vtime(iter, vtime);               \
			___moved = scx_bpf_dsq_move_vtime(iter, p, dsq_id, 0); \
		} else {                                                       \
			scx_bpf_dispatch_from_dsq_set_vtime(iter, vtime);      \
			___moved = scx_bpf_dispatch_vtime_from_dsq(iter, p,    \
								   dsq_id, 0); \
		}                                                              \
		___moved;                                                      \
	})

/* The same to a CPU's local queue, which has no keys. */
#define tl_scx_move(iter, p, dsq_id)                    \
	(bpf_ksym_exists(scx_bpf_dsq_move) ?            \
		 scx_bpf_dsq_move(iter, p, dsq_id, 0) : \
		 scx_bpf_dispatch_from_dsq(iter, p, dsq_id, 0))

/* The key of the first task in the queue; 0 if it is empty. */
static __always_inline u64 tl_scx_head_key(u64 dsq_id)
{
	struct task_struct *p;
	u64 key_ns = 0;

	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		p = scx_bpf_dsq_peek(dsq_id);
		return p ? p->scx.dsq_vtime : 0;
	}
	tl_for_each_queued(p, dsq_id)
	{
		key_ns = p->scx.dsq_vtime;
		break;
	}
	return key_ns;
}

/* Time that the task has waited for a CPU, where the kernel counts it. */
static __always_inline u64 tl_run_delay(const struct task_struct *p)
{
	return bpf_core_field_exists(p->sched_info) ? p->sched_info.run_delay :
						      0;
}

/* SCX_EXIT_ERROR: the kernel throws the scheduler out. */
#define TL_EXIT_ERROR 1024

#endif
