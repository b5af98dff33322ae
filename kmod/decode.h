/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The instruction at the fault: does it use components that the module
 * withholds, and how much power does it ask for? See decode.c.
 *
 * Freestanding: the module and its user-space test (crates/isa) compile the
 * same text.
 */
#ifndef TLT_DECODE_H
#define TLT_DECODE_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdbool.h>
#include <stdint.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
#endif

/* Components of XCR0 (SDM vol. 1, 13.1). */
#define TLT_XCR0_SSE (1ull << 1)
#define TLT_XCR0_AVX (1ull << 2)
#define TLT_XCR0_AVX512 (7ull << 5) /* opmask, ZMM_Hi256, Hi16_ZMM */
#define TLT_XCR0_AMX (3ull << 17)   /* TILECFG, TILEDATA */
#define TLT_XCR0_APX (1ull << 19)   /* r16..r31 */

/* The longest instruction (SDM vol. 2, 2.3.11). Give the decoder as many
 * bytes where they can be read. */
#define TLT_INSN_BYTES_MAX 15u

enum tlt_insn_kind {
	TLT_NOT_WITHHELD, /* the fault has another reason: pass it on */
	TLT_LIGHT,	  /* withheld; logic, moves, shuffles, integer adds */
	TLT_HEAVY,	  /* withheld; FP, integer multiplication, tiles */
	TLT_XSAVE,	  /* XSAVE, XSAVEOPT, XSAVEC, XSAVES */
	TLT_XRSTOR,	  /* XRSTOR, XRSTORS */
	TLT_XGETBV,
};

struct tlt_insn {
	u8 kind;	  /* enum tlt_insn_kind */
	u8 length;	  /* in bytes, 1..15; 0 = not withheld, not measured */
	u8 license_level; /* that it asks for, 0..3; see decode.c */
	u8 reserved;
	u16 width_bits; /* of its vectors: 128, 256, 512; 0 = it has none */
	u16 reserved2;
	u64 needs_xcr0; /* all components that it needs; 0 = none we know */
};

/* tlt_decode() < 0 */
#define TLT_TRUNCATED (-1) /* the instruction continues after the last byte */

/* Bytes of SIB and displacement after a ModRM, where addresses have 32 or 64
 * bits; sib: the byte after the ModRM (SDM vol. 2, tables 2-2 and 2-3). */
static inline unsigned int tlt_operand_bytes(u8 modrm, u8 sib)
{
	u8 mod = modrm >> 6, rm = modrm & 7;
	unsigned int n = 0;

	if (mod == 3)
		return 0;
	if (rm == 4) {
		n = 1;
		if (mod == 0 && (sib & 7) == 5)
			n += 4;
	} else if (mod == 0 && rm == 5) {
		n = 4;
	}
	if (mod == 1)
		n += 1;
	else if (mod == 2)
		n += 4;
	return n;
}

/*
 * Decodes the instruction at bytes[0..n). withheld_xcr0: the components that
 * XCR0 lacks. long_mode: 64-bit code segment; otherwise 32-bit code is assumed.
 *
 * Returns 0 with *out filled in, or TLT_TRUNCATED with *out zeroed. Never
 * reads outside bytes[0..n); n may be 0.
 *
 * The XSAVE family and XGETBV are reported whatever is withheld: they do not
 * fault on it, but they see it.
 */
int tlt_decode(const u8 *bytes, unsigned int n, u64 withheld_xcr0,
	       bool long_mode, struct tlt_insn *out);

#endif
