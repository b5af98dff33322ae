/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The sched_ext adapter: kernel callbacks in, calls of policy/, kernel actions
 * out. What a task is and where it belongs is decided in policy/; here it is
 * carried out.
 *
 *   state.bpf.h    tables, per-task and per-CPU state, look-ups
 *   arrivals.bpf.h how a CPU knows that nothing has been queued
 *   classes.bpf.h  CPU classes as masks, what an affinity reaches
 *   clocks.bpf.h   queues and their clocks
 *   slices.bpf.h   slices that end between two ticks
 *   stays.bpf.h    tasks that stay on their wide CPU without an open section
 *   victims.bpf.h  which tasks wide work displaces
 *   groups.bpf.h   control groups: weights, limits
 *   rules.bpf.h    what the user has decided about tasks
 *   home.bpf.h     tasks go back to where they were taken from
 *   place.bpf.h    select_cpu, enqueue: an idle CPU or a queue
 *   guests.bpf.h   scalar work on wide CPUs: when it goes
 *   leave.bpf.h    giving up a CPU on request of a tracing program
 *   exposure.bpf.h what levels cost other code
 *   detect.bpf.h   hints, marks, system calls, traps -> events
 *   score.bpf.h    licence counters -> events
 *   target.bpf.h   how fast the CPU is to be for its task
 *   inside.bpf.h   tasks that are switched out inside a tracing program
 *   overlooked.bpf.h  idle CPUs that have overlooked a task
 *   serve.bpf.h    dispatch: the next task of a CPU
 *   control.bpf.h  requests of the loader
 *   held.bpf.h     tasks whose group is out of CPU time
 *   away.bpf.h     the scheduler goes while it stands by, and comes back
 *   list.bpf.h     what each task has done, for readers
 *
 * Life of a task on a CPU: (select_cpu) -> enqueue -> dispatch -> running ->
 * tick ... -> stopping -> enqueue or sleep. Its type is settled in stopping,
 * before enqueue asks where it belongs. One case is left: a task that was
 * placed when its type or the classes were different. running() sees it and
 * sends it on, so that wide code is on a scalar CPU for no more than one
 * reschedule.
 *
 * SCX_OPS_ENQ_LAST: without it the kernel would let a task that must move go on
 * where it is when nothing else is there to run.
 */
#include "kernel.bpf.h"
#include "compat.bpf.h"
#include "../policy/cpus.h"
#include "hint_page.h"
#include "lane.h"

char LICENSE[] SEC("license") = "GPL";

#include "state.bpf.h"
#include "arrivals.bpf.h"
#include "classes.bpf.h"
#include "clocks.bpf.h"
#include "slices.bpf.h"
#include "stays.bpf.h"
#include "victims.bpf.h"
#include "groups.bpf.h"
#include "home.bpf.h"
#include "place.bpf.h"
#include "detect.bpf.h"
#include "rules.bpf.h"
#include "score.bpf.h"
#include "target.bpf.h"
#include "inside.bpf.h"
#include "overlooked.bpf.h"
#include "serve.bpf.h"
#include "control.bpf.h"
#include "held.bpf.h"
#include "away.bpf.h"
#include "list.bpf.h"

SEC("struct_ops/tl_select_cpu")
s32 BPF_PROG(tl_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task_ctx *tc = lookup_task(p);
	s32 cpu;

	if (!tc)
		return prev_cpu;
	groups_active(p, tc);
	follow_rules(p, tc);
	if (groups_throttled(p, tc) || home_of(p, tc) >= 0)
		return prev_cpu;
	refresh_caps(p, tc);
	cpu = claim_idle(p, tc, prev_cpu);
	if (cpu < 0)
		return prev_cpu;
	tc->went_first = 0;
	tl_scx_insert(p, TL_DSQ_LOCAL, tl_task_slice_ns(&tc->t, &cfg), 0);
	return cpu;
}

SEC("struct_ops/tl_enqueue")
void BPF_PROG(tl_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 here = scx_bpf_task_cpu(p);
	struct task_ctx *tc = lookup_task(p);
	struct tl_cpu *c = lookup_cpu(here);
	s32 home;

	if (!tc || !c)
		return;
	groups_active(p, tc);
	follow_rules(p, tc);
	/* not if a realtime task has just taken its home's CPU */
	home = enq_flags & TL_ENQ_REENQ ? -1 : home_of(p, tc);
	if (groups_throttled(p, tc))
		hold(p, tc, enq_flags);
	else if (home >= 0)
		tl_scx_insert(p, TL_DSQ_LOCAL_ON | home,
			      tl_task_slice_ns(&tc->t, &cfg), enq_flags);
	else if ((enq_flags & TL_ENQ_LAST) && may_stay(p, tc, c))
		tl_scx_insert(p, TL_DSQ_LOCAL, tl_task_slice_ns(&tc->t, &cfg),
			      enq_flags);
	else
		place(p, tc, here, enq_flags);
}

