// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registrations: a request is checked, its thread gets a slot, and the scheduler its number.

use std::collections::HashMap;
use std::io::{self, Error};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};

use hw::task::Lookup;
use report::take_over::GivenSlots;
use turbolane_hint::page::{self, AREA_SLOTS, AREAS, SILENT, Slot};
use turbolane_hint::protocol::{MAGIC, OP_REGISTER, Reply, Request};

use super::super::memory::{Area, NewAreas};
use super::super::slots::{Living, Process, Slots, Thread};
use super::socket::Caller;

/// Areas that are made at a time, for processes to come. When half of them are left the next ones
/// are made.
pub(super) const SPARE_AREAS: usize = 32;

/// Descriptors that areas in use leave for everything else: peers, spare areas, what the scheduler
/// itself has open.
const OTHER_DESCRIPTORS: usize = 256;

/// A thread gets a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The thread, in the daemon's PID namespace.
    pub tid: u32,
    /// Its process, likewise.
    pub tgid: u32,
    /// Number of its slot.
    pub slot: u32,
}

/// Called at each registration before the thread is answered, in the server's thread; also when a
/// thread registers again. An error refuses the thread.
pub type OnRegister = Box<dyn Fn(Registration) -> io::Result<()> + Send>;

/// What a registration needs.
pub(super) struct Desk {
    board_fd: OwnedFd,
    run_id: u32,
    pub(super) slots: Slots,
    /// By number; one that is free is kept until its number is given again.
    pub(super) areas: HashMap<u32, Area>,
    /// No one has had them yet.
    spare: HashMap<u32, Area>,
    new_areas: NewAreas,
    on_register: OnRegister,
}

/// By /proc.
pub(super) struct InProc;

impl Living for InProc {
    fn thread(&self, thread: Thread) -> bool {
        hw::task::lives_since(thread.tid, thread.start_ticks)
    }

    fn process(&self, process: Process) -> bool {
        hw::task::exists_since(process.tgid, process.start_ticks)
    }
}

impl Desk {
    pub(super) fn new(
        board_fd: OwnedFd,
        new_areas: NewAreas,
        on_register: OnRegister,
    ) -> io::Result<Desk> {
        Ok(Desk {
            board_fd,
            run_id: random_id()?,
            slots: Slots::new(room()),
            areas: HashMap::new(),
            spare: HashMap::new(),
            new_areas,
            on_register,
        })
    }

    /// Goes on where another server has stopped, whose areas these are; the living among its
    /// threads are introduced.
    pub(super) fn go_on_from(&mut self, given: &GivenSlots, areas: HashMap<u32, Area>) {
        self.run_id = given.run_id;
        self.slots = Slots::restore(room(), given);
        self.areas = areas;
        self.introduce_all();
    }

    /// What the next server goes on from.
    pub(super) fn given(&self) -> GivenSlots {
        GivenSlots { run_id: self.run_id, processes: self.slots.given() }
    }

    /// See [`HintServer::hand_over`](super::HintServer::hand_over).
    pub(super) fn hand_over(&mut self, on_register: OnRegister) {
        self.on_register = on_register;
        self.introduce_all();
    }

