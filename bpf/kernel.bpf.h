/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The part of the kernel's types that the programs here use. CO-RE finds the
 * fields in the running kernel's BTF by name, so a generated vmlinux.h of
 * many megabytes and one kernel version is not needed: unnamed fields do not
 * exist here, and a missing one is refused at load with its name.
 */
#ifndef TL_KERNEL_BPF_H
#define TL_KERNEL_BPF_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

/* names that libbpf's bpf_helper_defs.h expects */
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_MAP_TYPE_CGRP_STORAGE = 32,
};
enum {
	BPF_F_NO_PREALLOC = 1U << 0,
	BPF_F_MMAPABLE = 1U << 10,
};
enum {
	BPF_F_TIMER_CPU_PIN = 1U << 1,
};
enum {
	BPF_RB_NO_WAKEUP = 1U << 0,
};
enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1U << 0
};

/* what bpf_perf_event_read_value() writes; not the kernel's own type */
struct bpf_perf_event_value {
	u64 counter;
	u64 enabled;
	u64 running;
};

#define EINVAL 22
#define ENOMEM 12
#define ENOENT 2
#define ESRCH 3

#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

#define SIGNAL_GROUP_EXIT 0x00000004 /* signal_struct.flags */

#define CLOCK_MONOTONIC 1

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct cpumask {
	unsigned long bits[1];
};

struct bpf_cpumask {
	struct cpumask cpumask;
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct thread_info {
	u32 cpu;
};

struct signal_struct {
	u32 flags;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	s32 level;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct sched_entity {
	u64 sum_exec_runtime;
	u64 nr_migrations;
};

struct sched_info {
	u64 run_delay;
};

struct task_struct {
	struct thread_info thread_info;
	s32 on_cpu;
	s32 on_rq;
	u64 start_time;
	u64 self_exec_id;
	char comm[16];
	struct css_set *cgroups;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	u32 flags;
	s32 pid;
	s32 tgid;
	s32 nr_cpus_allowed;
	u16 migration_disabled;
	s32 rcu_read_lock_nesting;
	struct signal_struct *signal;
	u64 utime;
	const struct cpumask *cpus_ptr;
	struct cpumask cpus_mask;
	struct sched_entity se;
	struct sched_info sched_info;
	struct sched_ext_entity scx;
};

struct pt_regs {
	unsigned long r9;
	unsigned long r8;
	unsigned long cx;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long ip;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

struct scx_init_task_args {
	bool fork;
};
struct scx_exit_task_args;

struct scx_cgroup_init_args {
	u32 weight;
	u64 bw_period_us;
	u64 bw_quota_us;
	u64 bw_burst_us;
	bool sched_idle;
};

struct scx_cpu_release_args;

struct scx_bpf_dsq_insert_vtime_args {
	u64 dsq_id;
	u64 slice;
	u64 vtime;
	u64 enq_flags;
};

#pragma clang attribute pop

/* In map values, opaque; the verifier knows it by its name. */
struct bpf_timer {
	u64 opaque[2];
} __attribute__((aligned(8)));

/* Iterators live on the program's stack, opaque. */
struct bpf_iter_scx_dsq {
	u64 opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	u64 opaque[1];
} __attribute__((aligned(8)));

/* Matched to the kernel's by member name when the scheduler is loaded. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*set_weight)(struct task_struct *, u32);
	void (*set_cpumask)(struct task_struct *, const struct cpumask *);
	void (*update_idle)(s32, bool);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	void (*disable)(struct task_struct *);
	s32 (*cgroup_init)(struct cgroup *, struct scx_cgroup_init_args *);
	void (*cgroup_exit)(struct cgroup *);
	void (*cgroup_move)(struct task_struct *, struct cgroup *,
			    struct cgroup *);
	void (*cgroup_set_weight)(struct cgroup *, u32);
	void (*cgroup_set_bandwidth)(struct cgroup *, u64, u64, u64);
	void (*cgroup_set_idle)(struct cgroup *, bool);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	u64 hotplug_seq;
	char name[128];
	void (*cpu_release)(s32, struct scx_cpu_release_args *);
};

#endif
