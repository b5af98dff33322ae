// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests for CPUs, and which thread writes them.
//!
//! Each CPU has a request, a frequency or none. A *unit* is the CPUs that one setting covers (a
//! cpufreq policy, a register's CPU). A unit gets the fastest of its CPUs' requests. A CPU without
//! a request counts as one that requests the base frequency: what another program runs there must
//! not be slowed because a neighbour waits. If it decides, the unit gets its base setting
//! (`Backend::rest`).
//!
//! Writing: the thread that finds the unit idle writes. One that finds it busy leaves its request
//! and goes: the writer looks again before it leaves. So no thread waits for a system call of
//! another thread, and a signal handler that interrupts a writer does not hang (once the CPU has
//! been boosted and slowed, see below):
//!
//! ```text
//!   idle --take--> busy --leave--> idle
//!                  busy --another comes--> again --leave--> busy (write again)
//! ```
//!
//! What is set already is not written: a boost of a boosted CPU costs a few loads.
//!
//! The first time that a unit is boosted or slowed, and at each `request`, what was written is read
//! back; it costs milliseconds where the kernel applies it in a worker, and is what finds locked
//! registers and clamps. Of later writes one of [`READ_BACK_EVERY`] is, and after one that was not
//! kept each is: so a driver that begins to ignore requests is reported, late, as
//! [`Error::NotKept`] to whoever makes the request. Not for limits, whose boosts would wait for a
//! worker: there `request` is what finds it. The governor `userspace` reports what it has sent to
//! its driver, kept or not: limits that clamp it are found there, and a measured clock finds the
//! rest.
//!
//! Limits: a request that is left to another thread is carried out when that thread has written,
//! some microseconds later, and its failure is reported to that thread. Requests belong to CPUs,
//! not to threads: a thread that migrates takes none along.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use crate::backend::{Backend, Unit};
use crate::error::Error;
use crate::journal::{Journal, Restored};
use crate::owner::Owner;

/// States of a unit's lock.
const IDLE: u32 = 0;
const BUSY: u32 = 1;
const AGAIN: u32 = 2;

/// Later writes to a unit, one of which is read back. That takes two more system calls, so it makes
/// a boost of one or two about 1 % slower on average (estimated: 2 calls in 256 boosts).
const READ_BACK_EVERY: u32 = 256;

/// No request, and what a unit without requests has applied.
pub(crate) const REST: u32 = 0;
/// Nothing is known of what the unit runs at.
const UNKNOWN: u32 = u32::MAX;

/// No unit covers the CPU.
const NO_UNIT: u32 = u32::MAX;

pub(crate) struct UnitState {
    pub(crate) unit: Unit,
    lock: AtomicU32,
    is_prepared: AtomicBool,
    /// Boost and slow have been read back.
    pub(crate) boost_is_proven: AtomicBool,
    pub(crate) slow_is_proven: AtomicBool,
    applied_khz: AtomicU32,
    /// Writes since the last that read back.
    unread: AtomicU32,
}

/// Who has requested what, and what the units run at.
pub(crate) struct Requests {
    pub(crate) journal: Journal,
    backend: Option<Box<dyn Backend>>,
    units: Vec<UnitState>,
    unit_of: Vec<u32>,
    requests_khz: Vec<AtomicU32>,
    owner: Owner,
    is_closed: AtomicBool,
}

impl UnitState {
    fn new(unit: Unit) -> Self {
        UnitState {
            unit,
            lock: AtomicU32::new(IDLE),
            is_prepared: AtomicBool::new(false),
            boost_is_proven: AtomicBool::new(false),
            slow_is_proven: AtomicBool::new(false),
            applied_khz: AtomicU32::new(UNKNOWN),
            unread: AtomicU32::new(0),
        }
    }

    /// Takes the unit, unless that takes longer than a second: its writer may be a thread that a
    /// signal handler has interrupted to end the program.
    fn take_for_good(&self) -> bool {
        for _ in 0..1_000 {
            if self.lock.compare_exchange(IDLE, BUSY, SeqCst, Relaxed).is_ok() {
                return true;
            }
            crate::raw::nap();
        }
        false
    }

    /// Takes the unit, however long that takes.
    fn take(&self) {
        while self.lock.compare_exchange_weak(IDLE, BUSY, SeqCst, Relaxed).is_err() {
            std::thread::yield_now();
        }
    }
}

impl Requests {
    /// No CPU has a request.
    pub(crate) fn new(journal: Journal, found: Option<(Box<dyn Backend>, Vec<Unit>)>) -> Self {
        let (backend, units) = match found {
            Some((backend, units)) => (Some(backend), units),
            None => (None, Vec::new()),
        };
        let cpus =
            units.iter().flat_map(|unit| &unit.cpus).max().map_or(0, |cpu| *cpu as usize + 1);
        let mut unit_of = vec![NO_UNIT; cpus];
        for (index, unit) in units.iter().enumerate() {
            for &cpu in &unit.cpus {
                unit_of[cpu as usize] = index as u32;
            }
        }
        Requests {
            journal,
            backend,
            units: units.into_iter().map(UnitState::new).collect(),
            unit_of,
            requests_khz: (0..cpus).map(|_| AtomicU32::new(REST)).collect(),
            owner: Owner::this(),
            is_closed: AtomicBool::new(false),
        }
    }

