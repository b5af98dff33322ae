/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Bandwidth: the limit of CPU time of a control group (cpu.max).
 *
 * Problem: in each period a group may use its quota, all its tasks on all CPUs
 * together, and those of the groups below it. A CPU notices that the quota is
 * used up at its next tick, or when a task stops.
 *
 * Idea: a budget. What tasks use is taken out of it, and of that of every
 * limited group above; each period puts a quota in, up to one quota and the
 * burst (cpu.max.burst). A group that has nothing left is *out*: its tasks are
 * set aside until a period makes the budget positive again. What is used beyond
 * it stays as a debt, whatever its size. So in the long run a group never gets
 * more than its quota, though in one period it may get a tick more on each CPU.
 *
 * A task that is held for long would be taken for a stalled one by the kernel's
 * watchdog, which ends a scheduler that leaves a runnable task alone for 10 s;
 * a quota of 1 ms in a second and 200 tasks mean minutes. So a held task is
 * given the CPU for a moment every TL_HELD_MOST_NS: it is switched out again at
 * once, about 10 us later, which the budget pays for.
 *
 * Tasks come back a few at a time, as many as the budget may pay for, the one
 * first that has waited for longest. All of them would only be switched in to
 * be set aside again.
 *
 * Limits: periods are looked at every TL_GROUPS_PASS_NS, so shorter ones get
 * several quotas at once. A task that holds a kernel lock when its group is out
 * keeps it until it runs again (as in the kernel's own scheduler before 6.18).
 */
#ifndef TL_POLICY_BANDWIDTH_H
#define TL_POLICY_BANDWIDTH_H

#include "types.h"

/* Microseconds, as the kernel has quotas: cpu.max says "max" by the greatest
 * number of 64 bits; the kernel refuses quotas from 2^44 us on. */
#define TL_QUOTA_NONE (1ull << 44)

/* A held task gets a sign of life after this time. The watchdog's 10 s must
 * hold that, a round of the pass that looks (TL_HELD_LOOK_NS), and the wait in
 * the queue after it. */
#define TL_HELD_MOST_NS 3000000000ull
#define TL_HELD_LOOK_NS 1000000000ull

/* A task comes back for so much budget. Less than a tick: most tasks sleep
 * before their slice is over. */
#define TL_RETURN_NS 1000000ll

struct tl_budget {
	u64 quota_ns; /* per period; 0 = no limit */
	u64 period_ns;
	u64 burst_ns;
	u64 next_ns; /* when the next period begins */
	s64 left_ns; /* of the budget; <= 0: the group is out */
};

/* Set a limit, or none. The group starts with a period's quota. */
tl_inline void tl_budget_set(struct tl_budget *b, u64 period_us, u64 quota_us,
			     u64 burst_us, u64 now_ns)
{
	*b = (struct tl_budget){};
	if (quota_us >= TL_QUOTA_NONE || !period_us)
		return;
	b->quota_ns = quota_us ? quota_us * 1000 : 1;
	b->period_ns = period_us * 1000;
	b->burst_ns = burst_us < TL_QUOTA_NONE ? burst_us * 1000 : 0;
	b->next_ns = now_ns + b->period_ns;
	b->left_ns = (s64)b->quota_ns;
}

tl_inline u32 tl_budget_is_limit(const struct tl_budget *b)
{
	return b->quota_ns != 0;
}

/* Begin the periods that are due; returns what to add to left_ns. It is added
 * by the caller, since others take from it meanwhile. */
tl_inline s64 tl_budget_refill(struct tl_budget *b, u64 now_ns)
{
	u64 periods, most_ns = b->quota_ns + b->burst_ns;
	s64 left_ns = b->left_ns, room_ns = (s64)most_ns - left_ns;

	if (!b->quota_ns || (s64)(now_ns - b->next_ns) < 0)
		return 0;
	periods = 1 + (now_ns - b->next_ns) / b->period_ns;
	b->next_ns += periods * b->period_ns;
	if (room_ns <= 0)
		return 0;
	/* no product: many periods of a great quota would not fit */
	if (periods > (u64)room_ns / b->quota_ns)
		return room_ns;
	return (s64)(periods * b->quota_ns);
}

/* How many tasks come back for what is left. */
tl_inline u32 tl_budget_returns(s64 left_ns)
{
	s64 count = left_ns / TL_RETURN_NS;

	if (left_ns <= 0)
		return 0;
	return count < 1023 ? (u32)count + 1 : 1024;
}

#endif
