// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real functions, and what can be seen of a mutex without them.
//!
//! ```text
//!   pthread_mutex_t of glibc on x86-64 (bits/struct_mutex.h; part of its ABI, since programs hold
//!   static ones)
//!   0 lock   4 count   8 owner   12 nusers   16 kind   20 spins ...
//! ```
//!
//! `kind` is 0 for a plain mutex and 3 for an adaptive one; types, robustness (16), priority
//! inheritance (32) and protection (64), sharing (128) and elision (256, 512) are bits of it.

use core::ffi::{CStr, c_int, c_void};
use core::mem::transmute;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use libc::{pthread_mutex_t, pthread_mutexattr_t};

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
compile_error!("the layout of a mutex is glibc's on x86-64");

const PLAIN: c_int = 0;
const ADAPTIVE: c_int = 3;

type OfMutex = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
type Init = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;

/// A function of glibc, looked up at its first use.
struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicPtr::new(core::ptr::null_mut()) }
    }

    fn get(&self) -> *mut c_void {
        let known = self.at.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a C string; glibc's dlsym takes no pthread mutex through us.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if found.is_null() {
            // Without the real function nothing the program expects can be done.
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }
}

static LOCK: Real = Real::new(c"pthread_mutex_lock");
static TRYLOCK: Real = Real::new(c"pthread_mutex_trylock");
static INIT: Real = Real::new(c"pthread_mutex_init");

/// # Safety
/// As pthread_mutex_lock.
pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfMutex = unsafe { transmute(LOCK.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex) }
}

/// # Safety
/// As pthread_mutex_trylock.
pub(crate) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfMutex = unsafe { transmute(TRYLOCK.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex) }
}

/// # Safety
/// As pthread_mutex_init.
pub(crate) unsafe fn init(mutex: *mut pthread_mutex_t, how: *const pthread_mutexattr_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: Init = unsafe { transmute(INIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex, how) }
}

#[repr(C)]
struct View {
    lock: AtomicU32,
    count: u32,
    owner: i32,
    nusers: u32,
    kind: AtomicI32,
}

const _: () = assert!(core::mem::offset_of!(View, kind) == 16);

/// Whether it is a mutex whose waiting may be ours.
///
/// # Safety
/// It is a mutex.
pub(crate) unsafe fn is_plain(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise, and the layout above.
    let kind = unsafe { &(*mutex.cast::<View>()).kind }.load(Ordering::Relaxed);
    kind == PLAIN || kind == ADAPTIVE
}

/// Whether it looks free. A look that takes nothing leaves the line with its owner.
///
/// # Safety
/// It is a mutex.
pub(crate) unsafe fn looks_free(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: as above.
    unsafe { &(*mutex.cast::<View>()).lock }.load(Ordering::Relaxed) == 0
}
