// SPDX-License-Identifier: MIT OR Apache-2.0
//! First come, first served: waiters get the lock in the order in which they came.
//!
//! A waiter is known to have come when the lock says so: the test holds the lock, starts one waiter
//! at a time, and waits until that one sleeps in the kernel, which /proc shows.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use locks::{Barging, Futex, Mcs, Mutex, RawLock, Sleep, Spin, Ticket};

const WAITERS: usize = 6;

/// The order in which waiters that came as 0, 1, 2, ... were served.
fn order_of_service<L: RawLock + 'static>(lock: L) -> Vec<usize> {
    let served = Arc::new(Mutex::new(lock, Vec::new()));
    let held = served.lock();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|number| {
            let (served, (tell, told)) = (served.clone(), mpsc::channel());
            let waiter = thread::spawn(move || {
                // SAFETY: no arguments.
                tell.send(unsafe { libc::gettid() }).unwrap();
                served.lock().push(number);
            });
            await_sleep(told.recv().unwrap());
            waiter
        })
        .collect();
    drop(held);
    waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    let served = served.lock();
    served.clone()
}

/// Waits until the thread sleeps. It sleeps for the lock: it does nothing else that sleeps.
fn await_sleep(thread: i32) {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let state = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // "number (name) state ...": the name may hold blanks
        if state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return;
        }
        assert!(Instant::now() < deadline, "the waiter never slept: {state}");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn ticket_serves_in_the_order_of_arrival() {
    assert_eq!(order_of_service(Ticket::new(Sleep)), (0..WAITERS).collect::<Vec<_>>());
}

#[test]
fn mcs_serves_in_the_order_of_arrival() {
    assert_eq!(order_of_service(Mcs::new(Sleep)), (0..WAITERS).collect::<Vec<_>>());
}

/// Who waits is served in the order of arrival if nobody passes.
#[test]
fn barging_serves_waiters_in_the_order_of_arrival() {
    assert_eq!(order_of_service(Barging::new(Sleep)), (0..WAITERS).collect::<Vec<_>>());
}

/// Who takes the lock again and again passes a waiter only until its patience ends.
#[test]
fn barging_ends_for_the_patient() {
    let lock = Arc::new(Barging::new(Spin));
    let served = Arc::new(AtomicBool::new(false));
    lock.lock();
    let waiter = thread::spawn({
        let (lock, served) = (lock.clone(), served.clone());
        move || {
            lock.lock();
            served.store(true, Ordering::SeqCst);
            // SAFETY: acquired above.
            unsafe { lock.unlock() };
        }
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    while !served.load(Ordering::SeqCst) {
        assert!(Instant::now() < deadline, "the waiter is passed for ever");
        // SAFETY: acquired before the loop, or below.
        unsafe { lock.unlock() };
        lock.lock();
    }
    // SAFETY: acquired above.
    unsafe { lock.unlock() };
    waiter.join().unwrap();
}

/// Everybody is served by the lock that promises no order.
#[test]
fn futex_serves_all() {
    let mut served = order_of_service(Futex::new(Sleep));
    served.sort_unstable();
    assert_eq!(served, (0..WAITERS).collect::<Vec<_>>());
}
