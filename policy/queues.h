/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Queues: where a runnable task waits, and in which order a CPU serves them.
 *
 * Problem: wide work must never wait behind scalar work on a wide CPU and
 * never run on a scalar CPU; scalar work must not starve; tasks that nobody
 * classified, and those whose affinity leaves no choice, must run whatever
 * the others do (SYSTOR 3.2, figure 4).
 *
 * Idea: per LLC one queue for default tasks, one for scalar tasks and one
 * for each class of wide CPUs (one in all without tiers). A CPU goes through
 * *steps*; the queues of a step share the CPU, an earlier step goes strictly
 * before a later one:
 *
 *   class  step 0              step 1         step 2         last step
 *   0      scalar + default
 *   1      wide[1] + default   scalar
 *   2      wide[2] + default   wide[1]        scalar
 *   3      wide[3] + default   wide[2]        wide[1]        scalar
 *
 * A step is looked for in the CPU's own LLC first, then in the others, nearest
 * first, before the next step. So a wide CPU takes any wide work of the
 * machine before it takes scalar work of its own LLC.
 *
 * A task waits in an LLC that holds a CPU for it: one that its affinity allows
 * and that serves its queue in the first step (of scalar tasks: a scalar CPU).
 * Elsewhere it could starve: CPUs that always have work of their own LLC never
 * look further.
 *
 * Strict order starves nobody: wide tasks have the wide CPUs of their class
 * and above; scalar tasks have the scalar CPUs, and a scalar task that may
 * use none counts as default. The queues of step 0 take turns, below.
 *
 * Within a queue tasks are ordered by virtual time: CPU time divided by
 * weight, on a clock that each queue has for itself: what its tasks that wait
 * or run have got in the mean. One clock for all would be wrong: scalar CPUs
 * with one task each and wide CPUs with twenty advance at different speeds,
 * and a task from the quick side would wait without end on the slow one. A
 * task that changes its queue takes along its *lag*, how far it was ahead of
 * the old clock, limited to one slice either way.
 *
 * The mean, not the greatest or the least virtual time among them: such a clock
 * stands still while tasks come, use a slice and go elsewhere, each of which
 * enters behind it; who is a slice ahead of it would wait for as long as others
 * come. The mean goes on with whatever runs, so that who comes later enters
 * later.
 *
 * Two queues of a step take *turns* on each CPU by service. While tasks wait in
 * both, the CPU remembers which it took from, and how many waited there; what
 * the task uses then counts, as virtual time per waiting task, for that queue's
 * side of a balance. The queue that has had less goes first. So each queue gets
 * the CPU in proportion to the weights of its tasks, and a task that has used
 * up its slice waits for the others of both queues to use theirs, no longer.
 *
 * Service, not waiting: tasks that run for a moment at a time become heads of
 * their queue in turn, none of which has waited for long, so a rule that asks
 * the heads starves whoever is behind them. A balance per CPU, not per pair of
 * queues: tasks that some CPUs may not run make those CPUs serve the other
 * queue, and a common balance would hold that against it where it has no
 * choice. For the same reason a CPU that finds nothing it may run in the queue
 * whose turn it is takes from the other one without counting it.
 *
 * Before all queues go kernel threads that wake, because the rest of the kernel
 * waits for them, but for no more than half of a CPU's time: those that have had
 * a slice more than all others there take their turn as default tasks.
 *
 * Queue ids, which are DSQ ids in the kernel:
 *
 *   63 .. 16     15 .. 8    7 .. 0
 *   +----------+----------+--------+
 *   | 0        | llc + 1  | queue  |     llc + 1: an id is never 0
 *   +----------+----------+--------+
 */
#ifndef TL_POLICY_QUEUES_H
#define TL_POLICY_QUEUES_H

#include "task.h"

enum tl_queue {
	TL_Q_DEFAULT = 0,
	TL_Q_SCALAR = 1,
	TL_Q_WIDE = 2, /* + class - 1 */
	TL_NR_QUEUES = 2 + TL_LEVEL_MAX,
	TL_Q_NONE = 255,
};

tl_inline u32 tl_queue_id(u32 llc, u32 queue)
{
	return ((llc + 1) << 8) | queue;
}

/* The LLC of a queue's id. */
tl_inline u32 tl_queue_llc(u32 id)
{
	return (id >> 8) - 1;
}
_Static_assert(TL_NR_QUEUES <= 255, "a queue fits its byte");
_Static_assert(TL_LLCS_MAX < 255, "an llc fits its byte");

/* Highest class in caps, 0 if none: caps is never empty for a task that can
 * run at all. */
