// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of what two samples make.

use super::*;
use crate::fixture::{answer, task};
use hw::activity::TaskTicks;

const SECOND_NS: u64 = 1_000_000_000;

fn sample(at_ns: u64, lane: Result<LaneAnswer, String>) -> Sample {
    let cpu = |cpu, busy_ticks| CpuTicks { cpu, busy_ticks, all_ticks: at_ns / 10_000_000 };
    Sample {
        at_ns,
        cpus: vec![cpu(0, at_ns / 20_000_000), cpu(1, 0)],
        frequencies_khz: vec![None, Some(2_000_000)],
        levels: Err("why".into()),
        lane,
        is_full_list: at_ns == 0,
        proc_tasks: vec![],
    }
}

/// An answer at this time with these tasks, of a lane of that process.
fn told(pid: u32, now_ns: u64, tasks: Vec<LaneTask>) -> LaneAnswer {
    let mut answer = answer();
    answer.status.pid = pid;
    answer.status.uptime_ns = now_ns;
    answer.tasks = report::lane::LaneTasks { now_ns, tasks: Some(tasks), left_out: 0 };
    answer
}

fn meter() -> Meter {
    Meter::new(100)
}

/// The second of two samples with these answers, two seconds apart.
fn top_of(first: LaneAnswer, second: LaneAnswer) -> Top {
    let mut meter = meter();
    assert_eq!(meter.add(sample(0, Ok(first))), None);
    meter.add(sample(2 * SECOND_NS, Ok(second))).unwrap()
}

fn ran(tid: u32, run_ns: u64, wide_run_ns: u64, migrations: u64) -> LaneTask {
    LaneTask {
        run_ns,
        wide_run_ns,
        level_run_ns: 2 * wide_run_ns,
        migrations,
        traps: migrations,
        task_type: 2,
        license_level: 2,
        ..task(tid, "t")
    }
}

/// Shares are of the interval, the wide share and the mean level of the task's own time, rates per
/// second.
#[test]
fn a_task_grows() {
    let first = told(1, 0, vec![ran(7, SECOND_NS, 0, 10)]);
    let second = told(1, 2 * SECOND_NS, vec![ran(7, 2 * SECOND_NS, SECOND_NS / 4, 110)]);
    let top = top_of(first, second);
    let [task] = &top.tasks[..] else { panic!("{:?}", top.tasks) };
    assert_eq!((task.cpu_pct, task.wide_pct, task.mean_level), (50.0, Some(25.0), Some(0.5)));
    assert_eq!((task.migrations_per_s, task.traps_per_s), (Some(50.0), Some(50.0)));
    assert_eq!((task.task_type, task.license_level), (Some(TaskType::Wide), Some(2)));
    assert_eq!((top.interval_ns, top.tasks_from), (2 * SECOND_NS, TasksFrom::Lane));
}

/// A task that was not listed before grew from zero; one that did not run is not shown.
#[test]
fn new_tasks_grow_from_zero() {
    let first = told(1, 0, vec![ran(7, SECOND_NS, 0, 0)]);
    let second = told(1, 2 * SECOND_NS, vec![ran(7, SECOND_NS, 0, 0), ran(8, SECOND_NS, 0, 0)]);
    let top = top_of(first, second);
    assert_eq!(top.tasks.iter().map(|t| (t.tid, t.cpu_pct)).collect::<Vec<_>>(), [(8, 50.0)]);
}

/// The same number with another start is another task.
#[test]
fn a_reused_number_is_another_task() {
    let first = told(1, 0, vec![ran(7, SECOND_NS, 0, 0)]);
    let reused = LaneTask { start_ns: 6, ..ran(7, SECOND_NS, 0, 0) };
    let top = top_of(first, told(1, 2 * SECOND_NS, vec![reused]));
    assert_eq!(top.tasks[0].cpu_pct, 50.0);
}

/// Where the list was cut, a task that appears has done no one knows what; the next time it is
/// known.
#[test]
fn of_a_cut_list_only_what_is_known_is_told() {
    let mut first = told(1, 0, vec![]);
    first.tasks.left_out = 1;
    let mut meter = meter();
    meter.add(sample(0, Ok(first)));
    let mut at = |seconds: u64, run_ns| {
        let answer = told(1, seconds * SECOND_NS, vec![ran(7, run_ns, 0, 0)]);
        meter.add(sample(seconds * SECOND_NS, Ok(answer))).unwrap().tasks
    };
    assert_eq!(at(1, 50 * SECOND_NS), []);
    assert_eq!(at(2, 51 * SECOND_NS)[0].cpu_pct, 100.0);
}

/// A scheduler that restarted counts from zero, tasks and CPUs alike.
#[test]
fn a_restart_counts_from_zero() {
    let mut first = told(1, 0, vec![ran(7, 9 * SECOND_NS, 0, 9)]);
    first.status.cpus[1].wide_run_ns = 9 * SECOND_NS;
    let mut second = told(1, 2 * SECOND_NS, vec![ran(7, SECOND_NS, 0, 2)]);
    second.status.cpus[1].wide_run_ns = SECOND_NS;
    let top = top_of(first, second);
    assert_eq!((top.tasks[0].cpu_pct, top.tasks[0].migrations_per_s), (50.0, Some(1.0)));
    assert_eq!(top.cpus[1].wide_pct, Some(50.0));
}

