// SPDX-License-Identifier: GPL-2.0
/*
 * The control device, /dev/turbolane_trap; uapi/turbolane_trap.h describes it.
 *
 * What an open file has changed lasts as long as the file: CPUs are disarmed
 * and probes removed when it is closed, and the kernel closes it whatever
 * becomes of its process. An open file keeps the module loaded.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "trap.h"

/* One open file. */
struct opener {
	struct tlt_sites sites;
};

static DEFINE_MUTEX(ctl_mutex); /* all below, and each opener's sites */
static struct opener *armed_by; /* NULL: no CPU is armed */

static long get_info(void __user *to)
{
	struct tlt_info info = {
		.abi_version = TLT_ABI_VERSION,
		.cpus_armed = tlt_nr_armed(),
		.xcr0_full = tlt_xcr0_full,
		.xcr0_withheld = tlt_xcr0_withheld,
		.files_unread = tlt_nr_unread(),
	};

	return copy_to_user(to, &info, sizeof(info)) ? -EFAULT : 0;
}

/* The user's bitmap; CPUs that cannot exist are an error. */
static int read_cpus(const struct tlt_arm *arm, struct cpumask *cpus)
{
	const u64 __user *from = u64_to_user_ptr(arm->cpus_ptr);

	cpumask_clear(cpus);
	for (u32 i = 0; i < arm->cpus_words; i++) {
		u64 word;

		if (get_user(word, from + i))
			return -EFAULT;
		for (u32 bit = 0; bit < 64; bit++) {
			u64 cpu = i * 64ull + bit;

			if (!(word >> bit & 1))
				continue;
			if (cpu >= nr_cpu_ids || !cpu_possible(cpu))
				return -ENODEV;
			cpumask_set_cpu(cpu, cpus);
		}
	}
	return 0;
}

static long arm(struct opener *opener, const void __user *from)
{
	struct tlt_arm arm;
	cpumask_var_t cpus;
	int err;

	if (copy_from_user(&arm, from, sizeof(arm)))
		return -EFAULT;
	if (arm.reserved || arm.cpus_words > DIV_ROUND_UP(NR_CPUS, 64))
		return -EINVAL;
	if (armed_by && armed_by != opener)
		return -EBUSY;
	if (!alloc_cpumask_var(&cpus, GFP_KERNEL))
		return -ENOMEM;
	err = read_cpus(&arm, cpus);
	if (!err)
		err = tlt_arm_cpus(cpus);
	if (!err)
		armed_by = cpumask_empty(cpus) ? NULL : opener;
	free_cpumask_var(cpus);
	return err;
}

static long add_site(struct opener *opener, const void __user *from)
{
	struct tlt_site site;

	if (copy_from_user(&site, from, sizeof(site)))
		return -EFAULT;
	return site.reserved ? -EINVAL : tlt_site_add(&opener->sites, &site);
}

static long read_file(struct opener *opener, const void __user *from)
{
	struct tlt_read what;

	if (copy_from_user(&what, from, sizeof(what)))
		return -EFAULT;
	if (what.step > TLT_READ_END)
		return -EINVAL;
	return tlt_file_read(&opener->sites, &what);
}

static struct task_struct *get_task(pid_t nr)
{
	struct pid *pid = find_get_pid(nr);
	struct task_struct *p = get_pid_task(pid, PIDTYPE_PID);

	put_pid(pid);
	return p;
}

static long learn(const void __user *from)
{
	struct tlt_learn learn;
	struct task_struct *p;
	long err = -ESRCH;

	if (copy_from_user(&learn, from, sizeof(learn)))
		return -EFAULT;
	if (learn.verdict > TLT_VERDICT_LIGHT)
		return -EINVAL;
	p = get_task(learn.pid);
	if (!p)
		return err;
	if (atomic_read(&p->signal->live)) {
		tlt_process_learn(p, learn.verdict);
		err = 0;
	}
	put_task_struct(p);
	return err;
}

static long get_cpu_counters(void __user *to)
{
	struct tlt_get_cpu get;

	if (copy_from_user(&get, to, sizeof(get)))
		return -EFAULT;
	if (get.reserved)
		return -EINVAL;
	if (get.cpu >= nr_cpu_ids || !cpu_possible(get.cpu))
		return -ENODEV;
	get.counters = per_cpu(tlt_cpu, get.cpu).counters;
	return copy_to_user(to, &get, sizeof(get)) ? -EFAULT : 0;
}

static long get_task_counters(void __user *to)
{
	struct tlt_get_task get;
	struct task_struct *p;
	struct tlt_task *t;

	if (copy_from_user(&get, to, sizeof(get)))
		return -EFAULT;
	p = get_task(get.tid);
	if (!p)
		return -ESRCH;
	get = (struct tlt_get_task){.tid = get.tid};
	rcu_read_lock();
	t = tlt_task_find(p);
	if (t) {
		get.traps = t->traps;
		get.traps_heavy = t->traps_heavy;
		get.traps_light = t->traps_light;
		get.steered = t->steered;
		get.last_ip = t->last_ip;
	}
	rcu_read_unlock();
	get.verdict = tlt_process_verdict(p);
	put_task_struct(p);
	return copy_to_user(to, &get, sizeof(get)) ? -EFAULT : 0;
}

static long ctl_ioctl(struct file *file, unsigned int what, unsigned long arg)
{
	void __user *user_arg = (void __user *)arg;
	struct opener *opener = file->private_data;
	long ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	mutex_lock(&ctl_mutex);
	switch (what) {
	case TLT_IOC_INFO:
		ret = get_info(user_arg);
		break;
	case TLT_IOC_ARM:
		ret = arm(opener, user_arg);
		break;
	case TLT_IOC_SITE:
		ret = add_site(opener, user_arg);
		break;
	case TLT_IOC_READ:
		ret = read_file(opener, user_arg);
		break;
	case TLT_IOC_LEARN:
		ret = learn(user_arg);
		break;
	case TLT_IOC_GET_CPU:
		ret = get_cpu_counters(user_arg);
		break;
	case TLT_IOC_GET_TASK:
		ret = get_task_counters(user_arg);
		break;
	default:
		ret = -ENOTTY;
	}
	mutex_unlock(&ctl_mutex);
	return ret;
}

static int ctl_open(struct inode *inode, struct file *file)
{
	struct opener *opener = kzalloc(sizeof(*opener), GFP_KERNEL);

	if (!opener)
		return -ENOMEM;
	tlt_sites_init(&opener->sites);
	file->private_data = opener;
	return 0;
}

static int ctl_release(struct inode *inode, struct file *file)
{
	struct opener *opener = file->private_data;

	mutex_lock(&ctl_mutex);
	if (armed_by == opener) {
		tlt_arm_cpus(cpu_none_mask);
		armed_by = NULL;
	}
	tlt_sites_drop(&opener->sites);
	mutex_unlock(&ctl_mutex);
	kfree(opener);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = ctl_open,
	.release = ctl_release,
	.unlocked_ioctl = ctl_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = TLT_DEVICE,
	.fops = &operations,
	.mode = 0600,
};

int tlt_ctl_init(void)
{
	return misc_register(&device);
}

void tlt_ctl_exit(void)
{
	misc_deregister(&device);
}
