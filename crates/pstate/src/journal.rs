// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was changed, and how it was before: memory that outlives the program.
//!
//! Problem: if a program sets its cores to the lowest P-state and is then killed, the machine stays
//! slow. No handler runs on SIGKILL, and a file that lists the changes can itself be left over, be
//! stale, or be owned by the wrong user.
//!
//! Idea: the journal has one slot for each setting that may ever change. What was changed, and in
//! which order, is in memory shared by this process and its watchdog (`watchdog.rs`): a few stores
//! for each change. What is to be written back, and where, is not shared: the watchdog has a copy
//! of the paths from when it was split off, and before the first change of a setting it reads what
//! the setting holds, and keeps that ([`Journal::note`]). The program waits for its word. That
//! takes a message and its answer, once for each value that is found; a boost sends none, and costs
//! the same with and without a watchdog. The process that is left restores.
//!
//! ```text
//!   own, in each process          shared
//!   path  form, mask   note     | order  previous    pending
//!   fixed when made    -        | 0      -           -         never changed, or put back
//!                      found    | n      <- pending  written   changed, n-th of all
//! ```
//!
//! Rights: a program may open frequency control as root, and then become another user. That user
//! can overwrite the shared part, and make a change look undone, or undone ones look done. The
//! watchdog, which is still root, writes only values that it has read itself, to where it read
//! them.
//!
//! Restoring goes from the last to the first, since a later change may need an earlier one (the
//! frequency is set under the governor that was set before). Every value is read back; what is
//! not as it was is written again, because the kernel refuses a minimum above the maximum and
//! applies limits later, in a worker.
//!
//! Others: a governor or a turbo switch that another program has changed since (it holds neither
//! what we wrote last nor what we wrote before that) is left unchanged. For frequencies, such a
//! change cannot be distinguished from the kernel's own rounding, so they are always written.
//!
//! Limits: what was found is the *effective* value, where another program's limit may have been
//! mixed in. A CPU that is gone has nothing to restore, the kernel starts anew when it returns.
//!
//! One writer per setting: callers hold the lock of its unit (`requests.rs`) or are alone.

use std::cell::{Cell, UnsafeCell};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::sync::atomic::{Ordering::Release, Ordering::SeqCst, compiler_fence};

use crate::error::{Error, Place};
use crate::notary::Notary;
use crate::raw::{self, Fd};
use crate::setting::{Setting, SettingId, Specs};
use crate::value::Value;

/// Rounds of restoring: a minimum may wait for its maximum, both for a governor.
const ROUNDS: u32 = 4;

/// What is shared of a setting. The watchdog takes nothing from it that it would write or open.
struct Shared {
    /// 0 while as found, else the position of its first change among all.
    order: AtomicU32,
    values: UnsafeCell<Values>,
}

/// What was written.
#[derive(Clone, Copy)]
struct Values {
    previous: Value,
    pending: Value,
}

/// A process's own part of a setting.
struct Own {
    setting: Setting,
    /// What was found before the first change; [`Value::NONE`] before.
    note: Cell<Value>,
    /// The shared order, when restoring began: it may be changed meanwhile.
    order: Cell<u32>,
}

/// A setting.
#[derive(Clone, Copy)]
struct Slot<'a> {
    shared: &'a Shared,
    own: &'a Own,
}

/// How a restore ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Settings that are as they were found.
    pub restored: u32,
    /// Settings that another program has changed since, and that are left unchanged.
    pub left: u32,
    /// Settings that could not be put back.
    pub failed: u32,
}

/// All settings that may change, in memory shared with the watchdog.
pub(crate) struct Journal {
    shared: NonNull<Shared>,
    own: Box<[Own]>,
    /// Descriptors of this process, opened at first use; -1 before.
    fds: Vec<AtomicI32>,
    root: Fd,
    changes: AtomicU32,
    /// Asks the watchdog to note a setting, once there is one.
    notary: OnceLock<Notary>,
}

// SAFETY: values and notes are written under the lock of their unit, orders of a process when it
// restores, alone (see the head); all else is atomic or constant.
unsafe impl Send for Journal {}
// SAFETY: as above.
unsafe impl Sync for Journal {}

