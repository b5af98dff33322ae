// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread's sections: the path that every section takes, and how a thread gets where it must be.
//!
//! Problem: the hint has to be cheaper than what it saves. Sections of a microsecond are worth
//! hinting only if the hint costs nanoseconds; most of them find their CPU fit already.
//!
//! Idea: the thread stores its request in its slot, then reads the flags of the CPU it runs on,
//! and in the common case is done. Both happen in one thread, so program order is all that is
//! needed: if the thread is migrated between the two, the context switch lies between them as
//! well, and the scheduler that chose the new CPU saw the store already (bpf/hint_page.h). Only
//! the compiler must keep the order, hence the compiler fences; a CPU lets a thread see its own
//! accesses in program order, and the kernel's context switch is a full barrier towards others.
//!
//! Moving: with the sched_ext scheduler the thread yields, and is placed by its request when it is
//! scheduled again; it checks its CPU, and repeats a bounded number of times. If the request
//! cannot be met because the thread's affinity holds no suitable CPU, the next sections do not
//! try again for a while: the request remains, and the scheduler fulfils it at the next occasion.
//! With the affinity fallback the thread changes its own mask, see `affinity`.
//!
//! Limits: the page may change between the look and the section; then the scheduler moves the
//! thread, which reads the same slot. A section that ends on a wide CPU gives it up only if the
//! daemon asked for that (`CPU_SCALAR_LEAVES`).

use crate::affinity::{self, Settled};
use crate::link::monotonic_ns;
use crate::mapping;
use crate::nesting::Nesting;
use crate::page::{Board, CPU_LEVEL, CPU_SCALAR_LEAVES, SILENT, Slot};
use crate::scheduler::{self, Link};
use crate::state::Thread;
use crate::thread_local::this_thread;
use crate::unnoticed::Unnoticed;
use crate::{Error, Status};
use core::ffi::c_int;
use core::sync::atomic::Ordering::Relaxed;

/// How often a thread yields for one section. The first yield moves it; the second is for the case
/// that the wide CPU was taken away meanwhile; the third that this happened again. A yield that
/// changes nothing costs 0.2 us.
const YIELDS_MAX: u32 = 3;

/// Sections that do not yield after one that yielded in vain: bounds the cost for threads that
/// cannot be helped to 3 yields per 64 sections.
const RESIGNED_SECTIONS: u32 = 63;

/// Sections that do not look whether the scheduler still stands by: a look takes a clock's reading.
/// The scheduler moves a thread that has looked too early, at the next tick.
const UNMOVED_SECTIONS: u32 = 15;

/// Opens a wide section of licence level `level`, 1..=[`crate::MAX_LEVEL`], on this thread.
///
/// On return the thread is on a CPU that may run the section, if a scheduler runs and the
/// thread's affinity allows it. The thread is wide, at the highest level of its open sections,
/// until the matching [`wide_end`]. On failure nothing was opened.
#[inline]
pub fn wide_begin(level: u32) -> Result<(), Error> {
    match begin(level) {
        0 => Ok(()),
        code if code == -Error::TooDeep.errno() => Err(Error::TooDeep),
        _ => Err(Error::InvalidLevel),
    }
}

/// Closes this thread's innermost wide section.
///
/// If an outer section is still open, the thread continues on its CPU at that section's level.
/// Otherwise it is scalar from here on, and on return has left the wide CPU, if it was on one and
/// another task may need it.
#[inline]
pub fn wide_end() -> Result<(), Error> {
    match end() {
        0 => Ok(()),
        _ => Err(Error::NotOpen),
    }
}

/// Closes this thread's innermost wide section, like [`wide_end`], and states how long the code
/// after it stays scalar (DIM 7.1).
///
/// For a phase shorter than a migration to a scalar CPU and back, the thread stays on its CPU and
/// counts as wide meanwhile; otherwise it leaves as with [`wide_end`]. Inside another section the
/// time has no effect. A thread that stays scalar for longer than stated is treated as scalar from
/// then on.
#[inline]
pub fn scalar_for(phase_ns: u64) -> Result<(), Error> {
    match end_for(phase_ns) {
        0 => Ok(()),
        _ => Err(Error::NotOpen),
    }
}

