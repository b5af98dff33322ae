// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building a simulation: options, tables, tasks, clients, and what is done to the machine while it
//! runs.

use cpumodel::{CoreLicense, Platform};

use super::power::{PowerState, siblings_power_q10};
use super::rates::khz_to_rate_q;
use super::stats::{CpuSums, Stats};
use super::steps::{Barrier, Client, Lock, MessageQueue};
use super::{Core, Cpu, CpuState, Engine, Load, Package, Point, Task, TaskState, Todo, kind};
use crate::bits::Mask;
use crate::events::{Happened, Sink};
use crate::program::{Arrivals, REPEAT_SLOTS, Step, Workload};
use crate::rng::Rng;
use crate::sched::{NewTask, Scheduler};
use crate::sys::{NO_TASK, Sys, Tid};
use crate::timers::{Agenda, NEVER, Timers};

/// What is done to the machine from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A CPU goes on or off line. The last one stays.
    Online(usize, bool),
    /// The tasks of a group get another affinity.
    Affinity(u16, Vec<usize>),
}

/// How a simulation runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random seed.
    pub seed: u64,
    /// How long at most.
    pub duration_ns: u64,
    /// Counting begins after this time.
    pub warmup_ns: u64,
    /// Period of the timer tick. Debian's kernels have 250 per second.
    pub tick_ns: u64,
    /// When what is done from outside.
    pub actions: Vec<(u64, Action)>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            duration_ns: 1_000_000_000,
            warmup_ns: 0,
            tick_ns: 4_000_000,
            actions: Vec::new(),
        }
    }
}

impl<S: Scheduler, K: Sink> Engine<S, K> {
    /// A machine of this platform with this workload. `sys` comes fresh from [`Sys::new`], and
    /// `sched` was made for it.
    pub fn new(
        platform: Platform,
        sys: Sys,
        sched: S,
        sink: K,
        workload: Workload,
        options: Options,
    ) -> Self {
        let layout = sys.layout.clone();
        let threads = layout.cores.iter().map(Vec::len).max().unwrap_or(1);
        let mut engine = Engine {
            levels: workload
                .codes
                .iter()
                .map(|code| platform.level_of(code.class, code.per_cycle))
                .collect(),
            points: points(&platform),
            reference_q: khz_to_rate_q(platform.clock_khz(0, platform.nr_cores)),
            memory: memory(&workload, &platform),
            carried_q: khz_to_rate_q(platform.clock_khz(0, platform.nr_cores))
                * (platform.costs.context_switch_ns / 2),
            share_q10: shares_q10(platform.smt_frac, threads),
            throttle_q10: (platform.throttle_frac * 1024.0) as u32,
            siblings_power_q10: siblings_power_q10(&platform),
            cpus: (0..layout.nr_cpus).map(|cpu| new_cpu(&layout.place[cpu])).collect(),
            cores: new_cores(&layout),
            packages: new_packages(&layout, &platform),
            tasks: Vec::new(),
            first_task_of_group: Vec::new(),
            code_levels: code_levels(&workload, &platform),
            tasks_of_group: vec![0; workload.groups.len()],
            queues: vec![MessageQueue::default(); workload.nr_queues],
            clients: Vec::new(),
            locks: workload
                .locks
                .iter()
                .map(|l| Lock { fair: l.fair, taken: false, waiters: Default::default() })
                .collect(),
            barriers: workload
                .barriers
                .iter()
                .map(|&size| Barrier { size, waiters: Vec::new() })
                .collect(),
            cpu_timers: Timers::new(layout.nr_cpus),
            core_timers: Timers::new(layout.cores.len()),
            package_timers: Timers::new(layout.nr_packages),
            agenda: Agenda::default(),
            group_affinity: Vec::new(),
            nr_alive: 0,
            stats: Stats::new(&workload),
            error: None,
            sys,
            sched,
            sink,
            platform,
            options,
            workload,
        };
        engine.populate();
        if K::WANTED {
            (0..engine.cores.len()).for_each(|core| engine.tell_license(core));
        }
        engine
    }

    fn populate(&mut self) {
        self.agenda.push(0, kind::CONTROL);
        self.begin_power_looks();
        let nr_cpus = self.sys.layout.nr_cpus;
        for group in 0..self.workload.groups.len() {
            let g = &self.workload.groups[group];
            let affinity = match &g.affinity {
                Some(cpus) => self.sys.intern_affinity(Mask::of(nr_cpus, cpus.iter().copied())),
                None => 0,
            };
            self.group_affinity.push(affinity);
            self.first_task_of_group.push(self.tasks.len() as Tid);
            let (start_ns, nr_tasks) = (g.start_ns, g.tasks);
            for i in 0..nr_tasks {
                let cpu = self.first_cpu(affinity, i);
                let task = self.add_task(group as u16, None, cpu);
                self.agenda.push(start_ns + 1_000 * i as u64, kind::TASK | task);
            }
        }
        for source in 0..self.workload.sources.len() {
            self.add_clients(source);
        }
        for (i, (at_ns, _)) in self.options.actions.iter().enumerate() {
            self.agenda.push(*at_ns, kind::ACTION | i as u32);
        }
    }

