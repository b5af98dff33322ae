/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Standing by: whether to keep wide code apart at all.
 *
 * Problem: to keep wide code apart costs migrations, CPUs that idle while wide tasks
 * wait, and waits. Where there is little to win, because a CPU has no licence levels,
 * all code is wide, or every task has a core of its own, it costs more than it
 * saves: all code wide ran 13 to 25 % slower than under the kernel's scheduler.
 *
 * Idea: measure both, by the same sums (exposure.h), and compare. For each party of
 * tasks, those without wide code and those with wide code of each level,
 *
 *   lost =   exposed time * clock that the level lacks
 *          + moves * 6 us + levels raised * 27 us
 *          + time beside a busy sibling * 3/8
 *          + time that wide tasks waited beside idle CPUs       (of wide parties)
 *
 * as a share of its CPU time. It begins standing by. In these states:
 *
 *   LOOKING       all CPUs take everything, traps are armed: what is lost so?
 *     |   \
 *     |    clock and raises, minus a move for each section, are
 *     |    below 1 %: there is nothing to win
 *     v     \
 *   APART     +--> STANDING BY   the kernel's own scheduler is at work, nothing is armed
 *     |       ^     |
 *     +-------+     +--> LOOKING again, later
 *    costs more
 *
 * While standing by, our scheduler is detached: whether our queues are better or worse
 * than the kernel's, a load that has nothing to gain from us gets what it had before, and
 * each task gets back the CPU that it was taken from. Our scheduler stays only if a
 * thread has a target for its CPU (target.h), which it passes on.
 *
 * APART is kept if all parties together lose 1 % less than when looked at, and none
 * loses 1.5 % more: a party that has less than a 64th of the CPU time is not asked. Where
 * all CPUs are busy, none may get less of them either: a sixteenth less, not counting
 * what is lost, while it waits longer for each nanosecond. (One that waits less needs
 * less.) What their time counts is tuned so that they keep what they had (shares.h). It
 * is judged after a second, then all the time, with margins that are wider
 * by half a percent. Now and then it is left to look again, as the load may have
 * changed: a fifth of a second in 8, later in 64.
 *
 * Hysteresis: after an attempt that failed there is none for the hold time, 8 s, which
 * each failure doubles, up to 64 s; one that has lasted until the next look halves it.
 * Looks that find nothing to win become rare too: the first is after a second, then each
 * pause is twice as long, up to 64 s. Where nothing wide was found, the first call of a
 * marked function, and the first hint of a thread, are looked at sooner: after a second, or
 * an eighth of the pause.
 *
 * With traps (not `sees`), scalar code between wide sections counts as wide while all CPUs
 * take everything (stay.h), so what wide parties lose then is not known, and they are not
 * asked for the 1.5 %.
 *
 * Constants. Move: 9,461 instructions (`lane.migration_instructions`), 3.1 us, and
 * 2.6 us for 64 KiB of cache. Raise: 17 us upwards (DIM 4.1) and 10 us of halt
 * downwards (DIM 4.1, 6.3). Sibling: a core does 1.25 times as much with two busy CPUs
 * as with one (Intel: 15 to 30 %), so each loses 3/8. Margins and times: round numbers;
 * the margins are of the order of the bar that they are for, no load slower by 1 %.
 *
 * Where an application reports a figure of its own (goal.h), that figure chooses APART
 * or STANDING BY instead, and there are no looks.
 *
 * Limits. It believes what detection says: code that is announced as wide and is not
 * is kept apart too. Clocks that a core gains because others idle are not in it. Wide
 * code that comes up later, or that traps alone would find, is found at the next look.
 */
#ifndef TL_POLICY_STANDBY_H
#define TL_POLICY_STANDBY_H

#include "shares.h"
#include "tiers.h"

/* After a change of state nothing is counted for so long; while apart, that is what
 * sizing takes from one core to many. */
