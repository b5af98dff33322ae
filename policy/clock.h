/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Clocks: in which order the tasks of a queue run, and how long one can wait.
 *
 * Problem: tasks are to share a CPU by their weights, and each must run soon,
 * whatever its weight and however many others there are. Virtual time alone
 * (CPU time divided by weight) gives the shares and no bound: a task of weight 1
 * that has run for 5 ms is 500 ms ahead, and the clock of a queue with 30 busy
 * tasks needs 15 s for that. A local user can make the kernel's watchdog throw
 * the scheduler out with 31 tasks.
 *
 * Idea: virtual time says how far a task is ahead of its queue's clock (its
 * *lag*). The order in the queue is real time: when the task enters, its lag is
 * turned into a wait, and its *key* is the time at which that wait ends.
 *
 *   key = now + wait(lag),   wait(lag) = lag * pace, limited to [-W/8, +W]
 *
 * The *pace* is real time per virtual time: how long the queue's clock needs for
 * a nanosecond. It is measured while tasks wait. With the right pace the key is
 * the moment at which the clock reaches the task, so the order is that of
 * virtual time. With a wrong one it is still nearly right: a task that gets too
 * much gathers lag, until its share is what its weight says.
 *
 * Bound: W is at most TL_WAIT_NS and does not depend on the weight. A task
 * that enters W * 9/8 later has a greater key. So a task waits for that long, plus the
 * time that its queue needs to go round once (nr_tasks * slice / nr_cpus):
 *
 *   wait <= W * 9/8 + round
 *
 * Where a round takes long by itself, W is shorter (never below a quarter of
 * TL_WAIT_NS), and so are slices, because the sum is what a task waits for.
 * crates/policy/tests/waits.rs checks the bound.
 *
 * The kernel ends slices at ticks, 1 to 10 ms apart, so with a thousand tasks for a
 * CPU a round takes 1 to 10 s, whatever their slices are, and with a few thousand
 * the kernel's watchdog would end the scheduler. Therefore slices of queues with
 * more than TL_TICKED_TASKS for each CPU are ended by a timer
 * (tl_slice_needs_timer). They are TL_SLICE_LEAST_NS long until a round of those
 * would take longer than TL_WAIT_NS, then shorter, down to TL_SLICE_SHORTEST_NS:
 * a round takes a second with 10,000 tasks for a CPU. Because of the cost of
 * switches, it takes the watchdog's ten seconds with less than 100,000.
 *
 * A light task whose slice costs more than W would get too much: two ticks of 4 ms
 * in each second are 0.8 % of a CPU, whatever it is due. So its slice is as much
 * shorter, with room for the tick that ends it late (tl_slice_in_wait_ns).
 *
 * The cost: weights cannot make a task's share smaller than about a tick / W of a CPU
 * (0.4 % with ticks of 4 ms).
 *
 * The clock of a queue is the mean virtual time of its tasks: it advances by what
 * each of them uses, divided by how many wait or run. One clock for all queues
 * would be wrong: scalar CPUs with one task each and wide CPUs with twenty
 * advance at different speeds. A task that changes its queue keeps its lag,
 * within limits (tl_lag_ns). The least virtual time as the clock would stop
 * while tasks come, use a slice and leave; the mean does not.
 */
#ifndef TL_POLICY_CLOCK_H
#define TL_POLICY_CLOCK_H

#include "task.h"

/* Longest wait that a lag can cost. A tenth of the kernel's limit (sched_ext ends
 * a scheduler that leaves a task waiting for ten seconds, see main.bpf.c). */
#define TL_WAIT_NS 1000000000ull
/* Rounds longer than this are shortened by shorter slices. */
#define TL_ROUND_NS 250000000ull
/* Shortest slice of up to a thousand tasks for a CPU: a switch costs 5 to 10 us with
 * what it does to caches, 1 % of it. */
#define TL_SLICE_LEAST_NS 1000000ull
/* Shortest slice of all: of more tasks than that a tenth of the time may go into
 * switches. */
#define TL_SLICE_SHORTEST_NS 100000ull
/* So many tasks for a CPU may have slices that end at ticks: a round of them takes
 * 0.64 s with ticks of 10 ms. */
#define TL_TICKED_TASKS 64u
/* The pace is measured over this time: many slices, so that tasks of all weights
 * have their part in it. */
#define TL_PACE_WINDOW_NS 100000000ull
/* Limits of a pace, in 1024ths: 1/1024 to 2^16. 1,024 CPUs for tasks that share
 * the weight of one of nice 0, and 65,536 of nice 0 for one CPU. */
#define TL_PACE_LEAST_Q10 1u
#define TL_PACE_MOST_Q10 (1u << 26)

/*
 * The clock of a queue. All zero is a clock that has not begun.
 *
 *   0        8          16              24     28
 *   +--------+----------+---------------+------+----------+
 *   | vtime  | since    | since_vtime   | pace | reserved |
 *   +--------+----------+---------------+------+----------+
 */