tl_inline u32 tl_highest_class(u32 caps)
{
	u32 c = TL_LEVEL_MAX;

#pragma unroll
	for (u32 i = 0; i < TL_LEVEL_MAX; i++)
		if (c && !(caps >> c & 1))
			c--;
	return c;
}

/* Lowest class in caps, 0 if there is none. */
tl_inline u32 tl_lowest_class(u32 caps)
{
	u32 class = 0;

#pragma unroll
	for (u32 c = TL_LEVEL_MAX; c > 0; c--)
		if (caps >> c & 1)
			class = c;
	return caps & 1 ? 0 : class;
}

/*
 * Class of CPU the task needs: the lowest of those its affinity holds that is
 * at least its level. Where there is none, the highest it may use: a wide
 * task that is allowed scalar CPUs only runs there (SYSTOR 3.2, case 2).
 */
tl_inline u32 tl_task_need(const struct tl_task *t)
{
	if (t->type != TL_WIDE)
		return 0;
#pragma unroll
	for (u32 c = 1; c <= TL_LEVEL_MAX; c++)
		if (c >= t->level && (t->caps >> c & 1))
			return c;
	return tl_highest_class(t->caps);
}

/* Queue of its LLC that the task waits in. A scalar task that may use wide
 * CPUs only counts as default there (SYSTOR 3.2, case 1). */
tl_inline u32 tl_task_queue(const struct tl_task *t)
{
	u32 need = tl_task_need(t);

	if (need)
		return TL_Q_WIDE + need - 1;
	if (t->type == TL_DEFAULT || !(t->caps & 1))
		return TL_Q_DEFAULT;
	return TL_Q_SCALAR;
}

/* Class of the CPUs that are there for a queue; TL_NR_CLASSES if all are. */
tl_inline u32 tl_queue_class(u32 queue)
{
	if (queue == TL_Q_DEFAULT)
		return TL_NR_CLASSES;
	return queue == TL_Q_SCALAR ? 0 : queue - TL_Q_WIDE + 1;
}

tl_inline u32 tl_nr_steps(u32 class)
{
	return class + 1;
}

/* The queue of a step that is not TL_Q_DEFAULT. */
tl_inline u32 tl_step_queue(u32 class, u32 step)
{
	return class > step ? TL_Q_WIDE + class - step - 1 : TL_Q_SCALAR;
}

/* Whether the default queue belongs to a step. */
tl_inline u32 tl_step_has_default(u32 step)
{
	return step == 0;
}

/* Step at which a CPU of this class serves the queue; tl_nr_steps(class) if
 * never. */
tl_inline u32 tl_queue_step(u32 class, u32 queue)
{
	if (queue == TL_Q_DEFAULT)
		return 0;
	if (queue == TL_Q_SCALAR)
		return class;
	queue -= TL_Q_WIDE - 1;
	return queue <= class ? class - queue : class + 1;
}

/* Whether a CPU of this class may run the tasks of the queue at all. */
tl_inline u32 tl_queue_fits(u32 queue, u32 class)
{
	return tl_queue_step(class, queue) < tl_nr_steps(class);
}

tl_inline u32 tl_task_fits(const struct tl_task *t, u32 class)
{
	return tl_queue_fits(tl_task_queue(t), class);
}

/* Whether the task, on a CPU of this class, only fills time that wide work
 * may claim at any moment: it leaves as soon as there is a better place. */
tl_inline u32 tl_task_is_guest(const struct tl_task *t, u32 class)
{
	return class && tl_task_queue(t) == TL_Q_SCALAR;
}

tl_inline u64 tl_task_slice_ns(const struct tl_task *t,
			       const struct tl_cfg *cfg)
{
	return t->type == TL_WIDE ? cfg->slice_wide_ns : cfg->slice_ns;
}

/* What CPU time of used_ns is on the task's clock. */
tl_inline u64 tl_vtime_ns(const struct tl_task *t, u64 used_ns)
{
	return used_ns * TL_WEIGHT_NICE0 / (t->weight ? t->weight : 1);
}

/* Charge CPU time. */
tl_inline void tl_vtime_charge(struct tl_task *t, u64 used_ns)
{
	t->vtime_ns += tl_vtime_ns(t, used_ns);
}

/*
 * Enter the queue with the given id, from the clock value of the queue it
 * used last (old_clock_ns) to that of the new one. A task that slept does not
 * save up more than a slice. One that ran ahead, on another clock or because it
 * was alone for a long time, does not pay more than the slice it had.
 */
