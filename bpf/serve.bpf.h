/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A CPU looks for its next task: the policy's steps, each through its own shard,
 * then the others, nearest first.
 *
 * The task that ran until now (prev) is not in a queue yet. If it could go on, it
 * competes with those that wait, by the key that it would have (policy/turns.h):
 * it goes on, with a new slice, unless a task of an earlier step waits, it is
 * another side's turn, or the head of its own side has a smaller key.
 *
 * If prev could go on and no task has been queued in the shard since the CPU last
 * looked in vain, it does not look again (arrivals.bpf.h), but for its looks at other
 * shards. Nor, in that case, at what prev has just hinted: stopping() reads it in a
 * moment, and enqueue() finds the place.
 */
#ifndef TL_SERVE_BPF_H
#define TL_SERVE_BPF_H

enum taken {
	TAKEN_NONE = 0, /* nothing waits */
	TAKEN_TASK = 1, /* a task was moved to the CPU */
	TAKEN_PREV = 2, /* tasks wait, and prev goes before them */
};

/* What ran until now and may go on: where it competes. */
struct rival {
	u64 key_ns;
	u32 clock; /* queue whose clock it is on */
	u32 step;
	u32 side; /* TL_SIDE_NONE: there is none */
	s32 cpu;  /* that looks for work */
};

/* What waits on the CPU's sides in a step. */
struct waiting {
	struct tl_sides sides;
	u32 id[TL_NR_SIDES];
};

static __always_inline void look_at_side(struct waiting *w, u32 side, u32 id)
{
	w->id[side] = id;
	w->sides.nr_tasks[side] = nr_queued(id);
}

static __always_inline void look_at_sides(struct waiting *w, s32 cpu, u32 class,
					  u32 step, u32 shard, bool with_pinned)
{
	__builtin_memset(w, 0, sizeof(*w));
	look_at_side(w, TL_SIDE_OWN,
		     tl_queue_id(shard, tl_step_queue(class, step)));
	if (!tl_step_has_default(step))
		return;
	look_at_side(w, TL_SIDE_DEFAULT, tl_queue_id(shard, TL_Q_DEFAULT));
	if (with_pinned)
		look_at_side(w, TL_SIDE_PINNED, tl_pinned_id(cpu));
}

/* Read the keys of the heads. Where only one side has tasks, the keys are not needed,
 * and a look at a head costs as much as the rest of the choice. */
static __always_inline void look_at_keys(struct waiting *w)
{
	u32 i;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++)
		if (w->sides.nr_tasks[i])
			w->sides.key_ns[i] = tl_scx_head_key(w->id[i]);
}

static __always_inline bool is_one_side(const struct waiting *w)
{
	u32 present = tl_sides_present(&w->sides);

	return !(present & (present - 1));
}

/* Let prev compete on its side. Whether it goes before the head there. */
static __always_inline bool join_side(struct waiting *w, const struct rival *r)
{
	bool first = false;
	u32 i;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++) {
		if (i != r->side)
			continue;
		first = !w->sides.nr_tasks[i] ||
			(s64)(r->key_ns - w->sides.key_ns[i]) < 0;
		if (first)
			w->sides.key_ns[i] = r->key_ns;
		w->sides.nr_tasks[i]++;
	}
	return first;
}

/* Of the sides in this set, which of them has the first key; TL_SIDE_NONE. */
static __always_inline u32 first_side(const struct waiting *w)
{
	u32 i, first = TL_SIDE_NONE;
	u64 key_ns = 0;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++) {
		if (!w->sides.nr_tasks[i])
			continue;
		if (first == TL_SIDE_NONE ||
		    (s64)(w->sides.key_ns[i] - key_ns) < 0) {
			first = i;
			key_ns = w->sides.key_ns[i];
		}
	}
	return first;
}

static __always_inline u64 key_of_side(const struct waiting *w, u32 side)
{
	u64 key_ns = 0;
	u32 i;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++)
		if (i == side)
			key_ns = w->sides.key_ns[i];
	return key_ns;
}

static __always_inline u32 id_of_side(const struct waiting *w, u32 side)
{
	u32 i, id = 0;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++)
		if (i == side)
			id = w->id[i];
	return id;
}

/* Take the first task of these sides that this CPU may run, beginning with this
 * side. Returns the side, TL_SIDE_NONE if there was none. */
