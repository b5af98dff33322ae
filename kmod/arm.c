// SPDX-License-Identifier: GPL-2.0
/*
 * XCR0 per CPU. This is the only file that writes it.
 *
 * Problem: a component that XCR0 lacks cannot be used: its instructions raise
 * #UD. But XCR0 is also what the kernel's own XSAVE and XRSTOR go by. An image
 * saved with a reduced XCR0 lacks state; an image restored with one raises #GP
 * in the kernel if it was saved with more.
 *
 * Invariant: on each CPU XCR0 is what the kernel has set, except
 *
 *   from  the last instant before a return to user mode, on an armed CPU
 *         (the user-return notifier, interrupts off, no more work pending)
 *   until the first of
 *         - a context switch (sched_switch),
 *         - a kernel function that executes XSAVE*, XRSTOR* or begins to use
 *           vector registers itself,
 *         - a fault that the missing component may have caused,
 *         - disarming, the CPU going offline, the module being unloaded.
 *
 * So the kernel never handles vector state with a reduced XCR0. What it saves
 * is always complete, and ptrace, signals, fork, core dumps, KVM see nothing
 * new. An entry into the kernel that does none of the above (most system calls
 * and interrupts) costs nothing at all: XCR0 stays reduced throughout.
 *
 * How it is kept: `reduced` is written here, beside XCR0, on its own CPU with
 * interrupts off. NMI handlers use no vector registers, so they need no care.
 * Each write is read back. Before a reduction XCR0 must be the full one: if it
 * is not, other code writes it too. In both cases the module stops all
 * withholding and logs it (tlt_violation); it never guesses. The test module
 * test/turbolane_xcheck.c checks from outside, by a probe on each XSAVE*, XRSTOR*
 * of the kernel.
 *
 * Arming and disarming run on the CPU concerned, as an interrupt. When disarm
 * returns, every CPU has the full XCR0 and no later return can reduce it.
 *
 * AMX is withheld by XCR0 too, not by XFD: the kernel owns XFD and switches it
 * per task for its own first-use accounting. A task that may use AMX and comes
 * to a scalar CPU takes our #UD first, restarts with the full XCR0, and then
 * meets the kernel's #NM as if we were not there.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/mutex.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/fpu/types.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>

#include "trap.h"

DEFINE_PER_CPU_ALIGNED(struct tlt_cpu, tlt_cpu);

u64 tlt_xcr0_full, tlt_xcr0_withheld;

/* Set once, never cleared: something else writes XCR0, or a write failed. */
static bool untrustworthy;

static cpumask_t armed_cpus;
static DEFINE_MUTEX(arm_mutex); /* armed_cpus, and CPUs following it */

/*
 * A component set withholds with it what the architecture does not allow
 * without it: XSETBV faults on AVX-512 without AVX, and on a part of AVX-512
 * or AMX (SDM vol. 1, 13.3).
 */
static const struct {
	const char *name;
	u64 xcr0;
} sets[] = {
	{"avx", XFEATURE_MASK_YMM | XFEATURE_MASK_AVX512},
	{"avx512", XFEATURE_MASK_AVX512},
	{"amx", XFEATURE_MASK_XTILE},
};

/* The named set's bits that this CPU has, 0 if it lacks the named component. */
static u64 set_bits(const char *name, size_t len)
{
	for (int i = 0; i < ARRAY_SIZE(sets); i++) {
		if (strlen(sets[i].name) != len ||
		    memcmp(sets[i].name, name, len))
			continue;
		if (!strcmp(sets[i].name, "avx"))
			return tlt_xcr0_full & XFEATURE_MASK_YMM ?
				       tlt_xcr0_full & sets[i].xcr0 :
				       0;
		return (tlt_xcr0_full & sets[i].xcr0) == sets[i].xcr0 ?
			       sets[i].xcr0 :
			       0;
	}
	return 0;
}

static void differs(void *different)
{
	if (xgetbv(XCR_XFEATURE_ENABLED_MASK) != tlt_xcr0_full)
		atomic_inc(different);
}

/* Parses "avx512,amx" and checks that this machine has it, on every CPU. */
int tlt_arm_init(const char *components)
{
	atomic_t different = ATOMIC_INIT(0);

	if (!boot_cpu_has(X86_FEATURE_OSXSAVE) ||
	    !boot_cpu_has(X86_FEATURE_XGETBV1)) {
		pr_err("this CPU has no XSAVE with XGETBV(1); nothing can be "
		       "withheld safely\n");
		return -ENODEV;
	}
	tlt_xcr0_full = xgetbv(XCR_XFEATURE_ENABLED_MASK);
	while (*components) {
		size_t len = strcspn(components, ",");
		u64 bits = set_bits(components, len);

		if (!bits) {
			pr_err("components=%.*s: no such component on this CPU "
			       "(XCR0 %#llx); known: avx avx512 amx\n",
			       (int)len, components, tlt_xcr0_full);
			return -ENODEV;
		}
		tlt_xcr0_withheld |= bits;
		components += len;
		components += *components == ',';
	}
	if (!tlt_xcr0_withheld) {
		pr_err("components= is empty; give avx512, avx or amx\n");
		return -EINVAL;
	}
	on_each_cpu(differs, &different, 1);
	if (atomic_read(&different)) {
		pr_err("XCR0 differs between CPUs: something else writes it\n");
		return -EBUSY;
	}
	return 0;
}

/* Withhold nothing any more. */
void tlt_distrust(void)
{
	WRITE_ONCE(untrustworthy, true);
}