/// [`wide_begin`] as the C ABI has it: 0 or -errno.
#[inline]
pub(crate) fn begin(level: u32) -> c_int {
    match start_begin(level) {
        Progress::Done(code) => code,
        Progress::Rest(rest) => rest.take(level),
    }
}

/// [`wide_end`] as the C ABI has it: 0 or -errno.
#[inline]
pub(crate) fn end() -> c_int {
    match start_end() {
        Progress::Done(code) => code,
        Progress::Rest(rest) => rest.take(0),
    }
}

/// How far a begin or an end came without a call of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// To its end: 0 or -errno.
    Done(c_int),
    /// To where [`finish`] goes on.
    Rest(Rest),
}

/// What is left of a begin or an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Rest {
    /// A section inside of others begins.
    BeginInner,
    /// The thread looks for a scheduler.
    Connect,
    /// It moves to a CPU for its level.
    MoveUp,
    /// A section inside of others ends.
    EndInner,
    /// The thread gives its CPU up.
    MoveDown,
}

impl Rest {
    /// The rare paths are `extern "C"` functions that return 0 or -errno, so that they can be
    /// jumped to: nothing is saved on the stack for them.
    #[inline(always)]
    fn take(self, level: u32) -> c_int {
        let thread = this_thread();
        match self {
            Rest::BeginInner => thread.begin_inner(level),
            Rest::Connect => thread.connect(),
            Rest::MoveUp => thread.move_up(),
            Rest::EndInner => thread.end_inner(),
            Rest::MoveDown => thread.move_down(),
        }
    }
}

/// Opens a section as [`wide_begin`] does, for callers that must save registers before anything is
/// called.
#[inline(always)]
pub fn start_begin(level: u32) -> Progress {
    let thread = this_thread();
    if thread.nesting.get() != Nesting::EMPTY {
        return Progress::Rest(Rest::BeginInner);
    }
    match Nesting::EMPTY.open(level) {
        Ok(nesting) => thread.nesting.set(nesting),
        Err(error) => return Progress::Done(-error.errno()),
    }
    match thread.link.get() {
        Some(link) => {
            link.announce(0, level);
            if link.is_fit(level) { Progress::Done(0) } else { Progress::Rest(Rest::MoveUp) }
        }
        None if thread.pace.is_due() => Progress::Rest(Rest::Connect),
        None => Progress::Done(0),
    }
}

/// Closes a section as [`wide_end`] does, for callers that must save registers before anything is
/// called.
#[inline(always)]
pub fn start_end() -> Progress {
    let thread = this_thread();
    if !thread.nesting.get().is_outermost() {
        return Progress::Rest(Rest::EndInner);
    }
    thread.nesting.set(Nesting::EMPTY);
    match thread.link.get() {
        Some(link) => {
            link.slot.want.store(0, Relaxed);
            if link.must_leave() { Progress::Rest(Rest::MoveDown) } else { Progress::Done(0) }
        }
        None => Progress::Done(0),
    }
}

/// Does the rest of a begin of this level, or of an end: 0 or -errno.
pub extern "C" fn finish(rest: Rest, level: u32) -> c_int {
    rest.take(level)
}

/// [`scalar_for`] as the C ABI has it: 0 or -errno. `extern "C"` lets callers in other crates know
/// that it does not unwind.
pub(crate) extern "C" fn end_for(phase_ns: u64) -> c_int {
    let thread = this_thread();
    match thread.link.get() {
        Some(link) if thread.nesting.get().is_outermost() && link.rest(phase_ns) => {
            thread.nesting.set(Nesting::EMPTY);
            0
        }
        // a longer phase is announced too: the scheduler need not find out
        _ => end(),
    }
}