static __always_inline u32 move_from(const struct waiting *w, u32 first)
{
	u32 i;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++)
		if (i == first && w->id[i] && tl_scx_move_to_local(w->id[i]))
			return i;
	/* a queue may hold only tasks that this CPU may not run */
#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++)
		if (i != first && w->id[i] && w->sides.nr_tasks[i] &&
		    tl_scx_move_to_local(w->id[i]))
			return i;
	return TL_SIDE_NONE;
}

static __always_inline void
begin_turn(struct tl_cpu *c, const struct waiting *w, u32 side, u32 clock)
{
	u32 i;

#pragma unroll
	for (i = 0; i < TL_NR_SIDES; i++) {
		struct load load;

		if (i != side)
			continue;
		load = load_of(w->id[i]);
		/* the count is up to TL_ADVANCE_NS old */
		if (load.nr_tasks < w->sides.nr_tasks[i])
			load.nr_tasks = w->sides.nr_tasks[i];
		tl_turns_begin(&c->turns, i, clock ? clock : w->id[i],
			       load.nr_tasks, load.nr_cpus);
	}
}

/* Not static: so the verifier looks at it once. */
__noinline u32 tl_choose_side(struct tl_turns *turns, struct tl_sides *sides)
{
	if (!turns || !sides)
		return TL_SIDE_NONE;
	return tl_turns_choose(turns, sides, cfg.slice_ns, bpf_ktime_get_ns());
}

/* Take a task of the step from the CPU's own shard. */
__noinline int tl_take_own(struct tl_cpu *c, struct rival *r, u32 step)
{
	struct waiting w;
	bool prev_first = false;
	bool shares = tl_step_has_default(step);
	u32 side, taken;

	if (!c || !r)
		return TAKEN_NONE;
	look_at_sides(&w, r->cpu, c->class & 3, step, c->shard, true);
	if (!tl_sides_present(&w.sides))
		return TAKEN_NONE;
	if (r->side < TL_NR_SIDES && r->step == step) {
		look_at_keys(&w);
		prev_first = join_side(&w, r);
	} else if (!is_one_side(&w)) {
		look_at_keys(&w);
	}
	side = shares ? tl_choose_side(&c->turns, &w.sides) : TL_SIDE_OWN;
	if (prev_first && side == r->side) {
		if (shares)
			begin_turn(c, &w, side, r->clock);
		return TAKEN_PREV;
	}
	taken = move_from(&w, side);
	if (taken == TL_SIDE_NONE)
		return TAKEN_PREV;
	if (taken == side && shares)
		begin_turn(c, &w, side, 0);
	return TAKEN_TASK;
}

/* What waits in a shard, of which this side's head is the first. Tasks that are
 * pinned to a CPU count where they are first, not in number: no CPU can take them. */
static __always_inline struct tl_backlog backlog_of(const struct waiting *w,
						    u32 first, u32 step)
{
	u32 side = tl_step_has_default(step) ? TL_SIDE_DEFAULT : TL_SIDE_OWN;
	struct tl_backlog backlog;

	backlog.key_ns = key_of_side(w, first);
	backlog.nr_waiting = w->sides.nr_tasks[TL_SIDE_OWN] +
			     w->sides.nr_tasks[TL_SIDE_DEFAULT];
	backlog.nr_cpus = load_of(w->id[side]).nr_cpus;
	backlog.pace_q10 = clock_of(id_of_side(w, first))->pace_q10;
	backlog.reserved = 0;
	return backlog;
}

/* Take a task of the step from another shard; with what waits in the CPU's own only
 * if the CPU should help (policy/locality.h). */
__noinline int tl_take_other(struct tl_cpu *c, u32 step, u32 other,
			     struct tl_backlog *own)
{
	struct tl_backlog theirs;
	struct waiting w;
	u32 first;

	if (!c)
		return TAKEN_NONE;
	look_at_sides(&w, 0, c->class & 3, step, other, false);
	if (own || !is_one_side(&w))
		look_at_keys(&w);
	first = first_side(&w);
	if (first == TL_SIDE_NONE)
		return TAKEN_NONE;
	if (own) {
		theirs = backlog_of(&w, first, step);
		if (!tl_helps(own, &theirs, cfg.slice_ns))
			return TAKEN_NONE;
	}
	if (move_from(&w, first) == TL_SIDE_NONE)
		return TAKEN_NONE;
	c->steals++;
	return TAKEN_TASK;
}

