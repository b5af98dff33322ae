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

/* The part of a class within a scope that the task's affinity reaches; NULL if it
 * is empty. */
static __always_inline const struct cpumask *
reachable_by(const struct task_struct *p, u32 class, u32 scope, u32 with)
{
	struct bpf_cpumask *mask = try_lookup_class_mask(class, scope);
	struct bpf_cpumask *scratch;

	if (!mask)
		return NULL;
	if (reaches_everything(p))
		return as_cpumask(mask);
	scratch = try_lookup_scratch_mask(with);
	if (!scratch ||
	    !bpf_cpumask_and(scratch, as_cpumask(mask), p->cpus_ptr))
		return NULL;
	return as_cpumask(scratch);
}

/* The same, for the scheduler's callbacks. */
static __always_inline const struct cpumask *
reachable_of_class(const struct task_struct *p, u32 class, u32 scope)
{
	return reachable_by(p, class, scope, SCRATCH_CALLBACK);
}

/* Whether this look is one at what an earlier one has seen: a cache or node that
 * is no smaller than what is around it is called 0, as the machine is. */
static __always_inline bool is_seen(const struct tl_cpu *c, u32 scope)
{
	if (scope == TL_SCOPE_NODE)
		return !c->scope[TL_SCOPE_LLC] || !c->scope[TL_SCOPE_NODE];
	return scope == TL_SCOPE_MACHINE && !c->scope[TL_SCOPE_LLC] &&
	       !c->scope[TL_SCOPE_NODE];
}

/* The CPUs of a scope around a CPU, 0 for all. */
static __always_inline u32 scope_around(const struct tl_cpu *c, u32 scope)
{
	if (scope == TL_SCOPE_LLC && c->scope[TL_SCOPE_LLC])
		return c->scope[TL_SCOPE_LLC];
	return scope == TL_SCOPE_MACHINE ? 0 : c->scope[TL_SCOPE_NODE];
}

/* Claim an idle CPU of the class that the task may use: its last one first, for
 * the caches. Negative if there is none. */
static __always_inline s32 claim_idle_in(const struct task_struct *p, u32 class,
					 u32 scope, s32 prev_cpu)
{
	const struct tl_cpu *prev = lookup_cpu(prev_cpu);
	const struct cpumask *reachable;

	if (!prev || is_seen(prev, scope))
		return -1;
	if (scope == TL_SCOPE_LLC && prev->class == class &&
	    bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	reachable = reachable_of_class(p, class, scope_around(prev, scope));
	return reachable ? scx_bpf_pick_idle_cpu(reachable, 0) : -1;
}

/* Whether any CPU is idle. On a busy machine none is, and to see that in one look
 * spares those at each class and scope. */
static __always_inline bool is_any_idle(void)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool any = !bpf_cpumask_empty(idle);

	scx_bpf_put_idle_cpumask(idle);
	return any;
}

/* The one CPU of a pinned task, if it is idle. */
static __always_inline s32 claim_own(const struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) &&
			       scx_bpf_test_and_clear_cpu_idle(cpu) ?
		       cpu :
		       -1;
}

/* Claim an idle CPU for the task, in the policy's order. */
static __always_inline s32 claim_idle(const struct task_struct *p,
				      const struct task_ctx *tc, s32 prev_cpu)
{
	u32 i, class;
	s32 cpu;

	if (fault == TL_FAULT_STALL)
		return -1;
	if (tc->pinned)
		return claim_own(p, prev_cpu);
	if (!is_any_idle())
		return -1;
	bpf_for(i, 0, TL_IDLE_LOOKS) {
		class = tl_look_class(&tc->t, i);
		if (class >= TL_NR_CLASSES)
			break;
		if (!(tc->t.caps >> class & 1))
			continue;
		cpu = claim_idle_in(p, class, tl_look_scope(&tc->t, i),
				    prev_cpu);
		if (cpu >= 0)
			return cpu;
	}
	return -1;
}

/* Whether the task may use one of the class within a scope that is in this mask of
 * idle ones, which is given back. Claims nothing. */
