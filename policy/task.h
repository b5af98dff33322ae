/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Task types: which events make a task wide, and which end it.
 *
 * Problem: the begin of wide code is seen exactly (a hint, a probe at a
 * function, a trap), its end often is not (SYSTOR 3.3, THESIS 4.4).
 *
 * Idea: a task holds up to five pieces of evidence, each with a level:
 *
 *   hint   between tl_wide_begin() and tl_wide_end()
 *   mark   between entry to and return from a marked function
 *   loose  a trap, or inheritance from a wide parent: no end of its own
 *   score  what its power score speaks for (score.h), until that changes
 *   gap    the last hint or mark, for the break-even time, if the settings name it
 *          and the task has not learned that it should leave at once (gap.h)
 *
 *   level = max(hint, mark, loose, score, gap), and the task is wide while level > 0,
 *   unless the user has made a rule for it, which decides what that counts (rule.h).
 *
 *   event                 hint    mark    loose   then
 *   --------------------  ------  ------  ------  ----------------------
 *   HINT_BEGIN level      level   .       .       wide
 *   HINT_END        (5)   0       .       .       scalar if nothing left, or a gap (7)
 *   HINT_AWAY       (5)   0       .       .       scalar if nothing left
 *   MARK_ENTER level      .       max     .       wide; depth + 1
 *   MARK_RETURN           .       0 (*)   .       scalar if nothing left, or a gap (7)
 *   TRAP level            .       .       max     wide
 *   INHERIT level         .       .       level   wide
 *   SCORE level     (6)   .       .       .       score = level; wide, or scalar
 *                                                 if nothing left
 *   SYSCALL_ENTRY   (1)   0       0       0       scalar
 *   SYSCALL_RETURN  (1,2) 0       0       0       scalar
 *   SWITCH_OUT      (1,3) 0       0       0       scalar
 *   TICK, remigrate timeout (1,4) 0  0    0       scalar
 *   TICK, wide timeout      (4)   .  .    0       scalar if nothing left
 *   TICK, SYSCALL_*, SWITCH_OUT when its
 *   stay is over (stay.h, gap.h)  .  .    0       scalar if nothing left
 *   SYSCALL_ENTRY (8)     .       .       .       scalar if nothing but hint and mark
 *
 *   (*) when the outermost marked function returns
 *   (1) only if the settings name this heuristic
 *   (2) only if the task was wide when it entered the system call: the very
 *       call that announced the wide period must not end it
 *   (3) only after the task has run on a CPU fit for it: the switch that
 *       carries it there must not end the period
 *   (4) counted from the last event that was evidence
 *   (5) of a default task too: hints are read now and then, and a section that
 *       was over by then shows as an end without a begin
 *
 *   (6) not of a task that has given hints: "hints from the developer override
 *       the automatically determined power score" (DIM 5.2)
 *   (7) not after HINT_AWAY: the code after it is known to stay scalar for long. What
 *       ends open sections, and the wide timeout, ends a gap's evidence too
 *   (8) only if the settings name it, and the task has learned that its section ends
 *       after this call (last.h): hint and mark do not count until it has ended, or is
 *       found to be wrong (TICK, SWITCH_OUT, TRAP, the next begin)
 *
 * A score describes what a task is like, not what it does at the moment: no heuristic
 * and no timeout ends it, and a child inherits it only as loose evidence.
 *
 * A heuristic ends open sections too: the user who enables it considers it a better
 * guess than the program's own words. A section that was ended so stays ended
 * until the next begin.
 *
 * A task whose wide period ended is scalar, never default again (SFMA 3.2:
 * default is for tasks that have never executed wide code).
 */
#ifndef TL_POLICY_TASK_H
#define TL_POLICY_TASK_H

#include "gap.h"
#include "last.h"
#include "mark.h"
#include "mix.h"
#include "rule.h"
#include "score.h"
#include "stay.h"
#include "types.h"

enum tl_event {
	TL_EV_HINT_BEGIN,
	TL_EV_HINT_END,
	TL_EV_MARK_ENTER,
	TL_EV_MARK_RETURN,
	TL_EV_TRAP,
	TL_EV_SYSCALL_ENTRY,
	TL_EV_SYSCALL_RETURN,
	TL_EV_SWITCH_OUT,
	TL_EV_TICK,
	TL_EV_SCORE,
	TL_EV_HINT_AWAY,
	TL_NR_EVENTS,
};

