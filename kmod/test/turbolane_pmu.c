// SPDX-License-Identifier: GPL-2.0
/*
 * Licence counters without hardware: a PMU named "cpu" with the events
 * CORE_POWER.LVL0, LVL1 and LVL2_TURBO_LICENSE, cycles, and instructions, which
 * accumulate faster at lower levels, in a virtual machine that has no PMU at all,
 * so that perf, its groups and what BPF reads of them are the kernel's own in
 * tests of crates/hw and of all that counts levels.
 *
 * A write of "0", "1" or "2" to /dev/turbolane_pmu is one instruction of that
 * level on the CPU that executes the write. As on the CPUs that have the events
 * (DIM 2.2, 6.2), the level is granted a little later (grant_ns), held for
 * relax_ns after the last instruction of at least that level, and then
 * relaxed. A CPU counts only while it is not idle, here: while its idle task
 * does not run. Each CPU is a core of its own; siblings share nothing.
 *
 *   written        2  2                  1
 *   level      000|222222222222|00000|11111111111|000
 *           grant_ns  relax_ns     grant_ns
 *
 * No timer is needed: a level is an interval [from, until), and the time spent at
 * it is added up when it is read. The data of a CPU is accessed only on that CPU,
 * with interrupts off. So there is no lock, and a BPF program may read from
 * anywhere.
 *
 * For tests only. It cannot sample: to get samples, put it into a group whose leader
 * can, which reads its members (perf record -e '{cpu-clock,...}:S').
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
#include <linux/tracepoint.h>

static unsigned long grant_ns = 20000; /* Skylake-SP takes 10 to 20 us */
module_param(grant_ns, ulong, 0444);
MODULE_PARM_DESC(grant_ns, "from a request to its level (default 20000)");

static unsigned long relax_ns = 670000; /* Skylake-SP, DIM 6.2 */
module_param(relax_ns, ulong, 0444);
MODULE_PARM_DESC(relax_ns, "hold after the last request (default 670000)");

#define LEVELS 3
#define CYCLES_PER_NS 2 /* a clock of 2 GHz, whatever the level */
#define RELAX_MAX_NS 60000000000UL

/* Whatever is executed; a core at a lower clock executes less. */
static const unsigned int instructions_per_ns[LEVELS] = {4, 3, 2};

/*
 * What an event counts, in event->hw.idx: time at these levels, as bits; or
 * instructions.
 */
#define ALL_LEVELS 7
#define INSTRUCTIONS 8

struct core {
	u64 at_ns;	      /* accounted for up to here */
	u64 spent_ns[LEVELS]; /* not idle */
	/* At least at this level in between; of level 0 unused. */
	u64 from_ns[LEVELS], until_ns[LEVELS];
	bool idle;
};

static DEFINE_PER_CPU(struct core, cores);

static u64 overlap(u64 from, u64 until, u64 other_from, u64 other_until)
{
	from = max(from, other_from);
	until = min(until, other_until);
	return from < until ? until - from : 0;
}

/*
 * Brings the account of this CPU up to now. A request for level 2 is one for
 * level 1 too, so the interval of 2 lies within that of 1.
 */
static struct core *account(void)
{
	struct core *c = this_cpu_ptr(&cores);
	u64 now = max(ktime_get_mono_fast_ns(), c->at_ns);
	u64 above = 0;

	lockdep_assert_irqs_disabled();
	for (int level = LEVELS - 1; level > 0 && !c->idle; level--) {
		u64 there = overlap(c->at_ns, now, c->from_ns[level],
				    c->until_ns[level]);

		c->spent_ns[level] += there - above;
		above = there;
	}
	if (!c->idle)
		c->spent_ns[0] += now - c->at_ns - above;
	c->at_ns = now;
	return c;
}

/* An instruction of this level, on this CPU, now. */
static void execute(unsigned int level)
{
	struct core *c;
	unsigned long flags;

	local_irq_save(flags);
	c = account();
	for (; level > 0; level--) {
		if (c->until_ns[level] <= c->at_ns)
			c->from_ns[level] = c->at_ns + grant_ns;
		c->until_ns[level] = c->at_ns + relax_ns;
	}
	local_irq_restore(flags);
}

/* ---- the device ---- */

static ssize_t device_write(struct file *file, const char __user *text,
			    size_t size, loff_t *unused)
{
	u8 level;
	int err = kstrtou8_from_user(text, size, 10, &level);

	if (err)
		return err;
	if (level >= LEVELS)
		return -EINVAL;
	execute(level);
	return size;
}

static const struct file_operations device_fops = {
	.owner = THIS_MODULE,
	.write = device_write,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = KBUILD_MODNAME,
	.fops = &device_fops,
	.mode = 0222, /* no right is needed to execute an instruction */
};

/* ---- idle or not ---- */

static void on_switch(void *unused, bool preempt, struct task_struct *prev,
		      struct task_struct *next, unsigned int prev_state)
{
	account()->idle = is_idle_task(next);
}

