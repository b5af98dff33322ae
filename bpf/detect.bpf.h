/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Detection: what turns into an event of the policy (policy/task.h).
 *
 *   hint     the task's slot on the hint page, read when it stops and at
 *            ticks. The slot changes only while its thread runs, so a task
 *            that waits or sleeps was read in time; but a rest (policy/rest.h)
 *            ends by itself, and is seen when the task runs again.
 *   mark     uprobe at a function's entry and return, where the kernel has it
 *            as one session. These programs may call no sched_ext function:
 *            they leave a note (tc->look), and a program at the end of the
 *            kernel's uprobe handling kicks.
 *   syscall  entry and return; attached only if a heuristic needs them, the
 *            entry also where traps do (policy/stay.h)
 *   score    licence counters, at each switch (score.bpf.h)
 *   trap     the trap module's event (trap_event.h)
 *
 * All but the tick concern the current task, so its context has one writer at
 * a time, as long as no writer is preempted: the scheduler's own callbacks
 * never are; the programs here that the kernel could preempt disable
 * preemption. Without that, 1 to 3 of 20,000 samples of marked code were on scalar
 * CPUs: a switch in the middle of a probe ended the period it had just begun.
 *
 * The tick is another writer: it interrupts such a program. A tick that does so changes
 * nothing; the next one accounts for both. Before, it changed flags between the
 * program's read and write of them: on busy CPUs 1 of 2,400 samples was of a section
 * that seemed to have run on a wide CPU, and was ended by the switch that was to carry
 * it there.
 *
 * Limit: a change of the task's affinity, nice value or control group from another CPU stops and
 * starts it (stopping(), running()) while a program here may be at work. No event is
 * reported then; what else is written may be lost once.
 */
#ifndef TL_DETECT_BPF_H
#define TL_DETECT_BPF_H

#include "exposure.bpf.h"
#include "guests.bpf.h"
#include "leave.bpf.h"
#include "marks.bpf.h"
#include "../policy/rest.h"
#include "trap_event.h"

/* System calls that say nothing about what the program does next: those that
 * the kernel itself makes a task call for uprobes, and the one by which the
 * library moves a section that has just begun. If a tick had read the hint
 * before that call, its return would end the section. */
#define NR_SCHED_YIELD 24
#define NR_URETPROBE 335
#define NR_UPROBE 336

/* The task's virtual time, its queue's clock, its CPU's balances. Not static: so
 * the verifier looks at it once. */
__noinline int tl_charge_task(struct task_ctx *tc, struct tl_cpu *c,
			      u64 used_ns, u64 now_ns)
{
	u64 charged_ns;

	if (!tc || !c)
		return 0;
	charged_ns =
		tl_charge(&tc->t, &c->turns, &cfg, used_ns, tc->went_first);
	tl_run_note(&c->run, &tc->t, now_ns);
	charge_clock(c, tc->t.clock, charged_ns, now_ns);
	return 0;
}

/* Count for the running task and its CPU what it ran since the last time, as a
 * task of this type and level. */
static __always_inline void count_run(struct task_ctx *tc, struct tl_cpu *c,
				      u32 type, u32 level, u64 now_ns)
{
	u64 used_ns = now_ns - tc->counted_ns;

	if (!used_ns)
		return;
	tc->counted_ns = now_ns;
	c->run_ns[tl_kind(type, level)] += used_ns;
	tl_task_ran(&tc->t, used_ns, level);
	if (watches)
		watch_run(tc, c, level, used_ns, now_ns);
	tc->sums.run_ns += used_ns;
	if (level) {
		tc->sums.wide_run_ns += used_ns;
		tc->sums.level_run_ns += level * used_ns;
		if (level > c->class && is_leaving(tc))
			c->leaving_ns += used_ns;
		else if (level > c->class)
			c->degraded_ns += used_ns;
	} else if (type == TL_SCALAR && c->class) {
		c->guest_ns += used_ns;
	}
}

/* The two parts of a report, not static: so the verifier looks at each once for a
 * program, and not once for each path to it. */
__noinline int tl_count_run(struct task_ctx *tc, struct tl_cpu *c, u32 type,
			    u32 level, u64 now_ns)
{
	if (tc && c)
		count_run(tc, c, type, level, now_ns);
	return 0;
}

__noinline u32 tl_decide(struct task_ctx *tc, u32 event, u32 level, u64 now_ns)
{
	return tc ? tl_task_event(&tc->t, &cfg, event, level, now_ns) : 0;
}

/* Charge the running task, and count, what it ran since the last time. At ticks
 * too: a task that is alone on its CPU may not stop for minutes. */
