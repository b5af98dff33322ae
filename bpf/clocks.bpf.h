/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queues and their clocks (policy/clock.h): charging, keys, heads.
 *
 * Problem: the clock of a queue is moved by whatever its tasks use, on all CPUs of
 * the shard. An atomic addition per switch, and two more to count running tasks, move
 * one cache line between up to 16 CPUs each time.
 *
 * Idea: each CPU sums up in lines of its own what its tasks have used
 * (tl_cpu.charged_ns) and says on whose clock its task is (running_clock). Every
 * TL_ADVANCE_NS the first CPU of the shard that has a tick adds the sums up and
 * advances the clocks. Nothing is lost; a clock is a few milliseconds late, less
 * than a slice, and only shares depend on it: waits are bounded by keys.
 *
 * What a CPU charges on a clock of another shard, to a task that it has just taken
 * from there, is added atomically there: when it charges on another clock or
 * idles, and at the latest after TL_FOREIGN_MOST_NS. The clock of the tasks pinned
 * to a CPU is moved by that CPU alone.
 */
#ifndef TL_CLOCKS_BPF_H
#define TL_CLOCKS_BPF_H

#define TL_ADVANCE_NS 4000000ull
/* The most that a CPU keeps back of what it owes another shard's clock: a few
 * advances, so that ticks do not write to that shard's line each time. */
#define TL_FOREIGN_MOST_NS (4 * TL_ADVANCE_NS)

static __always_inline struct shard *shard_at(u32 shard)
{
	return &shards[shard & (TL_SHARDS_MAX - 1)];
}

/* The queue's part of an id, within the tables' bounds. */
static __always_inline u32 queue_of(u32 id)
{
	return (id & 7) < TL_NR_QUEUES ? id & 7 : 0;
}

/* The clock of the queue with this id. */
static __always_inline struct tl_clock *clock_of(u32 id)
{
	if (tl_id_is_pinned(id))
		return &cpus[tl_id_cpu(id) & (TL_CPUS_MAX - 1)].pinned;
	return &shard_at(tl_id_shard(id))->clock[queue_of(id)];
}

/* The shard that a queue's tasks wait in. */
static __always_inline u32 shard_of_id(u32 id)
{
	return tl_id_is_pinned(id) ? shard_of_cpu(tl_id_cpu(id)) :
				     tl_id_shard(id);
}

/* Tasks that wait in a queue. */
static __always_inline u32 nr_queued(u32 id)
{
	s32 nr = scx_bpf_dsq_nr_queued(id);

	return nr < 0 ? 0 : nr;
}

/* What a queue has to do, when last counted. */
struct load {
	u32 nr_tasks; /* waiting and running */
	u32 nr_cpus;  /* that are there for them */
};

static __always_inline struct load load_of(u32 id)
{
	const struct shard *s = shard_at(tl_id_shard(id));
	struct load load;

	if (tl_id_is_pinned(id)) {
		load.nr_tasks = nr_queued(id);
		load.nr_cpus = 1;
	} else {
		load.nr_tasks = s->nr_tasks[queue_of(id)];
		load.nr_cpus = s->nr_cpus[queue_of(id)];
	}
	return load;
}

/* The load with one task more, that comes. */
static __always_inline struct load load_with_one_more(u32 id)
{
	struct load load = load_of(id);

	load.nr_tasks++;
	return load;
}

/* The value of the clock that the task's virtual time is on. */
static __always_inline u64 clock_ns_of(const struct tl_task *t)
{
	return t->clock ? clock_of(t->clock)->vtime_ns : t->vtime_ns;
}

/* The key by which a task would wait in this queue from since_ns on. */
static __always_inline u64 key_in(const struct tl_task *t, u32 id,
				  const struct load *load, u64 slice_ns,
				  u64 since_ns)
{
	return tl_task_key(t, clock_ns_of(t), clock_of(id), slice_ns,
			   tl_most_wait_ns(slice_ns, load->nr_tasks,
					   load->nr_cpus),
			   since_ns);
}

/* The slice of a task on the clock of this queue, which has this load. */
static __always_inline u64 slice_in(const struct tl_task *t, u32 id,
				    const struct load *load, u64 slice_ns)
{
	return tl_slice_from_ns(t, clock_of(id), slice_ns, load->nr_tasks,
				load->nr_cpus);
}