impl Journal {
    /// Makes the shared memory; nothing is opened but the root.
    pub fn new(root: &CStr, specs: Specs) -> Result<Self, Error> {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let root = raw::open_at(libc::AT_FDCWD, root, flags).map_err(Error::Open)?;
        let count = specs.0.len();
        let bytes = (count * size_of::<Shared>()).max(1);
        let (read_write, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), bytes, read_write, flags, -1, 0) };
        if map == libc::MAP_FAILED {
            return Err(Error::Open(raw::errno()));
        }
        let shared = NonNull::new(map.cast::<Shared>()).ok_or(Error::Open(libc::ENOMEM))?;
        for index in 0..count {
            let values = Values { previous: Value::NONE, pending: Value::NONE };
            let slot = Shared { order: AtomicU32::new(0), values: UnsafeCell::new(values) };
            // SAFETY: the mapping is page-aligned and has room for `count` slots.
            unsafe { shared.add(index).write(slot) };
        }
        let fds = (0..count).map(|_| AtomicI32::new(-1)).collect();
        let own = specs
            .0
            .iter()
            .map(|spec| Own {
                setting: Setting::new(spec),
                note: Cell::new(Value::NONE),
                order: Cell::new(0),
            })
            .collect();
        let changes = AtomicU32::new(0);
        Ok(Journal { shared, own, fds, root, changes, notary: OnceLock::new() })
    }

    /// From now on the watchdog notes what is changed.
    pub fn noted_by(&self, notary: Notary) {
        _ = self.notary.set(notary);
    }

    fn slot(&self, id: SettingId) -> Slot<'_> {
        let own = &self.own[id.0 as usize];
        // SAFETY: in bounds, as `own` is as long; initialised in `new`, mapped as long as we are.
        let shared = unsafe { self.shared.add(id.0 as usize).as_ref() };
        Slot { shared, own }
    }

    fn ids(&self) -> impl Iterator<Item = SettingId> + use<> {
        (0..self.own.len() as u32).map(SettingId)
    }

    /// In the watchdog: reads what a setting holds, and keeps it. False: there is no such setting,
    /// or it cannot be read. Async-signal-safe.
    pub fn note(&self, number: u32) -> bool {
        if number as usize >= self.own.len() {
            return false;
        }
        let slot = self.slot(SettingId(number));
        let found = slot.own.setting.open(self.root.0).and_then(|fd| slot.own.setting.read(fd.0));
        let kept = found.map(|value| slot.own.note.set(value));
        kept.is_ok()
    }

    /// Keeps what was found before a change, here and in the watchdog, unless both have it already.
    fn keep(&self, id: SettingId, found: Value) -> Result<(), Error> {
        let own = &self.own[id.0 as usize];
        if own.note.get() != found {
            self.notary.get().map_or(Ok(()), |notary| notary.ask(id.0))?;
            own.note.set(found);
        }
        Ok(())
    }

    /// The setting's file, opened once in this process and kept.
    fn fd(&self, id: SettingId) -> Result<i32, Error> {
        let kept = &self.fds[id.0 as usize];
        let fd = kept.load(Acquire);
        if fd >= 0 {
            return Ok(fd);
        }
        let slot = self.slot(id);
        let opened = slot
            .own
            .setting
            .open(self.root.0)
            .map_err(|e| Error::System(e, slot.own.setting.place()))?;
        match kept.compare_exchange(-1, opened.0, SeqCst, Acquire) {
            Ok(_) => {
                let fd = opened.0;
                std::mem::forget(opened);
                Ok(fd)
            }
            // Another thread was faster; ours closes itself.
            Err(theirs) => Ok(theirs),
        }
    }

    /// What the setting holds now.
    pub fn read(&self, id: SettingId) -> Result<Value, Error> {
        let slot = self.slot(id);
        slot.own.setting.read(self.fd(id)?).map_err(|e| Error::System(e, slot.own.setting.place()))
    }

    /// What was written last, [`Value::NONE`] if nothing was.
    pub fn pending(&self, id: SettingId) -> Value {
        let slot = self.slot(id);
        if slot.shared.order.load(Acquire) == 0 { Value::NONE } else { slot.values().pending }
    }

    /// What was found before the first change.
    pub fn original(&self, id: SettingId) -> Option<Value> {
        let slot = self.slot(id);
        (slot.shared.order.load(Acquire) != 0).then(|| slot.own.note.get())
    }

    /// Changes a setting; the first time, what it held is noted before.
    pub fn change(&self, id: SettingId, value: Value) -> Result<(), Error> {
        let (slot, fd) = (self.slot(id), self.fd(id)?);
        let failed = |e| Error::System(e, slot.own.setting.place());
        let is_first = slot.shared.order.load(Relaxed) == 0;
        if is_first {
            let original = slot.own.setting.read(fd).map_err(failed)?;
            self.keep(id, original)?;
            slot.set(Values { previous: original, pending: value });
            slot.shared.order.store(self.changes.fetch_add(1, Relaxed) + 1, Release);
        } else {
            slot.set(Values { previous: slot.values().pending, pending: value });
        }
        // A kill between the two finds the note made; the kernel's entry orders the rest.
        compiler_fence(SeqCst);
        slot.own.setting.write(fd, value).map_err(|errno| {
            // Nothing has changed, so nothing is to be restored that was not before.
            let values = slot.values();
            slot.set(Values { pending: values.previous, ..values });
            if is_first {
                slot.shared.order.store(0, Release);
            }
            failed(errno)
        })
    }

    /// Changes a setting and makes sure that it took; else it is put back.
    pub fn change_surely(&self, id: SettingId, value: Value) -> Result<(), Error> {
        let slot = self.slot(id);
        let before = self.read(id)?;
        self.change(id, value)?;
        if slot.own.setting.settles(self.fd(id)?, value) {
            return Ok(());
        }
        let _ = self.change(id, before);
        if self.original(id).is_some_and(|original| slot.own.setting.same(original, before)) {
            slot.shared.order.store(0, Release);
        }
        Err(Error::NotKept(slot.own.setting.place()))
    }

    /// Writes a setting that goes back by itself with another one.
    pub fn write_unrecorded(&self, id: SettingId, value: Value) -> Result<(), Error> {
        let slot = self.slot(id);
        slot.own
            .setting
            .write(self.fd(id)?, value)
            .map_err(|e| Error::System(e, slot.own.setting.place()))
    }

    /// The root's descriptor: what the watchdog keeps open.
    pub fn root(&self) -> i32 {
        self.root.0
    }

    /// Where the setting lies, for errors.
    pub fn place(&self, id: SettingId) -> Place {
        self.slot(id).own.setting.place()
    }

    /// Puts one setting back, if it was changed.
    pub fn put_back(&self, id: SettingId) -> Result<(), Error> {
        let Some(original) = self.original(id) else { return Ok(()) };
        let slot = self.slot(id);
        if slot.is_theirs(self.read(id)?) {
            return Err(Error::Taken(slot.own.setting.place()));
        }
        self.change(id, original)?;
        slot.own.setting.settles(self.fd(id)?, original);
        slot.shared.order.store(0, Release);
        Ok(())
    }

    /// Puts everything back, from the last change to the first. Async-signal-safe: this is what the
    /// watchdog runs, with nothing but the root's descriptor.
    pub fn restore_all(&self) -> Restored {
        let mut outcome = Restored::default();
        for id in self.ids() {
            let slot = self.slot(id);
            let is_noted = slot.own.note.get() != Value::NONE;
            let order = slot.shared.order.load(Acquire);
            slot.own.order.set(if is_noted { order } else { 0 });
        }
        for round in 0..ROUNDS {
            outcome.failed = 0;
            let mut above = u32::MAX;
            while let Some((id, order)) = self.latest_below(above) {
                above = order;
                match self.slot(id).restore(self.root.0, round + 1 == ROUNDS) {
                    Some(Back::AsFound) => outcome.restored += 1,
                    Some(Back::Theirs) => outcome.left += 1,
                    None => outcome.failed += 1,
                }
            }
            if outcome.failed == 0 {
                break;
            }
        }
        outcome
    }

    /// The changed setting with the greatest order below this.
    fn latest_below(&self, above: u32) -> Option<(SettingId, u32)> {
        let orders = self.ids().map(|id| (id, self.own[id.0 as usize].order.get()));
        orders.filter(|&(_, order)| order != 0 && order < above).max_by_key(|&(_, order)| order)
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        for fd in &self.fds {
            let fd = fd.load(Relaxed);
            if fd >= 0 {
                drop(Fd(fd));
            }
        }
        let bytes = (self.own.len() * size_of::<Shared>()).max(1);
        // SAFETY: our mapping; slots have no destructor, and no reference outlives us.
        unsafe { libc::munmap(self.shared.as_ptr().cast(), bytes) };
    }
}

