/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Leaving a CPU on request of a tracing program.
 *
 * Problem: a program at a uprobe or a system call sees that the current task
 * must go elsewhere. It runs with migration disabled, and the kick that it
 * sends to its own CPU is an interrupt that arrives at once: on a preemptible
 * kernel the task is switched out inside the program, may not migrate, and
 * comes back to where it is. The move is lost. And if each return is answered
 * by another kick, the task never gets to the end of the program (seen as an
 * RCU stall on 7.3).
 *
 * Idea: a task that was switched out with migration disabled gets its affinity
 * back when the program ends, in migrate_enable(); the kernel then calls
 * set_cpumask(). A kick sent from there takes effect when migrate_enable()
 * enables preemption again, and migration is enabled by then:
 *
 *   program: move = 1, kick -> switched out, not moved -> back -> program ends
 *     -> set_cpumask: move == 1, kick -> switched out, moved
 *
 * This costs three switches or more instead of one, and what else waits on the CPU
 * is started and sent away in between. So the programs at uprobes avoid it where the
 * kernel has probes of function returns (fprobe): around those the tracer disables
 * preemption, so a kick from there takes effect when the probe is over, and no
 * program is active any more. The same holds at the trap module's tracepoint. (The
 * kernel leaves the probe out on a CPU where a task has been switched out in the middle
 * of a change to a BPF map, and the bell while the function tracer is at work: then
 * the task goes at its next event, or at the tick.)
 *
 * If the first interrupt is slow and arrives after the program has ended, it
 * already is the one that moves the task, and stopping() clears the note.
 * Whichever comes first, the task leaves before its next instruction in user
 * space, or as soon as the interrupt reaches it there. No timer is involved:
 * a timer of 1 us was tried, and under emulation is late by more than most
 * wide sections last.
 */
#ifndef TL_LEAVE_BPF_H
#define TL_LEAVE_BPF_H

/* Whether the task has disabled its migration. Programs called for the current
 * task count themselves: the kernel disables its migration around them. */
static __always_inline bool may_not_migrate(struct task_struct *p)
{
	u32 own = p == bpf_get_current_task_btf();

	return tl_migration_disabled(p) > own;
}

/* Have the current task give up its CPU; for tracing programs. */
static __always_inline void leave(struct task_ctx *tc)
{
	tc->move = 1;
	scx_bpf_kick_cpu(bpf_get_smp_processor_id(), TL_KICK_PREEMPT);
}

/* Whether the mask in force is the task's affinity, not the single CPU that
 * replaces it while migration is disabled. */
static __always_inline bool has_own_mask(struct task_struct *p)
{
	u64 in_force = (u64)BPF_CORE_READ(p, cpus_ptr);

	return in_force == (u64)p + bpf_core_field_offset(p->cpus_mask);
}

/* The kernel has set the task's mask: its affinity changed, or migration was
 * disabled or enabled. */
static __always_inline void leave_at_last(struct task_struct *p,
					  struct task_ctx *tc)
{
	if (!tc->move || p != bpf_get_current_task_btf() || !has_own_mask(p))
		return;
	scx_bpf_kick_cpu(bpf_get_smp_processor_id(), TL_KICK_PREEMPT);
}

/* Whether the running task was sent away and is about to leave: what is
 * left for it here is kernel code. */
static __always_inline bool is_leaving(const struct task_ctx *tc)
{
	return tc->look || tc->move;
}

#endif
