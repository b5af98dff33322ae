/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Locality: core < last-level cache < node < machine. Where a task looks for an
 * idle CPU, in which shard it waits, and when a CPU helps another shard.
 *
 * Problem: a task that wakes on another socket finds none of its data there. The
 * kernel's own scheduler leaves the cache only when there is no idle CPU in it.
 * And if each cache has its own queues, two of them with unequal numbers of tasks
 * stay unequal: their CPUs are all busy, so none looks beyond its cache.
 *
 * Idea: an idle CPU is searched for in the cache of the CPU that the task last ran
 * on, then in its node, then anywhere. For tasks with a type the class comes first,
 * since a wrong class costs for as long as they run, and a far cache only once. For
 * default tasks it is not known whether a wide CPU costs anything (an idle one gets
 * its turbo back within a millisecond), so they stay near:
 *
 *   wide, scalar: class needed: cache, node, machine; next class: cache, ...
 *   default:      cache: class 0, 1, ...; node: class 0, 1, ...; machine: ...
 *
 * A task waits in the shard of its last CPU, if there is a CPU for it in it.
 *
 * Siblings of a core slow each other down. A task that woke while no core was idle runs
 * next to a busy sibling, and may go on there for minutes after a core has become idle.
 * So at ticks, and when it would go on, it moves to an idle core of its CPU's class
 * and cache, as the kernel's own scheduler has it move (since 6.6). Ticks of siblings
 * come at the same time: if both tasks went, they would meet again, tick after tick.
 * So the task of the second sibling goes, and that of the first now and then only,
 * in case the other may not.
 *
 * Every TL_HELP_EVERYth time, a CPU that looks for work compares the
 * head of its shard's queue with that of one other shard, another one each time.
 * Keys (clock.h) are times at which tasks are due, so a shard whose head has been
 * due for longer has more work per CPU. If it is longer by more than a slice, the
 * CPU takes from there, and the task stays. Not each time: keys go up and down by
 * a slice, and tasks would migrate for nothing.
 *
 * That alone leaves 14 tasks on two CPUs next to 10 on two others: their heads
 * differ by about a slice. So the CPU also takes a task if its shard then has no
 * more tasks per CPU than the other one keeps, and the other one has more to do.
 * The first condition does not hold in the opposite direction after the move, so
 * no task moves back and forth. The second leaves shards alone that have unequal
 * numbers because their tasks have unequal weights. A shard has more to do if its
 * head is due first, or if its clock is slower: in either shard, heads are due about
 * now, so where slices have the same length, the same head can be first for seconds. How
 * long a clock needs for a nanosecond (its pace, clock.h) is the weight of the
 * shard's tasks per CPU.
 */
#ifndef TL_POLICY_LOCALITY_H
#define TL_POLICY_LOCALITY_H

#include "cpus.h"

enum tl_scope {
	TL_SCOPE_LLC = 0,
	TL_SCOPE_NODE = 1,
	TL_SCOPE_MACHINE = 2,
	TL_NR_SCOPES = 3,
};

/* Looks for an idle CPU, at most. */
#define TL_IDLE_LOOKS (TL_NR_CLASSES * TL_NR_SCOPES)

/* Class of the i-th look for an idle CPU, TL_NR_CLASSES when there is none left;
 * and its scope. */
tl_inline u32 tl_look_class(const struct tl_task *t, u32 i)
{
	if (i >= TL_IDLE_LOOKS)
		return TL_NR_CLASSES;
	return tl_idle_class(t, t->type == TL_DEFAULT ? i % TL_NR_CLASSES :
							i / TL_NR_SCOPES);
}

tl_inline u32 tl_look_scope(const struct tl_task *t, u32 i)
{
	return t->type == TL_DEFAULT ? i / TL_NR_CLASSES : i % TL_NR_SCOPES;
}

/*
 * Whether a task waits in the shard of the CPU where it is (here): a CPU that is
 * there for its queue is in it, that the task may use. queue_class is
 * tl_queue_class() of its queue; allowed: its affinity holds that CPU; everywhere:
 * it holds all CPUs; shard_classes: bit per class of the shard's CPUs.
 */
tl_inline u32 tl_waits_here(u32 queue_class, u32 caps, u32 here_class,
			    u32 allowed, u32 everywhere, u32 shard_classes)
{
	u32 any = queue_class == TL_NR_CLASSES;
	u32 class = any ? tl_lowest_class(caps) : queue_class;

	if (allowed && here_class < TL_NR_CLASSES &&
	    (any || here_class == queue_class))
		return 1;
	return everywhere && (shard_classes >> class & 1);
}

/* The class of a CPU in whose shard it waits otherwise. */
tl_inline u32 tl_waits_at_class(u32 queue_class, u32 caps)
{
	return queue_class == TL_NR_CLASSES ? tl_lowest_class(caps) :
					      queue_class;
}

