// SPDX-License-Identifier: MIT OR Apache-2.0
//! The section goes to a boosted core, instead of the boost to the section's (TURBO 9, "migrate:
//! statically boosted core").
//!
//! Two ways to get there:
//!
//! - [`MoveHolder`], a decoration: the holder of the lock restricts itself to the CPU, and afterwards to
//!   what it was allowed before. Any code can run so; it costs two migrations (15.6 us in and out on a
//!   2-CPU guest), and a thread whose affinity somebody else changes meanwhile gets back the old one.
//! - [`Server`]: a thread that stays on the CPU and runs sections that others hand to it, as closures.
//!   Costs two moves of a cache line (TURBO 11: 2,000 cycles there and back between modules); a section
//!   runs on the server's stack and thread-locals. All that one server guards excludes each other.
//!
//! ```text
//!   a client's slot    FREE -> CLAIMED -> POSTED [-> ASLEEP] -> DONE -> FREE
//!                       client   client     client     server    client
//! ```
//!
//! The server looks through the slots in turn, so each client is served once in a round. A closure that
//! panics does so in its client.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{JoinHandle, ThreadId};

use crate::bell::Bell;
use crate::decorate::Decoration;
use crate::placed;
use crate::sys::{Affinity, futex_wait, futex_wake};
use crate::wait::{Block, Spin, Wait};

/// Moves the holder to a CPU and back.
pub struct MoveHolder {
    target: Affinity,
    /// Where the holder may run otherwise; under the lock.
    home: UnsafeCell<Option<Affinity>>,
}

// SAFETY: `home` is touched by the holder of the lock only.
unsafe impl Sync for MoveHolder {}

impl MoveHolder {
    /// Sections run on this CPU; `None` if there can be no such.
    pub fn new(cpu: u32) -> Option<Self> {
        Some(MoveHolder { target: Affinity::one(cpu)?, home: UnsafeCell::new(None) })
    }
}

impl Decoration for MoveHolder {
    type Waited = ();
    type Held = Option<Affinity>;

    fn waiting(&self) {}

    fn acquired(&self, _waited: Option<()>) {
        // a holder that may not go there runs where it is
        let home = Affinity::current().ok().filter(|_| self.target.apply().is_ok());
        // SAFETY: this thread holds the lock.
        unsafe { *self.home.get() = home };
    }

    fn waited(&self, _waited: ()) {}

    fn releasing(&self) -> Option<Affinity> {
        // SAFETY: this thread holds the lock.
        unsafe { (*self.home.get()).take() }
    }

    fn released(&self, home: Option<Affinity>) {
        if let Some(home) = home {
            // it was allowed before; if it is not any more, the thread stays where it may
            let _ = home.apply();
        }
    }
}

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const POSTED: u32 = 2;
const ASLEEP: u32 = 3;
const DONE: u32 = 4;

/// Clients at a time; more wait for a slot.
const SLOTS: usize = 64;

/// What a client wants done: a function and its argument, on the client's stack.
#[derive(Clone, Copy)]
struct Job {
    run: unsafe fn(*mut ()),
    argument: *mut (),
}

/// Two lines, because the prefetcher fetches pairs.
#[repr(align(128))]
struct Slot {
    state: AtomicU32,
    job: UnsafeCell<Option<Job>>,
}

struct Office {
    slots: Box<[Slot]>,
    bell: Bell,
    closing: AtomicBool,
}

// SAFETY: a slot's job is written by the client that claimed it and read by the server after POSTED;
// what it points to may be sent, as `Server::run` demands.
unsafe impl Sync for Office {}
// SAFETY: as for Sync.
unsafe impl Send for Office {}

/// A thread that runs others' sections on its CPU.
pub struct Server {
    office: Arc<Office>,
    thread: Option<JoinHandle<()>>,
    id: ThreadId,
}

