// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of `bpf/arrivals.bpf.h` in every order: a task that only one CPU may run is queued
//! while that CPU goes to sleep. It must not sleep on.
//!
//! The kernel's parts are modelled as they are: a kick is decided under the CPU's runqueue lock and
//! does something to an idle CPU only; a CPU that is kicked looks again, and when it finds nothing
//! its idle bit is set again, without `ops.update_idle()`. Another CPU may claim it
//! meanwhile for a task that is gone when it looks. What the BPF programs do is one step each;
//! [`Part`] names those that can be left out, and without any of them a task is lost.

use loom::model::Builder;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Times that the CPU sleeps: once, and once more behind a kick for nothing.
const NAPS: usize = 2;

/// A step that closes a window of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// `tl_update_idle` compares the sum.
    UpdateIdle,
    /// Who has begun to watch a word goes through the queues once more.
    SecondLook,
    /// The later look counts again.
    LaterCount,
    /// It kicks CPUs between task and idle.
    LaterKick,
    /// It claims idle CPUs.
    LaterClaim,
}

/// Plain loads and stores as x86 orders them; its locked instructions are full barriers besides.
const LOAD: Ordering = Ordering::Acquire;
const STORE: Ordering = Ordering::Release;

/// Lowest bit of the word that counts: somebody may have noted it.
const WATCHED: u64 = 1;

/// The CPU under its runqueue lock.
#[derive(Default)]
struct Runqueue {
    idles: bool,
    resched: bool,
}

#[derive(Default)]
struct Machine {
    arrivals: AtomicU64,
    idle_bit: AtomicBool,
    /// `running_queue` is TL_Q_NONE.
    between: AtomicBool,
    /// Length of the queue; who takes from it or adds to it holds its lock.
    queued: AtomicBool,
    queue_lock: Mutex<()>,
    runqueue: Mutex<Runqueue>,
    quiet_at: AtomicU64,
    left_out: Option<Part>,
}

impl Machine {
    fn has(&self, part: Part) -> bool {
        self.left_out != Some(part)
    }

