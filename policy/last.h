/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Last system calls: a task leaves its wide CPU in the call after which its section
 * ends.
 *
 * Problem: hints and marks are put around complete functions, and these contain system
 * calls: "wraps Linux socket system calls" (SFMA 4, of OpenSSL). A record is encrypted
 * in 10 us, and the write() after it takes 40 us. So a wide CPU is in the kernel for
 * most of the time that sections take, where tasks with wide code wait for it.
 *
 * To end sections at any system call (the heuristic syscall-entry) is right there, and
 * wrong in the next function: SSL_read() reads first and decrypts afterwards, on a
 * scalar CPU then, whose licence it raises for two thirds of a millisecond.
 *
 * Idea: what follows a call in its section, its tail, is short if there is no wide code
 * in it. Then the task may leave at the call's entry instead of the section's end; it
 * leaves once in either case, so this costs nothing. The policy measures tails:
 *
 *   section  |== cipher ==|--- write() ---|.|           short
 *   section  |-- read() --|== cipher ==|                long
 *
 * It expects of the next one what it has seen in the same place before. The place is
 * known by the last two tails (gap.h has such patterns too), and by whether the call is
 * the first one in its section. After three short ones in a row in a place, tails are
 * short there until one is long.
 *
 *   wide    |== cipher ==|
 *   scalar               |--- write() ---|.|------ ...
 *
 * Meanwhile its section does not count as evidence: it is a guest of the wide CPU, and
 * leaves it if it is wanted there, or if a scalar CPU is idle (locality.h). A task
 * stays if no other task wants its place.
 *
 * Short is below an eighth of the break-even time of rests (rest.h), 2 us unless it was
 * set: a fraction of what a trip to a wide CPU costs. From write() to the end of
 * SSL_write() it is some hundred instructions.
 *
 * Where the task is away, the end of a section by hints is not seen at once, as no
 * library calls the kernel there. So after some tails that are not known, one is
 * looked at: the task stays wide in the call. A section that is still open after a
 * short tail, when the kernel comes by, takes the task back.
 *
 *   seen                                sure                    past
 *   ----------------------------------  ----------------------  -------
 *   short                               + 1; 15 from 3 on       short
 *   long                                0                       long
 *   a hint's end, seen too late to say  - 1                     short
 *
 *   below 3: stays;  3..15: leaves
 *
 * So of 14 tails at least one is seen.
 *
 * Limits. A kernel that does not preempt itself goes on with the call on the wide CPU
 * until it may sleep, as in the lock of a socket. A call with a long tail is spent on the
 * wide CPU, however long it takes; a task that sleeps in it needs no CPU. A section whose begin
 * was not seen is read at the call (detect.bpf.h), at the cost of a look into memory. A
 * trap's periods end at system calls anyway (stay.h).
 */
#ifndef TL_POLICY_LAST_H
#define TL_POLICY_LAST_H

#include "types.h"

/* As often in a row a tail is short before it is expected: as in stay.h. */
#define TL_LAST_SURE 3u
/* So 13 tails in a row need not be seen: what is looked at for nothing is 7 %, and after
 * a change no more than 13 sections run where they should not. */
#define TL_LAST_SURE_MOST 15u
#define TL_LAST_PLACES 8u /* two tails, and whether it is the first call */
#define TL_LAST_FIRST 4u

enum tl_last_state {
	TL_LAST_NONE = 0,  /* no call in the open section, or none is open */
	TL_LAST_CALL,	   /* in a call */
	TL_LAST_TAIL,	   /* after it */
	TL_LAST_CALL_AWAY, /* the same, and its section is not evidence */
	TL_LAST_TAIL_AWAY,
};

/* All zero is a task without calls so far.
 *
 *   0        4      12      13     14      15     16
 *   +--------+------+-------+------+-------+------+
 *   | ran_ns | sure | state | past | place | zero |
 *   +--------+------+-------+------+-------+------+
 */
