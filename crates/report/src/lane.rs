// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a running scheduler reports about itself.

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table};

crate::statistics! {
    /// What the scheduler did: all CPUs together. Counters count from its start.
    pub struct LaneStats {
        counter interval_ns "" "time that the counters cover",
        gauge wide_cpus "widecpu" "wide CPUs",
        gauge standing_by ""
            "1 while wide code is not separated, because it would cost more than it saves, or in a pause",
        gauge marks_lost "" "marks that are not watched in their files as these are now",
        gauge winnable_permille ""
            "most CPU time that separating wide code could save, when last estimated",
        counter wide_run_ns "wide" "CPU time of wide tasks",
        counter scalar_run_ns "scalar" "CPU time of scalar tasks",
        counter default_run_ns "default" "CPU time of unclassified tasks",
        counter wide_wait_ns "widewait" "time that wide tasks waited for a CPU",
        counter scalar_wait_ns "" "time that scalar tasks waited for a CPU",
        counter default_wait_ns "" "time that unclassified tasks waited for a CPU",
        counter wide_runs "" "times that a wide task got a CPU",
        counter scalar_runs "" "times that a scalar task got a CPU",
        counter default_runs "" "times that an unclassified task got a CPU",
        counter degraded_ns "degraded"
            "time of wide tasks on CPUs whose class is too low, because their affinity allows no other",
        counter leaving_ns ""
            "time of wide tasks on scalar CPUs, in the kernel, before they move to a wide CPU",
        counter guest_ns "guest" "time of scalar tasks on wide CPUs that had no wide task to run",
        counter migrations "migr" "tasks that started on a different CPU from the one they last ran on",
        counter migrations_to_wide ""
            "migrations of wide tasks from a CPU whose class was too low for them",
        counter migrations_from_wide ""
            "migrations of other tasks from a wide CPU to a scalar one",
        counter misfits "misfit" "tasks that started on a CPU of the wrong class and were moved",
        counter type_changes "types" "changes of tasks to wide or to scalar",
        counter hint_events "" "hint begin/end events",
        counter mark_events "" "entries to marked functions and returns from them",
        counter probes_missed ""
            "programs at marked functions that the kernel has skipped: the section is seen at the next tick",
        counter trap_events "" "wide instructions that the trap module caught",
        counter score_events "" "changes of a task's level by its power score",
        counter heuristic_ends "" "wide periods that a heuristic or a timeout ended",
        counter preemptions "preempt" "preemptions of other work on wide CPUs for wide work",
        counter preemption_searches "" "searches for a CPU whose task wide work can preempt",
        counter preemption_looks "" "CPUs examined in these searches",
        counter steals "" "tasks taken from the queue of another last-level cache",
        counter size_changes "" "changes of the wide CPUs, by automatic sizing or by request",
        counter overlooked ""
            "tasks found waiting for longer than a slice while a suitable CPU was idle",
        counter target_changes "" "target updates sent to the frequency governor",
        counter wide_on_scalar_ticks "wrong"
            "timer ticks that saw wide code on a scalar CPU, excluding degraded tasks",
        counter shared_atomics ""
            "atomic operations of the scheduler on cache lines that several CPUs write",
        counter ticks "" "timer ticks",
    }
}

/// State of a running scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaneStatus {
    /// Process that holds it.
    pub pid: u32,
    /// `scx` or `affinity`.
    pub mode: String,
    /// Time since its start, ns.
    pub uptime_ns: u64,
    /// CPUs that are wide now, as a CPU list.
    pub wide_cpus: String,
    /// The other online CPUs, as a CPU list.
    pub scalar_cpus: String,
    /// Whether wide code is kept apart, and why not, in words; `None` if the user has chosen the
    /// wide CPUs.
    #[serde(default)]
    pub standby: Option<String>,
    /// What is left of a pause that a client has asked for; `None` if there is none.
    #[serde(default)]
    pub pause_left_ns: Option<u64>,
    /// Marks in place, as `--mark` takes them.
    pub marks: Vec<String>,
    /// Those of them that are not watched in their files as these are now.
    #[serde(default)]
    pub lost_marks: Vec<LostMark>,
    /// Rules of the settings `wide-tasks`, `scalar-tasks` and `leave-alone`.
    #[serde(default)]
    pub scope: Vec<ScopeRule>,
    /// What each CPU did since the start; empty where that is not known.
    pub cpus: Vec<CpuTimes>,
}

/// A mark that is not watched in its file as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LostMark {
    /// The mark, as `--mark` takes it.
    pub mark: String,
    /// Why it is not watched, in words.
    pub why: String,
}

/// A rule for tasks that the user has chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ScopeRule {
    /// Which tasks, as the setting takes it.
    pub selector: String,
    /// How they are treated, in words.
    pub treated: String,
    /// Tasks that it applies to now; unknown where they cannot be counted.
    pub tasks: Option<u64>,
}

/// CPU time of one CPU by type of task, since the scheduler's start (or its last restart after
/// CPUs came or went).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuTimes {
    /// The CPU, Linux's number.
    pub cpu: u32,
    /// Highest licence level that may run on it; 0 is a scalar CPU.
    pub license_level: u32,
    /// CPU time of wide tasks.
    pub wide_run_ns: u64,
    /// CPU time of scalar tasks.
    pub scalar_run_ns: u64,
    /// CPU time of unclassified tasks.
    pub default_run_ns: u64,
}