SEC("struct_ops/tl_dispatch")
void BPF_PROG(tl_dispatch, s32 cpu, struct task_struct *prev)
{
	bring_back(cpu);
	serve(cpu, prev);
}

/* It starts on another CPU than it last ran on. The cause is read off the CPU
 * that it left; where the classes have changed since, they are the cause. */
static __always_inline void count_migration(struct task_ctx *tc,
					    struct tl_cpu *c)
{
	u32 left = cpus[tc->last_cpu & (TL_CPUS_MAX - 1)].class;

	c->migrations++;
	tc->sums.migrations++;
	if (tc->t.level > left)
		c->to_wide++;
	else if (left && !c->class && !tc->t.level)
		c->from_wide++;
}

static __always_inline void account_start(struct task_ctx *tc, struct tl_cpu *c,
					  s32 cpu, u64 now_ns)
{
	u32 kind = tl_kind(tc->t.type, tc->t.level);
	bool moves = tc->last_cpu >= 0 && tc->last_cpu != cpu;
	u64 waited_ns = 0;

	if (tc->t.enqueued_ns) {
		waited_ns = now_ns - tc->t.enqueued_ns;
		c->wait_ns[kind] += waited_ns;
		c->mix_wait_ns +=
			tl_mix_wide_ns(&tc->t.mix, waited_ns, tc->t.level);
		tc->t.enqueued_ns = 0;
	} else {
		/* it came past the queues */
		tl_turns_end(&c->turns);
	}
	c->runs[kind]++;
	if (moves)
		count_migration(tc, c);
	tc->last_cpu = cpu;
	tc->began_ns = now_ns;
	tl_task_comes(&tc->t);
	if (!c->class)
		tc->scalar_cpu = cpu;
	watch_start(tc, c, waited_ns, moves, now_ns);
}

/* Whether the kernel asks us where the task goes when it is switched out. It leaves one
 * that may not migrate, or that exits, where it is: sent on, that would start there again
 * and never get on. */
static __always_inline bool may_go_elsewhere(struct task_struct *p)
{
	return !may_not_migrate(p) && !(p->flags & PF_EXITING);
}

/* Switch out a task that has just started, before it gets anywhere. */
static __always_inline void send_on(struct task_struct *p, s32 cpu)
{
	tl_scx_set_slice(p, 0);
	scx_bpf_kick_cpu(cpu, TL_KICK_PREEMPT);
}

SEC("struct_ops/tl_running")
void BPF_PROG(tl_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tc = lookup_task(p);
	struct tl_cpu *c = lookup_cpu(cpu);
	u64 now_ns = bpf_ktime_get_ns();
	u32 queue;

	if (!tc || !c)
		return;
	follow_rules(p, tc);
	account_start(tc, c, cpu, now_ns);
	tc->t.started_ns = now_ns;
	tc->counted_ns = now_ns;
	c->running_clock = tc->t.clock;
	tl_run_begins(&c->run, &tc->t, now_ns);
	time_slice(cpu, tc->t.clock, p->scx.slice, now_ns);
	refresh_caps(p, tc);
	queue = tl_task_queue(&tc->t);
	c->running_queue = queue;
	note_choice(c);
	follow_target(p, tc, c, cpu, 0);
	groups_active(p, tc);
	if (groups_throttled(p, tc)) {
		send_on(p, cpu);
		return;
	}
	groups_run(p, tc);
	if (starts_too_early(p, c)) {
		send_on(p, cpu);
	} else if (tl_queue_fits(queue, c->class)) {
		if (tc->t.type == TL_WIDE)
			tc->t.flags |= TL_TASK_RAN_FIT;
	} else if (!sends_home && may_go_elsewhere(p)) {
		c->misfits++;
		send_on(p, cpu);
		return;
	}
	time_stay(&tc->t, cpu, now_ns); /* it is where it stays, if it does */
}

static __always_inline void tell_stop(struct task_struct *p,
				      struct task_ctx *tc, struct tl_cpu *c,
				      u64 now_ns)
{
	if (tl_last_is_after(&tc->t.last)) /* its section may be over */
		read_hint(p, tc, c, now_ns);
	tell_end(tc, c, TL_EV_SWITCH_OUT, now_ns);
	read_hint(p, tc, c, now_ns);
}

SEC("struct_ops/tl_stopping")
void BPF_PROG(tl_stopping, struct task_struct *p, bool runnable)
{
	struct task_ctx *tc = lookup_task(p);
	struct tl_cpu *c = lookup_cpu(scx_bpf_task_cpu(p));
	u64 now_ns;

	if (!tc || !c)
		return;
	now_ns = bpf_ktime_get_ns();
	account_run(tc, c, now_ns);
	if (!tc->in_report)
		tell_stop(p, tc, c, now_ns);
	watch_level(tc, c, 0, now_ns);
	c->running_clock = 0;
	forget_stay(scx_bpf_task_cpu(p));
	if (!runnable) {
		tc->may_hold = 0;
		groups_idle(tc);
	}
	c->running_queue = TL_Q_NONE;
	stops_inside(p, c, runnable);
	if (!may_not_migrate(p))
		tc->move = 0;
}

