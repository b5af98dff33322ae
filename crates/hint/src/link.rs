// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a thread says in its slot, and reads on the board: see `thread`.

use core::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, compiler_fence};

use crate::page::{CPU_LEVEL, CPU_SCALAR_LEAVES};
use crate::scheduler::Link;

impl Link {
    /// Says in the slot how long the scalar phase that begins will be, and rests if it is a rest
    /// (policy/rest.h): what else the slot says stays. The next section voids it by its number, so
    /// that a section's begin costs what it cost.
    pub(crate) fn rest(self, phase_ns: u64) -> bool {
        let below_ns = self.board.header.rest_below_ns.load(Relaxed);
        if phase_ns == 0 || !self.board.is_active() {
            return false;
        }
        self.slot.rest_until_ns.store(monotonic_ns().saturating_add(phase_ns), Relaxed);
        // Who reads the slot between the two sees the end of an older section's rest, which is
        // void.
        compiler_fence(SeqCst);
        self.slot.rest_seq.store(self.slot.seq.load(Relaxed), Relaxed);
        phase_ns < below_ns
    }

    /// Reports to the scheduler that the level of this thread's code has risen.
    #[inline]
    pub(crate) fn announce(self, old: u32, new: u32) {
        if old == 0 {
            let seq = self.slot.seq.load(Relaxed);
            self.slot.seq.store(seq.wrapping_add(1), Relaxed);
        }
        self.slot.want.store(new, Relaxed);
    }

    /// True if a scheduler runs and this CPU may run code of `level`. False also where the fast
    /// path does not know.
    #[inline]
    pub(crate) fn is_fit(self, level: u32) -> bool {
        compiler_fence(SeqCst); // request before CPU number, see the head of `thread`
        match self.board.cpu_flags(self.cpu.read()) {
            Some(flags) => u32::from(flags & CPU_LEVEL) >= level && self.board.is_active(),
            None => false,
        }
    }

    /// True if a scalar thread may have to leave this CPU.
    #[inline]
    pub(crate) fn must_leave(self) -> bool {
        compiler_fence(SeqCst); // as above
        match self.board.cpu_flags(self.cpu.read()) {
            Some(flags) => flags & CPU_SCALAR_LEAVES != 0 || !self.board.is_active(),
            None => true,
        }
    }

    /// The flags of this CPU, with a system call for its number if need be; 0 if unknown.
    pub(crate) fn ask_flags(self) -> u8 {
        compiler_fence(SeqCst); // as above
        let cpu = self.cpu.ask();
        cpu.and_then(|cpu| self.board.cpu_flags(cpu)).unwrap_or(0)
    }
}

/// The clock that the scheduler compares rests with.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is ours. This clock cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}
