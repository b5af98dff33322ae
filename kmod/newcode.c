// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that get new code.
 *
 * Problem: a plug-in or an interpreter's extension may be loaded hours after
 * its program was started. Its constructor executes XGETBV at once, long after
 * the period that execve gave, and before a scan in user space can have put a
 * probe there (sites.c). And a process whose code user space has reported as
 * light now has code that was not scanned.
 *
 * Idea: code that can run has to be mapped first, or its memory be made
 * executable. A task that maps a file as executable has the full XCR0 for
 * exec_grace_ns of its CPU time, as if it had just started: constructors run in
 * the task that mapped them. And its process is light no more.
 *
 * Limits: code that is written to memory and made executable (JIT) is made by
 * a program that has looked before. A library that looks later than that is
 * what sites are for. A process whose every mapping is executable (personality
 * READ_IMPLIES_EXEC) has such code from its start, and so was never light.
 *
 * The hooks are the functions of the security module, because the kernel calls
 * them for each mapping and each change, with the protection as an argument, and
 * because they are global functions in every kernel. They are called before the
 * change: a mapping that fails costs a period for nothing.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ftrace.h>
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/string.h>

#include "trap.h"

static void notrace on_map(unsigned long ip, unsigned long parent_ip,
			   struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	/* security_mmap_file(file, prot, flags) */
	bool is_file = ftrace_regs_get_argument(fregs, 0);
	unsigned long prot = ftrace_regs_get_argument(fregs, 1);

	if (prot & PROT_EXEC)
		tlt_maps_code(is_file);
}

/* The process's mappings are locked for writing: after security_mmap_file(). */
static void notrace on_region(unsigned long ip, unsigned long parent_ip,
			      struct ftrace_ops *ops, struct ftrace_regs *fregs)
{
	/* mmap_region(file, addr, len, vm_flags, ...) */
	unsigned long vm_flags = ftrace_regs_get_argument(fregs, 3);

	if (vm_flags & VM_EXEC && current->mm)
		tlt_code_changes(current->mm);
}

static void notrace on_protect(unsigned long ip, unsigned long parent_ip,
			       struct ftrace_ops *ops,
			       struct ftrace_regs *fregs)
{
	/* security_file_mprotect(vma, reqprot, prot) */
	unsigned long prot = ftrace_regs_get_argument(fregs, 2);

	if (prot & PROT_EXEC) {
		tlt_maps_code(false);
		tlt_code_changes(current->mm);
	}
}

#define FLAGS FTRACE_OPS_FL_RECURSION

static struct {
	const char *name;
	struct ftrace_ops ops;
} hooks[] = {
	{"security_mmap_file", {.func = on_map, .flags = FLAGS}},
	{"mmap_region", {.func = on_region, .flags = FLAGS}},
	{"security_file_mprotect", {.func = on_protect, .flags = FLAGS}},
};

static void unhook(int nr)
{
	while (nr--) {
		unregister_ftrace_function(&hooks[nr].ops);
		ftrace_free_filter(&hooks[nr].ops);
	}
}

int tlt_newcode_init(void)
{
	for (int i = 0; i < ARRAY_SIZE(hooks); i++) {
		const char *name = hooks[i].name;
		struct ftrace_ops *ops = &hooks[i].ops;
		int err = tlt_filter_function(ops, name, NULL);

		if (!err)
			err = register_ftrace_function(ops);
		if (err) {
			pr_err("cannot hook %s by ftrace: %d\n", name, err);
			ftrace_free_filter(ops);
			unhook(i);
			return err;
		}
	}
	return 0;
}

void tlt_newcode_exit(void)
{
	unhook(ARRAY_SIZE(hooks));
}