    /// `count_arrival`. An atomic read-modify-write of x86 is a full barrier; if nobody watches
    /// there is none.
    fn count(&self) {
        if self.arrivals.load(LOAD) & WATCHED != 0 {
            self.arrivals.fetch_add(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
        }
    }

    /// `watch_shard`.
    fn watch(&self) -> u64 {
        let word = self.arrivals.load(LOAD);
        if word & WATCHED != 0 {
            return word;
        }
        let word = self.arrivals.fetch_or(WATCHED, Ordering::SeqCst) | WATCHED;
        fence(Ordering::SeqCst);
        word
    }

    fn claim(&self) -> bool {
        let claimed = self.idle_bit.swap(false, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        claimed
    }

    /// `scx_bpf_kick_cpu(TL_KICK_IDLE)`, when its interrupt work runs.
    fn kick(&self) {
        let mut runqueue = self.runqueue.lock().unwrap();
        runqueue.resched |= runqueue.idles;
    }

    /// `tl_enqueue`, and the later look of the CPU that it ran on.
    fn queue_task(&self) {
        self.count();
        let claimed = self.claim();
        {
            let _lock = self.queue_lock.lock().unwrap();
            self.queued.store(true, STORE);
        }
        if claimed {
            self.kick();
        }
        // Behind the exchange that takes the note.
        fence(Ordering::SeqCst);
        if self.has(Part::LaterCount) {
            self.count();
        }
        let between = self.between.load(LOAD) && !self.idle_bit.load(LOAD);
        if between && self.has(Part::LaterKick) {
            self.kick();
        }
        let waits = self.queued.load(LOAD);
        if waits && self.has(Part::LaterClaim) && self.claim() {
            self.kick();
        }
    }

    /// Somebody claims the CPU for a task that is gone when it looks.
    fn claim_for_nothing(&self) {
        if self.claim() {
            self.kick();
        }
    }

    /// A look through the queues: whether there was a task.
    fn look(&self) -> bool {
        if !self.queued.load(LOAD) {
            return false;
        }
        let _lock = self.queue_lock.lock().unwrap();
        self.queued.store(false, STORE);
        true
    }

    /// `take`.
    fn take(&self) -> bool {
        let arrivals = self.arrivals.load(LOAD);
        if self.look() {
            return true;
        }
        let watched = self.watch();
        if watched != arrivals && self.has(Part::SecondLook) && self.look() {
            return true;
        }
        self.quiet_at.store(watched, STORE);
        false
    }

    /// `tl_dispatch` when the CPU's task leaves it or it idled, and what the kernel does if nothing
    /// was found.
    fn goes_idle(&self, runqueue: &mut Runqueue) -> bool {
        let idled = std::mem::replace(&mut runqueue.idles, false);
        let quiet = !idled && self.quiet_at.load(LOAD) == self.arrivals.load(LOAD);
        self.between.store(true, STORE);
        fence(Ordering::SeqCst);
        if !quiet && self.take() {
            return true;
        }
        runqueue.idles = true;
        self.idle_bit.swap(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let sum = self.arrivals.load(LOAD);
        if !idled && self.has(Part::UpdateIdle) && sum != self.quiet_at.load(LOAD) {
            runqueue.resched = true;
        }
        false
    }

    /// The CPU, from its last task on, until it has no reason to look again or was kicked [`NAPS`]
    /// times. Whether it took the task.
    fn sleeps(&self, looks_first: bool) -> bool {
        if looks_first {
            let _runqueue = self.runqueue.lock().unwrap();
            if self.take() {
                return true;
            }
        }
        for _ in 0..NAPS {
            let mut runqueue = self.runqueue.lock().unwrap();
            while {
                runqueue.resched = false;
                if self.goes_idle(&mut runqueue) {
                    return true;
                }
                runqueue.resched
            } {}
            drop(runqueue);
            thread::yield_now();
            if !self.runqueue.lock().unwrap().resched {
                break;
            }
        }
        false
    }
}

/// What happens besides.
#[derive(Clone, Copy)]
struct Scene {
    /// The CPU's last task goes on once, beside queues that are looked through; its next look may
    /// be spared.
    looks_first: bool,
    /// The word is watched already.
    watched: bool,
    /// Somebody claims the CPU for a task that is gone when it looks.
    claimed_for_nothing: bool,
    /// Somebody counts a task that a third CPU takes.
    counted_besides: bool,
}

const SCENES: [Scene; 6] = {
    const NONE: Scene = Scene {
        looks_first: false,
        watched: false,
        claimed_for_nothing: false,
        counted_besides: false,
    };
    [
        NONE,
        Scene { looks_first: true, ..NONE },
        Scene { looks_first: true, watched: true, ..NONE },
        Scene { claimed_for_nothing: true, ..NONE },
        Scene { counted_besides: true, ..NONE },
        Scene { counted_besides: true, watched: true, ..NONE },
    ]
};

/// Runs it in every order with at most three preemptions; panics if the CPU sleeps beside the task.
fn nobody_is_lost(left_out: Option<Part>, scene: Scene) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let machine = Arc::new(Machine { left_out, ..Machine::default() });
        // What is not 0 is a sum: no look has been in vain yet.
        machine.arrivals.fetch_add(2 | u64::from(scene.watched), Ordering::SeqCst);
        let queues = Arc::clone(&machine);
        let mut others = vec![thread::spawn(move || queues.queue_task())];
        if scene.claimed_for_nothing {
            let claims = Arc::clone(&machine);
            others.push(thread::spawn(move || claims.claim_for_nothing()));
        }
        if scene.counted_besides {
            let counts = Arc::clone(&machine);
            others.push(thread::spawn(move || counts.count()));
        }
        let took = machine.sleeps(scene.looks_first);
        others.into_iter().for_each(|other| other.join().unwrap());
        let runqueue = machine.runqueue.lock().unwrap();
        assert!(took || runqueue.resched, "the CPU sleeps beside a task that it may run");
    });
}

fn fails(left_out: Part) -> bool {
    SCENES
        .into_iter()
        .any(|scene| std::panic::catch_unwind(|| nobody_is_lost(Some(left_out), scene)).is_err())
}

#[test]
fn no_task_is_lost() {
    SCENES.into_iter().for_each(|scene| nobody_is_lost(None, scene));
}

#[test]
fn a_task_is_lost_without_any_one_of_the_steps() {
    for part in
        [Part::UpdateIdle, Part::SecondLook, Part::LaterCount, Part::LaterKick, Part::LaterClaim]
    {
        assert!(fails(part), "nothing depends on {part:?}");
    }
}
