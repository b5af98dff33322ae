// SPDX-License-Identifier: GPL-2.0
/*
 * Glances: light use in a process that has proved wide.
 *
 * Problem: glibc copies and compares strings with AVX-512 instructions that cost
 * no frequency (licence level 0), hundreds of times between two wide sections. If
 * each of them counted as wide code, the process would hardly ever be scalar. But
 * after a period of grace of the usual length the wide section that follows would
 * go unseen: it often begins a microsecond after a copy.
 *
 * Idea: the task sees the full XCR0 for a short time, a glance, at whose end a
 * timer interrupts it, so that it traps again. How long a glance is, each call site
 * learns: a string function is a leaf, so the word on top of the stack says who
 * called it.
 *
 *   light trap at a site          what followed               next time there
 *   ----------------------------  --------------------------  -----------------
 *   glance of length g            nothing for 2 g, or light   2 g, up to MOST,
 *                                 use of a site whose         when that was so
 *                                 glances are longer          often enough
 *                                 a trap of wide code
 *                                 within 2 g                  g / 2
 *                                 wide code in the glance     it counts as wide
 *                                                             code itself
 *
 * So a glance is never longer than the time that has passed before without wide code.
 * A site that leads straight to a wide section is the beginning of it, as a light
 * instruction with heavy ones behind it is (ahead.c). On a wide CPU nothing shows
 * whether it still does so; therefore it gets a glance again after so many times,
 * four times as many with each glance that was wrong.
 *
 * LEAST is what a trap and its timer cost, about a microsecond: shorter ones would
 * cost more than they let through. MOST makes that cost 1 %.
 *
 * The table is one for all processes: workers that were forked have the same
 * addresses, and learn together.
 *
 * Limits: sites are known by a hash, and two may share a place; then the more careful
 * one prevails. A section that begins and ends inside of a glance goes unseen,
 * unless a licence counter shows it (levels.c).
 */
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "trap.h"

#define LEAST_NS 1000ULL
#define DOUBLINGS_MOST 7 /* 128 us */
#define SITES_BITS 12	 /* programs have some hundred such calls */

/* ---- what sites have learned ---- */

/*
 * Written by all CPUs without a lock: a change that is lost is made another time.
 * Few glances change anything.
 */
static struct site {
	u8 doublings; /* its glances: LEAST_NS, doubled so often */
	u8 good;      /* since the last doubling */
	u8 needed;    /* good ones for the next, but for one */
	u8 skips;     /* glances that it does not get */
} sites[1 << SITES_BITS];

static u64 glance_ns(const struct site *site)
{
	return LEAST_NS << READ_ONCE(site->doublings);
}

/* The place of the call site in the table. */
static u16 site_of(const struct pt_regs *regs)
{
	const void __user *top = (const void __user *)regs->sp;
	unsigned long caller = 0;

	if (copy_from_user_nofault(&caller, top, sizeof(caller)))
		caller = 0;
	return hash_64(caller ^ (u64)regs->ip << 20, SITES_BITS);
}

/* The task uses light code again, at `next`, so long after its last glance began. */
static void learn(struct site *last, const struct site *next, u64 after_ns)
{
	u8 good = READ_ONCE(last->good);

	if (READ_ONCE(last->doublings) >= DOUBLINGS_MOST ||
	    (after_ns < 2 * glance_ns(last) &&
	     READ_ONCE(next->doublings) <= READ_ONCE(last->doublings)))
		return;
	if (good < READ_ONCE(last->needed)) {
		WRITE_ONCE(last->good, good + 1);
		return;
	}
	WRITE_ONCE(last->good, 0);
	WRITE_ONCE(last->doublings, READ_ONCE(last->doublings) + 1);
}

/*
 * The current task has been seen at wide code: by a trap, or, `missed`, after it had
 * begun. Interrupts off.
 */
void tlt_glance_wide(struct tlt_task *t, u64 now_ns, bool missed)
{
	struct site *site;
	u8 doublings;

	if (!t || !t->glance_since_ns)
		return;
	site = &sites[t->glance_site];
	doublings = READ_ONCE(site->doublings);
	if (missed) {
		u8 needed = min(4 * READ_ONCE(site->needed) + 3, 255);

		WRITE_ONCE(site->needed, needed);
		WRITE_ONCE(site->skips, needed);
		WRITE_ONCE(site->doublings, 0);
		WRITE_ONCE(site->good, 0);
	} else if (now_ns - t->glance_since_ns < 2 * glance_ns(site)) {
		WRITE_ONCE(site->doublings, doublings ? doublings - 1 : 0);
		WRITE_ONCE(site->good, 0);
	}
	t->glance_since_ns = 0;
}

/* ---- the glance ---- */

/* The return from this interrupt is what matters: it looks at the time. */
static enum hrtimer_restart ends(struct hrtimer *timer)
{
	return HRTIMER_NORESTART;
}

/*
 * The current task has trapped at light code. How long it is to see the full XCR0:
 * a timer interrupts it then. 0: wide code follows. Interrupts off.
 */
u64 tlt_glance_begins(struct tlt_cpu *c, struct tlt_task *t,
		      const struct pt_regs *regs, u64 now_ns)
{
	u16 number = site_of(regs);
	struct site *site = &sites[number];
	u8 skips = READ_ONCE(site->skips);
	u64 period_ns;

	if (skips) {
		WRITE_ONCE(site->skips, skips - 1);
		return 0;
	}
	if (t->glance_since_ns)
		learn(&sites[t->glance_site], site,
		      now_ns - t->glance_since_ns);
	t->glance_site = number;
	t->glance_since_ns = now_ns;
	period_ns = glance_ns(site);
	c->counters.glances++;
	hrtimer_start(&c->glance_end, ns_to_ktime(period_ns),
		      HRTIMER_MODE_REL_PINNED_HARD);
	return period_ns;
}

void tlt_glance_init(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
	{
		struct hrtimer *timer = &per_cpu(tlt_cpu, cpu).glance_end;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
		hrtimer_setup(timer, ends, CLOCK_MONOTONIC,
			      HRTIMER_MODE_REL_PINNED_HARD);
#else
		hrtimer_init(timer, CLOCK_MONOTONIC,
			     HRTIMER_MODE_REL_PINNED_HARD);
		timer->function = ends;
#endif
	}
}

/* No CPU is armed any more. */
void tlt_glance_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		hrtimer_cancel(&per_cpu(tlt_cpu, cpu).glance_end);
}