/*
 * What the policy knows of a task. Times are of the caller's clock, ns.
 *
 *   0        8          16         24        32       36      40
 *   +--------+----------+----------+---------+--------+-------+
 *   | vtime  | evidence | enqueued | started | weight | clock |
 *   +--------+----------+----------+---------+--------+-------+
 *   | type level hint mark loose depth caps flags |   48
 *   +---------------------------------------------+
 *   | score                                       |   56
 *   +---------------------------------------------+
 *   | mix                                         |   72
 *   +---------------------------------------------+
 *   | stay                                        |   80
 *   +---------------------------------------------+
 *   | gap                                         |   96
 *   +---------------------------------------------+
 *   | last                                        |  112
 *   +---------------------------------------------+
 *   | rule, 7 bytes 0                             |  120
 *   +---------------------------------------------+
 */
struct tl_task {
	u64 vtime_ns;	 /* weighted CPU time on the clock named below */
	u64 evidence_ns; /* time of the last event that was evidence */
	u64 enqueued_ns; /* when it entered the queue it waits in, 0 = none */
	u64 started_ns;	 /* when it was put on its CPU, 0 = not running */
	u32 weight;    /* effective, 1..10000 * TL_WEIGHT_UNIT; see groups.h */
	u32 clock;     /* queue id whose clock vtime_ns is measured on */
	u8 type;       /* enum tl_type */
	u8 level;      /* licence level, 0 unless type is TL_WIDE */
	u8 hint_level; /* evidence by kind, 0 = none */
	u8 mark_level;
	u8 loose_level;
	u8 mark_depth; /* marked calls it is inside of, <= TL_CALLS_MAX */
	u8 caps;       /* bit c set: its affinity holds a CPU of class c */
	u8 flags;      /* TL_TASK_* */
	struct tl_score score;
	struct tl_mix mix;
	struct tl_stay stay;
	struct tl_gap gap;
	struct tl_last last;
	u8 rule; /* enum tl_rule */
	u8 zero[7];
};
_Static_assert(sizeof(struct tl_task) == 120, "drawn above; mirrored in Rust");

#define TL_TASK_RAN_FIT 1u	/* ran on a fit CPU in this wide period */
#define TL_TASK_SYSCALL_WIDE 2u /* was wide at the entry of its system call */
#define TL_TASK_HINTS 4u	/* has given hints: its score does not count */
#define TL_TASK_UNKNOWN 8u	/* has a rule, and would be default without */
#define TL_TASK_WAS_WIDE 16u	/* is or was wide since it came to its CPU */

/* Effective weights (groups.h) are in parts of a cpu.weight, of which nice 0 has
 * 100. */
#define TL_WEIGHT_UNIT 1024u
#define TL_WEIGHT_NICE0 (100u * TL_WEIGHT_UNIT)

/* A task that has just come to be. parent_type and parent_level are those of
 * the forking task, TL_DEFAULT and 0 if there is none (SYSTOR 3.2: a child
 * inherits a non-default type). */
tl_inline void tl_task_init(struct tl_task *t, const struct tl_cfg *cfg,
			    u8 parent_type, u8 parent_level, u64 now_ns)
{
	*t = (struct tl_task){
		.weight = TL_WEIGHT_NICE0,
		.type = parent_type != TL_DEFAULT ? parent_type :
						    (u8)cfg->unclassified,
		.caps = (1u << TL_NR_CLASSES) - 1,
	};
	tl_stay_init(&t->stay, t->type == TL_WIDE);
	if (t->type == TL_WIDE) {
		t->level = parent_level;
		t->loose_level = parent_level;
		t->evidence_ns = now_ns;
	}
}

/* Classify a task without a type as scalar; true if its type changed. */
tl_inline u32 tl_task_classify_scalar(struct tl_task *t)
{
	t->flags &= ~TL_TASK_UNKNOWN;
	if (t->type != TL_DEFAULT || t->rule)
		return 0;
	t->type = TL_SCALAR;
	return 1;
}

tl_inline u8 tl_max_u8(u8 a, u8 b)
{
	return a > b ? a : b;
}

/* The level of the sections that are open. */
tl_inline u8 tl_task_open_level(const struct tl_task *t)
{
	return tl_max_u8(t->hint_level, t->mark_level);
}

/* The level that the evidence speaks for. */
tl_inline u8 tl_task_evidence(const struct tl_task *t)
{
	u8 level = tl_max_u8(t->loose_level, tl_gap_level(&t->gap));

	if (!tl_last_is_away(&t->last))
		level = tl_max_u8(level, tl_task_open_level(t));
	if (!(t->flags & TL_TASK_HINTS))
		level = tl_max_u8(level, t->score.level);
	return level;
}

