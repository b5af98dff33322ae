// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performance counters of the calling thread: perf_event groups, and `rdpmc`.
//!
//! A group is counted together or not at all, so that ratios of its members mean something. Three
//! groups, each opened if the machine has it:
//!
//! | group | events | without it |
//! |---|---|---|
//! | core | cycles, instructions, reference cycles | no PMU (most virtual machines) |
//! | licence | cycles at licence levels 0, 1, 2 (28h/07h, 18h, 20h) | only Skylake-SP to Ice Lake have them |
//! | time | task clock, a software event | `perf_event_paranoid` above 2 |
//!
//! Reading a group is a system call. Cycles alone can be read without one where the kernel allows
//! (`cap_user_rdpmc` in the event's page): `offset + rdpmc(index - 1)`, repeated if the kernel has
//! changed the page meanwhile. That is what regions use.
//!
//! Source: perf_event_open(2), linux/perf_event.h (struct perf_event_mmap_page); licence events:
//! crates/hw/src/license.rs.
//!
//! Limits: user code only, as far as the kernel insists (paranoid 2); if more events are open on
//! the machine than counters exist, the kernel takes turns, and [`Counts::running_frac`] says how
//! much of the time was counted.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};
use std::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, fence};

use hw::license::{LEVEL_EVENTS, LicenseCounters, license_counters};
use hw::perf::{self, Event, Whose};

const REF_CYCLES: u64 = 9;
const TASK_CLOCK: u64 = 1;
const FORMAT_TIMES_AND_GROUP: u64 = 1 | 2 | 8;

/// The head of struct perf_event_mmap_page.
#[repr(C)]
struct Page {
    version: u32,
    compat: u32,
    lock: AtomicU32,
    index: AtomicU32,
    offset: AtomicI64,
    time_enabled: AtomicU64,
    time_running: AtomicU64,
    capabilities: AtomicU64,
    pmc_width: AtomicU16,
}
const _: () = assert!(std::mem::offset_of!(Page, pmc_width) == 48);
const CAP_USER_RDPMC: u64 = 1 << 2;
const PAGE_BYTES: usize = 4096;

/// What the calling thread has used; `None`: not counted on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// Core clock cycles.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Cycles of the reference clock while not halted.
    pub ref_cycles: Option<u64>,
    /// Cycles at licence levels 0, 1 and 2.
    pub license_cycles: Option<[u64; 3]>,
    /// CPU time.
    pub task_clock_ns: Option<u64>,
    /// Part of the time in which the core group was counted, 0 to 1; the counts are not scaled.
    pub running_frac: f64,
}

/// One group of events.
#[derive(Debug)]
struct Group<const N: usize> {
    fds: [OwnedFd; N],
}

impl<const N: usize> Group<N> {
    fn open(kind: u32, configs: [u64; N]) -> Option<Self> {
        let mut fds: Vec<OwnedFd> = Vec::with_capacity(N);
        for config in configs {
            let event =
                Event { kind, config, read_format: FORMAT_TIMES_AND_GROUP, ..Event::default() };
            let open =
                |flags| perf::open(&Event { flags, ..event }, Whose::Thread, fds.first()).ok();
            // Kernel mode too where that is allowed: a thread pays for both.
            let fd = open(0).or_else(|| open(perf::USER_ONLY))?;
            fds.push(fd);
        }
        Some(Group { fds: fds.try_into().ok()? })
    }

    /// Time enabled, time running, counts.
    fn read(&self) -> Option<(u64, u64, [u64; N])> {
        let mut words = [0u64; 16];
        let bytes = (3 + N) * 8;
        // SAFETY: the array is larger than what is asked for.
        let got = unsafe { libc::read(self.fds[0].as_raw_fd(), words.as_mut_ptr().cast(), bytes) };
        let [count, enabled, running, ..] = words;
        let values = words.get(3..3 + N)?.try_into().ok()?;
        (got == bytes.cast_signed() && count == N as u64).then_some((enabled, running, values))
    }
}

/// The counters of one thread; they count from when they are opened.
#[derive(Debug)]
pub(crate) struct Counters {
    core: Option<Group<3>>,
    license: Option<Group<3>>,
    time: Option<Group<1>>,
    /// The page of `cycles`, if it may be read by `rdpmc`.
    page: Option<NonNull<Page>>,
}