tl_inline void tl_vtime_place(struct tl_task *t, u32 id, u64 old_clock_ns,
			      u64 new_clock_ns, u64 slice_ns)
{
	s64 lag_ns = (s64)(t->vtime_ns - old_clock_ns);
	s64 ahead_ns = (s64)tl_vtime_ns(t, slice_ns);

	if (lag_ns < -(s64)slice_ns)
		lag_ns = -(s64)slice_ns;
	if (lag_ns > ahead_ns)
		lag_ns = ahead_ns;
	t->vtime_ns = new_clock_ns + (u64)lag_ns;
	t->clock = id;
}

/* How far the clock of a queue goes when a task of it has used CPU time, where
 * nr_tasks of its tasks wait or run. */
tl_inline u64 tl_vtime_step(const struct tl_task *t, u64 used_ns, u32 nr_tasks)
{
	return tl_vtime_ns(t, used_ns) / (nr_tasks ? nr_tasks : 1);
}

/* A CPU's balance between the two queues of a step. All zero is even. */
struct tl_turns {
	/* virtual time per task that the own queue has had more than the
	 * default queue, while both had tasks */
	s64 lead_ns;
	u32 queue; /* id of the queue that it took from while both had tasks */
	u32 nr_tasks; /* that waited there, the one taken included */
	/* CPU time that tasks which went before all queues have had more than
	 * the others */
	s64 first_ns;
};

/* Whether it is the turn of the step's own queue. */
tl_inline u32 tl_turns_own_first(const struct tl_turns *turns)
{
	return turns->lead_ns <= 0;
}

/* The CPU took a task from the queue with this id, where nr_tasks waited, while
 * the other queue of the step had tasks too. */
tl_inline void tl_turns_begin(struct tl_turns *turns, u32 id, u32 nr_tasks)
{
	turns->queue = id;
	turns->nr_tasks = nr_tasks;
}

/* What runs now did not come from a queue while the other had tasks. */
tl_inline void tl_turns_end(struct tl_turns *turns)
{
	turns->queue = 0;
}

/*
 * The CPU's task has used CPU time: count it if this is a turn. A task that
 * could not be stopped at the end of its slice makes a lead of no more than two
 * slices: the tick that ends a slice may be that late, the rest is not what its
 * queue chose.
 */
tl_inline void tl_turns_charge(struct tl_turns *turns, const struct tl_task *t,
			       u64 used_ns, u64 slice_ns)
{
	u32 own = (turns->queue & 255) != TL_Q_DEFAULT;
	s64 lead_ns = own ? turns->lead_ns : -turns->lead_ns;
	s64 most_ns = (s64)tl_vtime_ns(t, 2 * slice_ns);
	s64 more_ns;

	if (!turns->queue || t->clock != turns->queue)
		return;
	more_ns = (s64)tl_vtime_step(t, used_ns, turns->nr_tasks);
	if (more_ns > most_ns - lead_ns)
		more_ns = most_ns > lead_ns ? most_ns - lead_ns : 0;
	turns->lead_ns += own ? more_ns : -more_ns;
}

/* Whether a task that wakes may go before all queues of this CPU. */
tl_inline u32 tl_turns_may_go_first(const struct tl_turns *turns, u64 slice_ns)
{
	return turns->first_ns <= (s64)slice_ns;
}

/* The CPU's task has used CPU time; did it go before all queues? What counts is
 * the last two slices: an idle CPU owes nobody, nor does a busy one for long. */
tl_inline void tl_turns_charge_first(struct tl_turns *turns, u32 went_first,
				     u64 used_ns, u64 slice_ns)
{
	s64 most_ns = 2 * (s64)slice_ns;
	s64 first_ns =
		turns->first_ns + (went_first ? (s64)used_ns : -(s64)used_ns);

	if (first_ns > most_ns)
		first_ns = most_ns;
	if (first_ns < -most_ns)
		first_ns = -most_ns;
	turns->first_ns = first_ns;
}

/*
 * The CPU's task has used CPU time, one of nr_tasks of its queue that wait or
 * run. Its virtual time goes on, and the CPU's balances; returns by how much the
 * clock of its queue does.
 */
tl_inline u64 tl_charge(struct tl_task *t, struct tl_turns *turns,
			const struct tl_cfg *cfg, u64 used_ns, u32 nr_tasks,
			u32 went_first)
{
	tl_vtime_charge(t, used_ns);
	tl_turns_charge(turns, t, used_ns, tl_task_slice_ns(t, cfg));
	tl_turns_charge_first(turns, went_first, used_ns, cfg->slice_ns);
	return tl_vtime_step(t, used_ns, nr_tasks);
}

#endif
