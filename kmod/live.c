// SPDX-License-Identifier: GPL-2.0
/*
 * Withheld state that is alive.
 *
 * Problem: when XCR0 is reduced the task may have values in the registers that
 * go away. XGETBV(1) shows which components are not in their initial state. In
 * a dynamic program opmask and Hi16_ZMM practically always are: glibc's string
 * functions use them and nothing resets them.
 *
 * Idea: components that code without them cannot change are *parked*: saved to
 * a buffer of the CPU, set to their initial state, and loaded again before
 * anything else may look, which is when XCR0 becomes full (arm.c). The rest is
 * *live*: the task keeps the full XCR0 until it is clean.
 *
 *   opmask, Hi16_ZMM   parked: only EVEX and VEX.k code reaches them
 *   AVX, ZMM_Hi256     parked if AVX itself is withheld: SSE code leaves the
 *                      upper parts alone. ZMM_Hi256 alone is live: VEX code
 *                      must zero it and, with XCR0 reduced, does not
 *   TILEDATA, TILECFG  live: a program with configured tiles is in AMX work
 *
 * Parked values never outlive the return to user mode of the task they belong
 * to: the switch makes XCR0 full, and so unparks, before the kernel saves.
 *
 * The buffer has the standard format. XSAVE writes XSTATE_BV for the requested
 * components and nothing else of the header, which stays zero from allocation.
 * XRSTOR of AVX also loads MXCSR, which is not ours: it is given the current
 * one.
 *
 * User code that saves and loads registers by itself is not looked after here.
 * Under the reduced XCR0 XSAVE and XSAVEOPT write neither the withheld components
 * nor their bits of XSTATE_BV: an image that had them before keeps its old values,
 * and XRSTOR with the full XCR0 loads those. XSAVEC clears the bits, and XRSTOR
 * then loads initial values. What is parked here is lost to such a program. So
 * XCR0 is never reduced where it may execute these instructions: those in files
 * are known, and have probes (sites.c); a process with other code is withheld
 * nothing (read.c). The dynamic linker's resolver of symbols is left out unless
 * AVX is withheld: it would lose only opmask and zmm16-31, which no call preserves.
 */
#include <linux/slab.h>
#include <linux/log2.h>
#if __has_include(<asm/cpuid/api.h>)
#include <asm/cpuid/api.h> /* 6.16; in asm/processor.h before */
#endif
#include <asm/fpu/types.h>
#include <asm/fpu/xcr.h>
#include <asm/processor.h>

#include "trap.h"

#define MXCSR_OFFSET 24	  /* in an XSAVE area: SDM vol. 1, 10.5.1 */
#define HEADER_OFFSET 512 /* XSTATE_BV is its first word: 13.4.2 */

static u64 parkable, live;

static __always_inline void xsave(void *area)
{
	asm volatile("xsave64 (%0)"
		     :
		     : "r"(area), "a"((u32)parkable), "d"((u32)(parkable >> 32))
		     : "memory");
}

static __always_inline void xrstor(void *area)
{
	if (parkable & XFEATURE_MASK_YMM)
		asm volatile("stmxcsr %0"
			     : "=m"(*(u32 *)(area + MXCSR_OFFSET)));
	asm volatile("xrstor64 (%0)"
		     :
		     : "r"(area), "a"((u32)parkable), "d"((u32)(parkable >> 32))
		     : "memory");
}

/*
 * Puts the current task's withheld state aside. Interrupts off, XCR0 full, the
 * task's registers loaded. TLT_LIVE: nothing was changed, and XCR0 must stay.
 */
enum tlt_liveness tlt_park(struct tlt_cpu *c)
{
	u64 in_use = xgetbv(XCR_XFEATURE_IN_USE_MASK) & tlt_xcr0_withheld;
	u64 *xstate_bv = c->park + HEADER_OFFSET;
	u64 saved;

	if (!in_use)
		return TLT_CLEAN;
	if (in_use & live)
		return TLT_LIVE;
	xsave(c->park);
	saved = *xstate_bv;
	if (!saved)
		return TLT_CLEAN;
	*xstate_bv = 0;
	xrstor(c->park); /* all of them to their initial state */
	*xstate_bv = saved;
	c->parked = true;
	c->counters.parked++;
	return TLT_CLEAN;
}

/* The reverse. Interrupts off, XCR0 full. */
void tlt_unpark(struct tlt_cpu *c)
{
	if (!c->parked)
		return;
	xrstor(c->park);
	c->parked = false;
}

void tlt_live_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
	{
		kfree(per_cpu(tlt_cpu, cpu).park);
		per_cpu(tlt_cpu, cpu).park = NULL;
	}
}

/* After tlt_arm_init(). */
int tlt_live_init(void)
{
	u32 eax, size_bytes, ecx, edx;
	int cpu;

	live = tlt_xcr0_withheld & XFEATURE_MASK_XTILE;
	if (!(tlt_xcr0_withheld & XFEATURE_MASK_YMM))
		live |= tlt_xcr0_withheld & XFEATURE_MASK_ZMM_Hi256;
	parkable = tlt_xcr0_withheld & ~live;
	/* CPUID.0DH.0:EBX: what XCR0 as it is now needs. XCR0 is full. */
	cpuid_count(0xd, 0, &eax, &size_bytes, &ecx, &edx);
	for_each_possible_cpu(cpu)
	{
		/* A power of two from kmalloc is aligned to itself. */
		void *park = kzalloc_node(roundup_pow_of_two(size_bytes),
					  GFP_KERNEL, cpu_to_node(cpu));

		if (!park) {
			tlt_live_exit();
			return -ENOMEM;
		}
		per_cpu(tlt_cpu, cpu).park = park;
	}
	return 0;
}
