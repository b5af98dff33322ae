// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI of sessions: their handles, and how failures are reported. What a session does is in
//! `capi_frequency` and `capi_threads`. Comments are the header's, as in `capi`.
//!
//! A handle points into a fixed table, never to memory that is freed: a handle that was closed
//! twice, or never opened, is refused instead of being followed. A closed place in the table is
//! used again as late as possible, and what was there is freed only then.
//!
//! No panic leaves these functions: it would end the program. What fails has its full text in a
//! thread-local message, since a number cannot name the nearest frequency.
#![allow(non_camel_case_types)]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Release};

use pstate::{Options, Way};
use turbolane_hint::inside::Unnoticed;

use crate::monitor::MonitorError;
use crate::session::Session;
use crate::threads::ThreadError;

/// tl_open(): use the first method that works.
pub const TL_WAY_AUTO: c_int = -1;
/// This user cannot set anything on this machine.
pub const TL_WAY_NONE: c_int = 0;
/// cpufreq's governor userspace.
pub const TL_WAY_SETSPEED: c_int = 1;
/// cpufreq's limits; the governor is unchanged.
pub const TL_WAY_LIMITS: c_int = 2;
/// The CPU's registers, through /dev/cpu/N/msr or msr-safe.
pub const TL_WAY_MSR: c_int = 3;
/// The scheduler of turbolane run passes threads' requests to the governor;
/// tl_boost() and the other functions for CPUs are refused.
pub const TL_WAY_SCHEDULER: c_int = 5;

/// The calling thread, instead of a thread's number.
pub const TL_SELF: c_uint = 0;
/// Maximum number of sessions of a process.
pub const TL_SESSIONS_MAX: c_uint = 32;
/// Bytes of a thread's name, including the terminating zero.
pub const TL_NAME_SIZE: usize = 64;

const _: () = {
    assert!(TL_NAME_SIZE == crate::threads::NAME_MAX + 1);
    assert!(TL_WAY_NONE == Way::None as c_int && TL_WAY_SETSPEED == Way::Setspeed as c_int);
    assert!(TL_WAY_LIMITS == Way::Limits as c_int && TL_WAY_MSR == Way::Msr as c_int);
    assert!(TL_WAY_SCHEDULER == Way::Scheduler as c_int);
};

/// A session; see tl_open().
pub struct tl_session {
    /// 0 while closed, else a number that no other session of this process has had.
    number: AtomicU64,
    session: AtomicPtr<Session>,
}

/// What a CPU can be set to, kHz.
#[repr(C)]
pub struct tl_speeds {
    /// The slowest P-state.
    pub slow_khz: c_uint,
    /// The fastest without turbo.
    pub base_khz: c_uint,
    /// The fastest.
    pub turbo_khz: c_uint,
}

/// A CPU's place in the topology, and the CPUs that share its clock.
#[repr(C)]
pub struct tl_cpu {
    /// Package, as Linux numbers it.
    pub package: c_uint,
    /// Core, numbered from 0 over all packages.
    pub core: c_uint,
    /// Online CPUs of the core.
    pub siblings: c_uint,
    /// Frequency domain: its lowest CPU.
    pub domain: c_uint,
    /// Online CPUs of the domain.
    pub domain_cpus: c_uint,
}

/// A registered thread.
#[repr(C)]
pub struct tl_thread {
    /// The kernel's number.
    pub tid: c_uint,
    /// As it was registered.
    pub role: c_uint,
    /// The last number that it stated; 0 if none yet.
    pub doing: c_uint,
    /// The CPU it runs on, or ran on last.
    pub cpu: c_uint,
    /// Its name.
    pub name: [c_char; TL_NAME_SIZE],
}

/// A region over all threads.
#[repr(C)]
pub struct tl_region_stats {
    /// Number of times that it was executed.
    pub count: c_ulonglong,
    /// Total time in it.
    pub sum_ns: c_ulonglong,
    /// The shortest, 0 if there was none.
    pub min_ns: c_ulonglong,
    /// The longest.
    pub max_ns: c_ulonglong,
    /// Core cycles in it; 0 if this machine does not let programs count them.
    pub cycles: c_ulonglong,
}

/// The table of handles.
static SESSIONS: [tl_session; TL_SESSIONS_MAX as usize] =
    [const { tl_session { number: AtomicU64::new(0), session: AtomicPtr::new(null_mut()) } };
        TL_SESSIONS_MAX as usize];

/// Opening and closing; the next place to look at, and the next number.
static TABLE: Mutex<(usize, u64)> = Mutex::new((0, 1));