static __always_inline void account_run(struct task_ctx *tc, struct tl_cpu *c,
					u64 now_ns)
{
	groups_charge(tc, now_ns - tc->t.started_ns);
	tl_charge_task(tc, c, now_ns - tc->t.started_ns, now_ns);
	tc->t.started_ns = now_ns;
	tl_count_run(tc, c, tc->t.type, tc->t.level, now_ns);
}

/* The policy has changed type or level of the running task. */
static __always_inline void turn(struct task_ctx *tc, struct tl_cpu *c,
				 u32 old_level, u64 now_ns)
{
	if (tc->t.level && tc->t.level <= c->class)
		tc->t.flags |= TL_TASK_RAN_FIT; /* where it was a guest */
	watch_turn(tc, c, old_level, now_ns);
	c->type_changes++;
}

/* Report to the policy; true if type or level changed. The task is running: until
 * now it ran as what it was before, which counts first. It is charged later: virtual
 * time is of no type. */
__noinline u32 tl_tell(struct task_ctx *tc, struct tl_cpu *c, u32 event,
		       u32 level, u64 now_ns)
{
	u32 old_level;

	if (!tc || !c)
		return 0;
	old_level = tc->t.level;
	tl_count_run(tc, c, tc->t.type, old_level, now_ns);
	if (!tl_decide(tc, event, level, now_ns))
		return 0;
	turn(tc, c, old_level, now_ns);
	return 1;
}

/* The same in one piece, for programs that have disabled preemption: kernels before
 * 6.15 let them call no function that is not static. */
static __always_inline u32 tell(struct task_ctx *tc, struct tl_cpu *c,
				u32 event, u32 level, u64 now_ns)
{
	u32 old_level = tc->t.level;

	count_run(tc, c, tc->t.type, old_level, now_ns);
	if (!tl_task_event(&tc->t, &cfg, event, level, now_ns))
		return 0;
	turn(tc, c, old_level, now_ns);
	return 1;
}

/* Between these two, what is known of the running task changes, where a tick may come. */
static __always_inline void begin_report(struct task_ctx *tc)
{
	tc->in_report = 1;
	barrier();
}

static __always_inline void end_report(struct task_ctx *tc)
{
	barrier();
	tc->in_report = 0;
}

/* For the events that only end periods. */
static __always_inline u32 tell_end(struct task_ctx *tc, struct tl_cpu *c,
				    u32 event, u64 now_ns)
{
	u32 changed = tl_tell(tc, c, event, 0, now_ns);

	c->heuristic_ends += changed;
	return changed;
}

/* Its stay after a section may be over. */
static __always_inline void end_gap(struct task_ctx *tc, struct tl_cpu *c)
{
	if (tl_gap_level(&tc->t.gap))
		tell_end(tc, c, TL_EV_TICK, bpf_ktime_get_ns());
}

/* The slot that the task was given, unless it has called exec since: what is
 * written there may be another program's word, of another user. What is read
 * from a slot is read once, and bounded where it is used. */
static __always_inline struct tl_hint_slot *
try_lookup_slot(const struct task_struct *p, const struct task_ctx *tc)
{
	u32 slot = tc->slot - 1, key = slot >> TL_HINT_AREA_SHIFT, first = 0;
	struct tl_hint_area *area;
	void *map;

	if (!tc->slot || p->self_exec_id != tc->exec_id)
		return NULL;
	map = bpf_map_lookup_elem(&hint_areas, &key);
	area = map ? bpf_map_lookup_elem(map, &first) : NULL;
	return area ? &area->slot[slot & (TL_HINT_AREA_SLOTS - 1)] : NULL;
}

/* What the slot says now: a rest that is over is an end. */
static __always_inline u32 hint_wants(const struct tl_hint_slot *slot)
{
	u64 until_ns = slot->rest_until_ns;
	u32 want = slot->want;

	if (!until_ns || slot->rest_seq != slot->seq || want > TL_LEVEL_MAX)
		return want;
	return tl_rest_is_over(&cfg, until_ns, bpf_ktime_get_ns()) ? 0 : want;
}

/* Whether the end of its section was announced to be followed by a long scalar phase, or
 * its rest has lasted for longer than announced. */
static __always_inline bool hint_is_away(const struct tl_hint_slot *slot)
{
	return slot->rest_until_ns && slot->rest_seq == slot->seq;
}

