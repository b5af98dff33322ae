// SPDX-License-Identifier: MIT OR Apache-2.0
//! Locks that are held across a fork: the child has a copy, held by its only thread.

use std::fs;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;

use locks::{
    Barging, Block, CpuFrequency, Decorated, Futex, Mcs, NoFrequency, OtherCore, Owner, RawLock,
    Server, Sleep, Ticket,
};

/// What a child that hangs is ended by.
const PATIENCE_S: u32 = 10;

/// Whether `act` is true in a child, which then ends at once.
fn in_child(act: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs `act` alone, and ends without anything of the test harness. What `act`
    // takes are locks of its own; glibc's allocator works in children.
    match unsafe { libc::fork() } {
        // SAFETY: ends the child, in time.
        0 => unsafe {
            libc::alarm(PATIENCE_S);
            libc::_exit(i32::from(!act()))
        },
        child => {
            let mut status = 0;
            // SAFETY: a child of ours, and a number of ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "the child hangs, or crashed: {status:#x}");
            libc::WEXITSTATUS(status) == 0
        }
    }
}

/// Whether a child can release the lock, and take it again; this process can afterwards in any
/// case.
fn child_goes_on<L: RawLock>(lock: &L) -> bool {
    let goes_on = in_child(|| {
        // SAFETY: acquired by the caller.
        unsafe { lock.unlock() };
        let is_taken = lock.try_lock();
        if is_taken {
            // SAFETY: acquired above.
            unsafe { lock.unlock() };
        }
        is_taken
    });
    // SAFETY: acquired by the caller.
    unsafe { lock.unlock() };
    lock.lock();
    // SAFETY: acquired above.
    unsafe { lock.unlock() };
    goes_on
}

fn alone<L: RawLock>(lock: &L) -> bool {
    lock.lock();
    child_goes_on(lock)
}

/// The same while another thread of this process waits.
fn beside_a_waiter<L: RawLock>(lock: &L) -> bool {
    lock.lock();
    let waiter = AtomicI32::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: no memory.
            waiter.store(unsafe { libc::gettid() }, Ordering::Release);
            lock.lock();
            // SAFETY: acquired above.
            unsafe { lock.unlock() };
        });
        while !is_asleep(waiter.load(Ordering::Acquire)) {
            thread::yield_now();
        }
        child_goes_on(lock)
    })
}

/// Whether this thread of the process sleeps.
fn is_asleep(tid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('S'))
}

fn boosted<L: RawLock>(lock: L) -> Decorated<L, Owner<NoFrequency>> {
    Decorated::new(lock, Owner::new(NoFrequency))
}

/// Without waiters every lock is the child's, boosted or not.
#[test]
fn a_held_lock_is_the_childs() {
    assert!(alone(&Futex::new(Sleep)));
    assert!(alone(&boosted(Futex::new(Sleep))));
    assert!(alone(&boosted(Ticket::new(Block))));
    assert!(alone(&boosted(Mcs::new(Sleep))));
    assert!(alone(&boosted(Barging::new(Sleep))));
}

/// Threads that wait are not in the child. A lock without a queue does not know of them; one with a
/// queue goes to the first of them, which is not there, and stays taken.
#[test]
fn queues_do_not_outlive_a_fork_fails() {
    assert!(beside_a_waiter(&boosted(Futex::new(Sleep))));
    assert!(beside_a_waiter(&boosted(Barging::new(Sleep))));
    assert!(!beside_a_waiter(&boosted(Ticket::new(Sleep))));
    assert!(!beside_a_waiter(&boosted(Mcs::new(Sleep))));
}

/// A server's thread is the parent's: in the child requests go nowhere, and its end waits for no
/// thread that is not there.
#[test]
fn servers_end_in_a_child() {
    let mut both =
        Some((OtherCore::new(NoFrequency, 2, None).unwrap(), Server::new(None).unwrap()));
    let ends = in_child(|| {
        both.take().is_some_and(|(delegate, server)| {
            delegate.boost(1);
            // The child's own server may get the memory of the thread that is not there.
            let Ok(own) = Server::new(None) else { return false };
            drop((delegate, server));
            let runs = own.run(|| 7) == 7;
            drop(own);
            runs
        })
    });
    assert!(ends, "the child waits for a thread of its parent");
    let (delegate, server) = both.expect("the parent's");
    delegate.boost(1);
    assert_eq!(server.run(|| 7), 7);
}
