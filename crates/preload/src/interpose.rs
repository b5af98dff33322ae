// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions in glibc's place, and how they are switched on.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU8, Ordering};
use std::ffi::{CStr, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use libc::{
    c_uint, clockid_t, pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t, pthread_mutex_t,
    pthread_mutexattr_t, timespec,
};
use locks::{Block, RawLock, Spin, Wait};

use crate::config::{Config, parse};
use crate::rules::{Condition, Strategy, Subject, choose};
use crate::table::Slot;
use crate::{barriers, boost, glibc, objects, table};

/// Names the file; ignored in programs that run with more rights than their user has.
const FILE: &CStr = c"TURBOLANE_LOCKS";

/// Null: every call goes to glibc. Never freed: a thread may be reading it.
static CONFIG: AtomicPtr<Config> = AtomicPtr::new(core::ptr::null_mut());

/// What may be in the way of a mutex that is free: [`OFF`], [`BOOSTS`] or [`WAITS`].
static MODE: AtomicU8 = AtomicU8::new(OFF);
/// No file, no rule.
const OFF: u8 = 0;
/// Holders are boosted, once they are waited for; how threads wait is glibc's.
const BOOSTS: u8 = 1;
/// How threads wait is ours.
const WAITS: u8 = 2;

fn config() -> Option<&'static Config> {
    // SAFETY: null, or leaked by `switch_on`.
    unsafe { CONFIG.load(Ordering::Acquire).as_ref() }
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs when the library is loaded.
extern "C" fn begin() {
    // a test of this crate is no program that asked for us
    if let Some(file) = file()
        && let Err(why) = switch_on(&file)
    {
        eprintln!("turbolane_preload: {}: {why}. All locks stay glibc's.", file.to_string_lossy());
    }
}

fn file() -> Option<OsString> {
    environment::secure(FILE, |value| value.map(|bytes| OsStr::from_bytes(bytes).to_owned()))
}

fn switch_on(file: &OsString) -> Result<(), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let config = parse(&text).map_err(|error| error.to_string())?;
    let by_object =
        |rule: &crate::Rule| matches!(rule.condition, Condition::Object(_) | Condition::Creator(_));
    if config.rules.iter().any(by_object) && !objects::prepare() {
        return Err("object and creator rules need glibc 2.35; use address or all".into());
    }
    // SAFETY: the handler only touches the table.
    if unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
        return Err("no memory for a fork handler".into());
    }
    if let Err(why) = boost::prepare(&config) {
        eprintln!("turbolane_preload: {why}. Nothing is boosted; all other settings apply.");
    }
    let boosts = |rule: &crate::Rule| {
        matches!(rule.strategy, Strategy::Owner | Strategy::Delegate | Strategy::Glibc)
    };
    let mode = match config.rules.as_slice() {
        [] => OFF,
        rules if rules.iter().all(boosts) => BOOSTS,
        _ => WAITS,
    };
    CONFIG.store(Box::into_raw(Box::new(config)), Ordering::Release);
    MODE.store(mode, Ordering::Release);
    Ok(())
}

extern "C" fn in_child() {
    boost::in_child();
    barriers::in_child();
    // SAFETY: the child of a fork has one thread.
    unsafe { table::empty_queues() };
}

/// Runs at exit.
extern "C" fn end() {
    let Some(config) = config() else { return };
    if !config.report {
        return;
    }
    let ours = |slot: &&Slot| slot.strategy().is_some_and(|strategy| strategy != Strategy::Glibc);
    let waited = |slot: &Slot| u64::from(slot.contended.load(Ordering::Relaxed));
    let (count, waits) =
        table::used().filter(ours).fold((0, 0), |(n, sum), slot| (n + 1, sum + waited(slot)));
    eprintln!(
        "turbolane_preload: {count} mutexes of ours, {waits} acquisitions waited, {} boosts",
        boost::count()
    );
}

/// As pthread_mutex_lock(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        match MODE.load(Ordering::Relaxed) {
            OFF => glibc::lock(mutex),
            // Who comes in between is not boosted for this thread, but for the next.
            BOOSTS if glibc::looks_free(mutex) => glibc::lock(mutex),
            _ => lock_by_rules(mutex),
        }
    }
}

/// Not inlined: so a mutex that is free costs no frame.
///
/// # Safety
/// As pthread_mutex_lock.
#[inline(never)]
unsafe fn lock_by_rules(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        match config() {
            Some(config) if glibc::is_plain(mutex) => lock(config, mutex),
            _ => glibc::lock(mutex),
        }
    }
}

/// # Safety
/// As pthread_mutex_lock; the mutex is a plain one.
unsafe fn lock(config: &Config, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        // anything but "taken" is glibc's to answer
        match glibc::trylock(mutex) {
            0 => return 0,
            libc::EBUSY => {}
            _ => return glibc::lock(mutex),
        }
        match table::slot(mutex.addr()) {
            Some(slot) => wait(config, slot, mutex),
            None => glibc::lock(mutex),
        }
    }
}