impl Server {
    /// Starts it, on one CPU alone if one is named.
    pub fn new(cpu: Option<u32>) -> io::Result<Server> {
        let slot = |_| Slot { state: AtomicU32::new(FREE), job: UnsafeCell::new(None) };
        let office = Arc::new(Office {
            slots: (0..SLOTS).map(slot).collect(),
            bell: Bell::default(),
            closing: AtomicBool::new(false),
        });
        let here = office.clone();
        let thread = placed::start("tl-sections", cpu, move || here.serve())?;
        let id = thread.thread().id();
        Ok(Server { office, thread: Some(thread), id })
    }

    /// Runs the section on the server's CPU, alone among this server's sections. Panics as it does.
    ///
    /// # Panics
    /// If called from a section of the same server, which would wait for itself.
    pub fn run<R: Send>(&self, section: impl FnOnce() -> R + Send) -> R {
        assert!(
            std::thread::current().id() != self.id,
            "a section of a server asks the same server for another one: it would wait for itself"
        );
        let mut call = Call { section: Some(section), result: None };
        let job = Job { run: call_in_place(&call), argument: (&raw mut call).cast() };
        let slot = self.office.claim();
        // SAFETY: the slot is ours from CLAIMED to POSTED.
        unsafe { *slot.job.get() = Some(job) };
        slot.state.store(POSTED, Ordering::Release);
        self.office.bell.ring();
        slot.await_done();
        match call.result {
            Some(Ok(result)) => result,
            Some(Err(panic)) => resume_unwind(panic),
            None => unreachable!("the server says done after it has run the section"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.office.closing.store(true, Ordering::Release);
        self.office.bell.ring();
        if let Some(thread) = self.thread.take() {
            // sections' panics were caught
            let _ = thread.join();
        }
    }
}

/// A section and what came of it.
struct Call<F, R> {
    section: Option<F>,
    result: Option<Result<R, Box<dyn Any + Send>>>,
}

/// The function that runs a call of that type.
fn call_in_place<F: FnOnce() -> R, R>(_call: &Call<F, R>) -> unsafe fn(*mut ()) {
    /// # Safety
    /// `call` is a `Call<F, R>` that nobody else touches meanwhile.
    unsafe fn run<F: FnOnce() -> R, R>(call: *mut ()) {
        // SAFETY: the caller's promise.
        let call = unsafe { &mut *call.cast::<Call<F, R>>() };
        if let Some(section) = call.section.take() {
            call.result = Some(catch_unwind(AssertUnwindSafe(section)));
        }
    }
    run::<F, R>
}

impl Office {
    fn claim(&self) -> &Slot {
        let mut round = 0;
        loop {
            for slot in &self.slots {
                let (free, relaxed) =
                    (slot.state.load(Ordering::Relaxed) == FREE, Ordering::Relaxed);
                let mine =
                    || slot.state.compare_exchange(FREE, CLAIMED, Ordering::Acquire, relaxed);
                if free && mine().is_ok() {
                    return slot;
                }
            }
            Spin.step(round);
            round = round.saturating_add(1);
        }
    }

    fn serve(&self) {
        self.bell.serve(|| {
            let closing = self.closing.load(Ordering::Acquire);
            self.slots.iter().for_each(Slot::serve);
            !closing
        });
    }
}

impl Slot {
    /// The server's part.
    fn serve(&self) {
        if !matches!(self.state.load(Ordering::Acquire), POSTED | ASLEEP) {
            return;
        }
        // SAFETY: posted: the client reads and writes nothing of it until DONE.
        if let Some(job) = unsafe { *self.job.get() } {
            // SAFETY: the client's stack keeps the call until DONE.
            unsafe { (job.run)(job.argument) };
        }
        if self.state.swap(DONE, Ordering::AcqRel) == ASLEEP {
            futex_wake(&self.state, 1);
        }
    }

    /// The client's wait; frees the slot.
    fn await_done(&self) {
        let mut round = 0;
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state == DONE {
                break;
            }
            if Block.step(round) {
                let relaxed = Ordering::Relaxed;
                let asleep = self.state.compare_exchange(POSTED, ASLEEP, relaxed, relaxed);
                if asleep.is_ok() || state == ASLEEP {
                    futex_wait(&self.state, ASLEEP);
                }
            }
            round = round.saturating_add(1);
        }
        self.state.store(FREE, Ordering::Release);
    }
}
