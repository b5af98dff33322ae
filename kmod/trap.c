// SPDX-License-Identifier: GPL-2.0
/*
 * The trap: a task has executed something that needs a withheld component.
 *
 *     #UD on a reduced CPU          #GP of XRSTOR, ENCLU
 *            |                              |
 *            v                              v
 *     XCR0 full, parked state back in the registers; decode
 *            |
 *            +-- heavy enough (level >= wide_level) --> event: the scheduler
 *            |                                          moves the task
 *            +-- light, or not ours -----------------> period of grace
 *            v
 *     the instruction is executed again, here or on a wide CPU
 *
 * The module handles only faults that user code raises while XCR0 is reduced. With
 * the full XCR0 the fault is real and the kernel handles it as usual, so an illegal
 * opcode costs one more fault and gets the same SIGILL. Whatever the decoder says,
 * the instruction is restarted; nothing but the restart decides whether it is legal.
 *
 * Forward progress. A trapped task runs with the full XCR0 for a while, for
 * hold_ns if it was steered (the scheduler may have to leave it here: pinned, or
 * the wide CPUs busy), for grace_ns otherwise; see periods.c.
 *
 * Modes. count: counts and logs, sends no event. grace: as drawn above. steer:
 * sends the event for everything that needs a withheld component (SYSTOR 3.2).
 *
 * A heavy instruction inside a grace period is not seen. Countermeasures: before
 * a period is given, the code after the light instruction is decoded (ahead.c);
 * at its end, XGETBV(1) (live.c: live ZMM_Hi256 is wide work that continues) and
 * the licence counters of the PMU, if it has them (levels.c), are read; in a
 * process that is known to be wide, each trap of level 1 and above is sent, and
 * code that requests no level gets only a glance (glance.c); and user space can
 * report what it knows (TLT_IOC_LEARN). For a program that mixes both all the
 * time, it is best to disable the light use by glibc's tunables
 * (docs/kernel-module.md).
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kdebug.h>
#include <linux/kernel.h>
#include <linux/ratelimit.h>
#include <linux/sched/clock.h>
#include <linux/time64.h>
#include <linux/uaccess.h>
#include <asm/ptrace.h>
#include <asm/trapnr.h>

#include "ahead.h"
#include "decode.h"
#include "settings.h"
#include "trap.h"

#define CREATE_TRACE_POINTS
#include "turbolane_trap_event.h"

/*
 * Grace for processes that have no wide code: ten traps a second cost nothing.
 * A thread whose process maps wide code goes unseen for so long at most.
 */
#define KNOWN_LIGHT_NS 100000000ULL

/* Reports to the scheduler. Interrupts off. */
static void steer(struct tlt_cpu *c, struct tlt_task *t, u32 level,
		  unsigned long ip)
{
	c->counters.steered++;
	if (t)
		t->steered++;
	trace_turbolane_wide(current, level, ip);
}

/*
 * The scheduler's answer is an interrupt to this CPU. Taken here it costs little,
 * and the return from the trap goes through the scheduler; one that is late is
 * taken in user mode. PAUSE is there because STI lets no interrupt in before the
 * next instruction has been executed. Nothing is preempted: preemption is disabled,
 * and when it is enabled again interrupts are off.
 */
static void let_answer_in(void)
{
	if (!trace_turbolane_wide_enabled())
		return;
	preempt_disable();
	local_irq_enable();
	cpu_relax();
	local_irq_disable();
	preempt_enable();
}

/* Whether the task has trapped too often in the current second. */
static bool over_rate(struct tlt_task *t, u64 now_ns)
{
	u64 second = div_u64(now_ns, NSEC_PER_SEC);

	if (t->rate_second != second) {
		t->rate_second = second;
		t->rate_traps = 0;
	}
	return ++t->rate_traps > tlt_setting(&tlt_traps_per_s_max);
}

static bool is_wide(const struct tlt_insn *insn, u32 verdict, bool raised_level)
{
	if (insn->kind != TLT_LIGHT && insn->kind != TLT_HEAVY)
		return false;
	switch (tlt_mode()) {
	case TLT_MODE_COUNT:
		return false;
	case TLT_MODE_STEER:
		return true;
	default:
		break;
	}
	switch (verdict) {
	case TLT_VERDICT_WIDE:
		/* Level 0 asks for no licence: a glance is enough. */
		return insn->license_level > 0 || raised_level;
	case TLT_VERDICT_LIGHT:
		return false;
	default:
		return insn->license_level >= tlt_setting(&tlt_wide_level);
	}
}

/* One line for the first of many: the task, the address, the instruction. */
static void tell(const struct tlt_insn *insn, const u8 *bytes, int n,
		 unsigned long ip)
{
	static DEFINE_RATELIMIT_STATE(limit, 60 * HZ, 3);

	if (insn->kind != TLT_HEAVY && insn->kind != TLT_LIGHT)
		return;
	if (__ratelimit(&limit))
		pr_info("%s[%d] at %lx: %*ph asks for licence level %u\n",
			current->comm, task_pid_nr(current), ip, n, bytes,
			insn->license_level);
}