struct tl_clock {
	u64 vtime_ns; /* mean virtual time of its tasks */
	/* when the window began in which the pace is measured, 0 = there is
	 * none; and vtime_ns then */
	u64 since_ns;
	u64 since_vtime_ns;
	u32 pace_q10; /* real time per virtual time, 1024 = 1.0; 0 = unknown */
	u32 reserved;
};
_Static_assert(sizeof(struct tl_clock) == 32, "drawn above; mirrored in Rust");

/* What CPU time of used_ns is on the clock of a task of this weight. */
tl_inline u64 tl_weighted_ns(u32 weight, u64 used_ns)
{
	return used_ns * TL_WEIGHT_NICE0 / (weight ? weight : 1);
}

/* What it is on the task's clock. */
tl_inline u64 tl_vtime_ns(const struct tl_task *t, u64 used_ns)
{
	return tl_weighted_ns(t->weight, used_ns);
}

/* Charge CPU time; returns what it is on the task's clock. */
tl_inline u64 tl_vtime_charge(struct tl_task *t, u64 used_ns)
{
	u64 charged_ns = tl_vtime_ns(t, used_ns);

	t->vtime_ns += charged_ns;
	return charged_ns;
}

tl_inline u64 tl_task_slice_ns(const struct tl_task *t,
			       const struct tl_cfg *cfg)
{
	return t->type == TL_WIDE ? cfg->slice_wide_ns : cfg->slice_ns;
}

/* How long a queue with so many tasks, waiting and running, needs to give each a
 * slice. */
tl_inline u64 tl_round_ns(u64 slice_ns, u32 nr_tasks, u32 nr_cpus)
{
	return slice_ns * nr_tasks / (nr_cpus ? nr_cpus : 1);
}

/* Whether slices of that queue are ended by a timer: at ticks would be too late. */
tl_inline u32 tl_slice_needs_timer(u32 nr_tasks, u32 nr_cpus)
{
	return nr_tasks > TL_TICKED_TASKS * (nr_cpus ? nr_cpus : 1);
}

/* The shortest slice of a task of that queue. */
tl_inline u64 tl_slice_least_ns(u32 nr_tasks, u32 nr_cpus)
{
	u64 least_ns = TL_WAIT_NS * (nr_cpus ? nr_cpus : 1) /
		       (nr_tasks ? nr_tasks : 1);

	if (least_ns > TL_SLICE_LEAST_NS)
		return TL_SLICE_LEAST_NS;
	return least_ns > TL_SLICE_SHORTEST_NS ? least_ns :
						 TL_SLICE_SHORTEST_NS;
}

/* The slice of a task of that queue: shorter where the round is too long. */
tl_inline u64 tl_slice_in_round_ns(u64 slice_ns, u32 nr_tasks, u32 nr_cpus)
{
	u64 round_ns = tl_round_ns(slice_ns, nr_tasks, nr_cpus);
	u64 least_ns = tl_slice_least_ns(nr_tasks, nr_cpus), shorter_ns;

	if (round_ns <= TL_ROUND_NS || slice_ns <= least_ns)
		return slice_ns;
	shorter_ns = TL_ROUND_NS * (nr_cpus ? nr_cpus : 1) / nr_tasks;
	return shorter_ns > least_ns ? shorter_ns : least_ns;
}

/* Longest wait that a lag may cost in that queue: W above. */
tl_inline u64 tl_most_wait_ns(u64 slice_ns, u32 nr_tasks, u32 nr_cpus)
{
	u64 round_ns = tl_round_ns(slice_ns, nr_tasks, nr_cpus);

	return round_ns < TL_WAIT_NS * 3 / 4 ? TL_WAIT_NS - round_ns :
					       TL_WAIT_NS / 4;
}

/*
 * Tasks of the queue have used CPU time, charged_ns on their clocks in all; so
 * many wait or run now, nr_waiting of them wait.
 */
tl_inline void tl_clock_advance(struct tl_clock *clock, u64 charged_ns,
				u32 nr_tasks, u32 nr_waiting, u64 now_ns)
{
	u64 real_ns, vtime_ns, pace_q10;

	clock->vtime_ns += charged_ns / (nr_tasks ? nr_tasks : 1);
	if (!nr_waiting) {
		clock->since_ns = 0;
		return;
	}
	real_ns = now_ns - clock->since_ns;
	if (clock->since_ns && real_ns < TL_PACE_WINDOW_NS)
		return;
	vtime_ns = clock->vtime_ns - clock->since_vtime_ns;
	if (clock->since_ns) {
		/* the window lasts until there is something to measure */
		if (!vtime_ns)
			return;
		pace_q10 = (real_ns << 10) / vtime_ns;
		if (clock->pace_q10)
			pace_q10 = (pace_q10 + clock->pace_q10) / 2;
		if (pace_q10 < TL_PACE_LEAST_Q10)
			pace_q10 = TL_PACE_LEAST_Q10;
		if (pace_q10 > TL_PACE_MOST_Q10)
			pace_q10 = TL_PACE_MOST_Q10;
		clock->pace_q10 = (u32)pace_q10;
	}
	clock->since_ns = now_ns;
	clock->since_vtime_ns = clock->vtime_ns;
}

