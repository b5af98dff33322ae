/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rules: which rule of the user a task has (policy/rule.h), by its control group and its
 * name.
 *
 * The loader keeps the rules in two tables: of control groups by the kernel's number of
 * the group, which no later group gets; and of names. It finds the groups of units, and
 * looks again when a group was made (tl_group_made). Here a task's rule is looked up, in
 * the task's own callbacks: where it is queued, where it starts and at ticks. So what the
 * policy knows of a task has one writer, and a running task follows a new rule within a
 * tick. Not in the groups' own storage: where that is busy, the kernel says that there is
 * none, and a task would be without its rule until it moves.
 *
 * A look costs a walk to the root of the control groups. It is spared while the rules
 * (rules_generation) and the set of groups that the task is in (css_set, which the kernel
 * replaces when it moves) are as they were at the last look. A change of its name is
 * reported by the kernel. While there have never been rules, all of this is one comparison.
 *
 * Limits: the groups are those of the unified hierarchy. A kernel thread has no rule, nor
 * has the loader, which must be able to act on the busiest machine. Only the upper
 * TL_RULE_DEPTH levels of groups can have rules; tasks below have those of the groups
 * above them, however deep a user makes groups. A task that has moved twice between two
 * looks, and whose last set of groups is where the first one was in memory, keeps its rule
 * until the next look. One that another thread renames while the rules change keeps that
 * of its old name until either happens again.
 */
#ifndef TL_RULES_BPF_H
#define TL_RULES_BPF_H

#include "state.bpf.h"

/* Levels of groups that can have rules, from the root. */
#define TL_RULE_DEPTH 32

/* Of control groups of the unified hierarchy, by their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TL_RULE_GROUPS_MAX);
	__type(key, u64);
	__type(value, struct tl_rule_entry);
} group_rules SEC(".maps");

struct task_name {
	char text[16];
};

/* Of names, zeros after their end. Twice as many: new ones come before old ones go. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * TL_RULES_MAX);
	__type(key, struct task_name);
	__type(value, struct tl_rule_entry);
} name_rules SEC(".maps");

/* Changes with each change of the rules; 0: there have never been any. */
u32 rules_generation;
/* Control groups that were made since someone looks; wraps. */
u32 groups_made;
/* By number of the rule: its tasks, as tl_count_rules found them. */
u32 rule_tasks[TL_RULES_MAX];

/* A rule and its number in a word. */
static __always_inline u32 rule_word(const struct tl_rule_entry *entry)
{
	return entry ? entry->number << 8 | (entry->rule & 255) : 0;
}

/* What policy/rule.h makes of them, with the number of the one that it has chosen. */
static __always_inline u32 choose_word(u32 by_group, u32 by_name)
{
	u32 chosen = tl_rule_choose(by_group & 255, by_name & 255);

	if (!chosen)
		return 0;
	return chosen == (by_group & 255) ? by_group : by_name;
}

/* The rule by the task's control groups: the nearest one's that can have a rule, and has.
 * Not static: so the verifier looks at it once for a program. */
__noinline u32 tl_rule_by_group(struct task_struct *p __arg_trusted)
{
	struct css_set *css = p->cgroups;
	struct cgroup *own, *cgrp;
	struct tl_rule_entry *entry;
	s32 level, i;
	u32 word = 0;
	u64 number;

	if (!css)
		return 0;
	own = css->dfl_cgrp;
	if (!own)
		return 0;
	level = own->level;
	if (level >= TL_RULE_DEPTH)
		level = TL_RULE_DEPTH - 1;
	bpf_for(i, 0, TL_RULE_DEPTH) {
		if (i > level)
			break;
		cgrp = bpf_cgroup_ancestor(own, level - i);
		if (!cgrp)
			break;
		number = cgrp->kn->id;
		bpf_cgroup_release(cgrp);
		entry = bpf_map_lookup_elem(&group_rules, &number);
		word = rule_word(entry);
		if (word)
			break;
	}
	return word;
}

static __always_inline u32 rule_by_name(const char *kernel_text)
{
	struct task_name name = {};

	bpf_probe_read_kernel_str(name.text, sizeof(name.text), kernel_text);
	return rule_word(bpf_map_lookup_elem(&name_rules, &name));
}

static __always_inline bool has_no_rules(const struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) || p->tgid == loader_tgid;
}

/* Look again; the task does not run, or runs here. Whether its type or level changed. */
static __always_inline bool follow_rules(struct task_struct *p,
					 struct task_ctx *tc)
{
	u32 generation = rules_generation;
	u64 css = (u64)p->cgroups;

	if (tc->rules_generation == generation &&
	    (!generation || tc->css_seen == css))
		return false;
	if (has_no_rules(p))
		return false;
	/* before the name's rule is read, for every CPU: see tl_task_renamed */
	__sync_lock_test_and_set(&tc->css_seen, css);
	if (tc->rules_generation != generation) {
		tc->rules_generation = generation;
		tc->rule_by_name = rule_by_name(p->comm);
	}
	return tl_task_set_rule(&tc->t, choose_word(tl_rule_by_group(p),
						    tc->rule_by_name) &
						255);
}

/* The same at a tick: what ran until now has been counted. */
static __always_inline bool follow_rules_running(struct task_struct *p,
						 struct task_ctx *tc,
						 struct tl_cpu *c, u64 now_ns)
{
	u32 old_level = tc->t.level;

	if (!follow_rules(p, tc))
		return false;
	turn(tc, c, old_level, now_ns);
	return true;
}

/* A name is about to change: by exec, by prctl, or by another thread of the process. */
SEC("?tp_btf/task_rename")
int BPF_PROG(tl_task_renamed, struct task_struct *p, const char *text)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (!tc)
		return 0;
	tc->rule_by_name = rule_by_name(text);
	/* If the task looks at the same time: either it finds the rule above, or this is
	 * the last word, and it looks again. */
	__sync_lock_test_and_set(&tc->css_seen, 0);
	return 0;
}

SEC("?tp_btf/cgroup_mkdir")
int BPF_PROG(tl_group_made, struct cgroup *cgrp, const char *path)
{
	groups_made++; /* under the kernel's lock of all control groups */
	return 0;
}

/* How many tasks each rule applies to; the loader has cleared the counts. */
SEC("iter/task")
int tl_count_rules(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	u32 word, number;

	if (!p || has_no_rules(p))
		return 0;
	word = choose_word(tl_rule_by_group(p), rule_by_name(p->comm));
	number = word >> 8;
	if (word && number < TL_RULES_MAX)
		rule_tasks[number]++;
	return 0;
}

#endif