    /// Checks a request and begins to look for its thread.
    pub(super) fn look_up(&self, caller: &Caller, request: Request) -> io::Result<Lookup> {
        if request.abi != page::ABI {
            return Err(Error::from_raw_os_error(libc::EPROTONOSUPPORT));
        }
        if request.op != OP_REGISTER {
            return Err(Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        hw::task::look_up(caller.tgid, request.tid)
    }

    /// Answers a caller whose thread was found, or cannot be served.
    pub(super) fn answer(&mut self, caller: &Caller, found: io::Result<u32>) {
        let result = found.and_then(|tid| self.register(caller, tid));
        let (status, slot) = match &result {
            Ok(slot) => (0, *slot),
            Err(error) => (-error.raw_os_error().unwrap_or(libc::EIO), 0),
        };
        let reply = Reply { magic: MAGIC, status, slot, run_id: self.run_id };
        let area = self.areas.get(&(slot / AREA_SLOTS as u32)).filter(|_| result.is_ok());
        let fds = area.map(|area| [self.board_fd.as_raw_fd(), area.fd().as_raw_fd()]);
        caller.send(reply, fds);
    }

    fn register(&mut self, caller: &Caller, tid: u32) -> io::Result<u32> {
        let &Caller { tgid, uid, .. } = caller;
        let process = Process { tgid, start_ticks: hw::task::start_ticks(tgid)?, uid };
        let thread = Thread { tid, start_ticks: hw::task::start_ticks(tid)? };
        let given = self
            .slots
            .give(process, thread, &InProc)
            .ok_or_else(|| Error::from_raw_os_error(libc::ENOSPC))?;
        if given.is_new_area {
            self.use_spare_area(process, given.slot)?;
        }
        let slot = self.slot(given.slot)?;
        slot.tid.store(0, Release);
        if given.is_new {
            // What the last owner left. The same thread's stays: it distinguishes our masks from
            // others, and how fast the thread is to be.
            slot.narrowed.iter().for_each(|hash| hash.store(0, Relaxed));
            slot.target_q10.store(0, Relaxed);
        }
        slot.want.store(SILENT, Relaxed);
        slot.seq.store(0, Relaxed);
        if !caller.is_there() {
            self.slots.release(process, tid);
            return Err(Error::from_raw_os_error(libc::ESRCH));
        }
        self.introduce(given.slot, process, thread)?;
        Ok(given.slot)
    }

    pub(super) fn use_spare_area(&mut self, process: Process, slot: u32) -> io::Result<()> {
        let area = slot / AREA_SLOTS as u32;
        if !self.spare.contains_key(&area) {
            let made = self.make_spare_areas(Some(area));
            made.inspect_err(|_| self.slots.release_area(process, area))?;
        }
        if let Some(spare) = self.spare.remove(&area) {
            self.areas.insert(area, spare);
        }
        Ok(())
    }

    /// Makes the areas that are given next, and this one.
    fn make_spare_areas(&mut self, wanted: Option<u32>) -> io::Result<()> {
        let next = self.slots.next_areas(SPARE_AREAS).filter(|area| !self.spare.contains_key(area));
        let numbers: Vec<u32> = wanted.into_iter().chain(next).take(SPARE_AREAS).collect();
        if !numbers.is_empty() {
            let made = (self.new_areas)(&numbers)?;
            self.spare.extend(numbers.into_iter().zip(made));
        }
        Ok(())
    }

    /// Between requests: has areas made before someone must wait for one. If that fails, the next
    /// request gets the error.
    pub(super) fn stock_up(&mut self) {
        if self.spare.len() <= SPARE_AREAS / 2 {
            let _ = self.make_spare_areas(None);
        }
    }

    fn slot(&self, slot: u32) -> io::Result<&Slot> {
        let area = self.areas.get(&(slot / AREA_SLOTS as u32));
        let area = area.ok_or_else(|| Error::from_raw_os_error(libc::EIO))?;
        Ok(&area.slot[slot as usize % AREA_SLOTS])
    }

    /// Gives the scheduler the slot's owner, then names it in the slot; takes the slot back if the
    /// scheduler refuses it, or the thread was another one at the end.
    fn introduce(&mut self, slot: u32, process: Process, thread: Thread) -> io::Result<()> {
        let registration = Registration { tid: thread.tid, tgid: process.tgid, slot };
        let mut done = (self.on_register)(registration);
        if done.is_ok() && !InProc.thread(thread) {
            done = Err(Error::from_raw_os_error(libc::ESRCH));
        }
        match done {
            Ok(()) => self.slot(slot)?.tid.store(thread.tid, Release),
            Err(_) => self.slots.release(process, thread.tid),
        }
        done
    }

    fn introduce_all(&mut self) {
        let owners: Vec<_> = self.slots.iter().collect();
        for (slot, process, thread) in owners {
            if InProc.thread(thread) {
                let _ = self.introduce(slot, process, thread); // who cannot be served is not
            } else {
                self.slots.release(process, thread.tid);
            }
        }
    }
}

fn random_id() -> io::Result<u32> {
    let mut bytes = [0; 4];
    // SAFETY: writes at most the given number of bytes to the local array.
    if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != 4 {
        return Err(Error::last_os_error());
    }
    Ok(u32::from_ne_bytes(bytes).max(1))
}

/// Areas for which there are descriptors. Takes as many as this process may have.
fn room() -> usize {
    let limit = hw::descriptors::allow((AREAS + OTHER_DESCRIPTORS) as u64);
    let limit = usize::try_from(limit).unwrap_or(AREAS);
    limit.saturating_sub(OTHER_DESCRIPTORS).clamp(64, AREAS)
}
