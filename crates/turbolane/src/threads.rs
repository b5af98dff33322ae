// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who runs here: a program's threads by name and role, what each is doing now, and their cores.
//!
//! TURBO's ThreadRegistry and ThreadControl (slide 10). A thread registers itself, or is registered
//! when it is made ([`crate::Session::spawn`]). Its key is the kernel's thread number, which is
//! used again after its end: start times distinguish a thread from its successor.
//!
//! Frequency belongs to cores, not to threads. A thread's request goes to the CPU that it runs on
//! now, and the registry remembers which: the next request of a thread that has migrated withdraws
//! the old one first. A thread that is to keep its request is pinned ([`Threads::migrate`]). Unless
//! a scheduler takes the requests (`pstate::Way::Scheduler`, `targets`): then they are the
//! thread's, wherever it runs.
//!
//! A thread that ends registered, by a return, a panic or pthread_exit, leaves by itself: what runs
//! at a thread's end ([`AtEnd`]) withdraws its request. A request that another thread still makes
//! for it meets no thread.
//!
//! What a thread is doing is a number of the program's choice; the registered thread sets it with
//! one store ([`Activity`]).
//!
//! Limits: another thread's CPU is read from /proc and may have changed by the time the request
//! arrives. Masks that `migrate` narrowed are restored when a thread leaves; the program's end
//! needs no restoring, since masks end with their threads. A thread that ends by the bare system
//! call, and the first thread if it ends before the process, are noticed by the next
//! [`Threads::list`].

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cpumodel::{CpuSet, MAX_CPUS};
use hw::task;
pub use hw::task::own_tid;
use pstate::{Control, Way, WeakControl};

pub use crate::request::Request;
use crate::targets::{self, Place};

/// Longest name of a thread, bytes.
pub const NAME_MAX: usize = 63;

/// Why something about a thread was refused.
#[derive(Debug)]
pub enum ThreadError {
    /// The thread has registered already.
    Twice(u32),
    /// No living thread of this number is registered.
    NoThread(u32),
    /// The name is longer than [`NAME_MAX`], or empty.
    BadName,
    /// The CPU is not online, or has no number.
    NoCpu(u32),
    /// Its P-state cannot be set.
    Pstate(pstate::Error),
    /// The scheduler that takes requests does not serve the thread.
    NotServed(u32),
    /// The system's reason.
    System(io::Error),
}

