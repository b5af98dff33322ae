// SPDX-License-Identifier: MIT OR Apache-2.0
//! Overhead profiles of simulated loads, and ground truth next to them.
//!
//! The profiler is crate `profile`'s; here is what it asks of a load, for a simulation. A pause
//! happens in a copy of the run, which is thrown away: the run itself is not disturbed, so that the
//! truth is that of the same run. A real pause disturbs; how much, this does not show.
//!
//! The truth: a busy core's time at a reduced level is needed while the code of its CPUs asks for
//! that level or more, and avoidable otherwise.

use cpumodel::Platform;
use profile::{Load, Profile, Seen, Settings};

use crate::engine::{Engine, Options, RunError};
use crate::events::{Happened, Sink};
use crate::policy_spec::{PolicySpec, Simulation};
use crate::program::Workload;
use crate::sched::Scheduler;
use crate::sys::Layout;

/// What a core does.
#[derive(Clone, Copy, Debug, Default)]
struct Core {
    level: u8,
    nr_busy: u8,
    since_ns: u64,
}

/// Time of busy cores, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Truth {
    /// At any level.
    pub busy_ns: u64,
    /// At a reduced level.
    pub reduced_ns: u64,
    /// Of that, with code that asked for no less.
    pub needed_ns: u64,
}

impl Truth {
    /// Part of the busy time that was at a reduced level; `None` if there was no busy time.
    pub fn reduced_frac(&self) -> Option<f64> {
        (self.busy_ns > 0).then(|| self.reduced_ns as f64 / self.busy_ns as f64)
    }

    /// Part of the time at a reduced level that was avoidable; `None` if there was no such time.
    pub fn avoidable_frac(&self) -> Option<f64> {
        (self.reduced_ns > 0).then(|| 1.0 - self.needed_ns as f64 / self.reduced_ns as f64)
    }
}

/// Keeps the truth.
#[derive(Clone, Debug)]
struct Account {
    core_of: Vec<u16>,
    cpus_of: Vec<Vec<u16>>,
    asks: Vec<u8>,
    cores: Vec<Core>,
    truth: Truth,
}

impl Account {
    fn new(layout: &Layout) -> Self {
        Account {
            core_of: layout.place.iter().map(|place| place.core).collect(),
            cpus_of: layout.cores.clone(),
            asks: vec![0; layout.nr_cpus],
            cores: vec![Core::default(); layout.cores.len()],
            truth: Truth::default(),
        }
    }

    /// Count what the core did until now.
    fn count(&mut self, core: usize, now_ns: u64) -> &mut Core {
        let demand = self.cpus_of[core].iter().map(|&cpu| self.asks[cpu as usize]).max();
        let c = &mut self.cores[core];
        let elapsed_ns = now_ns - c.since_ns;
        c.since_ns = now_ns;
        if c.nr_busy > 0 {
            self.truth.busy_ns += elapsed_ns;
            if c.level > 0 {
                self.truth.reduced_ns += elapsed_ns;
                self.truth.needed_ns += elapsed_ns * u64::from(demand.unwrap_or(0) >= c.level);
            }
        }
        c
    }

    fn count_cpu(&mut self, cpu: u16, now_ns: u64) -> &mut Core {
        self.count(self.core_of[cpu as usize] as usize, now_ns)
    }

    fn finish(mut self, now_ns: u64) -> Truth {
        (0..self.cores.len()).for_each(|core| _ = self.count(core, now_ns));
        self.truth
    }
}

impl Sink for Account {
    const WANTED: bool = true;

    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        match *what {
            Happened::Start { cpu, .. } => self.count_cpu(cpu, at_ns).nr_busy += 1,
            Happened::Stop { cpu, .. } => self.count_cpu(cpu, at_ns).nr_busy -= 1,
            Happened::Asks { cpu, level } => {
                self.count_cpu(cpu, at_ns);
                self.asks[cpu as usize] = level;
            }
            Happened::License { core, level, .. } => {
                self.count(core as usize, at_ns).level = level;
            }
            _ => {}
        }
    }
}

/// A run as the profiler sees it.
struct Paused<S: Scheduler>(Engine<S, Account>);

impl<S: Scheduler + Clone> Load for Paused<S> {
    type Error = RunError;

    fn run(&mut self, time_ns: u64) -> Result<bool, RunError> {
        let until_ns = self.0.now_ns() + time_ns;
        self.0.run_until(until_ns)?;
        Ok(self.0.now_ns() == until_ns)
    }

    fn levels(&mut self) -> Result<Vec<Option<u8>>, RunError> {
        Ok(self.0.license_levels())
    }

    fn pause(&mut self, pause_ns: u64, watch_ns: u64) -> Result<Vec<Seen>, RunError> {
        let mut copy = self.0.clone();
        copy.pause(pause_ns);
        let paused = copy.core_levels();
        copy.run_until(copy.now_ns() + watch_ns)?;
        // a level is held for longer than is watched, so that the last is the highest
        let back = copy.core_levels();
        Ok(paused.into_iter().zip(back).map(|(paused, back)| Seen { paused, back }).collect())
    }
}

/// What a profile of a simulation yields.
#[derive(Clone, Debug)]
pub struct Profiled {
    /// What the profiler says.
    pub profile: Profile,
    /// What was so, in the same time of the same run.
    pub truth: Truth,
}

struct Profiler<'a> {
    platform: &'a Platform,
    workload: Workload,
    options: Options,
    settings: &'a Settings,
}

impl Simulation for Profiler<'_> {
    type Output = Result<Profiled, RunError>;

    fn workload(&mut self) -> &mut Workload {
        &mut self.workload
    }

    fn run<S: Scheduler + Clone>(self, sys: crate::sys::Sys, sched: S) -> Self::Output {
        let account = Account::new(&sys.layout);
        let platform = self.platform.clone();
        let engine = Engine::new(platform, sys, sched, account, self.workload, self.options);
        let mut load = Paused(engine);
        let profile = profile::profile(&mut load, self.settings)?;
        let now_ns = load.0.now_ns();
        Ok(Profiled { profile, truth: load.0.into_sink().finish(now_ns) })
    }
}

/// Profile a workload on so many packages of a platform, from its start.
pub fn profile(
    platform: &Platform,
    packages: usize,
    workload: Workload,
    spec: &PolicySpec,
    seed: u64,
    settings: &Settings,
) -> Result<Profiled, RunError> {
    let options = Options { seed, duration_ns: u64::MAX, ..Options::default() };
    let profiler = Profiler { platform, workload, options, settings };
    spec.run(platform, packages, profiler)
}
