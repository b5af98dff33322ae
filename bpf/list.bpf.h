/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What each task has done since the scheduler first saw it, for whoever asks
 * (`turbolane top`).
 *
 * Problem: the sums lie in each task's own storage, where the scheduler needs
 * them at hand; somebody far away wants all of them, now and then.
 *
 * Idea: an iterator over the kernel's tasks, which the loader reads as a file.
 * Nothing is kept for the reader and nothing is done while nobody reads. What
 * is read is a task after the other, not one moment of all: a reader takes
 * differences of two readings of one task, with the time of each in it.
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
	/* what has not run since it was given to us has nothing to tell */
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

#endif
