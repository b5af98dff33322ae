/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Model-specific registers and performance counters: handed on to the machine,
 * and what comes back by the counters' entry of the local APIC.
 */
#include "bochs.h"
#include "cpu/cpu.h"
#include "cpu/apic.h"
#include "silicon_hooks.h"
#include "silicon_machine.h"

bool silicon_read_msr(unsigned cpu, Bit32u index, Bit64u *value)
{
	uint64_t found;

	if (!silicon_rdmsr(silicon, cpu, index, &found))
		return false;
	*value = found;
	return true;
}

bool silicon_write_msr(unsigned cpu, Bit32u index, Bit64u value, bool *good)
{
	enum silicon_written written =
		silicon_wrmsr(silicon, cpu, index, value);

	*good = written == SILICON_WRITTEN_DONE;
	return written != SILICON_WRITTEN_UNKNOWN;
}

Bit64u silicon_read_counter(unsigned cpu, Bit32u index)
{
	return silicon_rdpmc(silicon, cpu, index);
}

bool silicon_interrupts(unsigned cpu, Bit32u wide, unsigned n)
{
	if (!silicon_warns(silicon, cpu, wide, n))
		return false;
	BX_CPU(cpu)->lapic->perfmon_overflow();
	return true;
}