#define TL_STANDBY_SKIP_NS 50000000ull
#define TL_STANDBY_SKIP_APART_NS 500000000ull
/* What a judgement takes; and the sums are halved when they come to twice as long. */
#define TL_STANDBY_LOOK_NS 200000000ull
#define TL_STANDBY_JUDGE_NS 500000000ull
#define TL_STANDBY_WINDOW_NS 1000000000ull
/* 1 %: what there must be to win, and what must be won. */
#define TL_STANDBY_WORTH_Q10 10u
/* 1.5 %: what a party may lose. */
#define TL_STANDBY_HARM_Q10 15u
/* 0.5 %: hysteresis of both. */
#define TL_STANDBY_SLACK_Q10 5u
/* A sixteenth: what its share of busy CPUs may fall by. Shares of 0.2 s repeat to a few
 * percent. */
#define TL_STANDBY_SHARE 16u
/* After an attempt that failed, at first; and at most. An attempt takes a second, so
 * an eighth of the time and, later, a 64th is spent on what does not pay. */
#define TL_STANDBY_HOLD_NS 8000000000ull
#define TL_STANDBY_HOLD_MAX_NS (8 * TL_STANDBY_HOLD_NS)
/* Between looks that find nothing, at first; and at most: ours are 0.25 s of 64 s. */
#define TL_STANDBY_PAUSE_NS 1000000000ull
#define TL_STANDBY_PAUSE_MAX_NS (64 * TL_STANDBY_PAUSE_NS)
/* News shorten a pause to an eighth, but not below the first: every program can make news. */
#define TL_STANDBY_NEWS 8u
/* Before it stands by, tasks go back to where they were taken from, since the kernel's
 * balancer leaves those that have a CPU of their own where they are. They have so much
 * time for it: a round number, long beside an interrupt and a switch on each CPU. And at
 * most, where a CPU does not get to choose: one of a virtual machine that its host does
 * not run. */
#define TL_GOING_HOME_NS 2000000ull
#define TL_GOING_HOME_MAX_NS 20000000ull
/* From one look to the next while apart, at first. */
#define TL_STANDBY_APART_NS 8000000000ull

enum tl_standby_state {
	TL_STANDING_BY = 0,
	TL_LOOKING = 1,
	TL_APART = 2,
};

/* Why it stands by. */
enum tl_standby_why {
	TL_WHY_NONE = 0,	 /* it does not, or has not looked yet */
	TL_WHY_NO_LEVELS = 1,	 /* no licence level lowers a clock */
	TL_WHY_NOTHING_WIDE = 2, /* no wide code was seen */
	TL_WHY_NOTHING_LOST = 3, /* it slows no other code, by 1 % at least */
	TL_WHY_COSTS_MORE = 4,	 /* keeping it apart was tried */
	TL_WHY_GOAL = 5,	 /* the application's figure says so (goal.h) */
};

/* All zero is the start. */
struct tl_standby {
	struct tl_losses sums[TL_NR_PARTIES]; /* of this state */
	u64 wide_wait_ns;
	u64 summed_ns; /* how long that took */
	u64 age_ns;    /* time in this state */
	u64 hold_ns;   /* before the next attempt; 0 = TL_STANDBY_HOLD_NS */
	u64 apart_ns;  /* while apart, before the next look */
	u64 pause_ns;  /* while standing by, before the next look */
	u64 failed_ns; /* since an attempt failed; large if none did */
	/* when looked at: what is lost; the share of all CPUs without that, if they
	 * were busy, else 0 */
	u32 lost_q10[TL_NR_PARTIES];
	u32 share_q10[TL_NR_PARTIES];
	u32 wait_q10[TL_NR_PARTIES]; /* and time waited over CPU time */
	u32 at_most_q10; /* what could be won then at most, of all CPU time */
	u32 won_q10;	 /* what is won, at the last judgement while apart */
	u32 nr_attempts; /* how often it has become TL_APART */
	u8 state;	 /* enum tl_standby_state */
	u8 why;		 /* enum tl_standby_why, of TL_STANDING_BY */
	u8 asks;	 /* a target was asked for since it last looked */
	u8 was_away; /* the kernel's scheduler was at work before it looks */
	struct tl_shares shares;
};

tl_inline void tl_standby_enter(struct tl_standby *s, u32 state, u32 why)
{
	s->nr_attempts += state == TL_APART && s->state != TL_APART;
	s->state = state;
	s->why = why;
	s->age_ns = 0;
	s->summed_ns = 0;
	s->wide_wait_ns = 0;
	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		s->sums[p] = (struct tl_losses){};
	if (state == TL_STANDING_BY)
		s->shares = (struct tl_shares){};
}

