/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef TURBOLANE_H
#define TURBOLANE_H

/*
 * Turbolane: tell the scheduler which sections of a program are wide code
 * (AVX-512, heavy AVX2, AMX), so that other code keeps its frequency; and
 * steer the frequency of the cores that its threads run on, see tl_open(3).
 *
 *     tl_wide_begin(2);
 *     multiply_matrices();
 *     tl_wide_end();
 *
 * Without a scheduler the calls do nothing, in a few nanoseconds. See
 * tl_wide_begin(3).
 *
 * Generated from crates/turbolane/src/capi*.rs; do not edit. To make it anew:
 * UPDATE=1 cargo test -p turbolane --test header
 */

/**
 * Highest licence level of a section.
 */
#define TL_LEVEL_MAX 3

/**
 * No scheduler serves the calling thread; its sections do nothing.
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
 * tl_open(): take the first way that works.
 */
#define TL_WAY_AUTO -1

/**
 * Nothing can be set on this machine by this user.
 */
#define TL_WAY_NONE 0

/**
 * cpufreq's governor userspace.
 */
#define TL_WAY_SETSPEED 1

/**
 * cpufreq's limits; the governor stays.
 */
#define TL_WAY_LIMITS 2

/**
 * The CPU's registers, by /dev/cpu/N/msr or msr-safe.
 */
#define TL_WAY_MSR 3

/**
 * A model in the machine's place: root is its id, or its file.
 */
#define TL_WAY_SIMULATED 4

/**
 * The lane's scheduler tells the governor what threads ask for; tl_boost() and
 * its kin for CPUs are refused.
 */
#define TL_WAY_SCHEDULER 5

/**
 * The calling thread, where a thread's number is asked for.
 */
#define TL_SELF 0

/**
 * Sessions of a process at most.
 */
#define TL_SESSIONS_MAX 32

/**
 * Bytes of a thread's name, with its zero.
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
 * Where a CPU is and with whom it shares a clock.
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
   * What it said last; 0 if nothing yet.
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
   * How often it was run through.
   */
  unsigned long long count;
  /**
   * Time in it, all together.
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
   * Core cycles in it; 0 if this machine does not count them for us.
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
 * Closes the innermost open section, as tl_wide_end(), and says that what
 * follows stays scalar for phase_ns. A phase that is shorter than the way to a
 * scalar CPU and back is spent where the thread stands; before a longer one the
 * thread leaves, as with tl_wide_end(). Inside of another section, and with 0,
 * it is tl_wide_end().
 *
 * Returns 0; -EINVAL if no section is open. errno is not changed.
 */
int tl_scalar_for(unsigned long long phase_ns);

/**
 * Says who acts on the calling thread's sections: TL_WIDE_NONE, TL_WIDE_SCX or
 * TL_WIDE_AFFINITY. Never fails. errno is not changed.
 */
int tl_wide_status(void);

/**
 * Runs section(argument), wide code of licence level `level`, and returns when
 * it is over. With the affinity fallback, a section that would have to leave
 * its CPU is run by a helper thread on a wide CPU, if it is expected to take at
 * least tl_delegate_break_even_ns(level), or if expected_ns is 0; else by the
 * calling thread.
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
 * The length in ns from which tl_delegate() hands sections of this level from
 * the calling thread to a helper; 0 if it does not. Starts the helpers. errno
 * is not changed.
 */
unsigned long long tl_delegate_break_even_ns(unsigned int level);

/**
 * Opens frequency control and measurement of this program.
 *
 * root: NULL for this machine, or a folder that holds the files of another, or
 * with TL_WAY_SIMULATED the id or file of a model.
 * way: TL_WAY_AUTO, or the one to take.
 * session: gets the handle.
 *
 * A machine or user without frequency control is no failure: tl_way() is then
 * TL_WAY_NONE, and tl_why() says why.
 *
 * Returns 0; -EFAULT if session is NULL; -EINVAL for another way; -ENOENT for an
 * unknown model; -EMFILE if TL_SESSIONS_MAX are open; or why it cannot be opened.
 *
 * # Safety
 * root is NULL or a string, session NULL or a place for a pointer.
 */
int tl_open(const char *root,
            int way,
            struct tl_session **session);

/**
 * Closes a session: every setting is as it was found, threads' masks too.
 *
 * Returns 0; -EBADF if session is not open; -EIO if something could not be
 * restored (the watchdog tries again when the program ends).
 */
