/* SPDX-License-Identifier: GPL-2.0 */
/* A call of a marked function as its registers show it: whether it counts is
 * decided in policy/mark.h. */
#ifndef TL_MARKS_BPF_H
#define TL_MARKS_BPF_H

#include "../policy/mark.h"

/* An integer argument at a function's entry, 1..TL_MARK_ARGS. The kernel lets no
 * program index its registers, and older ones (6.18) refuse a load at an address
 * that was computed: the empty statements keep the compiler from making one load of six. */
static __always_inline u64 argument(const struct pt_regs *regs, u32 arg)
{
	u64 value;

#define TL_ARGUMENT(number, name)               \
	case number:                            \
		value = regs->name;             \
		asm volatile("" : "+r"(value)); \
		return value
	switch (arg) {
		TL_ARGUMENT(1, di);
		TL_ARGUMENT(2, si);
		TL_ARGUMENT(3, dx);
		TL_ARGUMENT(4, cx);
		TL_ARGUMENT(5, r8);
	default:
		return regs->r9;
	}
#undef TL_ARGUMENT
}

static __always_inline bool call_counts(const struct pt_regs *regs, u64 rule)
{
	u32 arg = tl_mark_arg(rule);

	return !arg || tl_mark_counts(rule, argument(regs, arg));
}

#endif
