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
//! the same with and without a watchdog. Whoever is left restores.
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
//! One writer per setting: callers hold the lock of its unit (`control.rs`) or are alone.

use std::cell::{Cell, UnsafeCell};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering::Acquire, Ordering::Relaxed};
use std::sync::atomic::{Ordering::Release, Ordering::SeqCst, compiler_fence};

use crate::error::{Error, Place};
use crate::notary::Notary;
use crate::raw::{self, Fd};
use crate::value::Value;

/// Naps of 1 ms that a value may take to read back: the kernel applies limits in a worker, which
/// takes its turn among all others of the machine.
const READ_BACK_NAPS: u32 = 200;

/// Rounds of restoring: a minimum may wait for its maximum, both for a governor.
const ROUNDS: u32 = 4;

/// How a setting is read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A sysfs file.
    Text,
    /// A model-specific register of a CPU's device: 8 bytes at its number.
    Msr(u32),
    /// Four bytes of a PCI device's configuration space.
    Pci(u32),
}

/// A setting that may be changed.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// Path below the root, without the leading slash.
    pub path: String,
    /// How it is read and written.
    pub form: Form,
    /// Registers: the bits that are ours; the others are kept as they are at each write.
    pub mask: u64,
    /// A later change by another program stays.
    pub yields: bool,
}

/// A setting's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SettingId(u32);

/// Collects the settings before the journal is made.
#[derive(Debug, Default)]
pub(crate) struct Specs(Vec<Spec>);

