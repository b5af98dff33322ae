// SPDX-License-Identifier: MIT OR Apache-2.0
//! The CPUs' logs, which the kernel's side writes (bpf/log.bpf.h has the picture), as one: in order
//! of time.
//!
//! Each is in order by itself, so they are merged where they lie: the CPU whose next record is the
//! earliest is the next. Nothing is copied but the record that is taken.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use super::bpf::types;
use super::raw::Record;

/// `struct tl_trace_log`, seen from this side.
#[repr(C, align(64))]
pub(super) struct Counters {
    written: AtomicU64,
    read: AtomicU64,
    busy: AtomicU64,
    lost: AtomicU64,
}

const _: () = {
    assert!(size_of::<Counters>() == size_of::<types::tl_trace_log>());
    assert!(offset_of!(Counters, written) == offset_of!(types::tl_trace_log, written));
    assert!(offset_of!(Counters, read) == offset_of!(types::tl_trace_log, read));
    assert!(offset_of!(Counters, lost) == offset_of!(types::tl_trace_log, lost));
    assert!(size_of::<Record>() == size_of::<types::tl_trace_event>());
};

impl Counters {
    /// Records that were dropped.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Where the slots of all CPUs lie.
pub(super) struct Slots {
    base: *mut Record,
    bytes: usize,
    shift: u32,
}

impl Slots {
    /// Maps those of so many CPUs, 2^`shift` each.
    pub(super) fn map(fd: BorrowedFd<'_>, nr_cpus: usize, shift: u32) -> io::Result<Self> {
        let bytes = (nr_cpus << shift) * size_of::<Record>();
        let (none, shared) = (ptr::null_mut(), libc::MAP_SHARED);
        // SAFETY: a new mapping, in a place of the kernel's choice; it refuses what the map does
        // not have.
        let base = unsafe { libc::mmap(none, bytes, libc::PROT_READ, shared, fd.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Slots { base: base.cast(), bytes, shift })
    }

    /// Where a CPU's record of this number lies, or will lie.
    fn slot(&self, cpu: usize, number: u64) -> *const Record {
        let at = number as usize & ((1 << self.shift) - 1);
        self.base.wrapping_add((cpu << self.shift) + at)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no one else has a pointer into it.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// How far this side is with a CPU's log.
#[derive(Clone, Copy, Default)]
struct Cursor {
    /// Records taken.
    read: u64,
    /// Records that are there.
    written: u64,
    /// Time of the last one taken.
    at_ns: u64,
}

impl Cursor {
    /// The time of the CPU's next record, if there is one. The kernel's clock may go back by
    /// nanoseconds while it is adjusted; what a CPU wrote later is not earlier.
    fn next_ns(&self, slots: &Slots, cpu: usize) -> Option<u64> {
        if self.read == self.written {
            return None;
        }
        // SAFETY: in the mapping; written, and not given back before it is read.
        let at_ns = unsafe { (*slots.slot(cpu, self.read)).at_ns };
        Some(at_ns.max(self.at_ns))
    }

    /// Takes the next record, which is there and has this time.
    fn take(&mut self, slots: &Slots, cpu: usize, at_ns: u64) -> Record {
        debug_assert!(self.read < self.written);
        // It lies in the cache of the CPU that wrote it.
        prefetch(slots.slot(cpu, self.read + AHEAD));
        // SAFETY: as above.
        let record = unsafe { slots.slot(cpu, self.read).read() };
        (self.read, self.at_ns) = (self.read + 1, at_ns);
        Record { at_ns, ..record }
    }
}

/// How many records before it is taken a record is fetched: for as long as a line takes to come,
/// some 100 ns.
const AHEAD: u64 = 16;

fn prefetch(record: *const Record) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: only a hint, wherever it points.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(record.cast());
    }
}

/// The logs of all CPUs. Whoever calls brings the same counters each time.
pub(super) struct Logs {
    slots: Slots,
    cursors: Vec<Cursor>,
    /// Time of the next record of each CPU that has one, and its number.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Logs {
    /// Those of so many CPUs, from their begin.
    pub(super) fn new(slots: Slots, nr_cpus: usize) -> Self {
        Logs { slots, cursors: vec![Cursor::default(); nr_cpus], next: BinaryHeap::new() }
    }

    /// Takes all records before this moment, in order of time; at equal times CPU by CPU.
    pub(super) fn take_before<E>(
        &mut self,
        counters: &[Counters],
        moment_ns: u64,
        mut take: impl FnMut(&Record) -> Result<(), E>,
    ) -> Result<(), E> {
        self.look(counters);
        let Logs { slots, cursors, next } = self;
        while let Some(mut first) = next.peek_mut() {
            let Reverse((at_ns, cpu)) = *first;
            if at_ns >= moment_ns {
                break;
            }
            let cursor = &mut cursors[cpu];
            let record = cursor.take(slots, cpu, at_ns);
            match cursor.next_ns(slots, cpu) {
                Some(next_ns) => first.0.0 = next_ns,
                None => _ = PeekMut::pop(first),
            }
            take(&record)?;
        }
        // The CPUs may use their slots again.
        for (counters, cursor) in counters.iter().zip(cursors) {
            counters.read.store(cursor.read, Release);
        }
        Ok(())
    }

