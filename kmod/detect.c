// SPDX-License-Identifier: GPL-2.0
/*
 * Libraries that are loaded late, and look for AVX-512 when they are.
 *
 * Problem: a plug-in or an interpreter's extension may be loaded hours after
 * its program was started. Its constructor asks XGETBV at once, long after the
 * period that execve gave, and before any scan in user space can have seen the
 * file and have put a probe there (sites.c).
 *
 * Idea: code that can run has to be mapped first. A task that maps a file as
 * executable has the full XCR0 for exec_grace_ns of its CPU time, as if it had
 * just started. Constructors run in the task that mapped them.
 *
 * Limits: code that is written to memory and made executable (JIT) is made by
 * a program that has looked before. A library that looks later than that is
 * what sites are for.
 *
 * Hooked is the security module's question, because it is asked for each
 * mapping with file and protection at hand, and is a global function in every
 * kernel. It fires before the mapping is made: a mapping that fails costs a
 * period for nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/mman.h>
#include <linux/string.h>

#include "trap.h"

static void notrace on_map(unsigned long ip, unsigned long parent_ip,
			   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	/* security_mmap_file(file, prot, flags) */
	bool is_file = ftrace_regs_get_argument(fregs, 0);
	unsigned long prot = ftrace_regs_get_argument(fregs, 1);

	if (is_file && prot & PROT_EXEC && tlt_nr_armed())
		tlt_full_for_a_while();
}

static struct ftrace_ops map_ops = {
	.func = on_map,
	.flags = FTRACE_OPS_FL_RECURSION,
};

int tlt_detect_init(void)
{
	char name[] = "security_mmap_file";
	int err = ftrace_set_filter(&map_ops, name, strlen(name), 1);

	if (!err)
		err = register_ftrace_function(&map_ops);
	if (err)
		pr_err("cannot hook %s by ftrace: %d\n", name, err);
	return err;
}

void tlt_detect_exit(void)
{
	unregister_ftrace_function(&map_ops);
	ftrace_free_filter(&map_ops);
}
