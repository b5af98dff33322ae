/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each task has done since the scheduler first saw it, for readers such as
 * `turbolane top`.
 *
 * Problem: the sums are in each task's own storage, where the scheduler can
 * access them quickly; a reader in user space needs all of them from time to
 * time.
 *
 * Idea: an iterator over the kernel's tasks, which the loader reads as a file.
 * Nothing is stored for readers, and there is no cost without one. Tasks are
 * read one after the other, not at one moment: a reader uses the differences of
 * two readings of one task, each of which has its time.
 *
 * Limits: tasks of the realtime classes are not ours, so they have no sums. A
 * task that runs is counted up to its last tick (counted_ns).
 */
#ifndef TL_LIST_BPF_H
#define TL_LIST_BPF_H

SEC("iter/task")
int tl_list_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct tl_task_row row = {};
	struct task_ctx *tc;

	if (!p)
		return 0;
	tc = try_lookup_task(p);
	/* what has not run since it was given to us has nothing to report */
	if (!tc || !tc->sums.run_ns)
		return 0;
	row.start_ns = p->start_time;
	row.counted_ns = tc->counted_ns;
	row.sums = tc->sums;
	row.tid = p->pid;
	row.tgid = p->tgid;
	row.score = tc->t.score;
	row.cpu = tc->last_cpu;
	row.type = tc->t.type;
	row.level = tc->t.level;
	bpf_probe_read_kernel(row.comm, sizeof(row.comm), p->comm);
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}

/*
 * Tasks that may not run everywhere, for policy/bound.h. Kernel threads are left out: each CPU
 * has dozens that are bound to it and do nearly nothing.
 */
SEC("iter/task")
int tl_list_bound(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct tl_bound_row row = {};
	struct task_ctx *tc;

	if (!p || p->flags & PF_KTHREAD || reaches_everything(p))
		return 0;
	tc = try_lookup_task(p);
	if (!tc || !tc->sums.run_ns)
		return 0;
	row.start_ns = p->start_time;
	row.run_ns = tc->sums.run_ns;
	row.wide_run_ns = tc->sums.wide_run_ns;
	row.tid = p->pid;
	/* not the mask in force, which is one CPU while migration is disabled; bits after
	 * the end of a shorter mask are of CPUs that do not exist */
	bpf_probe_read_kernel(row.cpus, sizeof(row.cpus), &p->cpus_mask);
	bpf_seq_write(ctx->meta->seq, &row, sizeof(row));
	return 0;
}

#endif
