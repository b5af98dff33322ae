/* SPDX-License-Identifier: MIT OR Apache-2.0 */

#ifndef TURBOLANE_H
#define TURBOLANE_H

/*
 * Turbolane: tell the scheduler which sections of a program are wide code
 * (AVX-512, heavy AVX2, AMX), so that other code keeps its frequency.
 *
 *     tl_wide_begin(2);
 *     multiply_matrices();
 *     tl_wide_end();
 *
 * Without a scheduler the calls do nothing, in a few nanoseconds. See
 * tl_wide_begin(3).
 *
 * Generated from crates/turbolane/src/capi.rs; do not edit. To make it anew:
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
 * Says who acts on the calling thread's sections: TL_WIDE_NONE, TL_WIDE_SCX or
 * TL_WIDE_AFFINITY. Never fails. errno is not changed.
 */
int tl_wide_status(void);

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
