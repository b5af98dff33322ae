/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A CPU looks for its next task: the policy's steps, each through all LLCs,
 * nearest first.
 *
 * The task that ran until now (prev) is not in a queue yet. If it could go on,
 * it does so, with a new slice, unless a queue of its own step or an earlier
 * one has a task: then the CPU changes hands, and prev queues up behind.
 *
 * If prev could go on and nobody has queued anything since the CPU last looked
 * in vain, it does not look again (arrivals.bpf.h). Nor, in that case, at what
 * prev has just hinted: stopping() reads it in a moment, and enqueue() finds
 * the place.
 */
#ifndef TL_SERVE_BPF_H
#define TL_SERVE_BPF_H

/* Tasks that wait in a queue; remembered for its clock, which goes on where
 * asking would cost too much. */
static __always_inline u32 nr_queued(u32 id)
{
	u32 *known = &queues_of(id)->nr_waiting[queue_of(id)];
	s32 nr = scx_bpf_dsq_nr_queued(id);

	if (nr < 0)
		nr = 0;
	if (*known != nr) /* CPUs of other LLCs look here too */
		*known = nr;
	return nr;
}

/* Take a task from one of the step's queues in this LLC; while both have tasks,
 * they take turns (policy/queues.h). */
static __always_inline bool take_from(struct tl_cpu *c, u32 class, u32 step,
				      u32 llc)
{
	u32 own = tl_queue_id(llc, tl_step_queue(class, step));
	u32 shared = tl_queue_id(llc, TL_Q_DEFAULT);
	u32 nr_own = nr_queued(own), nr_shared = 0, first;

	if (tl_step_has_default(step))
		nr_shared = nr_queued(shared);
	if (!nr_shared)
		return nr_own && tl_scx_move_to_local(own);
	if (!nr_own)
		return tl_scx_move_to_local(shared);
	first = tl_turns_own_first(&c->turns) ? own : shared;
	if (tl_scx_move_to_local(first)) {
		tl_turns_begin(&c->turns, first,
			       first == own ? nr_own : nr_shared);
		return true;
	}
	return tl_scx_move_to_local(first == own ? shared : own);
}

static __noinline int take_step(struct tl_cpu *c, u32 step)
{
	u32 class, llc, i;

	if (!c)
		return 0;
	class = c->class & 3;
	llc = c->llc & (TL_LLCS_MAX - 1);
	bpf_for(i, 0, nr_llcs) {
		u32 other;

		if (i >= TL_LLCS_MAX)
			break;
		other = llc_order[llc][i] & (TL_LLCS_MAX - 1);
		if (take_from(c, class, step, other)) {
			c->steals += other != llc;
			return 1;
		}
	}
	return 0;
}

/* Whether the CPU's last task is one of ours and did not fall asleep. */
static __always_inline bool wants_to_go_on(const struct task_struct *prev)
{
	return prev && (prev->scx.flags & TL_TASK_QUEUED);
}

/* The context of prev if it wants to go on and may, else NULL. */
static __always_inline struct task_ctx *
context_if_it_stays(struct task_struct *prev, struct tl_cpu *c, bool quiet)
{
	struct task_ctx *tc;

	if (!wants_to_go_on(prev))
		return NULL;
	tc = lookup_task(prev);
	if (!tc)
		return NULL;
	if (try_unread_hint(prev, tc)) {
		if (quiet)
			return NULL;
		read_hint(prev, tc, c, bpf_ktime_get_ns());
	}
	return may_stay(prev, tc, c->class) ? tc : NULL;
}

/* The number of steps whose tasks go before this one on this CPU: its own step
 * is among them, so that equals take turns. */
static __always_inline u32 nr_steps_before(struct task_ctx *tc, u32 class)
{
	u32 step = tl_queue_step(class, tl_task_queue(&tc->t));

	return step < tl_nr_steps(class) ? step + 1 : tl_nr_steps(class);
}

/*
 * Tasks inside a program. While a task is switched out inside one of our
 * tracing programs, the kernel skips that program for all others on this CPU
 * (it takes that for recursion), and they would not be told to leave. So nobody
 * that could need it may run before that task has gone on:
 *
 *   dispatch   prev may not migrate: it is kept until the next tick, or, if it
 *              is to leave (leave.bpf.h), switched out once, to idle and back
 *   running    somebody else was on the local queue already: sent away again
 */

/* Whether the CPU is prev's, which may not migrate; nothing else is to run. */
static __always_inline bool goes_on_pinned(struct task_struct *prev)
{
	struct task_ctx *tc;

	if (!wants_to_go_on(prev) || !may_not_migrate(prev))
		return false;
	tc = try_lookup_task(prev);
	if (tc && !tc->move)
		tl_scx_set_slice(prev, 1);
	return true;
}

/* Kick the other CPUs between task and idle: they may have looked too early. */
static __always_inline void kick_those_between(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	u32 cpu, here = bpf_get_smp_processor_id();

	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		if (cpus[cpu].running_queue == TL_Q_NONE &&
		    cpus[cpu].class < TL_NR_CLASSES && cpu != here &&
		    !bpf_cpumask_test_cpu(cpu, idle))
			scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
	}
	scx_bpf_put_idle_cpumask(idle);
}

