// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a program's regions cost: how often, how long, at which frequency.
//!
//! Problem: whether a boost pays is decided by sections of microseconds (TURBO 5: the break-even
//! sizes are some 100,000 cycles). A measurement that costs a microsecond itself measures itself.
//!
//! Idea: a region is a name. Each thread has its own row of statistics per region, which no other
//! thread writes, so that begin and end are two reads of a clock and a few stores:
//!
//! ```text
//!   begin: ticks, cycles -> the row's start
//!   end:   ticks, cycles - start -> count, sum, least, greatest
//! ```
//!
//! Ticks are the time stamp counter's (`clock.rs`); cycles come from `rdpmc` where the kernel
//! allows it (`perf.rs`) and are unknown elsewhere. Cycles over time is the frequency at which the
//! region ran. The thread that asks for results adds up the rows of all threads, ended ones
//! included.
//!
//! Limits: 64 regions. A region that is begun again inside itself counts once, from the outermost
//! begin to its end. Rows are read while they are written: a sum may lack the region that ends just
//! now.

mod clock;
mod perf;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::{Epoch, ticks};
use perf::Counters;
pub use perf::Counts;

/// Regions of a monitor at most.
pub const REGIONS_MAX: usize = 64;

/// A region of one monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(u32);

impl Region {
    /// Its number, from 0, in the order of [`Monitor::region`].
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Why the monitor refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorError {
    /// There are [`REGIONS_MAX`] already.
    TooMany,
    /// No region has this number.
    NoRegion(u32),
    /// The region was not begun on this thread.
    NotBegun,
}

impl std::fmt::Display for MonitorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MonitorError::TooMany => write!(f, "there are {REGIONS_MAX} regions already"),
            MonitorError::NoRegion(number) => write!(f, "no region has number {number}"),
            MonitorError::NotBegun => write!(f, "the region was not begun on this thread"),
        }
    }
}

impl std::error::Error for MonitorError {}

/// A region over all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RegionStats {
    /// Number of times that it was executed.
    pub count: u64,
    /// Total time in it.
    pub sum_ns: u64,
    /// The shortest, 0 if there was none.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Core cycles in it, if this machine counts them for us.
    pub cycles: Option<u64>,
}

impl RegionStats {
    /// Mean frequency in the region, if cycles are known.
    pub fn mean_khz(&self) -> Option<u64> {
        let cycles = u128::from(self.cycles?) * 1_000_000;
        cycles.checked_div(self.sum_ns.into()).map(|khz| khz as u64)
    }
}

/// One thread's row of one region; written by that thread only.
#[derive(Debug, Default)]
struct Row {
    depth: AtomicU64,
    start_ticks: AtomicU64,
    start_cycles: AtomicU64,
    count: AtomicU64,
    sum_ticks: AtomicU64,
    /// Inverted, so that 0 means none yet.
    least_inverted: AtomicU64,
    greatest_ticks: AtomicU64,
    sum_cycles: AtomicU64,
}

/// A thread's rows.
#[derive(Debug)]
struct Rows {
    rows: Box<[Row]>,
    /// Cycles are counted.
    has_cycles: bool,
}

/// The rows of all threads; those that ended share one, so that a program may make any number of
/// threads.
#[derive(Debug)]
struct AllRows {
    live: Vec<Arc<Rows>>,
    ended: Rows,
}

/// What a thread keeps of a monitor.
struct Local {
    monitor: u64,
    rows: Arc<Rows>,
    counters: Counters,
}

/// The thread's monitors; boxed, so that `HOT` can point to one.
#[expect(clippy::vec_box, reason = "a growing vector would move what HOT points to")]
struct Locals(RefCell<Vec<Box<Local>>>);

impl Drop for Locals {
    fn drop(&mut self) {
        HOT.set((0, std::ptr::null()));
    }
}

thread_local! {
    static LOCALS: Locals = const { Locals(RefCell::new(Vec::new())) };
    /// The monitor that was used last, 0 for none.
    static HOT: Cell<(u64, *const Local)> = const { Cell::new((0, std::ptr::null())) };
}

/// Numbers of monitors, never used again.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Regions and their statistics.
#[derive(Debug)]
pub struct Monitor {
    id: u64,
    epoch: Epoch,
    names: Mutex<Vec<String>>,
    /// Their number, to be read without the lock.
    nr_regions: AtomicU32,
    threads: Mutex<AllRows>,
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

/// A lock whose holder never leaves half a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Monitor {
    /// A monitor without regions.
    pub fn new() -> Self {
        Monitor {
            id: NEXT.fetch_add(1, Relaxed),
            epoch: Epoch::now(),
            names: Mutex::new(Vec::new()),
            nr_regions: AtomicU32::new(0),
            threads: Mutex::new(AllRows { live: Vec::new(), ended: Rows::new(true) }),
        }
    }

