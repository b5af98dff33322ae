// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that is a model: it grants a program's requests with the model's costs, without
//! hardware.
//!
//! Problem: a program that boosts its critical sections cannot be tried where P-states cannot be
//! set: in a test, in a virtual machine, on one's notebook. The folders of `fake.rs` take what is
//! written and do not react.
//!
//! Idea: a P-state file (TURBO's, or a file like them) replaces the hardware. A change
//! delays its caller for as long as the register write does, and then the clock goes to where it
//! was sent, in a straight line as TURBO 8 draws it. What the program itself executes is not slowed
//! or sped up; what the core would have done is counted:
//!
//! ```text
//!   clock   to  |          ________      held: the caller waits, the clock is the old one
//!         from  |_________/              ramp: the caller runs on
//!               +---------|--|---- time
//!               asked  held  ramp        cycles = the area below
//! ```
//!
//! TURBO 8 measured three changes, and a lock makes others too. A rise costs the published rise,
//! its ramp in proportion to its height; a fall costs the published fall to slow if it ends there,
//! else the one to base.
//!
//! Time is [`Time`]: the machine's, or, for tests that give the same result again, one that the
//! test advances.
//!
//! Limits: one clock for each module; no C-states, no power, no turbo that ends because many cores
//! are busy; a package with one clock for all (Intel's of TURBO 4) has nothing to set.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use cpumodel::{Change, Changes, CpuSet, PstateModel, Topology};

use crate::backend::{Backend, Unit};
use crate::domains::{Clocks, Domain, Scope};
use crate::error::Error;
use crate::journal::Journal;
use crate::speeds::Speeds;

/// The time in which a simulated machine lives.
pub trait Time: Send + Sync {
    /// Nanoseconds since some beginning.
    fn now_ns(&self) -> u64;
    /// Returns when that time has come.
    fn wait_until_ns(&self, at_ns: u64);
}

/// The time that passes here.
#[derive(Debug)]
struct Live(Instant);

impl Time for Live {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Busy, as a core is that waits for a register write.
    fn wait_until_ns(&self, at_ns: u64) {
        while self.now_ns() < at_ns {
            std::hint::spin_loop();
        }
    }
}

/// Time that passes on request, and while someone waits.
#[derive(Debug, Default)]
pub struct ManualTime(AtomicU64);

impl ManualTime {
    /// So much time passes.
    pub fn pass_ns(&self, ns: u64) {
        self.0.fetch_add(ns, SeqCst);
    }
}

impl Time for ManualTime {
    fn now_ns(&self) -> u64 {
        self.0.load(SeqCst)
    }

    fn wait_until_ns(&self, at_ns: u64) {
        self.0.fetch_max(at_ns, SeqCst);
    }
}

/// Cores in a module.
const CORES: usize = 2;

/// The machine of a [`crate::Control`] with [`crate::Way::Simulated`].
pub struct Simulated {
    name: String,
    base_khz: u32,
    slow_khz: u32,
    turbo_khz: u32,
    changes: Changes,
    modules: Vec<Mutex<Course>>,
    time: Arc<dyn Time>,
}

/// A module's clock since its last change.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Course {
    from_khz: f64,
    to_khz: f64,
    /// The ramp.
    begins_ns: u64,
    ends_ns: u64,
    /// Cycles up to `since_ns`.
    cycles: f64,
    since_ns: u64,
}

impl Course {
    fn khz(&self, at_ns: u64) -> f64 {
        if at_ns <= self.begins_ns {
            return self.from_khz;
        }
        if at_ns >= self.ends_ns {
            return self.to_khz;
        }
        let (gone_ns, ramp_ns) = (at_ns - self.begins_ns, self.ends_ns - self.begins_ns);
        self.from_khz + (self.to_khz - self.from_khz) * gone_ns as f64 / ramp_ns as f64
    }

    /// Cycles up to then: the area below three straight lines.
    fn cycles(&self, at_ns: u64) -> f64 {
        let within = |ns: u64| ns.clamp(self.since_ns, at_ns.max(self.since_ns));
        let parts = [self.since_ns, within(self.begins_ns), within(self.ends_ns), within(at_ns)];
        let area = |part: &[u64]| {
            let mean_khz = (self.khz(part[0]) + self.khz(part[1])) / 2.0;
            mean_khz * (part[1] - part[0]) as f64 / 1e6
        };
        self.cycles + parts.windows(2).map(area).sum::<f64>()
    }
}

