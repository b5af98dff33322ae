// SPDX-License-Identifier: GPL-2.0
/*
 * DIM's policies in a kernel: which tasks raise the clock, on a CPU that lets
 * software do so (docs/silicon-registers.md; the dim-silicon machine is one).
 *
 * Hints (DIM 6.2.2). A program knows when its wide code is over for a while, and
 * when it is not. It says so by an ioctl of /dev/turbolane_dim, about the core on
 * which it runs: let the level fall now, or hold it for another time from now on.
 *
 * Context switches (DIM 5.3), with switches=1. "To increase the frequency during
 * context switches when it is known that the next task is unlikely to use AVX-512
 * or AVX2" (DIM 7.1). What the next task is likely to use its power score says
 * (DIM 5.2, ../../policy/score.h, as in the scheduler):
 *
 *   sched_switch: level now --> score of the task that leaves
 *                 score of the task that comes < level now --> let it fall there
 *
 * The level is read from the CPU's status register, where DIM samples counters
 * twice. Idle and kernel threads are left out: a halt to raise the clock of what
 * takes microseconds never pays.
 *
 * Notices (SYSTOR 5). A third ioctl arms the CPU to interrupt before code asks for
 * a level, or when it has not for a while. The interrupt only counts, and keeps
 * the status that it found: what a scheduler would do then is not for a test.
 *
 * Scores lie in a table of SCORES places. A task whose place another one has
 * taken begins at 0 again, as a new task.
 *
 * Limits: for tests and measurements only. A delay belongs to a core and stays
 * when the task that set it leaves; unloading takes all of them back. Every user
 * may use the device.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/hash.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/tracepoint.h>
#include <asm/apic.h>
#include <asm/msr.h>
#include <asm/nmi.h>

#include "policy/score.h"

#define LICENSE_INFO 0x40000080
#define LICENSE_DELAY 0x40000081
#define LICENSE_FORCE 0x40000082
#define LICENSE_STATUS 0x40000083
#define LICENSE_NOTICE 0x40000084

#define INFO_VERSION 0xff
#define DELAY_IN_FORCE BIT_ULL(63)
#define STATUS_GRANTED 0xff
#define STATUS_TARGET 0xff00
#define NOTICE_WARNED BIT(16)
#define NOTICE_ENDED BIT(17)

/*
 * ioctl(fd, DIM_FORCE, level); ioctl(fd, DIM_DELAY, ns, or one of these);
 * ioctl(fd, DIM_NOTICE, the register)
 */
#define DIM_FORCE _IO('T', 0x71)
#define DIM_DELAY _IO('T', 0x72)
#define DIM_NOTICE _IO('T', 0x73)
#define DIM_DELAY_OWN (-1UL)
#define DIM_DELAY_EVER 0xffffffffUL

#define SCORES_BITS 10

static bool switches;
module_param(switches, bool, 0444);
MODULE_PARM_DESC(switches, "force changes at context switches (default off)");

static unsigned long forced;
module_param(forced, ulong, 0444);
MODULE_PARM_DESC(forced, "changes forced at switches so far; to be read only");

static unsigned long warned, ended, warned_status;
module_param(warned, ulong, 0444);
MODULE_PARM_DESC(warned, "notices before code asked; to be read only");
module_param(ended, ulong, 0444);
MODULE_PARM_DESC(ended, "notices that it no longer does; to be read only");
module_param(warned_status, ulong, 0444);
MODULE_PARM_DESC(warned_status, "what the last of the first found; ditto");

/* By halves: the kernel has renamed what reads and writes a register at once. */
static u64 read_status(void)
{
	u32 low, high;

	rdmsr(LICENSE_STATUS, low, high);
	return (u64)high << 32 | low;
}

/* ---- hints ---- */

static long hint(struct file *file, unsigned int what, unsigned long value)
{
	u32 number = LICENSE_DELAY;

	switch (what) {
	case DIM_FORCE:
		number = LICENSE_FORCE;
		break;
	case DIM_DELAY:
		if (value == DIM_DELAY_OWN)
			value = 0;
		else if (value <= DIM_DELAY_EVER)
			value |= DELAY_IN_FORCE;
		else
			return -EINVAL;
		break;
	case DIM_NOTICE:
		number = LICENSE_NOTICE;
		break;
	default:
		return -ENOTTY;
	}
	return wrmsr_safe(number, value, value >> 32) ? -EINVAL : 0;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = hint,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &device_fops,
	.mode = 0666,
};

/* ---- notices ---- */

