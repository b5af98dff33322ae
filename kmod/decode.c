// SPDX-License-Identifier: GPL-2.0
/*
 * Decodes one instruction, as far as the trap needs to know it.
 *
 * Problem: with components of XCR0 withheld, whatever uses them raises #UD,
 * and so does every real illegal opcode. The trap has to distinguish these two,
 * and among the withheld instructions those that lower the frequency from those
 * that do not: glibc's string functions are full of the latter.
 *
 * Idea: components follow from the encoding alone. Weight follows from the
 * opcode, by the table that is generated from data/isa/classes.toml
 * (isa_table.h), and the licence level from weight and vector length:
 *
 *              128 bits   256 bits   512 bits
 *   light          0          0          1        (THESIS table 2.1, SYSTOR 2.1)
 *   heavy          0          1          2
 *   tiles                                         3
 *
 * A scalar instruction counts as 128 bits, whatever its length field says.
 *
 *   VEX    C5 RvvvvLpp                        opcode ModRM ...  map 1
 *          C4 RXBmmmmm WvvvvLpp               opcode ModRM ...
 *   EVEX   62 RXBR0mmm Wvvvv1pp zLLbVaaa      opcode ModRM ...
 *   XOP    8F RXBmmmmm WvvvvLpp               opcode ModRM ...  map >= 8
 *
 * What the table does not know (a newer instruction, or none at all) counts as
 * light and as in need of everything: the module lets it restart with the full
 * XCR0, and then the CPU itself decides. So an illegal opcode after one of
 * these prefixes costs a second fault, not a wrong answer, and a new
 * instruction works, although its weight is not seen.
 *
 * Limits: 16-bit code segments are taken for 32-bit ones. EVEX map 4 (APX) is
 * recognised, but its length is not computed.
 */
#include "decode.h"
#include "isa_table.h"

enum prefix {
	PREFIX_66 = 1u << 0,
	PREFIX_F2 = 1u << 1,
	PREFIX_F3 = 1u << 2,
	PREFIX_LOCK = 1u << 3,
	PREFIX_67 = 1u << 4,
	PREFIX_REX = 1u << 5,
};

/* Any of these before VEX, EVEX or XOP is illegal (SDM vol. 2, 2.3.2). */
#define PREFIX_NOT_BEFORE_VEX \
	(PREFIX_66 | PREFIX_F2 | PREFIX_F3 | PREFIX_LOCK | PREFIX_REX)

/* Any of these makes another instruction, or none, of XSAVE and XGETBV. */
#define PREFIX_NOT_XSAVE (PREFIX_66 | PREFIX_F2 | PREFIX_F3 | PREFIX_LOCK)

/* A value of map for instructions that only EVEX has: not measured here. */
#define MAP_APX 4

struct cursor {
	const u8 *bytes;
	unsigned int n; /* bytes that may be read */
	unsigned int at;
	bool truncated; /* a byte after the last one was needed */
	bool long_mode;
	u32 prefixes; /* bits of enum prefix */
};

/* What a VEX, EVEX or XOP prefix and the opcode say. */
struct vector_op {
	u8 encoding; /* enum tlt_encoding */
	u8 map;
	u8 pp; /* 0 none, 1 66, 2 F3, 3 F2 */
	u8 opcode;
	u8 length;	/* L'L: 0 128, 1 256, 2 512 bits, 3 reserved */
	bool broadcast; /* EVEX.b: with registers, rounding instead of L'L */
	u8 modrm;
};

/* The next byte. After the last one: 0, and `truncated` is set. */
static u8 peek(struct cursor *c)
{
	if (c->at < c->n)
		return c->bytes[c->at];
	c->truncated = true;
	return 0;
}

static u8 next(struct cursor *c)
{
	u8 byte = peek(c);

	c->at++;
	return byte;
}

/* enum prefix of a legacy prefix or REX; *other for prefixes that have no effect
 * here. */
static u32 prefix_of(u8 byte, bool long_mode, bool *other)
{
	*other = false;
	switch (byte) {
	case 0x66:
		return PREFIX_66;
	case 0x67:
		return PREFIX_67;
	case 0xf2:
		return PREFIX_F2;
	case 0xf3:
		return PREFIX_F3;
	case 0xf0:
		return PREFIX_LOCK;
	case 0x26:
	case 0x2e:
	case 0x36:
	case 0x3e:
	case 0x64:
	case 0x65:
		*other = true; /* segments */
		return 0;
	}
	return long_mode && (byte & 0xf0) == 0x40 ? PREFIX_REX : 0;
}

/* Moves to the first byte after the prefixes. A REX counts only as the last of
 * them. */
