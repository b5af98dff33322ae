// SPDX-License-Identifier: GPL-2.0
/*
 * What follows a light instruction.
 *
 * Problem: wide code hardly ever begins with its heavy instructions. It loads
 * and broadcasts first, which is light, and traps there. With a grace period for
 * that, the heavy rest of the section would not be seen (in Bochs, 0 of 100
 * sections were caught).
 *
 * Idea: decode what follows. From the trapped instruction straight ahead, past
 * calls and untaken branches and along forward jumps, to the first exit: a
 * return, a backward jump or a far one. If there is a heavy instruction on this
 * path, the light instruction is the beginning of a wide section. String
 * functions have no heavy instruction, and their paths are short.
 *
 *   vbroadcastsd zmm0, [..]    <- trapped
 *   vpxorq zmm1, zmm1, zmm1
 *   jmp 2f  ---------------+
 *   ...                    |
 *   2: vfmadd231pd zmm1 ..<+   level 2: a wide section
 *
 * For that the length of all instructions must be known, not only of those with
 * vectors. It follows from the opcode (SDM vol. 2, appendix A), by the masks
 * below, which have a bit for each opcode. A privileged or obsolete instruction
 * ends the path like an illegal one.
 *
 * Limits: heavy code after a loop or a backward jump, or in a called function,
 * is not seen here; it traps when the grace period is over.
 */
#include "ahead.h"

/* Bit i of word r: opcode 16 r + i has a ModRM byte. */
static const u16 modrm_1[16] = {
	0x0f0f, 0x0f0f, 0x0f0f, 0x0f0f, 0,	0,	0x0a08, 0,
	0xffff, 0,	0,	0,	0x00c3, 0xff0f, 0,	0xc0c0,
};

/* It is followed by one byte. */
static const u16 imm8_1[16] = {
	0x1010, 0x1010, 0x1010, 0x1010, 0,	0, 0x0c00, 0xffff,
	0x0009, 0,	0x0100, 0x00ff, 0x0043, 0, 0x08ff, 0,
};

/* By four, or two with the prefix 66. */
static const u16 imm32_1[16] = {
	0x2020, 0x2020, 0x2020, 0x2020, 0,	0, 0x0300, 0,
	0x0002, 0,	0x0200, 0xff00, 0x0080, 0, 0x0300, 0,
};

/* It does not exist in 64-bit code, is a prefix, or is measured elsewhere. */
static const u16 none_1[16] = {
	0xc0c0, 0xc0c0, 0xc0c0, 0xc0c0, 0xffff, 0,	0x00f7, 0,
	0x0004, 0x0400, 0,	0,	0x6030, 0x0070, 0x0400, 0x000d,
};

/* The same for 0f XX, but for immediates of four bytes: those of 0f 8X. */
static const u16 no_modrm_0f[16] = {
	0x4be0, 0, 0,	   0x00bf, 0,	   0, 0, 0x0080,
	0xffff, 0, 0x0707, 0,	   0xff00, 0, 0, 0,
};

static const u16 imm8_0f[16] = {
	0x8000, 0, 0, 0, 0, 0, 0, 0x000f, 0, 0, 0x1010, 0x0400, 0x0074, 0, 0, 0,
};

/* Illegal, privileged, or with a form of their own. */
static const u16 none_0f[16] = {
	0x1410, 0, 0x00ff, 0xfa40, 0, 0, 0, 0x0300, 0, 0, 0x04c0, 0, 0, 0, 0, 0,
};

static bool is_in(const u16 *mask, u8 opcode)
{
	return mask[opcode >> 4] >> (opcode & 15) & 1;
}

struct prefixes {
	unsigned int n; /* bytes */
	bool operand_16;
	bool address_32;
	bool rex_w;
};

/* A REX counts only as the last of them. */
static struct prefixes read_prefixes(const u8 *bytes)
{
	struct prefixes p = {0};

	for (; p.n < TLT_INSN_BYTES_MAX; p.n++) {
		u8 byte = bytes[p.n];

		if (byte == 0x66)
			p.operand_16 = true;
		else if (byte == 0x67)
			p.address_32 = true;
		else if ((byte & 0xf0) != 0x40 && (byte & 0xfe) != 0xf2 &&
			 byte != 0xf0 && (byte & 0xe7) != 0x26 &&
			 (byte & 0xfe) != 0x64)
			break;
		p.rex_w = (byte & 0xf8) == 0x48;
	}
	return p;
}

/* Bytes of ModRM, SIB and displacement. */
static unsigned int modrm_bytes(const u8 *bytes)
{
	return 1 + tlt_operand_bytes(bytes[0], bytes[1]);
}