/// What tasks have done since the scheduler first saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaneTasks {
    /// The scheduler's clock (CLOCK_MONOTONIC): to ask what happened since.
    pub now_ns: u64,
    /// Tasks that ran since the time that was asked about; unknown in affinity mode, which keeps no
    /// account.
    pub tasks: Option<Vec<LaneTask>>,
    /// Tasks that are left out because there are too many: those that ran the least.
    pub left_out: u64,
}

/// One task. Counters only grow; a scheduler that restarts after CPUs came or went begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaneTask {
    /// Its number, in the initial PID namespace, as is its process's.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name: any text.
    pub name: String,
    /// When it started, by the same clock: with the number, a name for good.
    pub start_ns: u64,
    /// 0 default, 1 scalar, 2 wide (policy/types.h).
    pub task_type: u32,
    /// Licence level of its wide period, 0 for none.
    pub license_level: u32,
    /// CPU where it started last.
    pub cpu: u32,
    /// CPU time.
    pub run_ns: u64,
    /// CPU time as a wide task.
    pub wide_run_ns: u64,
    /// Sum over its CPU time of its level: divided by it, the mean level.
    pub level_run_ns: u64,
    /// Starts on another CPU than before.
    pub migrations: u64,
    /// Its instructions that the trap module caught.
    pub traps: u64,
    /// Power score, 1024 = level 1; unknown until counters have said something about it.
    pub power_score_q10: Option<u32>,
}

impl LaneStatus {
    /// The status as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut table = Table::new(&[("WHAT", Align::Left), ("VALUE", Align::Left)]);
        let none_if_empty =
            |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
        for (what, value) in [
            ("process", self.pid.to_string()),
            ("mode", self.mode.clone()),
            ("running for", crate::text::duration(self.uptime_ns)),
            ("wide CPUs", none_if_empty(&self.wide_cpus)),
            ("scalar CPUs", none_if_empty(&self.scalar_cpus)),
            ("wide code", self.wide_code()),
            ("marks", none_if_empty(&self.marks.join(", "))),
        ] {
            table.row(vec![what.into(), value]);
        }
        for LostMark { mark, why } in &self.lost_marks {
            table.row(vec!["lost mark".into(), format!("{mark}: {why}")]);
        }
        for ScopeRule { selector, treated, tasks } in &self.scope {
            let tasks = match tasks {
                Some(1) => "1 task".into(),
                Some(tasks) => format!("{tasks} tasks"),
                None => "unknown tasks".to_owned(),
            };
            table.row(vec![selector.clone(), format!("{treated}: {tasks}")]);
        }
        let mut text = table.text(width);
        if !self.cpus.is_empty() {
            text.push('\n');
            text.push_str(&self.cpus_text(width));
        }
        text
    }

    fn wide_code(&self) -> String {
        if let Some(left_ns) = self.pause_left_ns {
            let left = crate::text::duration(left_ns);
            return format!("paused for {left} more; turbolane ctl resume ends that");
        }
        self.standby.clone().unwrap_or("separated, as requested".into())
    }

    fn cpus_text(&self, width: usize) -> String {
        let mut table = Table::new(&[
            ("CPU", Align::Right),
            ("LEVEL", Align::Right),
            ("WIDE", Align::Right),
            ("SCALAR", Align::Right),
            ("DEFAULT", Align::Right),
        ]);
        for cpu in &self.cpus {
            table.row(vec![
                cpu.cpu.to_string(),
                cpu.license_level.to_string(),
                crate::text::duration(cpu.wide_run_ns),
                crate::text::duration(cpu.scalar_run_ns),
                crate::text::duration(cpu.default_run_ns),
            ]);
        }
        table.text(width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Statistics;

    /// Names are unique, times end in their unit, and every meaning is stated.
    #[test]
    fn statistics_follow_the_rules() {
        let mut keys: Vec<&str> = LaneStats::ABOUT.iter().map(|about| about.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), LaneStats::ABOUT.len());
        for about in LaneStats::ABOUT {
            let is_time = about.about.starts_with("time ") && !about.about.starts_with("times ")
                || about.about.starts_with("CPU time");
            assert_eq!(about.key.ends_with("_ns"), is_time, "{}", about.key);
        }
    }

    /// A periodic line fits into a usual window.
    #[test]
    fn the_line_is_not_too_long() {
        assert!(LaneStats::line_head().len() <= 120, "{}", LaneStats::line_head().len());
    }

    /// The document has its schema first and the statistics next to it.
    #[test]
    fn json_round_trip() {
        let stats = LaneStats { wide_cpus: Some(2), ..LaneStats::default() };
        let report = crate::Document::new(stats);
        let line = crate::json_line(&report);
        assert!(line.starts_with(r#"{"schema":1,"interval_ns":null,"wide_cpus":2,"#), "{line}");
        assert_eq!(serde_json::from_str::<crate::Document<LaneStats>>(&line).unwrap(), report);
    }
}
