/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Runs all CPUs in the order of their local times.
 *
 * Each CPU has a local time, which crates/silicon keeps. Of the CPUs that are
 * awake the one whose time is the least runs one trace, and the machine says
 * what time it is there then. Global time, that of timers and of the time stamp
 * counter, is that of the CPU that runs: it never goes back, and no CPU sees an
 * event that lies in its future by more than one trace. When all CPUs sleep, time
 * goes on to the next timer.
 *
 * The settings come by the environment: TURBOLANE_SILICON as crates/silicon reads
 * them, TURBOLANE_SILICON_LOG the file of the log.
 */
#include "bochs.h"
#include "cpu/cpu.h"
#include "cpu/apic.h"
#include "pc_system.h"
#include "gui/siminterface.h"
#include "param_names.h"
#include "silicon_hooks.h"
#include "silicon_machine.h"

struct silicon_machine *silicon;

static const uint64_t *times;
static unsigned running;

/* Events that a CPU had when it fell asleep: only others wake it. */
static struct {
	bool is_asleep;
	Bit32u pending;
} sleepers[SILICON_MAX_CPUS];

static const char *settings(void)
{
	const char *text = getenv("TURBOLANE_SILICON");

	return text ? text : "";
}

static void end(void)
{
	silicon_close(silicon);
}

static void start(void)
{
	unsigned threads = SIM->get_param_num(BXPN_CPU_NTHREADS)->get();
	const char *log = getenv("TURBOLANE_SILICON_LOG");

	silicon = silicon_open(settings(), BX_SMP_PROCESSORS, threads, log);
	if (!silicon)
		exit(2);
	atexit(end);
	times = silicon_times(silicon);
	silicon_prepare_classes();
	/* What the firmware's first instructions left there has no classes. */
	flushICaches();
}

unsigned silicon_random_seed(void)
{
	return silicon_seed(settings());
}

void silicon_wait(Bit32u cycles)
{
	BX_CPU(running)->silicon_stall += cycles;
}

void silicon_mark_now(Bit32u value)
{
	silicon_mark(silicon, running, value);
}

static uint64_t global_time(void)
{
	return (uint64_t)bx_pc_system.time_ticks() << 16;
}

/* Whether a CPU that fell asleep goes on sleeping. */
static bool sleeps(unsigned cpu)
{
	BX_CPU_C *c = BX_CPU(cpu);

	if (c->pending_event == sleepers[cpu].pending &&
	    c->activity_state != BX_CPU_C::BX_ACTIVITY_STATE_ACTIVE)
		return true;
	sleepers[cpu].is_asleep = false;
	silicon_wake(silicon, cpu, global_time(),
		     (c->pending_event & BX_EVENT_INIT) != 0);
	return false;
}

/* The CPU that is furthest behind, of those that are awake; -1 if none is. */
static int furthest_behind(void)
{
	uint64_t least = UINT64_MAX;
	int found = -1;

	for (unsigned cpu = 0; cpu < BX_SMP_PROCESSORS; cpu++) {
		if (sleepers[cpu].is_asleep && sleeps(cpu))
			continue;
		if (times[cpu] < least) {
			least = times[cpu];
			found = cpu;
		}
	}
	return found;
}

static inline void advance_to(uint64_t ticks)
{
	uint64_t now = bx_pc_system.time_ticks();

	if (ticks > now)
		BX_TICKN((Bit32u)(ticks - now));
}

/* The CPU that runs did nothing, and waits for an event. */
static void fall_asleep(BX_CPU_C *c)
{
	sleepers[running].is_asleep = true;
	sleepers[running].pending = c->pending_event;
	silicon_sleep(silicon, running);
}

/* Classes of what it executed of its trace. */
static inline Bit32u executed(const BX_CPU_C *c, Bit32u insns)
{
	/* A branch was taken: what comes after it in the trace was not. */
	if (c->silicon_wide && insns < c->silicon_length)
		return silicon_classify(c->silicon_first, insns);
	return c->silicon_wide;
}

/* Reports what the CPU that runs did. */
static inline void report(BX_CPU_C *c)
{
	Bit64u icount = c->get_icount();
	Bit32u insns = (Bit32u)(icount - c->icount_last_sync);

	c->icount_last_sync = icount;
	if (insns == 0 &&
	    c->activity_state != BX_CPU_C::BX_ACTIVITY_STATE_ACTIVE) {
		fall_asleep(c);
		return;
	}
	struct silicon_work work = {
		.insns = insns,
		.stall_cycles = c->silicon_stall,
		.wide = executed(c, insns),
		.is_user = c->sregs[BX_SEG_REG_CS].selector.rpl == 3,
	};
	c->silicon_stall = 0;
	if (silicon_ran(silicon, running, &work))
		c->lapic->perfmon_overflow();
}

/* The trace of the CPU that runs ended in an exception, of its last instruction. */
static void report_exception(void)
{
	BX_CPU_C *c = BX_CPU(running);
	unsigned done = (unsigned)(c->get_icount() - c->icount_last_sync);

	/* What faulted asks for no licence: it was not executed. */
	if (c->silicon_wide)
		c->silicon_wide = silicon_classify(c->silicon_first, done);
	c->silicon_length = 0;
	c->icount++;
	report(c);
}

void silicon_loop(void)
{
	start();
	if (setjmp(BX_CPU_C::jmp_buf_env))
		report_exception();
	while (!bx_pc_system.kill_bochs_request) {
		int next = furthest_behind();

		if (next < 0) {
			BX_TICKN(bx_pc_system.getNumCpuTicksLeftNextEvent());
			continue;
		}
		running = next;
		advance_to(times[running] >> 16);
		BX_CPU_C *c = BX_CPU(running);

		c->cpu_run_trace();
		report(c);
	}
}