impl Simulated {
    /// A machine whose cores are all at their base frequency; `None` if its cores cannot be set one
    /// by one.
    pub(crate) fn new(model: &PstateModel, time: Arc<dyn Time>) -> Option<Simulated> {
        let khz = |value: u64| u32::try_from(value).ok();
        let base_khz = khz(model.base_khz.value)?;
        let modules = usize::try_from(model.power.as_ref()?.modules.value).ok()?;
        let now_ns = time.now_ns();
        let course = Course {
            from_khz: base_khz.into(),
            to_khz: base_khz.into(),
            begins_ns: now_ns,
            ends_ns: now_ns,
            cycles: 0.0,
            since_ns: now_ns,
        };
        Some(Simulated {
            name: model.name.clone(),
            base_khz,
            slow_khz: khz(model.slow_khz.value)?,
            turbo_khz: khz(model.turbo_khz.value)?,
            changes: model.change.clone()?,
            modules: (0..modules).map(|_| Mutex::new(course)).collect(),
            time,
        })
    }

    /// The clock of a CPU now, kHz; `None` if the machine has no such CPU.
    pub fn khz(&self, cpu: u32) -> Option<u32> {
        let now_ns = self.time.now_ns();
        Some(self.course(cpu as usize / CORES)?.khz(now_ns) as u32)
    }

    /// Core cycles of a CPU since the machine was opened, idle or not; `None` if there is no such
    /// CPU.
    pub fn cycles(&self, cpu: u32) -> Option<u64> {
        let now_ns = self.time.now_ns();
        Some(self.course(cpu as usize / CORES)?.cycles(now_ns) as u64)
    }