impl Specs {
    /// Nothing will ever change.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, spec: Spec) -> SettingId {
        debug_assert!(spec.path.len() < Place::MAX, "{}", spec.path);
        self.0.push(spec);
        SettingId(self.0.len() as u32 - 1)
    }

    pub fn text(&mut self, path: String, yields: bool) -> SettingId {
        self.add(Spec { path, form: Form::Text, mask: u64::MAX, yields })
    }
}

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
    path: [u8; Place::MAX],
    form: Form,
    mask: u64,
    yields: bool,
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
        let own = specs.0.iter().map(Own::new).collect();
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
        let found = slot.open(self.root.0).and_then(|fd| slot.read(fd.0));
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
        let opened = slot.open(self.root.0).map_err(|e| Error::System(e, slot.place()))?;
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
        slot.read(self.fd(id)?).map_err(|e| Error::System(e, slot.place()))
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
        let failed = |e| Error::System(e, slot.place());
        let is_first = slot.shared.order.load(Relaxed) == 0;
        if is_first {
            let original = slot.read(fd).map_err(failed)?;
            self.keep(id, original)?;
            slot.set(Values { previous: original, pending: value });
            slot.shared.order.store(self.changes.fetch_add(1, Relaxed) + 1, Release);
        } else {
            slot.set(Values { previous: slot.values().pending, pending: value });
        }
        // A kill between the two finds the note made; the kernel's entry orders the rest.
        compiler_fence(SeqCst);
        slot.write(fd, value).map_err(|errno| {
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
        if slot.settles(self.fd(id)?, value) {
            return Ok(());
        }
        let _ = self.change(id, before);
        if self.original(id).is_some_and(|original| slot.same(original, before)) {
            slot.shared.order.store(0, Release);
        }
        Err(Error::NotKept(slot.place()))
    }

    /// Writes a setting that goes back by itself with another one.
    pub fn write_unrecorded(&self, id: SettingId, value: Value) -> Result<(), Error> {
        let slot = self.slot(id);
        slot.write(self.fd(id)?, value).map_err(|e| Error::System(e, slot.place()))
    }

    /// The root's descriptor: what the watchdog keeps open.
    pub fn root(&self) -> i32 {
        self.root.0
    }

    /// Where the setting lies, for errors.
    pub fn place(&self, id: SettingId) -> Place {
        self.slot(id).place()
    }

    /// Puts one setting back, if it was changed.
    pub fn put_back(&self, id: SettingId) -> Result<(), Error> {
        let Some(original) = self.original(id) else { return Ok(()) };
        let slot = self.slot(id);
        if slot.is_theirs(self.read(id)?) {
            return Err(Error::Taken(slot.place()));
        }
        self.change(id, original)?;
        slot.settles(self.fd(id)?, original);
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

impl Own {
    fn new(spec: &Spec) -> Self {
        let mut path = [0; Place::MAX];
        let kept = spec.path.len().min(Place::MAX - 1);
        path[..kept].copy_from_slice(&spec.path.as_bytes()[..kept]);
        let Spec { form, mask, yields, .. } = *spec;
        Own { path, form, mask, yields, note: Cell::new(Value::NONE), order: Cell::new(0) }
    }
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

    fn place(&self) -> Place {
        Place::new(self.path().to_str().unwrap_or("?"))
    }

    fn path(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.own.path).unwrap_or_default()
    }

    fn open(&self, root: i32) -> Result<Fd, i32> {
        raw::open_at(root, self.path(), libc::O_RDWR)
    }

    /// Equal as far as it is ours.
    fn same(&self, a: Value, b: Value) -> bool {
        match self.own.form {
            Form::Text => a == b,
            _ => (a.register() ^ b.register()) & self.own.mask == 0,
        }
    }

    fn read(&self, fd: i32) -> Result<Value, i32> {
        let mut bytes = [0; 64];
        match self.own.form {
            Form::Text => {
                let len = raw::read_at(fd, &mut bytes, 0)?;
                Ok(Value::of_text(&bytes[..len]))
            }
            Form::Msr(number) => read_number(fd, &mut bytes[..8], msr_offset(fd, number)),
            Form::Pci(offset) => read_number(fd, &mut bytes[..4], offset.into()),
        }
    }

    fn write(&self, fd: i32, value: Value) -> Result<(), i32> {
        let merged =
            |now: Value| (now.register() & !self.own.mask) | (value.register() & self.own.mask);
        match self.own.form {
            Form::Text => {
                // A line of its own: in a plain file a longer text may have been there.
                let text = value.text();
                let mut line = [b'\n'; 32];
                line[..text.len()].copy_from_slice(text);
                raw::write_at(fd, &line[..=text.len()], 0)
            }
            Form::Msr(number) => {
                let bytes = merged(self.read(fd)?).to_le_bytes();
                raw::write_at(fd, &bytes, msr_offset(fd, number))
            }
            Form::Pci(offset) => {
                let bytes = merged(self.read(fd)?).to_le_bytes();
                raw::write_at(fd, &bytes[..4], offset.into())
            }
        }
    }

    /// Waits until the setting holds this.
    fn settles(&self, fd: i32, value: Value) -> bool {
        let holds = || self.read(fd).is_ok_and(|now| self.same(now, value));
        for _ in 0..READ_BACK_NAPS {
            if holds() {
                return true;
            }
            // A register holds what it holds; sysfs may get there later.
            if self.own.form != Form::Text {
                return false;
            }
            raw::nap();
        }
        holds()
    }

    fn is_theirs(&self, now: Value) -> bool {
        let Values { previous, pending } = self.values();
        let ours = [self.own.note.get(), previous, pending];
        self.own.yields && !ours.iter().any(|value| self.same(now, *value))
    }

    /// Puts it back; `None` if it is not (yet) as it was. In all but the last round a value that
    /// does not read back is not waited for: another setting may prevent it.
    fn restore(&self, root: i32, patient: bool) -> Option<Back> {
        let done = |back| {
            self.shared.order.store(0, Release);
            self.own.order.set(0);
            Some(back)
        };
        let fd = match self.open(root) {
            Ok(fd) => fd,
            Err(libc::ENOENT | libc::ENXIO | libc::ENODEV) => return done(Back::AsFound),
            Err(_) => return None,
        };
        let original = self.own.note.get();
        if self.read(fd.0).is_ok_and(|now| self.is_theirs(now)) {
            return done(Back::Theirs);
        }
        // Written even if it reads right: a change that the kernel has still to apply would come
        // after us.
        self.write(fd.0, original).ok()?;
        let holds = self.read(fd.0).is_ok_and(|now| self.same(now, original))
            || self.settles_within(fd.0, original, patient);
        if holds { done(Back::AsFound) } else { None }
    }

    fn settles_within(&self, fd: i32, value: Value, patient: bool) -> bool {
        if patient {
            return self.settles(fd, value);
        }
        raw::nap();
        self.read(fd).is_ok_and(|now| self.same(now, value))
    }
}

fn read_number(fd: i32, bytes: &mut [u8], offset: u64) -> Result<Value, i32> {
    if raw::read_at(fd, bytes, offset)? != bytes.len() {
        return Err(libc::EIO);
    }
    let mut whole = [0; 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    Ok(Value::of_register(u64::from_le_bytes(whole)))
}

/// Where a register lies in its device, or in a plain file that stands for one.
pub(crate) fn msr_offset(fd: i32, number: u32) -> u64 {
    if raw::is_plain(fd) { plain_offset(number) } else { number.into() }
}

/// A plain file has a place for each register of the ranges in use (0.., C000_0000h..,
/// C001_0000h.., 1FFFh each): a device has eight bytes at each number, where neighbours would
/// overlap.
pub(crate) fn plain_offset(number: u32) -> u64 {
    let range = u64::from(number >> 31) | u64::from(number >> 16 & 1) << 1;
    (u64::from(number & 0x1fff) | range << 13) * 8
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
