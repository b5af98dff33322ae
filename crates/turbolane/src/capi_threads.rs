// SPDX-License-Identifier: MIT OR Apache-2.0
//! The C ABI of a session's threads and regions: who runs, where, how fast, and how long something
//! took. The manual pages are docs/man/tl_thread_register.3, tl_region.3 and their neighbours.

use std::ffi::{c_char, c_int, c_uint};

use crate::capi_session::{
    TL_NAME_SIZE, TL_SELF, failure, guarded, put, session, text_at, tl_region_stats, tl_session,
    tl_thread,
};
use crate::threads::{Request, own_tid};

fn tid_of(tid: c_uint) -> u32 {
    if tid == TL_SELF { own_tid() } else { tid }
}

/// Registers the calling thread. role is a number that the program chooses.
/// Returns the thread's number, positive; -EBADF, -EEXIST, -ENAMETOOLONG,
/// -EFAULT, -EILSEQ.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_thread_register(
    session: *const tl_session,
    name: *const c_char,
    role: c_uint,
) -> c_int {
    guarded(|| {
        // SAFETY: by contract.
        let name = unsafe { text_at(name)? };
        self::session(session)?.threads().register(name, role)?;
        Ok(own_tid().cast_signed())
    })
}

/// Removes a thread (TL_SELF: the calling one) from the registry, withdraws its
/// request and restores its mask. Returns 0; -EBADF, -ESRCH.
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_unregister(session: *const tl_session, tid: c_uint) -> c_int {
    guarded(|| {
        let session = self::session(session)?;
        Ok(session.threads().unregister(session.control(), tid_of(tid)).map(|()| 0)?)
    })
}

/// States what the calling thread is doing now, by a number that the program
/// chooses. Returns 0; -EBADF, -ESRCH.
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_doing(session: *const tl_session, doing: c_uint) -> c_int {
    guarded(|| Ok(self::session(session)?.threads().set_doing(own_tid(), doing).map(|()| 0)?))
}

/// Copies the living registered threads to threads, at most count. Returns how
/// many there are; -EBADF, -EFAULT.
///
/// # Safety
/// threads has room for count, or count is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_thread_list(
    session: *const tl_session,
    threads: *mut tl_thread,
    count: c_uint,
) -> c_int {
    guarded(|| {
        let session = self::session(session)?;
        let all = session.threads().list(session.control());
        for (index, info) in all.iter().take(count as usize).enumerate() {
            let crate::ThreadInfo { tid, role, doing, cpu, .. } = *info;
            let mut name = [0; TL_NAME_SIZE];
            for (to, from) in name.iter_mut().zip(info.name.bytes().take(TL_NAME_SIZE - 1)) {
                *to = from as c_char;
            }
            if threads.is_null() {
                return Err(failure(libc::EFAULT, "the threads have no place: NULL"));
            }
            // SAFETY: within the caller's array.
            unsafe { threads.add(index).write(tl_thread { tid, role, doing, cpu, name }) };
        }
        Ok(c_int::try_from(all.len()).unwrap_or(c_int::MAX))
    })
}

fn request(session: *const tl_session, tid: c_uint, request: Request) -> c_int {
    guarded(|| {
        let session = self::session(session)?;
        Ok(session.threads().request(session.control(), tid_of(tid), request).map(|()| 0)?)
    })
}

/// tl_boost() for the core that a registered thread runs on (TL_SELF: the
/// calling one), or with TL_WAY_SCHEDULER for whichever core it runs on from now
/// on; also -ESRCH, -ENOTCONN.
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_boost(session: *const tl_session, tid: c_uint) -> c_int {
    request(session, tid, Request::Boost)
}

/// tl_slow() for a thread's core; otherwise like tl_thread_boost().
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_slow(session: *const tl_session, tid: c_uint) -> c_int {
    request(session, tid, Request::Slow)
}

/// tl_request() for a thread's core; otherwise like tl_thread_boost().
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_request(session: *const tl_session, tid: c_uint, khz: c_uint) -> c_int {
    request(session, tid, Request::Khz(khz))
}

/// Withdraws a thread's request, on whichever core it was made; otherwise like
/// tl_thread_boost().
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_restore(session: *const tl_session, tid: c_uint) -> c_int {
    request(session, tid, Request::Restore)
}

/// Moves a registered thread (TL_SELF: the calling one) to a CPU and keeps it
/// there until it is unregistered. Returns 0; -EBADF, -ESRCH, -ENXIO, -EINVAL.
#[unsafe(no_mangle)]
pub extern "C" fn tl_thread_migrate(session: *const tl_session, tid: c_uint, cpu: c_uint) -> c_int {
    guarded(|| {
        let session = self::session(session)?;
        Ok(session.threads().migrate(session.control(), tid_of(tid), cpu).map(|()| 0)?)
    })
}

/// The number of the region of this name, which is created if it does not exist.
/// Returns it, 0 or more; -EBADF, -ENOSPC, -EFAULT, -EILSEQ.
///
/// # Safety
/// name is NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_region(session: *const tl_session, name: *const c_char) -> c_int {
    guarded(|| {
        // SAFETY: by contract.
        let name = unsafe { text_at(name)? };
        Ok(self::session(session)?.monitor().region(name)?.number().cast_signed())
    })
}

/// The calling thread enters a region. Returns 0; -EBADF, -ENOENT.
#[unsafe(no_mangle)]
pub extern "C" fn tl_region_begin(session: *const tl_session, region: c_uint) -> c_int {
    guarded(|| {
        let monitor = self::session(session)?.monitor();
        monitor.begin(monitor.region_of(region)?);
        Ok(0)
    })
}

/// The calling thread leaves a region. Returns 0; -EBADF, -ENOENT; -EINVAL if
/// it has not entered it.
#[unsafe(no_mangle)]
pub extern "C" fn tl_region_end(session: *const tl_session, region: c_uint) -> c_int {
    guarded(|| {
        let monitor = self::session(session)?.monitor();
        monitor.end(monitor.region_of(region)?)?;
        Ok(0)
    })
}

/// A region over all threads so far. Returns 0; -EBADF, -ENOENT, -EFAULT.
///
/// # Safety
/// stats is NULL or a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tl_region_stats(
    session: *const tl_session,
    region: c_uint,
    stats: *mut tl_region_stats,
) -> c_int {
    guarded(|| {
        let monitor = self::session(session)?.monitor();
        let all = monitor.stats(monitor.region_of(region)?);
        let value = tl_region_stats {
            count: all.count,
            sum_ns: all.sum_ns,
            min_ns: all.min_ns,
            max_ns: all.max_ns,
            cycles: all.cycles.unwrap_or(0),
        };
        // SAFETY: by contract.
        unsafe { put(stats, value) }
    })
}
