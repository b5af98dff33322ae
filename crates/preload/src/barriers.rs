// SPDX-License-Identifier: MIT OR Apache-2.0
//! Those for whom a barrier waits run at the fastest P-state (TURBO 11 lists barriers among what is
//! decorated).
//!
//! ```text
//!   first to arrive     waits in front of glibc's barrier until all are there, or it has waited for
//!                       `after`: who has arrived in the last round and not in this one is late
//!                       at most half are late: on which CPUs (/proc)? boosted
//!                       then: glibc's barrier, with all others; afterwards restored
//!   all others          glibc's barrier
//!   the last of them    wakes the first, if that still waits in front
//! ```
//!
//! Problem: in a fork-join program all wait for the slowest, and those who wait have nothing to do.
//! glibc does not know who is slow: its barrier counts threads, and does not name them.
//!
//! Idea: threads arrive round after round. One that arrived in the last round is expected in this;
//! the first to arrive has the most time, and looks. How long it waits before that is learned for
//! each barrier ([`Patience`](crate::patience::Patience)).
//!
//! Cost: a watched round in which no thread is late ends some 10 us later, since the last thread
//! has to wake the one that watches. Therefore rounds are watched so seldom that this costs 1 %:
//! each one of 1 ms and more, every tenth of 100 us.
//!
//! glibc's barrier stays the barrier. The thread that watches goes there after a few looks at the
//! latest, so nothing hangs if some threads reach glibc's barrier without passing through here.
//!
//! Limits: barriers that were set up by `pthread_barrier_init` since the library was switched on,
//! for this process alone, and for at most [`MEMBERS`] threads; at most [`BARRIERS`] at a time. A
//! thread that is late because it sleeps is boosted in vain. If a late thread migrates, the boost
//! stays with the CPU that it left, until the round ends.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{c_int, pthread_barrier_t};
use locks::CpuFrequency;

use crate::boost::{self, Unnoticed, now_ns, timespec_of};
use crate::holder;
use crate::patience::Patience;
use crate::rules::Strategy;

/// Barriers that can be decorated at a time.
pub(crate) const BARRIERS: usize = 64;
/// Threads of such a barrier.
pub(crate) const MEMBERS: usize = 128;
/// Rounds are watched one by one from this length on: a hundred wake-ups.
const ALWAYS_NS: u64 = 1_000_000;
/// Their mean length is taken from about as many.
const REMEMBERED: u64 = 64;
/// Looks for who is late in one round.
const LOOKS: u32 = 8;

/// A thread that comes to a barrier.
struct Member {
    /// Its number, 0 = none.
    tid: AtomicI32,
    /// The last round that it came to, plus one.
    came: AtomicU64,
}

/// A barrier.
pub(crate) struct Barrier {
    /// 0: nobody's.
    address: AtomicUsize,
    /// Threads of a round.
    count: AtomicU32,
    /// Threads that have come, in all rounds.
    arrived: AtomicU64,
    /// Rounds that all have come to; wraps. Who watches sleeps here.
    complete: AtomicU32,
    is_watched: AtomicBool,
    /// The round that was watched last, and when it began to be; the one to be watched next.
    watched: AtomicU64,
    watched_ns: AtomicU64,
    next: AtomicU64,
    /// Rounds of late, and their time.
    rounds: AtomicU64,
    rounds_ns: AtomicU64,
    patience: Patience,
    members: [Member; MEMBERS],
}

static TABLE: [Barrier; BARRIERS] = [const { Barrier::empty() }; BARRIERS];
/// Barriers of the table that were ever used: no look goes beyond.
static NR_USED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Number of this thread; 0: it was not asked for.
    static TID: Cell<i32> = const { Cell::new(0) };
}

fn own_tid() -> i32 {
    TID.with(|tid| {
        if tid.get() == 0 {
            // SAFETY: no arguments.
            tid.set(unsafe { libc::gettid() });
        }
        tid.get()
    })
}

/// In the child of a fork, whose thread has a number of its own; nobody waits any more.
pub(crate) fn in_child() {
    TID.with(|tid| tid.set(0));
    for barrier in &TABLE {
        barrier.address.store(0, Ordering::Relaxed);
    }
}

