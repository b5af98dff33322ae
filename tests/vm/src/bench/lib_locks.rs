// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `lib`: what a lock costs without contention, and what two threads get through one
//! with a short section; beside glibc's mutex and parking_lot's in the same run. On this machine,
//! no guest.
//!
//! A repetition takes one batch of each lock in turn, and a ratio is that of two batches of one
//! repetition, so that what else runs on the machine hits both. A batch without contention is short
//! (tens of microseconds), and the least of some batches is taken: interference only adds. The
//! median over repetitions counts, and the worst lock of each kind is reported.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use anyhow::Result;
use locks::{
    Barging, Block, Decorated, Futex, Mcs, NoFrequency, Owner, Plain, RawLock, Spin, Ticket,
};

use crate::measure::{Figure, publish};

/// Repetitions without and with contention.
const N_ALONE: usize = 31;
const N_TWO: usize = 9;
/// Lock and unlock so often in a batch, and batches of which the least counts.
const BATCH: u32 = 2_000;
const BATCHES: usize = 5;
/// How long two threads compete in a repetition.
const COMPETE: Duration = Duration::from_millis(60);

/// glibc's.
struct Pthread(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is made to be shared.
unsafe impl Sync for Pthread {}
// SAFETY: it is moved before its first use only.
unsafe impl Send for Pthread {}

// SAFETY: glibc's mutex excludes and publishes.
unsafe impl RawLock for Pthread {
    fn try_lock(&self) -> bool {
        // SAFETY: initialised by PTHREAD_MUTEX_INITIALIZER and not moved since.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }
    fn lock_contended(&self) {
        self.lock();
    }
    #[inline]
    fn lock(&self) {
        // SAFETY: as above.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: as above; the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

fn pthread() -> Pthread {
    Pthread(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
}

/// parking_lot's.
struct Parking(parking_lot::RawMutex);

// SAFETY: parking_lot's mutex excludes and publishes.
unsafe impl RawLock for Parking {
    fn try_lock(&self) -> bool {
        parking_lot::lock_api::RawMutex::try_lock(&self.0)
    }
    fn lock_contended(&self) {
        self.lock();
    }
    #[inline]
    fn lock(&self) {
        parking_lot::lock_api::RawMutex::lock(&self.0);
    }
    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds it.
        unsafe { parking_lot::lock_api::RawMutex::unlock(&self.0) };
    }
}

fn parking() -> Parking {
    Parking(parking_lot::lock_api::RawMutex::INIT)
}

/// Time of a lock and unlock, ns.
fn alone<L: RawLock>(lock: &L) -> f64 {
    let batch = |_| {
        let begun = Instant::now();
        for _ in 0..BATCH {
            let lock = black_box(lock);
            lock.lock();
            // SAFETY: acquired above.
            unsafe { lock.unlock() };
        }
        begun.elapsed().as_nanos() as f64 / f64::from(BATCH)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

/// The data of the section: a line of its own.
#[repr(align(128))]
struct Data(UnsafeCell<[u64; 4]>);

// SAFETY: touched under the lock only.
unsafe impl Sync for Data {}
// SAFETY: plain numbers.
unsafe impl Send for Data {}

/// Sections per microsecond of two threads that do nothing else.
fn two<L: RawLock + 'static>(lock: L) -> Result<f64> {
    let shared = Arc::new((lock, Data(UnsafeCell::new([0; 4])), AtomicBool::new(false)));
    let start = Arc::new(Barrier::new(3));
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let (shared, start) = (shared.clone(), start.clone());
            std::thread::spawn(move || {
                let (lock, data, stop) = &*shared;
                start.wait();
                let mut sections = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    lock.lock();
                    // SAFETY: under the lock.
                    let data = unsafe { &mut *data.0.get() };
                    data.iter_mut().for_each(|number| *number = black_box(*number) + 1);
                    // SAFETY: acquired above.
                    unsafe { lock.unlock() };
                    sections += 1;
                }
                sections
            })
        })
        .collect();
    start.wait();
    let begun = Instant::now();
    std::thread::sleep(COMPETE);
    shared.2.store(true, Ordering::Relaxed);
    let taken_us = begun.elapsed().as_secs_f64() * 1e6;
    let mut sections = 0;
    for worker in workers {
        sections += worker.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
    }
    // SAFETY: both have ended.
    let counted = unsafe { (*shared.1.0.get())[0] };
    anyhow::ensure!(counted == sections, "{sections} sections, but {counted} were counted");
    Ok(sections as f64 / taken_us)
}

/// One lock's batches, repetition by repetition.
struct Row {
    name: &'static str,
    decorated: bool,
    values: Vec<f64>,
}

/// Calls the measurement for each lock; the baseline comes first.
macro_rules! each {
    ($measure:ident) => {
        [
            ("pthread", false, $measure!(pthread())),
            ("parking_lot", false, $measure!(parking())),
            ("futex_spin", false, $measure!(Futex::new(Spin))),
            ("futex_block", false, $measure!(Futex::new(Block))),
            ("barging_spin", false, $measure!(Barging::new(Spin))),
            ("barging_block", false, $measure!(Barging::new(Block))),
            ("ticket_spin", false, $measure!(Ticket::new(Spin))),
            ("ticket_block", false, $measure!(Ticket::new(Block))),
            ("mcs_spin", false, $measure!(Mcs::new(Spin))),
            ("mcs_block", false, $measure!(Mcs::new(Block))),
            ("plain_futex_block", true, $measure!(Decorated::new(Futex::new(Block), Plain))),
            (
                "owner_futex_spin",
                true,
                $measure!(Decorated::new(Futex::new(Spin), Owner::new(NoFrequency))),
            ),
            (
                "owner_futex_block",
                true,
                $measure!(Decorated::new(Futex::new(Block), Owner::new(NoFrequency))),
            ),
        ]
    };
}

fn rows(
    n: usize,
    mut once: impl FnMut() -> Result<Vec<(&'static str, bool, f64)>>,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..n {
        for (index, (name, decorated, value)) in once()?.into_iter().enumerate() {
            match rows.get_mut(index) {
                Some(row) => row.values.push(value),
                None => rows.push(Row { name, decorated, values: vec![value] }),
            }
        }
    }
    Ok(rows)
}

fn ratios(row: &Row, base: &Row) -> Vec<f64> {
    row.values.iter().zip(&base.values).map(|(value, base)| value / base).collect()
}

/// Measure and publish.
pub fn run() -> Result<()> {
    macro_rules! time {
        ($lock:expr) => {
            alone(&$lock)
        };
    }
    macro_rules! compete {
        ($lock:expr) => {
            two($lock)?
        };
    }
    // glibc's mutex uses no locked instruction while a process has one thread; who needs a lock has
    // two
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || ended.recv());
    let alone = rows(N_ALONE, || Ok(each!(time).to_vec()))?;
    drop(end);
    // it ends with the channel, which is an error to it and none to us
    let _ = second.join();
    let two = rows(N_TWO, || Ok(each!(compete).to_vec()))?;
    let mut figures = Vec::new();
    let (mut worst_plain, mut worst_decorated) = (None::<Figure>, None::<Figure>);
    for row in &alone[1..] {
        let name = format!("lib.lock_uncontended_ratio.{}", row.name);
        let figure =
            Figure::of(&name, "x", "lower", &ratios(row, &alone[0]))?.against("pthread", 1.0);
        let worst = if row.decorated { &mut worst_decorated } else { &mut worst_plain };
        if row.name != "parking_lot" && worst.as_ref().is_none_or(|w| w.value < figure.value) {
            *worst = Some(figure.clone());
        }
        figures.push(figure);
    }
    for (name, worst) in [("undecorated", worst_plain), ("decorated", worst_decorated)] {
        let name = format!("lib.lock_uncontended_ratio.worst_{name}");
        figures.extend(worst.map(|worst| Figure { name, ..worst }));
    }
    figures.push(Figure::of("lib.lock_uncontended_pthread_ns", "ns", "lower", &alone[0].values)?);
    for row in &two[1..] {
        let name = format!("lib.lock_contended_ratio.{}", row.name);
        let figure =
            Figure::of(&name, "x", "higher", &ratios(row, &two[0]))?.against("pthread", 1.0);
        figures.push(figure);
    }
    let name = "lib.lock_contended_ratio_to_parking_lot.futex_block";
    figures.push(
        Figure::of(name, "x", "higher", &ratios(&two[3], &two[1]))?.against("parking_lot", 1.0),
    );
    let name = "lib.lock_contended_ratio_to_parking_lot.barging_block";
    figures.push(
        Figure::of(name, "x", "higher", &ratios(&two[5], &two[1]))?.against("parking_lot", 1.0),
    );
    publish("lib-locks", &figures)
}