/* The clock's pace for a task. While it is unknown: as if all tasks had this one's
 * weight and a CPU each. (As a pace of 1.0 it would have a task of weight 1 wait for
 * half a second after its first slice, though the others weigh no more.) */
tl_inline u64 tl_clock_pace_q10(const struct tl_clock *clock,
				const struct tl_task *t)
{
	u64 pace_q10 = clock->pace_q10;

	if (!pace_q10)
		pace_q10 = ((u64)t->weight << 10) / TL_WEIGHT_NICE0;
	return pace_q10 ? pace_q10 : TL_PACE_LEAST_Q10;
}

/* What a distance of the task on the clock is in real time, at most most_ns. */
tl_inline u64 tl_clock_wait_ns(const struct tl_clock *clock,
			       const struct tl_task *t, u64 vtime_ns,
			       u64 most_ns)
{
	u64 pace_q10 = tl_clock_pace_q10(clock, t);

	if (vtime_ns >= (most_ns << 10) / pace_q10)
		return most_ns;
	return vtime_ns * pace_q10 >> 10;
}

/*
 * The slice of a task on this clock: shorter where what it may use at once costs
 * more than the longest wait, so that it is never paid for. That is two slices, since
 * the tick that ends a slice may be that late.
 */
tl_inline u64 tl_slice_in_wait_ns(const struct tl_task *t,
				  const struct tl_clock *clock, u64 slice_ns,
				  u64 most_wait_ns)
{
	u64 cost_ns = tl_clock_wait_ns(clock, t, tl_vtime_ns(t, 2 * slice_ns),
				       64 * most_wait_ns);
	u64 shorter_ns;

	if (cost_ns <= most_wait_ns || slice_ns <= TL_SLICE_LEAST_NS)
		return slice_ns;
	shorter_ns = slice_ns * most_wait_ns / cost_ns;
	return shorter_ns > TL_SLICE_LEAST_NS ? shorter_ns : TL_SLICE_LEAST_NS;
}

/* The slice of a task that runs out of a queue with this clock and so many tasks
 * and CPUs. */
tl_inline u64 tl_slice_from_ns(const struct tl_task *t,
			       const struct tl_clock *clock, u64 slice_ns,
			       u32 nr_tasks, u32 nr_cpus)
{
	return tl_slice_in_wait_ns(
		t, clock, tl_slice_in_round_ns(slice_ns, nr_tasks, nr_cpus),
		tl_most_wait_ns(slice_ns, nr_tasks, nr_cpus));
}

/* How far the clock goes in so much real time. */
tl_inline u64 tl_clock_vtime_ns(const struct tl_clock *clock, u64 real_ns)
{
	return (real_ns << 10) / (clock->pace_q10 ? clock->pace_q10 : 1024);
}

/*
 * How far the task is ahead of the clock of the queue that it used last, as it
 * counts where it enters the queue of this clock, in which a lag costs at most
 * most_wait_ns. A task that slept does not save up more than what it was due in
 * an eighth of that. One that ran ahead, because it was alone for a long time,
 * does not pay more than two slices: the tick that ends a slice may be that late.
 */
tl_inline s64 tl_lag_ns(const struct tl_task *t, u64 old_vtime_ns,
			const struct tl_clock *clock, u64 slice_ns,
			u64 most_wait_ns)
{
	s64 lag_ns = (s64)(t->vtime_ns - old_vtime_ns);
	s64 ahead_ns = (s64)tl_vtime_ns(t, 2 * slice_ns);
	s64 saved_ns = (s64)tl_clock_vtime_ns(clock, most_wait_ns / 8);

	if (lag_ns < -saved_ns)
		lag_ns = -saved_ns;
	return lag_ns > ahead_ns ? ahead_ns : lag_ns;
}

/* Enter the queue with the given id and clock, from the clock value of the queue
 * it used last (old_vtime_ns). */
tl_inline void tl_vtime_place(struct tl_task *t, u32 id, u64 old_vtime_ns,
			      const struct tl_clock *clock, u64 slice_ns,
			      u64 most_wait_ns)
{
	t->vtime_ns = clock->vtime_ns + (u64)tl_lag_ns(t, old_vtime_ns, clock,
						       slice_ns, most_wait_ns);
	t->clock = id;
}

/*
 * The key of a task that begins to wait now in the queue of this clock, where a lag
 * costs at most most_wait_ns. old_vtime_ns is the value of the clock that its
 * virtual time is on.
 */
tl_inline u64 tl_task_key(const struct tl_task *t, u64 old_vtime_ns,
			  const struct tl_clock *clock, u64 slice_ns,
			  u64 most_wait_ns, u64 now_ns)
{
	s64 lag_ns = tl_lag_ns(t, old_vtime_ns, clock, slice_ns, most_wait_ns);

	if (lag_ns < 0)
		return now_ns - tl_clock_wait_ns(clock, t, (u64)-lag_ns,
						 most_wait_ns / 8);
	return now_ns + tl_clock_wait_ns(clock, t, (u64)lag_ns, most_wait_ns);
}

#endif