impl ThreadError {
    /// The errno value that the C ABI returns, positive.
    pub fn errno(&self) -> i32 {
        match self {
            ThreadError::Twice(_) => libc::EEXIST,
            ThreadError::NoThread(_) => libc::ESRCH,
            ThreadError::BadName => libc::ENAMETOOLONG,
            ThreadError::NoCpu(_) => libc::ENXIO,
            ThreadError::Pstate(error) => error.errno(),
            ThreadError::NotServed(_) => libc::ENOTCONN,
            ThreadError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for ThreadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ThreadError::Twice(tid) => write!(f, "thread {tid} has registered already"),
            ThreadError::NoThread(tid) => {
                write!(f, "no living thread {tid} is registered: it must register itself first")
            }
            ThreadError::BadName => write!(f, "a thread's name has 1 to {NAME_MAX} bytes"),
            ThreadError::NoCpu(cpu) => write!(f, "CPU {cpu} is not online"),
            ThreadError::Pstate(error) => error.fmt(f),
            ThreadError::NotServed(tid) => write!(
                f,
                "no scheduler takes the requests of thread {tid}: it has ended, or has no free slot; start \
                 turbolane run again, then make the request from the thread itself"
            ),
            ThreadError::System(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ThreadError {}

impl From<pstate::Error> for ThreadError {
    fn from(error: pstate::Error) -> Self {
        ThreadError::Pstate(error)
    }
}

/// What a registered thread is doing; cheap to set.
#[derive(Clone, Debug)]
pub struct Activity(Arc<AtomicU32>);

impl Activity {
    /// Says what the thread is doing from now on.
    #[inline]
    pub fn set(&self, doing: u32) {
        self.0.store(doing, Relaxed);
    }
}

/// A registered thread as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadInfo {
    /// The kernel's number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// A number of the program's choice.
    pub role: u32,
    /// What it said last, 0 if nothing yet.
    pub doing: u32,
    /// The CPU it runs on, or ran on last.
    pub cpu: u32,
    /// The CPU that has its request.
    pub requested_cpu: Option<u32>,
}

struct Entry {
    tid: u32,
    start_ticks: u64,
    name: String,
    role: u32,
    doing: Arc<AtomicU32>,
    requested_cpu: Option<u32>,
    /// Where its target lies, with `Way::Scheduler`.
    place: Option<Place>,
    /// Masks before the first migration and after the last.
    masks: Option<(CpuSet, CpuSet)>,
}

/// The registry.
pub struct Threads {
    entries: Arc<Entries>,
    control: WeakControl,
    /// A scheduler takes the threads' requests.
    by_scheduler: bool,
}

type Entries = Mutex<Vec<Entry>>;

fn locked(entries: &Entries) -> MutexGuard<'_, Vec<Entry>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A registry that a thread leaves when it ends, if it has not left before.
struct AtEnd {
    entries: Weak<Entries>,
    control: WeakControl,
}

thread_local! {
    static AT_END: RefCell<Vec<AtEnd>> = const { RefCell::new(Vec::new()) };
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        let tid = own_tid();
        // With the first thread usually the process ends, which restores everything itself; and
        // another one, which a signal handler's exit has interrupted, may hold the lock for ever.
        if tid == std::process::id() {
            return;
        }
        let Some(entries) = self.entries.upgrade() else { return };
        let mut all = locked(&entries);
        let Some(index) = all.iter().position(|entry| entry.tid == tid) else { return };
        let mut entry = all.swap_remove(index);
        drop(all);
        // These end with the thread; its slot may be another thread's by now.
        (entry.place, entry.masks) = (None, None);
        // No one to report to; the control's close restores what could not be.
        let _ = self.control.with(|control| entry.leave(control));
    }
}

/// When the calling thread started. /proc is asked once: that costs more than a request.
fn own_start_ticks() -> io::Result<u64> {
    thread_local! {
        /// With the number of the thread that it is of: a forked child has its parent's.
        static KNOWN: Cell<Option<(u32, u64)>> = const { Cell::new(None) };
    }
    let tid = own_tid();
    if let Some((_, start_ticks)) = KNOWN.get().filter(|(of, _)| *of == tid) {
        return Ok(start_ticks);
    }
    let start_ticks = task::start_ticks(tid)?;
    KNOWN.set(Some((tid, start_ticks)));
    Ok(start_ticks)
}

impl Entry {
    fn lives(&self) -> bool {
        if self.tid == own_tid() {
            return own_start_ticks().is_ok_and(|start_ticks| start_ticks == self.start_ticks);
        }
        task::lives_since(self.tid, self.start_ticks)
    }

    fn cpu(&self) -> Result<u32, ThreadError> {
        let cpu = if self.tid == own_tid() {
            // SAFETY: no arguments.
            usize::try_from(unsafe { libc::sched_getcpu() }).ok()
        } else {
            task::last_cpu(self.tid).ok()
        };
        cpu.map(|cpu| cpu as u32).ok_or(ThreadError::NoThread(self.tid))
    }

    /// Makes a request for its core.
    fn request(&mut self, control: &Control, request: Request) -> Result<(), ThreadError> {
        let cpu = self.cpu()?;
        if let Some(old) =
            self.requested_cpu.filter(|old| *old != cpu || request == Request::Restore)
        {
            control.restore(old)?;
            self.requested_cpu = None;
        }
        match request {
            Request::Restore => return Ok(()),
            Request::Boost => control.boost(cpu)?,
            Request::Slow => control.slow(cpu)?,
            Request::Khz(khz) => control.request(cpu, khz)?,
        }
        self.requested_cpu = Some(cpu);
        Ok(())
    }

    /// Writes the request to its place.
    fn ask(&mut self, control: &Control, request: Request) -> Result<(), ThreadError> {
        let target_q10 = targets::of(control, self.cpu()?, request)?;
        if self.tid == own_tid() && !self.place.is_some_and(Place::is_read) {
            self.place = Place::of_this_thread();
        }
        match self.place.filter(|place| place.is_read()) {
            Some(place) => place.ask(target_q10),
            None if target_q10 == targets::NONE => {} // there is no older request
            None => return Err(ThreadError::NotServed(self.tid)),
        }
        Ok(())
    }

    /// Withdraws its request, and restores its mask if that is still ours.
    fn leave(&mut self, control: &Control) -> Result<(), ThreadError> {
        if let Some(cpu) = self.requested_cpu.take() {
            control.restore(cpu)?;
        }
        // In a forked child the slot is the parent's, as the thread is.
        if let Some(place) = self.place.take().filter(|_| self.lives())
            && control.check_open().is_ok()
        {
            place.ask(targets::NONE);
        }
        let Some((before, narrowed)) = self.masks.take() else { return Ok(()) };
        let is_ours = self.lives() && task::get_affinity(self.tid).is_ok_and(|is| is == narrowed);
        if !is_ours {
            return Ok(());
        }
        task::set_affinity(self.tid, &before).map_err(ThreadError::System)
    }
}

impl Threads {
    /// No threads yet; `control` will grant their requests.
    pub(crate) fn under(control: &Control) -> Self {
        let by_scheduler = control.choice().way == Way::Scheduler;
        Threads { entries: Arc::default(), control: control.downgrade(), by_scheduler }
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        locked(&self.entries)
    }

    /// The calling thread leaves when it ends.
    fn leaves_at_end(&self) {
        let entries = Arc::downgrade(&self.entries);
        let control = self.control.clone();
        // A thread that registers while it ends is noticed by `list`.
        let _ = AT_END.try_with(|at_end| {
            let mut at_end = at_end.borrow_mut();
            at_end.retain(|other| other.entries.strong_count() > 0);
            if !at_end.iter().any(|other| other.entries.ptr_eq(&entries)) {
                at_end.push(AtEnd { entries, control });
            }
        });
    }

    /// Registers the calling thread.
    pub fn register(&self, name: &str, role: u32) -> Result<Activity, ThreadError> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(ThreadError::BadName);
        }
        let tid = own_tid();
        let start_ticks = own_start_ticks().map_err(ThreadError::System)?;
        let mut entries = self.entries();
        // Threads that ended without a word.
        entries.retain(|entry| entry.tid != tid || entry.start_ticks == start_ticks);
        if entries.iter().any(|entry| entry.tid == tid) {
            return Err(ThreadError::Twice(tid));
        }
        let doing = Arc::new(AtomicU32::new(0));
        let name = name.to_string();
        let activity = Activity(Arc::clone(&doing));
        // Now, since other threads may make a request for this one before it does so itself.
        let place = if self.by_scheduler { Place::of_this_thread() } else { None };
        let (requested_cpu, masks) = (None, None);
        entries.push(Entry { tid, start_ticks, name, role, doing, requested_cpu, place, masks });
        drop(entries);
        self.leaves_at_end();
        Ok(activity)
    }

