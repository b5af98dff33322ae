// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wide sections run by a helper thread that stays on the wide CPUs, for the affinity fallback.
//!
//! Problem: without sched_ext a thread that opens a wide section moves itself, by changing its
//! affinity mask, and moves back at the end: two migrations, some 15 us. Papamanoglou's library
//! (THESIS 2.4) does not move the thread but its work: closures are submitted to the specialised
//! cores.
//!
//! Idea: a helper thread opens a wide section of its own and never closes it, so it is placed,
//! announced, served and in the end restored as any thread that runs wide code. A section is handed
//! to it through a `locks::Server`: two moves of a cache line while both look, a futex wake-up for
//! a thread that sleeps. There are as many helpers as wide CPUs, per level, started by the first
//! section that needs them.
//!
//! Whether that pays is a question of the section's length (DIM 4.3). With the hand-over h, there
//! and back, and the share s of the clock that scalar code after the section would lose for at
//! least as long as the section was:
//!
//! ```text
//!   hand over  if  expected length >= h / s
//! ```
//!
//! s is on the hint board: the daemon knows the CPU. h is measured when the
//! helpers are started, with a helper that sleeps and a caller that sleeps, too, because that is
//! what sections meet for which the question is open: a helper looks for its next client for some
//! 0.1 ms, a client for its answer for some 6 us. (A hand-over between threads that look costs a
//! fortieth of it: docs/experiments/wide-bursts.md.)
//!
//! A shorter one runs where it is, without a hint: it may even be over before a lower clock is
//! granted. The relax time, during which scalar code pays too, is left out on purpose: it would
//! make every section worth it, also those that raise no level.
//!
//! A section runs in place, between [`crate::wide_begin`] and [`crate::wide_end`], wherever nothing
//! is gained by handing it over: without a scheduler, with sched_ext (which moves a thread for
//! less), on a CPU that is fit, inside of another section, on a helper, on a CPU whose levels
//! cost no clock, without a wide CPU in this process's reach, or while helpers are being started.
//!
//! Limits: a thread that finds all helpers busy waits, as wide threads wait for wide CPUs. A
//! section does not run on its caller's stack, so thread-local variables, `errno` and locks that
//! know their owner are the helper's. It must not end its thread, and a child that it forks must
//! not return from it. A forked child has no helpers, and starts its own.

use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use locks::Server;

use turbolane_hint::inside::{self, Unnoticed, Watch, coarse_ns};
use turbolane_hint::page::Board;
use turbolane_hint::{Error, MAX_LEVEL, wide_begin, wide_end};

/// Hand-overs that are timed when helpers are started, each after a pause in which the helper falls
/// asleep, and of a section in which its caller does (see `locks`: they look for 60 to 200 and 3 to
/// 6 us): 10 ms in all.
const TIMED: usize = 15;
const PAUSE: Duration = Duration::from_micros(500);
const SECTION: Duration = Duration::from_micros(20);

/// Helpers of a level at most: each is a thread with a stack.
const HELPERS_MAX: usize = 64;

/// Who ran a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The calling thread.
    Here,
    /// A helper, on a wide CPU.
    Delegated,
}

/// Runs a wide section of licence level `level`, 1..=[`MAX_LEVEL`]: on a helper's CPU if that pays
/// for a section of about `expected_ns` (0: not known, hand it over), else on this thread. Returns
/// what it returned, and panics as it does. Refuses a level that does not exist, and does not run
/// it then.
pub fn delegate<R: Send>(
    level: u32,
    expected_ns: u64,
    section: impl FnOnce() -> R + Send,
) -> Result<(R, Ran), Error> {
    if level == 0 || level > MAX_LEVEL {
        return Err(Error::InvalidLevel);
    }
    let Some(page) = misplaced(level) else {
        return in_place(level, section);
    };
    let Some(pool) = pool(level, page) else {
        return in_place(level, section);
    };
    if expected_ns != 0 && expected_ns < pool.break_even_ns {
        return Ok((section(), Ran::Here));
    }
    let _unnoticed = Unnoticed::new();
    let run = || {
        sit(level, page);
        section()
    };
    Ok((pool.next().run(run), Ran::Delegated))
}

/// The length from which a section of this level is handed over, from this thread, now; `None`
/// where none is. Starts helpers, if there are none.
pub fn delegate_break_even_ns(level: u32) -> Option<u64> {
    if level == 0 || level > MAX_LEVEL {
        return None;
    }
    let page = misplaced(level)?;
    Some(pool(level, page)?.break_even_ns)
}

/// The page by which a section of this thread belongs on a CPU that only a helper, or a change of
/// this thread's mask, brings it to.
fn misplaced(level: u32) -> Option<&'static Board> {
    if SEAT.get().is_some() { None } else { inside::misplaced(level) }
}

fn in_place<R>(level: u32, section: impl FnOnce() -> R) -> Result<(R, Ran), Error> {
    /// Closes the section, also if it panics.
    struct Open(bool);
    impl Drop for Open {
        fn drop(&mut self) {
            if self.0 {
                // opened below, on this thread
                let _ = wide_end();
            }
        }
    }
    // with too many sections open this one is none, and as wide as they are
    let _open = Open(wide_begin(level).is_ok());
    Ok((section(), Ran::Here))
}

