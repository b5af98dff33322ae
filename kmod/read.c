// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that have code which was not read.
 *
 * Problem: code may save and load registers by itself (a fibre library, a JIT, a
 * sandbox's stub). Under a reduced XCR0 XSAVE leaves out what is withheld, and
 * leaves the bits of XSTATE_BV for it alone: an image that was once complete
 * keeps old values, which XRSTOR brings back under the full XCR0. XRSTOR under a
 * reduced one leaves the registers of another task where the image has none.
 * Nothing faults. Probes at those instructions help (sites.c), where they are
 * known.
 *
 * Idea: registers are withheld only from a process all of whose code was read.
 * User space reads files and reports them; the files of a process are found here,
 * from its mappings before the first reduction. Every executable mapping
 * must be
 *   - of the kernel ([vdso], [uprobes]), or
 *   - private, of a file that was read and has not been opened for writing
 *     since, and never writable: a private mapping that once was is accounted
 *     for its memory (VM_ACCOUNT), or was not to be (VM_NORESERVE).
 * So anonymous memory, memfds, files with a second, writable mapping, and code that
 * was changed after it was loaded are never read. A process that has them keeps the
 * full XCR0, including live registers.
 *
 * The answer is kept under mm->context.ctx_id, a number that is never used again.
 * The table is of fixed size and has no lock: an entry is one word, and a process
 * that loses its entry is examined again.
 *
 *   | ctx_id: 36 | era: 27 | read: 1 |
 *
 * An answer ends with its era: when a file becomes read or unread, and every
 * ERA_S, for unmapping is not seen. It also ends when the process gets code: we
 * are called with its mappings locked for writing (newcode.c), and look at them
 * locked for reading, so each look is before or after the change. CPUs that run
 * the process with a reduced XCR0 at that moment are interrupted before the new
 * code can run. Where the lock is taken, or there are more mappings than
 * MAPPINGS_MAX, the answer is: not read.
 *
 * Limits: what a debugger writes into code (ptrace, /proc/PID/mem); code of a
 * file on an overlay that is changed in its upper layer while it is mapped, for
 * overlayfs opens that without a word; a file system whose files change without
 * being opened here (user space does not read those: questions/files.rs).
 */
#include <linux/atomic.h>
#include <linux/fs.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/jiffies.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/mmap_lock.h>
#include <linux/personality.h>
#include <linux/rculist.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/string.h>

#include "trap.h"

static bool withhold_unread;
module_param(withhold_unread, bool, 0644);
MODULE_PARM_DESC(
	withhold_unread,
	"withhold from processes with unread code, too: a program that "
	"switches contexts may lose registers (default N)");

/* About 30 us under a lock for reading, with interrupts off. */
#define MAPPINGS_MAX 2048
/* A look takes microseconds. */
#define ERA_S 10

/* ---- files that were read ---- */

static DEFINE_HASHTABLE(files, 10);
static DEFINE_RAW_SPINLOCK(files_lock); /* writers */
static atomic_t files_changed;
static atomic64_t nr_unread; /* of them: files that are read no more */

static void make_full(void *unused)
{
	tlt_full(TLT_FULL_CODE);
}

void tlt_is_read(struct tlt_read_file *file)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&files_lock, flags);
	hash_add_rcu(files, &file->node, (unsigned long)file->inode);
	file->is_read = true;
	raw_spin_unlock_irqrestore(&files_lock, flags);
	atomic_inc(&files_changed);
}

/* After its return nothing is withheld from processes that map the file. May
 * sleep. */
void tlt_unread(struct tlt_read_file *file)
{
	unsigned long flags;

	if (!file->is_read)
		return;
	raw_spin_lock_irqsave(&files_lock, flags);
	hash_del_rcu(&file->node);
	file->is_read = false;
	raw_spin_unlock_irqrestore(&files_lock, flags);
	atomic_inc(&files_changed);
	atomic64_inc(&nr_unread);
	if (tlt_nr_armed())
		on_each_cpu(make_full, NULL, 1);
}

u64 tlt_nr_unread(void)
{
	return atomic64_read(&nr_unread);
}

/* Interrupts off. */
static bool was_read(const struct inode *inode)
{
	struct tlt_read_file *file;
	unsigned long key = (unsigned long)inode;

	hlist_for_each_entry_rcu(file, &files[hash_min(key, HASH_BITS(files))],
				 node, irqs_disabled()) if (file->inode ==
							    inode) return true;
	return false;
}