/* Derive type and level from the evidence and the rule; true if either changed. */
tl_inline u32 tl_task_settle(struct tl_task *t)
{
	u8 evidence = tl_task_evidence(t);
	u8 level = tl_rule_level(t->rule, evidence);
	u8 old_type = t->type, old_level = t->level;

	if (evidence)
		t->flags &= ~TL_TASK_UNKNOWN;
	t->level = level;
	if (level)
		t->type = TL_WIDE;
	else if (t->rule == TL_RULE_ALONE)
		t->type = TL_DEFAULT;
	else if (t->type == TL_WIDE || t->rule)
		t->type = TL_SCALAR;
	if (old_type != TL_WIDE && t->type == TL_WIDE)
		t->flags &= ~TL_TASK_RAN_FIT;
	if (t->type == TL_WIDE)
		t->flags |= TL_TASK_WAS_WIDE;
	return old_type != t->type || old_level != level;
}

/* It comes to a CPU. */
tl_inline void tl_task_comes(struct tl_task *t)
{
	if (t->type == TL_WIDE)
		t->flags |= TL_TASK_WAS_WIDE;
	else
		t->flags &= ~TL_TASK_WAS_WIDE;
}

/* The task has this rule from now on, TL_RULE_NONE for none; true if its type or level
 * changed. */
tl_inline u32 tl_task_set_rule(struct tl_task *t, u32 rule)
{
	u8 old_type = t->type, old_level = t->level;

	if (rule == t->rule)
		return 0;
	if (!t->rule && t->type == TL_DEFAULT)
		t->flags |= TL_TASK_UNKNOWN;
	else if (!rule)
		t->type = t->flags & TL_TASK_UNKNOWN ? TL_DEFAULT : TL_SCALAR;
	if (!rule)
		t->flags &= ~TL_TASK_UNKNOWN;
	t->rule = (u8)rule;
	if (tl_rule_ignores(rule))
		t->mix = (struct tl_mix){};
	tl_task_settle(t);
	return t->type != old_type || t->level != old_level;
}

/* Whether it counts as a task that gives hints. */
tl_inline u32 tl_task_gives_hints(const struct tl_task *t)
{
	return (t->flags & TL_TASK_HINTS) && !tl_rule_ignores(t->rule);
}

tl_inline void tl_task_end_all(struct tl_task *t)
{
	t->hint_level = 0;
	t->mark_level = 0;
	t->loose_level = 0;
	tl_gap_leave(&t->gap);
	t->last.state = TL_LAST_NONE;
}

/* The scheduler was away, and comes back: sections that were open may be over, and no
 * queue has a clock. What was learned of the task holds. */
tl_inline void tl_task_renew(struct tl_task *t)
{
	t->vtime_ns = 0;
	t->enqueued_ns = 0;
	t->started_ns = 0;
	t->clock = 0;
	t->mark_depth = 0;
	t->flags &= ~(TL_TASK_RAN_FIT | TL_TASK_SYSCALL_WIDE);
	tl_task_end_all(t);
	tl_task_settle(t);
}

/* The level that a child inherits. A gap is its parent's alone, and so is a rule; a
 * section counts, even where it is no evidence at the moment, for the child may have its
 * wide code. */
tl_inline u8 tl_task_bequest(const struct tl_task *t)
{
	return tl_gap_level(&t->gap) ?
		       t->loose_level :
		       tl_max_u8(tl_task_evidence(t), tl_task_open_level(t));
}

/* The type that goes with it. */
tl_inline u8 tl_task_bequest_type(const struct tl_task *t, u8 level)
{
	if (level)
		return TL_WIDE;
	if (t->rule)
		return t->flags & TL_TASK_UNKNOWN ? TL_DEFAULT : TL_SCALAR;
	return t->type == TL_WIDE ? TL_SCALAR : t->type;
}

/* A section begins. */
tl_inline void tl_task_section_begins(struct tl_task *t,
				      const struct tl_cfg *cfg)
{
	tl_last_ends(&t->last, cfg->rest_below_ns, 0);
	if (!tl_task_open_level(t))
		tl_gap_ends(&t->gap, cfg->rest_below_ns);
}

/* A section has ended, the last one if none is open now. level is that of what was
 * open before. 0: its begin was not seen, so it began on a CPU that was fit for it,
 * and is taken for one like the last; or a heuristic has ended it before. away: what
 * follows is known to be long. */