    /// Finds what has been written until now.
    fn look(&mut self, counters: &[Counters]) {
        self.next.clear();
        for (cpu, (counters, cursor)) in counters.iter().zip(&mut self.cursors).enumerate() {
            cursor.written = counters.written.load(Acquire);
            let next_ns = cursor.next_ns(&self.slots, cpu);
            self.next.extend(next_ns.map(|at_ns| Reverse((at_ns, cpu))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    const SHIFT: u32 = 3;

    /// The kernel's side, with a file in the map's place.
    struct Kernel {
        file: File,
        counters: Vec<Counters>,
        logs: Logs,
        nr_written: u32,
    }

    impl Kernel {
        fn new(nr_cpus: usize) -> Self {
            let file = tempfile::tempfile().unwrap();
            file.set_len(((nr_cpus << SHIFT) * size_of::<Record>()) as u64).unwrap();
            let zero = || AtomicU64::new(0);
            let one = |_| Counters { written: zero(), read: zero(), busy: zero(), lost: zero() };
            let counters = (0..nr_cpus).map(one).collect();
            let slots = Slots::map(file.as_fd(), nr_cpus, SHIFT).unwrap();
            Kernel { file, counters, logs: Logs::new(slots, nr_cpus), nr_written: 0 }
        }

        fn taken(&mut self, moment_ns: u64) -> Vec<(u64, u32)> {
            let mut taken = Vec::new();
            let take = |record: &Record| {
                taken.push((record.at_ns, record.tid));
                Ok::<(), Infallible>(())
            };
            self.logs.take_before(&self.counters, moment_ns, take).unwrap();
            taken
        }

        /// A record with a number of its own; `None`: the log is full.
        fn write(&mut self, cpu: usize, at_ns: u64) -> Option<u32> {
            let counters = &self.counters[cpu];
            let (written, read) = (counters.written.load(Relaxed), counters.read.load(Acquire));
            if written - read >= 1 << SHIFT {
                return None;
            }
            self.nr_written += 1;
            let number = self.nr_written;
            let bytes = [&at_ns.to_ne_bytes()[..], &number.to_ne_bytes(), &[0; 12]].concat();
            let at = (cpu << SHIFT) + (written as usize & ((1 << SHIFT) - 1));
            self.file.write_all_at(&bytes, (at * size_of::<Record>()) as u64).unwrap();
            counters.written.store(written + 1, Release);
            Some(number)
        }
    }

    /// What is younger than the moment stays, and what was taken makes room.
    #[test]
    fn merges_holds_back_and_gives_back() {
        let mut kernel = Kernel::new(2);
        for (cpu, at_ns) in [(0, 10), (0, 30), (1, 20), (1, 40)] {
            kernel.write(cpu, at_ns).unwrap();
        }
        assert_eq!(kernel.taken(35), [(10, 1), (20, 3), (30, 2)]);
        for _ in 0..7 {
            kernel.write(1, 50).unwrap();
        }
        assert_eq!(kernel.write(1, 50), None);
        assert_eq!(kernel.taken(50), [(40, 4)]);
        assert!(kernel.write(1, 50).is_some());
        assert_eq!(kernel.taken(u64::MAX).len(), 8);
        assert_eq!(kernel.taken(u64::MAX), []);
    }

    /// A clock that goes back for a CPU does not turn the order of its records.
    #[test]
    fn a_clock_that_goes_back_stands_still() {
        let mut kernel = Kernel::new(2);
        for (cpu, at_ns) in [(0, 10), (0, 8), (1, 9), (0, 11)] {
            kernel.write(cpu, at_ns).unwrap();
        }
        assert_eq!(kernel.taken(100), [(9, 3), (10, 1), (10, 2), (11, 4)]);
    }

    proptest! {
        /// However writing and reading take turns: everything that found room comes once, each
        /// before its moment, and all in order of time.
        #[test]
        fn nothing_is_lost_or_comes_twice(
            steps in prop::collection::vec((0usize..3, 0u64..4, prop::bool::weighted(0.2)), 0..300)
        ) {
            let mut kernel = Kernel::new(3);
            let (mut now_ns, mut written, mut read) = (0, Vec::new(), Vec::new());
            for (cpu, ns, reads) in steps {
                now_ns += ns;
                written.extend(kernel.write(cpu, now_ns).map(|number| (now_ns, number)));
                if reads {
                    let moment_ns = now_ns.saturating_sub(3);
                    let new = kernel.taken(moment_ns);
                    prop_assert!(new.iter().all(|(at_ns, _)| *at_ns < moment_ns));
                    read.extend(new);
                }
            }
            read.extend(kernel.taken(u64::MAX));
            prop_assert!(read.is_sorted_by_key(|(at_ns, _)| *at_ns));
            read.sort();
            prop_assert_eq!(read, written);
        }
    }
}