static void skip_prefixes(struct cursor *c)
{
	while (c->at < TLT_INSN_BYTES_MAX) {
		bool other;
		u32 prefix = prefix_of(peek(c), c->long_mode, &other);

		if (c->truncated || (!prefix && !other))
			return;
		c->prefixes &= ~(u32)PREFIX_REX;
		c->prefixes |= prefix;
		c->at++;
	}
}

/* Moves past ModRM, SIB and displacement; returns the ModRM. */
static u8 skip_modrm(struct cursor *c)
{
	u8 modrm = next(c), mod = modrm >> 6, rm = modrm & 7;
	bool wide_address = c->long_mode || !(c->prefixes & PREFIX_67);

	if (mod == 3)
		return modrm;
	if (!wide_address) {
		if (mod == 2 || (mod == 0 && rm == 6))
			c->at += 2;
		else if (mod == 1)
			c->at += 1;
		return modrm;
	}
	c->at += tlt_operand_bytes(modrm, rm == 4 ? peek(c) : 0);
	return modrm;
}

/* Bytes of immediate operand; the same for VEX and EVEX. */
static unsigned int immediate_bytes(const struct vector_op *op)
{
	switch (op->map) {
	case 1:
		return (op->opcode >= 0x70 && op->opcode <= 0x73) ||
		       op->opcode == 0xc2 ||
		       (op->opcode >= 0xc4 && op->opcode <= 0xc6);
	case 3:
	case 8:
		return 1;
	case 7:
	case 10:
		return 4;
	}
	return 0;
}

static bool has_modrm(const struct vector_op *op)
{
	/* VZEROUPPER, VZEROALL */
	return op->encoding != TLT_ENC_VEX || op->map != 1 ||
	       op->opcode != 0x77;
}

/* Reads prefix and opcode; false if these bytes are another instruction. */
static bool read_vector_op(struct cursor *c, struct vector_op *op)
{
	u8 first = next(c), p0, last;

	if (first != 0xc4 && first != 0xc5 && first != 0x62 && first != 0x8f)
		return false;
	p0 = peek(c);
	/* Outside of long mode C4 and C5 are LES and LDS, 62 is BOUND, unless
	 * what would be their ModRM names a register. 8F is POP below map 8. */
	if (first == 0x8f ? (p0 & 0x1f) < 8 : !c->long_mode && p0 < 0xc0)
		return false;
	op->encoding = first == 0x62 ? TLT_ENC_EVEX :
		       first == 0x8f ? TLT_ENC_XOP :
				       TLT_ENC_VEX;
	c->at++;
	op->map = first == 0xc5 ? 1 : first == 0x62 ? p0 & 7 : p0 & 0x1f;
	last = first == 0xc5 ? p0 : next(c);
	op->pp = last & 3;
	op->length = last >> 2 & 1;
	op->broadcast = false;
	if (first == 0x62) {
		u8 p2 = next(c);

		op->length = p2 >> 5 & 3;
		op->broadcast = p2 & 0x10;
	}
	op->opcode = next(c);
	return true;
}

static u8 class_of(const struct vector_op *op)
{
	u8 class = tlt_isa_class(op->encoding, op->map, op->pp, op->opcode);
	u8 vex;

	if (class != TLT_CLASS_UNKNOWN || op->encoding != TLT_ENC_EVEX)
		return class;
	/* APX gives what has no vectors a twin in EVEX, at the same place, for
	 * the sake of r16..r31. */
	vex = tlt_isa_class(TLT_ENC_VEX, op->map, op->pp, op->opcode);
	return vex == TLT_CLASS_GENERAL || vex == TLT_CLASS_OPMASK ||
			       vex == TLT_CLASS_TILE ?
		       vex :
		       TLT_CLASS_UNKNOWN;
}

static u64 needs(const struct vector_op *op, u8 class)
{
	u64 vector = TLT_XCR0_SSE | TLT_XCR0_AVX;

	if (op->encoding == TLT_ENC_EVEX && op->map == MAP_APX)
		return TLT_XCR0_APX;
	switch (class) {
	case TLT_CLASS_GENERAL:
		return op->encoding == TLT_ENC_EVEX ? TLT_XCR0_APX : 0;
	case TLT_CLASS_OPMASK:
		return vector | TLT_XCR0_AVX512;
	case TLT_CLASS_TILE:
		return TLT_XCR0_AMX;
	case TLT_CLASS_UNKNOWN:
		return ~0ull;
	}
	return op->encoding == TLT_ENC_EVEX ? vector | TLT_XCR0_AVX512 : vector;
}

