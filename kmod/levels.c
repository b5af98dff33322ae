// SPDX-License-Identifier: GPL-2.0
/*
 * Licence counters: wide code that no trap has seen.
 *
 * While a task has the full XCR0 on an armed CPU, its wide instructions do not
 * trap. Where the PMU counts the cycles that a core spends at each licence level
 * (CORE_POWER.LVLn_TURBO_LICENSE; Skylake-SP to Ice Lake), each armed CPU has one
 * counter of those at wide_level and above. It is read when user code begins to
 * run with the full XCR0, and again when that ends: at a switch, or when XCR0 is
 * to be reduced. A level that was low before and is up now was requested by this
 * task.
 *
 *   trap        return to user mode                   switch, or grace is over
 *    |  look: low? ----- full XCR0, nothing traps ----- look: any cycles? |
 *
 * Only unambiguous rises are reported. A rise is ignored if
 * - the level is already up: it is held for a while after the last request for it
 *   (670 us: DIM 2.2). A counter that advances between two reads shows this.
 * - another process ran with the full XCR0 on this core within the last SETTLE_NS:
 *   its request may not have been granted yet.
 * - a sibling ran with the full XCR0 meanwhile, or may have: siblings share the
 *   licence.
 * A request that is not granted before the stretch ends is not seen either. The
 * next stretch shows it, or a trap does, as on CPUs without such counters.
 *
 * The kernel's own AVX-512 (cryptography, RAID) in a system call or an interrupt of
 * the stretch counts as the task's, and so does the request of a virtual machine
 * right before it was switched out.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/perf_event.h>
#include <linux/sched/clock.h>
#include <linux/smp.h>
#include <linux/topology.h>
#include <asm/cpu_device_id.h>
#include <asm/fpu/types.h>
#include <asm/intel-family.h>

#include "settings.h"
#include "trap.h"

/* The power control unit takes up to 500 us to grant a licence (THESIS 2.2). */
#define SETTLE_NS 500000

/* CORE_POWER: LVL1_TURBO_LICENSE and above, LVL2 alone; umasks may be joined. */
#define LEVEL_1_UP 0x3828
#define LEVEL_2_UP 0x2028

/*
 * The models that have these counters; on others the same numbers mean something
 * else. The same as in crates/hw/src/license.rs, whose test reads this list.
 */
static const struct x86_cpu_id counting_models[] = {
	X86_MATCH_VFM(IFM(6, 85), 0),
	X86_MATCH_VFM(IFM(6, 106), 0),
	X86_MATCH_VFM(IFM(6, 108), 0),
	X86_MATCH_VFM(IFM(6, 125), 0),
	X86_MATCH_VFM(IFM(6, 126), 0),
	X86_MATCH_VFM(IFM(6, 140), 0),
	X86_MATCH_VFM(IFM(6, 141), 0),
	X86_MATCH_VFM(IFM(6, 167), 0),
	{}};

static bool on_counting_model;

/* ---- counters of armed CPUs ---- */

/*
 * Whether cycles at this level show that the code needs a withheld component: not
 * if code that needs only other components reaches the level too. No event counts
 * AMX.
 */
static bool can_count(unsigned int level)
{
	u64 needed = XFEATURE_MASK_AVX512;

	if (level == 1)
		needed |= XFEATURE_MASK_YMM;
	return on_counting_model && level <= 2 &&
	       !(tlt_xcr0_full & ~tlt_xcr0_withheld & needed);
}

/* The CPU is armed, and online or coming. May sleep. */
void tlt_levels_open(unsigned int cpu)
{
	struct tlt_cpu *c = per_cpu_ptr(&tlt_cpu, cpu);
	unsigned int level = tlt_setting(&tlt_wide_level);
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW,
		.size = sizeof(attr),
		.config = level == 1 ? LEVEL_1_UP : LEVEL_2_UP,
		/* Taking turns with other events it would miss what matters. */
		.pinned = 1,
	};
	struct perf_event *event;

	if (c->level_event || !can_count(level))
		return;
	event = perf_event_create_kernel_counter(&attr, cpu, NULL, NULL, NULL);
	if (IS_ERR(event)) {
		pr_info_once("no licence counter on CPU %u: %ld; wide code "
			     "inside of grace periods shows by traps alone\n",
			     cpu, PTR_ERR(event));
		return;
	}
	c->level_counted = level;
	/* What ran here so far may have asked for the level just now. */
	c->stretch.process = NULL;
	c->stretch.ended_ns = local_clock();
	WRITE_ONCE(c->level_event, event);
}

