// SPDX-License-Identifier: MIT OR Apache-2.0
//! From two samples to what happened between them.
//!
//! Everything that is sampled only grows, so a rate is a difference over the interval. Three things
//! make that less simple:
//!
//! - a task that was not listed before has either just started or not run until now: in both cases
//!   it grew from zero. If the list was cut, this is unknown, and the task waits for its second
//!   appearance;
//! - a lane that restarts (CPUs came or went) counts from zero again, and so does another lane;
//! - the sources are read one after the other, within a millisecond or so, and the scheduler
//!   charges a running task at its ticks. So a share may come out above 100 %; it is shown as 100
//!   %.

use std::collections::HashMap;

use cpumodel::CpuSet;
use hw::activity::CpuTicks;
use hw::levels::{LEVELS, LevelCycles};
use report::lane::{CpuTimes, LaneStats, LaneTask};
use report::stats::Statistics;
use report::top::{CpuRole, TaskType, TasksFrom, Top, TopCpu, TopLane, TopTask, TopTotals};

use crate::sample::{LaneAnswer, Sample};

/// Keeps what the next interval is measured against.
pub struct Meter {
    ticks_per_s: u64,
    last: Option<Sample>,
    lane_tasks: HashMap<(u32, u64), LaneTask>,
    list_was_cut: bool,
}

impl Meter {
    /// A meter whose first sample begins the first interval.
    pub fn new(ticks_per_s: u64) -> Self {
        Meter { ticks_per_s, last: None, lane_tasks: HashMap::new(), list_was_cut: false }
    }

    /// What happened since the last sample; `None` for the first.
    pub fn add(&mut self, now: Sample) -> Option<Top> {
        let last = self.last.take();
        let tasks = self.tasks(last.as_ref(), &now);
        let top = last.map(|last| top_of(&last, &now, tasks));
        self.last = Some(now);
        top
    }

    fn tasks(&mut self, last: Option<&Sample>, now: &Sample) -> Vec<TopTask> {
        let Ok(answer) = &now.lane else {
            self.lane_tasks.clear();
            return last.map_or_else(Vec::new, |last| self.proc_tasks(last, now));
        };
        let Some(listed) = &answer.tasks.tasks else {
            return last.map_or_else(Vec::new, |last| self.proc_tasks(last, now));
        };
        let before = last.and_then(|last| earlier_of(last, answer));
        if before.is_none() {
            self.lane_tasks.clear();
            self.list_was_cut = false;
        }
        let grown = before.map_or_else(Vec::new, |before| {
            let interval_ns = answer.tasks.now_ns.saturating_sub(before.tasks.now_ns).max(1);
            listed.iter().filter_map(|task| self.lane_task(task, interval_ns)).collect()
        });
        if now.is_full_list {
            self.lane_tasks.clear();
            self.list_was_cut = false;
        }
        self.list_was_cut |= answer.tasks.left_out > 0;
        self.lane_tasks.extend(listed.iter().map(|t| ((t.tid, t.start_ns), t.clone())));
        grown
    }

    /// What a task did since its last appearance; `None` if it has not run, or no one knows.
    fn lane_task(&self, now: &LaneTask, interval_ns: u64) -> Option<TopTask> {
        let zero = LaneTask::default();
        let before = match self.lane_tasks.get(&(now.tid, now.start_ns)) {
            // A scheduler that has restarted counts from zero.
            Some(before) if before.run_ns <= now.run_ns => before,
            None if self.list_was_cut => return None,
            _ => &zero,
        };
        let run_ns = now.run_ns - before.run_ns;
        if run_ns == 0 {
            return None;
        }
        let of_run = |now: u64, before: u64| now.saturating_sub(before) as f64 / run_ns as f64;
        let per_s = |now: u64, before: u64| {
            Some(now.saturating_sub(before) as f64 * 1e9 / interval_ns as f64)
        };
        Some(TopTask {
            tid: now.tid,
            pid: now.pid,
            name: now.name.clone(),
            task_type: task_type(now.task_type),
            license_level: Some(now.license_level),
            mean_level: Some(of_run(now.level_run_ns, before.level_run_ns)),
            power_score: now.power_score_q10.map(|score| f64::from(score) / 1024.0),
            cpu: now.cpu,
            cpu_pct: share_pct(run_ns, interval_ns),
            wide_pct: Some(100.0 * of_run(now.wide_run_ns, before.wide_run_ns).min(1.0)),
            migrations_per_s: per_s(now.migrations, before.migrations),
            traps_per_s: per_s(now.traps, before.traps),
        })
    }

