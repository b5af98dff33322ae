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

use libc::{
    c_uint, clockid_t, pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t, pthread_mutex_t,
    pthread_mutexattr_t, timespec,
};

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
compile_error!("the layout of a mutex is glibc's on x86-64");

const PLAIN: c_int = 0;
const ADAPTIVE: c_int = 3;

type OfMutex = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
// Waits are cancellation points: the end of a thread unwinds through them.
type CondWait = unsafe extern "C-unwind" fn(*mut pthread_cond_t, *mut pthread_mutex_t) -> c_int;
type CondTimedWait = unsafe extern "C-unwind" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    *const timespec,
) -> c_int;
type CondClockWait = unsafe extern "C-unwind" fn(
    *mut pthread_cond_t,
    *mut pthread_mutex_t,
    clockid_t,
    *const timespec,
) -> c_int;
type LockUntil = unsafe extern "C" fn(*mut pthread_mutex_t, clockid_t, *const timespec) -> c_int;
type Init = unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int;
type OfBarrier = unsafe extern "C" fn(*mut pthread_barrier_t) -> c_int;
type BarrierInit =
    unsafe extern "C" fn(*mut pthread_barrier_t, *const pthread_barrierattr_t, c_uint) -> c_int;

/// A function of glibc, looked up at its first use.
struct Real {
    name: &'static CStr,
    /// Where glibc has an older function of the same name too.
    version: Option<&'static CStr>,
    at: AtomicPtr<c_void>,
}

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real { name, version: None, at: AtomicPtr::new(core::ptr::null_mut()) }
    }

    const fn versioned(name: &'static CStr, version: &'static CStr) -> Real {
        Real { version: Some(version), ..Real::new(name) }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        match self.at.load(Ordering::Relaxed) {
            known if known.is_null() => self.find_or_abort(),
            known => known,
        }
    }

    #[cold]
    fn find_or_abort(&self) -> *mut c_void {
        let found = self.find();
        if found.is_null() {
            // Without the real function nothing the program expects can be done.
            // SAFETY: ends the process.
            unsafe { libc::abort() };
        }
        self.at.store(found, Ordering::Relaxed);
        found
    }

    /// Null if this glibc has none.
    fn find(&self) -> *mut c_void {
        // SAFETY: a C string; glibc's dlsym takes no pthread mutex through us.
        unsafe {
            match self.version {
                None => libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()),
                Some(version) => {
                    libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr())
                }
            }
        }
    }
}

static LOCK: Real = Real::new(c"pthread_mutex_lock");
static TRYLOCK: Real = Real::new(c"pthread_mutex_trylock");
static LOCK_UNTIL: Real = Real::new(c"pthread_mutex_clocklock");
/// Condition variables have had their present form since glibc 2.3.2.
const CONDITIONS: &CStr = c"GLIBC_2.3.2";
static COND_WAIT: Real = Real::versioned(c"pthread_cond_wait", CONDITIONS);
static COND_TIMEDWAIT: Real = Real::versioned(c"pthread_cond_timedwait", CONDITIONS);
static COND_CLOCKWAIT: Real = Real::new(c"pthread_cond_clockwait");
static UNLOCK: Real = Real::new(c"pthread_mutex_unlock");
static INIT: Real = Real::new(c"pthread_mutex_init");
static BARRIER_INIT: Real = Real::new(c"pthread_barrier_init");
static BARRIER_WAIT: Real = Real::new(c"pthread_barrier_wait");
static BARRIER_DESTROY: Real = Real::new(c"pthread_barrier_destroy");

/// # Safety
/// As pthread_mutex_lock.
#[inline]
pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfMutex = unsafe { transmute(LOCK.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex) }
}

/// # Safety
/// As pthread_mutex_trylock.
#[inline]
pub(crate) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfMutex = unsafe { transmute(TRYLOCK.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex) }
}

/// Whether [`lock_until`] may be called.
pub(crate) fn has_lock_until() -> bool {
    !LOCK_UNTIL.find().is_null()
}

/// pthread_mutex_clocklock by the monotonic clock.
///
/// # Safety
/// As there.
pub(crate) unsafe fn lock_until(mutex: *mut pthread_mutex_t, until: &timespec) -> c_int {
    // SAFETY: the symbol has this type.
    let real: LockUntil = unsafe { transmute(LOCK_UNTIL.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex, libc::CLOCK_MONOTONIC, until) }
}

/// # Safety
/// As pthread_mutex_unlock.
#[inline]
pub(crate) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfMutex = unsafe { transmute(UNLOCK.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex) }
}

/// # Safety
/// As pthread_cond_wait, for the mutex.
pub(crate) unsafe fn cond_wait(cond: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: CondWait = unsafe { transmute(COND_WAIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(cond, mutex) }
}

/// # Safety
/// As pthread_cond_timedwait.
pub(crate) unsafe fn cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the symbol has this type.
    let real: CondTimedWait = unsafe { transmute(COND_TIMEDWAIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(cond, mutex, until) }
}

/// # Safety
/// As pthread_cond_clockwait.
pub(crate) unsafe fn cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the symbol has this type.
    let real: CondClockWait = unsafe { transmute(COND_CLOCKWAIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(cond, mutex, clock, until) }
}

/// # Safety
/// As pthread_mutex_init.
pub(crate) unsafe fn init(mutex: *mut pthread_mutex_t, how: *const pthread_mutexattr_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: Init = unsafe { transmute(INIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(mutex, how) }
}

/// # Safety
/// As pthread_barrier_init.
pub(crate) unsafe fn barrier_init(
    barrier: *mut pthread_barrier_t,
    how: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    // SAFETY: the symbol has this type.
    let real: BarrierInit = unsafe { transmute(BARRIER_INIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(barrier, how, count) }
}

/// # Safety
/// As pthread_barrier_wait.
#[inline]
pub(crate) unsafe fn barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfBarrier = unsafe { transmute(BARRIER_WAIT.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(barrier) }
}

/// # Safety
/// As pthread_barrier_destroy.
pub(crate) unsafe fn barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the symbol has this type.
    let real: OfBarrier = unsafe { transmute(BARRIER_DESTROY.get()) };
    // SAFETY: the caller's promise.
    unsafe { real(barrier) }
}

#[repr(C)]
struct View {
    lock: AtomicU32,
    count: u32,
    owner: AtomicI32,
    nusers: u32,
    kind: AtomicI32,
}

const _: () = assert!(core::mem::offset_of!(View, kind) == 16);

/// Whether it is a mutex whose waiting may be ours.
///
/// # Safety
/// It is a mutex.
#[inline]
pub(crate) unsafe fn is_plain(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: the caller's promise, and the layout above.
    let kind = unsafe { &(*mutex.cast::<View>()).kind }.load(Ordering::Relaxed);
    kind == PLAIN || kind == ADAPTIVE
}

/// The number of the thread that holds it; 0 if none does.
///
/// # Safety
/// It is a mutex.
pub(crate) unsafe fn holder(mutex: *mut pthread_mutex_t) -> i32 {
    // SAFETY: as above.
    unsafe { &(*mutex.cast::<View>()).owner }.load(Ordering::Relaxed)
}

/// Whether it looks free. A look that takes nothing leaves the line with its owner.
///
/// # Safety
/// It is a mutex.
#[inline]
pub(crate) unsafe fn looks_free(mutex: *mut pthread_mutex_t) -> bool {
    // SAFETY: as above.
    unsafe { &(*mutex.cast::<View>()).lock }.load(Ordering::Relaxed) == 0
}
