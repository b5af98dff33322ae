// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dependency chains: code that takes a known number of cycles at any clock.
//!
//! Each instruction waits for the result of the one before, so n of them take n times the latency,
//! whatever else the core could do. The latency of `add r,r`, `ror` and `imul` has been 1, 1 and 3
//! cycles on all of Intel's cores since Nehalem and AMD's since Zen (Fog, instruction tables); a
//! load that feeds its own address takes 4 or 5 from the first-level cache, so that one is
//! calibrated to the nearest integer and only its distance from it is a check.
//!
//! `add $1,r` is among them to be thrown out: cores that fold it at rename run 17 of them per ns
//! (own measurements). A core may shorten any chain by such a trick, which is why three must agree.

use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cycles of a round of the chain that the meter uses. Long next to the two instructions that count
/// rounds, which a core without superscalar execution (an emulated one) does not hide: there the
/// clock comes out 2 % low.
pub(crate) const METER_ROUND: u32 = 100;

/// Runs rounds of a chain.
pub(crate) type Chain = fn(u64);

/// A cell that holds its own address, for the chain of loads. Written once and long before: a load
/// after a store to its address would be forwarded, which some cores do in no time at all.
static CELL: AtomicUsize = AtomicUsize::new(0);

macro_rules! chain {
    ($name:ident, $rept:literal, $insn:literal) => {
        fn $name(rounds: u64) {
            // SAFETY: reads `CELL` at most, changes registers that are named.
            unsafe {
                asm!(
                    ".p2align 6",
                    "2:",
                    concat!(".rept ", $rept),
                    $insn,
                    ".endr",
                    "dec r9",
                    "jnz 2b",
                    inout("rsi") CELL.as_ptr() => _,
                    inout("r9") rounds.max(1) => _,
                    inout("rax") 3u64 => _,
                    in("r8") 0u64,
                    options(nostack),
                );
            }
        }
    };
}

chain!(add, "100", "add rax,r8");
chain!(ror, "100", "ror rax,7");
chain!(imul, "34", "imul rax,rax");
chain!(chase, "25", "mov rsi,[rsi]");
chain!(add_immediate, "100", "add rax,1");

/// A chain that may be used.
#[derive(Clone, Copy)]
pub(crate) struct Candidate {
    /// Its instruction.
    pub(crate) name: &'static str,
    /// Its code.
    pub(crate) run: Chain,
    /// Instructions in a round.
    pub(crate) per_round: u32,
    /// Cycles per instruction; `None`: a whole number, to be found.
    pub(crate) latency_cycles: Option<u32>,
}

/// The meter's own chain first: the shortest latency gives the finest steps.
pub(crate) const CANDIDATES: [Candidate; 5] = [
    Candidate { name: "add r,r", run: add, per_round: METER_ROUND, latency_cycles: Some(1) },
    Candidate { name: "ror r,7", run: ror, per_round: 100, latency_cycles: Some(1) },
    Candidate { name: "imul r,r", run: imul, per_round: 34, latency_cycles: Some(3) },
    Candidate { name: "mov r,[r]", run: chase, per_round: 25, latency_cycles: None },
    Candidate { name: "add r,1", run: add_immediate, per_round: 100, latency_cycles: Some(1) },
];

/// To be called before the chain of loads runs.
pub(crate) fn prepare() {
    CELL.store(CELL.as_ptr() as usize, Ordering::Relaxed);
}

/// The meter's chain: takes `rounds * METER_ROUND` cycles.
#[inline]
pub(crate) fn meter(rounds: u64) {
    add(rounds);
}
