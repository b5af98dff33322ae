/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef TURBOLANE_H
#define TURBOLANE_H

/*
 * Turbolane: report to the scheduler which sections of a program are wide code
 * (AVX-512, heavy AVX2, AMX), so that other code keeps its frequency; and
 * control the frequency of the cores that its threads run on, see tl_open(3).
 *
 *     tl_wide_begin(2);
 *     multiply_matrices();
 *     tl_wide_end();
 *
 * Without a scheduler the calls have no effect and take a few nanoseconds. See
 * tl_wide_begin(3).
 *
 * Generated from crates/turbolane/src/capi*.rs; do not edit. To update it:
 * UPDATE=1 cargo test -p turbolane --test header
 */

/**
 * Highest licence level of a section.
 */
#define TL_LEVEL_MAX 3

/**
 * No scheduler serves the calling thread; its sections have no effect.
 */
#define TL_WIDE_NONE 0

/**
 * The sched_ext scheduler serves the calling thread.
 */
#define TL_WIDE_SCX 1

/**
 * The affinity fallback serves the calling thread.
 */
#define TL_WIDE_AFFINITY 2

/**
 * tl_delegate(): the calling thread has run the section.
 */
#define TL_RAN_HERE 0

/**
 * tl_delegate(): a helper thread has run the section.
 */
#define TL_RAN_DELEGATED 1

/**
 * tl_open(): use the first method that works.
 */
#define TL_WAY_AUTO -1

/**
 * This user cannot set anything on this machine.
 */
#define TL_WAY_NONE 0

/**
 * cpufreq's governor userspace.
 */
#define TL_WAY_SETSPEED 1

/**
 * cpufreq's limits; the governor is unchanged.
 */
#define TL_WAY_LIMITS 2

/**
 * The CPU's registers, through /dev/cpu/N/msr or msr-safe.
 */
#define TL_WAY_MSR 3

/**
 * The scheduler of turbolane run passes threads' requests to the governor;
 * tl_boost() and the other functions for CPUs are refused.
 */
#define TL_WAY_SCHEDULER 5

/**
 * The calling thread, instead of a thread's number.
 */
#define TL_SELF 0

/**
 * Maximum number of sessions of a process.
 */
#define TL_SESSIONS_MAX 32

/**
 * Bytes of a thread's name, including the terminating zero.
 */
#define TL_NAME_SIZE 64

/**
 * A session; see tl_open().
 */
struct tl_session;

/**
 * What a CPU can be set to, kHz.
 */
struct tl_speeds {
  /**
   * The slowest P-state.
   */
  unsigned int slow_khz;
  /**
   * The fastest without turbo.
   */
  unsigned int base_khz;
  /**
   * The fastest.
   */
  unsigned int turbo_khz;
};

/**
 * A CPU's place in the topology, and the CPUs that share its clock.
 */
struct tl_cpu {
  /**
   * Package, as Linux numbers it.
   */
  unsigned int package;
  /**
   * Core, numbered from 0 over all packages.
   */
  unsigned int core;
  /**
   * Online CPUs of the core.
   */
  unsigned int siblings;
  /**
   * Frequency domain: its lowest CPU.
   */
  unsigned int domain;
  /**
   * Online CPUs of the domain.
   */
  unsigned int domain_cpus;
};

/**
 * A registered thread.
 */
struct tl_thread {
  /**
   * The kernel's number.
   */
  unsigned int tid;
  /**
   * As it was registered.
   */
  unsigned int role;
  /**
   * The last number that it stated; 0 if none yet.
   */
  unsigned int doing;
  /**
   * The CPU it runs on, or ran on last.
   */
  unsigned int cpu;
  /**
   * Its name.
   */
  char name[TL_NAME_SIZE];
};

/**
 * A region over all threads.
 */
