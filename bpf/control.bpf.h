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
	return home_queue(p, tc, scx_bpf_task_cpu(p));
}

/* Move queued tasks whose queue is no longer theirs, e.g. wide work that
 * waits for a CPU which has just become scalar. What they have waited counts. */
__noinline int tl_requeue(u32 id)
{
	struct task_struct *p;
	int moved = 0;

	bpf_rcu_read_lock();
	tl_for_each_queued(p, id)
	{
		struct task_ctx *tc = try_lookup_task(p);
		u32 now = tl_right_queue(p);
		struct load load;
		u64 key_ns;

		if (!tc || !now || now == id)
			continue;
		load = load_with_one_more(now);
		change_clock(&tc->t, now, &load, cfg.slice_ns);
		key_ns = key_in(&tc->t, now, &load, cfg.slice_ns,
				tc->t.enqueued_ns);
		if (!tl_scx_move_vtime(tl_queue_iter, p, now, key_ns))
			continue;
		count_change(shard_of_id(now));
		moved++;
	}
	bpf_rcu_read_unlock();
	return moved;
}

/* Look at every queued task again, then have each CPU whose class has changed, or
 * that idles, look for work. Returns the number of tasks moved. */
SEC("syscall")
int tl_requeue_all(void *unused)
{
	u32 shard, queue, cpu;
	int moved = 0;

	bpf_for(shard, 0, nr_shards) {
		bpf_for(queue, 0, TL_NR_QUEUES)
			moved += tl_requeue(tl_queue_id(shard, queue));
	}
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		scx_bpf_kick_cpu(cpu, class_changed[cpu] ? TL_KICK_PREEMPT :
							   TL_KICK_IDLE);
		class_changed[cpu] = 0;
	}
	return moved;
}

/* Put want_class[] into force. To be followed by tl_requeue_all. */
SEC("syscall")
int tl_apply_classes(void *unused)
{
	return apply_classes();
}

/* The daemon gave a slot to a thread of the process that it was asked by. */
SEC("syscall")
int tl_set_slot(struct tl_slot_args *args)
{
	struct task_struct *p = bpf_task_from_pid(args->tid);
	struct tl_hint_slot *slot;
	struct task_ctx *tc;
	int err = -ESRCH;
	bool is_new_program;

	if (!p)
		return err;
	/* a task that has come while the scheduler is away has none yet */
	tc = p->tgid == (s32)args->tgid ?
		     bpf_task_storage_get(&tasks, p, NULL,
					  BPF_LOCAL_STORAGE_GET_F_CREATE) :
		     NULL;
	if (tc) {
		tc->hint_seq = 0;
		tc->hint_want = TL_HINT_SILENT;
		/* a scheduler that was loaded anew (hotplug) knows no exec */
		is_new_program = tc->slot && tc->exec_id != p->self_exec_id;
		tc->exec_id = p->self_exec_id;
		tc->slot = args->slot + 1;
		slots_given++; /* the daemon gives them one by one */
		err = 0;
		slot = try_lookup_slot(p, tc);
		if (slot && is_new_program)
			slot->target_q10 = 0; /* the program before it asked */
	}
	bpf_task_release(p);
	return err;
}

/* What applications may know; only programs can write the board. */
SEC("syscall")
int tl_publish(struct tl_publish_args *args)
{
	struct tl_hint_board *board = lookup_board();

	if (!board)
		return -ENOENT;
	board->header.abi = TL_HINT_ABI;
	board->header.mode = TL_HINT_MODE_SCX;
	board->header.nr_cpus = args->nr_cpus;
	board->header.nr_slots = TL_HINT_AREA_SLOTS;
	board->header.rest_below_ns = args->rest_below_ns;
	__builtin_memcpy(board->header.lacks_q10, args->lacks_q10,
			 sizeof(args->lacks_q10));
	board->header.active = !exited.kind;
	board->header.magic = TL_HINT_MAGIC;
	return 0;
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
