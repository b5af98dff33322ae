// SPDX-License-Identifier: MIT OR Apache-2.0
//! The function that a caller would have reached without us.
//!
//! Problem: a process may have loaded OpenSSL more than once: 1.1 and 3, or a copy that a plugin
//! brought along. A context of one must never get to another's functions.
//!
//! Idea: do as the dynamic linker does. The caller's return address leads to its object, whose
//! tables say which version it requests ([`wanted`]). The first library after us that has the
//! symbol in that version is the one; if none of the global ones has it, the first among the
//! object's own dependencies.
//!
//! What was found is kept for that return address, if the object there stays for good: the program
//! with its dependencies, and what was linked with `-z nodelete`, as OpenSSL's libraries are. For a
//! plugin, whose place another may take, it is looked up at each call (about 1 us). A library that
//! was found is never unloaded.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use preloaded::wanted;

/// Callers that are kept; others are looked up at each call.
const CALLERS: usize = 64;

/// One exported function of OpenSSL, and who reached which one.
pub(crate) struct Real {
    name: &'static CStr,
    callers: [AtomicUsize; CALLERS],
    found: [AtomicPtr<c_void>; CALLERS],
}

unsafe extern "C" {
    /// As dladdr(3), with the object's link map.
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

const RTLD_DL_LINKMAP: c_int = 2;

/// The public head of `struct link_map` (link.h).
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const (),
    next: *const LinkMap,
    previous: *const LinkMap,
}

impl Real {
    pub(crate) const fn new(name: &'static CStr) -> Real {
        Real {
            name,
            callers: [const { AtomicUsize::new(0) }; CALLERS],
            found: [const { AtomicPtr::new(null_mut()) }; CALLERS],
        }
    }

    /// The name that it is found by.
    pub(crate) fn name(&self) -> &'static CStr {
        self.name
    }

    /// What the code at this return address would have reached; null if nothing.
    #[inline]
    pub(crate) fn of(&self, caller: usize) -> *mut c_void {
        let first = (caller >> 2) % CALLERS;
        if self.callers[first].load(Ordering::Acquire) == caller {
            return self.found[first].load(Ordering::Relaxed);
        }
        self.look(caller, first)
    }

    #[cold]
    fn look(&self, caller: usize, first: usize) -> *mut c_void {
        for place in (0..CALLERS).map(|i| (first + i) % CALLERS) {
            match self.callers[place].load(Ordering::Acquire) {
                0 => break,
                known if known == caller => return self.found[place].load(Ordering::Relaxed),
                _ => {}
            }
        }
        let object = object(caller);
        let found = resolve(self.name, object);
        if !found.is_null() && stays(object) {
            self.keep(caller, first, found);
        }
        found
    }

    /// Takes the first place whose function is free, then says whose it is: who reads the caller
    /// reads the function.
    fn keep(&self, caller: usize, first: usize, found: *mut c_void) {
        for place in (0..CALLERS).map(|i| (first + i) % CALLERS) {
            let free = &self.found[place];
            let taken =
                free.compare_exchange(null_mut(), found, Ordering::Relaxed, Ordering::Relaxed);
            if taken.is_ok() {
                self.callers[place].store(caller, Ordering::Release);
                return;
            }
        }
    }
}

/// Objects of which it is noted that the program started with them; for callers in others every
/// call is looked up.
const OBJECTS: usize = 512;

/// The objects that the program started with, which are never unloaded; null where there are fewer.
static STARTED_WITH: [AtomicPtr<LinkMap>; OBJECTS] =
    [const { AtomicPtr::new(null_mut()) }; OBJECTS];

/// Notes what is loaded now. Called once, when this library is loaded.
pub(crate) fn prepare() {
    let mut map = object(prepare as *const () as usize);
    // SAFETY: the dynamic linker's list; it does not change while a library is initialised.
    unsafe {
        while let Some(previous) = map.as_ref().map(|map| map.previous).filter(|map| !map.is_null())
        {
            map = previous;
        }
        for place in &STARTED_WITH {
            let Some(object) = map.as_ref() else { break };
            place.store(map.cast_mut(), Ordering::Relaxed);
            map = object.next;
        }
    }
}

/// Whether the object is never unloaded.
fn stays(object: *const LinkMap) -> bool {
    // SAFETY: null, or a loaded object whose code is calling.
    let Some(map) = (unsafe { object.as_ref() }) else { return false };
    let started =
        STARTED_WITH.iter().any(|place| place.load(Ordering::Relaxed).cast_const() == object);
    // SAFETY: as above.
    started || unsafe { wanted::is_pinned(map.dynamic) }
}

fn resolve(name: &CStr, object: *const LinkMap) -> *mut c_void {
    // SAFETY: null, or a loaded object whose code is calling.
    let version =
        unsafe { object.as_ref().and_then(|map| wanted::version(map.dynamic, map.base, name)) };
    // SAFETY: C strings and one of dlsym's own handles.
    let mut found = unsafe { symbol(libc::RTLD_NEXT, name, version) };
    if found.is_null()
        && let Some(object) = name_of(object).filter(|object| !object.is_empty())
    {
        // SAFETY: loads nothing. The object is loaded, so the handle is its own.
        unsafe {
            let handle = libc::dlopen(object.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
            if !handle.is_null() {
                found = symbol(handle, name, version);
                pin(found);
                libc::dlclose(handle);
            }
        }
    }
    // Ours again, if an object was linked against this library.
    if self::object(found.addr()) == self::object(resolve as *const () as usize) {
        return null_mut();
    }
    pin(found);
    found
}

/// # Safety
/// As dlsym(3).
unsafe fn symbol(handle: *mut c_void, name: &CStr, version: Option<&CStr>) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe {
        match version {
            Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(handle, name.as_ptr()),
        }
    }
}

/// The loaded object with this address; null if there is none.
fn object(address: usize) -> *const LinkMap {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    let mut map: *mut c_void = null_mut();
    let address = core::ptr::with_exposed_provenance(address);
    // SAFETY: writes both.
    match unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut map, RTLD_DL_LINKMAP) } {
        0 => core::ptr::null(),
        _ => map.cast(),
    }
}

/// Its name as the dynamic linker has it: "" for the program.
fn name_of(object: *const LinkMap) -> Option<&'static CStr> {
    // SAFETY: null, or the map of an object that is loaded: its code is calling, or was just found
    // for a caller.
    unsafe {
        let name = object.as_ref()?.name;
        (!name.is_null()).then(|| CStr::from_ptr(name))
    }
}

/// Keeps the object with this function loaded.
fn pin(function: *mut c_void) {
    if let Some(object) = name_of(object(function.addr())).filter(|object| !object.is_empty()) {
        // SAFETY: one more reference to a loaded object, never given back.
        unsafe { libc::dlopen(object.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    }
}