#define TL_FIRST_LEAVES_EVERY 8u

/* Whether this is the sibling whose task goes to an idle core, after so many ticks. */
tl_inline u32 tl_leaves_core(u32 is_first, u32 nr_ticks)
{
	return !is_first || nr_ticks % TL_FIRST_LEAVES_EVERY == 0;
}

/* Whether a task may go on where it is when there is nothing else for its CPU;
 * better_idle: a scalar CPU that it may use is idle; better_core: its core has
 * another busy sibling, and one that it may use is idle. */
tl_inline u32 tl_may_stay(const struct tl_task *t, u32 class, u32 better_idle,
			  u32 better_core)
{
	return tl_task_fits(t, class) && !better_core &&
	       (!tl_task_is_guest(t, class) || !better_idle);
}

/*
 * Whether a running task whose type has changed gives up its CPU at once; wanted:
 * something waits that goes before it, or a scalar CPU that it may use is idle.
 *
 * The end of a wide section makes its task a guest where it is. If nothing wants the
 * CPU, another guest would be next: the task stays, and spares both a switch each. It
 * goes when wide work comes. So where all CPUs are busy a section costs two switches,
 * one before and one after the move to the wide CPU, and not four.
 */
tl_inline u32 tl_must_leave(const struct tl_task *t, u32 class, u32 wanted)
{
	return !tl_task_fits(t, class) ||
	       (tl_task_is_guest(t, class) && wanted);
}

/* Of so many looks for work one looks at another shard too. */
#define TL_HELP_EVERY 8u

tl_inline u32 tl_compares_now(u32 nr_looks)
{
	return nr_looks % TL_HELP_EVERY == 0;
}

/* What waits in a shard for a CPU that compares: the task that this CPU has run
 * until now is one of its own shard's, if it could go on. */
struct tl_backlog {
	u64 key_ns;	/* of the head */
	u32 nr_waiting; /* 0 = nothing waits, and there is no head */
	u32 nr_cpus;	/* of the shard, that serve it */
	u32 pace_q10;	/* of the head's clock, 0 = not measured */
	u32 reserved;
};
_Static_assert(sizeof(struct tl_backlog) == 24, "mirrored in Rust");

/*
 * The key of a running task when its CPU compares shards: it waits for nothing, so
 * it is not late, whatever its clock owes it. A task that has had a CPU to itself can
 * lag far in virtual time, as short tasks advance its clock; with the key of that
 * lag its CPU would never help a shard where ten tasks share two CPUs.
 */
tl_inline u64 tl_running_key(u64 key_ns, u64 now_ns)
{
	return (s64)(key_ns - now_ns) < 0 ? now_ns : key_ns;
}

/*
 * Whether the own shard has no more tasks per CPU than the other one after it has
 * taken one. The other's CPUs run a task each; of the own ones all but the CPU that
 * compares, whose next task is the one that it takes:
 *
 *   (own_waiting + own_cpus - 1 + 1) / own_cpus
 *       <= (other_waiting + other_cpus - 1) / other_cpus
 */
tl_inline u32 tl_evens_out(const struct tl_backlog *own,
			   const struct tl_backlog *other)
{
	u64 own_nr = own->nr_waiting, other_nr = other->nr_waiting;

	return other_nr &&
	       own_nr * other->nr_cpus <= (other_nr - 1) * own->nr_cpus;
}

/*
 * Whether the other shard has more to do per CPU, by weight: an eighth more, which is
 * what a measured pace may be off. A CPU whose shard has nothing but its own task has
 * less to do than one where tasks wait.
 */
tl_inline u32 tl_is_busier(const struct tl_backlog *own,
			   const struct tl_backlog *other)
{
	return other->pace_q10 &&
	       (own->nr_waiting <= 1 ||
		other->pace_q10 > own->pace_q10 + own->pace_q10 / 8);
}

/* Whether a CPU takes from another shard although its own has work. */
tl_inline u32 tl_helps(const struct tl_backlog *own,
		       const struct tl_backlog *other, u64 slice_ns)
{
	s64 later_ns = (s64)(own->key_ns - other->key_ns);

	if (!other->nr_waiting)
		return 0;
	return later_ns > (s64)slice_ns ||
	       ((later_ns > 0 || tl_is_busier(own, other)) &&
		tl_evens_out(own, other));
}

/* Whether a task that wakes goes before all queues of its CPU: vital ones (kernel
 * threads, on which the rest of the kernel waits, and the threads that loaded the
 * scheduler), unless they had their half (turns.h). */
tl_inline u32 tl_goes_first(const struct tl_turns *turns, u32 is_vital,
			    u32 wakes, u64 slice_ns)
{
	return is_vital && wakes && tl_turns_may_go_first(turns, slice_ns);
}

#endif