/* An opcode of one byte and what follows it. */
static unsigned int measure_1(const u8 *bytes, const struct prefixes *p)
{
	u8 opcode = bytes[0], reg = bytes[1] >> 3 & 7;
	unsigned int imm = p->operand_16 && !p->rex_w ? 2 : 4, n = 1;

	if (is_in(none_1, opcode))
		return 0;
	if (is_in(modrm_1, opcode))
		n += modrm_bytes(bytes + 1);
	if (is_in(imm8_1, opcode))
		n += 1;
	/* near calls and jumps have four bytes whatever the prefix (AMD has
	 * two, so no program uses the combination) */
	if (is_in(imm32_1, opcode))
		n += (opcode & 0xfe) == 0xe8 ? 4 : imm;
	switch (opcode) {
	case 0xa0 ... 0xa3: /* an address in full */
		return n + (p->address_32 ? 4 : 8);
	case 0xb8 ... 0xbf:
		return p->rex_w ? n + 4 : n;
	case 0xc2:
	case 0xca:
		return n + 2;
	case 0xc8:
		return n + 3;
	case 0xf6:
		return reg < 2 ? n + 1 : n;
	case 0xf7:
		return reg < 2 ? n + imm : n;
	}
	return n;
}

/* An opcode after the byte 0f. */
static unsigned int measure_0f(const u8 *bytes)
{
	u8 opcode = bytes[0];
	unsigned int n = 1;

	if (opcode == 0x38)
		return 2 + modrm_bytes(bytes + 2);
	if (opcode == 0x3a)
		return 3 + modrm_bytes(bytes + 2);
	if (is_in(none_0f, opcode))
		return 0;
	if (!is_in(no_modrm_0f, opcode))
		n += modrm_bytes(bytes + 1);
	if (is_in(imm8_0f, opcode))
		n += 1;
	return (opcode & 0xf0) == 0x80 ? n + 4 : n;
}

/* Readable bytes that must follow the code, so that nothing has to check where
 * it ends: prefixes and the longest of what may follow them. */
#define PADDING (2 * TLT_INSN_BYTES_MAX)

static bool is_vector(const u8 *opcode)
{
	return opcode[0] == 0xc4 || opcode[0] == 0xc5 || opcode[0] == 0x62 ||
	       (opcode[0] == 0x8f && (opcode[1] & 0x1f) >= 8);
}

/* The length, of `left` bytes at most, and in *insn what a vector instruction
 * is. */
static unsigned int measure(const u8 *bytes, unsigned int left,
			    const struct prefixes *p, u64 withheld_xcr0,
			    struct tlt_insn *insn)
{
	const u8 *opcode = bytes + p->n;
	unsigned int n;

	if (left > TLT_INSN_BYTES_MAX)
		left = TLT_INSN_BYTES_MAX;
	if (is_vector(opcode))
		return tlt_decode(bytes, left, withheld_xcr0, true, insn) ?
			       0 :
			       insn->length;
	n = opcode[0] == 0x0f ? measure_0f(opcode + 1) : measure_1(opcode, p);
	if (!n)
		return 0;
	n += p->n + (opcode[0] == 0x0f);
	return n <= left ? n : 0;
}

static void pad(u8 *padded, const u8 *bytes, unsigned int n)
{
	unsigned int i;

	for (i = 0; i < n; i++)
		padded[i] = bytes[i];
	for (; i < n + PADDING; i++)
		padded[i] = 0;
}

unsigned int tlt_length(const u8 *bytes, unsigned int n)
{
	u8 padded[TLT_INSN_BYTES_MAX + PADDING];
	struct tlt_insn insn = {0};
	struct prefixes p;

	if (n > TLT_INSN_BYTES_MAX)
		n = TLT_INSN_BYTES_MAX;
	pad(padded, bytes, n);
	p = read_prefixes(padded);
	return measure(padded, n, &p, ~0ull, &insn);
}

/* Where the path continues after an instruction that ends at `end`; 0: it cannot
 * be followed. */
static unsigned int follow(const u8 *opcode, unsigned int end)
{
	switch (opcode[0]) {
	case 0xc2: /* returns */
	case 0xc3:
	case 0xca:
	case 0xcb:
	case 0xcf:
	case 0xcc: /* INT3 */
	case 0xf4: /* HLT */
		return 0;
	case 0xeb: /* jumps; only forward, so that the path ends */
		return opcode[1] < 0x80 ? end + opcode[1] : 0;
	case 0xe9:
		return opcode[2] | opcode[3] | opcode[4] ? 0 : end + opcode[1];
	case 0xff: /* an indirect jump */
		return (opcode[1] & 0x30) == 0x20 ? 0 : end;
	case 0x0f: /* UD2, and its likes */
		return opcode[1] == 0x0b || opcode[1] == 0xb9 ||
				       opcode[1] == 0xff ?
			       0 :
			       end;
	}
	return end;
}

u8 tlt_level_ahead(const u8 *bytes, unsigned int n, u64 withheld_xcr0)
{
	u8 padded[TLT_AHEAD_BYTES_MAX + PADDING];
	unsigned int at = 0, length;
	u8 level = 0;

	if (n > TLT_AHEAD_BYTES_MAX)
		n = TLT_AHEAD_BYTES_MAX;
	pad(padded, bytes, n);
	do {
		struct prefixes p = read_prefixes(padded + at);
		struct tlt_insn insn = {0};

		length = measure(padded + at, n - at, &p, withheld_xcr0, &insn);
		if (insn.license_level > level)
			level = insn.license_level;
		if (!length)
			break;
		at = follow(padded + at + p.n, at + length);
	} while (at && at < n);
	return level;
}
