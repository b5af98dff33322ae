// SPDX-License-Identifier: GPL-2.0
/*
 * Periods in which a task runs with the full XCR0 wherever it is.
 *
 * Forward progress. A trapped task runs with the full XCR0 for a while
 * wherever it is: for hold_ns if it was steered (the scheduler may have to
 * leave it here: pinned, or the wide CPUs busy), for grace_ns otherwise. The
 * time is the task's, not the CPU's: a note that a switch clears makes a
 * livelock (seen: 300,000 traps). It ends early when the task migrates to a
 * CPU that withholds nothing, so that it is caught again when it comes back.
 * If it is sent back before it has executed anything there, STUCK_MOVES times
 * in a row, it gets STUCK_NS on the CPU it comes back to. Without memory for a
 * note, the CPU keeps the full XCR0.
 *
 * Programs also check the CPU's features with XGETBV, and size XSAVE buffers by
 * CPUID.0DH, which depends on XCR0. Neither faults. Most programs check when they
 * start: after execve a task has the full XCR0 for exec_grace_ns of its own CPU
 * time, not of elapsed time, because it may wait longer than that for a CPU.
 */
#include <linux/minmax.h>
#include <linux/sched/clock.h>
#include <linux/sched/task_stack.h>
#include <linux/uprobes.h>
#include <asm/ptrace.h>

#include "settings.h"
#include "trap.h"

/* A few moves for nothing, then time for some instructions. */
#define STUCK_MOVES 8
#define STUCK_NS 50000

/* se.sum_exec_runtime is up to date at the last tick or switch only. */
#define RUNTIME_LAG_NS (2 * TICK_NSEC)

/*
 * Whether the task, which is the current one, is returning from the trap that
 * gave it its period: the period has just begun, and the clock need not be read.
 * If a task was switched out in between, the next task that returns here takes its
 * note; if that is the same task, it is left full once more at most.
 */
static bool comes_from_trap(struct tlt_cpu *c, const struct tlt_task *t)
{
	bool same = t && c->just_trapped == t;

	c->just_trapped = NULL;
	return same && t->full_until_ns;
}

/*
 * Whether the current task is about to execute an instruction that has a probe, out
 * of line. That may be an XSAVE or XRSTOR. A period from the probe on would not do:
 * however long it is, it can be over before the instruction is executed, if interrupts
 * or the host take the CPU away in between. The kernel clears this when the step has
 * been made, or has been taken back.
 */
static bool steps_over_probe(void)
{
	return unlikely(current->utask) && current->utask->active_uprobe;
}

/* Whether the current task returns to user mode with the full XCR0. */
bool tlt_runs_full(struct tlt_cpu *c)
{
	struct tlt_task *t;
	u64 now_ns;

	if (steps_over_probe())
		goto full;
	if (unlikely(c->skip_until_ns)) {
		if (local_clock() < c->skip_until_ns)
			goto full;
		c->skip_until_ns = 0;
	}
	t = tlt_task_find(current);
	if (c->just_trapped && comes_from_trap(c, t))
		goto full;
	if (!t || (!(t->full_until_ns | t->full_until_run_ns) &&
		   t->vain_moves < STUCK_MOVES))
		return false;
	now_ns = local_clock();
	if (unlikely(t->vain_moves >= STUCK_MOVES)) {
		t->vain_moves = 0;
		t->full_until_ns = now_ns + STUCK_NS;
	}
	if (now_ns < t->full_until_ns)
		goto full;
	t->full_until_ns = 0;
	if (!t->full_until_run_ns)
		return false;
	if (current->se.sum_exec_runtime < t->full_until_run_ns)
		goto full;
	t->full_until_run_ns = 0;
	return false;
full:
	c->counters.grace_returns++;
	return true;
}

/* The current task sees the full XCR0 for so much of its CPU time, from now on. */
static void full_for(u64 grace_ns)
{
	struct tlt_task *t = tlt_task_get(current);

	if (!t) {
		unsigned long flags;

		local_irq_save(flags);
		this_cpu_write(tlt_cpu.skip_until_ns, local_clock() + grace_ns);
		tlt_full(TLT_FULL_TRAP);
		local_irq_restore(flags);
		return;
	}
	WRITE_ONCE(t->full_until_run_ns,
		   max(t->full_until_run_ns, current->se.sum_exec_runtime +
						     grace_ns +
						     RUNTIME_LAG_NS));
	tlt_full(TLT_FULL_TRAP);
}

/* It has just started, or is about to look. */
void tlt_full_for_a_while(void)
{
	u64 grace_ns = tlt_setting(&tlt_exec_grace_ns);

	if (grace_ns)
		full_for(grace_ns);
}

/* XGETBV follows its probe at once. XSAVE and XRSTOR need no period: steps_over_probe(). */
#define SITE_NS 1000000ULL

/* Before an instruction that must see the full XCR0, whatever the settings. */
void tlt_full_at_site(void)
{
	full_for(max_t(u64, tlt_setting(&tlt_exec_grace_ns), SITE_NS));
}

/* The current task has executed a program: nothing is known of it. */
void tlt_executed(void)
{
	struct tlt_task *t;

	rcu_read_lock();
	t = tlt_task_find(current);
	if (t)
		t->raised_level = false;
	rcu_read_unlock();
	tlt_process_learn(current, TLT_VERDICT_NONE);
	if (tlt_nr_armed())
		tlt_full_for_a_while();
}

/*
 * The current task maps code, or makes memory executable. A library may look for
 * what the CPU has as soon as it is loaded; a process that writes its own code has
 * looked already.
 */
void tlt_maps_code(bool of_file)
{
	if (tlt_process_verdict(current) == TLT_VERDICT_LIGHT)
		tlt_process_learn(current, TLT_VERDICT_NONE);
	if (of_file && tlt_nr_armed())
		tlt_full_for_a_while();
}

/* Whether the task's next instruction is the one that trapped last. */
static bool is_where_it_trapped(struct task_struct *p, const struct tlt_task *t)
{
	return t->traps && task_pt_regs(p)->ip == t->last_ip;
}

/* The task is not running, and its runqueue is locked. */
void tlt_migrating(struct task_struct *p, int to_cpu)
{
	struct tlt_task *t;

	if (!tlt_notes_any())
		return;
	rcu_read_lock();
	t = tlt_task_find(p);
	if (t && !tlt_is_armed(to_cpu))
		t->full_until_ns = 0;
	else if (t && !tlt_is_armed(task_cpu(p)))
		t->vain_moves = is_where_it_trapped(p, t) ? t->vain_moves + 1 :
							    0;
	rcu_read_unlock();
}