/// Waits for a mutex that was taken.
///
/// # Safety
/// As pthread_mutex_lock; the mutex is a plain one.
#[cold]
unsafe fn wait(config: &Config, slot: &Slot, mutex: *mut pthread_mutex_t) -> c_int {
    let contended = slot.contended.fetch_add(1, Ordering::Relaxed).saturating_add(1);
    let decided = slot.strategy().filter(|strategy| *strategy != Strategy::Glibc);
    let strategy = decided.unwrap_or_else(|| decide(config, slot, mutex.addr(), contended));
    // SAFETY: the caller's promise, here and below; a queue is left by who entered it.
    unsafe {
        match strategy {
            Strategy::Glibc => glibc::lock(mutex),
            Strategy::Spin => look(&Spin, mutex),
            Strategy::Block => look(&Block, mutex),
            Strategy::QueueSpin => {
                slot.spinning.lock();
                let done = look(&Spin, mutex);
                slot.spinning.unlock();
                done
            }
            Strategy::QueueBlock => {
                slot.sleeping.lock();
                let done = look(&Block, mutex);
                slot.sleeping.unlock();
                done
            }
            Strategy::Owner | Strategy::Delegate => match boost::frequency(strategy) {
                None => glibc::lock(mutex),
                Some(frequency) => boost::lock_boosting(slot, frequency, mutex, contended),
            },
        }
    }
}

#[cold]
fn decide(config: &Config, slot: &Slot, address: usize, contended: u32) -> Strategy {
    let creator = slot.creator.load(Ordering::Relaxed);
    let subject = Subject {
        address,
        object: objects::name_of(address),
        creator: (creator != 0).then(|| objects::name_of(creator)).flatten(),
        contended,
    };
    let strategy = choose(&config.rules, &subject);
    slot.decide(Some(strategy));
    strategy
}

/// Looks at the mutex until it is this thread's; sleeps in glibc if the strategy says so.
///
/// # Safety
/// As pthread_mutex_lock.
unsafe fn look(how: &impl Wait, mutex: *mut pthread_mutex_t) -> c_int {
    let mut round = 0;
    // SAFETY: the caller's promise, here and below.
    unsafe {
        loop {
            if glibc::looks_free(mutex) {
                match glibc::trylock(mutex) {
                    libc::EBUSY => {}
                    done => return done,
                }
            }
            if how.step(round) {
                return glibc::lock(mutex);
            }
            round = round.saturating_add(1);
        }
    }
}

/// As pthread_mutex_unlock(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    boost::releasing(mutex, || unsafe { glibc::unlock(mutex) })
}

/// As pthread_cond_wait(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_wait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
) -> c_int {
    boost::leaving(mutex);
    // SAFETY: the caller's promise.
    unsafe { glibc::cond_wait(cond, mutex) }
}

/// As pthread_cond_timedwait(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_timedwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    boost::leaving(mutex);
    // SAFETY: the caller's promise.
    unsafe { glibc::cond_timedwait(cond, mutex, until) }
}

/// As pthread_cond_clockwait(3), for programs of glibc 2.30 and later.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_cond_clockwait(
    cond: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    boost::leaving(mutex);
    // SAFETY: the caller's promise.
    unsafe { glibc::cond_clockwait(cond, mutex, clock, until) }
}

/// As pthread_mutex_init(3). It hands on from where it was called, which Rust cannot ask for.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn pthread_mutex_init(
    mutex: *mut pthread_mutex_t,
    how: *const pthread_mutexattr_t,
) -> c_int {
    core::arch::naked_asm!("mov rdx, qword ptr [rsp]", "jmp {}", sym init_from)
}

/// # Safety
/// As pthread_mutex_init.
unsafe extern "C" fn init_from(
    mutex: *mut pthread_mutex_t,
    how: *const pthread_mutexattr_t,
    caller: usize,
) -> c_int {
    let by_creator = |config: &Config| {
        config.rules.iter().any(|rule| matches!(rule.condition, Condition::Creator(_)))
    };
    if config().is_some_and(by_creator)
        && let Some(slot) = table::slot(mutex.addr())
    {
        slot.creator.store(caller, Ordering::Relaxed);
        slot.decide(None);
    }
    // SAFETY: the caller's promise.
    unsafe { glibc::init(mutex, how) }
}

/// As pthread_barrier_init(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_init(
    barrier: *mut pthread_barrier_t,
    how: *const pthread_barrierattr_t,
    count: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    let done = unsafe { glibc::barrier_init(barrier, how, count) };
    if done == 0 && barriers_of(config()) != Strategy::Glibc && !is_shared(how) {
        barriers::begins(barrier, count);
    }
    done
}

fn barriers_of(config: Option<&Config>) -> Strategy {
    config.map_or(Strategy::Glibc, |config| config.barriers)
}

/// Whether other processes use the barrier too.
fn is_shared(how: *const pthread_barrierattr_t) -> bool {
    let mut shared = libc::PTHREAD_PROCESS_PRIVATE;
    // SAFETY: null, or what glibc has just read.
    !how.is_null()
        && unsafe { libc::pthread_barrierattr_getpshared(how, &mut shared) } == 0
        && shared != libc::PTHREAD_PROCESS_PRIVATE
}

/// As pthread_barrier_wait(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_wait(barrier: *mut pthread_barrier_t) -> c_int {
    // SAFETY: the caller's promise.
    let wait = || unsafe { glibc::barrier_wait(barrier) };
    match barriers_of(config()) {
        Strategy::Glibc => wait(),
        strategy => barriers::wait(barrier, strategy, wait),
    }
}

/// As pthread_barrier_destroy(3).
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_barrier_destroy(barrier: *mut pthread_barrier_t) -> c_int {
    barriers::ends(barrier);
    // SAFETY: the caller's promise.
    unsafe { glibc::barrier_destroy(barrier) }
}