    fn proc_tasks(&self, last: &Sample, now: &Sample) -> Vec<TopTask> {
        let known: HashMap<(u32, u64), u64> =
            last.proc_tasks.iter().map(|t| ((t.tid, t.start_ticks), t.run_ticks)).collect();
        // Of threads that were not looked at before, nothing is known.
        if known.is_empty() {
            return Vec::new();
        }
        let interval_ns = now.at_ns.saturating_sub(last.at_ns).max(1);
        let grown = now.proc_tasks.iter().filter_map(|task| {
            let before = known.get(&(task.tid, task.start_ticks)).copied().unwrap_or(0);
            let ticks = task.run_ticks.checked_sub(before).filter(|ticks| *ticks > 0)?;
            let run_ns = ticks * (1_000_000_000 / self.ticks_per_s);
            Some(TopTask {
                tid: task.tid,
                pid: task.pid,
                name: task.name.clone(),
                cpu: task.last_cpu,
                cpu_pct: share_pct(run_ns, interval_ns),
                ..TopTask::default()
            })
        });
        grown.collect()
    }
}

/// What happened between two samples, and what the tasks did meanwhile.
fn top_of(last: &Sample, now: &Sample, tasks: Vec<TopTask>) -> Top {
    let lane = now.lane.as_ref().ok();
    let before = lane.and_then(|lane| earlier_of(last, lane));
    let interval_ns = now.at_ns.saturating_sub(last.at_ns).max(1);
    let has_scores = tasks.iter().any(|task| task.power_score.is_some());
    Top {
        interval_ns,
        lane: lane.map(lane_of),
        lane_why: now.lane.as_ref().err().cloned(),
        license_level_why: now.levels.as_ref().err().cloned(),
        power_score_why: (!has_scores).then(|| power_score_why(lane)),
        tasks_from: if accounts(lane) { TasksFrom::Lane } else { TasksFrom::Proc },
        totals: totals(before, lane, interval_ns),
        cpus: cpus(last, now, before, interval_ns),
        tasks,
        tasks_left_out: lane.map_or(0, |lane| lane.tasks.left_out),
    }
}

/// The earlier answer, if it was the same lane's.
fn earlier_of<'a>(last: &'a Sample, now: &LaneAnswer) -> Option<&'a LaneAnswer> {
    last.lane.as_ref().ok().filter(|before| {
        now.status.pid == before.status.pid && now.status.uptime_ns >= before.status.uptime_ns
    })
}

fn accounts(lane: Option<&LaneAnswer>) -> bool {
    lane.is_some_and(|lane| lane.tasks.tasks.is_some())
}

fn power_score_why(lane: Option<&LaneAnswer>) -> String {
    let why = if accounts(lane) {
        "no counters of licence levels feed the scores; MEAN comes from hints, marks and traps"
    } else {
        "only the scheduler of turbolane run keeps scores, and it is not active"
    };
    why.to_string()
}

fn task_type(code: u32) -> Option<TaskType> {
    [TaskType::Default, TaskType::Scalar, TaskType::Wide].get(code as usize).copied()
}

fn share_pct(part_ns: u64, whole_ns: u64) -> f64 {
    (100.0 * part_ns as f64 / whole_ns as f64).min(100.0)
}

fn lane_of(answer: &LaneAnswer) -> TopLane {
    let status = &answer.status;
    TopLane {
        pid: status.pid,
        mode: status.mode.clone(),
        uptime_ns: status.uptime_ns,
        wide_cpus: status.wide_cpus.clone(),
        scalar_cpus: status.scalar_cpus.clone(),
    }
}

