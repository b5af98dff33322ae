// SPDX-License-Identifier: GPL-2.0
/*
 * A cpufreq driver without hardware: policies, P-states and transitions of the
 * kernel's own core, on a machine that has none, so that governors, sysfs and
 * limits are the real ones in tests of crates/pstate.
 *
 * P-states are those of the AMD FX-8120 (TURBO Diaries): 4.0 and 3.4 GHz, which
 * that machine reaches by boost only, then 3.1 down to 1.4 GHz. A "transition"
 * stores the number; scaling_cur_freq shows it. The boost switch is there and
 * remembers its state, but takes no P-state away.
 *
 * For tests only.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpufreq.h>
#include <linux/module.h>
#include <linux/version.h>

static unsigned int cpus_per_policy = 1;
module_param(cpus_per_policy, uint, 0444);
MODULE_PARM_DESC(cpus_per_policy, "CPUs that share a P-state (default 1)");

static struct cpufreq_frequency_table table[] = {
	{.frequency = 4000000}, {.frequency = 3400000},
	{.frequency = 3100000}, {.frequency = 2800000},
	{.frequency = 2300000}, {.frequency = 1900000},
	{.frequency = 1400000}, {.frequency = CPUFREQ_TABLE_END},
};

#define BASE 2 /* index of 3.1 GHz */

static unsigned int now_khz[NR_CPUS]; /* by the first CPU of a policy */

static unsigned int first_of(unsigned int cpu)
{
	return cpu - cpu % cpus_per_policy;
}

static int tl_init(struct cpufreq_policy *policy)
{
	unsigned int first = first_of(policy->cpu);

	for (unsigned int i = 0; i < cpus_per_policy; i++)
		if (first + i < nr_cpu_ids && cpu_possible(first + i))
			cpumask_set_cpu(first + i, policy->cpus);
	policy->freq_table = table;
	policy->cpuinfo.transition_latency =
		10000; /* ns: TURBO 8, 28k cycles */
	policy->dvfs_possible_from_any_cpu = true;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	policy->boost_supported = true; /* earlier the driver alone says so */
#endif
	if (!now_khz[first])
		now_khz[first] = table[BASE].frequency;
	policy->cur = now_khz[first];
	return 0;
}

static int tl_target_index(struct cpufreq_policy *policy, unsigned int index)
{
	now_khz[first_of(policy->cpu)] = table[index].frequency;
	return 0;
}

static unsigned int tl_get(unsigned int cpu)
{
	return now_khz[first_of(cpu)];
}

static int tl_set_boost(struct cpufreq_policy *policy, int state)
{
	return 0;
}

static struct cpufreq_driver driver = {
	.name = "turbolane_test",
	/* No clock changes: the kernel need not distrust the TSC. */
	.flags = CPUFREQ_CONST_LOOPS,
	.init = tl_init,
	.verify = cpufreq_generic_frequency_table_verify,
	.target_index = tl_target_index,
	.get = tl_get,
	.boost_enabled = true,
	.set_boost = tl_set_boost,
};

static int __init tl_cpufreq_init(void)
{
	if (!cpus_per_policy)
		return -EINVAL;
	return cpufreq_register_driver(&driver);
}

static void __exit tl_cpufreq_exit(void)
{
	cpufreq_unregister_driver(&driver);
}

module_init(tl_cpufreq_init);
module_exit(tl_cpufreq_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("A cpufreq driver without hardware, for tests");
