// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small programs, each run in every order. Data under a lock is loom's cell, which reports two
//! threads that touch it without one having seen what the other did.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use crate::barging::Barging;
use crate::barrier::Barrier;
use crate::bell::Bell;
use crate::futex::Futex;
use crate::mcs::Mcs;
use crate::raw::RawLock;
use crate::rwlock::RawRwLock;
use crate::slot::Slot;
use crate::sync::{self, AtomicU32, Ordering};
use crate::ticket::Ticket;
use crate::wait::{Sleep, Spin};

/// Preemptions per execution: most bugs need one or two (CHESS, Musuvathi 2008), and without a
/// bound the models take hours. With three threads one is what fits into a second.
const PREEMPTIONS: usize = 2;
const PREEMPTIONS_OF_THREE: usize = 1;

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

struct Counter<L> {
    lock: L,
    count: UnsafeCell<u32>,
}

// SAFETY: loom itself checks who touches the cell.
unsafe impl<L: Sync> Sync for Counter<L> {}

impl<L: RawLock> Counter<L> {
    fn add(&self) {
        self.lock.lock();
        self.touch();
        // SAFETY: acquired above.
        unsafe { self.lock.unlock() };
    }

    fn touch(&self) {
        // SAFETY: loom itself checks who touches the cell.
        self.count.with_mut(|count| unsafe { *count += 1 });
    }
}

/// `threads` threads, of which the test is one, acquire the lock once each.
pub fn counts<L: RawLock + 'static>(threads: usize, lock: fn() -> L) {
    let bound = if threads > 2 { PREEMPTIONS_OF_THREE } else { PREEMPTIONS };
    check(bound, move || {
        let counter = Arc::new(Counter { lock: lock(), count: UnsafeCell::new(0) });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let counter = counter.clone();
                thread::spawn(move || counter.add())
            })
            .collect();
        counter.add();
        others.into_iter().for_each(|other| other.join().unwrap());
        // SAFETY: all have joined; loom checks that too.
        assert_eq!(counter.count.with(|count| unsafe { *count }), threads as u32);
    });
}

/// One acquires twice and gives back, the other tries, and waits if it must.
fn tries<L: RawLock + 'static>(lock: fn() -> L) {
    check(PREEMPTIONS, move || {
        let counter = Arc::new(Counter { lock: lock(), count: UnsafeCell::new(0) });
        let other = counter.clone();
        let other = thread::spawn(move || {
            other.add();
            other.add();
        });
        if counter.lock.try_lock() {
            counter.touch();
            // SAFETY: acquired above.
            unsafe { counter.lock.unlock() };
        } else {
            counter.add();
        }
        other.join().unwrap();
        // SAFETY: both have finished.
        assert_eq!(counter.count.with(|count| unsafe { *count }), 3);
    });
}

/// A lock in both strategies: by two threads, by three, and tried.
fn excludes_and_wakes<A, B>(spin: fn() -> A, sleep: fn() -> B)
where
    A: RawLock + 'static,
    B: RawLock + 'static,
{
    counts(2, spin);
    counts(2, sleep);
    counts(3, spin);
    counts(3, sleep);
    tries(sleep);
}

#[test]
fn futex_excludes_and_wakes() {
    excludes_and_wakes(|| Futex::new(Spin), || Futex::new(Sleep));
}

#[test]
fn ticket_excludes_and_wakes() {
    excludes_and_wakes(|| Ticket::new(Spin), || Ticket::new(Sleep));
}

#[test]
fn mcs_excludes_and_wakes() {
    excludes_and_wakes(|| Mcs::new(Spin), || Mcs::new(Sleep));
}

#[test]
fn barging_excludes_and_wakes() {
    excludes_and_wakes(|| Barging::new(Spin), || Barging::new(Sleep));
}

struct Shared<W> {
    lock: RawRwLock<Futex<W>, W>,
    data: UnsafeCell<u32>,
}

// SAFETY: loom itself checks who touches the cell.
unsafe impl<W: Sync> Sync for Shared<W> {}

