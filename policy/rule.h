/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Rules: tasks that the user has classified, by their control group or their name.
 *
 * Problem: hints, marks, traps and scores find wide code, but someone who runs a machine
 * often knows more: this service is wide throughout, that one only seems to be, and a
 * third one is to be left as it was before there was a lane.
 *
 * Idea: a task has at most one rule, which decides what evidence counts (task.h):
 *
 *   wide      it is in a wide section all the time, at the rule's level or that of its
 *             evidence, whichever is higher
 *   scalar    it is scalar whatever it does: evidence does not count
 *   alone     it is default whatever it does: it shares all CPUs by virtual time, as
 *             tasks without wide code do
 *
 * Evidence is kept while it does not count, so that a task is what it would be without
 * the rule as soon as the rule goes. Only its mix (mix.h) begins anew where evidence no
 * longer counts: else it would want wide CPUs for a while. A child inherits no rule: it
 * has its own, by its own group and name.
 *
 * Which rule: that of its control group or of the nearest one above it. Only a task of
 * no such group has the rule of its name, which can only be wide.
 *
 * Security: any user chooses the name of a task, prctl(PR_SET_NAME). So a name must not
 * gain more than a hint does, which every program may give: wide CPUs in place of scalar
 * ones. It must not keep wide code on scalar CPUs, where it slows others; nor replace the
 * rule of a group, which only who may write to that group can choose.
 *
 * Limits: a scalar task fills time of a wide CPU that has nothing else to do, as every
 * scalar task does, and leaves as soon as wide work comes. Wide instructions of tasks
 * with the rules scalar and alone slow the CPUs where they are.
 */
#ifndef TL_POLICY_RULE_H
#define TL_POLICY_RULE_H

#include "types.h"

/* 1..TL_LEVEL_MAX: wide at that level. */
enum tl_rule {
	TL_RULE_NONE = 0,
	TL_RULE_SCALAR = TL_LEVEL_MAX + 1,
	TL_RULE_ALONE,
	TL_NR_RULES,
};

tl_inline u32 tl_rule_is_wide(u32 rule)
{
	return rule - 1 < TL_LEVEL_MAX;
}

/* Whether it makes evidence count for nothing. */
tl_inline u32 tl_rule_ignores(u32 rule)
{
	return rule > TL_LEVEL_MAX;
}

/* The level of a task whose evidence is of this one. */
tl_inline u8 tl_rule_level(u32 rule, u8 evidence)
{
	if (tl_rule_ignores(rule))
		return 0;
	return rule > evidence ? (u8)rule : evidence;
}

/* The rule of a task with this one by its control groups, and this one by its name. */
tl_inline u32 tl_rule_choose(u32 by_group, u32 by_name)
{
	if (by_group)
		return by_group;
	return tl_rule_is_wide(by_name) ? by_name : (u32)TL_RULE_NONE;
}

#endif