    /// Tasks begin spread over the CPUs that they may use.
    fn first_cpu(&self, affinity: u16, i: usize) -> u16 {
        let mask = self.sys.affinity_mask(affinity);
        let nr = mask.len().max(1);
        mask.iter().nth(i % nr).unwrap_or(0) as u16
    }

    fn add_clients(&mut self, index: usize) {
        let source = self.workload.sources[index].clone();
        let group = source.to_group as usize;
        let nr_tasks = self.workload.groups[group].tasks.max(1);
        let nr_clients = match source.arrivals {
            Arrivals::Open { .. } => 1,
            Arrivals::Closed { clients, .. } => clients,
        };
        for i in 0..nr_clients {
            let number = self.clients.len() as u32;
            let mut rng = Rng::new(self.options.seed, 1 << 32 | u64::from(number));
            // not all at once: within the first millisecond
            let at_ns = source.start_ns + rng.below(1_000_000);
            let task = self.first_task_of_group[group] + (i % nr_tasks) as Tid;
            self.clients.push(Client { source: index as u16, task, rng });
            self.agenda.push(at_ns, kind::CLIENT | number);
        }
    }

    /// A new task, which waits for its first wakeup.
    pub(super) fn add_task(&mut self, group: u16, parent: Option<Tid>, cpu: u16) -> Tid {
        let g = &self.workload.groups[group as usize];
        let affinity = self.group_affinity[group as usize];
        let number = &mut self.tasks_of_group[group as usize];
        let program = g.programs[*number % g.programs.len()];
        *number += 1;
        let task = self.sys.add_task(affinity, cpu);
        self.tasks.push(Task {
            state: TaskState::Waiting,
            asked: false,
            group,
            program,
            code: 0,
            pc: 0,
            left_q: 0,
            debt_q: 0,
            refill_q10: (g.refill_frac * 1024.0) as u32,
            message: None,
            repeats: [0; REPEAT_SLOTS],
            rng: Rng::new(self.options.seed, u64::from(task)),
            woken_ns: 0,
        });
        self.queues.push(MessageQueue::default());
        self.nr_alive += 1;
        self.stats.begun(group as usize);
        let code_level = self.code_levels[program as usize];
        let (weight, scalar, kernel) = (g.weight, g.scalar, g.kernel);
        let new = NewTask { task, parent, weight, scalar, kernel, code_level };
        if K::WANTED {
            let what = Happened::New { task, affinity: self.sys.affinity(task), kernel: g.kernel };
            self.sink.happened(self.sys.now_ns, &what);
        }
        self.sched.new_task(&mut self.sys, &new);
        task
    }

    /// Something is done from outside.
    pub(super) fn act_on(&mut self, index: usize) {
        match self.options.actions[index].1.clone() {
            Action::Online(cpu, online) => self.set_online(cpu, online),
            Action::Affinity(group, cpus) => self.set_affinity(group, &cpus),
        }
    }

    fn set_affinity(&mut self, group: u16, cpus: &[usize]) {
        let mask = Mask::of(self.sys.layout.nr_cpus, cpus.iter().copied());
        if !mask.intersects(&self.sys.online) {
            return; // as the kernel: EINVAL
        }
        let affinity = self.sys.intern_affinity(mask);
        self.group_affinity[group as usize] = affinity;
        for task in 0..self.tasks.len() as Tid {
            let t = &self.tasks[task as usize];
            if t.group == group && t.state != TaskState::Ended {
                self.set_task_affinity(task, affinity);
            }
        }
        self.leave_forbidden_cpus();
    }

    fn set_task_affinity(&mut self, task: Tid, affinity: u16) {
        self.sys.set_affinity(task, affinity);
        if K::WANTED {
            let what = Happened::Affinity { task, affinity: self.sys.affinity(task) };
            self.sink.happened(self.sys.now_ns, &what);
        }
        self.sched.affinity_changed(&mut self.sys, task);
    }

    /// Tasks whose affinity holds no CPU that is on line may use every CPU from now on, as the
    /// kernel decides (select_fallback_rq()).
    fn break_affinities(&mut self) {
        for group in 0..self.group_affinity.len() {
            let affinity = self.group_affinity[group];
            if self.sys.affinity_mask(affinity).intersects(&self.sys.online) {
                continue;
            }
            self.group_affinity[group] = 0;
            for task in 0..self.tasks.len() as Tid {
                let t = &self.tasks[task as usize];
                if t.group as usize == group && t.state != TaskState::Ended {
                    self.set_task_affinity(task, 0);
                }
            }
        }
    }

