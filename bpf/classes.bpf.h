/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Classes of CPUs as cpumasks, and which of them a task's affinity reaches.
 *
 * The class of a CPU is one word in cpus[]; searching an idle CPU of a class
 * needs a mask per class and *scope*: the machine (scope 0), a node, a last-level
 * cache. Where a node is the machine, or a cache its node, there is no scope of
 * its own for it. The masks are replaced, never changed, so that
 * readers see one set or the other. Readers are under RCU: by being programs
 * that cannot sleep, or by bpf_rcu_read_lock() in those that can.
 *
 * A task caches which classes its affinity reaches (tl_task.caps). The cache
 * is stale when the classes change (class_generation) or its affinity does
 * (set_cpumask zeroes caps_generation).
 */
#ifndef TL_CLASSES_BPF_H
#define TL_CLASSES_BPF_H

struct mask_box {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TL_SCOPES_MAX *TL_NR_CLASSES);
	__type(key, u32);
	__type(value, struct mask_box);
} class_masks SEC(".maps");

/* Masks per CPU to intersect into: one of the scheduler's callbacks, which run
 * with interrupts off, and one of the programs that those may interrupt. */
#define SCRATCH_CALLBACK 0u
#define SCRATCH_PROBE 1u
#define NR_SCRATCH 2u

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, NR_SCRATCH);
	__type(key, u32);
	__type(value, struct mask_box);
} scratch_masks SEC(".maps");

static __always_inline struct mask_box *lookup_class_box(u32 class, u32 scope)
{
	u32 key = scope * TL_NR_CLASSES + class;

	return bpf_map_lookup_elem(&class_masks, &key);
}

/* Mask of the CPUs of a class within a scope; NULL before the first
 * apply_classes(). */
static __always_inline struct bpf_cpumask *try_lookup_class_mask(u32 class,
								 u32 scope)
{
	struct mask_box *box = lookup_class_box(class, scope);

	return box ? box->mask : NULL;
}

/* This CPU's mask to intersect into. */
static __always_inline struct bpf_cpumask *try_lookup_scratch_mask(u32 scratch)
{
	struct mask_box *box = bpf_map_lookup_elem(&scratch_masks, &scratch);

	return box ? box->mask : NULL;
}

static __always_inline const struct cpumask *as_cpumask(struct bpf_cpumask *m)
{
	return (const struct cpumask *)m;
}

static __always_inline bool reaches_everything(const struct task_struct *p)
{
	return p->nr_cpus_allowed >= (s32)nr_cpus;
}

/* Whether the task's affinity holds a CPU of the class. */
static __always_inline bool reaches_class(const struct task_struct *p,
					  u32 class)
{
	struct bpf_cpumask *mask = try_lookup_class_mask(class, 0);

	return mask && bpf_cpumask_intersects(as_cpumask(mask), p->cpus_ptr);
}

static __always_inline void refresh_caps(const struct task_struct *p,
					 struct task_ctx *tc)
{
	u32 generation = class_generation, caps = 0, class;

	if (tc->caps_generation == generation)
		return;
	if (reaches_everything(p)) {
		caps = classes_present;
	} else {
		bpf_for(class, 0, TL_NR_CLASSES)
			if (reaches_class(p, class))
				caps |= 1u << class;
	}
	tc->t.caps = caps;
	tc->pinned = p->nr_cpus_allowed == 1 && nr_cpus > 1;
	tc->caps_generation = generation;
}