static __always_inline void tick_task(struct task_struct *p,
				      struct task_ctx *tc, struct tl_cpu *c,
				      s32 cpu, u64 now_ns)
{
	u32 changed;

	account_run(tc, c, now_ns);
	changed = read_hint(p, tc, c, now_ns);
	changed |= tell_end(tc, c, TL_EV_TICK, now_ns);
	changed |= follow_rules_running(p, tc, c, now_ns);
	watch_level(tc, c, tc->t.level, now_ns);
	refresh_caps(p, tc);
	if (!tl_task_fits(&tc->t, c->class)) {
		/* not if it just reported, or is leaving: without a slice
		 * it is switched out at this tick anyway */
		c->tick_wide_on_scalar += !changed && !is_leaving(tc) &&
					  p->scx.slice;
		tl_scx_set_slice(p, 0);
	} else if (groups_tick(p, tc) || guest_should_go(p, tc, c, cpu) ||
		   better_core_idle(p, c)) {
		tl_scx_set_slice(p, 0);
	}
	c->running_queue = tl_task_queue(&tc->t);
	follow_target(p, tc, c, cpu, 1);
}

SEC("struct_ops/tl_tick")
void BPF_PROG(tl_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct task_ctx *tc = lookup_task(p);
	struct tl_cpu *c = lookup_cpu(cpu);
	u64 now_ns = bpf_ktime_get_ns();

	if (!tc || !c)
		return;
	c->ticks++;
	if (!tc->in_report)
		tick_task(p, tc, c, cpu, now_ns);
	advance_clocks(c->shard, now_ns);
	look_after_queued(c, 1ull << (c->ticks % nr_shards));
	if (fault == TL_FAULT_ERROR && c->ticks > 50)
		tl_scx_error("provoked on purpose (--fault error)");
}

SEC("struct_ops/tl_set_weight")
void BPF_PROG(tl_set_weight, struct task_struct *p, u32 weight)
{
	struct task_ctx *tc = lookup_task(p);

	if (tc)
		groups_set_weight(tc, weight);
}

SEC("struct_ops/tl_set_cpumask")
void BPF_PROG(tl_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct task_ctx *tc = lookup_task(p);

	if (!tc)
		return;
	tc->caps_generation = 0;
	leave_at_last(p, tc);
}

/* A task may have been queued between this CPU's last look and its idle bit,
 * which the kernel has just set; see arrivals.bpf.h. */
SEC("struct_ops/tl_update_idle")
void BPF_PROG(tl_update_idle, s32 cpu, bool idle)
{
	struct tl_cpu *c = lookup_cpu(cpu);

	if (!idle || !c)
		return;
	pay_foreign(c);
	look_after_queued(c, 0);
	if (c->quiet_at != nr_arrivals())
		scx_bpf_kick_cpu(cpu, TL_KICK_IDLE);
}

/* The task that a new task inherits from: the one that forks it; if that was while the
 * scheduler was away, its process or its parent, which come first in the kernel's list.
 * NULL: none. */
static __always_inline struct task_ctx *try_lookup_parent(struct task_struct *p,
							  bool forks)
{
	struct task_struct *leader = p->group_leader, *parent = p->real_parent;

	if (forks)
		return try_lookup_task(bpf_get_current_task_btf());
	if (leader && leader != p)
		return try_lookup_task(leader);
	return parent ? try_lookup_task(parent) : NULL;
}

/* A task that the scheduler has not seen before. */
static __always_inline void begin_task(struct task_struct *p,
				       struct task_ctx *tc, bool forks)
{
	struct task_ctx *parent = try_lookup_parent(p, forks);
	u8 type = TL_DEFAULT, level = 0;

	if (parent && parent->t.weight) {
		level = forks ? tl_task_bequest(&parent->t) : 0;
		type = tl_task_bequest_type(&parent->t, level);
	}
	tl_task_init(&tc->t, &cfg, type, level, bpf_ktime_get_ns());
	if (forks && parent && p->group_leader != p)
		tl_score_inherit(&tc->t.score, &parent->t.score);
	tc->last_cpu = -1;
	if (p->flags & PF_KTHREAD) {
		tc->t.type = TL_DEFAULT;
		tc->t.level = 0;
		tc->t.loose_level = 0;
	}
}

SEC("struct_ops/tl_init_task")
s32 BPF_PROG(tl_init_task, struct task_struct *p,
	     struct scx_init_task_args *args)
{
	struct task_ctx *tc;

