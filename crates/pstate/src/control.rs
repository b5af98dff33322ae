// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frequency control of this machine by this process: how it is opened, what can be asked of it,
//! and that it ends with the process.
//!
//! `requests.rs` decides which of several requests a shared clock gets. Here: a method is chosen
//! and put together with its journal and its watchdog, and everything is restored at the last use,
//! at `exit`, or by the watchdog.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Once, Weak};

use cpumodel::{PstateModel, Topology};

use crate::backend::{Found, Machine, TakesTargets, Way};
use crate::choice::{Choice, choose};
use crate::domains::Clocks;
use crate::error::Error;
use crate::journal::{Journal, Restored};
use crate::requests::{REST, Requests};
use crate::scheduler;
use crate::setting::Specs;
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

/// The state of a [`Control`], shared with the handler that runs at exit.
struct Inner {
    requests: Requests,
    choice: Choice,
    clocks: Clocks,
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
pub struct Control {
    inner: Arc<Inner>,
    /// It is the one that ends the control.
    closes: bool,
}

/// A control that ends without regard to this; for what may outlive it, as a thread may.
#[derive(Clone, Debug)]
pub struct WeakControl(Weak<Inner>);

impl WeakControl {
    /// Does something with the control, unless that is gone.
    pub fn with<R>(&self, act: impl FnOnce(&Control) -> R) -> Option<R> {
        let inner = self.0.upgrade()?;
        Some(act(&Control { inner, closes: false }))
    }
}

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
        let found = found.map(|Found { backend, units, .. }| (backend, units));
        let inner = Arc::new(Inner {
            requests: Requests::new(journal, found),
            choice,
            clocks,
            watchdog: Mutex::new(watchdog),
            root,
            simulated,
        });
        restore_at_exit(&inner);
        Ok(Control { inner, closes: true })
    }

    /// The same control, without keeping it.
    pub fn downgrade(&self) -> WeakControl {
        WeakControl(Arc::downgrade(&self.inner))
    }

    /// Which method was chosen, and why.
    pub fn choice(&self) -> &Choice {
        &self.inner.choice
    }

    /// Cores, siblings, and who shares a clock.
    pub fn clocks(&self) -> &Clocks {
        &self.inner.clocks
    }

    /// The modelled machine, with [`Way::Simulated`].
    pub fn simulated(&self) -> Option<&Simulated> {
        self.inner.simulated.as_deref()
    }

    /// What the clock of a CPU is now, kHz: the model's, or what cpufreq says, which is as new as
    /// the driver makes it and on some what was asked for. Allocates.
    pub fn clock_khz(&self, cpu: u32) -> Result<u32, Error> {
        if let Some(machine) = self.simulated() {
            return machine.khz(cpu).ok_or(Error::NoCpu(cpu));
        }
        if self.inner.clocks.topology.place(cpu as usize).is_none() {
            return Err(Error::NoCpu(cpu));
        }
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq");
        Machine::new(&self.inner.root).number(&path).ok_or(Error::NoBackend)
    }

    /// What a CPU can be set to.
    pub fn speeds(&self, cpu: u32) -> Result<&Speeds, Error> {
        Ok(&self.inner.requests.unit(cpu)?.1.unit.speeds)
    }

    /// CPUs that are set together with this one, itself included, ascending.
    pub fn set_together(&self, cpu: u32) -> Result<&[u32], Error> {
        Ok(&self.inner.requests.unit(cpu)?.1.unit.cpus)
    }

    /// What a thread on this CPU asks the scheduler for to have this frequency, as policy/target.h
    /// counts; with [`Way::Scheduler`].
    pub fn target_q10(&self, cpu: u32, khz: u32) -> Result<u32, Error> {
        if self.inner.choice.way != Way::Scheduler {
            return Err(Error::NoBackend);
        }
        self.check_open()?;
        let speeds = self.speeds(cpu)?;
        speeds.check(khz)?;
        Ok(scheduler::target_q10(speeds, khz))
    }

    /// Refuses in a forked child, and after the end.
    pub fn check_open(&self) -> Result<(), Error> {
        self.inner.requests.check_open()
    }

    /// Sets the CPU to this frequency; reads it back. On failure the request is as before.
    pub fn request(&self, cpu: u32, khz: u32) -> Result<(), Error> {
        self.speeds(cpu)?.check(khz)?;
        self.inner.requests.request(cpu, khz, true)
    }

    /// Sets the CPU to its fastest P-state.
    #[inline]
    pub fn boost(&self, cpu: u32) -> Result<(), Error> {
        let (_, unit) = self.inner.requests.unit(cpu)?;
        self.set_proving(cpu, unit.unit.speeds.turbo_khz, &unit.boost_is_proven)
    }

    /// Sets the CPU to its slowest P-state, unless another CPU that is set together with it needs
    /// more.
    #[inline]
    pub fn slow(&self, cpu: u32) -> Result<(), Error> {
        let (_, unit) = self.inner.requests.unit(cpu)?;
        self.set_proving(cpu, unit.unit.speeds.slow_khz, &unit.slow_is_proven)
    }

    /// Sets the CPU; reads it back as long as that has not succeeded once, and then now and then
    /// (`requests.rs`).
    #[inline]
    fn set_proving(&self, cpu: u32, khz: u32, is_proven: &AtomicBool) -> Result<(), Error> {
        let surely = !is_proven.load(Relaxed);
        self.inner.requests.request(cpu, khz, surely)?;
        is_proven.store(true, Relaxed);
        Ok(())
    }

    /// Withdraws the request for this CPU. If no other CPU of its unit has a request, the unit gets
    /// the limits or the register value that were found; under the governor `userspace`, if we have
    /// set it, it runs at the base frequency until [`Control::release`] restores the previous
    /// governor.
    #[inline]
    pub fn restore(&self, cpu: u32) -> Result<(), Error> {
        self.inner.requests.request(cpu, REST, false)
    }

    /// Like [`Control::restore`], and restores the settings of the CPU's unit if no other CPU there
    /// has a request. The next request takes it over again, which costs more than a request alone.
    pub fn release(&self, cpu: u32) -> Result<(), Error> {
        self.inner.requests.release(cpu)
    }

    /// The request for a CPU: a frequency, or none.
    pub fn requested_khz(&self, cpu: u32) -> Result<Option<u32>, Error> {
        let khz = self.inner.requests.requested_khz(cpu)?;
        Ok((khz != REST).then_some(khz))
    }

    /// Whether turbo is on, on all CPUs.
    pub fn turbo(&self) -> Result<bool, Error> {
        self.inner.turbo(None)
    }

    /// Switches turbo on all CPUs.
    pub fn set_turbo(&self, on: bool) -> Result<(), Error> {
        match self.inner.turbo(Some(on))? {
            is if is == on => Ok(()),
            _ => Err(Error::NoTurboSwitch),
        }
    }

    /// The watchdog's process, for those who want to see it; none with [`Way::None`].
    pub fn watchdog_pid(&self) -> Option<i32> {
        let watchdog = self.inner.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        watchdog.as_ref().map(Watchdog::pid)
    }

    /// Restores everything, and says how that went. In a forked child: leaves all to the parent.
    pub fn close(self) -> Restored {
        self.restore_all()
    }

    /// [`Control::close`] for those who share the control: later requests are refused.
    pub fn restore_all(&self) -> Restored {
        self.inner.close()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if self.closes {
            self.inner.close();
        }
    }
}

impl Inner {
    fn turbo(&self, on: Option<bool>) -> Result<bool, Error> {
        let backend = self.requests.backend()?;
        self.requests.check_open()?;
        // Turbo belongs to all units; the watchdog's lock keeps two switchers apart.
        let _one = self.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        backend.turbo(&self.requests.journal, on)
    }

    fn close(&self) -> Restored {
        let mut watchdog = self.watchdog.lock().unwrap_or_else(|broken| broken.into_inner());
        if !self.requests.is_ours() {
            if let Some(parents) = watchdog.take() {
                parents.disown();
            }
            return Restored::default();
        }
        let Some((restored, busy)) = self.requests.end() else { return Restored::default() };
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
    for inner in alive.iter().filter(|inner| inner.requests.is_ours()) {
        inner.close();
    }
}
