/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs that the loader runs by BPF_PROG_TEST_RUN: one per request that
 * needs more than a store to a setting.
 */
#ifndef TL_CONTROL_BPF_H
#define TL_CONTROL_BPF_H

/*
 * The queue in which a queued task belongs now; 0 if it is not ours.
 *
 * This and tl_requeue() are not static: so the verifier looks at each once, not
 * once for each state of the loops around them. That took it five times as long
 * as all else here together.
 */
__noinline u32 tl_right_queue(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (!tc)
		return 0;
	refresh_caps(p, tc);
	return tl_queue_id(home_llc(p, tc, scx_bpf_task_cpu(p)),
			   tl_task_queue(&tc->t));
}

/* Move queued tasks whose queue is no longer theirs, e.g. wide work that
 * waits for a CPU which has just become scalar. */
__noinline int tl_requeue(u32 id)
{
	struct task_struct *p;
	int moved = 0;

	bpf_rcu_read_lock();
	tl_for_each_queued(p, id)
	{
		struct task_ctx *tc = try_lookup_task(p);
		u32 now = tl_right_queue(p);

		if (!tc || !now || now == id)
			continue;
		tl_vtime_place(&tc->t, now, *queue_clock(id), *queue_clock(now),
			       cfg.slice_ns);
		scx_bpf_dsq_move_set_vtime(tl_queue_iter, tc->t.vtime_ns);
		if (!scx_bpf_dsq_move_vtime(tl_queue_iter, p, now, 0))
			continue;
		count_arrival(tl_queue_llc(now));
		moved++;
	}
	bpf_rcu_read_unlock();
	return moved;
}

/* Look at every queued task again, then have every CPU look for work. Returns
 * the number of tasks moved. */
SEC("syscall")
int tl_requeue_all(void *unused)
{
	u32 llc, queue, cpu;
	int moved = 0;

	bpf_for(llc, 0, nr_llcs) {
		bpf_for(queue, 0, TL_NR_QUEUES)
			moved += tl_requeue(tl_queue_id(llc, queue));
	}
	bpf_for(cpu, 0, nr_cpus)
		scx_bpf_kick_cpu(cpu, TL_KICK_PREEMPT);
	return moved;
}

/* Put want_class[] into force. To be followed by tl_requeue_all. */
SEC("syscall")
int tl_apply_classes(void *unused)
{
	return apply_classes();
}

/* The daemon gave a slot of the hint page to a thread. */
SEC("syscall")
int tl_set_slot(struct tl_slot_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct task_ctx *tc;
	int err = -ESRCH;

	if (!p)
		return err;
	tc = try_lookup_task(p);
	if (tc) {
		tc->hint_seq = 0;
		tc->hint_want = TL_HINT_SILENT;
		tc->exec_id = p->self_exec_id;
		tc->slot = args->slot + 1;
		err = 0;
	}
	bpf_task_release(p);
	return err;
}

/* A task is scalar unless it proves wide; its children inherit that. */
SEC("syscall")
int tl_classify_scalar(struct tl_classify_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct task_ctx *tc;
	int err = -ESRCH;

	if (!p)
		return err;
	tc = try_lookup_task(p);
	if (tc) {
		tl_task_classify_scalar(&tc->t);
		err = 0;
	}
	bpf_task_release(p);
	return err;
}

#endif
