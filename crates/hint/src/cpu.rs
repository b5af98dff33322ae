// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which CPU the thread runs on, in one load.
//!
//! Problem: `sched_getcpu` costs 3 ns (vDSO: RDPID or LSL), more than all the rest of a section.
//!
//! Idea: the kernel writes a thread's CPU number into the thread's restartable-sequence area at
//! each return to user mode after a migration. glibc >= 2.35 registers that area for every thread
//! and exports its place, `__rseq_offset` from the thread pointer. The field is read like any
//! variable.
//!
//! Limits: with an older glibc, another libc, a kernel without rseq, or rseq turned off
//! (`GLIBC_TUNABLES=glibc.pthread.rseq=0`) the number comes from `sched_getcpu`. The symbol is
//! weak, so that one library serves all of these, linked statically too.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where the calling thread's CPU number is found. Belongs to the thread that made it, and is
/// kept in that thread's thread-local state only.
#[derive(Clone, Copy)]
pub(crate) struct CpuNumber(&'static AtomicU32);

/// Stands for a missing rseq area: no CPU has this number.
static UNKNOWN: AtomicU32 = AtomicU32::new(u32::MAX);

impl CpuNumber {
    /// Looks for the rseq area of the calling thread.
    pub fn of_this_thread() -> Self {
        CpuNumber(rseq_cpu_id().unwrap_or(&UNKNOWN))
    }

    /// The CPU, or a number that no CPU has if only [`Self::ask`] knows: the rseq field is
    /// negative where registration failed.
    #[inline]
    pub fn read(self) -> u32 {
        self.0.load(Relaxed)
    }

    /// The CPU, by system call if need be.
    pub fn ask(self) -> Option<u32> {
        let read = self.read();
        if read.cast_signed() >= 0 {
            return Some(read);
        }
        // SAFETY: no arguments, no memory of ours.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }
}

/// `struct rseq.cpu_id`: after `cpu_id_start`, 4 bytes (linux/rseq.h).
#[cfg(x86_64_abi)]
const CPU_ID_OFFSET: isize = 4;

#[cfg(x86_64_abi)]
fn rseq_cpu_id() -> Option<&'static AtomicU32> {
    let offset: *const isize;
    let thread_pointer: *const u8;
    // SAFETY: reads the GOT entry of a symbol that may be missing (then 0), and the first word of
    // the thread control block, which on x86-64 is the block's own address.
    unsafe {
        core::arch::asm!(
            ".weak __rseq_offset",
            "mov {offset}, qword ptr [rip + __rseq_offset@GOTPCREL]",
            "mov {thread_pointer}, qword ptr fs:[0]",
            offset = out(reg) offset,
            thread_pointer = out(reg) thread_pointer,
            options(nostack, readonly, preserves_flags),
        );
    }
    if offset.is_null() {
        return None;
    }
    // SAFETY: where glibc has the symbol, it is a `ptrdiff_t` constant since start-up, and the
    // thread's rseq area lies at that offset for as long as the thread lives, registered or not
    // (then the field is negative). The kernel writes it only while the thread is not running.
    // 'static is longer than the thread's life, see the type.
    Some(unsafe { &*thread_pointer.offset(*offset + CPU_ID_OFFSET).cast() })
}

#[cfg(not(x86_64_abi))]
fn rseq_cpu_id() -> Option<&'static AtomicU32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread pinned to a CPU reads that CPU's number, by rseq where there is one and by
    /// system call always.
    #[test]
    fn pinned_thread_reads_its_cpu() {
        for cpu in crate::affinity::cpus(&crate::affinity::current().unwrap()) {
            std::thread::spawn(move || {
                let mut mask = crate::page::Mask::default();
                mask[cpu / 64] = 1 << (cpu % 64);
                assert!(crate::affinity::apply(&mask));
                let number = CpuNumber::of_this_thread();
                assert_eq!(number.ask(), Some(cpu as u32));
                assert_eq!(CpuNumber(&UNKNOWN).ask(), Some(cpu as u32));
                if rseq_cpu_id().is_some() {
                    assert_eq!(number.read(), cpu as u32);
                }
            })
            .join()
            .unwrap();
        }
    }
}