/* Take in what was seen; sums that are large are halved. */
tl_inline void tl_standby_add(struct tl_standby *s,
			      const struct tl_standby_input *in)
{
	u32 halve = s->summed_ns >= 2 * TL_STANDBY_WINDOW_NS;

	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		struct tl_losses *sum = &s->sums[p];
		const struct tl_losses *new = &in->losses[p];

		sum->run_ns = (sum->run_ns >> halve) + new->run_ns;
		sum->shared_ns = (sum->shared_ns >> halve) + new->shared_ns;
		sum->wait_ns = (sum->wait_ns >> halve) + new->wait_ns;
		sum->moves = (sum->moves >> halve) + new->moves;
		sum->raises = (sum->raises >> halve) + new->raises;
		sum->sections = (sum->sections >> halve) + new->sections;
		for (u32 c = 0; c < TL_LEVEL_MAX; c++)
			sum->exposed_ns[c] =
				(u64)((s64)sum->exposed_ns[c] / (1 + halve)) +
				new->exposed_ns[c];
	}
	s->wide_wait_ns = (s->wide_wait_ns >> halve) + in->wide_wait_ns;
	s->summed_ns = (s->summed_ns >> halve) + in->elapsed_ns;
}

/* CPU time of all parties. */
tl_inline u64 tl_standby_run_ns(const struct tl_standby *s)
{
	u64 ns = 0;

	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		ns += s->sums[p].run_ns;
	return ns;
}

/* Time that wide tasks waited while CPUs idled. */
tl_inline u64 tl_standby_stranded_ns(const struct tl_standby *s, u32 nr_cpus)
{
	u64 all_ns = s->summed_ns * nr_cpus, run_ns = tl_standby_run_ns(s);

	return tl_min_u64(s->wide_wait_ns,
			  all_ns > run_ns ? all_ns - run_ns : 0);
}

/* What each party loses, as a share of its CPU time. */
tl_inline void tl_standby_lost(const struct tl_standby *s,
			       const struct tl_standby_input *in,
			       u32 lost_q10[TL_NR_PARTIES])
{
	u64 stranded_ns = tl_standby_stranded_ns(s, in->nr_cpus), wait_ns = 0;

	for (u32 p = TL_PARTY_PLAIN + 1; p < TL_NR_PARTIES; p++)
		wait_ns += s->sums[p].wait_ns;
	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		const struct tl_losses *l = &s->sums[p];
		/* its part of it */
		u64 idle_ns = p == TL_PARTY_PLAIN ?
				      0 :
				      stranded_ns *
					      tl_standby_share_q10(l->wait_ns,
								   wait_ns) /
					      1024;
		u64 ns = tl_standby_clock_ns(l, in) + idle_ns +
			 l->shared_ns * TL_STANDBY_SIBLING_Q10 / 1024 +
			 l->moves * TL_STANDBY_MOVE_NS;

		lost_q10[p] = tl_standby_share_q10(ns, l->run_ns + idle_ns);
	}
}

/* The shares of all parties. */
tl_inline void tl_standby_shares(const struct tl_standby *s, u32 nr_cpus,
				 const u32 lost_q10[TL_NR_PARTIES],
				 u32 share_q10[TL_NR_PARTIES])
{
	for (u32 p = 0; p < TL_NR_PARTIES; p++)
		share_q10[p] = tl_standby_share_of(s->sums[p].run_ns,
						   lost_q10[p],
						   tl_standby_run_ns(s),
						   s->summed_ns * nr_cpus);
}

/* What the parties had of busy CPUs, and waited, under the kernel's scheduler: that is
 * what they must not lose. Where this is not known it is what they have under ours
 * while it looks. */
tl_inline void tl_standby_before(struct tl_standby *s,
				 const struct tl_standby_input *in)
{
	tl_standby_shares(s, in->nr_cpus, s->lost_q10, s->share_q10);
	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		const struct tl_kernel_use *kernel = &in->kernel[p];
		u32 share_q10 = tl_shares_kernel_q10(in, p, s->lost_q10[p]);

		s->wait_q10[p] = tl_standby_wait_q10(s->sums[p].run_ns,
						     s->sums[p].wait_ns);
		if (!share_q10 || !s->was_away)
			continue;
		s->share_q10[p] = share_q10;
		/* where it is known of most of them */
		if (kernel->run_ns >= tl_shares_kernel_ns(in, p) / 2)
			s->wait_q10[p] = tl_standby_wait_q10(kernel->run_ns,
							     kernel->wait_ns);
	}
	if (s->was_away)
		tl_shares_begin(&s->shares, in);
}