    /// The region of this name, made if there is none.
    pub fn region(&self, name: &str) -> Result<Region, MonitorError> {
        let mut names = lock(&self.names);
        if let Some(number) = names.iter().position(|other| other == name) {
            return Ok(Region(number as u32));
        }
        if names.len() == REGIONS_MAX {
            return Err(MonitorError::TooMany);
        }
        names.push(name.to_string());
        self.nr_regions.store(names.len() as u32, Relaxed);
        Ok(Region(names.len() as u32 - 1))
    }

    /// The region of this number.
    pub fn region_of(&self, number: u32) -> Result<Region, MonitorError> {
        let is_known = number < self.nr_regions.load(Relaxed);
        if is_known { Ok(Region(number)) } else { Err(MonitorError::NoRegion(number)) }
    }

    /// Names of the regions, by number.
    pub fn names(&self) -> Vec<String> {
        lock(&self.names).clone()
    }

    /// The calling thread enters the region.
    #[inline]
    pub fn begin(&self, region: Region) {
        let local = self.local();
        let Some(row) = local.rows.rows.get(region.0 as usize) else { return };
        let depth = row.depth.load(Relaxed);
        row.depth.store(depth + 1, Relaxed);
        if depth == 0 {
            row.start_cycles.store(local.counters.cycles().unwrap_or(0), Relaxed);
            row.start_ticks.store(ticks(), Relaxed);
        }
    }

    /// The calling thread leaves the region.
    #[inline]
    pub fn end(&self, region: Region) -> Result<(), MonitorError> {
        let now = ticks();
        let local = self.local();
        let row = local.rows.rows.get(region.0 as usize).ok_or(MonitorError::NoRegion(region.0))?;
        let depth = row.depth.load(Relaxed);
        if depth == 0 {
            return Err(MonitorError::NotBegun);
        }
        row.depth.store(depth - 1, Relaxed);
        if depth == 1 {
            let cycles = local.counters.cycles().unwrap_or(0);
            row.add(now.saturating_sub(row.start_ticks.load(Relaxed)), cycles);
        }
        Ok(())
    }

    /// The region over all threads so far.
    pub fn stats(&self, region: Region) -> RegionStats {
        let ns_per_tick = self.epoch.ns_per_tick();
        let ns = |ticks: u64| (ticks as f64 * ns_per_tick) as u64;
        let threads = lock(&self.threads);
        let mut sum = RegionStats { cycles: Some(0), ..RegionStats::default() };
        let mut least = 0;
        for rows in threads.live.iter().map(|rows| &**rows).chain([&threads.ended]) {
            let Some(row) = rows.rows.get(region.0 as usize) else { continue };
            let count = row.count.load(Relaxed);
            if count == 0 {
                continue;
            }
            sum.count += count;
            sum.sum_ns += ns(row.sum_ticks.load(Relaxed));
            least = least.max(row.least_inverted.load(Relaxed));
            sum.max_ns = sum.max_ns.max(ns(row.greatest_ticks.load(Relaxed)));
            let cycles = rows.has_cycles.then(|| row.sum_cycles.load(Relaxed));
            sum.cycles = sum.cycles.zip(cycles).map(|(all, one)| all + one);
        }
        if sum.count == 0 {
            return RegionStats::default();
        }
        sum.min_ns = ns(!least);
        sum
    }

    /// What the calling thread has used since it first came here.
    pub fn counts(&self) -> Counts {
        self.local().counters.read()
    }

    /// The calling thread's part of this monitor.
    #[inline]
    fn local(&self) -> &Local {
        let (monitor, local) = HOT.get();
        if monitor == self.id {
            // SAFETY: `HOT` points into a box of `LOCALS` of this thread, which is never removed
            // while `HOT` names it (see `find` and `Locals::drop`).
            return unsafe { &*local };
        }
        self.find()
    }

    #[cold]
    fn find(&self) -> &Local {
        let made = LOCALS.try_with(|locals| {
            let mut locals = locals.0.borrow_mut();
            if !locals.iter().any(|local| local.monitor == self.id) {
                // Parts of monitors that are gone: only we hold their rows.
                HOT.set((0, std::ptr::null()));
                locals.retain(|local| Arc::strong_count(&local.rows) > 1);
                locals.push(Box::new(self.join()));
            }
            let local = locals.iter().find(|local| local.monitor == self.id);
            local.map_or(std::ptr::null(), |local| std::ptr::from_ref::<Local>(local))
        });
        match made {
            Ok(local) if !local.is_null() => {
                HOT.set((self.id, local));
                // SAFETY: as in `local`.
                unsafe { &*local }
            }
            // The thread is ending and its variables are gone: what it counts now is lost.
            _ => Box::leak(Box::new(self.join())),
        }
    }

    fn join(&self) -> Local {
        let counters = Counters::open();
        let rows = Arc::new(Rows::new(counters.can_read_cycles()));
        let mut threads = lock(&self.threads);
        threads.fold_ended();
        threads.live.push(Arc::clone(&rows));
        drop(threads);
        Local { monitor: self.id, rows, counters }
    }
}

impl Rows {
    fn new(has_cycles: bool) -> Self {
        Rows { rows: (0..REGIONS_MAX).map(|_| Row::default()).collect(), has_cycles }
    }
}

