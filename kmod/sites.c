// SPDX-License-Identifier: GPL-2.0
/*
 * Files that user space has read, and the places in them that must see the full
 * XCR0.
 *
 * Problem: XGETBV shows the reduced XCR0, XSAVE leaves out what is withheld, and
 * XRSTOR leaves it as it is; none of them faults. A program that looks for
 * AVX-512 long after it was started would not find it on a scalar CPU, and one
 * that switches contexts would lose registers.
 *
 * Idea: user space finds those instructions by a scan of the mapped files and
 * asks for a probe before each. The task then has the full XCR0 for a while;
 * nothing is emulated. A probe costs microseconds.
 *
 * XSAVE and XRSTOR have the probe themselves. The kernel executes them out of line,
 * and XCR0 is not reduced before it says that this is done (periods.c,
 * steps_over_probe()), however long it takes. The kernel cannot probe an XGETBV
 * itself (its single-stepping knows no 0F 01), so the place is an instruction before
 * it on the same path, and only the period covers it: a task whose CPU is taken away
 * in between for longer may see the reduced XCR0.
 *
 * Registers are withheld only from a process whose code has all been read (read.c).
 * A file counts as read from TLT_READ_END on, if it cannot have changed since
 * TLT_READ_BEGIN, when the scan had not begun. To change it later, a program has to
 * open it for writing first.
 *
 * Lifetime. An inode must not outlive its file system. A reference to the mount
 * would make it busy, and keep the file systems of dead containers; so each file
 * has a mark of fsnotify instead. The kernel destroys marks when the file system
 * is unmounted and when the file is deleted, before it looks whether an inode is
 * still in use, and in process context. We destroy it when the file is opened
 * for writing. Each time all probes in it go, and it is no longer known.
 *
 *   opener --> file (mark, inode, probes) <-- table of read.c
 *
 * A user can make files for ever: what is gone is freed at the next call, and
 * what is there is bounded (FILES_MAX, SITES_MAX).
 */
#include <linux/cred.h>
#include <linux/dcache.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/fsnotify_backend.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uprobes.h>
#include <linux/version.h>
#include <linux/wait_bit.h>

#include "trap.h"

/* Far more than a machine has programs and libraries; 16 MB of memory. */
#define FILES_MAX 16384
#define SITES_MAX 65536

struct file_known {
	struct fsnotify_mark mark; /* holds a reference to this */
	struct rcu_head rcu;
	struct list_head list; /* of its opener; under ctl_mutex */
	struct inode *inode;
	struct mutex lock; /* what follows */
	bool gone;	   /* the mark is, and so are inode and probes */
	bool begun;	   /* by TLT_READ_BEGIN */
	struct list_head sites;
	struct tlt_read_file read;
};

struct site {
	struct list_head list;
	struct uprobe *uprobe;
	struct uprobe_consumer consumer;
};

static struct fsnotify_group *group;
static atomic_t nr_known; /* of all openers, until they are freed */

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
static int on_site(struct uprobe_consumer *consumer, struct pt_regs *regs,
		   __u64 *data)
#else
static int on_site(struct uprobe_consumer *consumer, struct pt_regs *regs)
#endif
{
	if (tlt_nr_armed())
		tlt_full_at_site();
	return 0;
}

/* ---- the end of a file, by whatever ends it ---- */

static void drop_probes(struct file_known *f)
{
	struct site *site, *next;

	list_for_each_entry(site, &f->sites, list)
		uprobe_unregister_nosync(site->uprobe, &site->consumer);
	if (!list_empty(&f->sites))
		uprobe_unregister_sync();
	list_for_each_entry_safe(site, next, &f->sites, list)
	{
		list_del(&site->list);
		kfree(site);
	}
}

/* Once for each mark, in process context, without a lock of fsnotify's. */
static void on_mark_goes(struct fsnotify_mark *mark, struct fsnotify_group *g)
{
	struct file_known *f = container_of(mark, struct file_known, mark);

	mutex_lock(&f->lock);
	f->gone = true;
	/* Before the probes: without them, nothing may be withheld. */
	tlt_unread(&f->read);
	drop_probes(f);
	iput(f->inode);
	mutex_unlock(&f->lock);
}

static int on_event(struct fsnotify_mark *mark, u32 mask, struct inode *inode,
		    struct inode *dir, const struct qstr *name, u32 cookie)
{
	struct file_known *f = container_of(mark, struct file_known, mark);

	if (mask & FS_MODIFY || inode_is_open_for_write(f->inode))
		fsnotify_destroy_mark(mark, group);
	return 0;
}

static void on_mark_free(struct fsnotify_mark *mark)
{
	struct file_known *f = container_of(mark, struct file_known, mark);

	kfree_rcu(f, rcu); /* read.c may just look at it */
	if (atomic_dec_and_test(&nr_known))
		wake_up_var(&nr_known);
}

static const struct fsnotify_ops mark_ops = {
	.handle_inode_event = on_event,
	.freeing_mark = on_mark_goes,
	.free_mark = on_mark_free,
};

/* ---- files of an opener; all under ctl_mutex ---- */

/* Returns the file's entry, makes it if there is none, frees those that are gone. */
static struct file_known *lookup(struct tlt_sites *sites, struct inode *inode)
{
	struct file_known *f, *next, *found = NULL;

