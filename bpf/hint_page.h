/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Hints: memory shared by the BPF scheduler (or the affinity fallback), the
 * daemon that loaded it, and every application that links libturbolane.
 *
 * Problem: an application knows when a wide section begins and ends, often
 * many thousand times a second. A system call for each of these events costs
 * more than most sections gain.
 *
 * Idea: the thread stores what it is about to run in its own slot, then looks
 * at the flags of the CPU it runs on. If the CPU may run it, nothing else
 * happens: a few stores. If not, the thread gives up the CPU (sched_yield);
 * the scheduler reads the slot whenever the task stops running, and places
 * it where it belongs.
 *
 * Order: the store to the slot comes before the look at the CPU, both by the
 * same thread. A migration between the two goes through the scheduler, which
 * then already sees the store. So a thread that found its CPU fit is fit
 * until the scheduler decides otherwise.
 *
 * Which process may write what: two kinds of pages, each an object of its own.
 *
 *   board: what the scheduler publishes, one for all. Applications can map it
 *   for reading only: it is a frozen BPF map, which only BPF programs write,
 *   or (affinity mode) a memfd sealed against new writers.
 *
 *   area: slots of the threads of one process, which alone gets its descriptor.
 *   A process with more threads gets more areas. To the scheduler and the
 *   daemon each byte of it is hostile: they act on nothing but the level, the
 *   rest and the target of the thread that the slot was given to, all bounded,
 *   and which thread that is they keep in memory of their own.
 *
 *   board                                  area
 *   0      64       1024       2048  4096  0         64             4096
 *   +------+--------+----------+-----+     +---------+-- .. --------+
 *   |header| 0      | cpu[1024]| 0   |     | slot[0] | slot[63]     |
 *   +------+--------+----------+-----+     +---------+-- .. --------+
 *
 * cpu[i]:   7        6..4       3..0
 *         +--------+----------+-------+
 *         | scalar | 0        | level |  level: highest licence level CPU i
 *         | leaves |          |       |  may run, 0 = scalar CPU
 *         +--------+----------+-------+
 *
 * number of a slot in all areas (in a reply, and in a task's context, there + 1):
 *
 *          17             6 5           0
 *         +----------------+-------------+
 *         | area           | slot in it  |
 *         +----------------+-------------+
 *
 * An area belongs to a process under one effective user: a set-user-ID program
 * gets another, and a slot that was given before an exec is read no more. So
 * every process that can write an area (its owner, and children that inherited the
 * mapping) may change the affinity of the threads in it by sched_setaffinity
 * anyway.
 *
 * The Rust twin is crates/hint/src/page.rs; both sides assert the layout.
 */
#ifndef TL_HINT_PAGE_H
#define TL_HINT_PAGE_H

#define TL_HINT_MAGIC 0x31484c54u /* "TLH1", little endian */
/* 1 was one page for all, which all could write. */
#define TL_HINT_ABI 2u
#define TL_HINT_CPUS 1024u
#define TL_HINT_AREAS 4096u
#define TL_HINT_AREA_SHIFT 6u
#define TL_HINT_AREA_SLOTS (1u << TL_HINT_AREA_SHIFT)

/* tl_hint_header.mode */
#define TL_HINT_MODE_SCX 1u
#define TL_HINT_MODE_AFFINITY 2u

/* tl_hint_board.cpu[] */
#define TL_HINT_CPU_LEVEL 0x0fu
/* A task that turns scalar on this CPU should give it up: it is a wide CPU,
 * and the machine has scalar ones. */
#define TL_HINT_CPU_SCALAR_LEAVES 0x80u

/* tl_hint_slot.want */
#define TL_HINT_SILENT 0xffffffffu /* the thread has not said anything yet */

struct tl_hint_header {
	u32 magic; /* TL_HINT_MAGIC once the board is ready; by the daemon */
	u32 abi;   /* TL_HINT_ABI; by the daemon */
	/* 1 while a scheduler reads the slots, else 0; set by the daemon,
	 * cleared by the process that sees the scheduler end */
	u32 active;
	u32 mode;	/* TL_HINT_MODE_*; by the daemon */
	u32 nr_cpus;	/* entries of cpu[] in use; by the daemon */
	u32 nr_slots;	/* TL_HINT_AREA_SLOTS; by the daemon */
	u64 generation; /* changes with each change of cpu[]; by the daemon */
	/* scalar phases shorter than this are rests (policy/rest.h), 0 = none
	 * are; by the daemon */
	u64 rest_below_ns;
	/* 1 if the scheduler sends the slots' target_q10 to the governor, else 0;
	 * by the scheduler, as it starts */
	u32 takes_targets;
	/* 1 while the kernel's own scheduler is at work (policy/standby.h), else 0: no
	 * CPU is fit then, and no section moves; by the scheduler */
	u32 standing_by;
	/* CLOCK_MONOTONIC of the daemon's last sign of life, while standing_by; by the
	 * daemon */
	u64 alive_ns;
	/* share of its clock that a core loses by code of each level with all cores
	 * active, 1024 = all of it; entry 0 is 0; by the daemon */
	u16 lacks_q10[4];
};

struct tl_hint_board {
	struct tl_hint_header header;
	u8 reserved0[1024 - sizeof(struct tl_hint_header)];
	u8 cpu[TL_HINT_CPUS];
	u8 reserved1[2048];
};

struct tl_hint_slot {
	/* owner, as the initial PID namespace counts; set by the daemon when it
	 * gives the slot, for the library to check. No one else believes it. */
	u32 tid;
	/* licence level of the section the thread is in, 0 = none (scalar),
	 * or TL_HINT_SILENT; by the thread */
	u32 want;
	/* number of times that an outermost section was begun, or begun
	 * again because a heuristic had ended it; wraps; by the thread,
	 * before want */
	u32 seq;
	/* seq of the section after which the thread rests: want is the
	 * level it will have again, or 0 if the rest is too long for it to stay;
	 * any other number: it does not rest; by the thread, after rest_until_ns */
	u32 rest_seq;
	/* affinity mode: hashes of the masks that the thread has given
	 * itself; by the thread */
	u64 narrowed[4];
	/* CLOCK_MONOTONIC at which the rest ends, 0 = there was none; by the
	 * thread */
	u64 rest_until_ns;
	/* how fast the thread's CPU is to be: a share of its capacity in 1024ths
	 * (policy/target.h), 0 = the thread does not ask; by the thread, or another
	 * of its process */
	u32 target_q10;
	u32 reserved;
};

struct tl_hint_area {
	struct tl_hint_slot slot[TL_HINT_AREA_SLOTS];
};

_Static_assert(sizeof(struct tl_hint_header) == 64, "header is one cache line");
_Static_assert(sizeof(struct tl_hint_slot) == 64, "a slot is one cache line");
_Static_assert(__builtin_offsetof(struct tl_hint_board, cpu) == 1024, "cpu[]");
_Static_assert(sizeof(struct tl_hint_board) == 4096, "the board is a page");
_Static_assert(sizeof(struct tl_hint_area) == 4096, "an area is a page");

#endif