/* What waits in the CPU's own shard, prev included. Whether there is anything. */
static __always_inline bool own_backlog(struct tl_backlog *own,
					struct tl_cpu *c, const struct rival *r,
					u32 step)
{
	struct rival running = *r;
	struct waiting w;
	u32 first;

	look_at_sides(&w, r->cpu, c->class & 3, step, c->shard, true);
	look_at_keys(&w);
	running.key_ns = tl_running_key(r->key_ns, bpf_ktime_get_ns());
	if (r->side < TL_NR_SIDES && r->step == step)
		join_side(&w, &running);
	first = first_side(&w);
	if (first == TL_SIDE_NONE)
		return false;
	*own = backlog_of(&w, first, step);
	return true;
}

/* Compare the own shard with one other, another one each time. */
__noinline int tl_help(struct tl_cpu *c, struct rival *r, u32 step)
{
	struct tl_backlog own;
	u32 shard, at, other;

	if (!c || !r || !own_backlog(&own, c, r, step))
		return TAKEN_NONE;
	shard = c->shard & (TL_SHARDS_MAX - 1);
	at = c->helped + 1 < nr_shards ? c->helped + 1 : 1;
	c->helped = at;
	other = shard_order[shard][at & (TL_SHARDS_MAX - 1)];
	return tl_take_other(c, step, other, &own);
}

static __always_inline u32 take_step(struct tl_cpu *c, struct rival *r,
				     u32 step)
{
	u32 shard = c->shard & (TL_SHARDS_MAX - 1), taken, i;

	if (nr_shards > 1 && tl_compares_now(c->looks) &&
	    tl_help(c, r, step) == TAKEN_TASK)
		return TAKEN_TASK;
	taken = tl_take_own(c, r, step);
	if (taken == TAKEN_TASK || (r->side < TL_NR_SIDES && r->step == step))
		return taken;
	bpf_for(i, 1, nr_shards) {
		u32 other;

		if (i >= TL_SHARDS_MAX)
			break;
		other = shard_order[shard][i];
		if (tl_take_other(c, step, other, NULL) == TAKEN_TASK)
			return TAKEN_TASK;
	}
	return taken;
}

/* The context of prev if it wants to go on and may, else NULL. */
static __always_inline struct task_ctx *
context_if_it_stays(struct task_struct *prev, struct tl_cpu *c, bool quiet)
{
	struct task_ctx *tc;

	if (!wants_to_go_on(prev))
		return NULL;
	tc = lookup_task(prev);
	if (!tc)
		return NULL;
	if (try_unread_hint(prev, tc)) {
		if (quiet)
			return NULL;
		read_hint(prev, tc, c, bpf_ktime_get_ns());
	}
	end_gap(tc, c);
	if (may_stay(prev, tc, c))
		return tc;
	tc->move = 1; /* what is left of its time here is the kernel's */
	return NULL;
}

/* The slice of a task that goes on on this CPU. Not static: so the verifier looks at
 * it once. */
__noinline u64 tl_slice_to_go_on(struct task_ctx *tc, s32 cpu)
{
	struct load load;
	u32 id;

	if (!tc)
		return 0;
	id = tc->t.clock ? tc->t.clock : tl_pinned_id(cpu);
	load = load_with_one_more(id);
	return slice_in(&tc->t, id, &load, tl_task_slice_ns(&tc->t, &cfg));
}

/* Where prev competes with what waits. What it has used counts before that:
 * stopping() comes later. */
__noinline int tl_compete(struct rival *r, struct task_ctx *tc,
			  struct tl_cpu *c)
{
	u64 slice_ns, now_ns = bpf_ktime_get_ns();
	struct load load;
	u32 queue, id;

	if (!r || !tc || !c)
		return 0;
	slice_ns = tl_task_slice_ns(&tc->t, &cfg);
	queue = tl_task_queue(&tc->t);
	account_run(tc, c, now_ns);
	if (tc->pinned) {
		id = tl_pinned_id(r->cpu);
		r->step = 0;
		r->side = TL_SIDE_PINNED;
	} else {
		id = tl_queue_id(c->shard, queue);
		r->step = tl_queue_step(c->class & 3, queue);
		r->side = queue == TL_Q_DEFAULT ? TL_SIDE_DEFAULT : TL_SIDE_OWN;
	}
	load = load_with_one_more(id);
	if (!tc->t.clock) {
		/* it came past all queues so far; its turns count from now on */
		change_clock(&tc->t, id, &load, slice_ns);
		c->running_clock = id;
		tl_run_note(&c->run, &tc->t, now_ns);
	}
	r->clock = tc->t.clock;
	r->key_ns = key_in(&tc->t, id, &load, slice_ns, now_ns);
	return 0;
}

