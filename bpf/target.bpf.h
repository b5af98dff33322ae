/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Targets: a thread writes the requested performance of its CPU to its slot, and
 * the scheduler passes it to the CPU's governor (policy/target.h: what and when).
 *
 * The slot is read when the task starts, at ticks, and when the thread rings. A
 * thread that changes its target may ring by a rarely used system call that changes
 * nothing; then the target is in force when the call returns (drivers that cannot
 * switch from the scheduler have a kernel thread do it a little later). Ringing
 * by sched_yield was tried: it needs a callback that made each migration by a hint
 * 270 instructions longer, and in it the kernel's clock of the runqueue, by which
 * governors count, is not set (a warning on 7.3).
 *
 * A target ends with the task, because its slot is no longer read; with an exec:
 * the new program has made no request, and gets a slot of its own; and with the
 * scheduler: the kernel drops all targets.
 *
 * Limits: only the governor schedutil uses targets. CPUs of one cpufreq policy get
 * the highest of their targets, and a CPU without a request has the highest there
 * is, idle or not. A CPU that goes idle keeps its target until another task starts.
 */
#ifndef TL_TARGET_BPF_H
#define TL_TARGET_BPF_H

/* What the task asks for, 0 = nothing. */
static __always_inline u32 asked_target(const struct task_struct *p,
					const struct task_ctx *tc)
{
	struct tl_hint_slot *slot = try_lookup_slot(p, tc);

	return slot ? slot->target_q10 : 0;
}

/* The governor of the running task's CPU hears what there is to hear. */
static __always_inline void follow_target(const struct task_struct *p,
					  const struct task_ctx *tc,
					  struct tl_cpu *c, s32 cpu,
					  u32 is_tick)
{
	u32 before_q10 = c->target.told_q10, told_q10;

	if (!(tc->slot | before_q10))
		return;
	told_q10 = tl_target_tell(&c->target, asked_target(p, tc), is_tick);
	if (!told_q10)
		return;
	c->target_changes += told_q10 != before_q10;
	tl_scx_set_cpuperf(cpu, told_q10);
}

/* The bell. A tick that comes in between says the same. */
SEC("?fentry/__x64_sys_sched_get_priority_min")
int BPF_PROG(tl_target_bell, const struct pt_regs *regs)
{
	struct here h;

	bpf_preempt_disable();
	if (try_lookup_here(&h))
		follow_target(h.p, h.tc, h.c, bpf_get_smp_processor_id(), 0);
	bpf_preempt_enable();
	return 0;
}

/* Publish to applications whether targets have an effect. */
static __always_inline void publish_targets(void)
{
	struct tl_hint_board *board = lookup_board();

	if (board)
		board->header.takes_targets = tl_scx_has_cpuperf();
}

#endif
