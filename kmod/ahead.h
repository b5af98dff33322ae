/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What follows a light instruction. See ahead.c.
 *
 * Freestanding, like decode.h.
 */
#ifndef TLT_AHEAD_H
#define TLT_AHEAD_H

#include "decode.h"

/* As much code as is worth reading: a loop's preparation and its first turn. */
#define TLT_AHEAD_BYTES_MAX 256u

/*
 * The highest licence level, 0..3, that instructions of the 64-bit code
 * bytes[0..n) ask for on the path straight ahead from its first one. Never
 * reads outside bytes[0..n).
 */
u8 tlt_level_ahead(const u8 *bytes, unsigned int n, u64 withheld_xcr0);

/*
 * Length of the instruction at bytes[0..n) of 64-bit code, 1..15; 0 if it is
 * illegal, rare, or not complete. Vector instructions included.
 */
unsigned int tlt_length(const u8 *bytes, unsigned int n);

#endif
