// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is loaded: the libraries that marks are about, and the callers of their functions.
//!
//! All of it happens in dl_iterate_phdr(3), under the loader's lock, so that one thread at a time
//! does it, nothing is unloaded meanwhile, and a thread that waits for us waits for the loader
//! anyway. The loader counts what it has loaded and unloaded: if nothing changed, nothing is done.
//!
//! An object is in the loader's list before its entries are filled, and before its table may be
//! read-only. So we wait for loads that other threads have begun, and examine what was there
//! before: nothing but calls changes these entries then.

use core::cell::{Cell, UnsafeCell};
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use preloaded::references::{self, Reference};

use crate::config::{MARKS_MAX, Mark, Rule};
use crate::{slots, write};

/// Copies of a library that may be loaded at a time (dlmopen(3), other versions).
const COPIES: usize = 4;
/// Objects that are not examined twice.
const DONE_MAX: usize = 1024;
/// A path's bytes at most.
const PATH_BYTES: usize = 4096;

/// The program, as a file.
const PROGRAM: &CStr = c"/proc/self/exe";

/// Device and inode.
type Identity = (libc::dev_t, libc::ino_t);

/// A mark, and what was found for it.
struct Marked {
    mark: Mark<'static>,
    /// If it names a path.
    identity: Option<Identity>,
    /// From the first address of a copy of its library, and to its end.
    copies: [(AtomicUsize, AtomicUsize); COPIES],
    callers: AtomicU32,
}

/// Objects that were loaded, and unloaded, ever.
type Counts = (u64, u64);

/// Of the last walk. Under the loader's lock.
struct Walk {
    counts: Counts,
    /// Dynamic sections of objects that were examined.
    done: [usize; DONE_MAX],
}

/// Walks that may find that another object was loaded meanwhile; then the next call is waited for.
const TRIES: usize = 4;

struct Shared<T>(UnsafeCell<T>);

// SAFETY: MARKED is written once, before IS_READY says so; WALK is used under the loader's lock.
unsafe impl<T> Sync for Shared<T> {}

static MARKED: Shared<[Option<Marked>; MARKS_MAX]> =
    Shared(UnsafeCell::new([const { None }; MARKS_MAX]));
static IS_READY: AtomicBool = AtomicBool::new(false);
static WALK: Shared<Walk> = Shared(UnsafeCell::new(Walk { counts: (0, 0), done: [0; DONE_MAX] }));

/// The marks in their order, with their numbers.
fn marked() -> impl Iterator<Item = (usize, &'static Marked)> {
    // SAFETY: nobody writes it any more.
    let all = IS_READY.load(Ordering::Acquire).then(|| unsafe { &*MARKED.0.get() });
    all.into_iter().flatten().flatten().enumerate()
}

