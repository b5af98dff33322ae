// SPDX-License-Identifier: MIT OR Apache-2.0
//! What CPUs execute, sampled: the address of the next instruction and its callers, by
//! perf_event_open(2).
//!
//! Problem: licence counters exist on three generations of CPUs, and in no virtual machine. The
//! position of code is available from every kernel at any moment.
//!
//! Idea: an event of the kernel's own clock on each CPU, which writes a record per period into
//! memory shared with us: a ring, whose head the kernel moves and whose tail we move. No counter of
//! the hardware is needed.
//!
//! ```text
//!   page 0: head, tail      pages 1..: | record | record | re.. |  <- a record may go on at the ring's beginning
//! ```
//!
//! Limits: callers come from frame pointers, which most distributions' libraries do not keep: a
//! chain may be short or wrong. The clock is a timer of each CPU: what runs with interrupts off is
//! seen at their return. What the ring has no room for is lost, and counted.
//!
//! Source: perf_event_open(2), linux/perf_event.h (struct perf_event_mmap_page,
//! PERF_RECORD_SAMPLE).

use std::io::{Error, Result};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::perf::{self, CPU_CLOCK, Event, SOFTWARE, Whose};

/// PERF_SAMPLE_IP, _TID, _TIME, _CALLCHAIN, _CPU: what a sample holds.
const SAMPLE_TYPE: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 5 | 1 << 7;
/// exclude_callchain_kernel: user callers only.
const NO_KERNEL_CALLERS: u64 = 1 << 21;
/// PERF_RECORD_LOST, PERF_RECORD_SAMPLE.
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// PERF_RECORD_MISC_CPUMODE_MASK and PERF_RECORD_MISC_USER in it.
const CPU_MODE: u16 = 7;
const USER: u16 = 2;
/// Callers from here on are marks between contexts (PERF_CONTEXT_MAX), not addresses.
const CONTEXTS: u64 = -4095_i64 as u64;

const PAGE_BYTES: usize = 4096;
/// 1,000 samples a second with 127 callers each fill this in half a second.
const RING_BYTES: usize = 128 * PAGE_BYTES;
/// Where the first page has head and tail.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// What a CPU was found at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// The CPU.
    pub cpu: u32,
    /// The process; 0 if the CPU idled.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// On a clock of the kernel's, ns.
    pub time_ns: u64,
    /// The instruction's address.
    pub address: u64,
    /// It is the program's own, not the kernel's on its behalf.
    pub is_user: bool,
    /// Addresses in the program to which calls return, innermost first.
    pub callers: Vec<u64>,
}

/// Samples all of some CPUs, until it is dropped.
pub struct Sampler {
    rings: Vec<Ring>,
    lost: u64,
}

impl Sampler {
    /// Begins, with a sample per CPU and period.
    ///
    /// # Errors
    /// The kernel's: "permission denied" without root, unless kernel.perf_event_paranoid is 0 or
    /// less.
    pub fn start(cpus: impl Iterator<Item = u32>, period_ns: u64) -> Result<Sampler> {
        let event = Event {
            kind: SOFTWARE,
            config: CPU_CLOCK,
            sample_period: period_ns,
            sample_type: SAMPLE_TYPE,
            flags: NO_KERNEL_CALLERS,
            ..Event::default()
        };
        let rings = cpus.map(|cpu| Ring::map(perf::open(&event, Whose::Cpu(cpu), None)?));
        Ok(Sampler { rings: rings.collect::<Result<_>>()?, lost: 0 })
    }

    /// Hands on what has come since the last time, CPU by CPU.
    pub fn read(&mut self, mut each: impl FnMut(Sample)) {
        for ring in &mut self.rings {
            ring.read(&mut |record| match record {
                Record::Sample(sample) => each(sample),
                Record::Lost(count) => self.lost += count,
            });
        }
    }

