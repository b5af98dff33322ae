// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane top`: what CPUs and tasks did in one interval.
//!
//! The document is `{"schema":1,"interval_ns":...,"lane":...,"totals":...,"cpus":[...],
//! "tasks":[...]}`. All rates and shares are about the interval alone. What the lane reports is
//! `null` where there is none or where it may not be asked ([`Top::lane_why`] says which), and so
//! is what this machine cannot show.

use serde::{Deserialize, Serialize};

use crate::text::{Align, Table, duration, wrap};

/// One interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Top {
    /// Its length.
    pub interval_ns: u64,
    /// The lane in force, if it could be asked.
    pub lane: Option<TopLane>,
    /// Why [`Top::lane`] is unknown.
    pub lane_why: Option<String>,
    /// Why [`TopCpu::license_level`] is unknown.
    pub license_level_why: Option<String>,
    /// Why [`TopTask::power_score`] is unknown.
    pub power_score_why: Option<String>,
    /// Where [`TopTask`] comes from: `lane` (by the nanosecond) or `proc` (by the clock tick).
    pub tasks_from: TasksFrom,
    /// All CPUs and tasks together.
    pub totals: TopTotals,
    /// Online CPUs in order of their numbers.
    pub cpus: Vec<TopCpu>,
    /// Tasks that ran, in the order asked for.
    pub tasks: Vec<TopTask>,
    /// Tasks that ran and are not in the list.
    pub tasks_left_out: u64,
}

/// Who accounts for tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TasksFrom {
    /// The lane's scheduler: tasks of the normal scheduling classes.
    Lane,
    /// /proc: all threads that can be seen.
    #[default]
    Proc,
}

/// The lane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopLane {
    /// Process that holds it.
    pub pid: u32,
    /// `scx` or `affinity`.
    pub mode: String,
    /// Time since its start.
    pub uptime_ns: u64,
    /// Wide CPUs, as a CPU list.
    pub wide_cpus: String,
    /// The other online CPUs.
    pub scalar_cpus: String,
}

/// What happened on all CPUs together, per second; `None` without a scheduler that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopTotals {
    /// Tasks that started on another CPU than they last ran on.
    pub migrations_per_s: Option<f64>,
    /// Of them: wide tasks that left a CPU whose class was too low for them.
    pub migrations_to_wide_per_s: Option<f64>,
    /// Of them: tasks that were not wide and left a wide CPU for a scalar one.
    pub migrations_from_wide_per_s: Option<f64>,
    /// Tasks that turned wide, turned scalar or changed their level.
    pub type_changes_per_s: Option<f64>,
    /// Hint begin and end events.
    pub hints_per_s: Option<f64>,
    /// Entries to marked functions and returns from them.
    pub marks_per_s: Option<f64>,
    /// Wide instructions that the trap module caught.
    pub traps_per_s: Option<f64>,
    /// Changes of the wide CPUs, in the interval.
    pub size_changes: Option<u64>,
}

/// One CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopCpu {
    /// Linux's number.
    pub cpu: u32,
    /// What the lane uses it for.
    pub role: Option<CpuRole>,
    /// Highest licence level that may run on it, 0 for a scalar CPU.
    pub role_level: Option<u32>,
    /// Mean licence level that its core had, from counters.
    pub license_level: Option<f64>,
    /// Share of the interval in which it worked.
    pub busy_pct: Option<f64>,
    /// Share of the interval in which it ran wide tasks.
    pub wide_pct: Option<f64>,
    /// Share in which it ran scalar tasks.
    pub scalar_pct: Option<f64>,
    /// Share in which it ran tasks that no one classified.
    pub default_pct: Option<f64>,
    /// Frequency, as the kernel averages it.
    pub frequency_khz: Option<u32>,
}

/// What a CPU is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CpuRole {
    /// Wide tasks do not run on it.
    Scalar,
    /// Wide tasks may.
    Wide,
}

/// One task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TopTask {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Its name, as it has given it to itself: any text.
    pub name: String,
    /// What the lane takes it for now.
    #[serde(rename = "type")]
    pub task_type: Option<TaskType>,
    /// Licence level of its wide period, 0 for none.
    pub license_level: Option<u32>,
    /// Mean of the levels at which the lane had it, over its CPU time in the interval.
    pub mean_level: Option<f64>,
    /// Power score (DIM 5.2): moving average of the levels that counters attribute to it.
    pub power_score: Option<f64>,
    /// CPU on which it runs or ran last.
    pub cpu: u32,
    /// Share of one CPU that it had.
    pub cpu_pct: f64,
    /// Share of its own CPU time in which it was wide.
    pub wide_pct: Option<f64>,
    /// Starts on another CPU than before.
    pub migrations_per_s: Option<f64>,
    /// Its instructions that the trap module caught.
    pub traps_per_s: Option<f64>,
}