    /// How this machine's P-states are set.
    pub(crate) fn backend(&self) -> Result<&dyn Backend, Error> {
        self.backend.as_deref().ok_or(Error::NoBackend)
    }

    /// False in a forked child, whose journal is the parent's.
    pub(crate) fn is_ours(&self) -> bool {
        self.owner.is_this()
    }

    /// The request for a CPU: a frequency, or [`REST`].
    pub(crate) fn requested_khz(&self, cpu: u32) -> Result<u32, Error> {
        self.unit(cpu)?;
        Ok(self.requests_khz[cpu as usize].load(Relaxed))
    }

    /// The unit of a CPU, and its index.
    pub(crate) fn unit(&self, cpu: u32) -> Result<(usize, &UnitState), Error> {
        if self.backend.is_none() {
            return Err(Error::NoBackend);
        }
        let index = self.unit_of.get(cpu as usize).copied().unwrap_or(NO_UNIT) as usize;
        self.units.get(index).map(|unit| (index, unit)).ok_or(Error::NoCpu(cpu))
    }

    /// The CPU is to have this frequency. `surely`: it is written and read back by us.
    pub(crate) fn request(&self, cpu: u32, khz: u32, surely: bool) -> Result<(), Error> {
        let (index, unit) = self.unit(cpu)?;
        let request = &self.requests_khz[cpu as usize];
        let before = request.swap(khz, SeqCst);
        if !surely && unit.lock.load(SeqCst) == IDLE && self.target(unit) == applied(unit) {
            return Ok(());
        }
        let done = if surely { self.settle_surely(index) } else { self.settle(index) };
        if done.is_err() {
            request.store(before, SeqCst);
        }
        done
    }

    /// The unit gets what its CPUs request, by this thread or by the one that is setting it.
    fn settle(&self, index: usize) -> Result<(), Error> {
        let lock = &self.units[index].lock;
        loop {
            match lock.compare_exchange(IDLE, BUSY, SeqCst, SeqCst) {
                Ok(_) => break,
                Err(AGAIN) => return Ok(()),
                Err(_) if lock.compare_exchange(BUSY, AGAIN, SeqCst, SeqCst).is_ok() => {
                    return Ok(());
                }
                Err(_) => {}
            }
        }
        let done = self.apply(index, false);
        self.leave(index, done)
    }

    /// The same by us, read back.
    fn settle_surely(&self, index: usize) -> Result<(), Error> {
        self.units[index].take();
        let done = self.apply(index, true);
        self.leave(index, done)
    }

    /// Releases the unit, after carrying out requests that arrived meanwhile.
    fn leave(&self, index: usize, done: Result<(), Error>) -> Result<(), Error> {
        let lock = &self.units[index].lock;
        while lock.compare_exchange(BUSY, IDLE, SeqCst, SeqCst).is_err() {
            lock.store(BUSY, SeqCst);
            // Their failure cannot be reported here; the next request meets it again.
            let _ = self.apply(index, false);
        }
        done
    }

    /// The fastest request of the unit's CPUs; [`REST`] if a CPU without a request decides.
    fn target(&self, unit: &UnitState) -> u32 {
        let base_khz = unit.unit.speeds.base_khz;
        let requests =
            unit.unit.cpus.iter().map(|&cpu| self.requests_khz[cpu as usize].load(SeqCst));
        let strongest =
            requests.max_by_key(|&khz| if khz == REST { (base_khz, 0) } else { (khz, 1) });
        strongest.unwrap_or(REST)
    }

    /// Writes, by the holder of the unit.
    fn apply(&self, index: usize, surely: bool) -> Result<(), Error> {
        let unit = &self.units[index];
        let backend = self.backend()?;
        self.check_open()?;
        let target = self.target(unit);
        if target == applied(unit) && !surely {
            return Ok(());
        }
        if !unit.is_prepared.load(Relaxed) {
            if target == REST {
                return Ok(());
            }
            if let Err(error) = backend.prepare(&self.journal, index) {
                let _ = backend.release(&self.journal, index);
                return Err(error);
            }
            unit.is_prepared.store(true, Relaxed);
        }
        unit.applied_khz.store(UNKNOWN, Relaxed);
        match target {
            REST => backend.rest(&self.journal, index)?,
            khz => {
                let unread = unit.unread.load(Relaxed);
                let is_due = unread >= READ_BACK_EVERY && backend.reads_back_at_once();
                backend.set(&self.journal, index, khz, surely || is_due)?;
                unit.unread.store(if surely || is_due { 0 } else { unread + 1 }, Relaxed);
            }
        }
        unit.applied_khz.store(target, Relaxed);
        Ok(())
    }