/// Takes the marks up. Once, before there are threads.
pub(crate) fn prepare(marks: [Option<Mark<'static>>; MARKS_MAX]) {
    // SAFETY: nobody reads it before it is ready.
    let places = unsafe { &mut *MARKED.0.get() };
    for (place, mark) in places.iter_mut().zip(marks.into_iter().flatten()) {
        let copies = [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; COPIES];
        let identity = crate::has(mark.file, b'/').then(|| identity_of(mark.file));
        *place = Some(Marked { mark, identity, copies, callers: AtomicU32::new(0) });
    }
    IS_READY.store(true, Ordering::Release);
}

/// The marks, and how many of their callers were found.
pub(crate) fn found() -> impl Iterator<Item = (Mark<'static>, u32)> {
    marked().map(|(_, marked)| (marked.mark, marked.callers.load(Ordering::Relaxed)))
}

/// A caller of a mark was found.
pub(crate) fn count(mark: usize) {
    if let Some((_, marked)) = marked().nth(mark) {
        marked.callers.fetch_add(1, Ordering::Relaxed);
    }
}

/// The rule of a mark, if this address is in its library.
pub(crate) fn rule_at(mark: usize, address: usize) -> Option<Rule> {
    let (_, marked) = marked().nth(mark)?;
    marked.has(address).then_some(marked.mark.rule)
}

impl Marked {
    fn has(&self, address: usize) -> bool {
        self.copies.iter().any(|(from, to)| {
            (from.load(Ordering::Acquire)..to.load(Ordering::Acquire)).contains(&address)
        })
    }

    /// Whether the mark is about this object.
    fn is_about(&self, object: &Object) -> bool {
        match self.identity {
            Some(identity) => identity != NO_FILE && object.identity() == identity,
            None => object.has_name(self.mark.file),
        }
    }
}

const NO_FILE: Identity = (0, 0);

fn identity_of(path: &[u8]) -> Identity {
    let mut text = [0; PATH_BYTES];
    // the last byte stays 0
    match text.get_mut(..path.len()).filter(|_| path.len() < PATH_BYTES) {
        Some(place) => place.copy_from_slice(path),
        None => return NO_FILE,
    }
    // SAFETY: terminated.
    unsafe { stat(text.as_ptr().cast()) }
}

/// # Safety
/// It is a C string.
unsafe fn stat(path: *const c_char) -> Identity {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the caller's promise; written if 0 is returned.
    unsafe {
        match libc::stat(path, stat.as_mut_ptr()) {
            0 => (stat.assume_init_ref().st_dev, stat.assume_init_ref().st_ino),
            _ => NO_FILE,
        }
    }
}

/// A loaded object.
struct Object<'a> {
    base: usize,
    /// As the loader has it: "" for the program.
    name: &'a CStr,
    dynamic: *const (),
    first: usize,
    end: usize,
    /// Its file, if a mark has asked for it. (`OnceCell` can panic: 300 KB of text.)
    identity: Cell<Option<Identity>>,
}

impl<'a> Object<'a> {
    /// # Safety
    /// As dl_iterate_phdr(3) gives it.
    unsafe fn of(info: &'a libc::dl_phdr_info) -> Object<'a> {
        let base = info.dlpi_addr as usize;
        let name = match info.dlpi_name.is_null() {
            true => c"",
            // SAFETY: the caller's promise.
            false => unsafe { CStr::from_ptr(info.dlpi_name) },
        };
        let (dynamic, first, identity) = (core::ptr::null(), usize::MAX, Cell::new(None));
        let mut object = Object { base, name, dynamic, first, end: 0, identity };
        for i in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: the caller's promise.
            let part = unsafe { &*info.dlpi_phdr.add(i) };
            let from = base + part.p_vaddr as usize;
            match part.p_type {
                libc::PT_DYNAMIC => object.dynamic = core::ptr::with_exposed_provenance(from),
                libc::PT_LOAD => {
                    object.first = object.first.min(from);
                    object.end = object.end.max(from + part.p_memsz as usize);
                }
                _ => {}
            }
        }
        object
    }

    fn identity(&self) -> Identity {
        if let Some(known) = self.identity.get() {
            return known;
        }
        let path = if self.name.is_empty() { PROGRAM } else { self.name };
        // SAFETY: a C string.
        let identity = unsafe { stat(path.as_ptr()) };
        self.identity.set(Some(identity));
        identity
    }