    /// Samples that there was no room for.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

/// A CPU's event with its memory.
struct Ring {
    /// Closed after the memory is unmapped, which ends the event.
    _event: OwnedFd,
    memory: NonNull<u8>,
    /// A record that is in two parts is put together here.
    record: Vec<u8>,
}

impl Ring {
    fn map(event: OwnedFd) -> Result<Ring> {
        let (length, rights) = (PAGE_BYTES + RING_BYTES, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let memory = unsafe {
            let shared = libc::MAP_SHARED;
            libc::mmap(ptr::null_mut(), length, rights, shared, event.as_raw_fd(), 0)
        };
        match NonNull::new(memory.cast()) {
            Some(start) if memory != libc::MAP_FAILED => {
                Ok(Ring { _event: event, memory: start, record: Vec::new() })
            }
            _ => Err(Error::last_os_error()),
        }
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the mapping's first page, aligned, and read and written by the kernel as
        // one.
        unsafe { self.memory.add(at).cast().as_ref() }
    }

    fn read(&mut self, each: &mut impl FnMut(Record)) {
        let head = self.word(HEAD_AT).load(Ordering::Acquire);
        let mut tail = self.word(TAIL_AT).load(Ordering::Relaxed);
        while tail < head {
            let (kind, misc, length) = self.head_of(tail);
            // the kernel writes no shorter ones: what follows is not understood
            if length < HEAD_BYTES || length as u64 > head - tail {
                tail = head;
                break;
            }
            self.copy(tail, length);
            if let Some(record) = parse(kind, misc, &self.record[HEAD_BYTES..]) {
                each(record);
            }
            tail += length as u64;
        }
        self.word(TAIL_AT).store(tail, Ordering::Release);
    }

    fn head_of(&mut self, at: u64) -> (u32, u16, usize) {
        self.copy(at, HEAD_BYTES);
        let word = |from: usize, to| self.record.get(from..to).unwrap_or_default();
        let kind = word(0, 4).try_into().map_or(0, u32::from_ne_bytes);
        let misc = word(4, 6).try_into().map_or(0, u16::from_ne_bytes);
        let length = word(6, 8).try_into().map_or(0, u16::from_ne_bytes);
        (kind, misc, length.into())
    }

    /// Copies bytes of the ring; they are between tail and head, where the kernel does not write.
    fn copy(&mut self, at: u64, length: usize) {
        let start = at as usize % RING_BYTES;
        let first = length.min(RING_BYTES - start);
        self.record.clear();
        // SAFETY: both parts are within the ring, which follows the first page.
        unsafe {
            let ring = self.memory.add(PAGE_BYTES).as_ptr();
            self.record.extend_from_slice(std::slice::from_raw_parts(ring.add(start), first));
            self.record.extend_from_slice(std::slice::from_raw_parts(ring, length - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference to it is left.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), PAGE_BYTES + RING_BYTES) };
    }
}

/// Kind, mode, length.
const HEAD_BYTES: usize = 8;

enum Record {
    Sample(Sample),
    Lost(u64),
}

/// A record without its head; `None` for other kinds and what is too short.
fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<Record> {
    let mut words = body.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
    let mut word = || words.next();
    match kind {
        SAMPLE => {
            let (address, ids, time_ns, cpu, nr_callers) =
                (word()?, word()?, word()?, word()?, word()?);
            let callers = words.take(usize::try_from(nr_callers).ok()?);
            // the first is the instruction itself
            let callers = callers.filter(|address| *address < CONTEXTS).skip(1).collect();
            Some(Record::Sample(Sample {
                cpu: cpu as u32,
                pid: ids as u32,
                tid: (ids >> 32) as u32,
                time_ns,
                address,
                is_user: misc & CPU_MODE == USER,
                callers,
            }))
        }
        LOST => word().and(word()).map(Record::Lost),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn sample(misc: u16, words: &[u64]) -> Option<Sample> {
        match parse(SAMPLE, misc, &body(words)) {
            Some(Record::Sample(sample)) => Some(sample),
            _ => None,
        }
    }

    /// Each field has its place; marks of contexts are no callers.
    #[test]
    fn a_sample_is_read() {
        let words = [0x1000, 8 << 32 | 7, 99, 3, 4, -512_i64 as u64, 0x1000, 0x2000, 0x3000];
        let expected = Sample {
            cpu: 3,
            pid: 7,
            tid: 8,
            time_ns: 99,
            address: 0x1000,
            is_user: true,
            callers: vec![0x2000, 0x3000],
        };
        assert_eq!(sample(USER, &words), Some(expected.clone()));
        let in_kernel = Sample { is_user: false, ..expected };
        assert_eq!(sample(1, &words), Some(in_kernel));
        // fewer callers than are announced, as if the record were cut
        assert_eq!(sample(USER, &words[..7]).unwrap().callers, []);
        assert_eq!(sample(USER, &words[..4]), None);
        assert!(matches!(parse(LOST, 0, &body(&[1, 42])), Some(Record::Lost(42))));
        assert!(parse(1, 0, &body(&words)).is_none());
    }

    /// A thread that does nothing but one loop is found there, by its number, about once per
    /// period.
    #[test]
    fn a_busy_thread_is_seen() {
        let cpus = crate::topology(&crate::Live).unwrap().online();
        let sampler = Sampler::start(cpus.iter().map(|cpu| cpu as u32), 1_000_000);
        let Ok(mut sampler) = sampler else {
            return eprintln!("skipped (77): this kernel lets us sample no CPUs");
        };
        let begun = std::time::Instant::now();
        let mut own = 0;
        while own < 20 && begun.elapsed().as_secs() < 60 {
            std::hint::black_box((0..1_000_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
            sampler.read(|sample| {
                let is_own = sample.tid == crate::task::own_tid() && sample.is_user;
                own += u32::from(is_own && sample.pid == std::process::id());
                assert!(cpus.contains(sample.cpu as usize), "{sample:?}");
            });
        }
        assert!(own >= 20, "{own} samples, {} lost", sampler.lost());
    }
}