/* The task's slot if it says something that has not been read yet. */
static __always_inline struct tl_hint_slot *
try_unread_hint(const struct task_struct *p, const struct task_ctx *tc)
{
	struct tl_hint_slot *slot = try_lookup_slot(p, tc);

	if (!slot)
		return NULL;
	if (slot->seq == tc->hint_seq && hint_wants(slot) == tc->hint_want)
		return NULL;
	return slot;
}

/* The event that the slot's word is. */
static __always_inline u32 hint_event(const struct tl_hint_slot *slot, u32 want)
{
	if (want)
		return TL_EV_HINT_BEGIN;
	return hint_is_away(slot) ? TL_EV_HINT_AWAY : TL_EV_HINT_END;
}

static __always_inline u32 read_hint(const struct task_struct *p,
				     struct task_ctx *tc, struct tl_cpu *c,
				     u64 now_ns)
{
	struct tl_hint_slot *slot = try_unread_hint(p, tc);
	u32 seq;

	if (!slot)
		return 0;
	seq = slot->seq;
	tc->hint_want = hint_wants(slot);
	if (watches && tc->hint_want != TL_HINT_SILENT &&
	    !tl_rule_ignores(tc->t.rule))
		watch_missed(tc, c, seq - tc->hint_seq, tc->hint_want, now_ns);
	tc->hint_seq = seq;
	c->hint_events++;
	if (tc->hint_want == TL_HINT_SILENT)
		return 0;
	return tl_tell(tc, c, hint_event(slot, tc->hint_want), tc->hint_want,
		       now_ns);
}

/* The current task and its CPU, for programs outside the scheduler. */
struct here {
	struct task_struct *p;
	struct task_ctx *tc;
	struct tl_cpu *c;
	u32 cpu;
};

/* The task's type has changed: it leaves if it must. */
static __always_inline void leave_if_it_must(struct here *h)
{
	if (must_leave(h->p, h->tc, h->c, h->cpu))
		leave(h->tc);
}

/* False if there is nothing to be done for them; away.bpf.h. */
static __always_inline bool try_lookup_here(struct here *h)
{
	u32 cpu = bpf_get_smp_processor_id();

	h->p = bpf_get_current_task_btf();
	h->tc = try_lookup_task(h->p);
	if (!h->tc || cpu >= TL_CPUS_MAX)
		return false;
	h->c = &cpus[cpu];
	h->cpu = cpu;
	return !away;
}

/* ---- marked functions; the cookie is the rule of policy/mark.h ---- */

/*
 * A task that begins a section where it belongs stays, and no one displaces it: no
 * need to look again at the end of the probe.
 */
static __always_inline void tell_mark(struct here *h, u32 event, u32 level)
{
	u32 noted = h->tc->look;
	u64 now_ns = bpf_ktime_get_ns();
	bool in_place;

	h->c->mark_events++;
	begin_report(h->tc);
	h->tc->look = 1; /* before a tick can see it as what it is now */
	tell(h->tc, h->c, event, level, now_ns);
	end_report(h->tc);
	in_place = is_in_place(h->tc, h->c);
	if (in_place)
		h->c->running_queue = tl_task_queue(&h->tc->t);
	if (!note_stay(&h->tc->t, h->cpu, now_ns) && in_place)
		h->tc->look = noted;
}

/* A marked function is called, and the scheduler is away. */
static __always_inline void note_call(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	if (cpu < TL_CPUS_MAX)
		cpus[cpu].mark_events++;
}

/* Both ends by one program, since 6.13. An entry that returns 1 has no return:
 * the kernel does not even put its trampoline there. */
SEC("?uprobe.session")
int tl_mark_session(struct pt_regs *regs)
{
	u64 rule = bpf_get_attach_cookie(regs);
	bool is_return = tl_session_is_return(regs);
	struct here h;

	if (!is_return && !call_counts(regs, rule))
		return 1;
	if (away) {
		note_call();
		return 1;
	}
	bpf_preempt_disable();
	if (try_lookup_here(&h))
		tell_mark(&h, is_return ? TL_EV_MARK_RETURN : TL_EV_MARK_ENTER,
			  tl_mark_level(rule));
	bpf_preempt_enable();
	return 0;
}

/* The same by two, for older kernels. */
SEC("?uprobe")
int tl_mark_enter(struct pt_regs *regs)
{
	u64 rule = bpf_get_attach_cookie(regs);
	bool counts = call_counts(regs, rule), here;
	struct here h;

	bpf_preempt_disable();
	here = try_lookup_here(&h);
	if (h.tc && tl_calls_enter(&h.tc->calls, counts)) {
		if (here)
			tell_mark(&h, TL_EV_MARK_ENTER, tl_mark_level(rule));
		else
			note_call();
	}
	bpf_preempt_enable();
	return 0;
}