/// A setting that needs no more restoring.
enum Back {
    AsFound,
    Theirs,
}

impl Slot<'_> {
    fn values(&self) -> Values {
        // SAFETY: read by the holder of the unit's lock, or after the owner's end.
        unsafe { *self.shared.values.get() }
    }

    fn set(&self, values: Values) {
        // SAFETY: only the holder of the unit's lock comes here.
        unsafe { *self.shared.values.get() = values };
    }

    fn is_theirs(&self, now: Value) -> bool {
        let setting = &self.own.setting;
        let Values { previous, pending } = self.values();
        let ours = [self.own.note.get(), previous, pending];
        setting.yields && !ours.iter().any(|value| setting.same(now, *value))
    }

    /// Puts it back; `None` if it is not (yet) as it was. In all but the last round a value that
    /// does not read back is not waited for: another setting may prevent it.
    fn restore(&self, root: i32, patient: bool) -> Option<Back> {
        let setting = &self.own.setting;
        let done = |back| {
            self.shared.order.store(0, Release);
            self.own.order.set(0);
            Some(back)
        };
        let fd = match setting.open(root) {
            Ok(fd) => fd,
            Err(libc::ENOENT | libc::ENXIO | libc::ENODEV) => return done(Back::AsFound),
            Err(_) => return None,
        };
        let original = self.own.note.get();
        if setting.read(fd.0).is_ok_and(|now| self.is_theirs(now)) {
            return done(Back::Theirs);
        }
        // Written even if it reads right: a change that the kernel has still to apply would come
        // after us.
        setting.write(fd.0, original).ok()?;
        let holds = setting.read(fd.0).is_ok_and(|now| setting.same(now, original))
            || setting.settles_within(fd.0, original, patient);
        if holds { done(Back::AsFound) } else { None }
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