fn totals(before: Option<&LaneAnswer>, now: Option<&LaneAnswer>, interval_ns: u64) -> TopTotals {
    let (Some(before), Some(now)) = (before, now) else { return TopTotals::default() };
    let grown: LaneStats = now.stats.since(&before.stats);
    let per_s = |count: Option<u64>| Some(count? as f64 * 1e9 / interval_ns as f64);
    TopTotals {
        migrations_per_s: per_s(grown.migrations),
        migrations_to_wide_per_s: per_s(grown.migrations_to_wide),
        migrations_from_wide_per_s: per_s(grown.migrations_from_wide),
        type_changes_per_s: per_s(grown.type_changes),
        hints_per_s: per_s(grown.hint_events),
        marks_per_s: per_s(grown.mark_events),
        traps_per_s: per_s(grown.trap_events),
        size_changes: grown.size_changes,
    }
}

fn cpus(last: &Sample, now: &Sample, before: Option<&LaneAnswer>, interval_ns: u64) -> Vec<TopCpu> {
    let lane = now.lane.as_ref().ok();
    let wide: CpuSet = lane.and_then(|l| l.status.wide_cpus.parse().ok()).unwrap_or_default();
    let cpus = now.cpus.iter().zip(&now.frequencies_khz).map(|(ticks, frequency_khz)| {
        let cpu = ticks.cpu;
        let ran = lane.and_then(|lane| times(lane, cpu));
        let grown = ran.zip(before.and_then(|before| times(before, cpu)));
        let share = |ran_ns: fn(&CpuTimes) -> u64| {
            // A scheduler that has restarted counts from zero.
            let (now, before) = grown?;
            let part_ns = ran_ns(now).checked_sub(ran_ns(before)).unwrap_or(ran_ns(now));
            Some(share_pct(part_ns, interval_ns))
        };
        TopCpu {
            cpu,
            role: lane.map(|_| match wide.contains(cpu as usize) {
                true => CpuRole::Wide,
                false => CpuRole::Scalar,
            }),
            role_level: ran.map(|ran| ran.license_level),
            license_level: mean_level(levels(last, cpu), levels(now, cpu)),
            busy_pct: last.cpus.iter().find(|l| l.cpu == cpu).and_then(|l| busy_pct(l, ticks)),
            wide_pct: share(|c| c.wide_run_ns),
            scalar_pct: share(|c| c.scalar_run_ns),
            default_pct: share(|c| c.default_run_ns),
            frequency_khz: *frequency_khz,
        }
    });
    cpus.collect()
}

fn levels(sample: &Sample, cpu: u32) -> Option<&LevelCycles> {
    let at = sample.cpus.iter().position(|ticks| ticks.cpu == cpu)?;
    sample.levels.as_ref().ok()?.get(at)
}

/// Mean level over the cycles between; `None` if the core was halted all the time, or its counters
/// began anew.
fn mean_level(last: Option<&LevelCycles>, now: Option<&LevelCycles>) -> Option<f64> {
    let (last, now) = (last?, now?);
    let mut cycles = [0u64; LEVELS];
    for (level, grown) in cycles.iter_mut().enumerate() {
        *grown = now[level].checked_sub(last[level])?;
    }
    let all: u64 = cycles.iter().sum();
    let weighted: f64 = cycles.iter().enumerate().map(|(level, n)| level as f64 * *n as f64).sum();
    (all > 0).then(|| weighted / all as f64)
}

fn times(lane: &LaneAnswer, cpu: u32) -> Option<&CpuTimes> {
    lane.status.cpus.iter().find(|times| times.cpu == cpu)
}

/// `None` if no clock tick has passed, or the CPU was away meanwhile.
fn busy_pct(last: &CpuTicks, now: &CpuTicks) -> Option<f64> {
    let all = now.all_ticks.checked_sub(last.all_ticks).filter(|all| *all > 0)?;
    let busy = now.busy_ticks.saturating_sub(last.busy_ticks);
    Some((100.0 * busy as f64 / all as f64).min(100.0))
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
