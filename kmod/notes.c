// SPDX-License-Identifier: GPL-2.0
/*
 * Notes about tasks and processes, found by the address of their task_struct
 * or signal_struct.
 *
 * Only tasks that trapped, or executed a program, have one; it goes when they
 * exit. The readers are the trap and the return to user mode, with interrupts
 * off, so a look must be cheap and take no lock: hash lists under RCU. A task's
 * own note cannot go away under it.
 *
 * Allocation is atomic and may fail. The caller copes (periods.c): forward
 * progress must not depend on memory.
 */
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/rculist.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "trap.h"

/* 2^10 lists: some thousand tasks with notes are a busy machine. */
#define BITS 10

struct table {
	struct hlist_head lists[1 << BITS];
	raw_spinlock_t lock; /* writers */
	atomic_t nr;
};

static struct table tasks = {
	.lock = __RAW_SPIN_LOCK_UNLOCKED(tasks.lock),
};
static struct table processes = {
	.lock = __RAW_SPIN_LOCK_UNLOCKED(processes.lock),
};

static struct hlist_head *list_of(struct table *table, const void *key)
{
	return &table->lists[hash_ptr(key, BITS)];
}

/* Interrupts off, or under rcu_read_lock(): each keeps what it finds. */
static struct tlt_note *find(struct table *table, const void *key)
{
	struct tlt_note *note;

	if (!atomic_read(&table->nr))
		return NULL;
	hlist_for_each_entry_rcu(note, list_of(table, key), node,
				 irqs_disabled()) if (note->key == key) break;
	return note;
}

/* Puts `note` under `key`, unless there is one; returns the one there is. */
static struct tlt_note *insert(struct table *table, struct tlt_note *note,
			       const void *key)
{
	struct tlt_note *old;
	unsigned long flags;

	note->key = key;
	raw_spin_lock_irqsave(&table->lock, flags);
	old = find(table, key);
	if (!old) {
		hlist_add_head_rcu(&note->node, list_of(table, key));
		atomic_inc(&table->nr);
	}
	raw_spin_unlock_irqrestore(&table->lock, flags);
	if (old)
		kfree(note);
	return old ?: note;
}

static void forget(struct table *table, const void *key)
{
	struct tlt_note *note;
	unsigned long flags;

	if (!atomic_read(&table->nr))
		return;
	raw_spin_lock_irqsave(&table->lock, flags);
	note = find(table, key);
	if (note) {
		hlist_del_rcu(&note->node);
		atomic_dec(&table->nr);
	}
	raw_spin_unlock_irqrestore(&table->lock, flags);
	if (note)
		kfree_rcu(note, rcu);
}

static void forget_all(struct table *table)
{
	for (int i = 0; i < ARRAY_SIZE(table->lists); i++) {
		struct hlist_node *next;
		struct tlt_note *note;

		hlist_for_each_entry_safe(note, next, &table->lists[i], node)
		{
			hlist_del_rcu(&note->node);
			kfree_rcu(note, rcu);
		}
	}
	atomic_set(&table->nr, 0);
}

/* Whether any task has a note: else all look-ups can be left out. */
bool tlt_notes_any(void)
{
	return atomic_read(&tasks.nr);
}

/*
 * The task's note, or NULL. Interrupts off or under RCU; what is found stays for
 * the task itself, for others as long as they hold RCU.
 */
struct tlt_task *tlt_task_find(const struct task_struct *p)
{
	struct tlt_note *note = find(&tasks, p);

	return note ? container_of(note, struct tlt_task, note) : NULL;
}

/* The current task's note, made if it has none. NULL: no memory. */
struct tlt_task *tlt_task_get(const struct task_struct *p)
{
	struct tlt_task *t;

	rcu_read_lock();
	t = tlt_task_find(p);
	rcu_read_unlock();
	if (t)
		return t;
	t = kzalloc(sizeof(*t), GFP_ATOMIC | __GFP_NOWARN);
	if (!t)
		return NULL;
	return container_of(insert(&tasks, &t->note, p), struct tlt_task, note);
}

u32 tlt_process_verdict(const struct task_struct *p)
{
	struct tlt_note *note;
	u32 verdict = TLT_VERDICT_NONE;

	rcu_read_lock();
	note = find(&processes, p->signal);
	if (note)
		verdict = READ_ONCE(
			container_of(note, struct tlt_process, note)->verdict);
	rcu_read_unlock();
	return verdict;
}

/*
 * If there is no memory, the process is learned another time. The process may be
 * exiting: a note inserted after the exit has searched the table would stay, and
 * would apply to the next process at the same address. So `live` is read after
 * the insertion, and the exit searches the table after it has decremented `live`.
 */
void tlt_process_learn(const struct task_struct *p, u32 verdict)
{
	struct tlt_process *process;
	struct tlt_note *note;

	rcu_read_lock();
	note = find(&processes, p->signal);
	if (!note && verdict != TLT_VERDICT_NONE) {
		process = kzalloc(sizeof(*process), GFP_ATOMIC | __GFP_NOWARN);
		if (process)
			note = insert(&processes, &process->note, p->signal);
	}
	if (note)
		WRITE_ONCE(
			container_of(note, struct tlt_process, note)->verdict,
			verdict);
	rcu_read_unlock();
	smp_mb(); /* pairs with the atomic operation on `live` in do_exit() */
	if (note && !atomic_read(&p->signal->live))
		forget(&processes, p->signal);
}

/* The task exits: it never returns to user mode again. */
void tlt_notes_forget(const struct task_struct *p)
{
	forget(&tasks, p);
	/* Decremented before we are notified of the exit: 0 for the last thread,
	 * perhaps for the last but one too, which does no harm. */
	if (!atomic_read(&p->signal->live))
		forget(&processes, p->signal);
}

void tlt_notes_exit(void)
{
	forget_all(&tasks);
	forget_all(&processes);
}