/* The invariant does not hold: withhold nothing any more, and say so once. */
void tlt_violation(struct tlt_cpu *c, const char *what, u64 xcr0)
{
	c->counters.violations++;
	tlt_distrust();
	pr_crit_once("CPU %d: %s (XCR0 %#llx, full %#llx); withholding nothing "
		     "from now on\n",
		     smp_processor_id(), what, xcr0, tlt_xcr0_full);
}

/* Interrupts off. */
static __always_inline bool write_xcr0(struct tlt_cpu *c, u64 value)
{
	u64 now;

	xsetbv(XCR_XFEATURE_ENABLED_MASK, value);
	now = xgetbv(XCR_XFEATURE_ENABLED_MASK);
	if (likely(now == value))
		return true;
	tlt_violation(c, "XCR0 did not take a write", now);
	return false;
}

static void count_full(struct tlt_cpu *c, enum tlt_full_reason why)
{
	switch (why) {
	case TLT_FULL_SWITCH:
		c->counters.full_by_switch++;
		break;
	case TLT_FULL_FPU:
		c->counters.full_by_fpu++;
		break;
	case TLT_FULL_TRAP:
		c->counters.full_by_trap++;
		break;
	case TLT_FULL_CODE:
		c->counters.full_by_code++;
		break;
	case TLT_FULL_DISARM:
		c->counters.full_by_disarm++;
		break;
	}
}

/*
 * The slow half of tlt_full(). The caller's test may be out of date when
 * interrupts are off: between the two the task can have been preempted, and
 * then the switch has done it.
 */
void tlt_make_full(enum tlt_full_reason why)
{
	struct tlt_cpu *c;
	unsigned long flags;

	local_irq_save(flags);
	c = this_cpu_ptr(&tlt_cpu);
	if (c->reduced) {
		write_xcr0(c, tlt_xcr0_full);
		c->reduced = false;
		tlt_unpark(c);
		count_full(c, why);
		/* Look again at the next return to user mode. It is always the
		 * current task's, or passed on from it at the switch. */
		set_thread_flag(TIF_USER_RETURN_NOTIFY);
	}
	local_irq_restore(flags);
}

/*
 * Takes the withheld components away from the current task, which is about to
 * return to user mode. Only the user-return notifier calls this.
 */
enum tlt_reduction tlt_reduce(struct tlt_cpu *c)
{
	u64 now;

	lockdep_assert_irqs_disabled();
	if (READ_ONCE(untrustworthy))
		return TLT_LEFT_FULL;
	now = xgetbv(XCR_XFEATURE_ENABLED_MASK);
	if (unlikely(c->reduced || now != tlt_xcr0_full)) {
		tlt_violation(c, "XCR0 is not the kernel's at a return", now);
		tlt_full(TLT_FULL_DISARM);
		return TLT_LEFT_FULL;
	}
	/* The kernel would load them after us, with a reduced XCR0. */
	tlt_load_user_registers();
	if (tlt_park(c) == TLT_LIVE)
		return TLT_LEFT_LIVE;
	if (!write_xcr0(c, tlt_xcr0_full & ~tlt_xcr0_withheld)) {
		tlt_unpark(c);
		return TLT_LEFT_FULL;
	}
	c->reduced = true;
	c->counters.reductions++;
	return TLT_REDUCED;
}

/* ---- arming ---- */

/* On the CPU concerned, as an interrupt or with interrupts off. */
static void follow_armed(void *unused)
{
	struct tlt_cpu *c = this_cpu_ptr(&tlt_cpu);

	c->armed = cpumask_test_cpu(smp_processor_id(), &armed_cpus);
	tlt_ran_full();
	if (c->armed)
		set_thread_flag(TIF_USER_RETURN_NOTIFY);
	else
		tlt_full(TLT_FULL_DISARM);
}

/* Arms these CPUs and no others. Those that are offline follow when they come. */
int tlt_arm_cpus(const struct cpumask *cpus)
{
	if (READ_ONCE(untrustworthy) && !cpumask_empty(cpus))
		return -EIO;
	cpus_read_lock();
	mutex_lock(&arm_mutex);
	cpumask_copy(&armed_cpus, cpus);
	on_each_cpu(follow_armed, NULL, 1);
	tlt_levels_follow(&armed_cpus);
	mutex_unlock(&arm_mutex);
	cpus_read_unlock();
	return 0;
}

unsigned int tlt_nr_armed(void)
{
	return cpumask_weight(&armed_cpus);
}

bool tlt_is_armed(unsigned int cpu)
{
	return READ_ONCE(per_cpu(tlt_cpu, cpu).armed);
}

/*
 * Hotplug callbacks: in the CPU's hotplug thread, so in process context on
 * that CPU, before user tasks come and after they have left. The kernel has
 * just written XCR0 itself when a CPU comes up, and at resume.
 */
int tlt_arm_cpu_up(unsigned int cpu)
{
	struct tlt_cpu *c = this_cpu_ptr(&tlt_cpu);

	local_irq_disable();
	c->reduced = false;
	c->parked = false;
	tlt_notify_register(c);
	follow_armed(NULL);
	local_irq_enable();
	if (c->armed)
		tlt_levels_open(cpu);
	return 0;
}

int tlt_arm_cpu_down(unsigned int cpu)
{
	struct tlt_cpu *c = this_cpu_ptr(&tlt_cpu);

	tlt_levels_close(cpu);
	local_irq_disable();
	c->armed = false;
	tlt_full(TLT_FULL_DISARM);
	tlt_notify_unregister(c);
	local_irq_enable();
	return 0;
}