thread_local! {
    /// The text of the calling thread's last failure.
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A failure: its errno, positive, and its text.
pub(crate) struct Failure(i32, String);

pub(crate) fn failure(errno: i32, text: impl Display) -> Failure {
    Failure(errno, text.to_string())
}

impl From<pstate::Error> for Failure {
    fn from(error: pstate::Error) -> Self {
        failure(error.errno(), error)
    }
}

impl From<ThreadError> for Failure {
    fn from(error: ThreadError) -> Self {
        failure(error.errno(), error)
    }
}

impl From<MonitorError> for Failure {
    fn from(error: MonitorError) -> Self {
        let errno = match error {
            MonitorError::TooMany => libc::ENOSPC,
            MonitorError::NoRegion(_) => libc::ENOENT,
            MonitorError::NotBegun => libc::EINVAL,
        };
        failure(errno, error)
    }
}

/// Runs a function's body: no panic gets out, errno is kept, the message is set.
pub(crate) fn guarded(body: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    let _unnoticed = Unnoticed::new();
    let done = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(failure(libc::ENOTRECOVERABLE, "a defect of libturbolane")));
    done.unwrap_or_else(|Failure(errno, text)| {
        let _ = MESSAGE.try_with(|message| message.replace(text));
        -errno
    })
}

/// The place that a handle points to; it may be any pointer.
#[inline]
fn place_of(handle: *const tl_session) -> Option<&'static tl_session> {
    let offset = handle.addr().wrapping_sub(SESSIONS.as_ptr().addr());
    let index = offset / size_of::<tl_session>();
    SESSIONS.get(index).filter(|place| std::ptr::eq(*place, handle))
}

/// The session of a handle.
pub(crate) fn session<'a>(handle: *const tl_session) -> Result<&'a Session, Failure> {
    let closed = || failure(libc::EBADF, "no open session: it was closed, or never opened");
    let place = place_of(handle).ok_or_else(closed)?;
    if place.number.load(Acquire) == 0 {
        return Err(closed());
    }
    // SAFETY: an open place has a session, which is freed only when the place is used again.
    unsafe { place.session.load(Acquire).as_ref() }.ok_or_else(closed)
}

/// The text at `text`, which may be NULL.
///
/// # Safety
/// It is NULL or a string.
pub(crate) unsafe fn text_at<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(failure(libc::EFAULT, "a text is NULL"));
    }
    // SAFETY: by contract a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| failure(libc::EILSEQ, "a text is not UTF-8"))
}

/// Copies a text with its zero, cut off to `size` bytes; its whole length.
///
/// # Safety
/// `buffer` has room for `size` bytes, or `size` is 0.
unsafe fn copy_text(text: &str, buffer: *mut c_char, size: c_uint) -> c_int {
    let len = text.len().min((size as usize).saturating_sub(1));
    if size > 0 && !buffer.is_null() {
        // SAFETY: `len` + 1 bytes are within the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, len);
            buffer.add(len).write(0);
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// Writes to a caller's structure.
///
/// # Safety
/// It is NULL or has room for one.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Result<c_int, Failure> {
    if to.is_null() {
        return Err(failure(libc::EFAULT, "the result has no place: NULL"));
    }
    // SAFETY: by contract.
    unsafe { to.write(value) };
    Ok(0)
}

/// Opens frequency control and measurement of this program.
///
/// `root`: NULL for this machine, or a folder with the files of another.
/// `way`: TL_WAY_AUTO, or the method to use.
/// `session`: gets the handle.
///
/// A machine or user without frequency control is not a failure: tl_way() is then
/// TL_WAY_NONE, and tl_why() says why.
///
/// Returns 0; -EFAULT if session is NULL; -EINVAL for an unknown method; -EMFILE if
/// TL_SESSIONS_MAX are open; or the error of opening it.
///
/// # Safety
/// root is NULL or a string, session NULL or a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_open(
    root: *const c_char,
    way: c_int,
    session: *mut *mut tl_session,
) -> c_int {
    guarded(|| {
        let way = match way {
            TL_WAY_AUTO => None,
            TL_WAY_NONE => Some(Way::None),
            TL_WAY_SETSPEED => Some(Way::Setspeed),
            TL_WAY_LIMITS => Some(Way::Limits),
            TL_WAY_MSR => Some(Way::Msr),
            TL_WAY_SCHEDULER => Some(Way::Scheduler),
            other => {
                return Err(failure(
                    libc::EINVAL,
                    format!("there is no method with number {other}"),
                ));
            }
        };
        if session.is_null() {
            return Err(failure(libc::EFAULT, "the handle has no place: NULL"));
        }
        // SAFETY: by contract.
        let root = if root.is_null() { "/" } else { unsafe { text_at(root)? } };
        let place = enter(Session::open(&Options { root: PathBuf::from(root), way })?)?;
        // SAFETY: not NULL, hence by contract a place for a pointer.
        unsafe { put(session, std::ptr::from_ref(place).cast_mut()) }
    })
}