static __always_inline bool any_idle(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool any = !bpf_cpumask_empty(idle);

	scx_bpf_put_idle_cpumask(idle);
	return any;
}

/* Tasks of a queue for which a later look looks for idle CPUs. Those at the head
 * may be bound to busy ones. */
#define TL_LOOK_AHEAD 8

/* Claim and wake idle CPUs for the tasks that wait in this LLC. Returns for how
 * many there was one. */
__noinline int tl_find_overlooked(u32 llc)
{
	struct task_struct *p;
	u32 queue;
	int found = 0;

	bpf_for(queue, 0, TL_NR_QUEUES) {
		u32 id = tl_queue_id(llc, queue), seen = 0;

		if (!nr_queued(id))
			continue;
		tl_for_each_queued(p, id)
		{
			struct task_ctx *tc = try_lookup_task(p);
			s32 cpu = -1;

			if (tc)
				cpu = claim_idle(p, tc, scx_bpf_task_cpu(p));
			if (cpu >= 0) {
				scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
				found++;
			}
			if (++seen >= TL_LOOK_AHEAD)
				break;
		}
	}
	return found;
}

/* The CPU looks after what it has queued since it last did so, and after these
 * LLCs' tasks; see arrivals.bpf.h. */
static __always_inline void look_after_queued(struct tl_cpu *c, u64 llcs)
{
	u32 llc;

	if (c->queued_llcs) {
		llcs |= c->queued_llcs;
		c->queued_llcs = 0;
		count_arrival(0);
		c->quiet_at++; /* this count is no news here */
		kick_those_between();
	}
	if (!llcs || !any_idle())
		return;
	bpf_for(llc, 0, nr_llcs) {
		if (llcs >> (llc & (TL_LLCS_MAX - 1)) & 1)
			c->overlooked += tl_find_overlooked(llc);
	}
}

/* Take a task for the CPU, from one of its first steps; arrivals is the sum
 * read before. */
static __always_inline bool take(struct tl_cpu *c, u32 nr_steps, u64 arrivals)
{
	u32 step;

	bpf_for(step, 0, nr_steps) {
		if (step >= TL_NR_CLASSES)
			break;
		if (take_step(c, step))
			return true;
	}
	if (nr_steps == tl_nr_steps(c->class)) {
		c->quiet_at = arrivals;
		look_after_queued(c, 0);
	}
	return false;
}

/* The turn of what ran until now is over. If it wants to go on, what it has used
 * counts before the next task is chosen: stopping() comes after that. */
static __always_inline void end_turn(struct task_struct *prev, struct tl_cpu *c)
{
	struct task_ctx *tc;

	if (wants_to_go_on(prev)) {
		tc = lookup_task(prev);
		if (tc)
			account_run(tc, c, bpf_ktime_get_ns());
	}
	tl_turns_end(&c->turns);
}

/* The CPU's task leaves: from here until it runs another it is between task and
 * idle for others, who must know before it looks (a full barrier). Returns the
 * arrivals before that look. */
static __always_inline u64 be_between(struct tl_cpu *c)
{
	__sync_lock_test_and_set(&c->running_queue, TL_Q_NONE);
	return nr_arrivals();
}

static __always_inline void serve(s32 cpu, struct task_struct *prev)
{
	struct tl_cpu *c = lookup_cpu(cpu);
	struct task_ctx *stays;
	u64 arrivals;
	bool quiet;

	if (!c || fault == TL_FAULT_STALL || goes_on_pinned(prev))
		return;
	if (c->turns.queue)
		end_turn(prev, c);
	arrivals = nr_arrivals();
	quiet = wants_to_go_on(prev) && c->quiet_at == arrivals;
	stays = context_if_it_stays(prev, c, quiet);
	if (!stays)
		arrivals = be_between(c);
	if (!quiet && take(c,
			   stays ? nr_steps_before(stays, c->class) :
				   tl_nr_steps(c->class),
			   arrivals))
		return;
	if (!stays || !prev)
		return;
	tl_scx_set_slice(prev, tl_task_slice_ns(&stays->t, &cfg));
	/* It goes on without running() being called, and its type may have
	 * changed since it started: say who may displace it now. Else a guest
	 * that was wide until now holds a wide CPU until the next tick. */
	c->running_queue = tl_task_queue(&stays->t);
}

/* A task stops on this CPU, or starts: keep track of who is inside. */
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

/* Whether a queue that the CPU serves in one of these steps holds anything. */
static __always_inline bool has_work_in_steps(struct tl_cpu *c, u32 nr_steps)
{
	u32 queue, i;

	bpf_for(i, 0, nr_llcs) {
		bpf_for(queue, 0, TL_NR_QUEUES) {
			if (tl_queue_step(c->class & 3, queue) >= nr_steps)
				continue;
			if (nr_queued(tl_queue_id(i, queue)))
				return true;
		}
	}
	return false;
}

/* Whether the task is a guest that should go now: something waits that goes
 * before it (its kick may have been lost, e.g. to a change of the classes), or
 * a scalar CPU is idle. */
static __always_inline bool
guest_should_go(struct task_struct *p, struct task_ctx *tc, struct tl_cpu *c)
{
	return tl_task_is_guest(&tc->t, c->class) &&
	       (better_place_idle(p) ||
		has_work_in_steps(c, tl_nr_steps(c->class & 3) - 1));
}

#endif