    /// Removes a thread, withdraws its request and restores its mask.
    pub fn unregister(&self, control: &Control, tid: u32) -> Result<(), ThreadError> {
        let mut entries = self.entries();
        let index = entries.iter().position(|entry| entry.tid == tid);
        let mut entry = entries.swap_remove(index.ok_or(ThreadError::NoThread(tid))?);
        drop(entries);
        entry.leave(control)
    }

    /// Takes all threads out.
    pub(crate) fn leave_all(&self, control: &Control) {
        for mut entry in std::mem::take(&mut *self.entries()) {
            // As in `list`.
            let _ = entry.leave(control);
        }
    }

    /// Says what a registered thread is doing; [`Activity`] is cheaper.
    pub fn set_doing(&self, tid: u32, doing: u32) -> Result<(), ThreadError> {
        self.with(tid, |entry| {
            entry.doing.store(doing, Relaxed);
            Ok(())
        })
    }

    /// The registered threads that live. The requests of those that ended are withdrawn.
    pub fn list(&self, control: &Control) -> Vec<ThreadInfo> {
        let mut entries = self.entries();
        entries.retain_mut(|entry| {
            let lives = entry.lives();
            if !lives {
                // No one to report to; the control's close restores what could not be.
                let _ = entry.leave(control);
            }
            lives
        });
        let info = |entry: &Entry| {
            let cpu = entry.cpu().ok()?;
            let asks = entry.place.is_some_and(Place::asks);
            Some(ThreadInfo {
                tid: entry.tid,
                name: entry.name.clone(),
                role: entry.role,
                doing: entry.doing.load(Relaxed),
                cpu,
                requested_cpu: if asks { Some(cpu) } else { entry.requested_cpu },
            })
        };
        entries.iter().filter_map(info).collect()
    }

    /// Makes a request for the core that the thread runs on.
    pub fn request(
        &self,
        control: &Control,
        tid: u32,
        request: Request,
    ) -> Result<(), ThreadError> {
        self.with(tid, |entry| match self.by_scheduler {
            true => entry.ask(control, request),
            false => entry.request(control, request),
        })
    }

    /// Moves the thread to a CPU, and keeps it there until it leaves the registry. A request stays
    /// with the core that it was for.
    pub fn migrate(&self, control: &Control, tid: u32, cpu: u32) -> Result<(), ThreadError> {
        let online = control.clocks().topology.online();
        if cpu as usize >= MAX_CPUS || !online.contains(cpu as usize) {
            return Err(ThreadError::NoCpu(cpu));
        }
        self.with(tid, |entry| {
            let now = task::get_affinity(tid).map_err(ThreadError::System)?;
            let narrowed: CpuSet = [cpu as usize].into_iter().collect();
            task::set_affinity(tid, &narrowed).map_err(ThreadError::System)?;
            // A mask that another program has changed since is the one to restore.
            let before =
                entry.masks.filter(|(_, ours)| *ours == now).map_or(now, |(first, _)| first);
            entry.masks = Some((before, narrowed));
            Ok(())
        })
    }

    fn with(
        &self,
        tid: u32,
        act: impl FnOnce(&mut Entry) -> Result<(), ThreadError>,
    ) -> Result<(), ThreadError> {
        let mut entries = self.entries();
        let entry = entries.iter_mut().find(|entry| entry.tid == tid && entry.lives());
        act(entry.ok_or(ThreadError::NoThread(tid))?)
    }
}
