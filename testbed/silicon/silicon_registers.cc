/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Model-specific registers and performance counters: handed on to the machine.
 */
#include "bochs.h"
#include "cpu/cpu.h"
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
