/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Turns: how the queues that a CPU serves with equal rights share it.
 *
 * Problem: up to three queues belong to a CPU's first step (queues.h): its class's
 * own, the one of default tasks, and the one of tasks pinned to this CPU. Each
 * has a clock of its own, so the keys of their tasks say nothing about shares.
 *
 * Idea: each queue is a *side*. What the CPU's task uses counts for its side, as
 * virtual time per task of that side; the side that has had least goes first. So
 * each side gets the CPU in proportion to the weights of its tasks. The task that runs
 * counts for its side: it goes on if it is its side's turn and its key is the least
 * there.
 *
 * Other CPUs serve a shared queue, too: so the tasks that count are this CPU's part
 * of them, nr_tasks / nr_cpus. Otherwise a task that is pinned to one of 16 CPUs
 * would get a 17th of it next to 16 tasks that have a CPU each.
 *
 * Service, not waiting: tasks that run for a moment at a time become heads of
 * their queue in turn, none of which has waited for long, so a rule that looks only
 * at the heads starves the tasks after them.
 *
 * Bound: shares alone have none (a side of one task of weight 1 and a side of a
 * thousand). So a side whose head is due TL_TURN_LATE_NS earlier than the head of
 * the side whose turn it is, and has been for that long, goes first all the same.
 * With the bound of clock.h a task waits no longer than that much more than it would
 * alone. A head that is due later than now counts as due now: its side has
 * no task that is due sooner, and loses no turn by that. (Else a task that is alone
 * in its queue can be ahead of a clock that is some milliseconds late, and its key
 * far ahead by the pace of a clock that hardly moves; then it loses all turns, and
 * the clock hardly moves.)
 *
 * Per CPU, not per set of queues: tasks that some CPUs may not run make those
 * CPUs serve another side, and a common balance would hold that against it where
 * it has no choice. For the same reason a CPU that finds nothing it may run on
 * the side whose turn it is takes from another one without counting it.
 *
 * A side that comes back after it had no tasks has saved up no more than a slice: so a
 * task that sleeps after each moment of work gets what it is due, which may be the
 * slice that it has to wait for when it comes back, and no task is away for long
 * because another one slept.
 *
 * Before all sides go kernel threads that wake, because the rest of the kernel
 * waits for them, but for no more than half of a CPU's time: when they have had
 * a slice more than all others there, they take their turn like any task.
 */
#ifndef TL_POLICY_TURNS_H
#define TL_POLICY_TURNS_H

#include "clock.h"
#include "exposure.h"

enum tl_side {
	TL_SIDE_OWN = 0, /* the step's own queue */
	TL_SIDE_DEFAULT = 1,
	TL_SIDE_PINNED = 2,
	TL_NR_SIDES = 3,
	TL_SIDE_NONE = 3,
};

/* By how much earlier a head must be due to go before the side whose turn it is:
 * long for a slice, short for TL_WAIT_NS. */
#define TL_TURN_LATE_NS 200000000ull

/* A CPU's balance between its sides. All zero is even. */
struct tl_turns {
	/* virtual time per task that each side has had; only differences count */
	u64 served_ns[TL_NR_SIDES];
	/* CPU time that tasks which went before all queues have had more than
	 * the others */
	s64 first_ns;
	u32 clock;    /* queue of the turn in progress, 0 = there is none */
	u32 part_q10; /* this CPU's part of its side's tasks, 1024 = one task */
	u32 side;     /* whose turn it is */
	u32 present; /* bit per side: it had tasks at the last choice among any */
};

/* What a CPU finds on its sides. */
struct tl_sides {
	u64 key_ns[TL_NR_SIDES];   /* of the first task */
	u32 nr_tasks[TL_NR_SIDES]; /* 0 = the side is empty */
};

tl_inline u32 tl_sides_present(const struct tl_sides *sides)
{
	u32 present = 0;

#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		present |= (u32)(sides->nr_tasks[i] != 0) << i;
	return present;
}

/* What the side that has had least of those in the set has had. */
tl_inline u64 tl_turns_least(const struct tl_turns *turns, u32 among)
{
	u64 least = ~0ull;

#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		if ((among >> i & 1) && turns->served_ns[i] < least)
			least = turns->served_ns[i];
	return least;
}

/* What a side that comes back has had, where of the others the one that has had least
 * has had this. */
tl_inline u64 tl_turns_back_ns(u64 served_ns, u64 least_ns, u64 slice_ns)
{
	u64 behind_ns = least_ns - served_ns;

	return (s64)behind_ns > (s64)slice_ns ? least_ns - slice_ns : served_ns;
}

/* Sides that were empty at the last choice come back: beside those that stayed, or in
 * place of those that were there last. */
tl_inline void tl_turns_join(struct tl_turns *turns, u32 present, u64 slice_ns)
{
	u32 stayed = present & turns->present;
	u32 before = stayed ? stayed : turns->present;
	u64 least_ns = tl_turns_least(turns, before ? before : present);

	if (!present)
		return;
#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		if ((present & ~stayed) >> i & 1)
			turns->served_ns[i] = tl_turns_back_ns(
				turns->served_ns[i], least_ns, slice_ns);
	turns->present = present;
}

