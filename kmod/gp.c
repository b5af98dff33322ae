// SPDX-License-Identifier: GPL-2.0
/*
 * The trap's other fault: #GP.
 *
 * XRSTOR of an image that was saved with more components than XCR0 has now
 * raises #GP (glibc's lazy binding does it), and so does ENCLU for an enclave
 * that wants them. Interrupts are on: the task may have moved since the fault,
 * and XCR0 may be full by now. So such a fault is restarted once, wherever the
 * task is. It is real if it comes again at the same place while the task has
 * had the full XCR0 throughout.
 */
#include <linux/irqflags.h>
#include <linux/sched/clock.h>
#include <asm/ptrace.h>

#include "decode.h"
#include "settings.h"
#include "trap.h"

/* Whether the kernel is to restart the instruction instead of raising a signal. */
bool tlt_claims_gp(struct pt_regs *regs)
{
	u8 bytes[TLT_INSN_BYTES_MAX];
	struct tlt_insn insn;
	struct tlt_task *t;
	struct tlt_cpu *c;
	unsigned long flags;
	u64 now_ns;
	unsigned int n;
	bool ours;

	if (!user_mode(regs) || !tlt_nr_armed())
		return false;
	n = tlt_fetch(regs, bytes, sizeof(bytes));
	tlt_decode(bytes, n, tlt_xcr0_withheld, user_64bit_mode(regs), &insn);
	/* 0f 01 d7: ENCLU */
	if (insn.kind != TLT_XRSTOR && !(n >= 3 && bytes[0] == 0x0f &&
					 bytes[1] == 0x01 && bytes[2] == 0xd7))
		return false;
	local_irq_save(flags);
	c = this_cpu_ptr(&tlt_cpu);
	t = tlt_task_get(current);
	now_ns = local_clock();
	ours = t ? !(t->gp_ip == regs->ip && now_ns < t->full_until_ns) :
		   now_ns >= c->skip_until_ns;
	if (ours) {
		tlt_full(TLT_FULL_TRAP);
		c->counters.xrstor_faults++;
		tlt_leave_full(c, t, now_ns, tlt_setting(&tlt_grace_ns));
	}
	if (t)
		t->gp_ip = ours ? regs->ip : 0;
	local_irq_restore(flags);
	return ours;
}