/// Type of a task (SYSTOR 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskType {
    /// No one classified it.
    Default,
    /// Known not to run wide code now.
    Scalar,
    /// In a wide period.
    Wide,
}

impl TaskType {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            TaskType::Default => "default",
            TaskType::Scalar => "scalar",
            TaskType::Wide => "wide",
        }
    }
}

/// A column: what is shown of a thing, here and on the screen.
pub struct Column<T> {
    /// Title.
    pub title: &'static str,
    /// How its cells are aligned.
    pub align: Align,
    /// Characters that its cells need, the title at least.
    pub width: u16,
    /// Where there is no room, columns of a lower rank go first.
    pub rank: u8,
    /// The cell.
    pub cell: fn(&T) -> String,
}

/// Columns of the table of CPUs.
pub const CPU_COLUMNS: [Column<TopCpu>; 8] = [
    Column { title: "CPU", align: Align::Right, width: 4, rank: 9, cell: |c| c.cpu.to_string() },
    Column { title: "ROLE", align: Align::Left, width: 7, rank: 9, cell: role },
    Column {
        title: "LEVEL",
        align: Align::Right,
        width: 5,
        rank: 5,
        cell: |c| decimals(c.license_level, 2),
    },
    Column { title: "BUSY%", align: Align::Right, width: 6, rank: 8, cell: |c| pct(c.busy_pct) },
    Column { title: "WIDE%", align: Align::Right, width: 6, rank: 7, cell: |c| pct(c.wide_pct) },
    Column {
        title: "SCALAR%",
        align: Align::Right,
        width: 7,
        rank: 4,
        cell: |c| pct(c.scalar_pct),
    },
    Column {
        title: "DEFAULT%",
        align: Align::Right,
        width: 8,
        rank: 3,
        cell: |c| pct(c.default_pct),
    },
    Column { title: "MHz", align: Align::Right, width: 5, rank: 6, cell: |c| mhz(c.frequency_khz) },
];

/// Columns of the table of tasks; the name comes last, where it has all the room that is left.
pub const TASK_COLUMNS: [Column<TopTask>; 12] = [
    Column { title: "TID", align: Align::Right, width: 7, rank: 9, cell: |t| t.tid.to_string() },
    Column { title: "PID", align: Align::Right, width: 7, rank: 1, cell: |t| t.pid.to_string() },
    Column {
        title: "TYPE",
        align: Align::Left,
        width: 7,
        rank: 8,
        cell: |t| t.task_type.map_or("-", TaskType::word).into(),
    },
    Column {
        title: "LVL",
        align: Align::Right,
        width: 3,
        rank: 6,
        cell: |t| level(t.license_level),
    },
    Column {
        title: "MEAN",
        align: Align::Right,
        width: 4,
        rank: 4,
        cell: |t| decimals(t.mean_level, 2),
    },
    Column {
        title: "SCORE",
        align: Align::Right,
        width: 5,
        rank: 5,
        cell: |t| decimals(t.power_score, 2),
    },
    Column {
        title: "CPU%",
        align: Align::Right,
        width: 5,
        rank: 9,
        cell: |t| pct(Some(t.cpu_pct)),
    },
    Column { title: "WIDE%", align: Align::Right, width: 5, rank: 7, cell: |t| pct(t.wide_pct) },
    Column {
        title: "MIGR/s",
        align: Align::Right,
        width: 6,
        rank: 6,
        cell: |t| rate(t.migrations_per_s),
    },
    Column {
        title: "TRAP/s",
        align: Align::Right,
        width: 6,
        rank: 2,
        cell: |t| rate(t.traps_per_s),
    },
    Column { title: "ON", align: Align::Right, width: 4, rank: 3, cell: |t| t.cpu.to_string() },
    Column { title: "NAME", align: Align::Left, width: 15, rank: 9, cell: |t| printable(&t.name) },
];

fn role(cpu: &TopCpu) -> String {
    match (cpu.role, cpu.role_level) {
        (None, _) => "-".into(),
        (Some(CpuRole::Scalar), _) => "scalar".into(),
        (Some(CpuRole::Wide), None) => "wide".into(),
        (Some(CpuRole::Wide), Some(level)) => format!("wide {level}"),
    }
}

fn level(level: Option<u32>) -> String {
    level.map_or_else(|| "-".into(), |level| level.to_string())
}

fn decimals(value: Option<f64>, places: usize) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.places$}"))
}

fn pct(share: Option<f64>) -> String {
    decimals(share, 1)
}

fn mhz(khz: Option<u32>) -> String {
    khz.map_or_else(|| "-".into(), |khz| ((khz + 500) / 1000).to_string())
}

