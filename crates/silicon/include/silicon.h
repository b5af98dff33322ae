/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef SILICON_H
#define SILICON_H

/*
 * The dim-silicon machine, as the emulator calls it: see src/lib.rs.
 *
 * Generated from crates/silicon/src/abi.rs; do not edit. To make it anew:
 * UPDATE=1 cargo test -p silicon --test header
 */

#include <stdbool.h>
#include <stdint.h>

/**
 * CPUs that the machine takes. Bochs takes 254; its firmware's tables and the local times of a
 * single host thread make more than this useless.
 */
#define SILICON_MAX_CPUS 64

/**
 * What became of a write to a register.
 */
enum silicon_written {
  /**
   * The machine has no such register, or it cannot be written.
   */
  SILICON_WRITTEN_UNKNOWN = 0,
  /**
   * It has the new value.
   */
  SILICON_WRITTEN_DONE = 1,
  /**
   * The value is refused: the write raises #GP.
   */
  SILICON_WRITTEN_REFUSED = 2,
};

/**
 * The machine. All times are on one clock, see [`Time`].
 */
struct silicon_machine;

/**
 * Ticks of the time stamp counter times 2^16.
 */
typedef uint64_t silicon_time;

/**
 * What a CPU executed: one trace.
 */
struct silicon_work {
  /**
   * Instructions that ended; 0 if an exception kept the first from it.
   */
  uint32_t insns;
  /**
   * Cycles that the CPU waited on top of one per instruction.
   */
  uint32_t stall_cycles;
  /**
   * Wide instructions by class: sums of `silicon_class`.
   */
  uint32_t wide;
  /**
   * 1 in user mode, else 0.
   */
  uint32_t is_user;
};



#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a machine from settings ("CPU[,KEY=VALUE...]"). The log goes to a file of this name, or
 * nowhere if `log` is NULL. Returns NULL and says why on standard error if that is impossible.
 *
 * # Safety
 * `settings` is a string, `log` a string or NULL.
 */
struct silicon_machine *silicon_open(const char *settings,
                                     uint32_t cpus,
                                     uint32_t threads,
                                     const char *log);

/**
 * Ends the log and frees the machine.
 *
 * # Safety
 * The machine comes from `silicon_open` and is not used again.
 */
void silicon_close(struct silicon_machine *machine);

/**
 * The local time of each CPU: ticks of the time stamp counter times 65536. Valid until
 * `silicon_close`; every other call may change what is there.
 *
 * # Safety
 * The machine comes from `silicon_open`.
 */
const silicon_time *silicon_times(const struct silicon_machine *machine);

/**
 * Frequency of the time stamp counter.
 *
 * # Safety
 * The machine comes from `silicon_open`.
 */
uint32_t silicon_tsc_khz(const struct silicon_machine *machine);

/**
 * What one instruction adds to `silicon_work.wide`: its mnemonic in lower case, and the vector
 * length that its prefix states.
 *
 * # Safety
 * The machine comes from `silicon_open`, `mnemonic` is a string.
 */
uint32_t silicon_class(struct silicon_machine *machine,
                       const char *mnemonic,
                       uint32_t width_bits);

/**
 * Whether a CPU is to be interrupted before it executes a trace of so many instructions, whose
 * `silicon_work.wide` would be this. To be asked before it is executed, if `wide` is not 0.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
bool silicon_warns(struct silicon_machine *machine,
                   uint32_t cpu,
                   uint32_t wide,
                   uint32_t insns);

/**
 * A CPU executed a trace; its local time moves. True if it is to be interrupted: a performance
 * counter overflowed, or wide code has ended, and software asked for that.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU; `work` is valid.
 */
bool silicon_ran(struct silicon_machine *machine,
                 uint32_t cpu,
                 const struct silicon_work *work);

/**
 * A CPU went to sleep, at its local time.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
void silicon_sleep(struct silicon_machine *machine, uint32_t cpu);

/**
 * A CPU that slept wakes up at this time; later, if its core halts just then, or if it has to
 * leave a C-state first. A CPU that is reset leaves none.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
void silicon_wake(struct silicon_machine *machine,
                  uint32_t cpu,
                  silicon_time now,
                  bool is_reset);

/**
 * Reads a model-specific register; false if it is none of this machine's.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU; `value` can be written.
 */
bool silicon_rdmsr(const struct silicon_machine *machine,
                   uint32_t cpu,
                   uint32_t index,
                   uint64_t *value);

/**
 * Writes a model-specific register.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
enum silicon_written silicon_wrmsr(struct silicon_machine *machine,
                                   uint32_t cpu,
                                   uint32_t index,
                                   uint64_t value);

/**
 * Reads a performance counter as RDPMC does.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
uint64_t silicon_rdpmc(const struct silicon_machine *machine,
                       uint32_t cpu,
                       uint32_t counter);

/**
 * Marks this moment of a CPU in the log.
 *
 * # Safety
 * The machine comes from `silicon_open` and has that CPU.
 */
void silicon_mark(struct silicon_machine *machine,
                  uint32_t cpu,
                  uint32_t value);

/**
 * The seed of the settings, for the emulator's random numbers; 0 if the settings are no settings.
 *
 * # Safety
 * `settings` is a string.
 */
uint32_t silicon_seed(const char *settings);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SILICON_H */
