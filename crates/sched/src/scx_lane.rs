// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run in scx mode: the scheduler, the settings it runs with, and what keeps them together
//! while CPUs come and go.
//!
//! CPU hotplug: the kernel ends a scheduler that was built for another set of CPUs and asks for
//! a restart. The new one is loaded for the new topology with the same settings and marks, and
//! keeps the hint page, so applications notice nothing but a moment on the kernel's scheduler.

use std::time::{Duration, Instant};

use cpumodel::{CpuSet, LevelClocks, Topology};
use policy::Split;
use report::lane::{CpuTimes, LaneStats, LaneTasks};

use crate::autosize::{AutoSize, Counted, PERIOD};
use crate::clock::monotonic_ns;
use crate::clocks;
use crate::config::{Config, Mode, WideCpus};
use crate::error::{Error, Result};
use crate::goal::{self, GoalLoop};
use crate::hurry::Hurry;
use crate::layout;
use crate::marks::{Emulation, MarkRules, ResolvedMark};
use crate::obstacles::of_topology;
use crate::scx::{CpuCounters, Ended, Fault, HintMaps, Scheduler, SlotSetter};
use crate::stats::{self, lane_stats};
use crate::trap::Trap;

mod code;
mod marks;
mod pause;

use code::CodeWatch;
pub use pause::{PAUSE_MAX, no_pause_by_masks};

/// The scheduler and everything that was passed to it.
pub struct ScxLane {
    scheduler: Scheduler,
    /// To be placed when it begins.
    marks: Vec<ResolvedMark>,
    // After the scheduler: what listens to the module's event keeps it from being removed.
    trap: Option<Trap>,
    topology: Topology,
    config: Config,
    fault: Fault,
    emulation: Emulation,
    wide_cores: Vec<usize>,
    /// Their classes.
    split: Split,
    auto: Option<(AutoSize, Instant)>,
    /// Whether sections were seen since the first CPU became wide.
    has_sections: bool,
    /// Of this CPU, by level.
    clocks: LevelClocks,
    /// Counters of the schedulers before a restart, by CPU.
    before: Vec<CpuCounters>,
    /// How often the wide CPUs or their classes have changed.
    size_changes: u64,
    /// While the scheduler is away: its last sign of life.
    sign: Instant,
    /// The last look at the files of marks.
    files_seen: Instant,
    /// While a client has asked for the kernel's own scheduler: until when.
    paused_until: Option<Instant>,
    /// Why it could not come back from a pause.
    broken: Option<Error>,
    /// Where tasks have power scores, once it has begun.
    code: Option<CodeWatch>,
}

/// How often the daemon gives a sign of life while its scheduler is away (bpf/hint_page.h).
const SIGN: Duration = Duration::from_secs(1);

/// What [`ScxLane::poll`] found.
pub enum Polled {
    /// All is well.
    Running,
    /// A new scheduler was loaded, with the same hint page: it knows no slots yet.
    Restarted,
    /// The scheduler is gone for good.
    Ended(Ended),
}

impl ScxLane {
    /// Load and attach.
    pub fn start(config: Config, fault: Fault) -> Result<Self> {
        let mut lane = Self::prepare(config, fault, None)?;
        lane.begin()?;
        Ok(lane)
    }

    /// Check and load everything, and take nothing over yet. `hints` are the maps of the scheduler
    /// that this one is to replace.
    pub fn prepare(config: Config, fault: Fault, hints: Option<&HintMaps>) -> Result<Self> {
        let topology = topology()?;
        let wide_cores = first_cores(&topology, &config)?;
        goal::check(&config, Mode::Scx).map_err(Error::BadInput)?;
        let emulation = Emulation::of(&hw::kernel::read_kernel(&hw::Live).release);
        let marks = MarkRules::of(&config, emulation).places(&config.marks)?;
        let trap = Trap::prepare(&config)?;
        let scheduler = Scheduler::load(&topology, &config, hints, fault)?;
        Ok(ScxLane {
            scheduler,
            marks,
            trap,
            topology,
            config,
            fault,
            emulation,
            split: one_class(&wide_cores),
            wide_cores,
            auto: None,
            has_sections: false,
            clocks: clocks::of(&hw::cpu::read_cpu(&hw::Live)),
            before: Vec::new(),
            size_changes: 0,
            sign: Instant::now(),
            files_seen: Instant::now(),
            paused_until: None,
            broken: None,
            code: None,
        })
    }

    /// Take over, from the kernel's own scheduler. Says when that was done, in CLOCK_MONOTONIC:
    /// marks are placed after it.
    pub fn begin(&mut self) -> Result<u64> {
        let _hurry = Hurry::start();
        let marks = std::mem::take(&mut self.marks);
        self.attach(&marks)
    }