/* ---- a look at a process ---- */

static bool is_kernels(const struct vm_area_struct *vma)
{
	const char *name = NULL;

	if (vma->vm_ops && vma->vm_ops->name)
		name = vma->vm_ops->name((struct vm_area_struct *)vma);
	return name && (!strcmp(name, "[vdso]") || !strcmp(name, "[uprobes]"));
}

static bool mapping_is_read(const struct vm_area_struct *vma)
{
	/* VM_MAYSHARE: a shared mapping of a file that is open for reading
	 * only is not VM_SHARED, and the kernel puts no probes in it. */
	const vm_flags_t never = VM_WRITE | VM_SHARED | VM_MAYSHARE |
				 VM_ACCOUNT | VM_NORESERVE | VM_HUGETLB |
				 VM_PFNMAP | VM_MIXEDMAP | VM_IO;

	if (!vma->vm_file)
		return is_kernels(vma);
	return !(vma->vm_flags & never) && was_read(file_inode(vma->vm_file));
}

/* Its mappings are locked. */
static bool all_is_read(struct mm_struct *mm)
{
	VMA_ITERATOR(next, mm, 0);
	struct vm_area_struct *vma;
	unsigned int nr = 0;

	for_each_vma(next, vma)
	{
		if (++nr > MAPPINGS_MAX)
			return false;
		if (vma->vm_flags & VM_EXEC && !mapping_is_read(vma))
			return false;
	}
	return true;
}

/* ---- what is known of processes ---- */

#define ID_BITS 36
#define ERA_BITS 27

#define TABLE_BITS 12 /* 32 KiB; more processes than run at a time */
static atomic64_t known[1 << TABLE_BITS];

static atomic64_t *entry_of(const struct mm_struct *mm)
{
	return &known[hash_64(mm->context.ctx_id, TABLE_BITS)];
}

static u64 id_of(const struct mm_struct *mm)
{
	return (mm->context.ctx_id & GENMASK_ULL(ID_BITS - 1, 0))
	       << (ERA_BITS + 1);
}

static u64 era(void)
{
	u64 now = (u32)atomic_read(&files_changed) +
		  (u32)(jiffies / (ERA_S * HZ));

	return (now & GENMASK_ULL(ERA_BITS - 1, 0)) << 1;
}

#define READ 1ull

/*
 * If another answer has been written since `old` was read, it is of a later look,
 * or of another process.
 */
static bool look(struct mm_struct *mm, atomic64_t *entry, u64 old)
{
	u64 now = id_of(mm) | era(); /* before the look */
	bool read;

	if (!mmap_read_trylock(mm))
		return false;
	read = all_is_read(mm);
	if (atomic64_cmpxchg(entry, old, now | (read ? READ : 0)) != old)
		read = false;
	mmap_read_unlock(mm);
	return read;
}

static bool is_read(struct mm_struct *mm)
{
	atomic64_t *entry = entry_of(mm);
	u64 word = atomic64_read(entry);

	if ((word & ~READ) == (id_of(mm) | era()))
		return word & READ;
	return look(mm, entry, word);
}

/*
 * Whether the current task, which returns to user mode, is to keep the full XCR0
 * because of its code. Interrupts off.
 */
bool tlt_has_unread_code(struct tlt_cpu *c)
{
	if (READ_ONCE(withhold_unread))
		return false;
	/* All that it maps, its heap too, is executable. */
	if (!(current->personality & READ_IMPLIES_EXEC) && current->mm &&
	    is_read(current->mm))
		return false;
	c->counters.unread_returns++;
	return true;
}

/* Forgets what is known; returns whether the process may run reduced now. */
static bool forget(struct mm_struct *mm)
{
	atomic64_t *entry = entry_of(mm);
	u64 word = atomic64_read(entry);
	u64 unread = id_of(mm) | era();

	/* Cleared, as another process may take the place and leave it again. */
	return atomic64_cmpxchg(entry, word, 0) != word || word != unread;
}

/*
 * The process, which is the current one, gets code. Its mappings are locked for
 * writing, and interrupts on.
 */
void tlt_code_changes(struct mm_struct *mm)
{
	if (!tlt_nr_armed() || READ_ONCE(withhold_unread) || !forget(mm))
		return;
	preempt_disable();
	make_full(NULL);
	smp_call_function_many(mm_cpumask(mm), make_full, NULL, true);
	preempt_enable();
}