static __always_inline bool reaches_idle(const struct task_struct *p, u32 class,
					 u32 scope, u32 scratch,
					 const struct cpumask *idle)
{
	const struct cpumask *reachable = NULL;
	bool found;

	if (!bpf_cpumask_empty(idle)) /* on a busy machine nothing is idle */
		reachable = reachable_by(p, class, scope, scratch);
	found = reachable && bpf_cpumask_intersects(reachable, idle);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* Whether a scalar CPU is idle that a guest of a wide CPU could use. */
static __always_inline bool better_place_idle(const struct task_struct *p,
					      u32 scratch)
{
	return reaches_idle(p, 0, 0, scratch, scx_bpf_get_idle_cpumask());
}

/* Whether a core of the CPU's class and cache is idle, while the task shares its own
 * with another. Of several other siblings only one is asked. */
static __always_inline bool better_core_idle(const struct task_struct *p,
					     const struct tl_cpu *c)
{
	return c->sibling != c->number &&
	       tl_leaves_core(c->number < c->sibling, c->ticks) &&
	       cpus[c->sibling & (TL_CPUS_MAX - 1)].running_queue !=
		       TL_Q_NONE &&
	       reaches_idle(p, c->class, scope_around(c, TL_SCOPE_LLC),
			    SCRATCH_CALLBACK, scx_bpf_get_idle_smtmask());
}

/* The shard to wait in: that of the CPU if it holds a CPU that is there for the
 * task's queue, else one that does, in the node if possible. */
static __always_inline u32 home_shard(const struct task_struct *p,
				      const struct task_ctx *tc, s32 here)
{
	u32 shard = shard_of_cpu(here), class;
	u32 queue_class = tl_queue_class(tl_task_queue(&tc->t));
	const struct cpumask *good = NULL;
	const struct tl_cpu *c = lookup_cpu(here);

	if (nr_shards <= 1 || !c)
		return shard;
	if (tl_waits_here(queue_class, tc->t.caps, c->class,
			  bpf_cpumask_test_cpu(here, p->cpus_ptr),
			  reaches_everything(p), shard_at(shard)->classes))
		return shard;
	class = tl_waits_at_class(queue_class, tc->t.caps);
	if (tc->scalar_cpu >= 0 &&
	    bpf_cpumask_test_cpu(tc->scalar_cpu, p->cpus_ptr) &&
	    cpus[tc->scalar_cpu & (TL_CPUS_MAX - 1)].class == class)
		return shard_of_cpu(tc->scalar_cpu);
	if (c->scope[TL_SCOPE_NODE])
		good = reachable_of_class(p, class, c->scope[TL_SCOPE_NODE]);
	if (!good || bpf_cpumask_empty(good))
		good = reachable_of_class(p, class, 0);
	if (!good || bpf_cpumask_empty(good))
		return shard;
	return shard_of_cpu(bpf_cpumask_any_distribute(good));
}

/* The queue to wait in. */
static __always_inline u32 home_queue(const struct task_struct *p,
				      const struct task_ctx *tc, s32 here)
{
	if (tc->pinned && bpf_cpumask_test_cpu(here, p->cpus_ptr))
		return tl_pinned_id(here);
	return tl_queue_id(home_shard(p, tc, here), tl_task_queue(&tc->t));
}

/* The task is about to join this queue. Returns its key there; slice_ns: its slice,
 * which becomes that on the queue's clock. Not static: so the verifier looks at it
 * once. */
__noinline u64 tl_join_queue(struct task_ctx *tc, u32 id, u64 *slice_ns)
{
	u64 now_ns = bpf_ktime_get_ns(), key_ns;
	struct load load;

	if (!tc || !slice_ns)
		return 0;
	load = load_with_one_more(id);
	change_clock(&tc->t, id, &load, *slice_ns);
	key_ns = key_in(&tc->t, id, &load, *slice_ns, now_ns);
	*slice_ns = slice_in(&tc->t, id, &load, *slice_ns);
	tc->t.enqueued_ns = now_ns;
	count_arrival(shard_of_id(id));
	note_queued(shard_of_id(id));
	return key_ns;
}

/* Put the task into its queue, by its key. */
static __always_inline void insert_queued(struct task_struct *p,
					  struct task_ctx *tc, s32 here,
					  u64 enq_flags)
{
	u32 id = home_queue(p, tc, here);
	u64 slice_ns = tl_task_slice_ns(&tc->t, &cfg);
	u64 key_ns = tl_join_queue(tc, id, &slice_ns);

	tl_scx_insert_vtime(p, id, slice_ns, key_ns, enq_flags);
	if (tl_id_is_pinned(id))
		kick_between(&cpus[here & (TL_CPUS_MAX - 1)], here, 0);
}

/* Whether a wakeup of this task goes before everything. The sched_ext watchdog,
 * RCU and workqueues are kernel threads that we schedule ourselves; the loader
 * registers threads and must be able to stop us on the busiest machine. */
static __always_inline bool goes_first(const struct task_struct *p, s32 here,
				       u64 enq_flags)
{
	u32 is_vital = p->flags & PF_KTHREAD || p->tgid == loader_tgid;
	struct tl_cpu *c;

	if (!is_vital)
		return false;
	c = lookup_cpu(here);
	return c && tl_goes_first(&c->turns, is_vital,
				  !!(enq_flags & TL_ENQ_WAKEUP), cfg.slice_ns);
}

/* The task has come and waits: the CPU chooses anew if it serves that queue first, and
 * if what it runs has had more. Not static: so the verifier looks at it once. */
__noinline int tl_displace(struct task_ctx *tc, struct tl_cpu *c, u32 wakes,
			   u64 now_ns)
{
	u64 vtime_ns;
	u32 side;

	if (!tc || !c || c->running_queue == TL_Q_NONE)
		return 0;
	side = tl_wake_side(&tc->t, c->number, c->class, c->shard);
	if (side == TL_SIDE_NONE)
		return 0;
	vtime_ns = tl_wake_vtime_ns(&tc->t, clock_of(tc->t.clock)->vtime_ns,
				    wakes);
	if (tl_wake_displaces(&c->run, &c->turns, &tc->t, vtime_ns, side,
			      cfg.slice_ns, now_ns))
		scx_bpf_kick_cpu(c->number, TL_KICK_PREEMPT);
	return 0;
}

/* The task waits, and no CPU is idle for it: displace what has less right to its own. */
static __always_inline void displace(const struct task_struct *p,
				     struct task_ctx *tc, s32 here,
				     u64 enq_flags)
{
	bool wakes = enq_flags & TL_ENQ_WAKEUP;
	u32 need = tl_task_need(&tc->t);
	struct tl_cpu *c = lookup_cpu(here);
	struct tl_wake_from from;
	u64 now_ns;
	s32 cpu;

	if (need && !tc->pinned &&
	    kick_victim(p, need, shard_of_cpu(here),
			wakes || !(tc->t.flags & TL_TASK_RAN_FIT)))
		return;
	if (!c || (!wakes && !c->class)) /* most are: spare them the clock */
		return;
	from.cpu = here;
	from.class = c->class;
	from.shard = c->shard;
	from.scalar_cpu = tc->scalar_cpu;
	from.began_ns = tc->began_ns;
	now_ns = bpf_ktime_get_ns();
	cpu = tl_wake_cpu(&tc->t, &from, wakes, now_ns);
	if (cpu >= 0 && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		tl_displace(tc, lookup_cpu(cpu), wakes, now_ns);
}

static __always_inline void place(struct task_struct *p, struct task_ctx *tc,
				  s32 here, u64 enq_flags)
{
	s32 cpu;
	u64 slice_ns = tl_task_slice_ns(&tc->t, &cfg);

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
	insert_queued(p, tc, here, enq_flags);
	cpu = claim_idle(p, tc, here); /* see arrivals.bpf.h */
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
	else
		displace(p, tc, here, enq_flags);
}

/* The CPU has nothing else to do (SCX_ENQ_LAST): may the task go on here? */
static __always_inline bool may_stay(const struct task_struct *p,
				     struct task_ctx *tc,
				     const struct tl_cpu *c)
{
	u32 better_idle;
	s32 home = home_of(p, tc);

	if (groups_throttled(p, tc) || (home >= 0 && home != c->number))
		return false;
	refresh_caps(p, tc);
	better_idle = tl_task_is_guest(&tc->t, c->class) &&
		      better_place_idle(p, SCRATCH_CALLBACK);
	return tl_may_stay(&tc->t, c->class, better_idle,
			   better_core_idle(p, c));
}

#endif
