/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * The control device of turbolane_trap, /dev/turbolane_trap.
 *
 * Loading the module changes nothing. CPUs are armed by TLT_IOC_ARM on an open
 * file, and disarmed when that file is closed, however its process ends. Only
 * one file can have CPUs armed at a time. All calls need CAP_SYS_ADMIN.
 *
 * Settings are the module's parameters, in /sys/module/turbolane_trap/parameters.
 *
 * TLT_ABI_VERSION is raised when a structure or the meaning of a field changes;
 * fields are only added at the end, in place of `reserved`.
 */
#ifndef TURBOLANE_TRAP_H
#define TURBOLANE_TRAP_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define TLT_ABI_VERSION 4
#define TLT_DEVICE "turbolane_trap"

struct tlt_info {
	__u32 abi_version;
	__u32 cpus_armed;    /* number of CPUs armed now */
	__u64 xcr0_full;     /* what the kernel has enabled */
	__u64 xcr0_withheld; /* what armed CPUs withhold; bits of xcr0_full */
	__u64 files_unread;  /* how often a file that was read became unread */
	__u64 reserved[3];   /* 0 */
};

/* The CPUs to arm; all others are disarmed. An empty set disarms all. */
struct tlt_arm {
	__u64 cpus_ptr; /* address of a bitmap, CPU n = bit n % 64 of word n / 64 */
	__u32 cpus_words; /* its 64-bit words */
	__u32 reserved;	  /* 0 */
};

/*
 * A place in a file whose execution gives the task the full XCR0 for the time
 * of parameter exec_grace_ns: before an XGETBV that looks for AVX-512, before
 * an XSAVE whose image is restored later. Until the device is closed, or the file
 * is forgotten (struct tlt_read).
 */
struct tlt_site {
	__s32 fd;	    /* the mapped file */
	__u32 reserved;	    /* 0 */
	__u64 offset_bytes; /* of an instruction, in the file */
};

/*
 * User space looks through a file for all such places. Processes are withheld
 * something only if all their code is of files that were looked through.
 *
 *   BEGIN  before the file's first byte is read; then the sites; then
 *   END    if everything was understood
 *
 * From BEGIN on the file, with its sites, is forgotten when it is opened for
 * writing, deleted, or its file system unmounted. EALREADY: it was read before.
 * ETXTBSY: it is open for writing. ESTALE at END: it may have changed since BEGIN,
 * or there was none.
 */
enum tlt_read_step {
	TLT_READ_BEGIN = 0,
	TLT_READ_END = 1,
};

struct tlt_read {
	__s32 fd;   /* the mapped file */
	__u32 step; /* enum tlt_read_step */
};

enum tlt_verdict {
	TLT_VERDICT_NONE = 0,  /* decide by what traps */
	TLT_VERDICT_WIDE = 1,  /* as if it had proved wide: no grace period */
	TLT_VERDICT_LIGHT = 2, /* never steered: light use only */
};

/*
 * What user space knows of a process, until it executes another program. Of a
 * LIGHT one until it maps more code, too: it has been looked through as it is.
 */
struct tlt_learn {
	__s32 pid;
	__u32 verdict; /* enum tlt_verdict */
};

/*
 * Events since the module was loaded, on one CPU. Read while they change: sums
 * of different fields need not match to the last event.
 */
struct tlt_cpu_counters {
	__u64 traps;	      /* #UD of user code on a reduced CPU */
	__u64 traps_heavy;    /* of these: at or above wide_level */
	__u64 traps_light;    /* of these: withheld, below wide_level */
	__u64 traps_other;    /* of these: not withheld, or not readable */
	__u64 xrstor_faults;  /* #GP of user XRSTOR or ENCLU, restarted */
	__u64 steered;	      /* events sent to the scheduler */
	__u64 rate_limited;   /* traps of tasks above traps_per_s_max */
	__u64 reductions;     /* writes of the reduced XCR0 */
	__u64 full_by_switch; /* writes of the full one, by what asked for it */
	__u64 full_by_fpu;
	__u64 full_by_trap;
	__u64 full_by_disarm;
	__u64 parked;	    /* live opmask, Hi16_ZMM, AVX put aside */
	__u64 live_returns; /* returns with live ZMM_Hi256 or tiles: left full */
	__u64 grace_returns; /* returns in a grace or hold period: left full */
	__u64 no_memory;     /* traps for which no note could be allocated */
	__u64 violations;    /* of the invariant in arm.c; must be 0 */
	__u64 level_rises;   /* to wide_level, with the full XCR0 and no trap */
	__u64 unread_returns; /* of processes with unread code: left full */
	__u64 full_by_code;   /* as full_by_...: a process got code */
	__u64 glances;	      /* of light use in processes that are wide */
};

struct tlt_get_cpu {
	__u32 cpu;
	__u32 reserved; /* 0 */
	struct tlt_cpu_counters counters;
};

struct tlt_get_task {
	__s32 tid;
	__u32 verdict; /* enum tlt_verdict of its process */
	__u64 traps;
	__u64 traps_heavy;
	__u64 traps_light;
	__u64 steered;
	__u64 last_ip; /* of its last trap */
};

#define TLT_IOC_INFO _IOR('T', 0xc0, struct tlt_info)
#define TLT_IOC_ARM _IOW('T', 0xc1, struct tlt_arm)
#define TLT_IOC_SITE _IOW('T', 0xc2, struct tlt_site)
#define TLT_IOC_LEARN _IOW('T', 0xc3, struct tlt_learn)
#define TLT_IOC_GET_CPU _IOWR('T', 0xc4, struct tlt_get_cpu)
#define TLT_IOC_READ _IOW('T', 0xc6, struct tlt_read)
#define TLT_IOC_GET_TASK _IOWR('T', 0xc5, struct tlt_get_task)

#endif