    /// A CPU goes on or off line.
    fn set_online(&mut self, cpu: usize, online: bool) {
        if self.sys.online.has(cpu) == online || (!online && self.sys.online.len() == 1) {
            return;
        }
        if online {
            self.sys.online.set(cpu);
            self.cpus[cpu].state = CpuState::Idle;
            self.sys.set_idle(cpu);
        } else {
            self.sys.online.clear(cpu);
            self.sys.set_busy(cpu);
        }
        if K::WANTED {
            let what = Happened::Online { cpu: cpu as u16, online };
            self.sink.happened(self.sys.now_ns, &what);
        }
        self.break_affinities();
        self.sched.hotplug(&mut self.sys, &mut self.sink);
        self.leave_forbidden_cpus();
    }

    /// Tasks leave CPUs that are off line or that they may not use any more, at once: the kernel
    /// stops such a CPU's task by its stopper thread.
    fn leave_forbidden_cpus(&mut self) {
        for cpu in 0..self.cpus.len() {
            let task = self.cpus[cpu].curr;
            let offline = !self.sys.online.has(cpu);
            if offline {
                self.take_down(cpu);
            } else if task != NO_TASK && !self.sys.allows(task, cpu) {
                self.evict(cpu);
                self.advance(cpu, Todo::Choose { yields: false });
            }
        }
    }
}

fn new_cpu(place: &crate::sys::Place) -> Cpu {
    Cpu {
        state: CpuState::Idle,
        curr: NO_TASK,
        last: NO_TASK,
        core: place.core,
        package: place.package,
        asks: 0,
        load: Load::None,
        left_q: 0,
        synced_ns: 0,
        work_end_ns: NEVER,
        tick_ns: 0,
        resched_ns: NEVER,
        alarm_ns: NEVER,
        level: 0,
        now: Point::default(),
        rate_holds: false,
        sums: CpuSums::default(),
        started: super::stats::Run::default(),
    }
}

fn new_cores(layout: &crate::sys::Layout) -> Vec<Core> {
    let core = |cpus: &Vec<u16>| Core {
        license: CoreLicense::default(),
        package: layout.place[cpus[0] as usize].package,
        cpus: cpus.clone(),
        nr_busy: 0,
    };
    layout.cores.iter().map(core).collect()
}

fn new_packages(layout: &crate::sys::Layout, platform: &Platform) -> Vec<Package> {
    let package_of = |core: &Vec<u16>| layout.place[core[0] as usize].package as usize;
    let cores = layout.cores.iter();
    (0..layout.nr_packages)
        .map(|package| Package {
            cores: cores
                .clone()
                .enumerate()
                .filter(|(_, core)| package_of(core) == package)
                .map(|(i, _)| i as u16)
                .collect(),
            nr_active: 0,
            applied: 0,
            level: 0,
            power: PowerState::new(platform),
        })
        .collect()
}

/// By program: the highest level of its instructions, one by one as a scanner sees them.
fn code_levels(workload: &Workload, platform: &Platform) -> Vec<u8> {
    let level = |step: &Step| match step {
        Step::Work { code, .. } => {
            let class = workload.codes[*code as usize].class;
            platform.level_of(class, f64::INFINITY)
        }
        _ => 0,
    };
    workload.programs.iter().map(|steps| steps.iter().map(level).max().unwrap_or(0)).collect()
}

fn points(platform: &Platform) -> Vec<Point> {
    let point = |level: usize, khz: u32| Point {
        rate_q: khz_to_rate_q(khz),
        khz,
        mw: (platform.busy_core_w(level as u8, khz) * 1e3) as u32,
    };
    let rows = platform.clock_khz.iter().enumerate();
    rows.flat_map(|(level, row)| row.iter().map(move |&khz| point(level, khz))).collect()
}

/// See [`Engine::memory`].
fn memory(workload: &Workload, platform: &Platform) -> Vec<(u64, u64)> {
    if workload.groups.iter().all(|group| group.memory.sensitive_frac >= 1.0) {
        return Vec::new();
    }
    let of = |group: &crate::program::Group| {
        let reference_khz = group.memory.reference_khz;
        let reference_khz = reference_khz.unwrap_or(platform.clock_khz(0, platform.nr_cores));
        let sensitive_q10 = (group.memory.sensitive_frac * 1024.0).round() as u64;
        (sensitive_q10.min(1024), khz_to_rate_q(reference_khz).max(1))
    };
    workload.groups.iter().map(of).collect()
}

/// `[n]`: what each of n busy siblings gets of the core's single-thread rate.
fn shares_q10(smt_frac: f64, threads: usize) -> Vec<u32> {
    (0..=threads)
        .map(|n| if n < 2 { 1024 } else { (smt_frac / n as f64 * 1024.0) as u32 })
        .collect()
}