/// Two readers and a writer: a reader sees all or nothing of what was written.
pub fn reads_and_writes<W: crate::wait::Wait + Default + 'static>() {
    check(PREEMPTIONS_OF_THREE, || {
        let lock = RawRwLock::new(Futex::new(W::default()), W::default());
        let shared = Arc::new(Shared { lock, data: UnsafeCell::new(0) });
        let reads = |shared: &Shared<W>| {
            shared.lock.read();
            // SAFETY: loom itself checks who touches the cell.
            let seen = shared.data.with(|data| unsafe { *data });
            assert!(seen == 0 || seen == 2);
            // SAFETY: acquired above.
            unsafe { shared.lock.done_reading() };
        };
        let reader = shared.clone();
        let reader = thread::spawn(move || reads(&reader));
        let writer = shared.clone();
        let writer = thread::spawn(move || {
            writer.lock.write();
            // SAFETY: loom itself checks who touches the cell.
            writer.data.with_mut(|data| unsafe { *data += 1 });
            // SAFETY: as above.
            writer.data.with_mut(|data| unsafe { *data += 1 });
            // SAFETY: acquired above.
            unsafe { writer.lock.done_writing() };
        });
        reads(&shared);
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

#[test]
fn readers_share_and_writers_exclude() {
    reads_and_writes::<Spin>();
    reads_and_writes::<Sleep>();
}

struct Meeting<W> {
    barrier: Barrier<W>,
    data: [UnsafeCell<u32>; 2],
}

// SAFETY: loom itself checks who touches the cells.
unsafe impl<W: Sync> Sync for Meeting<W> {}

/// Two threads write, meet, and read what the other has written; twice.
pub fn meetings<W: crate::wait::Wait + Default + 'static>() {
    check(PREEMPTIONS, || {
        let data = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let meeting = Arc::new(Meeting { barrier: Barrier::new(2, W::default()), data });
        let takes_part = |meeting: &Meeting<W>, me: usize| {
            for round in 1..=2 {
                // SAFETY: loom itself checks who touches the cell.
                meeting.data[me].with_mut(|data| unsafe { *data = round });
                meeting.barrier.wait();
                // SAFETY: as above.
                let seen = meeting.data[1 - me].with(|data| unsafe { *data });
                assert_eq!(seen, round);
                meeting.barrier.wait();
            }
        };
        let other = meeting.clone();
        let other = thread::spawn(move || takes_part(&other, 1));
        takes_part(&meeting, 0);
        other.join().unwrap();
    });
}

#[test]
fn nobody_passes_a_barrier_alone() {
    meetings::<Spin>();
    meetings::<Sleep>();
}

/// A server, its bell, and one desk with a number that the slot's word makes the client's or the
/// server's.
struct Office {
    bell: Bell,
    closing: AtomicU32,
    slot: Slot,
    number: UnsafeCell<u32>,
}

// SAFETY: loom itself checks who touches the cell.
unsafe impl Sync for Office {}

impl Office {
    fn serve(&self) {
        self.bell.serve(|| {
            let closing = self.closing.load(Ordering::Acquire);
            if self.slot.is_posted() {
                // SAFETY: loom itself checks who touches the cell.
                self.number.with_mut(|number| unsafe { *number += 1 });
                self.slot.done();
            }
            closing == 0
        });
    }

    fn ask(&self, number: u32) {
        while !self.slot.claim() {
            sync::give_way();
        }
        // SAFETY: loom itself checks who touches the cell.
        self.number.with_mut(|desk| unsafe { *desk = number });
        self.slot.post();
        self.bell.ring();
        self.slot.await_done();
        // SAFETY: as above.
        assert_eq!(self.number.with(|desk| unsafe { *desk }), number + 1);
        self.slot.free();
    }
}

/// So many clients ask a server once each, and each gets its answer; the server ends when it is
/// told to.
pub fn answers(clients: u32) {
    let bound = if clients > 1 { PREEMPTIONS_OF_THREE } else { PREEMPTIONS };
    check(bound, move || {
        let office = Arc::new(Office {
            bell: Bell::default(),
            closing: AtomicU32::new(0),
            slot: Slot::new(),
            number: UnsafeCell::new(0),
        });
        let here = office.clone();
        let server = thread::spawn(move || here.serve());
        let others: Vec<_> = (1..clients)
            .map(|client| {
                let office = office.clone();
                thread::spawn(move || office.ask(10 * client))
            })
            .collect();
        office.ask(0);
        others.into_iter().for_each(|other| other.join().unwrap());
        office.closing.store(1, Ordering::Release);
        office.bell.ring();
        server.join().unwrap();
    });
}

#[test]
fn every_client_of_a_server_is_answered() {
    answers(1);
    answers(2);
}