/// Who acts on this thread's sections. Looks for a scheduler as the first section would, but not
/// more than once a second.
pub fn wide_status() -> Status {
    let thread = this_thread();
    match thread.link.get() {
        Some(link) if link.board.is_active() => {}
        Some(_) => thread.lose(),
        None => {
            thread.connect();
        }
    }
    match thread.link.get() {
        None => Status::None,
        Some(link) if link.by_affinity() => Status::Affinity,
        Some(_) => Status::Scx,
    }
}

/// The calling thread's page and slot, if a scheduler serves it. Looks for one as the first section
/// would; `hurry`: even if the last look in this process was a moment ago.
pub fn served(hurry: bool) -> Option<(&'static Board, &'static Slot)> {
    let thread = this_thread();
    if thread.link.get().is_some_and(|link| !link.board.is_active()) {
        thread.lose();
    }
    match thread.link.get() {
        Some(_) => {}
        None if hurry => thread.connect_by(|| scheduler::join(in_child).ok()),
        None => thread.connect_by(|| scheduler::look(&thread.pace, in_child)),
    }
    thread.link.get().map(|link| (link.board, link.slot))
}

/// The page and slot that the calling thread has, without a look for others.
pub fn slot_at_hand() -> Option<(&'static Board, &'static Slot)> {
    this_thread().link.get().map(|link| (link.board, link.slot))
}

/// The page by which a section of `level` that this thread would open now belongs on another CPU,
/// to which only a change of the thread's mask would bring it: the affinity fallback, no section
/// open, and this CPU is not fit.
pub fn misplaced(level: u32) -> Option<&'static Board> {
    let thread = this_thread();
    if thread.link.get().is_none() && thread.pace.is_due() {
        thread.connect();
    }
    let link = thread.link.get()?;
    let elsewhere = link.by_affinity() && link.board.is_active() && !link.is_fit(level);
    (elsewhere && thread.nesting.get() == Nesting::EMPTY).then_some(link.board)
}

/// Affinity mode: narrows this thread's mask to CPUs that may run code of `level` in a section that
/// lasts. (One that begins on such a CPU leaves the mask alone, which is as well for one that ends
/// soon.) Whether the thread is served, and runs on one of them.
pub fn takes_seat(level: u32) -> bool {
    let thread = this_thread();
    let _unnoticed = Unnoticed::new();
    if let Some(link) = thread.link.get().filter(|link| link.by_affinity()) {
        thread.settle(link, level);
    }
    thread.link.get().is_some_and(|link| u32::from(link.ask_flags() & CPU_LEVEL) >= level)
}

impl Thread {
    /// Opens a section inside others. Out of line, as is [`Self::end_inner`]: the compiler would
    /// otherwise merge the two paths, and make the outermost section's new state wait for the
    /// load of the old one.
    #[inline(never)]
    extern "C" fn begin_inner(&self, level: u32) -> c_int {
        let outer = self.nesting.get();
        let inner = match outer.open(level) {
            Ok(inner) => inner,
            Err(error) => return -error.errno(),
        };
        self.nesting.set(inner);
        match self.link.get() {
            Some(link) if inner.level() > outer.level() => {
                link.announce(outer.level(), inner.level());
                match link.is_fit(inner.level()) {
                    true => 0,
                    false => self.move_up(),
                }
            }
            None if self.pace.is_due() => self.connect(),
            _ => 0,
        }
    }

    /// Closes a section inside others. The thread may stay where it is, fit for more than it now
    /// runs.
    #[inline(never)]
    extern "C" fn end_inner(&self) -> c_int {
        let outer = match self.nesting.get().close() {
            Ok(outer) => outer,
            Err(error) => return -error.errno(),
        };
        self.nesting.set(outer);
        if let Some(link) = self.link.get() {
            link.slot.want.store(outer.level(), Relaxed);
        }
        0
    }

    /// Looks for a scheduler; if there is one, reports what this thread is running. Always 0: a
    /// section without a scheduler is as good as any.
    #[cold]
    #[inline(never)]
    extern "C" fn connect(&self) -> c_int {
        self.connect_by(|| scheduler::look(&self.pace, in_child));
        0
    }

    fn connect_by(&self, look: impl FnOnce() -> Option<Link>) {
        let _unnoticed = Unnoticed::new();
        affinity::shed_inherited();
        self.adopt(look());
    }

