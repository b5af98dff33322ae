// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many threads on few CPUs, with all strategies: what a lock protects stays consistent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier as StdBarrier};
use std::thread;

use locks::{
    Barging, Barrier, Block, Decorated, Futex, Mcs, Mutex, NoFrequency, Owner, Plain, RawLock,
    RwLock, Sleep, Spin, Ticket,
};

const THREADS: usize = 6;
const ROUNDS: u64 = 400;

/// Two numbers that only the lock keeps equal, and a check that nobody else is inside. The writes
/// are plain and the second is late: without exclusion they differ within a few rounds, as
/// `the_check_sees_a_lock_that_excludes_nobody` shows.
struct Account {
    left: u64,
    right: u64,
}

/// Increments left, lets others run now and then, increments right; half of the threads try first.
fn hammer<L: RawLock + 'static>(lock: L) -> (u64, u64) {
    let account = Arc::new(Mutex::new(lock, Account { left: 0, right: 0 }));
    let start = Arc::new(StdBarrier::new(THREADS));
    let workers: Vec<_> = (0..THREADS)
        .map(|me| {
            let (account, start) = (account.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                for round in 0..ROUNDS {
                    let tried = if me % 2 == 0 { account.try_lock() } else { None };
                    let mut inside = tried.unwrap_or_else(|| account.lock());
                    // A compiler may not fold the two reads into one.
                    let (left, right) =
                        (std::hint::black_box(inside.left), std::hint::black_box(inside.right));
                    assert_eq!(left, right, "two threads are inside");
                    inside.left = left + 1;
                    if round % 64 == me as u64 {
                        thread::yield_now();
                    }
                    inside.right = right + 1;
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().expect("the account was whole"));
    let account = account.lock();
    (account.left, account.right)
}

const ALL: u64 = THREADS as u64 * ROUNDS;

macro_rules! stress {
    ($($name:ident: $lock:expr;)*) => {
        $(
            #[test]
            fn $name() {
                assert_eq!(hammer($lock), (ALL, ALL));
            }
        )*
    };
}

stress! {
    futex_spin: Futex::new(Spin);
    futex_block: Futex::new(Block);
    futex_sleep: Futex::new(Sleep);
    ticket_spin: Ticket::new(Spin);
    ticket_block: Ticket::new(Block);
    ticket_sleep: Ticket::new(Sleep);
    mcs_spin: Mcs::new(Spin);
    mcs_block: Mcs::new(Block);
    mcs_sleep: Mcs::new(Sleep);
    barging_spin: Barging::new(Spin);
    barging_block: Barging::new(Block);
    barging_sleep: Barging::new(Sleep);
    plain: Decorated::new(Mcs::new(Block), Plain);
    owner: Decorated::new(Mcs::new(Block), Owner::new(NoFrequency));
}

/// A lock that excludes nobody: the test that the stress test is one.
struct Open;

// SAFETY: it is none; the test below shows that this is noticed. The data are two integers, written
// and read whole on this machine.
unsafe impl RawLock for Open {
    fn try_lock(&self) -> bool {
        true
    }
    fn lock_contended(&self) {}
    unsafe fn unlock(&self) {}
}

#[test]
fn the_check_sees_a_lock_that_excludes_nobody() {
    let seen = std::panic::catch_unwind(|| hammer(Open));
    assert!(seen.is_err() || seen.is_ok_and(|counts| counts != (ALL, ALL)));
}

#[test]
fn readers_see_whole_writes() {
    let lock = Arc::new(RwLock::new(Mcs::new(Block), Block, Account { left: 0, right: 0 }));
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (lock, stop) = (lock.clone(), stop.clone());
            thread::spawn(move || {
                let mut last = 0;
                while !stop.load(Ordering::Relaxed) {
                    let now = lock.read();
                    assert_eq!(now.left, now.right);
                    assert!(now.left >= last);
                    last = now.left;
                    drop(now);
                    thread::yield_now();
                }
            })
        })
        .collect();
    let writers: Vec<_> = (0..2)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let mut now = lock.write();
                    now.left += 1;
                    now.right += 1;
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(lock.try_write().is_some_and(|now| now.left == 2 * ROUNDS));
    let reading = lock.read();
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(reading);
}

#[test]
fn a_barrier_lets_nobody_pass_before_the_last() {
    let (barrier, counts) = (Barrier::new(4, Block), Mutex::new(Mcs::new(Block), [0_u32; 4]));
    let leaders = Mutex::new(Futex::new(Block), 0);
    thread::scope(|scope| {
        for me in 0..4 {
            let (barrier, counts, leaders) = (&barrier, &counts, &leaders);
            scope.spawn(move || {
                for round in 1..=200 {
                    counts.lock()[me] = round;
                    if barrier.wait_decorated(&Owner::new(NoFrequency)) {
                        *leaders.lock() += 1;
                    }
                    assert!(counts.lock().iter().all(|&count| count == round));
                    barrier.wait();
                }
            });
        }
    });
    assert_eq!(*leaders.lock(), 200);
}

/// A panic inside gives the lock back, and what was written so far stays.
#[test]
fn a_panic_inside_releases() {
    let lock = Arc::new(Mutex::new(Mcs::new(Block), 0));
    let other = lock.clone();
    let died = thread::spawn(move || {
        let mut inside = other.lock();
        *inside = 7;
        panic!("on purpose");
    });
    assert!(died.join().is_err());
    assert_eq!(lock.try_lock().map(|inside| *inside), Some(7));
}