tl_inline void tl_task_section_ends(struct tl_task *t, const struct tl_cfg *cfg,
				    u8 level, u32 away)
{
	u64 even_ns = cfg->remigrate & TL_REMIGRATE_GAP ? cfg->rest_below_ns :
							  0;
	u32 ran_fit = !level || (t->flags & TL_TASK_RAN_FIT);

	if (tl_task_open_level(t) || (!level && t->gap.state == TL_GAP_NONE))
		return;
	if (!level)
		level = t->gap.level;
	tl_gap_ends(&t->gap, cfg->rest_below_ns);
	tl_gap_begins(&t->gap, level,
		      even_ns && ran_fit && !away && t->caps >> level);
}

tl_inline void tl_task_hint_end(struct tl_task *t, const struct tl_cfg *cfg,
				u32 away)
{
	u8 level = tl_task_open_level(t);
	u32 has_left = tl_last_is_away(&t->last);

	t->hint_level = 0;
	t->flags |= TL_TASK_HINTS;
	if (!tl_task_open_level(t)) /* of a task that has left, seen late */
		tl_last_ends(&t->last, cfg->rest_below_ns, !has_left);
	tl_task_section_ends(t, cfg, level, away | has_left);
}

tl_inline void tl_task_mark_return(struct tl_task *t, const struct tl_cfg *cfg)
{
	u8 level = tl_task_open_level(t);
	u32 has_left = tl_last_is_away(&t->last);

	if (t->mark_depth)
		t->mark_depth--;
	if (!t->mark_depth)
		t->mark_level = 0;
	if (!tl_task_open_level(t))
		tl_last_ends(&t->last, cfg->rest_below_ns, 1);
	if (level)
		tl_task_section_ends(t, cfg, level, has_left);
}

/* Whether it is moving to a wide CPU: it runs the kernel's code, and its wide section
 * has not begun. Not if there is no such CPU. */
tl_inline u32 tl_task_is_coming(const struct tl_task *t)
{
	return t->type == TL_WIDE && !(t->flags & TL_TASK_RAN_FIT) &&
	       t->caps >> t->level;
}

/* Where the kernel comes by: its loose evidence, and that of a gap, end when it has
 * stayed for long enough; a section that goes on is evidence again. */
tl_inline void tl_task_passes(struct tl_task *t, const struct tl_cfg *cfg,
			      u32 at_syscall)
{
	if (tl_last_is_wrong(&t->last, cfg->rest_below_ns,
			     cfg->wide_timeout_ns))
		tl_last_ends(&t->last, cfg->rest_below_ns, 1);
	else if (tl_gap_is_over(&t->gap, cfg->rest_below_ns))
		tl_gap_leave(&t->gap);
	else if (t->loose_level && !tl_task_is_coming(t) &&
		 tl_stay_is_over(&t->stay, cfg->wide_timeout_ns, at_syscall))
		t->loose_level = 0;
}

/* How long it counts as wide yet without an open section, if it goes on running: when
 * this is over, tl_task_passes() ends it. 0 = no longer, or it has not begun. */
tl_inline u64 tl_task_stays_ns(const struct tl_task *t,
			       const struct tl_cfg *cfg)
{
	if (t->gap.state == TL_GAP_STAYS)
		return tl_gap_left_ns(&t->gap, cfg->rest_below_ns);
	if (!t->loose_level || tl_task_open_level(t) || tl_task_is_coming(t))
		return 0;
	return tl_stay_left_ns(&t->stay, cfg->wide_timeout_ns);
}

/* The task ran for so long, wide at this level, or at 0 not. */
tl_inline void tl_task_ran(struct tl_task *t, u64 used_ns, u32 level)
{
	tl_mix_ran(&t->mix, used_ns, level);
	tl_gap_ran(&t->gap, used_ns);
	tl_last_ran(&t->last, used_ns);
	if (!tl_task_is_coming(t))
		tl_stay_ran(&t->stay, used_ns);
}

tl_inline void tl_task_tick(struct tl_task *t, const struct tl_cfg *cfg,
			    u64 now_ns)
{
	u64 age_ns = now_ns > t->evidence_ns ? now_ns - t->evidence_ns : 0;

	if (t->type != TL_WIDE)
		return;
	if ((cfg->remigrate & TL_REMIGRATE_TIMEOUT) &&
	    age_ns >= cfg->remigrate_timeout_ns) {
		tl_task_end_all(t);
	} else if (cfg->wide_timeout_ns && age_ns >= cfg->wide_timeout_ns) {
		t->loose_level = 0;
		tl_gap_leave(&t->gap);
	}
}

