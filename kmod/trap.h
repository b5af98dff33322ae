/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the module share.
 *
 *   main.c    load, unload, CPU hotplug
 *   arm.c     XCR0: the only file that writes it
 *   live.c    withheld state that is alive when XCR0 is reduced
 *   hooks.c   hooks in the kernel: switch, FPU code, return to user
 *   xstate.c  whether the kernel has other FPU code than that
 *   entry.S   the first thing that the kernel's FPU code calls
 *   trap.c    the trap and what is decided about it
 *   gp.c      its other fault
 *   periods.c how long a task has the full XCR0
 *   settings.c  the module's parameters
 *   levels.c  licence counters: wide code that did not trap
 *   glance.c  light use in a process that proved wide
 *   notes.c   notes about tasks and processes
 *   sites.c   files that user space knows, and places in them that must see
 *             the full XCR0
 *   read.c    processes that have code which was not read
 *   newcode.c  libraries that are loaded late
 *   ctl.c     the control device
 *   decode.c  the trapped instruction
 *   ahead.c   the code after it
 */
#ifndef TLT_TRAP_H
#define TLT_TRAP_H

#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/list.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/types.h>
#include <linux/user-return-notifier.h>

#include "uapi/turbolane_trap.h"

struct module;
struct perf_event;
struct tlt_task;

/* ---- one CPU ---- */

/* User code with the full XCR0 on an armed CPU, without a switch; see levels.c. */
struct tlt_stretch {
	bool runs;	     /* one has begun and not ended */
	bool certain;	     /* a rise of the level in it is due to it */
	const void *process; /* signal_struct of the last, only to compare */
	u64 nr;		     /* so far */
	u64 from_cycles;     /* the counter at its beginning */
	u64 siblings_nr;     /* the siblings' `nr` then */
	u64 ended_ns;	     /* local_clock(), of the last */
	u64 settled_ns;	     /* when requests of another process are granted */
};

struct tlt_cpu {
	bool reduced; /* XCR0 lacks the withheld components now; entry.S reads it
			  as the first byte; written on this CPU only */
	bool armed;   /* withholds from user code; ditto */
	bool parked;  /* live components lie in `park`, not in registers */
	bool notified; /* `notifier` is registered; from online to offline */
	void *park;    /* XSAVE area, standard format, 64-byte aligned */
	u64 skip_until_ns; /* local_clock(); leave all tasks full; 0 = no */
	const void *
		just_trapped; /* struct tlt_task, only to compare; see trap.c */
	struct perf_event *level_event; /* NULL: no licence counter */
	unsigned int level_counted;	/* it counts this level and above */
	struct tlt_stretch stretch;
	struct hrtimer glance_end; /* see glance.c */
	struct user_return_notifier notifier;
	struct hlist_node **list_first; /* the kernel's list of notifiers */
	struct tlt_cpu_counters counters;
};
static_assert(offsetof(struct tlt_cpu, reduced) == 0);
DECLARE_PER_CPU_ALIGNED(struct tlt_cpu, tlt_cpu);

/* ---- arm.c ---- */

enum tlt_full_reason {
	TLT_FULL_SWITCH,
	TLT_FULL_FPU,
	TLT_FULL_TRAP,
	TLT_FULL_CODE,
	TLT_FULL_DISARM,
};

enum tlt_reduction {
	TLT_REDUCED,
	TLT_LEFT_LIVE, /* the task has live state that cannot be put aside */
	TLT_LEFT_FULL, /* the invariant does not hold: nothing is withheld */
};

extern u64 tlt_xcr0_full, tlt_xcr0_withheld;

int tlt_arm_init(const char *components);
int tlt_arm_cpu_up(unsigned int cpu);
int tlt_arm_cpu_down(unsigned int cpu);
int tlt_arm_cpus(const struct cpumask *cpus);
unsigned int tlt_nr_armed(void);
bool tlt_is_armed(unsigned int cpu);
enum tlt_reduction tlt_reduce(struct tlt_cpu *c);
void tlt_make_full(enum tlt_full_reason why);
void tlt_distrust(void);
void tlt_violation(struct tlt_cpu *c, const char *what, u64 xcr0);

/* Full from here to the next return to user mode. Any context but NMI. */
static __always_inline void tlt_full(enum tlt_full_reason why)
{
	if (unlikely(this_cpu_read(tlt_cpu.reduced)))
		tlt_make_full(why);
}

/* ---- live.c ---- */

enum tlt_liveness {
	TLT_CLEAN, /* nothing to lose, or all of it parked */
	TLT_LIVE,  /* withholding would destroy user state */
};

int tlt_live_init(void);
void tlt_live_exit(void);
enum tlt_liveness tlt_park(struct tlt_cpu *c);
void tlt_unpark(struct tlt_cpu *c);

/* ---- levels.c ---- */

void tlt_levels_init(void);
void tlt_levels_open(unsigned int cpu);
void tlt_levels_close(unsigned int cpu);
void tlt_levels_follow(const struct cpumask *armed);
void tlt_stretch_begins(struct tlt_cpu *c);
void tlt_stretch_ends(struct tlt_cpu *c);

/* The current task returns to user mode with the full XCR0. Interrupts off. */
static __always_inline void tlt_runs_on_full(struct tlt_cpu *c)
{
	if (c->level_event && !c->stretch.runs)
		tlt_stretch_begins(c);
}