    /// The trap module, if this run uses it, is ours to remove at the end.
    pub fn own_module(&mut self) {
        if let Some(trap) = &mut self.trap {
            trap.own_module();
        }
    }

    /// Leave the machine to the next scheduler, which is loaded and has our board: it stays valid,
    /// and marks stay until this is dropped. Says when that began, in CLOCK_MONOTONIC, and whether
    /// the trap module is the next one's to remove.
    pub fn yield_machine(&mut self) -> (u64, bool) {
        let owns_module = self.trap.take().is_some_and(Trap::yield_module);
        self.end_pause();
        let since_ns = monotonic_ns();
        // How it ended matters no more.
        _ = self.scheduler.leave(true);
        (since_ns, owns_module)
    }

    /// Take the machine back from a scheduler that has failed to take it over.
    pub fn take_back(&mut self, owns_module: bool) -> Result<()> {
        self.trap = Trap::prepare(&self.config)?;
        if owns_module {
            self.own_module();
        }
        if self.scheduler.is_outdated() {
            return self.restart();
        }
        let classes = layout::classes(&self.topology, &self.wide_cores, &self.split);
        self.scheduler.come_back(&self.config, &classes, self.mark_rules())?;
        self.follow_classes()
    }

    /// For the server that hands them out.
    pub fn hint_maps(&self) -> Result<HintMaps> {
        self.scheduler.hint_maps()
    }

    /// Shows applications what the scheduler does with hints.
    pub fn publish(&self) -> Result<()> {
        let nr_cpus = layout::nr_cpus(&self.topology) as u32;
        let lacks = clocks::published(&self.clocks);
        self.scheduler.publish(self.config.rest_below_ns, nr_cpus, lacks)
    }

    /// For the hint server's thread.
    pub fn slot_setter(&self) -> Result<SlotSetter> {
        self.scheduler.slot_setter()
    }

    /// The CPUs as the scheduler knows them.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Change to these settings: all of them, or none and an error.
    pub fn reconfigure(&mut self, config: Config) -> Result<()> {
        goal::check(&config, Mode::Scx).map_err(Error::BadInput)?;
        // Settings are put into force by the scheduler; if it still stands by then, it goes again.
        // A pause ends.
        self.end_pause();
        self.come_back()?;
        let resized = config.wide_cpus != self.config.wide_cpus;
        let (wide_cores, split) = if resized {
            let wide_cores = first_cores(&self.topology, &config)?;
            let split = one_class(&wide_cores);
            (wide_cores, split)
        } else if config.tiers != self.config.tiers {
            (self.wide_cores.clone(), one_class(&self.wide_cores))
        } else {
            // What was accepted before is not checked anew: since then CPUs may have come or gone.
            (self.wide_cores.clone(), self.split)
        };
        let resized = resized || config.tiers != self.config.tiers;
        let before = (self.config.clone(), self.wide_cores.clone(), self.split);
        let applied = self.apply(config, wide_cores, split);
        if applied.is_err() {
            // If this fails too, scheduler or module are gone, and poll() reports it.
            _ = self.apply(before.0, before.1, before.2);
        } else if resized {
            self.start_sizing()?;
        }
        applied
    }

    /// Puts settings and wide cores into force, in part if it fails.
    fn apply(&mut self, config: Config, wide_cores: Vec<usize>, split: Split) -> Result<()> {
        self.config = config;
        if (&wide_cores, split) != (&self.wide_cores, self.split) {
            self.widen(wide_cores, split)?;
        }
        self.scheduler.set_settings(&self.config)?;
        self.scheduler.set_scope(&self.config.scope)?;
        if let Some(trap) = &self.trap {
            trap.set_settings(&self.config)?;
        }
        self.follow_classes()
    }

    /// Make these cores the wide ones, and give them these classes.
    fn widen(&mut self, wide_cores: Vec<usize>, split: Split) -> Result<()> {
        self.scheduler.set_classes(&layout::classes(&self.topology, &wide_cores, &split))?;
        self.size_changes += 1;
        (self.wide_cores, self.split) = (wide_cores, split);
        Ok(())
    }

    /// Say that a task is scalar until it proves wide; its children inherit that.
    pub fn classify_scalar(&self, tid: u32) -> Result<()> {
        self.scheduler.classify_scalar(tid)
    }

    /// CPUs that are wide now, and the other online ones.
    pub fn cpus(&self) -> (CpuSet, CpuSet) {
        if self.paused_until.is_some() {
            return (CpuSet::EMPTY, self.topology.online());
        }
        let wide = layout::cpus_of(&self.topology, &self.wide_cores);
        (wide, self.topology.online() - wide)
    }