    /// Takes up a link that was just made.
    fn adopt(&self, link: Option<Link>) {
        self.link.set(link);
        self.resigned.set(0);
        let Some(link) = link else { return };
        if link.by_affinity() {
            affinity::enrol();
        }
        let level = self.nesting.get().level();
        if level > 0 {
            link.announce(0, level);
            if !link.is_fit(level) {
                self.move_up();
            }
        }
    }

    /// Gets the thread to a CPU that may run its level, if it is not on one. Always 0: the section
    /// is open, wherever it runs.
    #[cold]
    #[inline(never)]
    extern "C" fn move_up(&self) -> c_int {
        let Some(link) = self.link.get() else {
            return 0;
        };
        let level = self.nesting.get().level();
        let _unnoticed = Unnoticed::new();
        let is_unfit = || u32::from(link.ask_flags() & CPU_LEVEL) < level;
        if !link.board.is_active() {
            self.lose();
        } else if link.by_affinity() {
            if is_unfit() {
                self.settle(link, level);
            }
        } else if self.resigned.get() > 0 {
            self.resigned.set(self.resigned.get() - 1);
        } else if link.board.stands_by() {
            match link.board.is_orphan(monotonic_ns()) {
                true => self.lose(),
                false => self.resigned.set(UNMOVED_SECTIONS),
            }
        } else {
            for _ in 0..YIELDS_MAX {
                if !is_unfit() || !link.board.is_active() {
                    return 0;
                }
                sched_yield();
                if is_unfit() {
                    // A heuristic may have ended the section in between: begin it again.
                    link.announce(0, level);
                }
            }
            if is_unfit() && !affinity::reaches(link.board, level) {
                self.resigned.set(RESIGNED_SECTIONS);
            }
        }
        0
    }

    /// Gives up a CPU that is meant for wide code. Always 0: the section is closed.
    #[cold]
    #[inline(never)]
    extern "C" fn move_down(&self) -> c_int {
        let Some(link) = self.link.get() else {
            return 0;
        };
        let _unnoticed = Unnoticed::new();
        if !link.board.is_active() {
            self.lose();
        } else if link.ask_flags() & CPU_SCALAR_LEAVES != 0 {
            if link.by_affinity() {
                self.settle(link, 0);
            } else {
                sched_yield();
            }
        }
        0
    }

    /// Affinity mode: takes the mask for code of `level`. If another program has changed the mask,
    /// the new mask is the thread's own from now on, and the daemon has to know it first.
    fn settle(&self, link: Link, level: u32) {
        if affinity::settle(link, level) == Settled::NotOurs {
            // The daemon takes a mask that is named here for one of ours, and would undo it.
            link.slot.narrowed.iter().for_each(|hash| hash.store(0, Relaxed));
            match scheduler::join(in_child) {
                Ok(link) => {
                    affinity::enrol();
                    self.link.set(Some(link));
                    match level {
                        0 => link.slot.want.store(0, Relaxed),
                        level => link.announce(0, level),
                    }
                    affinity::settle(link, level);
                }
                Err(_) => self.lose(),
            }
        }
    }

    /// The scheduler has ended: the thread gets its mask back, and looks for the next scheduler at
    /// the usual pace.
    #[cold]
    #[inline(never)]
    fn lose(&self) {
        let _unnoticed = Unnoticed::new();
        if let Some(link) = self.link.get() {
            link.slot.want.store(SILENT, Relaxed);
        }
        affinity::restore();
        self.link.set(None);
        self.pace.hurry();
    }
}

/// Runs in the child of a fork, whose only thread this is: its slot is the parent's, and so is the
/// mask it may have inherited.
extern "C" fn in_child() {
    let thread = this_thread();
    let _unnoticed = Unnoticed::new();
    affinity::in_child();
    mapping::in_child();
    thread.link.set(None);
    thread.pace.hurry();
}

fn sched_yield() {
    // SAFETY: no arguments, no memory of ours.
    unsafe { libc::sched_yield() };
}