impl AllRows {
    /// Rows that only we hold are those of threads that have ended.
    fn fold_ended(&mut self) {
        let ended = &mut self.ended;
        self.live.retain(|rows| {
            let lives = Arc::strong_count(rows) > 1;
            if !lives {
                ended.has_cycles &= rows.has_cycles;
                ended.rows.iter().zip(&rows.rows).for_each(|(to, from)| to.merge(from));
            }
            lives
        });
    }
}

impl Row {
    /// Adds another thread's row to this one, which no one writes meanwhile.
    fn merge(&self, other: &Row) {
        for (to, from) in [
            (&self.count, &other.count),
            (&self.sum_ticks, &other.sum_ticks),
            (&self.sum_cycles, &other.sum_cycles),
        ] {
            to.store(to.load(Relaxed).wrapping_add(from.load(Relaxed)), Relaxed);
        }
        for (to, from) in [
            (&self.least_inverted, &other.least_inverted),
            (&self.greatest_ticks, &other.greatest_ticks),
        ] {
            to.store(to.load(Relaxed).max(from.load(Relaxed)), Relaxed);
        }
    }

    fn add(&self, ticks: u64, cycles: u64) {
        let add =
            |to: &AtomicU64, what: u64| to.store(to.load(Relaxed).wrapping_add(what), Relaxed);
        add(&self.count, 1);
        add(&self.sum_ticks, ticks);
        add(&self.sum_cycles, cycles.saturating_sub(self.start_cycles.load(Relaxed)));
        let keep = |to: &AtomicU64, what: u64| to.store(to.load(Relaxed).max(what), Relaxed);
        keep(&self.least_inverted, !ticks);
        keep(&self.greatest_ticks, ticks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Count, sum and extremes come from all threads, ended ones included; cycles are unknown or
    /// plausible.
    #[test]
    fn regions_add_up() {
        let monitor = Monitor::new();
        let region = monitor.region("sleep").unwrap();
        assert_eq!(monitor.region("sleep"), Ok(region), "a name is one region");
        let run = |time| {
            monitor.begin(region);
            std::thread::sleep(Duration::from_millis(time));
            monitor.end(region).unwrap();
        };
        std::thread::scope(|scope| {
            scope.spawn(|| run(2));
            scope.spawn(|| run(8));
        });
        run(4);
        let stats = monitor.stats(region);
        assert_eq!(stats.count, 3);
        assert!(stats.min_ns >= 1_900_000 && stats.max_ns >= 7_900_000, "{stats:?}");
        assert!(stats.sum_ns >= 13_900_000 && stats.min_ns < stats.max_ns, "{stats:?}");
        assert_eq!(monitor.stats(monitor.region("other").unwrap()), RegionStats::default());
    }

    /// A region inside itself counts once; an end without a begin is refused.
    #[test]
    fn nested_regions_count_once() {
        let monitor = Monitor::new();
        let region = monitor.region("outer").unwrap();
        assert_eq!(monitor.end(region), Err(MonitorError::NotBegun));
        monitor.begin(region);
        monitor.begin(region);
        monitor.end(region).unwrap();
        assert_eq!(monitor.stats(region).count, 0);
        monitor.end(region).unwrap();
        assert_eq!(monitor.stats(region).count, 1);
        assert_eq!(monitor.end(region), Err(MonitorError::NotBegun));
    }

    /// Two monitors in turns do not mix, and one that is gone leaves no rows.
    #[test]
    fn monitors_do_not_mix() {
        let kept = Monitor::new();
        let region = kept.region("kept").unwrap();
        for _ in 0..100 {
            let other = Monitor::new();
            let theirs = other.region("other").unwrap();
            kept.begin(region);
            other.begin(theirs);
            other.end(theirs).unwrap();
            kept.end(region).unwrap();
            assert_eq!(other.stats(theirs).count, 1);
        }
        assert_eq!(kept.stats(region).count, 100);
        assert!(LOCALS.with(|locals| locals.0.borrow().len()) <= 2);
    }

    /// Threads that have ended are remembered together: their number costs no memory.
    #[test]
    fn ended_threads_are_folded() {
        let monitor = Monitor::new();
        let region = monitor.region("short").unwrap();
        for _ in 0..50 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    monitor.begin(region);
                    monitor.end(region).unwrap();
                });
            });
        }
        assert_eq!(monitor.stats(region).count, 50);
        // The variables of a joined thread may be dropped a little after the join of its scope.
        assert!(lock(&monitor.threads).live.len() < 25);
    }

    /// There is an end to regions, and a number that is none is refused.
    #[test]
    fn too_many_regions_fail() {
        let monitor = Monitor::new();
        for number in 0..REGIONS_MAX {
            monitor.region(&number.to_string()).unwrap();
        }
        assert_eq!(monitor.region("one more"), Err(MonitorError::TooMany));
        assert_eq!(monitor.region_of(64), Err(MonitorError::NoRegion(64)));
    }
}
