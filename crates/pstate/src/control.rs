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
//! registers and clamps. Later writes are not read back.
//!
//! Limits: a request that is left to another thread is carried out when that thread has written,
//! some microseconds later, and its failure is reported to that thread. Requests belong to CPUs,
//! not to threads: a thread that migrates takes none along.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, Weak};

use machine::{PstateModel, Topology};

use crate::backend::{Backend, Found, Machine, TakesTargets, Unit, Way};
use crate::choice::{Choice, choose};
use crate::domains::Clocks;
use crate::error::Error;
use crate::journal::{Journal, Restored, Specs};
use crate::scheduler;
use crate::simulated::{self, Simulated, Time};
use crate::speeds::Speeds;
use crate::watchdog::Watchdog;

/// How to open frequency control.
#[derive(Clone, Debug)]
pub struct Options {
    /// The machine's files are below this folder; with [`Way::Simulated`]: the model's id, or its
    /// file.
    pub root: PathBuf,
    /// The method to use; `None`: the first that works.
    pub way: Option<Way>,
}

impl Default for Options {
    fn default() -> Self {
        Options { root: PathBuf::from("/"), way: None }
    }
}

/// States of a unit's lock.
const IDLE: u32 = 0;
const BUSY: u32 = 1;
const AGAIN: u32 = 2;

/// No request, and what a unit without requests has applied.
const REST: u32 = 0;
/// Nothing is known of what the unit runs at.
const UNKNOWN: u32 = u32::MAX;

/// No unit covers the CPU.
const NO_UNIT: u32 = u32::MAX;

struct UnitState {
    unit: Unit,
    lock: AtomicU32,
    is_prepared: AtomicBool,
    /// Boost and slow have been read back.
    boost_is_proven: AtomicBool,
    slow_is_proven: AtomicBool,
    applied_khz: AtomicU32,
}

/// The state of a [`Control`], shared with the handler that runs at exit.
struct Inner {
    journal: Journal,
    backend: Option<Box<dyn Backend>>,
    choice: Choice,
    units: Vec<UnitState>,
    unit_of: Vec<u32>,
    wishes_khz: Vec<AtomicU32>,
    clocks: Clocks,
    owner: i32,
    is_closed: AtomicBool,
    watchdog: Mutex<Option<Watchdog>>,
    root: PathBuf,
    simulated: Option<Arc<Simulated>>,
}

/// What [`Control::open`] has found and not yet put together.
struct Parts {
    root: PathBuf,
    specs: Specs,
    choice: Choice,
    found: Option<Found>,
    clocks: Clocks,
    simulated: Option<Arc<Simulated>>,
}

/// Frequency control of this machine by this process.
///
/// All calls may come from any thread; those that name a CPU do not allocate. Dropping it restores
/// everything, as does the end of the process, whatever its cause.
pub struct Control(Arc<Inner>);

/// The open controls of this process.
static OPEN: Mutex<Vec<Weak<Inner>>> = Mutex::new(Vec::new());

impl Control {
    /// Opens frequency control. On a machine or for a user without any it opens too, with
    /// [`Way::None`]: [`Control::choice`] says why, and what changes something is refused.
    ///
    /// [`Way::Scheduler`] is none here: see [`Control::open_for_threads`].
    pub fn open(options: &Options) -> Result<Self, Error> {
        Self::open_by(options, None)
    }

    /// The same for who can speak for threads to a scheduler, and knows whether one takes their
    /// targets ([`Control::target_q10`]).
    pub fn open_for_threads(options: &Options, scheduler: TakesTargets<'_>) -> Result<Self, Error> {
        Self::open_by(options, Some(scheduler))
    }

    fn open_by(options: &Options, scheduler: Option<TakesTargets<'_>>) -> Result<Self, Error> {
        if options.way == Some(Way::Simulated) {
            return Self::simulate(&simulated::model(&options.root)?, simulated::live());
        }
        let machine = Machine::new(&options.root);
        let mut specs = Specs::default();
        let (choice, found) = match options.way {
            Some(Way::None) => {
                (Choice { way: Way::None, why: "none: as requested".to_string() }, None)
            }
            wanted => choose(&machine, &mut specs, wanted, scheduler),
        };
        let clocks = Clocks::read(&machine).map_err(|_| Error::Open(libc::ENXIO))?;
        let root = options.root.clone();
        Self::assemble(Parts { root, specs, choice, found, clocks, simulated: None })
    }

