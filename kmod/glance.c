// SPDX-License-Identifier: GPL-2.0
/*
 * Glances: light use in a process that has proved wide.
 *
 * Problem: glibc copies and compares strings with AVX-512 instructions that cost
 * no frequency (licence level 0), hundreds of times between two wide sections. If
 * each of them counted as wide code, the process would hardly ever be scalar. But
 * with a grace period of the usual length the wide section that follows would not
 * be seen: it often begins a microsecond after a copy.
 *
 * Idea: the task gets the full XCR0 for a short time, a glance, at the end of which
 * a timer interrupts it, so that it traps again. The length of a glance is learned
 * for each call site: a string function is a leaf, so the word on top of the stack
 * identifies the caller.
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
 * A site that leads straight to a wide section counts as its beginning, like a light
 * instruction that heavy ones follow (ahead.c). On a wide CPU nothing shows whether
 * this is still true; therefore the site gets another glance after a number of
 * times, which is multiplied by four with each glance that was wrong.
 *
 * LEAST is what a trap and its timer cost, about a microsecond: shorter ones would
 * cost more than they let through. MOST makes that cost 1 %.
 *
 * The table is one for all processes: workers that were forked have the same
 * addresses, and learn together. But each entry belongs to a user: another user's
 * programs cannot change what was learned. If another user's program needs the
 * entry, it starts again with the shortest glance: so the worst that one user can do
 * to another is to make glances short, which costs another trap and hides nothing.
 *
 * Limits: sites are known by a hash, and two may share a place; then the more careful
 * one prevails. A section that begins and ends inside a glance is not seen,
 * unless a licence counter shows it (levels.c).
 */
#include <linux/build_bug.h>
#include <linux/cred.h>
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/uaccess.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>
#include <linux/version.h>

#include "trap.h"

#define LEAST_NS 1000ULL
#define DOUBLINGS_MOST 7 /* 128 us */
#define SITES_BITS 12	 /* programs have some hundred such calls */

/* ---- what sites have learned ---- */

/*
 * Changed by all CPUs without a lock, each place as one word: a change that another
 * one comes before is dropped, and made another time. Few glances change anything.
 */
union site {
	struct {
		u32 uid;      /* of the user whose place it is */
		u8 doublings; /* its glances: LEAST_NS, doubled so often */
		u8 good;      /* since the last doubling */
		u8 needed;    /* good ones for the next, but for one */
		u8 skips;     /* glances that it does not get */
	};
	u64 word;
};
static_assert(sizeof(union site) == sizeof(u64));

static union site sites[1 << SITES_BITS];

/* What the current task's user has learned of a place that holds this: nothing, if
 * it is another user's. */
static union site learned_of(u64 word)
{
	u32 uid = from_kuid(&init_user_ns, current_uid());
	union site site = {.word = word};

	if (site.uid != uid)
		site = (union site){.uid = uid};
	return site;
}

/* Let the place hold this, unless it is no longer as it was when it was read. */
static void store(u16 number, u64 before, union site site)
{
	if (site.word != before)
		cmpxchg(&sites[number].word, before, site.word);
}

static u64 glance_ns(union site site)
{
	return LEAST_NS << site.doublings;
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
static void learn(u16 number, union site next, u64 after_ns)
{
	u64 before = READ_ONCE(sites[number].word);
	union site last = learned_of(before);

	if (last.doublings >= DOUBLINGS_MOST ||
	    (after_ns < 2 * glance_ns(last) &&
	     next.doublings <= last.doublings))
		return;
	if (last.good < last.needed) {
		last.good++;
	} else {
		last.good = 0;
		last.doublings++;
	}
	store(number, before, last);
}

/*
 * The current task has been seen at wide code: by a trap, or, `missed`, after it had
 * begun. Interrupts off.
 */
void tlt_glance_wide(struct tlt_task *t, u64 now_ns, bool missed)
{
	union site site;
	u64 before;

	if (!t || !t->glance_since_ns)
		return;
	before = READ_ONCE(sites[t->glance_site].word);
	site = learned_of(before);
	if (missed) {
		site.needed = min(4 * site.needed + 3, 255);
		site.skips = site.needed;
		site.doublings = 0;
		site.good = 0;
	} else if (now_ns - t->glance_since_ns < 2 * glance_ns(site)) {
		site.doublings -= site.doublings > 0;
		site.good = 0;
	}
	store(t->glance_site, before, site);
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
	u64 before = READ_ONCE(sites[number].word), period_ns;
	union site site = learned_of(before);

	if (site.skips) {
		site.skips--;
		store(number, before, site);
		return 0;
	}
	if (t->glance_since_ns)
		learn(t->glance_site, site, now_ns - t->glance_since_ns);
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
