// SPDX-License-Identifier: GPL-2.0
/*
 * turbolane_trap: wide instructions fault on scalar CPUs.
 *
 * Core specialisation without a hint in the program (SYSTOR 3.1-3.4, THESIS
 * 4.1): components of the vector state are withheld from user code on chosen
 * CPUs, instructions that need them trap, and the scheduler gets an event to move
 * the task to a CPU where it may run. No kernel patch, no change of the program.
 *
 * trap.h lists the files; arm.c states the invariant that everything depends on;
 * docs/kernel-module.md describes what the module changes and how to undo it.
 *
 * Loaded, the module withholds nothing. What an administrator arms through the
 * control device is disarmed when the device is closed.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpuhotplug.h>
#include <linux/module.h>

#include "trap.h"

static char *components = "avx512";
module_param(components, charp, 0444);
MODULE_PARM_DESC(components,
		 "what to withhold: avx512 (default), avx, amx; by commas");

static int hotplug_state;

/*
 * Kernels that are refused by their configuration:
 *
 *   PREEMPT_RT  spinlocks sleep there, and so do allocations: neither the trap nor
 *               the return to user mode, with interrupts off, could make a note of
 *               a task.
 *   CFI         an indirect call whose target has another type than the caller
 *               expects ends in a panic. Our hooks are called by ftrace, tracepoints
 *               and notifiers; no such kernel was at hand to try each of them on.
 *   LTO         functions move into their callers, and a call that is hooked may
 *               leave copies that are not. The look at the kernel's text (xstate.c)
 *               finds an XSAVE in such a copy, but not what else was moved.
 */
static const struct {
	bool is_set;
	const char *name;
} refused[] = {
	{IS_ENABLED(CONFIG_PREEMPT_RT), "PREEMPT_RT"},
	{IS_ENABLED(CONFIG_CFI_CLANG) || IS_ENABLED(CONFIG_CFI), "CFI"},
	{IS_ENABLED(CONFIG_LTO_CLANG), "LTO_CLANG"},
};

static int refused_configuration(void)
{
	int i, err = 0;

	for (i = 0; i < ARRAY_SIZE(refused); i++) {
		if (!refused[i].is_set)
			continue;
		pr_err("this kernel is built with CONFIG_%s, on which the "
		       "module cannot work\n",
		       refused[i].name);
		err = -EOPNOTSUPP;
	}
	return err;
}

/*
 * Everything is in place before CPUs are looked at, CPUs before there is a
 * device to arm them by; and backwards when unloading.
 */
static int __init trap_module_init(void)
{
	int err = refused_configuration() ?: tlt_arm_init(components);

	if (err)
		return err;
	tlt_levels_init();
	tlt_glance_init();
	err = tlt_live_init();
	if (err)
		return err;
	err = tlt_files_init();
	if (err)
		goto live;
	err = tlt_hooks_init();
	if (err)
		goto files;
	err = tlt_newcode_init();
	if (err)
		goto hooks;
	err = tlt_trap_init();
	if (err)
		goto detect;
	err = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "turbolane_trap:online",
				tlt_arm_cpu_up, tlt_arm_cpu_down);
	if (err < 0)
		goto trap;
	hotplug_state = err;
	err = tlt_ctl_init();
	if (err)
		goto hotplug;
	pr_info("loaded: can withhold %#llx of XCR0 %#llx\n", tlt_xcr0_withheld,
		tlt_xcr0_full);
	return 0;
hotplug:
	cpuhp_remove_state(hotplug_state);
trap:
	tlt_trap_exit();
	tlt_glance_exit();
detect:
	tlt_newcode_exit();
hooks:
	tlt_hooks_exit();
files:
	tlt_files_exit();
live:
	tlt_live_exit();
	return err;
}

static void __exit trap_module_exit(void)
{
	tlt_ctl_exit();
	cpuhp_remove_state(hotplug_state); /* each CPU: full, no notifier */
	tlt_trap_exit();
	tlt_glance_exit();
	tlt_newcode_exit();
	tlt_hooks_exit();
	tlt_files_exit();
	tlt_notes_exit();
	tlt_live_exit();
	pr_info("unloaded\n");
}

module_init(trap_module_init);
module_exit(trap_module_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Makes wide instructions fault on scalar CPUs");
MODULE_AUTHOR("Turbolane");
