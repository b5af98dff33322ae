// SPDX-License-Identifier: GPL-2.0
/*
 * Makes each step over a user probe late, for the test of ../sites.c: after the
 * probe's handlers have run, and before the task returns to user mode to execute
 * the probed instruction, its CPU is kept busy for delay_ns. Interrupts stay on,
 * so that ticks account the time to the task.
 *
 * This happens by itself in a virtual machine whose CPU is taken away by the host
 * at that moment: the time that it was away is the task's. It is rare, so a test
 * that waits for it would pass without a fix.
 *
 * For tests only.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/kprobes.h>
#include <linux/module.h>

#define DELAY_MAX_NS 1000000000UL

static unsigned long delay_ns = 30000000;
module_param(delay_ns, ulong, 0444);
MODULE_PARM_DESC(delay_ns, "how late each step is (default 30000000)");

static unsigned long steps;
module_param(steps, ulong, 0444);
MODULE_PARM_DESC(steps, "how many were late so far; only to be read");

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	mdelay(delay_ns / 1000000);
	steps++;
	return 0;
}

/* It prepares the step, once the handlers have run. */
static struct kprobe probe = {
	.symbol_name = "arch_uprobe_pre_xol",
	.pre_handler = before,
};

static int __init slow_step_init(void)
{
	int err;

	if (delay_ns > DELAY_MAX_NS)
		return -EINVAL;
	err = register_kprobe(&probe);
	if (err)
		pr_err("cannot probe %s: %d\n", probe.symbol_name, err);
	return err;
}

static void __exit slow_step_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(slow_step_init);
module_exit(slow_step_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Makes steps over user probes late, for tests");