static int on_nmi(unsigned int type, struct pt_regs *regs)
{
	u32 given, duration_ns;

	rdmsr(LICENSE_NOTICE, given, duration_ns);
	if (!(given & (NOTICE_WARNED | NOTICE_ENDED)))
		return NMI_DONE;
	if (given & NOTICE_WARNED) {
		WRITE_ONCE(warned, warned + 1);
		WRITE_ONCE(warned_status, read_status());
	}
	if (given & NOTICE_ENDED)
		WRITE_ONCE(ended, ended + 1);
	/* The other one stays armed. */
	given &= ~(NOTICE_WARNED | NOTICE_ENDED);
	wrmsr(LICENSE_NOTICE, given, duration_ns);
	/* A notice masks its entry, as the overflow of a counter does. */
	native_apic_mem_write(APIC_LVTPC, APIC_DM_NMI);
	return NMI_HANDLED;
}

/* ---- context switches ---- */

/* Whose score it is: a pid alone is used again. */
struct place {
	pid_t pid;
	u64 start_ns;
	struct tl_score score;
};

static struct place places[1 << SCORES_BITS];
static DEFINE_RAW_SPINLOCK(places_lock);

/* What runs on this CPU now: since when, and the level it found. */
struct run {
	u64 since_ns;
	u32 level;
};
static DEFINE_PER_CPU(struct run, runs);

static bool is_scored(const struct task_struct *task)
{
	return !(task->flags & PF_KTHREAD);
}

/* With the lock. */
static struct tl_score *score_of(const struct task_struct *task)
{
	struct place *p = &places[hash_32(task->pid, SCORES_BITS)];

	if (p->pid != task->pid || p->start_ns != task->start_time)
		*p = (struct place){
			.pid = task->pid,
			.start_ns = task->start_time,
		};
	return &p->score;
}

/* The level that is granted or requested. */
static u32 level_now(void)
{
	u64 status = read_status();

	return max(status & STATUS_GRANTED, (status & STATUS_TARGET) >> 8);
}

static void on_switch(void *unused, bool preempt, struct task_struct *prev,
		      struct task_struct *next, unsigned int prev_state)
{
	struct run *run = this_cpu_ptr(&runs);
	u64 now_ns = local_clock();
	u32 level = level_now(), expected = level;

	raw_spin_lock(&places_lock);
	if (is_scored(prev)) {
		struct tl_score *s = score_of(prev);

		tl_score_switch(s, run->level, level, now_ns - run->since_ns);
		s->level = tl_score_level(s);
	}
	if (is_scored(next))
		expected = score_of(next)->level;
	raw_spin_unlock(&places_lock);
	if (expected < level) {
		wrmsr(LICENSE_FORCE, expected, 0);
		WRITE_ONCE(forced, forced + 1);
		level = expected;
	}
	run->level = level;
	run->since_ns = now_ns;
}

static struct tracepoint *sched_switch;

static void match(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "sched_switch"))
		sched_switch = tracepoint;
}

static int follow_switches(void)
{
	for_each_kernel_tracepoint(match, NULL);
	if (!sched_switch)
		return -ENOENT;
	return tracepoint_probe_register(sched_switch, on_switch, NULL);
}

static void unfollow_switches(void)
{
	tracepoint_probe_unregister(sched_switch, on_switch, NULL);
	tracepoint_synchronize_unregister();
}

/* ---- all together ---- */

static void take_back(void *unused)
{
	wrmsr(LICENSE_DELAY, 0, 0);
	wrmsr(LICENSE_NOTICE, 0, 0);
}

static int __init dim_init(void)
{
	u32 info, hold_ns;
	int err;

	/* Emulators read 0 from registers that they do not have. */
	if (rdmsr_safe(LICENSE_INFO, &info, &hold_ns) ||
	    (info & INFO_VERSION) != 1) {
		pr_err("this CPU has no registers to raise its clock by\n");
		return -ENODEV;
	}
	err = register_nmi_handler(NMI_LOCAL, on_nmi, 0, KBUILD_MODNAME);
	if (err)
		return err;
	if (switches) {
		err = follow_switches();
		if (err)
			goto nmi;
	}
	err = misc_register(&device);
	if (!err)
		return 0;
	if (switches)
		unfollow_switches();
nmi:
	unregister_nmi_handler(NMI_LOCAL, KBUILD_MODNAME);
	return err;
}

static void __exit dim_exit(void)
{
	misc_deregister(&device);
	if (switches)
		unfollow_switches();
	on_each_cpu(take_back, NULL, true);
	unregister_nmi_handler(NMI_LOCAL, KBUILD_MODNAME);
}

module_init(dim_init);
module_exit(dim_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("DIM's policies on a CPU whose clock software can raise");
