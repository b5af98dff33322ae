/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Words of the policy: task types, licence levels, CPU classes, settings.
 *
 * The policy is freestanding C: no libc, no BPF, no kernel headers, no
 * floating point, no loop without a constant bound, no state of its own. It
 * is compiled twice, to BPF (bpf/main.bpf.c) and natively (crates/policy), so
 * a file that includes it provides u8, u16, u32, u64, s8, s32, s64 first.
 *
 * Licence level: Intel's power-delivery level. 0 is full turbo; 1 heavy AVX2
 * or light AVX-512; 2 heavy AVX-512; 3 AMX. Levels are data: nothing below
 * asks for a particular one (SYSTOR 5).
 *
 * CPU class: the highest level that may run on the CPU. Class 0 is a scalar
 * CPU. Without tiers every wide CPU has class TL_LEVEL_MAX; with tiers (tiers.h)
 * some have lower ones.
 */
#ifndef TL_POLICY_TYPES_H
#define TL_POLICY_TYPES_H

#define TL_LEVEL_MAX 3u
#define TL_NR_CLASSES (TL_LEVEL_MAX + 1u)
#define TL_CLASS_NONE 255u /* of a CPU that is offline: counts as neither */

/* CPUs, shards of them (queues.h): what the fixed-size tables of both builds
 * hold. */
#define TL_CPUS_MAX 1024u
#define TL_SHARDS_MAX 64u
/* CPUs of a shard at most. */
#define TL_SHARD_CPUS 16u

#define tl_inline static inline __attribute__((always_inline, unused))

tl_inline u64 tl_min_u64(u64 a, u64 b)
{
	return a < b ? a : b;
}

tl_inline u64 tl_max_u64(u64 a, u64 b)
{
	return a > b ? a : b;
}

enum tl_type {
	TL_DEFAULT = 0, /* never classified: shares all CPUs (SYSTOR 3.2) */
	TL_SCALAR = 1,	/* known to be scalar: kept off wide CPUs under load */
	TL_WIDE = 2,	/* in a wide period, with a level of 1..TL_LEVEL_MAX */
	TL_NR_TYPES = 3,
};

/*
 * What time is counted by: type + level, as only wide tasks have one.
 *
 *   kind  0        1       2   3       4       5
 *         default  scalar  -   wide 1  wide 2  wide 3
 */
#define TL_NR_KINDS 8u

tl_inline u32 tl_kind(u32 type, u32 level)
{
	return (type + level) & (TL_NR_KINDS - 1);
}
_Static_assert(TL_WIDE + TL_LEVEL_MAX < TL_NR_KINDS, "each kind has its place");

/* tl_cfg.remigrate: what ends a wide period (THESIS 4.4), bits. The explicit
 * ends, a hint and the return from a marked function, always count. */
enum tl_remigrate {
	TL_REMIGRATE_SYSCALL_ENTRY = 1u << 0,
	TL_REMIGRATE_SYSCALL_RETURN = 1u << 1,
	TL_REMIGRATE_CONTEXT_SWITCH = 1u << 2,
	TL_REMIGRATE_TIMEOUT = 1u << 3,
	/* not at the explicit ends, where the task has learned that (gap.h) */
	TL_REMIGRATE_GAP = 1u << 4,
	/* at the entry of a section's last system call, which the task learns (last.h) */
	TL_REMIGRATE_LAST_SYSCALL = 1u << 5,
};

/* The wide timeout unless it is set, in the kernel and in the simulator: longer than
 * any stay that a task learns by itself (stay.h). */
#define TL_WIDE_TIMEOUT_NS 100000000ull

/* Settings. All may change between two calls. */
struct tl_cfg {
	u64 slice_ns;	   /* time slice of scalar and default tasks */
	u64 slice_wide_ns; /* time slice of wide tasks */
	/* fallback: a wide task with no open section turns scalar this long
	 * after its last event at the latest (stay.h); 0 = never */
	u64 wide_timeout_ns;
	/* with TL_REMIGRATE_TIMEOUT: the same, for open sections too */
	u64 remigrate_timeout_ns;
	/* a scalar phase that is announced to be shorter than this is spent
	 * where the task is (rest.h); 0 = none is */
	u64 rest_below_ns;
	u32 remigrate; /* bits of enum tl_remigrate */
	/* type of tasks no one classified: TL_DEFAULT or TL_SCALAR */
	u32 unclassified;
	/* what a nanosecond of the tasks of a party counts, 1024 = as much, 0 =
	 * the same; by enum tl_party (exposure.h) */
	u16 counts_q10[1 + TL_LEVEL_MAX];
};

#endif
