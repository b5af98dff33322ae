/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What Bochs calls of the dim-silicon machine. The patches beside this file put
 * the calls in; the machine itself is crates/silicon, linked into the emulator.
 *
 * config.h of Bochs comes first, for its types.
 */
#ifndef SILICON_HOOKS_H
#define SILICON_HOOKS_H

class bxInstruction_c;

/* Runs all CPUs, each at its own clock, until the emulator is to end. */
void silicon_loop(void);

/* What the first n instructions of a trace are: the sum of their classes. */
Bit32u silicon_classify(const bxInstruction_c *first, unsigned n);

/*
 * Whether a CPU is interrupted now, before it executes the first n instructions
 * of a trace that has wide ones.
 */
bool silicon_interrupts(unsigned cpu, Bit32u wide, unsigned n);

/* The CPU that runs waits so many cycles. */
void silicon_wait(Bit32u cycles);

/*
 * Registers of the machine; false if it has no such one. A value that is not
 * good raises #GP.
 */
bool silicon_read_msr(unsigned cpu, Bit32u index, Bit64u *value);
bool silicon_write_msr(unsigned cpu, Bit32u index, Bit64u value, bool *good);
Bit64u silicon_read_counter(unsigned cpu, Bit32u index);

/* The guest marks this moment in the machine's log. */
void silicon_mark_now(Bit32u value);

/* Where random numbers begin. */
unsigned silicon_random_seed(void);

#endif