/* The side that has had least; TL_SIDE_NONE if all are empty. */
tl_inline u32 tl_turns_side(const struct tl_turns *turns, u32 present)
{
	u64 least = tl_turns_least(turns, present);

#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		if ((present >> i & 1) && turns->served_ns[i] == least)
			return i;
	return TL_SIDE_NONE;
}

/* Which side goes first now; TL_SIDE_NONE if all are empty. */
tl_inline u32 tl_turns_choose(struct tl_turns *turns,
			      const struct tl_sides *sides, u64 slice_ns,
			      u64 now_ns)
{
	u32 present = tl_sides_present(sides), side;
	u64 due_ns = now_ns;

	tl_turns_join(turns, present, slice_ns);
	side = tl_turns_side(turns, present);
#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		if (i == side && (s64)(sides->key_ns[i] - now_ns) < 0)
			due_ns = sides->key_ns[i];
	due_ns -= TL_TURN_LATE_NS;
#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++)
		if ((present >> i & 1) &&
		    (s64)(sides->key_ns[i] - due_ns) < 0) {
			side = i;
			due_ns = sides->key_ns[i];
		}
	return side;
}

/* The CPU runs a task of this side from the queue whose id this is. The queue has so
 * many tasks, waiting and running, and so many CPUs serve it. */
tl_inline void tl_turns_begin(struct tl_turns *turns, u32 side, u32 clock,
			      u32 nr_tasks, u32 nr_cpus)
{
	u32 part_q10 = (nr_tasks << 10) / (nr_cpus ? nr_cpus : 1);

	turns->side = side;
	turns->clock = clock;
	turns->part_q10 = part_q10 ? part_q10 : 1;
}

/* What runs now did not come from a side. */
tl_inline void tl_turns_end(struct tl_turns *turns)
{
	turns->clock = 0;
}

/* What the side whose turn it is has had when its task has used this on its clock. */
tl_inline u64 tl_turns_more_ns(const struct tl_turns *turns, u64 charged_ns)
{
	return (charged_ns << 10) / (turns->part_q10 ? turns->part_q10 : 1024);
}

/* By how much the side whose turn it is will be ahead of this one, if its task gives
 * the CPU up now, having used charged_ns on its clock since the last charge. */
tl_inline s64 tl_turns_lead_ns(const struct tl_turns *turns, u32 side,
			       u64 charged_ns, u64 slice_ns)
{
	u64 had_ns = 0, theirs_ns = 0;

#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++) {
		if (i == turns->side)
			had_ns = turns->served_ns[i];
		if (i == side)
			theirs_ns = turns->served_ns[i];
	}
	had_ns += tl_turns_more_ns(turns, charged_ns);
	if (!(turns->present >> side & 1))
		theirs_ns = tl_turns_back_ns(theirs_ns, had_ns, slice_ns);
	return (s64)(had_ns - theirs_ns);
}

/*
 * The CPU's task has used CPU time, charged_ns on its clock: count it if this is a
 * turn. A task that could not be stopped at the end of its slice makes a lead of
 * no more than two slices: the tick that ends a slice may be that late, and the side
 * did not choose the rest. Where a CPU's part is less than a task, a slice counts for
 * more than one, and so may the lead.
 */
tl_inline void tl_turns_charge(struct tl_turns *turns, const struct tl_task *t,
			       u64 charged_ns, u64 slice_ns)
{
	u64 least = tl_turns_least(turns, turns->present);
	u32 part_q10 = turns->part_q10 ? turns->part_q10 : 1024;
	u64 more_ns = tl_turns_more_ns(turns, charged_ns);
	u64 most_ns = tl_vtime_ns(t, 2 * slice_ns);

	if (!turns->clock || t->clock != turns->clock)
		return;
	if (part_q10 < 1024)
		most_ns = (most_ns << 10) / part_q10;
#pragma unroll
	for (u32 i = 0; i < TL_NR_SIDES; i++) {
		u64 lead_ns = turns->served_ns[i] - least;

		if (i != turns->side || lead_ns >= most_ns)
			continue;
		turns->served_ns[i] += more_ns < most_ns - lead_ns ?
					       more_ns :
					       most_ns - lead_ns;
	}
}

/* Whether a task that wakes may go before all queues of this CPU. */
tl_inline u32 tl_turns_may_go_first(const struct tl_turns *turns, u64 slice_ns)
{
	return turns->first_ns <= (s64)slice_ns;
}

/* The CPU's task has used CPU time; did it go before all queues? What counts is
 * the last two slices: an idle CPU owes no one, nor does a busy one for long. */
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

/* The CPU's task has used CPU time: its virtual time goes on, and the CPU's
 * balances. Returns what its queue's clock is to be advanced by
 * (tl_clock_advance). */
tl_inline u64 tl_charge(struct tl_task *t, struct tl_turns *turns,
			const struct tl_cfg *cfg, u64 used_ns, u32 went_first)
{
	u32 party = tl_party(&t->mix, t->level, tl_task_gives_hints(t));
	u32 counts_q10 = cfg->counts_q10[party & (TL_NR_PARTIES - 1)];
	u64 charged_ns = tl_vtime_charge(
		t, counts_q10 ? used_ns * counts_q10 / 1024 : used_ns);

	tl_turns_charge(turns, t, charged_ns, tl_task_slice_ns(t, cfg));
	tl_turns_charge_first(turns, went_first, used_ns, cfg->slice_ns);
	return charged_ns;
}

#endif