    /// Has the trap module withhold on the scalar CPUs as they are now.
    fn follow_classes(&mut self) -> Result<()> {
        let (wide, scalar) = self.cpus();
        let looks = self.paused_until.is_none()
            && self.auto.as_ref().is_some_and(|(auto, _)| auto.is_looking())
            && !self.scheduler.is_away();
        // Without any wide CPU a task that trapped would have nowhere to go.
        let armed = if wide.is_empty() && !looks { CpuSet::EMPTY } else { scalar };
        self.trap.as_mut().map_or(Ok(()), |trap| trap.follow(&armed))
    }

    /// What was counted since the start.
    pub fn stats(&self, interval_ns: u64) -> LaneStats {
        let mut counters = self.counters();
        counters.extend_from_slice(&self.before);
        let size_changes = Some(self.size_changes);
        let standby = self.auto.as_ref().and_then(|(auto, _)| auto.standby());
        LaneStats {
            size_changes,
            probes_missed: Some(self.scheduler.probes_missed()),
            marks_lost: Some(self.scheduler.lost_marks().count() as u64),
            standing_by: self.is_standing_by().map(u64::from),
            winnable_permille: standby.map(|standby| u64::from(standby.at_most_q10) * 1000 / 1024),
            ..lane_stats(&counters, interval_ns, self.cpus().0.len())
        }
    }

    /// What the tasks have done that ran since then.
    pub fn tasks(&self, since_ns: u64) -> Result<LaneTasks> {
        self.scheduler.tasks(since_ns)
    }

    /// What each online CPU did.
    pub fn cpu_times(&self) -> Vec<CpuTimes> {
        let counters = self.counters();
        let online = self.topology.online();
        let times = counters.iter().enumerate().filter(|(cpu, _)| online.contains(*cpu));
        times.map(|(cpu, counters)| stats::cpu_times(cpu as u32, counters)).collect()
    }

    /// To be called every [`PERIOD`]: automatic sizing, and a restart if the kernel asks for one.
    pub fn poll(&mut self) -> Result<Polled> {
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        let outdated = self.scheduler.is_away() && self.scheduler.is_outdated();
        let ended = match self.scheduler.ended() {
            None if !outdated && self.pause_left().is_some_and(|left| !left.is_zero()) => {
                self.go_or_come_back()?
            }
            None if !outdated => {
                self.resume()?;
                self.resize()?;
                self.go_or_come_back()?
            }
            ended => ended,
        };
        match ended {
            Some(ended) if ended.is_error() || !ended.wants_restart() => Ok(Polled::Ended(ended)),
            None if !outdated => {
                self.follow_marks();
                self.scheduler.follow_groups();
                self.follow_code();
                Ok(Polled::Running)
            }
            _ => {
                self.restart()?;
                Ok(Polled::Restarted)
            }
        }
    }

    /// Give the machine back; says how the scheduler ended.
    pub fn stop(&mut self) -> Option<Ended> {
        self.scheduler.detach()
    }

    fn attach(&mut self, marks: &[ResolvedMark]) -> Result<u64> {
        let classes = layout::classes(&self.topology, &self.wide_cores, &self.split);
        // First: no task is another for a moment.
        self.scheduler.set_scope(&self.config.scope)?;
        self.scheduler.attach(&classes)?;
        let attached_ns = monotonic_ns();
        self.scheduler.set_settings(&self.config)?;
        if let Some(trap) = &self.trap {
            trap.set_settings(&self.config)?;
        }
        for mark in marks {
            self.scheduler.add_mark(mark)?;
        }
        self.start_sizing()?;
        self.follow_classes().map(|()| attached_ns)
    }

    /// Leaves the machine to the kernel's own scheduler, or takes it back, as was decided. Says how
    /// the scheduler has ended, if that is what came of it.
    fn go_or_come_back(&mut self) -> Result<Option<Ended>> {
        let is_paused = self.paused_until.is_some();
        let goes = match self.fault {
            Fault::Leaves => !self.scheduler.is_away(),
            _ => is_paused || self.auto.as_ref().is_some_and(|(auto, _)| auto.is_away()),
        };
        match (self.scheduler.is_away(), goes) {
            (false, true) => {
                self.scheduler.send_home()?;
                let keeps_marks =
                    !is_paused && self.auto.as_ref().is_none_or(|(auto, _)| auto.keeps_marks());
                Ok(self.scheduler.leave(keeps_marks))
            }
            (true, false) => self.come_back().map(|()| None),
            (true, true) if self.sign.elapsed() >= SIGN => {
                self.sign = Instant::now();
                self.scheduler.give_sign().map(|()| None)
            }
            _ => Ok(None),
        }
    }

