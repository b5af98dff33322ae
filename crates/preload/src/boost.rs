// SPDX-License-Identifier: MIT OR Apache-2.0
//! A thread that holds a mutex for long while others wait runs at the fastest P-state (TURBO 8,
//! "owner"; with another core that writes the P-states: TURBO 9, "delegate").
//!
//! ```text
//!   lock, contended       glibc's timed lock, for `after`, until the same thread has held it for all
//!                         of that (glibc notes the holder in the mutex)
//!                         then: on which CPU is that (/proc)? slot.boosted = that CPU, boosted
//!   unlock, cond wait     slot.boosted = none; restored after the mutex is free
//! ```
//!
//! Problem: a boost costs some 40 us of work on TURBO's machine (it pays from sections of 190 us
//! on), a program that knows nothing of it takes most of its mutexes without a wait, and most waits
//! are short. Boosted at each wait, memcached did 64 % less.
//!
//! Idea: a section is boosted once it has been waited for as long as a boost must last to pay. So
//! it costs at most twice what would have been best, and short sections nothing but a timer. Each
//! mutex learns how long that is ([`Patience`](crate::patience::Patience)); where all waits are
//! brief, few of them have a timer.
//!
//! What is waited for is one section: a mutex that goes from one holder to the next in the meantime
//! is waited for anew.
//!
//! Unlike TURBO's locks, waiters neither queue nor slow their CPUs down: they sleep in glibc, and
//! other threads may share their CPUs, the holder's among them.
//!
//! A holder may release the mutex, or move to another CPU, while it is being boosted. The thread
//! that boosts looks again afterwards, and a thread that takes the mutex after a wait restores what
//! is still boosted.
//! At the end of the process, whatever its cause, all is restored (`pstate`). A holder that ends
//! without releasing leaves a plain mutex taken for ever, and its CPU boosted until that end.
//!
//! One process at a time boosts: the settings that a second one found would be those of the first.
//! The environment is inherited by every program that a program starts, so the others are silent,
//! and their mutexes glibc's.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{c_int, pthread_mutex_t, timespec};
use locks::sys::Errno;
use locks::{CpuFrequency, OtherCore};
use pstate::{Control, Options, Way};

use crate::config::Config;
use crate::rules::Strategy;
use crate::table::{self, Slot};
use crate::{glibc, holder};

/// Where the lock of the process that boosts lies, below the machine's root.
const LOCK: &str = "run/turbolane-pstates.lock";

/// What boosts.
struct Boost {
    control: Arc<Control>,
    /// For [`Strategy::Delegate`].
    other: Option<OtherCore<Arc<Control>>>,
    /// How long a section is waited for before it is boosted, unless its mutex has learned that it
    /// pays sooner.
    after_ns: u64,
    /// The lock of the process that boosts.
    alone: File,
}

/// Null: nothing is boosted. Never freed: a thread may be using it.
static BOOST: AtomicPtr<Boost> = AtomicPtr::new(core::ptr::null_mut());
/// Mutexes whose holders are boosted now.
static BOOSTED: AtomicU32 = AtomicU32::new(0);
/// Boosts ever.
static BOOSTS: AtomicU32 = AtomicU32::new(0);

fn boost() -> Option<&'static Boost> {
    // SAFETY: null, or leaked by `prepare`.
    unsafe { BOOST.load(Ordering::Acquire).as_ref() }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}
const PTHREAD_CANCEL_DISABLE: c_int = 1;

/// Until it is dropped, this thread is not cancelled and its errno is kept: what locks and unlocks
/// a mutex is no cancellation point, what sets a P-state is.
pub(crate) struct Unnoticed {
    cancel_state: c_int,
    _errno: Errno,
}

impl Unnoticed {
    pub(crate) fn begin() -> Self {
        let mut unnoticed = Unnoticed { cancel_state: 0, _errno: Errno::kept() };
        // SAFETY: writes one number.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut unnoticed.cancel_state) };
        unnoticed
    }
}

impl Drop for Unnoticed {
    fn drop(&mut self) {
        // SAFETY: as above, with the state that was there.
        unsafe { pthread_setcancelstate(self.cancel_state, &mut 0) };
    }
}

/// Opens frequency control, if a rule boosts.
///
/// # Errors
/// Why this machine's P-states cannot be set by this program. `Ok`, and nothing is boosted, where
/// another process does.
pub(crate) fn prepare(config: &Config) -> Result<(), String> {
    let uses = |strategy| {
        config.rules.iter().any(|rule| rule.strategy == strategy) || config.barriers == strategy
    };
    if !uses(Strategy::Owner) && !uses(Strategy::Delegate) {
        return Ok(());
    }
    if !glibc::has_lock_until() {
        return Err("boosting needs glibc 2.30".into());
    }
    let Some(alone) = lock(&config.machine).map_err(|error| error.to_string())? else {
        return Ok(());
    };
    let options = Options { root: config.machine.clone(), way: None };
    let control = Arc::new(Control::open(&options).map_err(|error| error.to_string())?);
    if control.choice().way == Way::None {
        return Err(control.choice().why.clone());
    }
    let cpus = control.clocks().topology.possible().iter().last().map_or(1, |last| last as u32 + 1);
    let server = || OtherCore::new(control.clone(), cpus, config.server);
    let other = uses(Strategy::Delegate).then(server).transpose().map_err(|e| e.to_string())?;
    let boost = Box::new(Boost { control, other, after_ns: config.after.as_nanos() as u64, alone });
    BOOST.store(Box::into_raw(boost), Ordering::Release);
    Ok(())
}

