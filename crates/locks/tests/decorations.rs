// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happens beside a lock, and in which order.

use std::sync::{Arc, Mutex as StdMutex};
use std::thread;

use locks::sys::{Affinity, current_cpu};
use locks::{
    Cost, Costs, CpuFrequency, Decorated, Decoration, Futex, Hybrid, Mcs, Mode, MoveHolder, Mutex,
    NoFrequency, OtherCore, Owner, Plain, RawLock, Recorder, Request, Server, Sleep, Spin,
    Strategy,
};

/// Puts this thread on one of its CPUs, so that "the current CPU" has one answer.
fn stay() -> u32 {
    let allowed = Affinity::current().unwrap();
    let cpu = (0..1024).find(|cpu| allowed.has(*cpu)).unwrap();
    Affinity::one(cpu).unwrap().apply().unwrap();
    assert_eq!(current_cpu(), cpu);
    cpu
}

#[test]
fn the_owner_is_boosted_and_restored() {
    let cpu = stay();
    let recorder = Arc::new(Recorder::default());
    let lock = Mutex::new(Decorated::new(Mcs::new(Spin), Owner::new(recorder.clone())), ());
    let held = lock.lock();
    assert_eq!(recorder.take(), [(cpu, Request::Boost)]);
    assert!(lock.try_lock().is_none());
    assert_eq!(recorder.take(), []);
    drop(held);
    assert_eq!(recorder.take(), [(cpu, Request::Restore)]);
}

#[test]
fn a_waiter_is_slowed_and_then_boosted() {
    let recorder = Arc::new(Recorder::default());
    let lock = Arc::new(Decorated::new(Mcs::new(Sleep), Owner::new(recorder.clone())));
    lock.lock();
    let other = lock.clone();
    let waiter = thread::spawn(move || {
        let cpu = stay();
        other.lock();
        // SAFETY: acquired above.
        unsafe { other.unlock() };
        cpu
    });
    let mut requests = recorder.take();
    while !requests.iter().any(|(_, request)| *request == Request::Slow) {
        thread::yield_now();
        requests.extend(recorder.take());
    }
    // SAFETY: acquired above.
    unsafe { lock.unlock() };
    let cpu = waiter.join().unwrap();
    requests.extend(recorder.take());
    // The first owner's own restore comes after its release, so anywhere behind the slowing; ours
    // are the last boost and one of the restores.
    let kinds: Vec<Request> = requests.iter().map(|(_, request)| *request).collect();
    assert_eq!(kinds[..2], [Request::Boost, Request::Slow], "{requests:?}");
    assert_eq!(
        kinds.iter().filter(|request| **request == Request::Boost).count(),
        2,
        "{requests:?}"
    );
    assert_eq!(
        kinds.iter().filter(|request| **request == Request::Restore).count(),
        2,
        "{requests:?}"
    );
    assert!(requests.contains(&(cpu, Request::Slow)) && requests.contains(&(cpu, Request::Boost)));
}

/// What somebody else writes as a decoration: the order of the calls.
struct Diary(StdMutex<Vec<&'static str>>);

impl Diary {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }
}

impl Decoration for Diary {
    type Waited = ();
    type Held = &'static str;

    fn waiting(&self) {
        self.note("waiting");
    }
    fn acquired(&self, waited: Option<()>) {
        self.note(if waited.is_some() { "acquired after a wait" } else { "acquired" });
    }
    fn waited(&self, _waited: ()) {
        self.note("waited");
    }
    fn releasing(&self) -> &'static str {
        self.note("releasing");
        "released"
    }
    fn released(&self, held: &'static str) {
        self.note(held);
    }
}

#[test]
fn a_decoration_is_called_around_the_section() {
    let lock = Decorated::new(Futex::new(Spin), Diary(StdMutex::default()));
    lock.lock();
    lock.decoration().note("section");
    // SAFETY: acquired above.
    unsafe { lock.unlock() };
    lock.lock_contended();
    // SAFETY: acquired above.
    unsafe { lock.unlock() };
    let expected = [
        "acquired",
        "section",
        "releasing",
        "released",
        "waiting",
        "acquired after a wait",
        "releasing",
        "released",
    ];
    assert_eq!(*lock.decoration().0.lock().unwrap(), expected);
}

/// Decorations that are none take no room.
#[test]
fn an_absent_decoration_has_no_size() {
    assert_eq!(size_of::<Decorated<Futex<Spin>, Plain>>(), size_of::<Futex<Spin>>());
    assert_eq!(size_of::<Futex<Sleep>>(), 4);
}

/// Panics at the first section only.
struct Startle(std::sync::atomic::AtomicBool);

impl Decoration for Startle {
    type Waited = ();
    type Held = ();