/* Look through the queues for a task for the CPU. Not static: so the verifier looks
 * at it once. */
__noinline int tl_look(struct tl_cpu *c, struct rival *r)
{
	u32 nr_steps, step, left = TAKEN_NONE;

	if (!c || !r)
		return TAKEN_PREV;
	nr_steps = tl_nr_steps(c->class & 3);
	c->looks++;
	bpf_for(step, 0, nr_steps) {
		u32 taken;

		if (step >= TL_NR_CLASSES ||
		    (r->side < TL_NR_SIDES && step > r->step))
			break;
		taken = take_step(c, r, step);
		if (taken == TAKEN_TASK)
			return TAKEN_TASK;
		left |= taken;
	}
	if (left == TAKEN_NONE &&
	    (r->side >= TL_NR_SIDES || r->step + 1 == nr_steps))
		return TAKEN_NONE;
	return TAKEN_PREV;
}

/* Take a task for the CPU; arrivals is the sum read before, of its own shard if
 * prev could go on. Whether prev is to go on, if it can. */
static __always_inline bool take(struct tl_cpu *c, struct rival *r,
				 u64 arrivals)
{
	u32 taken = tl_look(c, r);
	u64 watched;

	if (taken != TAKEN_NONE)
		return taken != TAKEN_TASK;
	look_after_queued(c, 0);
	watched = watch_arrivals(r->side >= TL_NR_SIDES, c->shard);
	if (watched != arrivals) {
		taken = tl_look(c, r);
		if (taken != TAKEN_NONE)
			return taken != TAKEN_TASK;
	}
	c->quiet_at = watched;
	return true;
}

/* The CPU's task leaves: from here until it runs another it is between task and
 * idle for other CPUs, which must see that before it looks (a full barrier). Returns the
 * arrivals before that look. */
static __always_inline u64 be_between(struct tl_cpu *c)
{
	__sync_lock_test_and_set(&c->running_queue, TL_Q_NONE);
	return nr_arrivals();
}

/* Whether prev goes on without a look at what waits: it could, and no task has come to
 * the shard since the CPU last looked in vain. Not when it is time to look at another
 * shard, where more tasks may share a CPU. */
static __always_inline bool
is_quiet(struct tl_cpu *c, const struct task_struct *prev, u64 arrivals)
{
	if (!wants_to_go_on(prev) || c->quiet_at != arrivals)
		return false;
	if (nr_shards == 1)
		return true;
	if (tl_compares_now(c->looks + 1))
		return false;
	c->looks++;
	return true;
}

static __always_inline void serve(s32 cpu, struct task_struct *prev)
{
	struct tl_cpu *c = lookup_cpu(cpu);
	struct rival r = {.side = TL_SIDE_NONE, .cpu = cpu};
	struct task_ctx *stays;
	u64 arrivals, slice_ns, now_ns;
	bool quiet;

	if (!c || fault == TL_FAULT_STALL || goes_on_inside(prev))
		return;
	note_choice(c);
	arrivals = nr_arrivals_at(c->shard);
	quiet = is_quiet(c, prev, arrivals);
	stays = context_if_it_stays(prev, c, quiet);
	if (stays && !quiet)
		tl_compete(&r, stays, c);
	tl_turns_end(&c->turns);
	if (!stays)
		arrivals = be_between(c);
	if (!quiet && !take(c, &r, arrivals))
		return;
	if (!stays || !prev)
		return;
	now_ns = bpf_ktime_get_ns();
	slice_ns = tl_slice_to_go_on(stays, cpu);
	tl_scx_set_slice(prev, slice_ns);
	time_slice(cpu, stays->t.clock, slice_ns, now_ns);
	time_stay(&stays->t, cpu, now_ns);
	/* It goes on without running() being called, and its type may have
	 * changed since it started: publish which tasks may displace it now. Else a guest
	 * that was wide until now holds a wide CPU until the next tick. */
	c->running_queue = tl_task_queue(&stays->t);
}

#endif
