// SPDX-License-Identifier: MIT OR Apache-2.0
//! When to look for a scheduler, and what a thread holds once it has one.
//!
//! Problem: applications outlive schedulers, in both directions: a scheduler may start after the
//! application, end, and start again. Looking costs a system call, and a thread may open millions
//! of sections a second while there is no scheduler to find.
//!
//! Idea: two brakes. Per thread, most sections do not even read the clock: between two readings
//! lies a number of sections that doubles while readings come faster than four a second, up to 256,
//! and halves when they come slower than one a second. Per process, an attempt that failed keeps
//! all threads from the next one for a second. If a process listened but did not answer, which cost
//! 200 ms, the pause doubles each time, up to a minute.
//!
//! Result: without a scheduler, a section pays 1/256 of a coarse clock reading (5 ns), and one
//! thread per second a failed connect (some us). A scheduler that starts is seen within a second,
//! or, by a thread whose sections have become rare, after 256 of them at the latest.

use crate::connect::{self, Failure};
use crate::cpu::CpuNumber;
use crate::forks::Watch;
use crate::mapping;
use crate::page::{AREA_SLOTS, Board, MODE_AFFINITY, SILENT, Slot};
use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

const SECOND_NS: u64 = 1_000_000_000;
const RETRY_NS: u64 = SECOND_NS;
/// The pause doubles this often: 64 s.
const RETRY_DOUBLINGS_MAX: u32 = 6;
const PACE_MAX: u32 = 256;

/// Coarse monotonic time, ns, before which no one tries again.
static NEXT_TRY_NS: AtomicU64 = AtomicU64::new(0);

/// How often in a row someone listened and did not answer.
static HANGS: AtomicU32 = AtomicU32::new(0);

/// The child of a fork is another thread, and must not speak in its parent's slot.
static FORKS: Watch = Watch::new();

/// What a served thread needs to speak. Belongs to its thread.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub board: &'static Board,
    pub slot: &'static Slot,
    pub cpu: CpuNumber,
}

impl Link {
    /// True if the thread moves itself, instead of being moved.
    pub fn by_affinity(self) -> bool {
        self.board.header.mode.load(Relaxed) == MODE_AFFINITY
    }
}

/// Per thread: how many sections pass until the clock is read again.
pub(crate) struct Pace {
    left: Cell<u32>,
    /// Sections from one reading to the next; 0 before the first.
    interval: Cell<u32>,
    /// Coarse monotonic time of the last reading, ns.
    last_ns: Cell<u64>,
}

impl Pace {
    /// Counts a section; true if it is this one's turn to look.
    #[inline]
    pub fn is_due(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.wrapping_sub(1));
        left == 0
    }

    /// The next section looks.
    pub fn hurry(&self) {
        self.left.set(0);
    }

    /// Chooses the next interval by the time that the last one took.
    fn adapt(&self, now_ns: u64) {
        let elapsed_ns = now_ns.saturating_sub(self.last_ns.replace(now_ns));
        let interval = match self.interval.get().max(1) {
            i if elapsed_ns < SECOND_NS / 4 => (i * 2).min(PACE_MAX),
            i if elapsed_ns > SECOND_NS => (i / 2).max(1),
            i => i,
        };
        self.interval.set(interval);
        self.left.set(interval - 1);
    }
}

/// Looks for a scheduler, unless it is too early for that.
pub(crate) fn look(pace: &Pace, in_child: extern "C" fn()) -> Option<Link> {
    let now_ns = coarse_ns();
    pace.adapt(now_ns);
    if now_ns < NEXT_TRY_NS.load(Relaxed) {
        return None;
    }
    match join(in_child) {
        Ok(link) => {
            HANGS.store(0, Relaxed);
            Some(link)
        }
        Err(failure) => {
            let doublings = match failure {
                Failure::Refused => 0,
                Failure::Hangs => HANGS.fetch_add(1, Relaxed).min(RETRY_DOUBLINGS_MAX),
            };
            NEXT_TRY_NS.store(now_ns + (RETRY_NS << doublings), Relaxed);
            None
        }
    }
}

/// Gets a slot from the scheduler. The thread's `want` in it is [`SILENT`].
pub(crate) fn join(in_child: extern "C" fn()) -> Result<Link, Failure> {
    let registered = connect::register()?;
    let (area, index) =
        (registered.slot / AREA_SLOTS as u32, registered.slot as usize % AREA_SLOTS);
    let id = mapping::Id { run: registered.run_id, area };
    let (board, area) =
        mapping::adopt(&registered.board_fd, &registered.area_fd, id).ok_or(Failure::Refused)?;
    let slot = &area.slot[index];
    // The slot must be ready before it is used: what the daemon wrote, it wrote before replying.
    if !board.is_active() || slot.tid.load(Relaxed) == 0 || slot.want.load(Relaxed) != SILENT {
        return Err(Failure::Refused);
    }
    if !FORKS.start(in_child) {
        return Err(Failure::Refused);
    }
    let cpu = CpuNumber::of_this_thread();
    Ok(Link { board, slot, cpu })
}

/// Monotonic time, behind by up to a tick.
pub fn coarse_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the local structure only. The clock exists since Linux 2.6.32.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    time.tv_sec as u64 * SECOND_NS + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a thread starts with it.
    fn new_pace() -> Pace {
        Pace { left: Cell::new(0), interval: Cell::new(0), last_ns: Cell::new(0) }
    }

    fn sections_until_due(pace: &Pace) -> u32 {
        (1..).find(|_| pace.is_due()).unwrap()
    }

    /// Fast sections are spread out up to the bound, slow ones are asked more and more often.
    #[test]
    fn pace_follows_the_rate() {
        let pace = new_pace();
        assert_eq!(sections_until_due(&pace), 1);
        let mut now_ns = 100 * SECOND_NS;
        for expected in [1, 2, 4, 8, 16, 32, 64, 128, 256, 256] {
            pace.adapt(now_ns);
            assert_eq!(sections_until_due(&pace), expected);
            now_ns += 1000;
        }
        for expected in [128, 64, 32, 16, 8, 4, 2, 1, 1] {
            now_ns += 2 * SECOND_NS;
            pace.adapt(now_ns);
            assert_eq!(sections_until_due(&pace), expected);
        }
    }
}