/// Nothing is measured against another lane.
#[test]
fn another_lane_begins_anew() {
    let second = || told(2, 2 * SECOND_NS, vec![ran(7, SECOND_NS, 0, 0)]);
    let mut meter = meter();
    meter.add(sample(0, Ok(told(1, 0, vec![]))));
    let top = meter.add(sample(2 * SECOND_NS, Ok(second()))).unwrap();
    assert_eq!((top.tasks.len(), top.totals), (0, TopTotals::default()));
    assert_eq!((top.cpus[1].wide_pct, top.cpus[1].role), (None, Some(CpuRole::Wide)));
    let third = told(2, 3 * SECOND_NS, vec![ran(7, SECOND_NS * 3 / 2, 0, 0)]);
    let top = meter.add(sample(3 * SECOND_NS, Ok(third))).unwrap();
    assert_eq!(top.tasks[0].cpu_pct, 50.0);
}

/// Roles, levels and shares of the CPUs; busy is what /proc says.
#[test]
fn cpus_have_roles_and_shares() {
    let mut second = told(1, 2 * SECOND_NS, vec![]);
    second.status.cpus[1].wide_run_ns = SECOND_NS;
    second.status.cpus[1].scalar_run_ns = 3 * SECOND_NS;
    let top = top_of(told(1, 0, vec![]), second);
    let [scalar, wide] = &top.cpus[..] else { panic!("{:?}", top.cpus) };
    assert_eq!((scalar.role, scalar.role_level), (Some(CpuRole::Scalar), Some(0)));
    assert_eq!((wide.role, wide.role_level), (Some(CpuRole::Wide), Some(3)));
    assert_eq!((scalar.busy_pct, wide.busy_pct), (Some(50.0), Some(0.0)));
    assert_eq!((wide.wide_pct, wide.scalar_pct), (Some(50.0), Some(100.0)), "at most all of it");
    assert_eq!((scalar.frequency_khz, wide.frequency_khz), (None, Some(2_000_000)));
    assert_eq!(wide.license_level, None);
    assert_eq!(top.license_level_why.as_deref(), Some("why"));
}

/// The mean level weighs the cycles of the interval; a halted core and one whose counters began
/// anew have none.
#[test]
fn levels_are_means_over_cycles() {
    let at = |at_ns, levels| Sample { levels: Ok(levels), ..sample(at_ns, Err("no lane".into())) };
    let mut meter = meter();
    meter.add(at(0, vec![[100, 100, 100], [0, 5, 5]]));
    let top = meter.add(at(SECOND_NS, vec![[150, 125, 125], [0, 5, 5]])).unwrap();
    assert_eq!((top.cpus[0].license_level, top.cpus[1].license_level), (Some(0.75), None));
    assert_eq!(top.license_level_why, None);
    let top = meter.add(at(2 * SECOND_NS, vec![[1, 1, 1], [0, 5, 10]])).unwrap();
    assert_eq!((top.cpus[0].license_level, top.cpus[1].license_level), (None, Some(2.0)));
}

/// Counts become rates; what is not counted stays unknown.
#[test]
fn totals_are_rates() {
    let mut second = told(1, 2 * SECOND_NS, vec![]);
    second.stats.migrations = Some(100);
    second.stats.migrations_to_wide = Some(60);
    second.stats.size_changes = Some(3);
    second.stats.trap_events = None;
    let totals = top_of(told(1, 0, vec![]), second).totals;
    assert_eq!(totals.migrations_per_s, Some(50.0));
    assert_eq!(totals.migrations_to_wide_per_s, Some(30.0));
    assert_eq!((totals.size_changes, totals.traps_per_s), (Some(3), None));
}

/// A power score is shown where counters fed it, and else it is said why not.
#[test]
fn scores_are_known_or_explained() {
    let scored = LaneTask { power_score_q10: Some(1536), ..ran(7, SECOND_NS, 0, 0) };
    let top = top_of(told(1, 0, vec![]), told(1, 2 * SECOND_NS, vec![scored]));
    assert_eq!((top.tasks[0].power_score, top.power_score_why), (Some(1.5), None));
    let top = top_of(told(1, 0, vec![]), told(1, 2 * SECOND_NS, vec![ran(7, 1, 0, 0)]));
    assert_eq!(top.tasks[0].power_score, None);
    assert!(top.power_score_why.unwrap().contains("no counters"));
}

fn proc_task(tid: u32, start_ticks: u64, run_ticks: u64) -> TaskTicks {
    TaskTicks { tid, pid: tid, name: "p".into(), start_ticks, run_ticks, last_cpu: 1 }
}

/// Without a lane: shares by clock ticks, and no word about types.
#[test]
fn proc_tasks_grow() {
    let at = |seconds: u64, tasks| Sample {
        proc_tasks: tasks,
        ..sample(seconds * SECOND_NS, Err("none runs".into()))
    };
    let mut meter = meter();
    meter.add(at(0, vec![proc_task(7, 1, 100), proc_task(8, 1, 5)]));
    let second = vec![proc_task(7, 1, 150), proc_task(8, 1, 5), proc_task(9, 60, 25)];
    let top = meter.add(at(1, second)).unwrap();
    let shares: Vec<(u32, f64)> = top.tasks.iter().map(|t| (t.tid, t.cpu_pct)).collect();
    assert_eq!(shares, [(7, 50.0), (9, 25.0)]);
    assert_eq!((top.tasks[0].task_type, top.tasks[0].wide_pct), (None, None));
    assert_eq!((top.lane_why.as_deref(), top.tasks_from), (Some("none runs"), TasksFrom::Proc));
    assert_eq!((top.cpus[0].role, top.totals), (None, TopTotals::default()));
}

/// When the lane ends, the threads of /proc have no first look yet: none is shown, none is blamed
/// for its whole life.
#[test]
fn the_end_of_the_lane_blames_nobody() {
    let mut meter = meter();
    meter.add(sample(0, Ok(told(1, 0, vec![]))));
    let gone = Sample {
        proc_tasks: vec![proc_task(7, 1, 100_000)],
        ..sample(SECOND_NS, Err("none runs".into()))
    };
    assert_eq!(meter.add(gone).unwrap().tasks, []);
}