    fn has_name(&self, file: &[u8]) -> bool {
        let last = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next() == Some(file);
        if !self.name.is_empty() {
            return last(self.name.to_bytes());
        }
        let mut path = [0u8; PATH_BYTES];
        // SAFETY: writes the buffer.
        let length =
            unsafe { libc::readlink(PROGRAM.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
        path.get(..usize::try_from(length).unwrap_or(0)).is_some_and(last)
    }

    fn contains(&self, address: usize) -> bool {
        (self.first..self.end).contains(&address)
    }
}

/// Examines what was loaded since the last time.
pub(crate) fn examine() {
    if !IS_READY.load(Ordering::Acquire) {
        return;
    }
    let mut loaded: Option<Counts> = None;
    for _ in 0..TRIES {
        // SAFETY: the callback does what it must, with what it is given.
        let found = unsafe { libc::dl_iterate_phdr(Some(once), (&raw mut loaded).cast()) };
        if found == DONE {
            return;
        }
        wait_for_loads();
    }
}

/// Waits until loads and unloads that have begun in other threads are complete: dladdr(3) takes the
/// lock that these hold, and unlike dlsym(3) it leaves dlerror(3) alone.
fn wait_for_loads() {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: writes `info`.
    unsafe { libc::dladdr((&raw const IS_READY).cast(), info.as_mut_ptr()) };
}

/// Of [`once`]: everything is examined.
const DONE: c_int = 1;
/// Of [`once`]: what is loaded now is noted, and may be incomplete.
const AGAIN: c_int = 2;

/// The loader's lock is held from here to the end, however often it is taken inside.
unsafe extern "C" fn once(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    loaded: *mut c_void,
) -> c_int {
    // SAFETY: the loader's data, what `examine` gave, and the walk's under the lock.
    unsafe {
        let counts = ((*info).dlpi_adds, (*info).dlpi_subs);
        let walk = WALK.0.get();
        if (*walk).counts == counts {
            return DONE;
        }
        if (*loaded.cast::<Option<Counts>>()).replace(counts) != Some(counts) {
            return AGAIN;
        }
        if (*walk).counts.1 != counts.1 {
            (*walk).done = [0; DONE_MAX];
        }
        (*walk).counts = counts;
        let mut copies = [[(0, 0); COPIES]; MARKS_MAX];
        libc::dl_iterate_phdr(Some(note_copies), (&raw mut copies).cast());
        for ((_, marked), copies) in marked().zip(copies) {
            for ((from, to), (first, end)) in marked.copies.iter().zip(copies) {
                from.store(first, Ordering::Release);
                to.store(end, Ordering::Release);
            }
        }
        libc::dl_iterate_phdr(Some(examine_one), null_mut());
    }
    DONE
}

/// Notes which marks are about an object.
unsafe extern "C" fn note_copies(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the loader's data, and what `once` gave.
    let (object, copies) =
        unsafe { (Object::of(&*info), &mut *data.cast::<[[(usize, usize); COPIES]; MARKS_MAX]>()) };
    for ((_, marked), copies) in marked().zip(copies) {
        if let Some(free) = copies.iter_mut().find(|(_, end)| *end == 0)
            && marked.is_about(&object)
        {
            *free = (object.first, object.end);
        }
    }
    0
}

/// Replaces an object's entries.
unsafe extern "C" fn examine_one(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    _data: *mut c_void,
) -> c_int {
    // SAFETY: as above.
    let (object, walk) = unsafe { (Object::of(&*info), &mut *WALK.0.get()) };
    let place = object.dynamic.addr();
    if walk.done.contains(&place) || object.contains((&raw const IS_READY).addr()) {
        return 0; // known, or ourselves: what the library calls is no program's call
    }
    // SAFETY: loaded, and it stays under the lock.
    unsafe {
        references::each(object.dynamic, object.base, |reference| {
            let name = reference.name.to_bytes();
            for (number, marked) in marked().filter(|(_, marked)| marked.mark.function == name) {
                replace(&object, &reference, number, marked);
            }
        });
    }
    if let Some(free) = walk.done.iter_mut().find(|done| **done == 0) {
        *free = place;
    }
    0
}

/// Replaces an entry that leads, or may lead, to a marked function.
fn replace(object: &Object, reference: &Reference, number: usize, marked: &Marked) {
    let value = reference.entry.load(Ordering::Relaxed);
    if slots::number(value).is_some() {
        return;
    }
    let is_looked_up = reference.is_lazy && object.contains(value) && reference.own != Some(value);
    if is_looked_up {
        if let Some(stub) = slots::for_entry(reference.entry, value, number) {
            write::entry(reference.entry, stub);
        }
    } else if marked.has(value)
        && let Some(stub) = slots::for_function(value, number, marked.mark.rule)
        && write::entry(reference.entry, stub)
    {
        marked.callers.fetch_add(1, Ordering::Relaxed);
    }
}