/* It is switched out, or to run reduced. Interrupts off. */
static __always_inline void tlt_ran_full(void)
{
	if (unlikely(this_cpu_read(tlt_cpu.stretch.runs)))
		tlt_stretch_ends(this_cpu_ptr(&tlt_cpu));
}

/* ---- glance.c ---- */

void tlt_glance_init(void);
void tlt_glance_exit(void);
u64 tlt_glance_begins(struct tlt_cpu *c, struct tlt_task *t,
		      const struct pt_regs *regs, u64 now_ns);
void tlt_glance_wide(struct tlt_task *t, u64 now_ns, bool missed);

/* ---- hooks.c ---- */

int tlt_hooks_init(void);
void tlt_hooks_exit(void);
void tlt_notify_register(struct tlt_cpu *c);
void tlt_notify_unregister(struct tlt_cpu *c);
void tlt_load_user_registers(void);

struct ftrace_ops;
unsigned long tlt_address_of(const char *name);
int tlt_filter_function(struct ftrace_ops *ops, const char *name,
			unsigned long *begin);
bool tlt_is_hooked(unsigned long begin, const char *function, size_t length);

/* ---- xstate.c ---- */

int tlt_xstate_check(void);
bool tlt_xstate_in_module(const struct module *module);

/* ---- notes.c ---- */

/* A note under an address that is never dereferenced. */
struct tlt_note {
	struct hlist_node node;
	const void *key;
	struct rcu_head rcu;
};

struct tlt_task {
	struct tlt_note note; /* key: its task_struct */
	u64 full_until_ns; /* local_clock(); grace or hold period; 0 = none */
	u64 full_until_run_ns; /* its own se.sum_exec_runtime; 0 = none */
	u64 rate_second;       /* local_clock() in s: what rate_traps counts */
	unsigned long last_ip;
	bool raised_level; /* seen by levels.c; its process is to learn it */
	u8 last_kind;	   /* of the instruction there: struct tlt_insn */
	u8 last_level;
	unsigned long gp_ip; /* restarted after #GP; 0 = none */
	u32 vain_moves;	     /* in a row, back from full CPUs, nothing done */
	u32 rate_traps;
	u64 traps, traps_heavy, traps_light, steered;
	u64 glance_since_ns; /* local_clock(); its last; 0 = none, or over */
	u16 glance_site;     /* where that was */
};

struct tlt_process {
	struct tlt_note note; /* key: its signal_struct */
	u32 verdict;	      /* enum tlt_verdict */
};

struct tlt_task *tlt_task_find(const struct task_struct *p);
struct tlt_task *tlt_task_get(const struct task_struct *p);
u32 tlt_process_verdict(const struct task_struct *p);
void tlt_process_learn(const struct task_struct *p, u32 verdict);
void tlt_notes_forget(const struct task_struct *p);
void tlt_notes_exit(void);
bool tlt_notes_any(void);

/* ---- trap.c ---- */

int tlt_trap_init(void);
void tlt_trap_exit(void);
void tlt_left_live(struct tlt_cpu *c);
void tlt_level_rose(struct tlt_cpu *c);
unsigned int tlt_fetch(struct pt_regs *regs, u8 *bytes, unsigned int n);

/* ---- gp.c ---- */

bool tlt_claims_gp(struct pt_regs *regs);

/* ---- periods.c ---- */

bool tlt_runs_full(struct tlt_cpu *c);
void tlt_full_for_a_while(void);
void tlt_full_at_site(void);
void tlt_executed(void);
void tlt_maps_code(bool of_file);
void tlt_migrating(struct task_struct *p, int to_cpu);

/* The task, or the CPU if there is no memory for a note, is left full from now on.
 * Interrupts off. */
static inline void tlt_leave_full(struct tlt_cpu *c, struct tlt_task *t,
				  u64 now_ns, u64 period_ns)
{
	if (t)
		t->full_until_ns = now_ns + period_ns;
	else
		c->skip_until_ns = now_ns + period_ns;
}

/* ---- sites.c ---- */

/* What an open control device has made known; under its mutex. */
struct tlt_sites {
	struct list_head files;
	unsigned int nr_files, nr_sites;
};

int tlt_files_init(void);
void tlt_files_exit(void);
void tlt_sites_init(struct tlt_sites *sites);
int tlt_site_add(struct tlt_sites *sites, const struct tlt_site *site);
int tlt_file_read(struct tlt_sites *sites, const struct tlt_read *what);
void tlt_sites_drop(struct tlt_sites *sites);

/* ---- read.c ---- */

/* A file in its table, or not yet. */
struct tlt_read_file {
	struct hlist_node node;
	const struct inode *inode; /* only to compare */
	bool is_read;
	unsigned int nr_sites; /* of sites.c */
};

void tlt_is_read(struct tlt_read_file *file);
void tlt_unread(struct tlt_read_file *file);
u64 tlt_nr_unread(void);
bool tlt_has_unread_code(struct tlt_cpu *c);
void tlt_code_changes(struct mm_struct *mm);

/* ---- newcode.c ---- */

int tlt_newcode_init(void);
void tlt_newcode_exit(void);

/* ---- ctl.c ---- */

int tlt_ctl_init(void);
void tlt_ctl_exit(void);

#endif