    fn course(&self, module: usize) -> Option<MutexGuard<'_, Course>> {
        Some(self.modules.get(module)?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What can be set, and who shares it.
    pub(crate) fn units(&self) -> Vec<Unit> {
        let cpus = |module: usize| (module * CORES..(module + 1) * CORES).map(|cpu| cpu as u32);
        let table = vec![self.slow_khz, self.base_khz, self.turbo_khz];
        let speeds = Speeds::of_table(table, Some(self.base_khz)).expect("three clocks");
        let unit = |module| Unit { cpus: cpus(module).collect(), speeds: speeds.clone() };
        (0..self.modules.len()).map(unit).collect()
    }

    pub(crate) fn clocks(&self) -> Clocks {
        let module = |module: usize| -> CpuSet { (module * CORES..(module + 1) * CORES).collect() };
        let domain = |index| Domain { cpus: module(index), scope: Scope::Module };
        Clocks {
            topology: Topology::uniform(self.modules.len() * CORES, 1),
            domains: (0..self.modules.len()).map(domain).collect(),
            turbo_steps: Vec::new(),
        }
    }

    pub(crate) fn what(&self) -> String {
        format!("a model of {}, {} modules of {CORES} cores", self.name, self.modules.len())
    }

    /// How long a change holds its caller up, and how long the clock is on its way then.
    fn cost_ns(&self, from_khz: f64, to_khz: f64) -> (u64, u64) {
        let ns = |cycles: f64| (cycles * 1e6 / f64::from(self.base_khz)) as u64;
        let write_ns = |change: &Change| ns((change.call_cycles + change.write_cycles) as f64);
        let rise = &self.changes.slow_to_turbo;
        if to_khz > from_khz {
            let height = (to_khz - from_khz) / f64::from(self.turbo_khz - self.slow_khz);
            return (write_ns(rise), ns(rise.transition_cycles as f64 * height));
        }
        let is_slow = to_khz <= f64::from(self.slow_khz);
        let fall = if is_slow { &self.changes.base_to_slow } else { &self.changes.turbo_to_base };
        (write_ns(fall), ns(fall.transition_cycles as f64))
    }

    /// Sends a module to a clock; the caller is held up meanwhile.
    fn change(&self, module: usize, khz: u32) {
        let now_ns = self.time.now_ns();
        let Some(mut course) = self.course(module) else { return };
        let (from_khz, to_khz) = (course.khz(now_ns), f64::from(khz));
        let (held_ns, ramp_ns) = self.cost_ns(from_khz, to_khz);
        let begins_ns = now_ns + held_ns;
        *course = Course {
            from_khz,
            to_khz,
            begins_ns,
            ends_ns: begins_ns + ramp_ns,
            cycles: course.cycles(now_ns),
            since_ns: now_ns,
        };
        drop(course);
        self.time.wait_until_ns(begins_ns);
    }
}

impl Backend for Arc<Simulated> {
    fn prepare(&self, _: &Journal, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn set(&self, _: &Journal, unit: usize, khz: u32, _surely: bool) -> Result<(), Error> {
        self.change(unit, khz);
        Ok(())
    }

    fn rest(&self, _: &Journal, unit: usize) -> Result<(), Error> {
        self.change(unit, self.base_khz);
        Ok(())
    }

    fn release(&self, journal: &Journal, unit: usize) -> Result<(), Error> {
        self.rest(journal, unit)
    }

    fn turbo(&self, _: &Journal, _: Option<bool>) -> Result<bool, Error> {
        Err(Error::NoTurboSwitch)
    }
}

/// The model of that name, or of the file there.
pub(crate) fn model(place: &Path) -> Result<PstateModel, Error> {
    let built_in = place.to_str().and_then(PstateModel::built_in);
    let found = built_in.unwrap_or_else(|| {
        let text = std::fs::read_to_string(place).unwrap_or_default();
        PstateModel::from_toml(&text)
    });
    found.map_err(|_| Error::NoModel)
}

/// The time that passes here.
pub(crate) fn live() -> Arc<dyn Time> {
    Arc::new(Live(Instant::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fx() -> (Arc<Simulated>, Arc<ManualTime>) {
        let time = Arc::new(ManualTime::default());
        let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
        (Arc::new(Simulated::new(&model, time.clone()).unwrap()), time)
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 2.0
    }

    /// TURBO 8: to slow holds up for 29 k cycles, to turbo for 3 k and is on its way for 225 k
    /// more.
    #[test]
    fn changes_cost_what_the_slide_says() {
        let (machine, time) = fx();
        machine.change(0, machine.slow_khz);
        assert!(near(time.now_ns() as f64, 29e3 / 3.1));
        assert_eq!(machine.khz(0), Some(3_100_000), "held up at the old clock");
        time.pass_ns(2_000);
        assert_eq!(machine.khz(1), Some(1_400_000), "the module's");
        assert_eq!(machine.khz(2), Some(3_100_000), "the next module's");
        let before_ns = time.now_ns();
        machine.change(0, machine.turbo_khz);
        assert!(near((time.now_ns() - before_ns) as f64, 3e3 / 3.1));
        time.pass_ns((112.5e3 / 3.1) as u64);
        assert!(machine.khz(0).is_some_and(|khz| khz.abs_diff(2_700_000) < 100), "half way");
        time.pass_ns((113e3 / 3.1) as u64);
        assert_eq!(machine.khz(0), Some(4_000_000));
    }

    /// Cycles are the area below the clock, whenever they are looked at.
    #[test]
    fn cycles_are_the_area() {
        let (machine, time) = fx();
        machine.change(0, machine.slow_khz);
        time.pass_ns(1_000_000);
        let (before, begun_ns) = (machine.cycles(0).unwrap(), time.now_ns());
        machine.change(0, machine.turbo_khz);
        for _ in 0..1_000 {
            time.pass_ns(100);
            machine.cycles(0).unwrap();
        }
        let ramp_ns = 225e3 / 3.1;
        let held_ns = 3e3 / 3.1;
        let flat_ns = (time.now_ns() - begun_ns) as f64 - held_ns - ramp_ns;
        let area = held_ns * 1.4 + ramp_ns * 2.7 + flat_ns * 4.0;
        assert!(((machine.cycles(0).unwrap() - before) as f64 - area).abs() < 20.0);
        assert_eq!(machine.cycles(8), None);
    }

    /// A change in the middle of another begins where the clock is.
    #[test]
    fn a_change_overtakes_another() {
        let (machine, time) = fx();
        machine.change(0, machine.turbo_khz);
        let half_ns = (225e3 / 3.1 * (0.9 / 2.6) / 2.0) as u64;
        time.pass_ns(half_ns);
        machine.change(0, machine.base_khz);
        let khz = machine.khz(0).unwrap();
        assert!(khz.abs_diff(3_550_000) < 1_000, "{khz}");
    }
}