/* Whether a party's share of busy CPUs, of which it has this much now, has fallen for
 * no lack of demand. */
tl_inline u32 tl_standby_robs(const struct tl_standby *s, u32 party,
			      u32 share_q10)
{
	u32 old_q10 = s->share_q10[party];

	return old_q10 && share_q10 &&
	       share_q10 < old_q10 - old_q10 / TL_STANDBY_SHARE &&
	       tl_standby_wait_q10(s->sums[party].run_ns,
				   s->sums[party].wait_ns) > s->wait_q10[party];
}

/* What could be won at most: what is lost by clocks and raises, minus a move for each
 * section. */
tl_inline u32 tl_standby_at_most(const struct tl_standby *s,
				 const struct tl_standby_input *in)
{
	u64 won_ns = 0, cost_ns = 0;

	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		won_ns += tl_standby_clock_ns(&s->sums[p], in);
		cost_ns += s->sums[p].sections * TL_STANDBY_MOVE_NS;
	}
	return tl_standby_share_q10(won_ns > cost_ns ? won_ns - cost_ns : 0,
				    tl_standby_run_ns(s));
}

/* Whether keeping wide code apart pays, with margins that are wider by the slack. */
tl_inline u32 tl_standby_pays(struct tl_standby *s,
			      const struct tl_standby_input *in, u32 slack_q10)
{
	u64 all_ns = tl_standby_run_ns(s);
	u32 lost_q10[TL_NR_PARTIES], share_q10[TL_NR_PARTIES];
	s64 won = 0;
	u32 harms = 0;

	tl_standby_lost(s, in, lost_q10);
	tl_standby_shares(s, in->nr_cpus, lost_q10, share_q10);
	for (u32 p = 0; p < TL_NR_PARTIES; p++) {
		u64 run_ns = s->sums[p].run_ns;

		won += (s64)run_ns * ((s64)s->lost_q10[p] - lost_q10[p]);
		if (run_ns < all_ns / TL_STANDBY_PARTY)
			continue;
		harms |= (in->sees || p == TL_PARTY_PLAIN) &&
			 lost_q10[p] > s->lost_q10[p] + TL_STANDBY_HARM_Q10 +
					       slack_q10;
		harms |= tl_standby_robs(s, p, share_q10[p]);
	}
	s->won_q10 = won > 0 && all_ns ? (u32)((u64)won / all_ns) : 0;
	return !harms && s->won_q10 + slack_q10 >= TL_STANDBY_WORTH_Q10;
}

/* All CPUs take everything: is there something to win? */
tl_inline void tl_standby_look(struct tl_standby *s,
			       const struct tl_standby_input *in)
{
	u32 why = TL_WHY_NONE;

	if (s->summed_ns < TL_STANDBY_LOOK_NS)
		return;
	for (u32 p = 0; p < TL_NR_PARTIES && s->was_away; p++)
		tl_standby_kernel_moves(&s->sums[p], &in->kernel[p]);
	tl_standby_lost(s, in, s->lost_q10);
	tl_standby_before(s, in);
	s->at_most_q10 = tl_standby_at_most(s, in);
	if (!tl_standby_has_levels(in))
		why = TL_WHY_NO_LEVELS;
	else if (tl_standby_run_ns(s) == s->sums[TL_PARTY_PLAIN].run_ns)
		why = TL_WHY_NOTHING_WIDE;
	else if (s->at_most_q10 < TL_STANDBY_WORTH_Q10)
		why = TL_WHY_NOTHING_LOST;
	else if (s->failed_ns < s->hold_ns)
		why = TL_WHY_COSTS_MORE;
	if (!why) {
		s->pause_ns = TL_STANDBY_PAUSE_NS;
		tl_standby_enter(s, TL_APART, why);
	} else {
		tl_standby_enter(s, TL_STANDING_BY, why);
	}
}

