// SPDX-License-Identifier: GPL-2.0
/*
 * Every XSAVE*, XRSTOR* of the kernel, before anything is withheld.
 *
 * Problem: the invariant of arm.c rests on a list of functions (hooks.c). A
 * kernel that saves registers anywhere else, because it is newer, because
 * another compiler has inlined one of them, or because a module brings code of
 * its own, would save them with a reduced XCR0; and the module would not notice,
 * for it sees only what it hooks.
 *
 * Idea: look for the instructions in the text of the running kernel. Each has to
 * be in a function that is hooked. Any other is named in the log, and the module
 * does not load. A module that is loaded later with such an instruction ends all
 * withholding.
 *
 * Their bytes also occur in the middle of other instructions. So a function with
 * such bytes is decoded from its start, by the kernel's own decoder, to see
 * whether an instruction begins there. A function that cannot be decoded so far
 * counts as having one.
 *
 *   0F AE /4 /5 /6    XSAVE, XRSTOR, XSAVEOPT     (memory operand only)
 *   0F C7 /3 /4 /5    XRSTORS, XSAVEC, XSAVES
 *
 * With one of the prefixes 66, F2, F3 they are others (CLWB, PTWRITE).
 *
 * Limits: modules that were loaded before are not looked at; none of the
 * kernel's own has such an instruction. Code that is patched in or made later
 * (BPF) has none either.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kallsyms.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <asm/insn.h>

#include "trap.h"

/* More than that is no kernel that we could know anything of. */
#define SITES_SHOWN 16

static int no_decoder(struct insn *insn, const void *at, int bytes,
		      enum insn_mode mode)
{
	return -ENOENT;
}

DEFINE_STATIC_CALL(insn_decode_call, no_decoder);

static bool is_candidate(const u8 *at)
{
	u8 operation = at[2] >> 3 & 7;

	if (at[0] != 0x0f || at[2] >= 0xc0)
		return false;
	return at[1] == 0xae ?
		       operation >= 4 && operation <= 6 :
		       at[1] == 0xc7 && operation >= 3 && operation <= 5;
}

/* "function+0x1f/0x80 [module]" of sprint_symbol(); false if it is none. */
static bool split_symbol(char *symbol, unsigned long *offset)
{
	char *plus = strchr(symbol, '+');

	if (!plus || sscanf(plus, "+%lx", offset) != 1)
		return false;
	*plus = 0;
	return true;
}

/* Whether the opcode of this instruction, at `next`, is the one at `at`. */
static bool has_opcode_at(const struct insn *insn, const u8 *next, const u8 *at)
{
	for (int i = 0; i < insn->prefixes.nbytes; i++)
		if (next[i] == 0x66 || next[i] == 0xf2 || next[i] == 0xf3)
			return false;
	return next + insn->prefixes.nbytes + insn->rex_prefix.nbytes == at;
}

/* Whether there is such an instruction, in a function that begins `offset` before. */
static bool is_instruction(const u8 *at, unsigned long offset)
{
	const u8 *next = at - offset;
	struct insn insn;

	while (next <= at) {
		if (static_call(insn_decode_call)(&insn, next, MAX_INSN_SIZE,
						  INSN_MODE_KERN))
			return true;
		if (next + insn.length > at)
			return has_opcode_at(&insn, next, at);
		next += insn.length;
	}
	return true;
}

/* Names each place in [from, to) that is not known; returns how many there are. */
static unsigned int look_through(const u8 *from, const u8 *to)
{
	char symbol[KSYM_SYMBOL_LEN];
	unsigned int nr = 0;
	unsigned long offset;

	for (const u8 *at = from; at + 3 <= to; at++) {
		if (!((unsigned long)at & 0xfffff))
			cond_resched();
		if (*at != 0x0f || !is_candidate(at))
			continue;
		sprint_symbol(symbol, (unsigned long)at);
		if (!split_symbol(symbol, &offset) ||
		    tlt_is_hooked((unsigned long)at - offset, symbol,
				  strcspn(symbol, ".")) ||
		    !is_instruction(at, offset))
			continue;
		if (nr++ < SITES_SHOWN)
			pr_err("%s+%#lx saves or restores registers, and is "
			       "not hooked\n",
			       symbol, offset);
	}
	return nr;
}

/*
 * With the hooks in place. Refuses a kernel that saves or restores registers
 * where we would not know of it.
 */
int tlt_xstate_check(void)
{
	unsigned long from = tlt_address_of("_stext");
	unsigned long to = tlt_address_of("_etext");
	unsigned long decoder = tlt_address_of("insn_decode");
	unsigned int nr;

	if (!from || to <= from || !decoder) {
		pr_err("cannot find the kernel's text (%d) or its decoder "
		       "(%d); it cannot be checked\n",
		       !!from && to > from, !!decoder);
		return -ENOENT;
	}
	static_call_update(insn_decode_call,
			   (typeof(&no_decoder))(void *)decoder);
	nr = look_through((const u8 *)from, (const u8 *)to);
	if (!nr)
		return 0;
	pr_err("this kernel saves or restores registers in %u places that are "
	       "not hooked; the module cannot follow it\n",
	       nr);
	return -EOPNOTSUPP;
}

/* The same of a module that is being loaded; its text is in place. */
bool tlt_xstate_in_module(const struct module *module)
{
	const struct module_memory *text = &module->mem[MOD_TEXT];
	const u8 *base = text->base;

	return look_through(base, base + text->size) > 0;
}