/// Gives a session a place in the table.
fn enter(session: Session) -> Result<&'static tl_session, Failure> {
    let mut table = TABLE.lock().unwrap_or_else(|broken| broken.into_inner());
    let (start, number) = *table;
    let mut places = (start..start + SESSIONS.len()).map(|index| index % SESSIONS.len());
    let free = places.find(|index| SESSIONS[*index].number.load(Acquire) == 0);
    let text = format!("{TL_SESSIONS_MAX} sessions are open");
    let index = free.ok_or_else(|| failure(libc::EMFILE, text))?;
    *table = (index + 1, number + 1);
    let place = &SESSIONS[index];
    let old = place.session.swap(Box::into_raw(Box::new(session)), Release);
    if !old.is_null() {
        // SAFETY: made by into_raw above, closed long ago.
        drop(unsafe { Box::from_raw(old) });
    }
    place.number.store(number, Release);
    Ok(place)
}

/// Closes a session: restores every setting and every thread's mask.
///
/// Returns 0; -EBADF if session is not open; -EIO if something could not be
/// restored (the watchdog tries again when the program ends).
#[unsafe(no_mangle)]
pub extern "C" fn tl_close(session: *mut tl_session) -> c_int {
    guarded(|| {
        let ended = self::session(session)?;
        let _table = TABLE.lock().unwrap_or_else(|broken| broken.into_inner());
        if place_of(session).is_none_or(|place| place.number.swap(0, Release) == 0) {
            return Err(failure(libc::EBADF, "no open session: it was closed meanwhile"));
        }
        match ended.end() {
            pstate::Restored { failed: 0, .. } => Ok(0),
            pstate::Restored { failed, .. } => {
                Err(failure(libc::EIO, format!("{failed} settings could not be restored")))
            }
        }
    })
}

/// The method in use: TL_WAY_NONE and so on; -EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn tl_way(session: *const tl_session) -> c_int {
    guarded(|| Ok(self::session(session)?.control().choice().way as c_int))
}

/// Copies one sentence to buffer: which method is used, and why those before it are not.
/// Truncated to size bytes including the terminating zero. Returns the complete
/// length; -EBADF.
///
/// # Safety
/// buffer has room for size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_why(
    session: *const tl_session,
    buffer: *mut c_char,
    size: c_uint,
) -> c_int {
    guarded(|| {
        let why = &self::session(session)?.control().choice().why;
        // SAFETY: by contract.
        Ok(unsafe { copy_text(why, buffer, size) })
    })
}

/// The meaning of a code that a function here has returned, negative or not.
/// Never NULL; valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn tl_strerror(code: c_int) -> *const c_char {
    let text = match code.saturating_abs() {
        0 => c"success",
        libc::ENODEV => c"no P-state control (or no turbo switch) here: tl_why() says why",
        libc::ENXIO => c"the CPU is not online or has no frequency control",
        libc::EOPNOTSUPP => c"the scheduler takes requests for threads, not for CPUs",
        libc::ENOTCONN => {
            c"no scheduler takes the thread's requests: it has ended, or has no free slot"
        }
        libc::ERANGE => c"no P-state of this CPU has that frequency: tl_error() names the nearest",
        libc::EIO => {
            c"a setting did not keep its value: it is locked, or another program writes it"
        }
        libc::EBUSY => c"another tool has set the governor or a limit: tl_error() says which",
        libc::ECHILD => c"the session belongs to the parent process",
        libc::ESHUTDOWN | libc::EBADF => c"the session is closed",
        libc::EACCES | libc::EPERM => c"not permitted: needs root, or msr-safe",
        libc::EROFS => c"the machine's files are read-only here",
        libc::ESRCH => c"no living thread of that number is registered",
        libc::EEXIST => c"the thread has registered already",
        libc::ENAMETOOLONG => c"a name is empty or too long",
        libc::ENOENT => c"there is no such file, model or region",
        libc::ENOSPC => c"there are too many regions",
        libc::EMFILE => c"too many sessions or files are open",
        libc::EFAULT => c"a pointer is NULL",
        libc::EILSEQ => c"a text is not UTF-8",
        libc::EINVAL => c"an argument is out of range, or an end has no begin",
        libc::EOVERFLOW => c"too many wide sections are open",
        libc::ENOMEM => c"out of memory",
        libc::ENOTRECOVERABLE => c"a defect of libturbolane",
        _ => c"a system call failed: tl_error() says which",
    };
    text.as_ptr()
}

/// Copies the text of the calling thread's last failure in this library, with
/// file, reason and what to do, to buffer. Truncated to size bytes including the
/// terminating zero. Returns the complete length, 0 if nothing has failed.
///
/// # Safety
/// buffer has room for size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_error(buffer: *mut c_char, size: c_uint) -> c_int {
    let text = MESSAGE.try_with(|message| message.borrow().clone()).unwrap_or_default();
    // SAFETY: by contract.
    unsafe { copy_text(&text, buffer, size) }
}
