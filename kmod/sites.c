// SPDX-License-Identifier: GPL-2.0
/*
 * Places in programs that must see the full XCR0.
 *
 * Problem: XGETBV shows the reduced XCR0, and XSAVE leaves out what is
 * withheld; neither faults. A program that looks for AVX-512 long after it was
 * started (a library loaded late) would not find it on a scalar CPU.
 *
 * Idea: user space knows where those instructions are (a scan of the mapped
 * files) and gives a probe before each. The task then has the full XCR0 for a
 * while; nothing is emulated. A probe costs microseconds and is met a few times
 * in a program's life.
 *
 * The kernel cannot probe an XGETBV itself (its single-stepping knows no
 * 0F 01), so the place is an instruction before it on the same path.
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/slab.h>
#include <linux/uprobes.h>
#include <linux/version.h>

#include "trap.h"

struct site {
	struct list_head list;
	struct inode *inode;
	struct uprobe *uprobe;
	struct uprobe_consumer consumer;
};

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
static int on_site(struct uprobe_consumer *consumer, struct pt_regs *regs,
		   __u64 *data)
#else
static int on_site(struct uprobe_consumer *consumer, struct pt_regs *regs)
#endif
{
	if (tlt_nr_armed())
		tlt_full_for_a_while();
	return 0;
}

int tlt_site_add(struct tlt_sites *sites, const struct tlt_site *where)
{
	struct file *file;
	struct site *site;
	int err;

	site = kzalloc(sizeof(*site), GFP_KERNEL);
	if (!site)
		return -ENOMEM;
	file = fget(where->fd);
	if (!file) {
		kfree(site);
		return -EBADF;
	}
	/* In a container the file may be one of an overlay; what is mapped, and
	 * so what carries the probe, is the file below. */
	site->inode = igrab(d_real_inode(file->f_path.dentry));
	fput(file);
	site->consumer.handler = on_site;
	site->uprobe = uprobe_register(site->inode, where->offset_bytes, 0,
				       &site->consumer);
	if (IS_ERR(site->uprobe)) {
		err = PTR_ERR(site->uprobe);
		iput(site->inode);
		kfree(site);
		return err;
	}
	list_add(&site->list, &sites->list);
	return 0;
}

void tlt_sites_drop(struct tlt_sites *sites)
{
	struct site *site, *next;

	list_for_each_entry(site, &sites->list, list)
		uprobe_unregister_nosync(site->uprobe, &site->consumer);
	if (!list_empty(&sites->list))
		uprobe_unregister_sync();
	list_for_each_entry_safe(site, next, &sites->list, list)
	{
		iput(site->inode);
		list_del(&site->list);
		kfree(site);
	}
}