/// A rate in six characters.
pub fn rate(per_s: Option<f64>) -> String {
    match per_s {
        None => "-".into(),
        Some(value) if value >= 99_950.0 => format!("{:.0}k", value / 1e3),
        Some(value) if value >= 9.95 => format!("{value:.0}"),
        Some(value) => format!("{value:.1}"),
    }
}

/// Text that anybody may have chosen, without what a terminal would obey.
pub fn printable(text: &str) -> String {
    let safe = |c: char| if c.is_control() || is_invisible(c) { '?' } else { c };
    text.chars().map(safe).collect()
}

/// Characters that change how their neighbours are shown: direction marks, joiners, the byte order
/// mark (Unicode's Bidi_Control and Default_Ignorable_Code_Point in the general planes).
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

impl Top {
    /// What is shown above the tables, a line each.
    pub fn head(&self) -> Vec<String> {
        let interval = duration(self.interval_ns);
        let lane = match &self.lane {
            None => format!("no lane: {}", self.lane_why.as_deref().unwrap_or("unknown why")),
            Some(lane) => format!(
                "lane {}, wide CPUs {}, for {}",
                lane.mode,
                if lane.wide_cpus.is_empty() { "none" } else { &lane.wide_cpus },
                duration(lane.uptime_ns)
            ),
        };
        let mut lines = vec![format!("turbolane top: {interval}, {lane}")];
        if self.totals.migrations_per_s.is_some() {
            lines.extend(self.totals.lines());
        }
        lines
    }

    /// Why there are dashes, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let notes = [("LEVEL of CPUs", &self.license_level_why), ("SCORE", &self.power_score_why)];
        let told = notes.iter().filter_map(|(what, why)| Some((what, why.as_ref()?)));
        told.map(|(what, why)| format!("{what} is not visible: {why}")).collect()
    }

    /// The interval as text of at most `width` columns.
    pub fn text(&self, width: usize) -> String {
        let mut text: String = self.head().iter().map(|line| wrap("", line, width)).collect();
        text.push('\n');
        text += &table(&CPU_COLUMNS, &self.cpus, width);
        text.push('\n');
        text += &table(&TASK_COLUMNS, &self.tasks, width);
        if self.tasks_left_out > 0 {
            text += &format!("and {} more; see --top\n", self.tasks_left_out);
        }
        let notes = self.notes();
        if !notes.is_empty() {
            text.push('\n');
        }
        notes.iter().for_each(|note| text += &wrap("note: ", note, width));
        text
    }
}

impl TopTotals {
    /// Migrations by cause, then what else is counted.
    fn lines(&self) -> [String; 2] {
        let other = self.migrations_per_s.map(|all| {
            let known = [self.migrations_to_wide_per_s, self.migrations_from_wide_per_s];
            (all - known.iter().flatten().sum::<f64>()).max(0.0)
        });
        [
            format!(
                "migrations/s {}: {} to wide CPUs, {} from them, {} other",
                rate(self.migrations_per_s),
                rate(self.migrations_to_wide_per_s),
                rate(self.migrations_from_wide_per_s),
                rate(other)
            ),
            format!(
                "per second: {} type changes, {} hints, {} marks, {} traps; {} size changes",
                rate(self.type_changes_per_s),
                rate(self.hints_per_s),
                rate(self.marks_per_s),
                rate(self.traps_per_s),
                self.size_changes.map_or_else(|| "-".into(), |count| count.to_string())
            ),
        ]
    }
}

/// The columns that fit into `width`, in their order. Two blanks are between columns, and the
/// last one is shown whatever the width.
pub fn columns_in<T>(columns: &[Column<T>], width: usize) -> Vec<&Column<T>> {
    let mut chosen: Vec<&Column<T>> = columns.iter().collect();
    let needed = |chosen: &[&Column<T>]| -> usize {
        chosen.iter().map(|column| usize::from(column.width) + 2).sum::<usize>().saturating_sub(2)
    };
    while needed(&chosen) > width && chosen.len() > 1 {
        let lowest = chosen.iter().map(|column| column.rank).min().unwrap_or(0);
        let last = chosen.iter().rposition(|column| column.rank == lowest).unwrap_or(0);
        chosen.remove(last);
    }
    chosen
}

fn table<T>(columns: &[Column<T>], rows: &[T], width: usize) -> String {
    let columns = columns_in(columns, width);
    let head: Vec<(&str, Align)> = columns.iter().map(|c| (c.title, c.align)).collect();
    let mut table = Table::new(&head);
    rows.iter().for_each(|row| table.row(columns.iter().map(|c| (c.cell)(row)).collect()));
    table.text(width)
}