int tl_close(struct tl_session *session);

/**
 * The way that was taken: TL_WAY_NONE and so on; -EBADF.
 */
int tl_way(const struct tl_session *session);

/**
 * Copies one sentence to buffer: which way was taken, and why none before it.
 * Cut off to size bytes, its zero included. Returns its whole length; -EBADF.
 *
 * # Safety
 * buffer has room for size bytes.
 */
int tl_why(const struct tl_session *session, char *buffer, unsigned int size);

/**
 * The meaning of a code that a function here has returned, negative or not.
 * Never NULL; valid for ever.
 */
const char *tl_strerror(int code);

/**
 * Copies the text of the calling thread's last failure in this library, with
 * file, reason and what to do, to buffer. Cut off to size bytes, its zero
 * included. Returns its whole length, 0 if nothing has failed.
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
 * Where a CPU is and with whom it shares a clock. Needs no frequency control.
 * Returns 0; -EBADF; -ENXIO if it is not online; -EFAULT.
 *
 * # Safety
 * info is NULL or a place for one.
 */
int tl_cpu(const struct tl_session *session,
           unsigned int cpu,
           struct tl_cpu *info);

/**
 * The clock that a CPU has now: the model's, with TL_WAY_SIMULATED, else what
 * cpufreq says. Returns 0; -EBADF, -ENXIO, -EFAULT; -ENODEV if nobody says.
 *
 * # Safety
 * khz is NULL or a place for a number.
 */
int tl_clock(const struct tl_session *session,
             unsigned int cpu,
             unsigned int *khz);

/**
 * The CPU to its fastest P-state. From any thread, without allocating once
 * the CPU was used. Returns 0; -EBADF, -ENODEV, -ENXIO, -EIO, -EBUSY, -ECHILD;
 * -EOPNOTSUPP with TL_WAY_SCHEDULER.
 */
int tl_boost(const struct tl_session *session, unsigned int cpu);

/**
 * The CPU to its slowest P-state, unless another that is set together with it
 * needs more. As tl_boost() otherwise.
 */
int tl_slow(const struct tl_session *session, unsigned int cpu);

/**
 * No wish for the CPU any more. As tl_boost() otherwise.
 */
int tl_restore(const struct tl_session *session, unsigned int cpu);

/**
 * As tl_restore(), and hands the CPU back as it was found, its governor too.
 */
int tl_release(const struct tl_session *session, unsigned int cpu);

/**
 * The CPU to this frequency. As tl_boost(); -ERANGE if it is no P-state.
 */
int tl_request(const struct tl_session *session,
               unsigned int cpu,
               unsigned int khz);

/**
 * Switches turbo on all CPUs: 1 on, 0 off, -1 leave it. Returns 1 if it is on
 * then, else 0; -EBADF, -ENODEV, -EIO, -ECHILD.
 */
int tl_turbo(const struct tl_session *session, int on);

/**
 * Registers the calling thread. role is a number of the program's choice.
 * Returns its number, positive; -EBADF, -EEXIST, -ENAMETOOLONG, -EFAULT,
 * -EILSEQ.
 *
 * # Safety
 * name is NULL or a string.
 */
int tl_thread_register(const struct tl_session *session,
                       const char *name,
                       unsigned int role);

/**
 * Takes a thread (TL_SELF: the calling one) out of the registry; its wish ends,
 * its mask is as before. Returns 0; -EBADF, -ESRCH.
 */
int tl_thread_unregister(const struct tl_session *session, unsigned int tid);

/**
 * Says what the calling thread is doing now, by a number of the program's
 * choice. Returns 0; -EBADF, -ESRCH.
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
 * tl_slow() for a thread's core, as tl_thread_boost().
 */
int tl_thread_slow(const struct tl_session *session, unsigned int tid);

/**
 * tl_request() for a thread's core, as tl_thread_boost().
 */
int tl_thread_request(const struct tl_session *session,
                      unsigned int tid,
                      unsigned int khz);

/**
 * Ends a thread's wish, on whichever core it was, as tl_thread_boost().
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
 * The number of the region of this name, made if there is none. Returns it,
 * 0 or more; -EBADF, -ENOSPC, -EFAULT, -EILSEQ.
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
  /** Opens a section; one that cannot be opened (see tl_wide_begin) is none. */
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
