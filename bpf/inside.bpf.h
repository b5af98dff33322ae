/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tasks inside a program. While a task is switched out inside one of our
 * tracing programs, the kernel skips that program for all others on this CPU
 * (it takes that for recursion), and they would not be asked to leave. So no task
 * that could need it may run before that task has gone on:
 *
 *   dispatch   prev may not migrate: it is kept until the next tick, or, if it
 *              is to leave (leave.bpf.h), switched out once, to idle and back
 *   running    another one was on the local queue already: sent away again
 */
#ifndef TL_INSIDE_BPF_H
#define TL_INSIDE_BPF_H

/* Whether the CPU's last task is one of ours and did not fall asleep. */
static __always_inline bool wants_to_go_on(const struct task_struct *prev)
{
	return prev && (prev->scx.flags & TL_TASK_QUEUED);
}

/* Whether the CPU is prev's, which may not migrate; nothing else is to run. */
static __always_inline bool goes_on_inside(struct task_struct *prev)
{
	struct task_ctx *tc;

	if (!wants_to_go_on(prev) || !may_not_migrate(prev))
		return false;
	tc = try_lookup_task(prev);
	if (tc && !tc->move)
		tl_scx_set_slice(prev, 1);
	return true;
}

/* A task stops on this CPU, or starts: keep track of which task is inside. */
static __always_inline void stops_inside(struct task_struct *p,
					 struct tl_cpu *c, bool runnable)
{
	if (runnable && may_not_migrate(p))
		c->inside = 1;
}

/* Whether this task must let the one inside go first. */
static __always_inline bool starts_too_early(struct task_struct *p,
					     struct tl_cpu *c)
{
	if (may_not_migrate(p))
		c->inside = 0;
	return c->inside && !(p->flags & PF_KTHREAD);
}

#endif
