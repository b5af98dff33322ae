/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Placing a runnable task: an idle CPU at once, or a queue and a kick.
 *
 * The policy says which classes to search and in which order; here they are
 * searched with the kernel's idle masks. A CPU that a search returns is
 * claimed: its idle bit is cleared, no other task will be sent there. The
 * task then goes straight to that CPU's local queue, which saves the idle CPU
 * a walk through our queues and the kick its detour through an irq work.
 */
#ifndef TL_PLACE_BPF_H
#define TL_PLACE_BPF_H

/* The part of a class that the task's affinity reaches; NULL if it is empty. */
static __always_inline const struct cpumask *
reachable_of_class(const struct task_struct *p, u32 class)
{
	struct bpf_cpumask *mask = try_lookup_class_mask(class);
	struct bpf_cpumask *scratch;

	if (!mask)
		return NULL;
	if (reaches_everything(p))
		return as_cpumask(mask);
	scratch = try_lookup_scratch_mask();
	if (!scratch ||
	    !bpf_cpumask_and(scratch, as_cpumask(mask), p->cpus_ptr))
		return NULL;
	return as_cpumask(scratch);
}

/* Claim an idle CPU of the class that the task may use; its last one first,
 * for the caches. Negative if there is none. */
static __always_inline s32 claim_idle_of_class(const struct task_struct *p,
					       u32 class, s32 prev_cpu)
{
	const struct tl_cpu *prev = lookup_cpu(prev_cpu);
	const struct cpumask *reachable;

	if (!prev)
		return -1;
	if (prev->class == class &&
	    bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	reachable = reachable_of_class(p, class);
	return reachable ? scx_bpf_pick_idle_cpu(reachable, 0) : -1;
}

/* Claim an idle CPU for the task, in the policy's order of classes. */
static __always_inline s32 claim_idle(const struct task_struct *p,
				      const struct task_ctx *tc, s32 prev_cpu)
{
	u32 i, class;
	s32 cpu;

	if (fault == TL_FAULT_STALL)
		return -1;
	bpf_for(i, 0, TL_NR_CLASSES) {
		class = tl_idle_class(&tc->t, i);
		if (class >= TL_NR_CLASSES)
			break;
		if (!(tc->t.caps >> class & 1))
			continue;
		cpu = claim_idle_of_class(p, class, prev_cpu);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* Whether a scalar CPU stands idle that a guest of a wide CPU could use. Claims
 * nothing. */
static __always_inline bool better_place_idle(const struct task_struct *p)
{
	const struct cpumask *reachable = reachable_of_class(p, 0), *idle;
	bool found;

	if (!reachable)
		return false;
	idle = scx_bpf_get_idle_cpumask();
	found = bpf_cpumask_intersects(reachable, idle);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* Wake the CPU if it is idle by the time the task is in its queue: it may be on
 * its way there and have looked too early, see arrivals.bpf.h. */
static __always_inline void kick_between(const struct tl_cpu *c, s32 cpu,
					 u32 need)
{
	if (c->running_queue == TL_Q_NONE && c->class >= need &&
	    c->class < TL_NR_CLASSES)
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
}

/* No idle CPU for wide work: displace what has less right to a wide CPU. */
static __always_inline void kick_victim(const struct task_struct *p, u32 need,
					u32 arrives)
{
	u32 best = 0, limit = tl_victim_best(need), cpu;
	s32 victim = -1;

	bpf_for(cpu, 0, nr_cpus) {
		u32 rank;

		if (cpu >= TL_CPUS_MAX)
			break;
		kick_between(&cpus[cpu], cpu, need);
		rank = tl_victim_rank(need, cpus[cpu].class,
				      cpus[cpu].running_queue, arrives);
		if (rank <= best || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		best = rank;
		victim = cpu;
		if (rank >= limit)
			break;
	}
	if (victim < 0)
		return;
	/* the next one that looks for a victim must find another */
	cpus[victim & (TL_CPUS_MAX - 1)].running_queue = TL_Q_WIDE + need - 1;
	cpus[victim & (TL_CPUS_MAX - 1)].preemptions++;
	scx_bpf_kick_cpu(victim, TL_KICK_PREEMPT);
}

/* The LLC to wait in: the CPU's own if it holds a CPU that is there for the
 * task's queue, else one that does. */
static __always_inline u32 home_llc(const struct task_struct *p,
				    const struct task_ctx *tc, s32 here)
{
	u32 llc = llc_of_cpu(here),
	    class = tl_queue_class(tl_task_queue(&tc->t));
	const struct cpumask *good;
	const struct tl_cpu *c = lookup_cpu(here);

	if (nr_llcs <= 1 || !c)
		return llc;
	if ((class == TL_NR_CLASSES || c->class == class) &&
	    bpf_cpumask_test_cpu(here, p->cpus_ptr))
		return llc;
	if (class == TL_NR_CLASSES)
		/* any will do, of those that are online */
		class = tl_lowest_class(tc->t.caps);
	if (reaches_everything(p) && (llc_classes[llc] >> class & 1))
		return llc;
	good = reachable_of_class(p, class);
	return good ? llc_of_cpu(bpf_cpumask_any_distribute(good)) : llc;
}

/* Put the task into its queue, by virtual time. */
static __always_inline void insert_queued(struct task_struct *p,
					  struct task_ctx *tc, u32 llc,
					  u64 enq_flags)
{
	u32 id = tl_queue_id(llc, tl_task_queue(&tc->t));
	u64 slice_ns = tl_task_slice_ns(&tc->t, &cfg);
	u64 old_clock_ns = tc->t.clock ? *queue_clock(tc->t.clock) : 0;

	tl_vtime_place(&tc->t, id, old_clock_ns, *queue_clock(id), slice_ns);
	tc->t.enqueued_ns = bpf_ktime_get_ns();
	count_arrival(llc);
	note_queued(llc);
	tl_scx_insert_vtime(p, id, slice_ns, tc->t.vtime_ns, enq_flags);
}

/* Whether a wakeup of this task goes before everything: the sched_ext watchdog,
 * RCU and workqueues are kernel threads that we schedule ourselves; the loader
 * gives threads their slots and must be able to stop us on the busiest machine.
 * One that has used its slice takes its turn like any default task, and so do
 * all of them where they have had more than half of the CPU. */
static __always_inline bool goes_first(const struct task_struct *p, s32 here,
				       u64 enq_flags)
{
	struct tl_cpu *c;

	if (!(p->flags & PF_KTHREAD || p->tgid == loader_tgid) ||
	    !(enq_flags & TL_ENQ_WAKEUP))
		return false;
	c = lookup_cpu(here);
	return c && tl_turns_may_go_first(&c->turns, cfg.slice_ns);
}

static __always_inline void place(struct task_struct *p, struct task_ctx *tc,
				  s32 here, u64 enq_flags)
{
	s32 cpu;
	u64 slice_ns = tl_task_slice_ns(&tc->t, &cfg);
	u32 need;

	tc->went_first = goes_first(p, here, enq_flags);
	if (tc->went_first) {
		tl_scx_insert(p, TL_DSQ_LOCAL, slice_ns,
			      enq_flags | TL_ENQ_HEAD);
		return;
	}
	refresh_caps(p, tc);
	cpu = claim_idle(p, tc, here);
	if (cpu >= 0) {
		tl_scx_insert(p, TL_DSQ_LOCAL_ON | cpu, slice_ns, enq_flags);
		return;
	}
	need = tl_task_need(&tc->t);
	insert_queued(p, tc, home_llc(p, tc, here), enq_flags);
	cpu = claim_idle(p, tc, here); /* see arrivals.bpf.h */
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
	else if (need)
		kick_victim(p, need,
			    (enq_flags & TL_ENQ_WAKEUP) ||
				    !(tc->t.flags & TL_TASK_RAN_FIT));
}

/* The CPU has nothing else to do (SCX_ENQ_LAST): may the task go on here? */
static __always_inline bool may_stay(const struct task_struct *p,
				     struct task_ctx *tc, u32 class)
{
	refresh_caps(p, tc);
	if (!tl_task_fits(&tc->t, class))
		return false;
	return !tl_task_is_guest(&tc->t, class) || !better_place_idle(p);
}

#endif