struct tl_region_stats {
  /**
   * Number of times that it was executed.
   */
  unsigned long long count;
  /**
   * Total time in it.
   */
  unsigned long long sum_ns;
  /**
   * The shortest, 0 if there was none.
   */
  unsigned long long min_ns;
  /**
   * The longest.
   */
  unsigned long long max_ns;
  /**
   * Core cycles in it; 0 if this machine does not let programs count them.
   */
  unsigned long long cycles;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Opens a section of wide code on the calling thread. Sections nest; the
 * thread counts as wide, at the highest level of its open sections, until each
 * is closed by tl_wide_end().
 *
 * level: 1 heavy 256-bit or light 512-bit code, 2 heavy 512-bit code, 3 AMX.
 *
 * Returns 0; -EINVAL if level is 0 or above TL_LEVEL_MAX; -EOVERFLOW if 32
 * sections are open. On failure no section was opened, and none must be
 * closed. errno is not changed.
 */
int tl_wide_begin(unsigned int level);

/**
 * Closes the innermost open section of the calling thread, which continues at
 * the level of the sections that are still open.
 *
 * Returns 0; -EINVAL if no section is open. errno is not changed.
 */
int tl_wide_end(void);

/**
 * Closes the innermost open section, like tl_wide_end(), and states that the
 * code after it stays scalar for phase_ns. For a phase shorter than a migration
 * to a scalar CPU and back, the thread stays on its CPU; for a longer one
 * it leaves, as with tl_wide_end(). Inside another section, and with 0, this is
 * tl_wide_end().
 *
 * Returns 0; -EINVAL if no section is open. errno is not changed.
 */
int tl_scalar_for(unsigned long long phase_ns);

/**
 * Returns what serves the calling thread's sections: TL_WIDE_NONE, TL_WIDE_SCX
 * or TL_WIDE_AFFINITY. Never fails. errno is not changed.
 */
int tl_wide_status(void);

/**
 * Runs section(argument), wide code of licence level `level`, and returns when
 * it has finished. With the affinity fallback, a section that would have to
 * leave its CPU is run by a helper thread on a wide CPU, if it is expected to
 * take at least tl_delegate_break_even_ns(level), or if expected_ns is 0;
 * otherwise the calling thread runs it.
 *
 * Returns TL_RAN_HERE or TL_RAN_DELEGATED; -EINVAL if level is 0 or above
 * TL_LEVEL_MAX or section is NULL: then nothing was run. errno is not changed
 * by the hand-over.
 *
 * # Safety
 * The section may be called from another thread with the argument.
 */
int tl_delegate(unsigned int level,
                unsigned long long expected_ns,
                void (*section)(void*),
                void *argument);

/**
 * The shortest duration in ns for which tl_delegate() hands sections of this
 * level from the calling thread to a helper; 0 if it never does. Starts the
 * helpers. errno is not changed.
 */
unsigned long long tl_delegate_break_even_ns(unsigned int level);

/**
 * Opens frequency control and measurement of this program.
 *
 * `root`: NULL for this machine, or a folder with the files of another.
 * `way`: TL_WAY_AUTO, or the method to use.
 * `session`: gets the handle.
 *
 * A machine or user without frequency control is not a failure: tl_way() is then
 * TL_WAY_NONE, and tl_why() says why.
 *
 * Returns 0; -EFAULT if session is NULL; -EINVAL for an unknown method; -EMFILE if
 * TL_SESSIONS_MAX are open; or the error of opening it.
 *
 * # Safety
 * root is NULL or a string, session NULL or a place for a pointer.
 */
int tl_open(const char *root,
            int way,
            struct tl_session **session);

/**
 * Closes a session: restores every setting and every thread's mask.
 *
 * Returns 0; -EBADF if session is not open; -EIO if something could not be
 * restored (the watchdog tries again when the program ends).
 */
int tl_close(struct tl_session *session);

/**
 * The method in use: TL_WAY_NONE and so on; -EBADF.
 */
int tl_way(const struct tl_session *session);

/**
 * Copies one sentence to buffer: which method is used, and why those before it are not.
 * Truncated to size bytes including the terminating zero. Returns the complete
 * length; -EBADF.
 *
 * # Safety
 * buffer has room for size bytes.
 */
int tl_why(const struct tl_session *session,
           char *buffer,
           unsigned int size);

/**
 * The meaning of a code that a function here has returned, negative or not.
 * Never NULL; valid for ever.
 */
const char *tl_strerror(int code);

/**
 * Copies the text of the calling thread's last failure in this library, with
 * file, reason and what to do, to buffer. Truncated to size bytes including the
 * terminating zero. Returns the complete length, 0 if nothing has failed.
 *
 * # Safety
 * buffer has room for size bytes.
 */
int tl_error(char *buffer, unsigned int size);

/**
 * What a CPU can be set to. Returns 0; -EBADF, -ENODEV, -ENXIO, -EFAULT.
 *
 * # Safety
 * speeds is NULL or a place for one.
 */
int tl_speeds(const struct tl_session *session,
              unsigned int cpu,
              struct tl_speeds *speeds);

/**
 * A CPU's place in the topology, and the CPUs that share its clock. Needs no
 * frequency control. Returns 0; -EBADF; -ENXIO if it is not online; -EFAULT.
 *
 * # Safety
 * info is NULL or a place for one.
 */
int tl_cpu(const struct tl_session *session,
           unsigned int cpu,
           struct tl_cpu *info);

/**
 * The current clock of a CPU, as cpufreq reports it. Returns 0; -EBADF, -ENXIO,
 * -EFAULT; -ENODEV if there is no cpufreq.
 *
 * # Safety
 * khz is NULL or a place for a number.
 */
int tl_clock(const struct tl_session *session,
             unsigned int cpu,
             unsigned int *khz);

/**
 * Sets the CPU to its fastest P-state. Can be called from any thread, and does not
 * allocate after the first use of the CPU. Returns 0; -EBADF, -ENODEV, -ENXIO,
 * -EIO, -EBUSY, -ECHILD; -EOPNOTSUPP with TL_WAY_SCHEDULER.
 */
int tl_boost(const struct tl_session *session,
             unsigned int cpu);

/**
 * Sets the CPU to its slowest P-state, unless another CPU that shares the setting
 * needs more. Otherwise like tl_boost().
 */
int tl_slow(const struct tl_session *session,
            unsigned int cpu);

/**
 * Withdraws the request for the CPU. Otherwise like tl_boost().
 */
int tl_restore(const struct tl_session *session, unsigned int cpu);

/**
 * Like tl_restore(), and restores the CPU's settings, including its governor.
 */
int tl_release(const struct tl_session *session, unsigned int cpu);

/**
 * Sets the CPU to this frequency. Like tl_boost(); -ERANGE if it is not a P-state.
 */
int tl_request(const struct tl_session *session,
               unsigned int cpu,
               unsigned int khz);

/**
 * Switches turbo on all CPUs: 1 on, 0 off, -1 unchanged. Returns 1 if it is on
 * afterwards, otherwise 0; -EBADF, -ENODEV, -EIO, -ECHILD.
 */
int tl_turbo(const struct tl_session *session, int on);

/**
 * Registers the calling thread. role is a number that the program chooses.
 * Returns the thread's number, positive; -EBADF, -EEXIST, -ENAMETOOLONG,
 * -EFAULT, -EILSEQ.
 *
 * # Safety
 * name is NULL or a string.
 */
int tl_thread_register(const struct tl_session *session,
                       const char *name,
                       unsigned int role);

/**
 * Removes a thread (TL_SELF: the calling one) from the registry, withdraws its
 * request and restores its mask. Returns 0; -EBADF, -ESRCH.
 */
int tl_thread_unregister(const struct tl_session *session, unsigned int tid);

/**
 * States what the calling thread is doing now, by a number that the program
 * chooses. Returns 0; -EBADF, -ESRCH.
 */
int tl_thread_doing(const struct tl_session *session, unsigned int doing);

/**
 * Copies the living registered threads to threads, at most count. Returns how
 * many there are; -EBADF, -EFAULT.
 *
 * # Safety
 * threads has room for count, or count is 0.
 */
int tl_thread_list(const struct tl_session *session,
                   struct tl_thread *threads,
                   unsigned int count);

/**
 * tl_boost() for the core that a registered thread runs on (TL_SELF: the
 * calling one), or with TL_WAY_SCHEDULER for whichever core it runs on from now
 * on; also -ESRCH, -ENOTCONN.
 */
int tl_thread_boost(const struct tl_session *session, unsigned int tid);

/**
 * tl_slow() for a thread's core; otherwise like tl_thread_boost().
 */
int tl_thread_slow(const struct tl_session *session, unsigned int tid);

/**
 * tl_request() for a thread's core; otherwise like tl_thread_boost().
 */
int tl_thread_request(const struct tl_session *session,
                      unsigned int tid,
                      unsigned int khz);

/**
 * Withdraws a thread's request, on whichever core it was made; otherwise like
 * tl_thread_boost().
 */
int tl_thread_restore(const struct tl_session *session, unsigned int tid);

/**
 * Moves a registered thread (TL_SELF: the calling one) to a CPU and keeps it
 * there until it is unregistered. Returns 0; -EBADF, -ESRCH, -ENXIO, -EINVAL.
 */
int tl_thread_migrate(const struct tl_session *session,
                      unsigned int tid,
                      unsigned int cpu);

/**
 * The number of the region of this name, which is created if it does not exist.
 * Returns it, 0 or more; -EBADF, -ENOSPC, -EFAULT, -EILSEQ.
 *
 * # Safety
 * name is NULL or a string.
 */
int tl_region(const struct tl_session *session, const char *name);

/**
 * The calling thread enters a region. Returns 0; -EBADF, -ENOENT.
 */
int tl_region_begin(const struct tl_session *session, unsigned int region);

/**
 * The calling thread leaves a region. Returns 0; -EBADF, -ENOENT; -EINVAL if
 * it has not entered it.
 */
int tl_region_end(const struct tl_session *session, unsigned int region);

/**
 * A region over all threads so far. Returns 0; -EBADF, -ENOENT, -EFAULT.
 *
 * # Safety
 * stats is NULL or a place for one.
 */
int tl_region_stats(const struct tl_session *session,
                    unsigned int region,
                    struct tl_region_stats *stats);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TURBOLANE_H */

#if defined(__cplusplus) && !defined(TURBOLANE_HPP)
#define TURBOLANE_HPP
namespace turbolane {

/** A wide section from construction to destruction, on one thread. */
class wide_section {
public:
  /** Opens a section; if that fails (see tl_wide_begin), there is none. */
  explicit wide_section(unsigned int level) noexcept
      : is_open_(tl_wide_begin(level) == 0) {}

  ~wide_section() {
    if (is_open_)
      tl_wide_end();
  }

  wide_section(const wide_section &) = delete;
  wide_section &operator=(const wide_section &) = delete;

private:
  bool is_open_;
};

} // namespace turbolane
#endif