/// Locks the machine's P-states for this process; `None` where another one has.
fn lock(root: &Path) -> io::Result<Option<File>> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let path = root.join(LOCK);
    let file = open.open(&path).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot lock {}: {error}", path.display()))
    })?;
    // SAFETY: a descriptor of ours.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(Some(file)),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            error => Err(error),
        },
    }
}

/// In the child of a fork: the P-states are its parent's, and so is the lock.
pub(crate) fn in_child() {
    if let Some(boost) = boost() {
        // SAFETY: a descriptor of ours, which nothing here uses from now on.
        unsafe { libc::close(boost.alone.as_raw_fd()) };
    }
    BOOST.store(core::ptr::null_mut(), Ordering::Relaxed);
    BOOSTED.store(0, Ordering::Relaxed);
}

/// One more was boosted.
pub(crate) fn count_one() {
    BOOSTS.fetch_add(1, Ordering::Relaxed);
}

/// How often someone was boosted.
pub(crate) fn count() -> u32 {
    BOOSTS.load(Ordering::Relaxed)
}

/// What boosts for a strategy; `None` if it does not boost, or nothing does.
pub(crate) fn frequency(strategy: Strategy) -> Option<&'static dyn CpuFrequency> {
    let boost = boost()?;
    match strategy {
        Strategy::Owner => Some(&*boost.control),
        Strategy::Delegate => boost.other.as_ref().map(|other| other as _),
        _ => None,
    }
}

/// Waits for a mutex in glibc, for which so many have waited.
///
/// # Safety
/// As pthread_mutex_lock; the mutex is a plain one, and the slot's.
pub(crate) unsafe fn lock_boosting(
    slot: &Slot,
    frequency: &dyn CpuFrequency,
    mutex: *mut pthread_mutex_t,
    contended: u32,
) -> c_int {
    // SAFETY: the caller's promise, here and below.
    unsafe {
        let patience = &slot.patience;
        if !patience.watches(contended) {
            return glibc::lock(mutex);
        }
        let after_ns = patience.after_ns(most_after_ns());
        let mut holder = glibc::holder(mutex);
        loop {
            match glibc::lock_until(mutex, &timespec_of(now_ns() + after_ns)) {
                libc::ETIMEDOUT => {}
                done => {
                    patience.was_brief();
                    return done;
                }
            }
            let before = std::mem::replace(&mut holder, glibc::holder(mutex));
            if holder == before {
                break;
            }
        }
        patience.was_long();
        boost_holder(slot, frequency, holder);
        let done = glibc::lock(mutex);
        restore(frequency, take_boosted(slot));
        done
    }
}

/// From which duration on a boost pays, ns.
pub(crate) fn most_after_ns() -> u64 {
    boost().map_or(0, |boost| boost.after_ns)
}

/// Of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; the clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub(crate) fn timespec_of(ns: u64) -> timespec {
    timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// The mutex was waited for long enough: its holder runs fast from now on, unless another waiter
/// has seen to that.
fn boost_holder(slot: &Slot, frequency: &dyn CpuFrequency, holder: i32) {
    let _unnoticed = Unnoticed::begin();
    if slot.boosted.load(Ordering::Relaxed) != 0 {
        return;
    }
    let Some(cpu) = holder::cpu_of(holder) else { return };
    let boosted = cpu + 1;
    if slot.boosted.compare_exchange(0, boosted, Ordering::SeqCst, Ordering::SeqCst).is_err() {
        return;
    }
    slot.boosted_ns.store(now_ns(), Ordering::Relaxed);
    BOOSTED.fetch_add(1, Ordering::SeqCst);
    count_one();
    frequency.boost(cpu);
    // Released before it was boosted: nobody else restores it.
    if slot.boosted.load(Ordering::SeqCst) != boosted {
        frequency.restore(cpu);
    }
}

/// Which CPU is boosted for the mutex; none is from now on.
fn take_boosted(slot: &Slot) -> Option<u32> {
    let cpu = slot.boosted.swap(0, Ordering::SeqCst).checked_sub(1)?;
    BOOSTED.fetch_sub(1, Ordering::SeqCst);
    let boosted_ns = now_ns().saturating_sub(slot.boosted_ns.load(Ordering::Relaxed));
    slot.patience.learn(most_after_ns(), boosted_ns);
    Some(cpu)
}

fn restore(frequency: &dyn CpuFrequency, cpu: Option<u32>) {
    if let Some(cpu) = cpu {
        let _unnoticed = Unnoticed::begin();
        frequency.restore(cpu);
    }
}

/// Calls glibc's function that releases the mutex.
#[inline]
pub(crate) fn releasing(mutex: *mut pthread_mutex_t, release: impl FnOnce() -> c_int) -> c_int {
    if BOOSTED.load(Ordering::Relaxed) == 0 {
        return release();
    }
    releasing_boosted(mutex, release)
}

#[cold]
#[inline(never)]
fn releasing_boosted(mutex: *mut pthread_mutex_t, release: impl FnOnce() -> c_int) -> c_int {
    let boosted = table::known(mutex.addr()).and_then(|slot| {
        let frequency = frequency(slot.strategy()?)?;
        Some((frequency, take_boosted(slot)))
    });
    let result = release();
    if let Some((frequency, cpu)) = boosted {
        restore(frequency, cpu);
    }
    result
}

/// Before one of glibc's functions that release the mutex and wait, which may be for long.
#[inline]
pub(crate) fn leaving(mutex: *mut pthread_mutex_t) {
    if BOOSTED.load(Ordering::Relaxed) != 0 {
        releasing_boosted(mutex, || 0);
    }
}
