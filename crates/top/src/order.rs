// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which tasks are shown, and in which order.

use std::cmp::Ordering;

use report::top::{Top, TopTask};

/// What tasks are ordered by; most of it first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortKey {
    /// CPU time.
    #[default]
    Cpu,
    /// CPU time as a wide task.
    Wide,
    /// Licence level now, then mean level.
    Level,
    /// Power score.
    Score,
    /// Migrations.
    Migrations,
    /// Traps.
    Traps,
    /// Number, smallest first.
    Tid,
    /// Name, in order of the alphabet.
    Name,
}

impl SortKey {
    /// All of them, in the order in which a key press goes through them.
    pub const ALL: [SortKey; 8] = [
        SortKey::Cpu,
        SortKey::Wide,
        SortKey::Level,
        SortKey::Score,
        SortKey::Migrations,
        SortKey::Traps,
        SortKey::Tid,
        SortKey::Name,
    ];

    /// As `--sort` takes it.
    pub fn word(self) -> &'static str {
        match self {
            SortKey::Cpu => "cpu",
            SortKey::Wide => "wide",
            SortKey::Level => "level",
            SortKey::Score => "score",
            SortKey::Migrations => "migrations",
            SortKey::Traps => "traps",
            SortKey::Tid => "tid",
            SortKey::Name => "name",
        }
    }

    /// The key `step` places further, round and round.
    pub fn stepped(self, step: isize) -> SortKey {
        let at = Self::ALL.iter().position(|key| *key == self).unwrap_or(0) as isize;
        Self::ALL[(at + step).rem_euclid(Self::ALL.len() as isize) as usize]
    }

    fn compare(self, a: &TopTask, b: &TopTask) -> Ordering {
        let wide = |task: &TopTask| task.cpu_pct * task.wide_pct.unwrap_or(-1.0);
        let most = |of: fn(&TopTask) -> Option<f64>| {
            of(b).unwrap_or(-1.0).total_cmp(&of(a).unwrap_or(-1.0))
        };
        match self {
            SortKey::Cpu => Ordering::Equal, // what all others end with
            SortKey::Wide => wide(b).total_cmp(&wide(a)),
            SortKey::Level => {
                b.license_level.cmp(&a.license_level).then(most(|task| task.mean_level))
            }
            SortKey::Score => most(|task| task.power_score),
            SortKey::Migrations => most(|task| task.migrations_per_s),
            SortKey::Traps => most(|task| task.traps_per_s),
            SortKey::Tid => a.tid.cmp(&b.tid),
            SortKey::Name => a.name.cmp(&b.name),
        }
    }
}

/// What is shown of the tasks.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// By what they are ordered.
    pub sort: SortKey,
    /// In reverse.
    pub reverse: bool,
    /// Only tasks of these processes; of all if there is none.
    pub pids: Vec<u32>,
    /// Only tasks with this in their name or type, or with this number.
    pub filter: String,
    /// At most so many.
    pub max: Option<usize>,
}

impl Selection {
    /// Orders the tasks and takes away what is not asked for; what is cut off is counted.
    pub fn apply(&self, top: &mut Top) {
        top.tasks.retain(|task| self.wants(task));
        top.tasks.sort_by(|a, b| {
            let order = self.sort.compare(a, b).then(b.cpu_pct.total_cmp(&a.cpu_pct));
            let order = order.then(a.tid.cmp(&b.tid));
            if self.reverse { order.reverse() } else { order }
        });
        if let Some(max) = self.max.filter(|max| *max < top.tasks.len()) {
            top.tasks_left_out += (top.tasks.len() - max) as u64;
            top.tasks.truncate(max);
        }
    }

    fn wants(&self, task: &TopTask) -> bool {
        let filter = self.filter.as_str();
        let has_number = filter.parse().is_ok_and(|number| [task.tid, task.pid].contains(&number));
        let has_type = task.task_type.is_some_and(|task_type| task_type.word() == filter);
        (self.pids.is_empty() || self.pids.contains(&task.pid))
            && (task.name.contains(filter) || has_number || has_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::top::TaskType;

    fn tasks() -> Top {
        let task = |tid, name: &str, cpu_pct, wide_pct, migrations| TopTask {
            tid,
            pid: tid / 10,
            name: name.into(),
            cpu_pct,
            wide_pct,
            migrations_per_s: migrations,
            task_type: Some(if wide_pct > Some(50.0) { TaskType::Wide } else { TaskType::Scalar }),
            ..TopTask::default()
        };
        let tasks = vec![
            task(12, "b", 10.0, Some(100.0), Some(1.0)),
            task(11, "a", 90.0, Some(1.0), None),
            task(21, "wide-b", 10.0, Some(0.0), Some(5.0)),
            task(20, "c", 10.0, None, Some(5.0)),
        ];
        Top { tasks, ..Top::default() }
    }

    fn order(selection: Selection) -> Vec<u32> {
        let mut top = tasks();
        selection.apply(&mut top);
        top.tasks.iter().map(|task| task.tid).collect()
    }

    /// Most first; what is equal goes by CPU time, then by number; unknown is least.
    #[test]
    fn every_key_orders() {
        let by = |sort| order(Selection { sort, ..Selection::default() });
        assert_eq!(by(SortKey::Cpu), [11, 12, 20, 21]);
        assert_eq!(by(SortKey::Wide), [12, 11, 21, 20]);
        assert_eq!(by(SortKey::Migrations), [20, 21, 12, 11]);
        assert_eq!(by(SortKey::Tid), [11, 12, 20, 21]);
        assert_eq!(by(SortKey::Name), [11, 12, 20, 21]);
        let reverse = Selection { sort: SortKey::Wide, reverse: true, ..Selection::default() };
        assert_eq!(order(reverse), [20, 21, 11, 12]);
    }

    /// A filter is a part of the name, a type, or a number of the task or its process.
    #[test]
    fn filters_choose() {
        let with =
            |filter: &str| order(Selection { filter: filter.into(), ..Selection::default() });
        assert_eq!(with("wide"), [12, 21]);
        assert_eq!(with("21"), [21]);
        assert_eq!(with("2"), [20, 21]);
        assert_eq!(with("nothing"), [] as [u32; 0]);
        assert_eq!(order(Selection { pids: vec![1], ..Selection::default() }), [11, 12]);
    }

    /// What is cut off is counted.
    #[test]
    fn the_rest_is_counted() {
        let mut top = tasks();
        Selection { max: Some(1), ..Selection::default() }.apply(&mut top);
        assert_eq!((top.tasks.len(), top.tasks_left_out), (1, 3));
    }

    /// Keys go round in both directions.
    #[test]
    fn keys_go_round() {
        assert_eq!(SortKey::Cpu.stepped(-1), SortKey::Name);
        assert_eq!(SortKey::Name.stepped(1), SortKey::Cpu);
    }
}