    /// Withdraws the request, and hands the unit back if no other CPU there has one.
    pub(crate) fn release(&self, cpu: u32) -> Result<(), Error> {
        let (index, unit) = self.unit(cpu)?;
        self.requests_khz[cpu as usize].store(REST, SeqCst);
        self.settle(index)?;
        let backend = self.backend()?;
        unit.take();
        let others = unit.unit.cpus.iter().map(|&cpu| self.requests_khz[cpu as usize].load(SeqCst));
        let mut done = Ok(());
        if others.max() == Some(REST) && unit.is_prepared.load(Relaxed) {
            done = self.check_open().and_then(|()| backend.release(&self.journal, index));
            unit.is_prepared.store(false, Relaxed);
            unit.applied_khz.store(UNKNOWN, Relaxed);
        }
        self.leave(index, done)
    }

    /// Refuses in a forked child, whose journal is the parent's, and after the end.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if !self.owner.is_this() {
            return Err(Error::NotOwner);
        }
        if self.is_closed.load(SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Ends all requests and restores everything, in this order; also, how many units a thread was
    /// still writing. `None` if it was done before.
    pub(crate) fn end(&self) -> Option<(Restored, usize)> {
        if self.is_closed.swap(true, SeqCst) {
            return None;
        }
        // Whoever is writing ends; whoever comes later finds us closed.
        let busy = self.units.iter().filter(|unit| !unit.take_for_good()).count();
        let restored = self.journal.restore_all();
        self.units.iter().for_each(|unit| unit.lock.store(IDLE, SeqCst));
        Some((restored, busy))
    }
}

fn applied(unit: &UnitState) -> u32 {
    unit.applied_khz.load(SeqCst)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::error::Place;
    use crate::setting::Specs;
    use crate::speeds::Speeds;

    /// A driver that takes all requests, and at some time keeps none.
    #[derive(Default)]
    struct Driver {
        ignores: AtomicBool,
        writes: AtomicU32,
        is_late: bool,
    }

    impl Backend for Arc<Driver> {
        fn prepare(&self, _: &Journal, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn set(&self, _: &Journal, _: usize, _: u32, surely: bool) -> Result<(), Error> {
            self.writes.fetch_add(1, Relaxed);
            match surely && self.ignores.load(Relaxed) {
                true => Err(Error::NotKept(Place::new("driver"))),
                false => Ok(()),
            }
        }
        fn reads_back_at_once(&self) -> bool {
            !self.is_late
        }
        fn rest(&self, _: &Journal, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn release(&self, _: &Journal, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn turbo(&self, _: &Journal, _: Option<bool>) -> Result<bool, Error> {
            Err(Error::NoTurboSwitch)
        }
    }

    fn requests(driver: &Arc<Driver>) -> Requests {
        let speeds = Speeds::of_table(vec![1, 2, 3], Some(2)).unwrap();
        let units = vec![Unit { cpus: vec![0], speeds }];
        let journal = Journal::new(c"/", Specs::default()).unwrap();
        Requests::new(journal, Some((Box::new(Arc::clone(driver)), units)))
    }

    /// How many of so many boosts are refused; each is withdrawn.
    fn refused(requests: &Requests, boosts: u32) -> usize {
        let boost = |_: &u32| {
            let done = requests.request(0, 3, false);
            requests.request(0, REST, false).unwrap();
            done.is_err()
        };
        (0..boosts).filter(boost).count()
    }

    /// A driver that begins to ignore requests is found by the next write that is read back, and by
    /// each after that, until it keeps one.
    #[test]
    fn a_driver_that_begins_to_ignore_requests_fails() {
        let driver = Arc::new(Driver::default());
        let requests = requests(&driver);
        requests.request(0, 3, true).unwrap();
        assert_eq!(refused(&requests, 3 * READ_BACK_EVERY), 0);
        driver.ignores.store(true, Relaxed);
        let found = refused(&requests, READ_BACK_EVERY + 1);
        assert!(found >= 1, "nothing was found");
        assert_eq!(refused(&requests, 10), 10);
        driver.ignores.store(false, Relaxed);
        assert_eq!(refused(&requests, 10), 0);
        driver.ignores.store(true, Relaxed);
        assert_eq!(refused(&requests, READ_BACK_EVERY - 10), 0, "most are not read back");
    }

    /// Where what is set reads back late, no boost waits for it.
    #[test]
    fn a_late_driver_is_not_read_back() {
        let driver = Arc::new(Driver { is_late: true, ..Driver::default() });
        let requests = requests(&driver);
        driver.ignores.store(true, Relaxed);
        assert_eq!(refused(&requests, 3 * READ_BACK_EVERY), 0);
        assert!(driver.writes.load(Relaxed) >= 3 * READ_BACK_EVERY);
        assert!(requests.request(0, 3, true).is_err());
    }
}
