/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel's FPU code calls first: see hooks.c.
 *
 * ftrace replaces the nop at a function's entry by a call of this. Its normal
 * call of a callback in C saves and loads all registers each time, and costs 35
 * instructions more; two of these functions run at every context switch, and
 * practically always with the full XCR0, which the switch has restored before.
 *
 * As a call of a function that has not begun yet: all registers that may hold
 * an argument are kept.
 */
#include <linux/linkage.h>
#include <asm/asm.h>
#include <asm/frame.h>
#include <asm/nospec-branch.h>
#include <asm/percpu.h>

SYM_FUNC_START(tlt_fpu_code_begins)
	ENDBR
	CALL_DEPTH_ACCOUNT
	/* The first member is `reduced`: trap.h. */
	cmpb $0, PER_CPU_VAR(tlt_cpu)
	jne 1f
	RET
1:
	FRAME_BEGIN
	push %rax
	push %rcx
	push %rdx
	push %rsi
	push %rdi
	push %r8
	push %r9
	push %r10
	push %r11
	call tlt_make_full_for_fpu_code
	pop %r11
	pop %r10
	pop %r9
	pop %r8
	pop %rdi
	pop %rsi
	pop %rdx
	pop %rcx
	pop %rax
	FRAME_END
	RET
SYM_FUNC_END(tlt_fpu_code_begins)
