// SPDX-License-Identifier: MIT OR Apache-2.0
//! The section goes to a boosted core, instead of the boost to the section's (TURBO 9, "migrate:
//! statically boosted core").
//!
//! Two methods to get there:
//!
//! - [`MoveHolder`], a decoration: the holder of the lock restricts itself to the CPU, and
//!   afterwards to what it was allowed before. Any code can run so; it costs two migrations (15.6
//!   us in and out on a 2-CPU guest), and a thread whose affinity another program changes meanwhile
//!   gets back the old one.
//! - [`Server`]: a thread that stays on the CPU and runs sections that others hand to it, as
//!   closures. Costs two moves of a cache line (TURBO 11: 2,000 cycles there and back between
//!   modules) while both look; `slot` and `bell` say when they sleep. A section runs on the
//!   server's stack and thread-locals. All that one server guards excludes each other.
//!
//! The server looks through the slots in turn, so each client is served once in a round. A closure
//! that panics does so in its client. A forked child has no server thread: it starts its own.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::ThreadId;

use crate::bell::Bell;
use crate::decorate::Decoration;
use crate::placed::{self, Placed};
use crate::slot::Slot;
use crate::sys::Affinity;
use crate::wait::{Spin, Wait};

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
struct Desk {
    slot: Slot,
    /// The client's or the server's, as the slot says.
    job: UnsafeCell<Option<Job>>,
}

struct Office {
    desks: Box<[Desk]>,
    bell: Bell,
    closing: AtomicBool,
}

// SAFETY: a job is written by the client that claimed the slot and read by the server after it was
// posted; what it points to may be sent, as `Server::run` demands.
unsafe impl Sync for Office {}
// SAFETY: as for Sync.
unsafe impl Send for Office {}

/// A thread that runs others' sections on its CPU.
pub struct Server {
    office: Arc<Office>,
    thread: Option<Placed>,
    id: ThreadId,
}

impl Server {
    /// Starts it, on one CPU alone if one is named.
    pub fn new(cpu: Option<u32>) -> io::Result<Server> {
        let desk = |_| Desk { slot: Slot::new(), job: UnsafeCell::new(None) };
        let office = Arc::new(Office {
            desks: (0..SLOTS).map(desk).collect(),
            bell: Bell::default(),
            closing: AtomicBool::new(false),
        });
        let here = office.clone();
        let thread = placed::start("tl-sections", cpu, move || here.serve())?;
        let id = thread.id();
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
        let desk = self.office.claim();
        // SAFETY: the desk is ours until it is posted.
        unsafe { *desk.job.get() = Some(job) };
        desk.slot.post();
        self.office.bell.ring();
        desk.slot.await_done();
        desk.slot.free();
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
            thread.join();
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
    /// `call` is a `Call<F, R>` that no one else touches meanwhile.
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
    fn claim(&self) -> &Desk {
        let mut round = 0;
        loop {
            if let Some(desk) = self.desks.iter().find(|desk| desk.slot.claim()) {
                return desk;
            }
            Spin.step(round);
            round = round.saturating_add(1);
        }
    }

    fn serve(&self) {
        self.bell.serve(|| {
            let closing = self.closing.load(Ordering::Acquire);
            self.desks.iter().for_each(Desk::serve);
            !closing
        });
    }
}

impl Desk {
    /// The server's part.
    fn serve(&self) {
        if !self.slot.is_posted() {
            return;
        }
        // SAFETY: posted: the client reads and writes nothing of it until it is done.
        if let Some(job) = unsafe { *self.job.get() } {
            // SAFETY: the client's stack keeps the call until then.
            unsafe { (job.run)(job.argument) };
        }
        self.slot.done();
    }
}