/* A system call of a task in a section: whether it may be the last one (last.h). */
tl_inline void tl_task_last_syscall(struct tl_task *t, const struct tl_cfg *cfg,
				    u32 event)
{
	if (event == TL_EV_SYSCALL_RETURN)
		tl_last_returns(&t->last);
	else if ((cfg->remigrate & TL_REMIGRATE_LAST_SYSCALL) &&
		 tl_task_open_level(t))
		tl_last_enters(&t->last, cfg->rest_below_ns);
}

/* Whether a system call says anything about it: most tasks are not wide, and were not
 * when it came. */
tl_inline u32 tl_task_syscall_matters(const struct tl_task *t)
{
	return t->type == TL_WIDE || (t->flags & TL_TASK_SYSCALL_WIDE) ||
	       t->last.state != TL_LAST_NONE;
}

tl_inline void tl_task_syscall(struct tl_task *t, const struct tl_cfg *cfg,
			       u32 event)
{
	u32 was_wide = event == TL_EV_SYSCALL_ENTRY ?
			       t->type == TL_WIDE :
			       t->flags & TL_TASK_SYSCALL_WIDE;
	u32 ends = event == TL_EV_SYSCALL_ENTRY ? TL_REMIGRATE_SYSCALL_ENTRY :
						  TL_REMIGRATE_SYSCALL_RETURN;

	t->flags &= ~TL_TASK_SYSCALL_WIDE;
	if (!was_wide)
		return;
	if (event == TL_EV_SYSCALL_ENTRY)
		t->flags |= TL_TASK_SYSCALL_WIDE;
	if (cfg->remigrate & ends)
		tl_task_end_all(t);
}

/*
 * An event of the table above. level is 1..TL_LEVEL_MAX for those that have
 * one (larger ones count as TL_LEVEL_MAX, 0 as 1 but for SCORE) and ignored
 * otherwise.
 * Returns 1 if the task's type or level changed, so that its place must be
 * looked at again, else 0.
 */
tl_inline u32 tl_task_event(struct tl_task *t, const struct tl_cfg *cfg,
			    u32 event, u32 level, u64 now_ns)
{
	u8 lv = level > TL_LEVEL_MAX ? TL_LEVEL_MAX : level ? level : 1;

	switch (event) {
	case TL_EV_HINT_BEGIN:
		tl_task_section_begins(t, cfg);
		t->hint_level = lv;
		t->flags |= TL_TASK_HINTS;
		t->evidence_ns = now_ns;
		break;
	case TL_EV_HINT_END:
	case TL_EV_HINT_AWAY:
		tl_task_hint_end(t, cfg, event == TL_EV_HINT_AWAY);
		return tl_task_settle(t) | tl_task_classify_scalar(t);
	case TL_EV_MARK_ENTER:
		tl_task_section_begins(t, cfg);
		/* deeper calls have no return, see mark.h */
		if (t->mark_depth < TL_CALLS_MAX)
			t->mark_depth++;
		t->mark_level = tl_max_u8(t->mark_level, lv);
		t->evidence_ns = now_ns;
		break;
	case TL_EV_MARK_RETURN:
		tl_task_mark_return(t, cfg);
		break;
	case TL_EV_TRAP:
		tl_last_trapped(&t->last);
		tl_stay_trapped(&t->stay, cfg->wide_timeout_ns,
				!t->loose_level);
		t->loose_level = tl_max_u8(t->loose_level, lv);
		t->evidence_ns = now_ns;
		break;
	case TL_EV_SYSCALL_ENTRY:
	case TL_EV_SYSCALL_RETURN:
		tl_task_syscall(t, cfg, event);
		tl_task_last_syscall(t, cfg, event);
		tl_task_passes(t, cfg, 1);
		break;
	case TL_EV_SWITCH_OUT:
		if ((cfg->remigrate & TL_REMIGRATE_CONTEXT_SWITCH) &&
		    (t->flags & TL_TASK_RAN_FIT) && t->type == TL_WIDE)
			tl_task_end_all(t);
		else
			tl_task_passes(t, cfg, 0);
		break;
	case TL_EV_TICK:
		tl_task_tick(t, cfg, now_ns);
		tl_task_passes(t, cfg, 0);
		break;
	case TL_EV_SCORE:
		t->score.level = level > TL_LEVEL_MAX ? TL_LEVEL_MAX : level;
		break;
	default:
		return 0;
	}
	return tl_task_settle(t);
}

#endif