SEC("?uretprobe")
int tl_mark_return(struct pt_regs *regs)
{
	struct here h;
	bool here;

	bpf_preempt_disable();
	here = try_lookup_here(&h);
	if (h.tc && tl_calls_return(&h.tc->calls) && here)
		tell_mark(&h, TL_EV_MARK_RETURN, 0);
	bpf_preempt_enable();
	return 0;
}

static __always_inline int leave_if_noted(void)
{
	struct here h;

	bpf_preempt_disable();
	if (try_lookup_here(&h) && h.tc->look) {
		h.tc->look = 0;
		time_stay(&h.tc->t, h.cpu, bpf_ktime_get_ns());
		leave_if_it_must(&h);
	}
	bpf_preempt_enable();
	return 0;
}

/* At the return of the kernel's functions that run uprobe programs, below. A probe
 * of returns may not kick, but the tracer has disabled preemption around it: what
 * it calls may, and the task leaves when the probe is over (leave.bpf.h). So it
 * rings: it calls a function of the kernel that a program of ours watches and that
 * has hardly any other callers. */
SEC("?kretprobe.multi")
int tl_uprobe_over(struct pt_regs *regs)
{
	struct task_ctx *tc = try_lookup_task(bpf_get_current_task_btf());

	if (tc && tc->look)
		bpf_get_numa_node_id();
	return 0;
}

SEC("?fentry/bpf_get_numa_node_id")
int BPF_PROG(tl_look_bell)
{
	return leave_if_noted();
}

/* The same without such probes. The three paths by which the kernel gets to uprobe
 * programs: the breakpoint; since 6.11 the return trampoline's system call; since
 * 6.18 the system call that replaces a breakpoint on a five-byte nop. */
SEC("?fexit/uprobe_notify_resume")
int BPF_PROG(tl_uprobe_done, struct pt_regs *regs)
{
	return leave_if_noted();
}

SEC("?fexit/__x64_sys_uretprobe")
int BPF_PROG(tl_uretprobe_syscall_done, const struct pt_regs *regs)
{
	return leave_if_noted();
}

SEC("?fexit/__x64_sys_uprobe")
int BPF_PROG(tl_uprobe_syscall_done, const struct pt_regs *regs)
{
	return leave_if_noted();
}

/* ---- system calls ---- */

/* Of policy/last.h: the section of a task may have begun on its wide CPU, or ended where
 * the task is away, without a word. True if its type or level changed. */
static __always_inline u32 read_section(struct here *h)
{
	if (!(cfg.remigrate & TL_REMIGRATE_LAST_SYSCALL))
		return 0;
	if (!h->c->class && !tl_last_is_away(&h->tc->t.last))
		return 0;
	return read_hint(h->p, h->tc, h->c, bpf_ktime_get_ns());
}

static __always_inline int on_syscall(u32 event)
{
	struct here h;
	u32 changed;

	tl_tracepoint_begin();
	if (!try_lookup_here(&h))
		goto out;
	begin_report(h.tc);
	changed = read_section(&h);
	if (tl_task_syscall_matters(&h.tc->t))
		changed |= tell_end(h.tc, h.c, event, bpf_ktime_get_ns());
	end_report(h.tc);
	if (changed)
		leave_if_it_must(&h);
out:
	tl_tracepoint_end();
	return 0;
}

SEC("?tp_btf/sys_enter")
int BPF_PROG(tl_syscall_enter, struct pt_regs *regs, long nr)
{
	if (nr == NR_URETPROBE || nr == NR_UPROBE || nr == NR_SCHED_YIELD)
		return 0;
	return on_syscall(TL_EV_SYSCALL_ENTRY);
}

SEC("?tp_btf/sys_exit")
int BPF_PROG(tl_syscall_exit, struct pt_regs *regs, long ret)
{
	return on_syscall(TL_EV_SYSCALL_RETURN);
}

/* ---- the trap module ---- */

SEC("?tp_btf/turbolane_wide")
int BPF_PROG(tl_trap, struct task_struct *task, u32 level, unsigned long ip)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct here h;

	tl_tracepoint_begin();
	if (try_lookup_here(&h)) {
		h.c->trap_events++;
		h.tc->sums.traps++;
		begin_report(h.tc);
		tl_tell(h.tc, h.c, TL_EV_TRAP, level, now_ns);
		end_report(h.tc);
		leave_if_it_must(&h);
	}
	tl_tracepoint_end();
	return 0;
}

#endif