    fn come_back(&mut self) -> Result<()> {
        if !self.scheduler.is_away() {
            return Ok(());
        }
        let classes = layout::classes(&self.topology, &self.wide_cores, &self.split);
        self.scheduler.come_back(&self.config, &classes, self.mark_rules())?;
        self.follow_classes()
    }

    fn start_sizing(&mut self) -> Result<()> {
        self.scheduler.watch_exposure(AutoSize::may_stand_by(&self.config));
        self.scheduler.set_counts(Default::default());
        self.auto = None;
        if AutoSize::is_asked(&self.config) {
            let (nr_wide, clocks) = (self.wide_cores.len(), self.clocks.clone());
            let (topology, counted) = (&self.topology, self.counted());
            let mut auto = AutoSize::new(&self.config, topology, clocks, nr_wide, &counted);
            auto.decide_by(GoalLoop::start(&self.config)?);
            self.auto = Some((auto, Instant::now()));
        }
        Ok(())
    }

    fn resize(&mut self) -> Result<()> {
        let mut counted = self.counted();
        self.look_for_sections(&counted.cpus)?;
        let Some((auto, last)) = &mut self.auto else { return Ok(()) };
        let elapsed = last.elapsed();
        if elapsed < PERIOD {
            return Ok(());
        }
        *last = Instant::now();
        if auto.is_looking() && !self.scheduler.is_away() {
            counted.away = self.scheduler.kernel_use()?;
        }
        let (topology, nr_wide) = (&self.topology, self.wide_cores.len());
        let resized = auto.update(&self.config, topology, nr_wide, &counted, elapsed);
        let reordered = auto.asks_for_bound()
            && auto.take_in(&self.scheduler.bound_tasks()?, topology, &self.wide_cores);
        self.scheduler.set_counts(auto.counts());
        let Some(split) = resized.or(reordered.then_some(self.split)) else { return Ok(()) };
        let wide_cores = match self.config.wide_cpus {
            WideCpus::Auto => auto.cores(split.nr_wide()),
            _ => self.wide_cores.clone(),
        };
        if (&wide_cores, split) != (&self.wide_cores, self.split) {
            self.widen(wide_cores, split)?;
        }
        self.follow_classes()
    }

    /// Notes whether hints or marks were seen while there are wide CPUs.
    fn look_for_sections(&mut self, counters: &[CpuCounters]) -> Result<()> {
        let seen = counters.iter().any(|cpu| cpu.hint_events + cpu.mark_events > 0);
        let has_sections = !self.wide_cores.is_empty() && (self.has_sections || seen);
        if has_sections == self.has_sections {
            return Ok(());
        }
        self.has_sections = has_sections;
        self.scheduler.set_sections(&self.config, has_sections)
    }

    fn restart(&mut self) -> Result<()> {
        let _hurry = Hurry::start();
        // The kernel counts a hotplug event before the CPU's topology has settled in sysfs.
        std::thread::sleep(Duration::from_millis(20));
        self.before.extend(self.counters());
        self.scheduler.detach();
        self.has_sections = false;
        self.end_pause();
        self.topology = topology()?;
        self.wide_cores = match AutoSize::may_stand_by(&self.config) {
            true => Vec::new(),
            false => layout::wide_cores_left(&self.topology, &self.config.wide_cpus),
        };
        self.split = one_class(&self.wide_cores);
        let hints = self.hint_maps()?;
        self.scheduler = Scheduler::load(&self.topology, &self.config, Some(&hints), self.fault)?;
        self.attach(&[])?;
        self.place_marks();
        Ok(())
    }

    fn counted(&self) -> Counted {
        let (cpus, slots_given) = (self.counters(), self.scheduler.slots_given());
        Counted { cpus, slots_given, ..Counted::default() }
    }

    fn counters(&self) -> Vec<CpuCounters> {
        self.scheduler.counters(layout::nr_cpus(&self.topology))
    }
}

/// The cores that are wide at the start: none, where that is the policy's to say.
fn first_cores(topology: &Topology, config: &Config) -> Result<Vec<usize>> {
    match AutoSize::may_stand_by(config) {
        true => Ok(Vec::new()),
        false => layout::wide_cores(topology, &config.wide_cpus),
    }
}

/// No split of these cores, before anybody knows the demand.
fn one_class(wide_cores: &[usize]) -> Split {
    Split::one_class(wide_cores.len() as u32)
}

pub(crate) fn topology() -> Result<Topology> {
    hw::topology(&hw::Live).map_err(|e| of_topology(&e))
}