/// The helpers of a level. Never freed: they may be in use until the process ends.
struct Pool {
    helpers: Box<[Server]>,
    next: AtomicUsize,
    break_even_ns: u64,
}

/// By level.
static POOLS: [AtomicPtr<Pool>; MAX_LEVEL as usize] =
    [const { AtomicPtr::new(null_mut()) }; MAX_LEVEL as usize];

/// By level, coarse monotonic time in ns before which no one starts helpers; [`NEVER`] while
/// someone does, and when they have been started.
static NEXT_TRY_NS: [AtomicU64; MAX_LEVEL as usize] =
    [const { AtomicU64::new(0) }; MAX_LEVEL as usize];
const NEVER: u64 = u64::MAX;
/// Between two attempts to start helpers: a daemon that was too busy to answer may be idle by then.
const RETRY_NS: u64 = 1_000_000_000;

/// The helpers of a level, started if they were not. `None` where they cannot be, and for all
/// others while a thread starts them.
fn pool(level: u32, page: &'static Board) -> Option<&'static Pool> {
    let at = level as usize - 1;
    // SAFETY: null, or a pool that was leaked below, after it was complete.
    if let Some(pool) = unsafe { POOLS[at].load(Acquire).as_ref() } {
        return Some(pool);
    }
    let (now_ns, due_ns) = (coarse_ns(), NEXT_TRY_NS[at].load(Relaxed));
    let mine = || NEXT_TRY_NS[at].compare_exchange(due_ns, NEVER, AcqRel, Relaxed).is_ok();
    if now_ns < due_ns || !FORKS.start(in_child) || !mine() {
        return None;
    }
    let _unnoticed = Unnoticed::new();
    let Some(pool) = Pool::start(level, page) else {
        NEXT_TRY_NS[at].store(now_ns + RETRY_NS, Release);
        return None;
    };
    let pool: &'static Pool = Box::leak(Box::new(pool));
    POOLS[at].store(std::ptr::from_ref(pool).cast_mut(), Release);
    Some(pool)
}

static FORKS: Watch = Watch::new();

/// In the child of a fork: the helpers are the parent's. What remains of them here is not touched
/// again.
extern "C" fn in_child() {
    for (pool, next_try_ns) in POOLS.iter().zip(&NEXT_TRY_NS) {
        pool.store(null_mut(), Relaxed);
        next_try_ns.store(0, Relaxed);
    }
}

impl Pool {
    /// `None` without a wide CPU in reach, if the level costs no clock, or if the system refuses
    /// threads.
    fn start(level: u32, page: &'static Board) -> Option<Pool> {
        let lost_frac = page.lost_frac(level);
        if lost_frac == 0.0 {
            return None;
        }
        let wide_cpus = inside::original_cpus(page, level).min(HELPERS_MAX);
        let helpers: Box<[Server]> = {
            let _blocked = SignalsBlocked::new();
            (0..wide_cpus).map(|_| Server::new(None).ok()).collect::<Option<_>>()?
        };
        let sits = |helper: &Server| helper.run(|| sit(level, page));
        if helpers.is_empty() || !helpers.iter().all(sits) {
            return None;
        }
        let hand_over_ns = hand_over_ns(helpers.first()?);
        let break_even_ns = (hand_over_ns as f64 / lost_frac) as u64;
        Some(Pool { helpers, next: AtomicUsize::new(0), break_even_ns })
    }

    /// In turn.
    fn next(&self) -> &Server {
        &self.helpers[self.next.fetch_add(1, Relaxed) % self.helpers.len()]
    }
}

/// The median time that a section takes longer on the helper than it is.
fn hand_over_ns(helper: &Server) -> u64 {
    let section = || {
        let begun = Instant::now();
        while begun.elapsed() < SECTION {
            std::hint::spin_loop();
        }
        begun.elapsed()
    };
    let once = |_| {
        std::thread::sleep(PAUSE);
        let begun = Instant::now();
        let inside = helper.run(section);
        begun.elapsed().saturating_sub(inside).as_nanos() as u64
    };
    let mut times: Vec<u64> = (0..TIMED).map(once).collect();
    times.sort_unstable();
    times[TIMED / 2]
}

/// By what a helper was placed: the level of its open section, whose page, and which generation of
/// the CPUs' classes in it.
#[derive(Clone, Copy, PartialEq)]
struct Seat {
    level: u32,
    page: *const Board,
    generation: u64,
}

thread_local! {
    /// Of a helper.
    static SEAT: Cell<Option<Seat>> = const { Cell::new(None) };
}

/// Puts this helper on a CPU for its level, if it is not there, or if the classes have changed
/// since. Whether it is there.
fn sit(level: u32, page: &'static Board) -> bool {
    let generation = page.header.generation.load(Relaxed);
    let seat = Some(Seat { level, page, generation });
    match SEAT.replace(seat) {
        before if before == seat => return true,
        Some(_) => _ = wide_end(),
        None => {}
    }
    wide_begin(level).is_ok() && inside::takes_seat(level)
}

/// Signals are the program's threads' business: a helper, which inherits its creator's mask, takes
/// none.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> SignalsBlocked {
        // SAFETY: a set is numbers, for which zeros are a value; both calls write to the local
        // sets.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalsBlocked(before)
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: reads the set that was this thread's.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}
