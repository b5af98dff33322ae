/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Performance targets: how fast a CPU is to be for the task that runs on it.
 *
 * Problem: a thread knows when it should be fast (in a critical section) and
 * when it need not be (while it waits); the frequency governor knows neither. And
 * a request must end with its thread, whichever CPUs the thread ran on.
 *
 * Idea: a target belongs to a task, and is a share of the CPU's capacity. The
 * scheduler sends it to the CPU's governor when the task starts there and when the
 * task requests another one. A task that requests none restores the default, the
 * full capacity, which the kernel assumes if a scheduler has sent nothing.
 *
 * Repetition: a governor has a shortest interval between two updates (schedutil's
 * rate_limit_us, up to 10 ms) and drops what comes earlier. While a scheduler runs
 * every task, only the scheduler wakes it. And where the kernel does not know a
 * CPU's fastest clock, schedutil takes a target as a share of the present clock, and
 * reaches it in steps of a quarter. So targets are sent again at ticks: as long as a
 * task requests one, and for some ticks afterwards.
 *
 *   asked   0  0 | 300  300  300 | 0     0       0 | 0
 *   sent    -  - | 300   at ticks | 1024  at ticks  | -  -
 *                                   TL_TARGET_REPEATS
 *
 * A CPU without requests costs one comparison.
 *
 * Limits: where tasks with different targets alternate faster than the governor
 * updates, it gets one or the other.
 */
#ifndef TL_POLICY_TARGET_H
#define TL_POLICY_TARGET_H

#include "types.h"

/* The full capacity of a CPU; the kernel's SCX_CPUPERF_ONE. */
#define TL_TARGET_ONE 1024u

/* Ticks at which the default is sent again: 16 ms at 1000 ticks a second, 64 at
 * 250, where a governor updates once in 10 ms; and 1.25^16 = 35 times the clock,
 * which is more than any CPU's fastest has over its slowest. */
#define TL_TARGET_REPEATS 16u

/* What was sent to a CPU's governor. All zero is a CPU without requests. */
struct tl_target {
	u32 told_q10; /* 1..TL_TARGET_ONE, 0 = nothing: the default holds */
	u32 repeats;  /* ticks left at which the default is sent again */
};

/* What to send the governor for a task that asks for asked_q10 (0 = nothing),
 * now that the task starts, may ask for another target, or has a tick; 0 = there
 * is nothing to send. */
tl_inline u32 tl_target_tell(struct tl_target *t, u32 asked_q10, u32 is_tick)
{
	u32 target_q10 = TL_TARGET_ONE;

	if (!(asked_q10 | t->told_q10))
		return 0;
	if (asked_q10 && asked_q10 < TL_TARGET_ONE)
		target_q10 = asked_q10;
	if (target_q10 != t->told_q10 || asked_q10)
		t->repeats = TL_TARGET_REPEATS;
	if (target_q10 != t->told_q10) {
		t->told_q10 = target_q10;
		return target_q10;
	}
	if (!is_tick)
		return 0;
	if (!t->repeats) {
		t->told_q10 = 0; /* no one asks any more */
		return 0;
	}
	t->repeats--;
	return target_q10;
}

#endif
