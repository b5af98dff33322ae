/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Classes of instructions: asked for once by opcode and vector length when the
 * machine starts, added up once for each trace when it is decoded.
 */
#include "bochs.h"
#include "cpu/cpu.h"
#include "cpu/decoder/ia_opcodes.h"
#include "silicon_hooks.h"
#include "silicon_machine.h"

/* BX_NO_VL, BX_VL128, BX_VL256, BX_VL512 are 0, 1, 2 and 4. */
#define LENGTHS 5

static Bit32u classes[BX_IA_LAST][LENGTHS];

void silicon_prepare_classes(void)
{
	static const struct {
		unsigned vl, bits;
	} lengths[] = {{BX_NO_VL, 0},
		       {BX_VL128, 128},
		       {BX_VL256, 256},
		       {BX_VL512, 512}};

	for (unsigned op = 0; op < BX_IA_LAST; op++) {
		const char *name = get_intel_disasm_opcode_name(op);

		/* Wide instructions are v..., tiles t..., ldtilecfg, sttilecfg. */
		if (!name || !strchr("vtls", name[0]))
			continue;
		for (auto length : lengths)
			classes[op][length.vl] =
				silicon_class(silicon, name, length.bits);
	}
}

Bit32u silicon_classify(const bxInstruction_c *first, unsigned n)
{
	Bit32u sum = 0;

	for (const bxInstruction_c *i = first; i < first + n; i++) {
		unsigned op = i->getIaOpcode();
		unsigned vl = i->getVL();

		if (op < BX_IA_LAST && vl < LENGTHS)
			sum += classes[op][vl];
	}
	return sum;
}