/// A barrier was set up for so many threads of this process.
pub(crate) fn begins(barrier: *mut pthread_barrier_t, count: u32) {
    ends(barrier);
    if !(2..=MEMBERS as u32).contains(&count) {
        return;
    }
    let claim = |slot: &&Barrier| {
        slot.address.compare_exchange(0, usize::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    let Some((number, slot)) = TABLE.iter().enumerate().find(|(_, slot)| claim(slot)) else {
        return;
    };
    slot.reset(count);
    NR_USED.fetch_max(number + 1, Ordering::Relaxed);
    slot.address.store(barrier.addr(), Ordering::Release);
}

/// It is none any more.
pub(crate) fn ends(barrier: *mut pthread_barrier_t) {
    if let Some(slot) = known(barrier) {
        slot.address.store(0, Ordering::Release);
    }
}

/// The slot of a barrier, if it has one.
fn known(barrier: *mut pthread_barrier_t) -> Option<&'static Barrier> {
    let used = &TABLE[..NR_USED.load(Ordering::Relaxed)];
    used.iter().find(|slot| slot.address.load(Ordering::Acquire) == barrier.addr())
}

/// Waits by glibc's function, and boosts who is late.
pub(crate) fn wait(
    barrier: *mut pthread_barrier_t,
    strategy: Strategy,
    glibc: impl FnOnce() -> c_int,
) -> c_int {
    match (known(barrier), boost::frequency(strategy)) {
        (Some(slot), Some(frequency)) => {
            slot.wait(own_tid(), boost::most_after_ns(), frequency, holder::cpu_of, glibc)
        }
        _ => glibc(),
    }
}

/// CPUs that are boosted for a round.
struct Boosted {
    cpus: [u32; MEMBERS / 2],
    nr: usize,
    since_ns: u64,
}

impl Boosted {
    const NONE: Boosted = Boosted { cpus: [0; MEMBERS / 2], nr: 0, since_ns: 0 };

    fn cpus(&self) -> &[u32] {
        &self.cpus[..self.nr]
    }

    fn add(&mut self, cpu: u32) {
        if self.nr < self.cpus.len() && !self.cpus().contains(&cpu) {
            self.cpus[self.nr] = cpu;
            self.nr += 1;
        }
    }
}

impl Barrier {
    const fn empty() -> Barrier {
        Barrier {
            address: AtomicUsize::new(0),
            count: AtomicU32::new(0),
            arrived: AtomicU64::new(0),
            complete: AtomicU32::new(0),
            is_watched: AtomicBool::new(false),
            watched: AtomicU64::new(0),
            watched_ns: AtomicU64::new(0),
            next: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
            rounds_ns: AtomicU64::new(0),
            patience: Patience::new(),
            members: [const { Member { tid: AtomicI32::new(0), came: AtomicU64::new(0) } };
                MEMBERS],
        }
    }

    fn reset(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.complete.store(0, Ordering::Relaxed);
        self.is_watched.store(false, Ordering::Relaxed);
        // in the first round nobody is expected
        self.next.store(1, Ordering::Relaxed);
        self.watched.store(0, Ordering::Relaxed);
        self.watched_ns.store(now_ns(), Ordering::Relaxed);
        self.rounds.store(0, Ordering::Relaxed);
        self.rounds_ns.store(0, Ordering::Relaxed);
        self.patience.forget();
        for member in &self.members {
            member.tid.store(0, Ordering::Relaxed);
            member.came.store(0, Ordering::Relaxed);
        }
    }

    /// This thread has come.
    fn wait(
        &self,
        tid: i32,
        most_after_ns: u64,
        frequency: &dyn CpuFrequency,
        cpu_of: impl Fn(i32) -> Option<u32>,
        glibc: impl FnOnce() -> c_int,
    ) -> c_int {
        let count = u64::from(self.count.load(Ordering::Relaxed));
        let before = self.arrived.fetch_add(1, Ordering::SeqCst);
        let (round, place) = (before / count, before % count);
        self.note(tid, round);
        if place + 1 == count {
            self.complete.store(round as u32 + 1, Ordering::SeqCst);
            if self.is_watched.load(Ordering::SeqCst) {
                let _unnoticed = Unnoticed::begin();
                wake(&self.complete);
            }
            return glibc();
        }
        if place != 0 || round < self.next.load(Ordering::Relaxed) {
            return glibc();
        }
        let boosted = self.watch(round, most_after_ns, frequency, cpu_of);
        let done = glibc();
        if boosted.nr > 0 {
            let _unnoticed = Unnoticed::begin();
            boosted.cpus().iter().for_each(|cpu| frequency.restore(*cpu));
            self.patience.learn(most_after_ns, now_ns().saturating_sub(boosted.since_ns));
        }
        done
    }

    /// The thread comes to this round.
    fn note(&self, tid: i32, round: u64) {
        let first = tid as usize % MEMBERS;
        let mut places = (0..MEMBERS).map(|next| &self.members[(first + next) % MEMBERS]);
        let own = places.find(|member| {
            let known = member.tid.load(Ordering::Relaxed);
            let claim = || {
                member.tid.compare_exchange(0, tid, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            };
            known == tid || (known == 0 && claim())
        });
        match own {
            Some(member) => member.came.store(round + 1, Ordering::Relaxed),
            // Threads come and go, and all places are of such that were here once: begin anew.
            None => self.members.iter().for_each(|member| {
                if member.came.load(Ordering::Relaxed) < round {
                    member.tid.store(0, Ordering::Relaxed);
                }
            }),
        }
    }

    /// Waits until all have come to the round, or those are boosted who are late.
    fn watch(
        &self,
        round: u64,
        most_after_ns: u64,
        frequency: &dyn CpuFrequency,
        cpu_of: impl Fn(i32) -> Option<u32>,
    ) -> Boosted {
        let _unnoticed = Unnoticed::begin();
        self.plan(round);
        let after_ns = self.patience.after_ns(most_after_ns);
        let mut boosted = Boosted::NONE;
        self.is_watched.store(true, Ordering::SeqCst);
        for _ in 0..LOOKS {
            if self.is_complete_within(round, after_ns) {
                break;
            }
            self.find_late(round, &cpu_of, &mut boosted);
            if boosted.nr > 0 {
                // the thread that watches is not the last one now: this round cost nothing
                self.next.store(round + 1, Ordering::Relaxed);
                boosted.since_ns = now_ns();
                for cpu in boosted.cpus() {
                    frequency.boost(*cpu);
                    boost::count_one();
                }
                break;
            }
        }
        self.is_watched.store(false, Ordering::SeqCst);
        boosted
    }

    /// This round is watched: which one is next, by how long the last ones took.
    fn plan(&self, round: u64) {
        let now_ns = now_ns();
        let since_ns = now_ns.saturating_sub(self.watched_ns.swap(now_ns, Ordering::Relaxed));
        let since = round.saturating_sub(self.watched.swap(round, Ordering::Relaxed));
        let mut rounds = self.rounds.load(Ordering::Relaxed) + since;
        let mut rounds_ns = self.rounds_ns.load(Ordering::Relaxed) + since_ns;
        // odd: of long and short rounds by turns, both are seen
        let every = (ALWAYS_NS * rounds / rounds_ns.max(1)) | 1;
        self.next.store(round + every, Ordering::Relaxed);
        if rounds > REMEMBERED {
            (rounds, rounds_ns) = (rounds / 2, rounds_ns / 2);
        }
        self.rounds.store(rounds, Ordering::Relaxed);
        self.rounds_ns.store(rounds_ns, Ordering::Relaxed);
    }

    /// Sleeps for so long, or until all have come.
    fn is_complete_within(&self, round: u64, ns: u64) -> bool {
        let until_ns = now_ns() + ns;
        while self.complete.load(Ordering::SeqCst) == round as u32 {
            let left_ns = until_ns.saturating_sub(now_ns());
            if left_ns == 0 {
                return false;
            }
            sleep(&self.complete, round as u32, left_ns);
        }
        true
    }

    /// The CPUs of those who were there in the last round and are not yet in this one, if that are
    /// not too many: with most of the package busy there is nothing to boost them with.
    fn find_late(&self, round: u64, cpu_of: impl Fn(i32) -> Option<u32>, late: &mut Boosted) {
        let is_late = |member: &&Member| member.came.load(Ordering::Relaxed) == round;
        let nr_late = self.members.iter().filter(is_late).count();
        if 2 * nr_late > self.count.load(Ordering::Relaxed) as usize {
            return;
        }
        for member in self.members.iter().filter(is_late) {
            if let Some(cpu) = cpu_of(member.tid.load(Ordering::Relaxed)) {
                late.add(cpu);
            }
        }
    }
}

fn sleep(word: &AtomicU32, value: u32, ns: u64) {
    let time = timespec_of(ns);
    let op = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word and a time that live; woken for whatever reason, the caller looks again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, value, &time) };
}

