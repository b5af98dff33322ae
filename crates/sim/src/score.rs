// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power scores of a simulation's tasks (policy/score.h, DIM 5.2): what the prototype of DIM 6.1,
//! in the kernel's `__schedule()`, would have made of the same switches.
//!
//! A sink: it sees who runs where and which level each core has, as the kernel sees switches and
//! licence counters, and nothing of what the code requests. A counter shows the level that is
//! granted; while a core waits for a higher one, or is halted, that is the old one.

use cpumodel::Platform;
use policy::Score;

use crate::engine::{Engine, Options, RunError};
use crate::events::{Happened, Sink};
use crate::program::Workload;
use crate::sched::fair::{Fair, Slices};
use crate::sys::{Layout, Sys, Tid};

/// A task's score over time.
#[derive(Clone, Copy, Debug, Default)]
struct Scored {
    score: Score,
    /// The sum of score * ns until `since_ns`.
    integral: u128,
    began_ns: u64,
    since_ns: u64,
}

impl Scored {
    fn count(&mut self, now_ns: u64) {
        self.integral += u128::from(self.score.score_q10) * u128::from(now_ns - self.since_ns);
        self.since_ns = now_ns;
    }
}

/// Keeps the scores of all tasks.
#[derive(Clone, Debug)]
pub struct Scores {
    core_of: Vec<u16>,
    /// By core.
    level: Vec<u8>,
    /// By CPU: time and level of its last switch.
    switched: Vec<(u64, u8)>,
    tasks: Vec<Scored>,
}

impl Scores {
    /// For the CPUs of a machine.
    pub fn new(layout: &Layout) -> Self {
        Scores {
            core_of: layout.place.iter().map(|place| place.core).collect(),
            level: vec![0; layout.cores.len()],
            switched: vec![(0, 0); layout.nr_cpus],
            tasks: Vec::new(),
        }
    }

    /// A task's score at this moment.
    pub fn score(&self, task: Tid) -> Score {
        self.tasks[task as usize].score
    }

    /// A task's score, averaged over its life until `now_ns`; `None` if it has had none.
    pub fn mean(&self, task: Tid, now_ns: u64) -> Option<f64> {
        let mut scored = self.tasks[task as usize];
        scored.count(now_ns);
        let life_ns = now_ns - scored.began_ns;
        (life_ns > 0).then(|| scored.integral as f64 / life_ns as f64 / 1024.0)
    }

    fn leaves(&mut self, now_ns: u64, cpu: usize, task: Tid) {
        let (came_ns, before) = self.switched[cpu];
        let now = self.level[self.core_of[cpu] as usize];
        let scored = &mut self.tasks[task as usize];
        scored.count(now_ns);
        scored.score.switch(before.into(), now.into(), now_ns - came_ns);
    }
}

impl Sink for Scores {
    const WANTED: bool = true;

    fn happened(&mut self, at_ns: u64, what: &Happened<'_>) {
        match *what {
            Happened::New { task, .. } => {
                let new = Scored { began_ns: at_ns, since_ns: at_ns, ..Scored::default() };
                let nr = self.tasks.len().max(task as usize + 1);
                self.tasks.resize(nr, new);
                self.tasks[task as usize] = new;
            }
            Happened::Start { cpu, .. } => {
                let level = self.level[self.core_of[cpu as usize] as usize];
                self.switched[cpu as usize] = (at_ns, level);
            }
            Happened::Stop { task, cpu, .. } => self.leaves(at_ns, cpu as usize, task),
            Happened::License { core, level, .. } => self.level[core as usize] = level,
            _ => {}
        }
    }
}

/// Mean score of each group's tasks over the run, in the order of the workload's groups; `None` for
/// a group without tasks. The scheduler is the kernel's fair one of DIM 6.1, Linux 5.2: scores are
/// made at switches, and DIM 2 has one in 10 to 20 ms.
pub fn power_scores(
    platform: &Platform,
    packages: usize,
    workload: Workload,
    options: Options,
) -> Result<Vec<Option<f64>>, RunError> {
    let sys = Sys::new(Layout::new(&platform.topology(packages)));
    let sched = Fair::with_slices(&sys, Slices::Latency);
    let scores = Scores::new(&sys.layout);
    let nr_groups = workload.groups.len();
    let mut engine = Engine::new(platform.clone(), sys, sched, scores, workload, options);
    engine.run()?;
    let (now_ns, group_of) = (engine.now_ns(), engine.group_of());
    let mut sums = vec![(0.0, 0u32); nr_groups];
    for (task, &group) in group_of.iter().enumerate() {
        if let Some(mean) = engine.sink().mean(task as Tid, now_ns) {
            let (sum, nr) = &mut sums[group as usize];
            (*sum, *nr) = (*sum + mean, *nr + 1);
        }
    }
    Ok(sums.into_iter().map(|(sum, nr)| (nr > 0).then(|| sum / f64::from(nr))).collect())
}