    /// Opens control of a modelled machine, in which time passes as `time` says. On one whose cores
    /// cannot be set one by one it opens with [`Way::None`].
    pub fn simulate(model: &PstateModel, time: Arc<dyn Time>) -> Result<Self, Error> {
        let simulated = Simulated::new(model, time).map(Arc::new);
        let Some(machine) = &simulated else {
            let why = format!("none: the cores of {} have one clock (TURBO 4)", model.name);
            let choice = Choice { way: Way::None, why };
            let threads = usize::try_from(model.threads.value).unwrap_or(1).max(1);
            let topology = Topology::uniform(threads, 1);
            let clocks = Clocks::of_package(topology);
            let root = PathBuf::from("/");
            let specs = Specs::default();
            return Self::assemble(Parts { root, specs, choice, found: None, clocks, simulated });
        };
        let what = machine.what();
        let choice = Choice { way: Way::Simulated, why: format!("simulated: {what}") };
        let found = Found { backend: Box::new(Arc::clone(machine)), units: machine.units(), what };
        Self::assemble(Parts {
            root: PathBuf::from("/"),
            specs: Specs::default(),
            choice,
            found: Some(found),
            clocks: machine.clocks(),
            simulated,
        })
    }

    fn assemble(parts: Parts) -> Result<Self, Error> {
        let Parts { root, specs, choice, found, clocks, simulated } = parts;
        let place = CString::new(root.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::Open(libc::EINVAL))?;
        let changes = found.is_some() && !specs.is_empty();
        let journal = Journal::new(&place, specs)?;
        let watchdog = changes.then(|| Watchdog::start(&journal)).transpose()?;
        let (backend, units) = match found {
            Some(Found { backend, units, .. }) => (Some(backend), units),
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
        let inner = Arc::new(Inner {
            journal,
            backend,
            choice,
            units: units.into_iter().map(UnitState::new).collect(),
            unit_of,
            wishes_khz: (0..cpus).map(|_| AtomicU32::new(REST)).collect(),
            clocks,
            owner: process(),
            is_closed: AtomicBool::new(false),
            watchdog: Mutex::new(watchdog),
            root,
            simulated,
        });
        restore_at_exit(&inner);
        Ok(Control(inner))
    }

    /// Which method was chosen, and why.
    pub fn choice(&self) -> &Choice {
        &self.0.choice
    }

    /// Cores, siblings, and who shares a clock.
    pub fn clocks(&self) -> &Clocks {
        &self.0.clocks
    }

    /// The modelled machine, with [`Way::Simulated`].
    pub fn simulated(&self) -> Option<&Simulated> {
        self.0.simulated.as_deref()
    }

    /// What the clock of a CPU is now, kHz: the model's, or what cpufreq says, which is as new as
    /// the driver makes it and on some what was asked for. Allocates.
    pub fn clock_khz(&self, cpu: u32) -> Result<u32, Error> {
        if let Some(machine) = self.simulated() {
            return machine.khz(cpu).ok_or(Error::NoCpu(cpu));
        }
        if self.0.clocks.topology.place(cpu as usize).is_none() {
            return Err(Error::NoCpu(cpu));
        }
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        Machine::new(&self.0.root).number(&path).ok_or(Error::NoBackend)
    }

    /// What a CPU can be set to.
    pub fn speeds(&self, cpu: u32) -> Result<&Speeds, Error> {
        Ok(&self.0.unit(cpu)?.1.unit.speeds)
    }

    /// CPUs that are set together with this one, itself included, ascending.
    pub fn set_together(&self, cpu: u32) -> Result<&[u32], Error> {
        Ok(&self.0.unit(cpu)?.1.unit.cpus)
    }

    /// What a thread on this CPU asks the scheduler for to have this frequency, as policy/target.h
    /// counts; with [`Way::Scheduler`].
    pub fn target_q10(&self, cpu: u32, khz: u32) -> Result<u32, Error> {
        if self.0.choice.way != Way::Scheduler {
            return Err(Error::NoBackend);
        }
        self.check_open()?;
        let speeds = self.speeds(cpu)?;
        speeds.check(khz)?;
        Ok(scheduler::target_q10(speeds, khz))
    }

    /// Refuses in a forked child, and after the end.
    pub fn check_open(&self) -> Result<(), Error> {
        self.0.check_open()
    }

    /// Sets the CPU to this frequency; reads it back. On failure the request is as before.
    pub fn request(&self, cpu: u32, khz: u32) -> Result<(), Error> {
        self.speeds(cpu)?.check(khz)?;
        self.0.wish(cpu, khz, true)
    }

    /// Sets the CPU to its fastest P-state.
    #[inline]
    pub fn boost(&self, cpu: u32) -> Result<(), Error> {
        let (_, unit) = self.0.unit(cpu)?;
        let surely = !unit.boost_is_proven.load(Relaxed);
        self.0.wish(cpu, unit.unit.speeds.turbo_khz, surely)?;
        unit.boost_is_proven.store(true, Relaxed);
        Ok(())
    }

    /// Sets the CPU to its slowest P-state, unless another CPU that is set together with it needs
    /// more.
    #[inline]
    pub fn slow(&self, cpu: u32) -> Result<(), Error> {
        let (_, unit) = self.0.unit(cpu)?;
        let surely = !unit.slow_is_proven.load(Relaxed);
        self.0.wish(cpu, unit.unit.speeds.slow_khz, surely)?;
        unit.slow_is_proven.store(true, Relaxed);
        Ok(())
    }

    /// Withdraws the request for this CPU. If no other CPU of its unit has a request, the unit gets
    /// the limits or the register value that were found; under the governor `userspace`, if we have
    /// set it, it runs at the base frequency until [`Control::release`] restores the previous
    /// governor.
    #[inline]
    pub fn restore(&self, cpu: u32) -> Result<(), Error> {
        self.0.wish(cpu, REST, false)
    }

    /// Like [`Control::restore`], and restores the settings of the CPU's unit if no other CPU there
    /// has a request. The next request takes it over again, which costs more than a request alone.
    pub fn release(&self, cpu: u32) -> Result<(), Error> {
        self.0.release(cpu)
    }

    /// The request for a CPU: a frequency, or none.
    pub fn wish_khz(&self, cpu: u32) -> Result<Option<u32>, Error> {
        self.0.unit(cpu)?;
        let khz = self.0.wishes_khz[cpu as usize].load(Relaxed);
        Ok((khz != REST).then_some(khz))
    }

    /// Whether turbo is on, on all CPUs.
    pub fn turbo(&self) -> Result<bool, Error> {
        self.0.turbo(None)
    }

    /// Switches turbo on all CPUs.
    pub fn set_turbo(&self, on: bool) -> Result<(), Error> {
        match self.0.turbo(Some(on))? {
            is if is == on => Ok(()),
            _ => Err(Error::NoTurboSwitch),
        }
    }

    /// The watchdog's process, for those who want to see it; none with [`Way::None`].
    pub fn watchdog_pid(&self) -> Option<i32> {
        let watchdog = self.0.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        watchdog.as_ref().map(Watchdog::pid)
    }

    /// Restores everything, and says how that went. In a forked child: leaves all to the parent.
    pub fn close(self) -> Restored {
        self.restore_all()
    }

    /// [`Control::close`] for those who share the control: later requests are refused.
    pub fn restore_all(&self) -> Restored {
        self.0.close()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.0.close();
    }
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

impl Inner {
    fn unit(&self, cpu: u32) -> Result<(usize, &UnitState), Error> {
        if self.backend.is_none() {
            return Err(Error::NoBackend);
        }
        let index = self.unit_of.get(cpu as usize).copied().unwrap_or(NO_UNIT) as usize;
        self.units.get(index).map(|unit| (index, unit)).ok_or(Error::NoCpu(cpu))
    }

    fn wish(&self, cpu: u32, khz: u32, surely: bool) -> Result<(), Error> {
        let (index, unit) = self.unit(cpu)?;
        let wish = &self.wishes_khz[cpu as usize];
        let before = wish.swap(khz, SeqCst);
        if !surely && unit.lock.load(SeqCst) == IDLE && self.target(unit) == applied(unit) {
            return Ok(());
        }
        let done = if surely { self.settle_surely(index) } else { self.settle(index) };
        if done.is_err() {
            wish.store(before, SeqCst);
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
        let wishes = unit.unit.cpus.iter().map(|&cpu| self.wishes_khz[cpu as usize].load(SeqCst));
        let strongest =
            wishes.max_by_key(|&khz| if khz == REST { (base_khz, 0) } else { (khz, 1) });
        strongest.unwrap_or(REST)
    }

    /// Writes, by the holder of the unit.
    fn apply(&self, index: usize, surely: bool) -> Result<(), Error> {
        let unit = &self.units[index];
        let backend = self.backend.as_ref().ok_or(Error::NoBackend)?;
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
            khz => backend.set(&self.journal, index, khz, surely)?,
        }
        unit.applied_khz.store(target, Relaxed);
        Ok(())
    }

    fn release(&self, cpu: u32) -> Result<(), Error> {
        let (index, unit) = self.unit(cpu)?;
        self.wishes_khz[cpu as usize].store(REST, SeqCst);
        self.settle(index)?;
        let backend = self.backend.as_ref().ok_or(Error::NoBackend)?;
        unit.take();
        let others = unit.unit.cpus.iter().map(|&cpu| self.wishes_khz[cpu as usize].load(SeqCst));
        let mut done = Ok(());
        if others.max() == Some(REST) && unit.is_prepared.load(Relaxed) {
            done = self.check_open().and_then(|()| backend.release(&self.journal, index));
            unit.is_prepared.store(false, Relaxed);
            unit.applied_khz.store(UNKNOWN, Relaxed);
        }
        self.leave(index, done)
    }

    fn turbo(&self, on: Option<bool>) -> Result<bool, Error> {
        let backend = self.backend.as_ref().ok_or(Error::NoBackend)?;
        self.check_open()?;
        // Turbo belongs to all units; the watchdog's lock keeps two switchers apart.
        let _one = self.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        backend.turbo(&self.journal, on)
    }

    /// Refuses in a forked child, whose journal is the parent's, and after the end.
    fn check_open(&self) -> Result<(), Error> {
        if self.owner != process() {
            return Err(Error::NotOwner);
        }
        if self.is_closed.load(SeqCst) { Err(Error::Closed) } else { Ok(()) }
    }

    fn close(&self) -> Restored {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        if self.owner != process() {
            if let Some(parents) = watchdog.take() {
                parents.disown();
            }
            return Restored::default();
        }
        if self.is_closed.swap(true, SeqCst) {
            return Restored::default();
        }
        // Whoever is writing ends; whoever comes later finds us closed.
        let busy = self.units.iter().filter(|unit| !unit.take_for_good()).count();
        let restored = self.journal.restore_all();
        self.units.iter().for_each(|unit| unit.lock.store(IDLE, SeqCst));
        // What could not be restored is tried again by the watchdog, at the program's end.
        if restored.failed == 0
            && busy == 0
            && let Some(ours) = watchdog.take()
        {
            ours.dismiss();
        }
        restored
    }
}

fn applied(unit: &UnitState) -> u32 {
    unit.applied_khz.load(SeqCst)
}

fn process() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::getpid() }
}

/// `exit` restores before it returns to who waits for the process. (The watchdog would, a moment
/// later.) Also runs when a library that holds us is unloaded.
fn restore_at_exit(inner: &Arc<Inner>) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: a function without arguments. If there is no room, the watchdog is left.
        unsafe { libc::atexit(close_all) };
    });
    let mut open = OPEN.lock().unwrap_or_else(|broken| broken.into_inner());
    open.retain(|other| other.strong_count() > 0);
    open.push(Arc::downgrade(inner));
}

extern "C" fn close_all() {
    // In a child that was forked while another thread held the lock, there is nothing to do.
    let Ok(open) = OPEN.try_lock() else { return };
    let alive: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
    drop(open);
    for inner in alive.iter().filter(|inner| inner.owner == process()) {
        inner.close();
    }
}