struct tl_last {
	u32 ran_ns; /* CPU time since the call's entry or return; saturates */
	u8 sure[TL_LAST_PLACES]; /* by place; 0..TL_LAST_SURE_MOST */
	u8 state;		 /* enum tl_last_state */
	u8 past;  /* the last two tails, the latest in bit 0: 1 = long */
	u8 place; /* of the last call: past, then TL_LAST_FIRST */
	u8 zero;
};
_Static_assert(sizeof(struct tl_last) == 16, "drawn above; mirrored in Rust");

/* Whether the sections of the task are no evidence at the moment. */
tl_inline u32 tl_last_is_away(const struct tl_last *l)
{
	return l->state >= TL_LAST_CALL_AWAY;
}

/* The same, and the call is over: its section may be. */
tl_inline u32 tl_last_is_after(const struct tl_last *l)
{
	return l->state == TL_LAST_TAIL_AWAY;
}

/* The task ran. */
tl_inline void tl_last_ran(struct tl_last *l, u64 used_ns)
{
	l->ran_ns = used_ns < ~0u - l->ran_ns ? l->ran_ns + (u32)used_ns : ~0u;
}

tl_inline u32 tl_last_is_short(const struct tl_last *l, u64 even_ns)
{
	return l->ran_ns < even_ns / 8;
}

/* Its tail is over, or its section. is_exact: now; 0: at a time that is not known. */
tl_inline void tl_last_ends(struct tl_last *l, u64 even_ns, u32 is_exact)
{
	u32 at = l->place & (TL_LAST_PLACES - 1), is_long = 0;
	u32 had_tail = l->state == TL_LAST_TAIL || tl_last_is_after(l);

	l->state = TL_LAST_NONE;
	if (!had_tail)
		return;
	if (tl_last_is_short(l, even_ns)) {
		l->sure[at]++;
		if (l->sure[at] >= TL_LAST_SURE)
			l->sure[at] = TL_LAST_SURE_MOST;
	} else if (is_exact) {
		l->sure[at] = 0;
		is_long = 1;
	} else if (l->sure[at]) {
		l->sure[at]--;
	}
	l->past = (l->past << 1 | is_long) & (TL_LAST_FIRST - 1);
}

/* A system call begins in an open section. */
tl_inline void tl_last_enters(struct tl_last *l, u64 even_ns)
{
	u32 place = l->state == TL_LAST_NONE ? TL_LAST_FIRST : 0;

	tl_last_ends(l, even_ns, 1);
	place |= l->past & (TL_LAST_FIRST - 1);
	l->place = place;
	l->ran_ns = 0;
	l->state = l->sure[place] >= TL_LAST_SURE ? TL_LAST_CALL_AWAY :
						    TL_LAST_CALL;
}

/* It returns. */
tl_inline void tl_last_returns(struct tl_last *l)
{
	if (l->state == TL_LAST_CALL)
		l->state = TL_LAST_TAIL;
	else if (l->state == TL_LAST_CALL_AWAY)
		l->state = TL_LAST_TAIL_AWAY;
	else
		return;
	l->ran_ns = 0;
}

/* The kernel comes by, and its section is still open: whether the task is away in a
 * tail that is long; or in a call that takes so long that its end was not seen, for
 * system calls are not watched all the time. */
tl_inline u32 tl_last_is_wrong(const struct tl_last *l, u64 even_ns,
			       u64 wide_timeout_ns)
{
	if (tl_last_is_after(l))
		return !tl_last_is_short(l, even_ns);
	return tl_last_is_away(l) && wide_timeout_ns &&
	       l->ran_ns >= wide_timeout_ns;
}

/* It has trapped: its section goes on with wide code. */
tl_inline void tl_last_trapped(struct tl_last *l)
{
	if (!tl_last_is_away(l))
		return;
	l->state = TL_LAST_TAIL_AWAY;
	tl_last_ends(l, 0, 1);
}

#endif