    fn waiting(&self) {}
    fn acquired(&self, _waited: Option<()>) {
        assert!(self.0.swap(true, std::sync::atomic::Ordering::Relaxed), "on purpose");
    }
    fn waited(&self, _waited: ()) {}
    fn releasing(&self) {}
    fn released(&self, _held: ()) {}
}

#[test]
fn a_decoration_that_panics_leaves_the_lock_free() {
    let lock = Mutex::new(Decorated::new(Mcs::new(Spin), Startle(false.into())), 1);
    let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(lock.lock())));
    assert!(panics.is_err());
    assert_eq!(lock.try_lock().map(|value| *value), Some(1));
}

/// All requests of a delegate are carried out in order, or overtaken by later ones; what it touched
/// is restored when it ends.
#[test]
fn a_delegate_carries_requests_out_and_cleans_up() {
    let recorder = Arc::new(Recorder::default());
    let delegate = OtherCore::new(recorder.clone(), 4, None).unwrap();
    delegate.boost(2);
    let mut done = Vec::new();
    while done.is_empty() {
        thread::yield_now();
        done.extend(recorder.take());
    }
    assert_eq!(done, [(2, Request::Boost)]);
    for _ in 0..100 {
        delegate.slow(1);
        delegate.boost(1);
    }
    delegate.boost(4); // there is no such CPU
    drop(delegate);
    let done = recorder.take();
    assert!(done.contains(&(1, Request::Boost)), "{done:?}");
    assert_eq!(done[done.len() - 2..], [(1, Request::Restore), (2, Request::Restore)], "{done:?}");
    assert!(done.iter().all(|(cpu, _)| *cpu == 1 || *cpu == 2), "{done:?}");
}

#[test]
fn a_delegate_on_a_cpu_that_is_not_there_fails() {
    assert!(OtherCore::new(NoFrequency, 1, Some(100_000)).is_err());
    assert!(OtherCore::new(NoFrequency, 1, Some(1_000)).is_err());
    assert!(Server::new(Some(1_000)).is_err());
}

#[test]
fn a_holder_moves_there_and_back() {
    let allowed = Affinity::current().unwrap();
    let target = (0..1024).rev().find(|cpu| allowed.has(*cpu)).unwrap();
    let lock = Mutex::new(Decorated::new(Mcs::new(Spin), MoveHolder::new(target).unwrap()), ());
    let held = lock.lock();
    assert_eq!(current_cpu(), target);
    assert_eq!(Affinity::current().unwrap().count(), 1);
    drop(held);
    assert_eq!(Affinity::current().unwrap().count(), allowed.count());
}

/// Sections of many clients run one at a time on the server; their results come back, and so do
/// their panics.
#[test]
fn a_server_runs_sections_one_at_a_time() {
    let server = Server::new(None).unwrap();
    let (inside, count) = (StdMutex::new(()), StdMutex::new(0));
    let there = server.run(|| thread::current().id());
    assert_ne!(there, thread::current().id());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let id = server.run(|| {
                        let alone = inside.try_lock().expect("sections exclude each other");
                        *count.lock().unwrap() += 1;
                        drop(alone);
                        thread::current().id()
                    });
                    assert_eq!(id, there);
                }
            });
        }
    });
    assert_eq!(*count.lock().unwrap(), 800);
    let section = std::panic::AssertUnwindSafe(|| server.run(|| panic!("on purpose")));
    let panics: Result<(), _> = std::panic::catch_unwind(section);
    assert_eq!(panics.unwrap_err().downcast_ref(), Some(&"on purpose"));
    assert_eq!(server.run(|| 7), 7);
}

/// A lock with sections above the break-even boosts, below it does not; and it stays whole while it
/// changes.
#[test]
fn a_hybrid_does_what_pays() {
    let cpu = stay();
    let recorder = Arc::new(Recorder::default());
    let spin = Some(Cost { overhead_ticks: 0.0, clock_ratio: 1.0 });
    // break-even at 50,000 ticks
    let boost = Some(Cost { overhead_ticks: 10_000.0, clock_ratio: 1.25 });
    let mode = Mode::new();
    let costs = Costs([spin, None, boost, None]);
    let lock = Mutex::new(Hybrid::lock(&mode, costs, recorder.clone(), None), 0_u64);
    for _ in 0..100 {
        *lock.lock() += 1;
    }
    assert_eq!((mode.strategy(), recorder.take().len()), (Strategy::Spin, 0));
    for _ in 0..100 {
        let mut held = lock.lock();
        *held += 1;
        let begun = locks::sys::ticks();
        while locks::sys::ticks() - begun < 500_000 {
            std::hint::spin_loop();
        }
    }
    assert_eq!(mode.strategy(), Strategy::Boost);
    let requests = recorder.take();
    let last = &requests[requests.len() - 2..];
    assert_eq!(last, [(cpu, Request::Boost), (cpu, Request::Restore)]);
    assert_eq!(*lock.lock(), 200);
}