fn wake(word: &AtomicU32) {
    let op = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: a word of ours.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), op, 1) };
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use locks::{Recorder, Request};

    use super::*;

    /// Threads come to this barrier for so many rounds, each by this time late; what was asked for.
    /// A thread of number n runs on CPU n.
    fn rounds(barrier: &Arc<Barrier>, nr: u64, late: &[Duration]) -> Vec<(u32, Request)> {
        let recorder = Arc::new(Recorder::default());
        let glibc = Arc::new(std::sync::Barrier::new(late.len()));
        barrier.reset(late.len() as u32);
        let come = |(late, tid): (&Duration, i32)| {
            let (late, barrier) = (*late, barrier.clone());
            let (recorder, glibc) = (recorder.clone(), glibc.clone());
            std::thread::spawn(move || {
                let cpu_of = |tid: i32| u32::try_from(tid).ok();
                let round = |_: &u64| {
                    std::thread::sleep(late);
                    let pass = || c_int::from(glibc.wait().is_leader());
                    barrier.wait(tid, 40_000_000, &*recorder, cpu_of, pass) != 0
                };
                (0..nr).filter(round).count() as u64
            })
        };
        let threads: Vec<_> = late.iter().zip(1..).map(come).collect();
        let leaders: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        assert_eq!(leaders, nr, "glibc's barrier is what counts");
        recorder.take()
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// The thread that is late is boosted, in all rounds but the first, and restored in each.
    #[test]
    fn who_is_late_is_boosted() {
        let asked = rounds(&Arc::new(Barrier::empty()), 6, &[ms(0), ms(0), ms(0), ms(60)]);
        let of = |request| asked.iter().filter(|(cpu, what)| *cpu == 4 && *what == request).count();
        assert_eq!(of(Request::Boost), of(Request::Restore), "{asked:?}");
        // on a busy machine others may be later still
        assert!((3..=5).contains(&of(Request::Boost)), "{asked:?}");
    }

    /// Rounds of a millisecond are all watched, of a tenth each tenth.
    #[test]
    fn brief_rounds_are_watched_seldom() {
        let barrier = Barrier::empty();
        barrier.reset(2);
        let next_after = |nr_rounds, ns| {
            let round = barrier.watched.load(Ordering::Relaxed) + nr_rounds;
            barrier.watched_ns.store(now_ns() - ns, Ordering::Relaxed);
            barrier.plan(round);
            barrier.next.load(Ordering::Relaxed) - round
        };
        assert_eq!(next_after(1, 5_000_000), 1);
        // a few brief ones do not hide the long ones
        assert_eq!(next_after(2, 20_000), 1);
        let next = (0..20).fold(0, |_, _| next_after(10, 1_000_000));
        assert!((5..=11).contains(&next), "{next}");
    }

    /// With most threads late there is nothing to boost them with; who watches passes, too.
    #[test]
    fn many_are_not_boosted() {
        let late = [ms(0), ms(40), ms(40), ms(40)];
        let asked = rounds(&Arc::new(Barrier::empty()), 4, &late);
        let boosts = asked.iter().filter(|(_, what)| *what == Request::Boost).count();
        // of three that are late to the same moment one may be late alone, for a moment
        assert!(boosts < 4, "{asked:?}");
    }

    /// A member that comes no more is not waited for.
    #[test]
    fn members_change() {
        let barrier = Barrier::empty();
        barrier.reset(2);
        for tid in 1..=MEMBERS as i32 {
            barrier.note(tid, 0);
        }
        barrier.note(1, 1);
        barrier.note(1000, 2); // no place: those who are gone make room
        barrier.note(1000, 2);
        let mut late = Boosted::NONE;
        let cpu_of = |tid: i32| u32::try_from(tid).ok();
        barrier.find_late(2, cpu_of, &mut late);
        assert_eq!(late.cpus(), [1]);
        barrier.find_late(3, cpu_of, &mut late);
        assert_eq!(late.cpus(), [1, 1000]);
    }
}
