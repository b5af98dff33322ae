// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPU a task that must not wait takes from another, and what applications see of a CPU:
//! policy/cpus.h.

plain! {
    /// Rank of a CPU as victim; 0 = none.
    victim_rank = tlp_victim_rank(need: u32, class: u32, running_queue: u32, arrives: u32) -> u32;
    /// The best rank there is.
    victim_best = tlp_victim_best(need: u32) -> u32;
    /// Flags of a CPU on the hint page.
    cpu_flags = tlp_cpu_flags(class: u32, nr_scalar_cpus: u32) -> u8;
}