static __noinline int replace_class_mask(u32 class, u32 scope)
{
	struct bpf_cpumask *mask, *old;
	struct mask_box *box = lookup_class_box(class, scope);
	u32 first, i;

	if (!box || scope >= TL_SCOPES_MAX)
		return -ENOENT;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	first = scope_cpus[scope].first;
	bpf_for(i, 0, scope_cpus[scope].nr) {
		u32 cpu = cpu_at[(first + i) & (TL_CPUS_MAX - 1)] &
			  (TL_CPUS_MAX - 1);

		if (cpus[cpu].class == class)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	old = bpf_kptr_xchg(&box->mask, mask);
	if (old)
		bpf_cpumask_release(old);
	return 0;
}

static __noinline int replace_class_masks(u32 scope)
{
	u32 class;
	int err;

	bpf_for(class, 0, TL_NR_CLASSES) {
		err = replace_class_mask(class, scope);
		if (err)
			return err;
	}
	return 0;
}

/* What a shard's CPUs are: their classes, and how many are there for each
 * queue. */
static __noinline int count_shard(u32 shard)
{
	struct shard *s = &shards[shard & (TL_SHARDS_MAX - 1)];
	u8 nr_cpus_of[TL_NR_QUEUES] = {};
	u32 first, i, queue, classes = 0;

	if (shard >= TL_SHARDS_MAX)
		return 0;
	first = shard_cpus[shard].first;
	shard_wide_at[shard] = nr_wide_cpus;
	bpf_for(i, 0, shard_cpus[shard].nr) {
		u32 cpu = cpu_at[(first + i) & (TL_CPUS_MAX - 1)] &
			  (TL_CPUS_MAX - 1);
		u32 class = cpus[cpu].class;

		if (class >= TL_NR_CLASSES)
			continue;
		classes |= 1u << class;
		if (class)
			wide_cpus[nr_wide_cpus++ & (TL_CPUS_MAX - 1)] = cpu;
		bpf_for(queue, 0, TL_NR_QUEUES) {
			u32 of = tl_queue_class(queue);

			if (queue < TL_NR_QUEUES &&
			    (of == class || of == TL_NR_CLASSES))
				nr_cpus_of[queue]++;
		}
	}
	s->classes = classes;
	__builtin_memcpy(s->nr_cpus, nr_cpus_of, sizeof(nr_cpus_of));
	return 0;
}

static __noinline void count_classes(void)
{
	u32 present = 0, scalar = 0, cpu, shard;

	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		if (want_class[cpu] == TL_CLASS_NONE) {
			cpus[cpu].class = TL_CLASS_NONE;
			continue;
		}
		class_changed[cpu] |= cpus[cpu].class != (want_class[cpu] & 3);
		cpus[cpu].class = want_class[cpu] & 3;
		present |= 1u << cpus[cpu].class;
		scalar += !cpus[cpu].class;
	}
	nr_wide_cpus = 0;
	bpf_for(shard, 0, nr_shards)
		count_shard(shard);
	classes_present = present;
	nr_scalar_cpus = scalar;
}

static __noinline void publish_classes(void)
{
	struct tl_hint_board *board = lookup_board();
	u32 cpu;

	if (!board)
		return;
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		board->cpu[cpu] = tl_cpu_flags(cpus[cpu].class, nr_scalar_cpus);
	}
	board->header.standing_by = 0;
	board->header.generation++;
}

/* Make want_class[] the classes in force: for tasks from their next look on,
 * for applications at once. Queued tasks are the caller's. */
static __always_inline int apply_classes(void)
{
	u32 scope;
	int err;

	count_classes();
	bpf_for(scope, 0, nr_scopes) {
		err = replace_class_masks(scope);
		if (err)
			return err;
	}
	class_generation = class_generation + 1 ?: 1;
	count_change(0); /* what is queued may be for other CPUs now */
	publish_classes();
	return 0;
}

static __always_inline int create_scratch_masks(u32 scratch)
{
	u32 cpu;

	bpf_for(cpu, 0, nr_cpus) {
		struct mask_box *box = bpf_map_lookup_percpu_elem(
			&scratch_masks, &scratch, cpu);
		struct bpf_cpumask *mask, *old;

		if (!box)
			return -ENOENT;
		mask = bpf_cpumask_create();
		if (!mask)
			return -ENOMEM;
		old = bpf_kptr_xchg(&box->mask, mask);
		if (old)
			bpf_cpumask_release(old);
	}
	return 0;
}

#endif