static u16 width_bits(const struct vector_op *op, u8 class)
{
	static const u16 of_length[] = {128, 256, 512, 512};

	switch (class) {
	case TLT_CLASS_SCALAR:
		return 128;
	case TLT_CLASS_LIGHT:
	case TLT_CLASS_HEAVY:
	case TLT_CLASS_UNKNOWN:
		/* With rounding in its place the length is 512 bits. */
		if (op->broadcast && op->modrm >= 0xc0)
			return 512;
		return of_length[op->length];
	}
	return 0;
}

static u8 license_level(u8 class, u16 width_bits)
{
	switch (class) {
	case TLT_CLASS_TILE:
		return 3;
	case TLT_CLASS_HEAVY:
		return width_bits / 256;
	case TLT_CLASS_LIGHT:
	case TLT_CLASS_UNKNOWN:
		return width_bits / 512;
	}
	return 0;
}

/* Moves past the instruction; false if its form is not known. */
static bool measure(struct cursor *c, struct vector_op *op)
{
	if (op->encoding == TLT_ENC_XOP ? op->map > 10 :
					  op->map == 0 || op->map > 7)
		return false;
	if (op->map == MAP_APX)
		return false;
	if (has_modrm(op))
		op->modrm = skip_modrm(c);
	c->at += immediate_bytes(op);
	return true;
}

static void decode_vector(struct cursor *c, u64 withheld_xcr0,
			  struct tlt_insn *out)
{
	struct vector_op op = {0};
	u8 class;

	if (c->prefixes & PREFIX_NOT_BEFORE_VEX || !read_vector_op(c, &op))
		return;
	class = class_of(&op);
	if (measure(c, &op) && class != TLT_CLASS_UNKNOWN &&
	    c->at <= TLT_INSN_BYTES_MAX)
		out->length = (u8)c->at;
	if (c->at > TLT_INSN_BYTES_MAX ||
	    (class == TLT_CLASS_TILE && !c->long_mode))
		return;
	out->needs_xcr0 = needs(&op, class);
	out->width_bits = width_bits(&op, class);
	if (!(out->needs_xcr0 & withheld_xcr0))
		return;
	out->kind = class == TLT_CLASS_HEAVY || class == TLT_CLASS_TILE ?
			    TLT_HEAVY :
			    TLT_LIGHT;
	out->license_level = license_level(class, out->width_bits);
}

/* 0F AE /4../6, 0F C7 /3../5, 0F 01 D0: instructions that move components, or
 * report them, and do not fault (SDM vol. 2, XSAVE, XRSTOR, XGETBV). */
static void decode_0f(struct cursor *c, struct tlt_insn *out)
{
	static const u8 kind_ae[8] = {
		[4] = TLT_XSAVE, [5] = TLT_XRSTOR, [6] = TLT_XSAVE};
	static const u8 kind_c7[8] = {
		[3] = TLT_XRSTOR, [4] = TLT_XSAVE, [5] = TLT_XSAVE};
	u8 kind = TLT_NOT_WITHHELD, opcode, modrm;

	c->at++;
	opcode = next(c);
	if (opcode != 0xae && opcode != 0xc7 && opcode != 0x01)
		return;
	modrm = skip_modrm(c);
	if (opcode == 0x01)
		kind = modrm == 0xd0 ? TLT_XGETBV : TLT_NOT_WITHHELD;
	else if (modrm < 0xc0)
		kind = (opcode == 0xae ? kind_ae : kind_c7)[modrm >> 3 & 7];
	if (kind == TLT_NOT_WITHHELD || c->prefixes & PREFIX_NOT_XSAVE ||
	    c->at > TLT_INSN_BYTES_MAX)
		return;
	out->kind = kind;
	out->length = (u8)c->at;
}

int tlt_decode(const u8 *bytes, unsigned int n, u64 withheld_xcr0,
	       bool long_mode, struct tlt_insn *out)
{
	static const struct tlt_insn nothing;
	struct cursor c = {.bytes = bytes, .n = n, .long_mode = long_mode};

	*out = nothing;
	if (c.n > TLT_INSN_BYTES_MAX)
		c.n = TLT_INSN_BYTES_MAX;
	skip_prefixes(&c);
	if (c.at == TLT_INSN_BYTES_MAX)
		return 0; /* nothing but prefixes: #GP */
	if (peek(&c) == 0x0f)
		decode_0f(&c, out);
	else
		decode_vector(&c, withheld_xcr0, out);
	/* What is longer than any instruction is not cut off by n. */
	if ((c.truncated || c.at > c.n) && n < TLT_INSN_BYTES_MAX) {
		*out = nothing;
		return TLT_TRUNCATED;
	}
	return 0;
}
