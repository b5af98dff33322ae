// SPDX-License-Identifier: GPL-2.0
/*
 * Watches the invariant of ../arm.c from outside: a probe on each XSAVE*,
 * XRSTOR* of the kernel looks at XCR0 before the instruction is executed.
 *
 * The places come as a parameter, since they differ between kernels: the test
 * finds them by disassembling the running one. The counts are in
 * /sys/kernel/debug/turbolane_xcheck, a line "SITE executed reduced" each.
 *
 * With taken=FUNCTION it instead acts like a BPF program that has a function of the
 * kernel for itself (a direct call of ftrace).
 *
 * For tests only. A probe on a hot instruction is an int3 each time.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/debugfs.h>
#include <linux/ftrace.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <asm/fpu/xcr.h>

#define SITES_MAX 64

struct site {
	char function[64];
	struct kprobe probe;
	atomic64_t executed, reduced;
};

static char *sites[SITES_MAX]; /* "function+0x1f" */
static int nr_sites;
module_param_array(sites, charp, &nr_sites, 0444);
MODULE_PARM_DESC(sites, "places of XSAVE*, XRSTOR*: function+0xOFFSET,...");

static char *taken;
module_param(taken, charp, 0444);
MODULE_PARM_DESC(taken,
		 "a function to take, so that no other user can have it");

static struct site site[SITES_MAX];
static u64 xcr0_full;
static struct dentry *file;

static int before(struct kprobe *probe, struct pt_regs *regs)
{
	struct site *s = container_of(probe, struct site, probe);

	atomic64_inc(&s->executed);
	if (xgetbv(XCR_XFEATURE_ENABLED_MASK) != xcr0_full)
		atomic64_inc(&s->reduced);
	return 0;
}

static int sites_show(struct seq_file *m, void *unused)
{
	for (int i = 0; i < nr_sites; i++)
		seq_printf(m, "%s %lld %lld\n", sites[i],
			   atomic64_read(&site[i].executed),
			   atomic64_read(&site[i].reduced));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(sites);

static int put_probe(struct site *s, const char *where)
{
	const char *plus = strchr(where, '+');
	u32 offset;

	if (!plus || plus - where >= sizeof(s->function) ||
	    kstrtou32(plus + 1, 0, &offset))
		return -EINVAL;
	memcpy(s->function, where, plus - where);
	s->probe.symbol_name = s->function;
	s->probe.offset = offset;
	s->probe.pre_handler = before;
	return register_kprobe(&s->probe);
}

static void remove_probes(int nr)
{
	while (nr--)
		unregister_kprobe(&site[nr].probe);
}

/* Touches no register that may hold an argument. */
static noinline notrace void nothing(void)
{
}

static struct ftrace_ops taking;

static int take(void)
{
	int err = ftrace_set_filter(&taking, taken, strlen(taken), 1);

	if (!err)
		err = register_ftrace_direct(&taking, (unsigned long)nothing);
	return err;
}

static int __init xcheck_init(void)
{
	if (taken)
		return take();
	if (!nr_sites)
		return -EINVAL;
	xcr0_full = xgetbv(XCR_XFEATURE_ENABLED_MASK);
	for (int i = 0; i < nr_sites; i++) {
		int err = put_probe(&site[i], sites[i]);

		if (err) {
			pr_err("cannot probe %s: %d\n", sites[i], err);
			remove_probes(i);
			return err;
		}
	}
	file = debugfs_create_file(KBUILD_MODNAME, 0400, NULL, NULL,
				   &sites_fops);
	return 0;
}

static void __exit xcheck_exit(void)
{
	if (taken)
		unregister_ftrace_direct(&taking, (unsigned long)nothing, true);
	debugfs_remove(file);
	remove_probes(nr_sites);
}

module_init(xcheck_init);
module_exit(xcheck_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION(
	"Tests that the kernel saves vector state with the full XCR0 only");