/* On the only CPU that reads the counter, which it does with interrupts off. */
static void take_event(void *event)
{
	*(struct perf_event **)event = this_cpu_xchg(tlt_cpu.level_event, NULL);
	this_cpu_write(tlt_cpu.stretch.certain, false);
}

/* The CPU is disarmed, or goes. May sleep. */
void tlt_levels_close(unsigned int cpu)
{
	struct perf_event *event = NULL;

	if (!READ_ONCE(per_cpu_ptr(&tlt_cpu, cpu)->level_event))
		return;
	smp_call_function_single(cpu, take_event, &event, true);
	if (event)
		perf_event_release_kernel(event);
}

/* These CPUs are armed and no others. May sleep; no CPU comes or goes. */
void tlt_levels_follow(const struct cpumask *armed)
{
	unsigned int cpu;

	for_each_online_cpu(cpu)
	{
		struct tlt_cpu *c = per_cpu_ptr(&tlt_cpu, cpu);

		if (!cpumask_test_cpu(cpu, armed) ||
		    c->level_counted != tlt_setting(&tlt_wide_level))
			tlt_levels_close(cpu);
		if (cpumask_test_cpu(cpu, armed))
			tlt_levels_open(cpu);
	}
}

void tlt_levels_init(void)
{
	on_counting_model = x86_match_cpu(counting_models);
}

/* ---- stretches of user code with the full XCR0 ---- */

/*
 * Cycles of this CPU at the level or above. As perf_event_read_local() does it,
 * which modules cannot call. Interrupts off, so that perf does not change the
 * event meanwhile; false if it does not count here now.
 */
static bool read_cycles(struct tlt_cpu *c, u64 *cycles)
{
	struct perf_event *event = READ_ONCE(c->level_event);

	if (!event || event->state != PERF_EVENT_STATE_ACTIVE ||
	    event->oncpu != smp_processor_id())
		return false;
	event->pmu->read(event);
	*cycles = local64_read(&event->count);
	return true;
}

/* Whether the level is low. */
static bool is_low(struct tlt_cpu *c, u64 *cycles)
{
	u64 before;

	return read_cycles(c, &before) && read_cycles(c, cycles) &&
	       *cycles == before;
}

/* Stretches of the core's other CPUs so far; -1: one may go on, or is not known of. */
static u64 stretches_of_siblings(u64 now_ns)
{
	unsigned int cpu = smp_processor_id(), sibling;
	u64 sum = 0;

	for_each_cpu(sibling, topology_sibling_cpumask(cpu))
	{
		const struct tlt_cpu *s = per_cpu_ptr(&tlt_cpu, sibling);

		if (sibling == cpu)
			continue;
		if (!READ_ONCE(s->armed) || !READ_ONCE(s->level_event) ||
		    READ_ONCE(s->stretch.runs) ||
		    now_ns < READ_ONCE(s->stretch.ended_ns) + SETTLE_NS)
			return -1;
		sum += READ_ONCE(s->stretch.nr);
	}
	return sum;
}

void tlt_stretch_begins(struct tlt_cpu *c)
{
	struct tlt_stretch *s = &c->stretch;
	u64 now_ns = local_clock();

	if (s->process != current->signal) {
		s->process = current->signal;
		s->settled_ns = s->ended_ns + SETTLE_NS;
	}
	WRITE_ONCE(s->runs, true);
	WRITE_ONCE(s->nr, s->nr + 1);
	s->siblings_nr = stretches_of_siblings(now_ns);
	s->certain = s->siblings_nr != -1 && now_ns >= s->settled_ns &&
		     c->level_counted == tlt_setting(&tlt_wide_level) &&
		     is_low(c, &s->from_cycles);
}

/* It does so no longer. Interrupts off, and perhaps a runqueue locked. */
void tlt_stretch_ends(struct tlt_cpu *c)
{
	struct tlt_stretch *s = &c->stretch;
	u64 cycles, now_ns = local_clock();

	if (s->certain && read_cycles(c, &cycles) && cycles != s->from_cycles &&
	    s->siblings_nr == stretches_of_siblings(now_ns))
		tlt_level_rose(c);
	WRITE_ONCE(s->ended_ns, now_ns);
	WRITE_ONCE(s->runs, false);
}