	tc = bpf_task_storage_get(&tasks, p, NULL,
				  BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!tc)
		return -ENOMEM;
	if (tc->t.weight) { /* the scheduler knew it before it was away */
		tl_task_renew(&tc->t);
		take_kernel_use(p, tc);
	} else {
		begin_task(p, tc, args->fork);
	}
	tc->scalar_cpu = -1;
	tc->home = args->fork ? -1 : scx_bpf_task_cpu(p);
	tc->hint_want = TL_HINT_SILENT; /* read it */
	tc->group = TL_GROUP_UNKNOWN;
	tc->counts_in = 0;
	tc->may_hold = 0;
	tc->held_since_ns = 0;
	groups_set_weight(tc, p->scx.weight);
	tc->caps_generation = 0;
	tc->rules_generation = 0;
	tc->css_seen = 0;
	tc->pinned = 0;
	tc->went_first = 0;
	tc->look = 0;
	tc->in_report = 0;
	tc->move = 0;
	tc->unread_ns = 0;
	tc->level_seen = 0;
	return 0;
}

SEC("struct_ops/tl_exit_task")
void BPF_PROG(tl_exit_task, struct task_struct *p,
	      struct scx_exit_task_args *args)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (!tc)
		return;
	groups_idle(tc);
	note_kernel_use(p, tc);
}

/* It leaves for another scheduling class, maybe while it is queued. */
SEC("struct_ops/tl_disable")
void BPF_PROG(tl_disable, struct task_struct *p)
{
	struct task_ctx *tc = try_lookup_task(p);

	if (tc)
		groups_idle(tc);
}

/* A realtime or deadline task took the CPU: what waits on its local queue may
 * go elsewhere. */
SEC("struct_ops/tl_cpu_release")
void BPF_PROG(tl_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	tl_scx_reenqueue_local();
}

static __always_inline int create_queues(void)
{
	u32 shard, queue, cpu;
	int err;

	bpf_for(shard, 0, nr_shards) {
		bpf_for(queue, 0, TL_NR_QUEUES) {
			err = scx_bpf_create_dsq(tl_queue_id(shard, queue), -1);
			if (err)
				return err;
		}
	}
	bpf_for(cpu, 0, nr_cpus) {
		err = scx_bpf_create_dsq(tl_pinned_id(cpu), -1);
		if (err)
			return err;
	}
	return 0;
}

SEC("struct_ops.s/tl_init")
s32 BPF_PROG(tl_init)
{
	int err;

	begin_anew();
	if (away)
		away = TL_COMING;
	err = create_queues();
	if (!err)
		err = create_scratch_masks(SCRATCH_CALLBACK);
	if (!err)
		err = create_scratch_masks(SCRATCH_PROBE);
	if (!err)
		err = create_slice_timers();
	if (!err)
		err = create_stay_timers();
	if (!err)
		err = start_passes();
	if (!err)
		err = apply_classes();
	publish_targets();
	return err;
}

SEC("struct_ops/tl_exit")
void BPF_PROG(tl_exit, struct scx_exit_info *info)
{
	struct tl_hint_board *board = lookup_board();

	/* what ends it by force, ends the run */
	if (away && info->kind < TL_EXIT_ERROR)
		publish_away();
	else if (board)
		board->header.active = 0;
	exited.code = info->exit_code;
	bpf_probe_read_kernel_str(exited.reason, sizeof(exited.reason),
				  info->reason);
	bpf_probe_read_kernel_str(exited.message, sizeof(exited.message),
				  info->msg);
	exited.kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops lane_ops = {
	.select_cpu = (void *)tl_select_cpu,
	.enqueue = (void *)tl_enqueue,
	.dispatch = (void *)tl_dispatch,
	.tick = (void *)tl_tick,
	.running = (void *)tl_running,
	.stopping = (void *)tl_stopping,
	.set_weight = (void *)tl_set_weight,
	.set_cpumask = (void *)tl_set_cpumask,
	.update_idle = (void *)tl_update_idle,
	.init_task = (void *)tl_init_task,
	.exit_task = (void *)tl_exit_task,
	.disable = (void *)tl_disable,
	.cgroup_init = (void *)tl_cgroup_init,
	.cgroup_exit = (void *)tl_cgroup_exit,
	.cgroup_move = (void *)tl_cgroup_move,
	.cgroup_set_weight = (void *)tl_cgroup_set_weight,
	.cgroup_set_bandwidth = (void *)tl_cgroup_set_bandwidth,
	.cgroup_set_idle = (void *)tl_cgroup_set_idle,
	.init = (void *)tl_init,
	.exit = (void *)tl_exit,
	.cpu_release = (void *)tl_cpu_release,
	.flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST,
	.timeout_ms = 10000,
	.name = "turbolane",
};