/* As many bytes of the code, n at most, as can be read without a page fault. */
unsigned int tlt_fetch(struct pt_regs *regs, u8 *bytes, unsigned int n)
{
	const void __user *ip = (const void __user *)regs->ip;
	unsigned int in_page = PAGE_SIZE - offset_in_page(regs->ip);

	if (!copy_from_user_nofault(bytes, ip, n))
		return n;
	if (in_page < n && !copy_from_user_nofault(bytes, ip, in_page))
		return in_page;
	return 0;
}

static void count(struct tlt_cpu *c, struct tlt_task *t,
		  const struct tlt_insn *insn, unsigned long ip)
{
	bool withheld = insn->kind == TLT_LIGHT || insn->kind == TLT_HEAVY;
	bool heavy = withheld &&
		     insn->license_level >= tlt_setting(&tlt_wide_level);

	c->counters.traps++;
	c->counters.traps_heavy += heavy;
	c->counters.traps_light += withheld && !heavy;
	c->counters.traps_other += !withheld;
	if (!t) {
		c->counters.no_memory++;
		return;
	}
	t->traps++;
	t->traps_heavy += heavy;
	t->traps_light += withheld && !heavy;
	t->last_ip = ip;
}

/* The licence level that the code from the next instruction on asks for. */
static noinline u8 level_ahead(struct pt_regs *regs)
{
	u8 code[TLT_AHEAD_BYTES_MAX];

	if (!user_64bit_mode(regs))
		return 0;
	return tlt_level_ahead(code, tlt_fetch(regs, code, sizeof(code)),
			       tlt_xcr0_withheld);
}

/* A light instruction that leads to heavy ones counts as one of them. */
static void read_ahead(struct pt_regs *regs, struct tlt_insn *insn)
{
	u8 level = level_ahead(regs);

	if (level < tlt_setting(&tlt_wide_level))
		return;
	insn->kind = TLT_HEAVY;
	insn->license_level = max(insn->license_level, level);
}

/* How long light use is left alone; 0: not at all. Interrupts off. */
static u64 grace_period_ns(struct tlt_cpu *c, struct tlt_task *t, u32 verdict,
			   const struct pt_regs *regs, u64 now_ns)
{
	u64 period_ns = tlt_setting(&tlt_grace_ns);

	if (verdict == TLT_VERDICT_WIDE && t && tlt_mode() == TLT_MODE_GRACE)
		return min(period_ns, tlt_glance_begins(c, t, regs, now_ns));
	if (verdict == TLT_VERDICT_LIGHT)
		return max_t(u64, period_ns, KNOWN_LIGHT_NS);
	return period_ns;
}

/* The current task, of which `verdict` is known, has been seen at heavy code. */
static void learn_wide(u32 verdict)
{
	if (verdict == TLT_VERDICT_NONE)
		tlt_process_learn(current, TLT_VERDICT_WIDE);
}

/*
 * The current task has asked for the wide level without a trap, as a licence
 * counter shows. Its period is over, so that it traps again; its process learns
 * then what was seen, since no memory can be allocated in a switch.
 */
void tlt_level_rose(struct tlt_cpu *c)
{
	struct tlt_task *t = tlt_task_find(current);

	c->counters.level_rises++;
	if (!t || tlt_mode() == TLT_MODE_COUNT)
		return;
	switch (tlt_process_verdict(current)) {
	case TLT_VERDICT_LIGHT:
		return;
	case TLT_VERDICT_WIDE:
		/* Expected of a task that was steered and left here. */
		if (!t->glance_since_ns)
			return;
		tlt_glance_wide(t, local_clock(), true);
	}
	t->raised_level = true;
	t->full_until_ns = 0;
}

/*
 * What is known of the current process, with what this task has shown since; that
 * counts as if the instruction that traps now had done it.
 */
static u32 verdict_now(struct tlt_task *t, bool *raised_level)
{
	u32 verdict = tlt_process_verdict(current);

	*raised_level = t && t->raised_level;
	if (likely(!*raised_level))
		return verdict;
	t->raised_level = false;
	learn_wide(verdict);
	return tlt_process_verdict(current);
}

/*
 * What trapped. A task that traps where it did last time is believed to do the
 * same again: the answer only informs the policy. Loops are the rule, and
 * reading and decoding is half of a trap's cost.
 */
static void identify(struct pt_regs *regs, struct tlt_task *t,
		     struct tlt_insn *insn)
{
	u8 bytes[TLT_INSN_BYTES_MAX];
	unsigned int n;