static struct tracepoint *sched_switch;

static void match(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, "sched_switch"))
		sched_switch = tracepoint;
}

static void look_at_cpu(void *unused)
{
	account()->idle = is_idle_task(current);
}

static int follow_switches(void)
{
	int err;

	for_each_kernel_tracepoint(match, NULL);
	if (!sched_switch)
		return -ENOENT;
	err = tracepoint_probe_register(sched_switch, on_switch, NULL);
	if (!err)
		on_each_cpu(look_at_cpu, NULL, true);
	return err;
}

static void unfollow_switches(void)
{
	tracepoint_probe_unregister(sched_switch, on_switch, NULL);
	tracepoint_synchronize_unregister();
}

/* ---- the PMU ---- */

static int event_init(struct perf_event *event)
{
	static const struct {
		u64 config;
		int levels;
	} level_events[] = {{0x0728, 1}, {0x1828, 2}, {0x2028, 4}, {0x3828, 6}};
	const struct perf_event_attr *attr = &event->attr;
	u64 config = attr->config;

	/* There are no guests to exclude, which perf does by default. */
	if (attr->exclude_user || attr->exclude_kernel || attr->exclude_hv ||
	    attr->exclude_host || attr->exclude_idle)
		return -EINVAL;
	if (attr->type == PERF_TYPE_HARDWARE) {
		bool cycles = config == PERF_COUNT_HW_CPU_CYCLES;

		event->hw.idx = cycles ? ALL_LEVELS : INSTRUCTIONS;
		return cycles || config == PERF_COUNT_HW_INSTRUCTIONS ? 0 :
									-ENOENT;
	}
	if (attr->type != PERF_TYPE_RAW)
		return -ENOENT;
	for (int i = 0; i < ARRAY_SIZE(level_events); i++) {
		if (config == level_events[i].config) {
			event->hw.idx = level_events[i].levels;
			return 0;
		}
	}
	/* A CPU would count zero for an event that it does not have. */
	return -ENOENT;
}

static u64 counter(const struct perf_event *event)
{
	const struct core *c = account();
	u64 count = 0;

	for (int level = 0; level < LEVELS; level++) {
		if (event->hw.idx == INSTRUCTIONS)
			count +=
				c->spent_ns[level] * instructions_per_ns[level];
		else if (event->hw.idx >> level & 1)
			count += c->spent_ns[level] * CYCLES_PER_NS;
	}
	return count;
}

static void event_read(struct perf_event *event)
{
	u64 now = counter(event);
	u64 before = local64_xchg(&event->hw.prev_count, now);

	if (!(event->hw.state & PERF_HES_STOPPED))
		local64_add(now - before, &event->count);
}

static void event_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, counter(event));
	event->hw.state = 0;
}

static void event_stop(struct perf_event *event, int flags)
{
	event_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int event_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		event_start(event, flags);
	return 0;
}

/* As cores of Intel have it: how perf makes a config of the names it knows. */
PMU_FORMAT_ATTR(event, "config:0-7");
PMU_FORMAT_ATTR(umask, "config:8-15");

static struct attribute *format_attrs[] = {
	&format_attr_event.attr,
	&format_attr_umask.attr,
	NULL,
};

static const struct attribute_group format_group = {
	.name = "format",
	.attrs = format_attrs,
};

static const struct attribute_group *attr_groups[] = {
	&format_group,
	NULL,
};

static struct pmu pmu = {
	.module = THIS_MODULE,
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT,
	.attr_groups = attr_groups,
	.task_ctx_nr = perf_hw_context,
	.event_init = event_init,
	.add = event_add,
	.del = event_stop,
	.start = event_start,
	.stop = event_stop,
	.read = event_read,
};

/* ---- all together ---- */

static int __init tl_pmu_init(void)
{
	int err;

	if (!grant_ns || grant_ns >= relax_ns || relax_ns > RELAX_MAX_NS) {
		pr_err("0 < grant_ns < relax_ns <= %lu is not so: %lu, %lu\n",
		       RELAX_MAX_NS, grant_ns, relax_ns);
		return -EINVAL;
	}
	err = follow_switches();
	if (err)
		return err;
	/* Refused, with a warning, where the CPU has a PMU of its own. */
	err = perf_pmu_register(&pmu, "cpu", PERF_TYPE_RAW);
	if (err)
		goto switches;
	err = misc_register(&device);
	if (err)
		goto pmu;
	return 0;
pmu:
	perf_pmu_unregister(&pmu);
switches:
	unfollow_switches();
	return err;
}

static void __exit tl_pmu_exit(void)
{
	misc_deregister(&device);
	perf_pmu_unregister(&pmu);
	unfollow_switches();
}

module_init(tl_pmu_init);
module_exit(tl_pmu_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A PMU with licence counters without hardware, for tests");