/* The CPUs are divided: does it pay? */
tl_inline void tl_standby_judge(struct tl_standby *s,
				const struct tl_standby_input *in)
{
	u32 kept = s->age_ns >= 2 * TL_STANDBY_WINDOW_NS;

	tl_shares_tune(&s->shares, in);

	if (s->summed_ns < TL_STANDBY_JUDGE_NS)
		return;
	if (!tl_standby_pays(s, in, kept ? TL_STANDBY_SLACK_Q10 : 0)) {
		s->hold_ns = s->failed_ns < TL_STANDBY_HOLD_MAX_NS ?
				     tl_min_u64(2 * s->hold_ns,
						TL_STANDBY_HOLD_MAX_NS) :
				     s->hold_ns;
		s->failed_ns = 0;
		s->apart_ns = TL_STANDBY_APART_NS;
		s->pause_ns = s->hold_ns;
		tl_standby_enter(s, TL_STANDING_BY, TL_WHY_COSTS_MORE);
	} else if (s->age_ns >= s->apart_ns) {
		s->hold_ns = tl_max_u64(s->hold_ns / 2, TL_STANDBY_HOLD_NS);
		s->apart_ns =
			tl_min_u64(2 * s->apart_ns, TL_STANDBY_HOLD_MAX_NS);
		s->was_away = 0;
		tl_standby_enter(s, TL_LOOKING, TL_WHY_NONE);
	}
}

/* Whether the kernel's own scheduler is to be at work. */
tl_inline u32 tl_standby_is_away(const struct tl_standby *s)
{
	return s->state == TL_STANDING_BY && !s->asks;
}

/* Standing by: is it time to look again? */
tl_inline void tl_standby_wait(struct tl_standby *s, u32 news)
{
	u64 pause_ns = s->pause_ns;

	if (news && s->why == TL_WHY_NOTHING_WIDE)
		pause_ns = tl_max_u64(pause_ns / TL_STANDBY_NEWS,
				      TL_STANDBY_PAUSE_NS);
	if (s->age_ns < pause_ns)
		return;
	s->pause_ns = tl_min_u64(2 * s->pause_ns, TL_STANDBY_PAUSE_MAX_NS);
	s->was_away = tl_standby_is_away(s);
	s->asks = 0;
	tl_standby_enter(s, TL_LOOKING, TL_WHY_NONE);
}

/* Whether the probes of marks are to be in place: while standing by, only if no marked
 * function is called, for then they cost nothing, and say when one is. */
tl_inline u32 tl_standby_keeps_marks(const struct tl_standby *s)
{
	return s->state != TL_STANDING_BY || s->why == TL_WHY_NOTHING_WIDE;
}

/* The application's figure decides: no looks, no judgements. */
tl_inline void tl_standby_follow(struct tl_standby *s, u32 goal)
{
	u32 state = goal == TL_GOAL_APART ? TL_APART : TL_STANDING_BY;

	if (s->state != state || s->why != TL_WHY_GOAL)
		tl_standby_enter(s, state, TL_WHY_GOAL);
}

/* Take in what was seen; true if the state has changed. */
tl_inline u32 tl_standby_update(struct tl_standby *s,
				const struct tl_standby_input *in)
{
	u32 old = s->state;
	u64 skip_ns = old == TL_APART ? TL_STANDBY_SKIP_APART_NS :
					TL_STANDBY_SKIP_NS;

	if (!s->hold_ns) {
		s->hold_ns = TL_STANDBY_HOLD_NS;
		s->apart_ns = TL_STANDBY_APART_NS;
		s->pause_ns = TL_STANDBY_PAUSE_NS;
		s->failed_ns = TL_STANDBY_HOLD_MAX_NS;
	}
	if (s->age_ns >= skip_ns)
		tl_standby_add(s, in);
	s->age_ns += in->elapsed_ns;
	if (s->failed_ns < TL_STANDBY_HOLD_MAX_NS)
		s->failed_ns += in->elapsed_ns;
	s->asks |= in->asks;
	if (in->goal)
		tl_standby_follow(s, in->goal);
	else if (old == TL_APART)
		tl_standby_judge(s, in);
	else if (old == TL_LOOKING)
		tl_standby_look(s, in);
	else
		tl_standby_wait(s, in->news);
	return s->state != old;
}

#endif
