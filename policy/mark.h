/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Marks: which calls of a marked function count.
 *
 * Problem: a function may be wide code in some of its calls only: a routine for
 * vectors takes a scalar path for short ones. Or a call is so short that the move to
 * a wide CPU and back costs more than the lower clock would.
 *
 * Idea: one integer argument says which calls are worth it, usually a length. A
 * mark's rule names the argument and its least value; a call below it is ignored,
 * and so is its return. The rule is one word, which the kernel keeps with the probe:
 *
 *   63          32 31    16 15    8 7     0
 *   +-------------+--------+-------+-------+
 *   |    least    | number |  arg  | level |
 *   +-------------+--------+-------+-------+
 *
 *   number  the adapter's own
 *   arg     1..TL_MARK_ARGS, the integer arguments of the System V convention
 *           (rdi, rsi, rdx, rcx, r8, r9); 0 = every call counts
 *   least   compared with the lower half of the register, without a sign: where
 *           the argument is an int, the convention leaves the upper half undefined.
 *           A negative int counts; of a long the lower half alone is looked at.
 *
 * Returns: a kernel with uprobe sessions (6.13) does not report the return of an
 * ignored call. On others the task remembers its calls, struct tl_calls:
 *
 *   call f(4096)     ignored ...0   depth 1   counts
 *     call f(5)      ignored ..01   depth 2
 *     return         ignored ...0   depth 1
 *   return           ignored ...0   depth 0   counts
 *
 * The kernel reports the returns of no more than TL_CALLS_MAX nested calls of a
 * task, and cannot distinguish the calls beyond that. They are ignored: a call
 * without its return would leave the task wide.
 *
 * Limits: what an ignored call executes is not checked. The calls of OpenSSL's
 * EVP_CipherUpdate() for the 5 bytes of a TLS record's header look harmless, but the
 * first one of a record makes the key of Poly1305 from a block of ChaCha20, in 512-bit
 * code: ignoring them had the scalar CPUs at level 1 for 77 % of the time instead of
 * 1 % (dim silicon, n = 1). A call that longjmp() leaves has no return: the task stays
 * wide, or remembers one call too many, until a timeout of task.h.
 */
#ifndef TL_POLICY_MARK_H
#define TL_POLICY_MARK_H

#include "types.h"

#define TL_MARK_ARGS 6u

/* MAX_URETPROBE_DEPTH of the kernel. */
#define TL_CALLS_MAX 64u

tl_inline u64 tl_mark_rule(u32 level, u32 arg, u32 least, u32 number)
{
	return (u64)least << 32 | (number & 65535) << 16 | (arg & 255) << 8 |
	       (level & 255);
}

tl_inline u32 tl_mark_level(u64 rule)
{
	return rule & 255;
}

tl_inline u32 tl_mark_number(u64 rule)
{
	return rule >> 16 & 65535;
}

/* The argument that decides; 0 if every call counts. */
tl_inline u32 tl_mark_arg(u64 rule)
{
	return rule >> 8 & 255;
}

/* Whether a call counts whose argument has this value. */
tl_inline u32 tl_mark_counts(u64 rule, u64 value)
{
	return !tl_mark_arg(rule) || (u32)value >= (u32)(rule >> 32);
}

/* The marked functions that a task is inside of, the innermost in bit 0. */
struct tl_calls {
	u64 ignored; /* bit set: the call does not count */
	u32 depth;
};

/* A call; whether it is to be reported. */
tl_inline u32 tl_calls_enter(struct tl_calls *calls, u32 counts)
{
	if (calls->depth >= TL_CALLS_MAX)
		return 0;
	calls->depth++;
	calls->ignored = calls->ignored << 1 | !counts;
	return counts;
}

/* The return of the innermost call; whether it is to be reported. A call from
 * before its function was marked has not been seen. */
tl_inline u32 tl_calls_return(struct tl_calls *calls)
{
	u32 counts = !(calls->ignored & 1);

	if (!calls->depth)
		return 1;
	calls->depth--;
	calls->ignored >>= 1;
	return counts;
}

#endif