/* Put the task on the clock of this queue. */
static __always_inline void change_clock(struct tl_task *t, u32 id,
					 const struct load *load, u64 slice_ns)
{
	tl_vtime_place(t, id, clock_ns_of(t), clock_of(id), slice_ns,
		       tl_most_wait_ns(slice_ns, load->nr_tasks,
				       load->nr_cpus));
}

/* Another shard's clock gets what the CPU owes it. */
static __always_inline void pay_foreign(struct tl_cpu *c)
{
	u32 id = c->foreign_clock;

	if (!c->foreign_ns)
		return;
	count_shared_atomic();
	__sync_fetch_and_add(
		&shard_at(tl_id_shard(id))->foreign_ns[queue_of(id)],
		c->foreign_ns);
	c->foreign_ns = 0;
}

/* The running task, of this clock, has used CPU time: charged_ns on it. */
static __always_inline void charge_clock(struct tl_cpu *c, u32 id,
					 u64 charged_ns, u64 now_ns)
{
	u32 nr_waiting, queue = queue_of(id);

	if (!id)
		return;
	if (tl_id_is_pinned(id)) {
		nr_waiting = nr_queued(id);
		tl_clock_advance(clock_of(id), charged_ns, 1 + nr_waiting,
				 nr_waiting, now_ns);
	} else if (tl_id_shard(id) == c->shard) {
		c->charged_ns[queue] += charged_ns;
	} else {
		if (c->foreign_clock != id)
			pay_foreign(c);
		c->foreign_clock = id;
		c->foreign_ns += charged_ns;
		if (c->foreign_ns >= TL_FOREIGN_MOST_NS)
			pay_foreign(c);
	}
}

/* Sum over the shard's CPUs: what they have charged on a queue's clock, and how
 * many run a task of it. The sums are in the shard, where the verifier does not
 * follow their values from one round of the loop to the next. */
__noinline int tl_add_up(u32 shard, u32 queue)
{
	u32 id = tl_queue_id(shard, queue), first, i;
	struct shard *s;

	if (shard >= TL_SHARDS_MAX || queue >= TL_NR_QUEUES)
		return 0;
	s = &shards[shard];
	s->sum_ns = s->foreign_ns[queue];
	s->nr_running = 0;
	first = shard_cpus[shard].first;
	bpf_for(i, 0, shard_cpus[shard].nr) {
		u32 cpu = cpu_at[(first + i) & (TL_CPUS_MAX - 1)] &
			  (TL_CPUS_MAX - 1);

		s->sum_ns += cpus[cpu].charged_ns[queue];
		if (cpus[cpu].running_clock == id)
			s->nr_running++;
	}
	return 0;
}

__noinline int tl_advance_queue(u32 shard, u32 queue, u64 now_ns)
{
	struct shard *s;
	u32 nr_waiting;
	u64 step_ns;

	if (shard >= TL_SHARDS_MAX || queue >= TL_NR_QUEUES)
		return 0;
	s = &shards[shard];
	tl_add_up(shard, queue);
	nr_waiting = nr_queued(tl_queue_id(shard, queue));
	step_ns = s->sum_ns - s->charged_ns[queue];
	s->charged_ns[queue] = s->sum_ns;
	s->nr_tasks[queue] = nr_waiting + s->nr_running;
	tl_clock_advance(&s->clock[queue], step_ns, s->nr_tasks[queue],
			 nr_waiting, now_ns);
	return 0;
}

/* A tick: advance the shard's clocks if it is time and no other CPU does. */
static __always_inline void advance_clocks(u32 shard, u64 now_ns)
{
	struct shard *s = shard_at(shard);
	u64 last_ns = s->advanced_ns;
	u32 queue;

	if (now_ns - last_ns < TL_ADVANCE_NS ||
	    __sync_val_compare_and_swap(&s->advanced_ns, last_ns, now_ns) !=
		    last_ns)
		return;
	bpf_for(queue, 0, TL_NR_QUEUES)
		tl_advance_queue(shard, queue, now_ns);
}

#endif
