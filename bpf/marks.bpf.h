/* SPDX-License-Identifier: GPL-2.0 */
/* A call of a marked function as its registers show it: whether it counts is
 * decided in policy/mark.h. */
#ifndef TL_MARKS_BPF_H
#define TL_MARKS_BPF_H

#include "../policy/mark.h"

/* An integer argument at a function's entry, 1..TL_MARK_ARGS. The kernel lets no
 * program index its registers. */
static __always_inline u64 argument(const struct pt_regs *regs, u32 arg)
{
	switch (arg) {
	case 1:
		return regs->di;
	case 2:
		return regs->si;
	case 3:
		return regs->dx;
	case 4:
		return regs->cx;
	case 5:
		return regs->r8;
	default:
		return regs->r9;
	}
}

static __always_inline bool call_counts(const struct pt_regs *regs, u64 rule)
{
	u32 arg = tl_mark_arg(rule);

	return !arg || tl_mark_counts(rule, argument(regs, arg));
}

#endif
