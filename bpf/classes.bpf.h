/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Classes of CPUs as cpumasks, and which of them a task's affinity reaches.
 *
 * The class of a CPU is one byte in cpus[]; searching an idle CPU of a class
 * needs a mask per class. The masks are replaced, never changed, so that
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
	__uint(max_entries, TL_NR_CLASSES);
	__type(key, u32);
	__type(value, struct mask_box);
} class_masks SEC(".maps");

/* One mask per CPU to intersect into. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mask_box);
} scratch_masks SEC(".maps");

static __always_inline struct mask_box *lookup_class_box(u32 class)
{
	return bpf_map_lookup_elem(&class_masks, &class);
}

/* Mask of the CPUs of a class; NULL before the first apply_classes(). */
static __always_inline struct bpf_cpumask *try_lookup_class_mask(u32 class)
{
	struct mask_box *box = lookup_class_box(class);

	return box ? box->mask : NULL;
}

/* This CPU's mask to intersect into. */
static __always_inline struct bpf_cpumask *try_lookup_scratch_mask(void)
{
	u32 key = 0;
	struct mask_box *box = bpf_map_lookup_elem(&scratch_masks, &key);

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
	struct bpf_cpumask *mask = try_lookup_class_mask(class);

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
	tc->caps_generation = generation;
}

static __noinline int replace_class_mask(u32 class)
{
	struct bpf_cpumask *mask, *old;
	struct mask_box *box = lookup_class_box(class);
	u32 cpu;

	if (!box)
		return -ENOENT;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		if (cpus[cpu].class == class)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	old = bpf_kptr_xchg(&box->mask, mask);
	if (old)
		bpf_cpumask_release(old);
	return 0;
}

static __noinline void count_classes(void)
{
	u32 present = 0, scalar = 0, cpu, llc;

	bpf_for(llc, 0, nr_llcs)
		llc_classes[llc & (TL_LLCS_MAX - 1)] = 0;
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		if (want_class[cpu] == TL_CLASS_NONE) {
			cpus[cpu].class = TL_CLASS_NONE;
			continue;
		}
		cpus[cpu].class = want_class[cpu] & 3;
		present |= 1u << cpus[cpu].class;
		llc_classes[cpus[cpu].llc & (TL_LLCS_MAX - 1)] |=
			1u << cpus[cpu].class;
		scalar += !cpus[cpu].class;
	}
	classes_present = present;
	nr_scalar_cpus = scalar;
}

static __noinline void publish_classes(void)
{
	struct tl_hint_page *page = lookup_page();
	u32 cpu;

	if (!page)
		return;
	bpf_for(cpu, 0, nr_cpus) {
		if (cpu >= TL_CPUS_MAX)
			break;
		page->cpu[cpu] = tl_cpu_flags(cpus[cpu].class, nr_scalar_cpus);
	}
	page->header.generation++;
}

/* Make want_class[] the classes in force: for tasks from their next look on,
 * for applications at once. Queued tasks are the caller's. */
static __always_inline int apply_classes(void)
{
	u32 class;
	int err;

	count_classes();
	bpf_for(class, 0, TL_NR_CLASSES) {
		err = replace_class_mask(class);
		if (err)
			return err;
	}
	class_generation = class_generation + 1 ?: 1;
	count_arrival(0); /* what is queued may be for other CPUs now */
	publish_classes();
	return 0;
}

static __always_inline int create_scratch_masks(void)
{
	u32 cpu, key = 0;

	bpf_for(cpu, 0, nr_cpus) {
		struct mask_box *box =
			bpf_map_lookup_percpu_elem(&scratch_masks, &key, cpu);
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