	list_for_each_entry_safe(f, next, &sites->files, list)
	{
		if (!READ_ONCE(f->gone)) {
			if (f->inode == inode)
				found = f;
			continue;
		}
		list_del(&f->list);
		sites->nr_files--;
		sites->nr_sites -= f->read.nr_sites;
		fsnotify_put_mark(&f->mark);
	}
	return found;
}

static struct file_known *make(struct tlt_sites *sites, struct inode *inode)
{
	struct file_known *f;
	int err;

	if (sites->nr_files >= FILES_MAX)
		return ERR_PTR(-ENOSPC);
	f = kzalloc(sizeof(*f), GFP_KERNEL);
	if (!f)
		return ERR_PTR(-ENOMEM);
	atomic_inc(&nr_known);
	mutex_init(&f->lock);
	INIT_LIST_HEAD(&f->sites);
	f->inode = inode;
	f->read.inode = inode;
	fsnotify_init_mark(&f->mark, group);
	f->mark.mask = FS_OPEN | FS_MODIFY;
	ihold(inode);
	err = fsnotify_add_inode_mark(&f->mark, inode, 0);
	if (err) {
		iput(inode);
		fsnotify_put_mark(&f->mark);
		return ERR_PTR(err);
	}
	list_add(&f->list, &sites->files);
	sites->nr_files++;
	return f;
}

/* The entry of the open file `fd`, locked; an error if there is none to be had. */
static struct file_known *get(struct tlt_sites *sites, int fd, bool may_make)
{
	struct file *file = fget(fd);
	struct file_known *f;
	struct inode *inode;

	if (!file)
		return ERR_PTR(-EBADF);
	/* In a container the file may be one of an overlay; what is mapped, and
	 * so what carries the probe, is the file below. The open file keeps the
	 * mount until the mark is there. */
	inode = d_real_inode(file->f_path.dentry);
	f = lookup(sites, inode);
	if (!f && !S_ISREG(inode->i_mode))
		f = ERR_PTR(-EACCES);
	else if (!f)
		f = may_make ? make(sites, inode) : ERR_PTR(-ESTALE);
	if (!IS_ERR(f)) {
		mutex_lock(&f->lock);
		if (f->gone) {
			mutex_unlock(&f->lock);
			f = ERR_PTR(-ESTALE);
		}
	}
	fput(file);
	return f;
}

static int add(struct file_known *f, u64 offset_bytes)
{
	struct site *site = kzalloc(sizeof(*site), GFP_KERNEL);
	int err;

	if (!site)
		return -ENOMEM;
	site->consumer.handler = on_site;
	site->uprobe =
		uprobe_register(f->inode, offset_bytes, 0, &site->consumer);
	if (IS_ERR(site->uprobe)) {
		err = PTR_ERR(site->uprobe);
		kfree(site);
		return err;
	}
	list_add(&site->list, &f->sites);
	return 0;
}

int tlt_site_add(struct tlt_sites *sites, const struct tlt_site *where)
{
	struct file_known *f;
	int err;

	if (sites->nr_sites >= SITES_MAX)
		return -ENOSPC;
	f = get(sites, where->fd, true);
	if (IS_ERR(f))
		return PTR_ERR(f);
	err = add(f, where->offset_bytes);
	if (!err) {
		f->read.nr_sites++;
		sites->nr_sites++;
	}
	mutex_unlock(&f->lock);
	return err;
}

/* The file is locked. What an earlier scan found may be somewhere else now. */
static int begin(struct tlt_sites *sites, struct file_known *f)
{
	if (f->read.is_read)
		return -EALREADY;
	drop_probes(f);
	sites->nr_sites -= f->read.nr_sites;
	f->read.nr_sites = 0;
	f->begun = true;
	return 0;
}

static int end(struct file_known *f)
{
	if (!f->begun)
		return -ESTALE;
	if (!f->read.is_read)
		tlt_is_read(&f->read);
	return 0;
}

int tlt_file_read(struct tlt_sites *sites, const struct tlt_read *what)
{
	bool begins = what->step == TLT_READ_BEGIN;
	struct file_known *f = get(sites, what->fd, begins);
	int err;

	if (IS_ERR(f))
		return PTR_ERR(f);
	err = begins ? begin(sites, f) : end(f);
	/* Checked with the mark in place: later opens are noticed. */
	if (inode_is_open_for_write(f->inode))
		err = -ETXTBSY;
	mutex_unlock(&f->lock);
	if (err == -ETXTBSY)
		fsnotify_destroy_mark(&f->mark, group);
	return err;
}

void tlt_sites_init(struct tlt_sites *sites)
{
	*sites = (struct tlt_sites){};
	INIT_LIST_HEAD(&sites->files);
}

void tlt_sites_drop(struct tlt_sites *sites)
{
	struct file_known *f, *next;

	list_for_each_entry_safe(f, next, &sites->files, list)
	{
		list_del(&f->list);
		fsnotify_destroy_mark(&f->mark, group);
		fsnotify_put_mark(&f->mark);
	}
}

/* ---- all together ---- */

int tlt_files_init(void)
{
	group = fsnotify_alloc_group(&mark_ops, FSNOTIFY_GROUP_DUPS);
	return PTR_ERR_OR_ZERO(group);
}

/* No opener is left. */
void tlt_files_exit(void)
{
	fsnotify_put_group(group);
	/* Another task's umount() or open() may still be handling one. */
	wait_var_event(&nr_known, !atomic_read(&nr_known));
	fsnotify_wait_marks_destroyed();
	rcu_barrier(); /* the last kfree_rcu() */
}