	if (t && t->last_ip == regs->ip && t->traps) {
		insn->kind = t->last_kind;
		insn->license_level = t->last_level;
		return;
	}
	n = tlt_fetch(regs, bytes, sizeof(bytes));
	/* A failure leaves an instruction of no kind. */
	tlt_decode(bytes, n, tlt_xcr0_withheld, user_64bit_mode(regs), insn);
	tell(insn, bytes, insn->length ?: n, regs->ip);
	if (insn->kind == TLT_LIGHT)
		read_ahead(regs, insn);
	if (t) {
		t->last_kind = insn->kind;
		t->last_level = insn->license_level;
	}
}

/* Interrupts off. */
static void trapped(struct pt_regs *regs)
{
	struct tlt_cpu *c = this_cpu_ptr(&tlt_cpu);
	struct tlt_task *t = tlt_task_find(current) ?: tlt_task_get(current);
	bool raised_level;
	u32 verdict = verdict_now(t, &raised_level);
	u64 now_ns = local_clock(), period_ns = 0;
	struct tlt_insn insn;

	tlt_full(TLT_FULL_TRAP);
	c->just_trapped = t;
	identify(regs, t, &insn);
	count(c, t, &insn, regs->ip);
	if (t && over_rate(t, now_ns)) {
		c->counters.rate_limited++;
		tlt_leave_full(c, t, now_ns,
			       NSEC_PER_SEC - (now_ns -
					       t->rate_second * NSEC_PER_SEC));
		return;
	}
	if (!is_wide(&insn, verdict, raised_level))
		period_ns = grace_period_ns(c, t, verdict, regs, now_ns);
	if (period_ns) {
		tlt_leave_full(c, t, now_ns, period_ns);
		return;
	}
	if (insn.license_level >= tlt_setting(&tlt_wide_level))
		learn_wide(verdict);
	tlt_glance_wide(t, now_ns, raised_level);
	tlt_leave_full(c, t, now_ns, tlt_setting(&tlt_hold_ns));
	steer(c, t,
	      max_t(u32, insn.license_level, tlt_setting(&tlt_wide_level)),
	      regs->ip);
	let_answer_in();
}

/*
 * The current task returns to user mode with live state that cannot be put
 * aside, its period of grace being over: it is in the middle of wide work, or
 * of a long memset. The code says which, and so whether its next traps deserve
 * grace; this one is sent anyway.
 */
void tlt_left_live(struct tlt_cpu *c)
{
	struct tlt_task *t = tlt_task_get(current);
	struct pt_regs *regs = task_pt_regs(current);
	u32 verdict = tlt_process_verdict(current);
	u64 now_ns = local_clock();

	c->counters.live_returns++;
	tlt_glance_wide(t, now_ns, true);
	tlt_leave_full(c, t, now_ns, tlt_setting(&tlt_hold_ns));
	if (tlt_mode() == TLT_MODE_COUNT || verdict == TLT_VERDICT_LIGHT)
		return;
	if (level_ahead(regs) >= tlt_setting(&tlt_wide_level))
		learn_wide(verdict);
	steer(c, t, tlt_setting(&tlt_wide_level), regs->ip);
}

/* ---- #UD ---- */

/*
 * Kernel code on a reduced CPU. UD0, UD1, UD2 are BUG and WARN: not ours. Any
 * other is vector code that no hook announced: the invariant is broken, and
 * with the full XCR0 the kernel at least survives it.
 */
static int kernel_ud(struct pt_regs *regs)
{
	u8 code[2] = {};
	u64 xcr0 = tlt_xcr0_full & ~tlt_xcr0_withheld;

	copy_from_kernel_nofault(code, (void *)regs->ip, sizeof(code));
	if (code[0] == 0xd6 ||
	    (code[0] == 0x0f &&
	     (code[1] == 0x0b || code[1] == 0xb9 || code[1] == 0xff)))
		return NOTIFY_DONE;
	tlt_full(TLT_FULL_TRAP);
	tlt_violation(this_cpu_ptr(&tlt_cpu), "kernel vector code", xcr0);
	return NOTIFY_STOP;
}

/* Interrupts have been off since the fault: `reduced` is what it met. */
static int on_die(struct notifier_block *nb, unsigned long what, void *data)
{
	const struct die_args *args = data;

	if (what != DIE_TRAP || args->trapnr != X86_TRAP_UD ||
	    !this_cpu_read(tlt_cpu.reduced))
		return NOTIFY_DONE;
	if (!user_mode(args->regs))
		return kernel_ud(args->regs);
	trapped(args->regs);
	return NOTIFY_STOP;
}

static struct notifier_block die_block = {
	.notifier_call = on_die, .priority = 1, /* before debuggers */
};

int tlt_trap_init(void)
{
	return register_die_notifier(&die_block);
}

void tlt_trap_exit(void)
{
	unregister_die_notifier(&die_block);
}