impl Counters {
    /// Those of the calling thread that this machine has.
    pub fn open() -> Self {
        let core = Group::open(perf::HARDWARE, [perf::CPU_CYCLES, perf::INSTRUCTIONS, REF_CYCLES]);
        let has_levels = core.is_some() && has_license_counters();
        let license = has_levels.then(|| Group::open(perf::RAW, LEVEL_EVENTS));
        let time = Group::open(perf::SOFTWARE, [TASK_CLOCK]);
        let page = core.as_ref().and_then(|core| map_page(core.fds[0].as_raw_fd()));
        Counters { core, license: license.flatten(), time, page }
    }

    /// All counts, by system calls.
    pub fn read(&self) -> Counts {
        let mut counts = Counts::default();
        if let Some((enabled, running, [cycles, instructions, reference])) =
            self.core.as_ref().and_then(Group::read)
        {
            counts.cycles = Some(cycles);
            counts.instructions = Some(instructions);
            counts.ref_cycles = Some(reference);
            counts.running_frac = running as f64 / enabled.max(1) as f64;
        }
        counts.license_cycles = self.license.as_ref().and_then(Group::read).map(|(.., all)| all);
        counts.task_clock_ns = self.time.as_ref().and_then(Group::read).map(|(.., [ns])| ns);
        counts
    }

    /// Cycles so far without a system call; `None` where the kernel does not allow it.
    #[inline]
    pub fn cycles(&self) -> Option<u64> {
        // SAFETY: mapped until we are dropped; all that changes in it is atomic.
        let page = unsafe { self.page?.as_ref() };
        loop {
            let before = page.lock.load(Acquire);
            let index = page.index.load(Relaxed);
            if index == 0 {
                return None;
            }
            let offset = page.offset.load(Relaxed);
            let unused_bits = 64 - u32::from(page.pmc_width.load(Relaxed)).clamp(1, 64);
            let counter = (read_pmc(index - 1) << unused_bits).cast_signed() >> unused_bits;
            fence(Acquire);
            if page.lock.load(Relaxed) == before {
                return Some(offset.wrapping_add(counter).cast_unsigned());
            }
        }
    }

    /// What regions are measured with.
    pub fn can_read_cycles(&self) -> bool {
        self.cycles().is_some()
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: our mapping, of this size.
            unsafe { libc::munmap(page.as_ptr().cast::<c_void>(), PAGE_BYTES) };
        }
    }
}

/// Asked once: the answer takes reading files, and each thread opens its own counters.
fn has_license_counters() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let cpu = hw::cpu::read_cpu(&hw::Live);
        matches!(license_counters(&cpu).0, LicenseCounters::Levels { .. })
    })
}

/// The event's page, if it allows `rdpmc`.
fn map_page(fd: i32) -> Option<NonNull<Page>> {
    let none = std::ptr::null_mut();
    // SAFETY: a new read-only mapping.
    let map = unsafe { libc::mmap(none, PAGE_BYTES, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
    if map == libc::MAP_FAILED {
        return None;
    }
    let page = NonNull::new(map.cast::<Page>())?;
    // SAFETY: just mapped.
    let capabilities = unsafe { page.as_ref() }.capabilities.load(Relaxed);
    if cfg!(target_arch = "x86_64") && capabilities & CAP_USER_RDPMC != 0 {
        return Some(page);
    }
    // SAFETY: our mapping.
    unsafe { libc::munmap(map, PAGE_BYTES) };
    None
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read_pmc(counter: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the event's page said that this counter may be read by us; touches no memory.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high,
            options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(not(target_arch = "x86_64"))]
fn read_pmc(_counter: u32) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever this machine has: counts grow, or are unknown; never a made-up number.
    #[test]
    fn counts_grow_or_are_unknown() {
        let counters = Counters::open();
        let before = counters.read();
        let mut sum = 0u64;
        for number in 0..2_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_add(number));
        }
        let after = counters.read();
        assert_eq!(before.cycles.is_some(), after.cycles.is_some());
        if let (Some(from), Some(to)) = (before.task_clock_ns, after.task_clock_ns) {
            assert!(to > from, "{from} {to}");
        }
        if let (Some(from), Some(to)) = (before.instructions, after.instructions) {
            assert!(to - from >= 2_000_000, "{from} {to}");
        }
        if before.cycles.is_none() {
            assert_eq!((after.cycles, after.running_frac), (None, 0.0));
            assert!(!counters.can_read_cycles());
        }
    }
}
