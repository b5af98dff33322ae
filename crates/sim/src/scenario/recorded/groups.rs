// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of the recorded tasks are one group of the scenario: those of one name that may use the
//! same CPUs. Threads of a pool are numbered, so numbers at the end of a name do not count. A group
//! has the name that all of its tasks have, or what is left without the numbers.

use cpumodel::CpuSet;
use trace::follow::Task;

use super::courses::{Course, Courses};

/// A group of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupMade {
    /// Its name.
    pub name: String,
    /// Its tasks.
    pub tasks: usize,
    /// Their share of the CPU time of all tasks that are kept, 0..=1.
    pub share: f64,
    /// Of their cycles, those of wide code, 0..=1.
    pub wide: f64,
    /// Sleeps of theirs that something outside ended.
    pub arrivals: u64,
    /// Kernel threads.
    pub kernel: bool,
    /// CPUs that they may use; `None`: all of them, or not known.
    pub affinity: Option<CpuSet>,
    /// Indices of their courses.
    pub(super) members: Vec<usize>,
}

impl GroupMade {
    /// How many tasks it has, and where, if tasks that were bound to CPUs run on others: see
    /// [`super::Request::onto`].
    pub(super) fn placed<'a>(&'a self, onto: Option<&'a CpuSet>) -> (usize, Option<&'a CpuSet>) {
        match (&self.affinity, onto) {
            (Some(were), Some(cpus)) => {
                let tasks = (self.tasks * cpus.len()).div_ceil(were.len().max(1));
                (tasks.max(self.tasks), Some(cpus))
            }
            (affinity, _) => (self.tasks, affinity.as_ref()),
        }
    }
}

/// The groups of some courses, the busiest first.
pub(super) fn of(courses: &Courses, tasks: &[Task]) -> Vec<GroupMade> {
    let courses = &courses.courses;
    let mut groups: Vec<GroupMade> = Vec::new();
    for (at, course) in courses.iter().enumerate() {
        let task = &tasks[course.task];
        let (name, kernel) = (task.name.to_string(), task.kernel);
        let same = |group: &&mut GroupMade| {
            pool(&group.name) == pool(&name)
                && group.kernel == kernel
                && group.affinity == course.affinity
        };
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.members.push(at);
                if group.name != name {
                    group.name = pool(&name);
                }
            }
            None => groups.push(GroupMade {
                name,
                tasks: 0,
                share: 0.0,
                wide: 0.0,
                arrivals: 0,
                kernel,
                affinity: course.affinity,
                members: vec![at],
            }),
        }
    }
    let all_ns: u64 = courses.iter().map(|course| course.busy_ns).sum();
    for group in &mut groups {
        let sum = |of: fn(&Course) -> u64| -> u64 {
            group.members.iter().map(|&at| of(&courses[at])).sum()
        };
        let busy_ns = sum(|course| course.busy_ns).max(1);
        group.wide = sum(|course| course.wide_ns) as f64 / busy_ns as f64;
        group.share = busy_ns as f64 / all_ns.max(1) as f64;
        group.arrivals = sum(|course| course.arrivals);
        group.tasks = group.members.len();
    }
    groups.sort_by(|one, other| other.share.total_cmp(&one.share));
    distinguish(&mut groups);
    groups
}

/// The name of a pool: a thread's without its number.
fn pool(name: &str) -> String {
    let trimmed = name.trim_end_matches(|c: char| c.is_ascii_digit() || "-_:/#. ".contains(c));
    if trimmed.is_empty() { name.to_owned() } else { trimmed.to_owned() }
}

/// Groups of one name, on different CPUs, get numbers.
fn distinguish(groups: &mut [GroupMade]) {
    for at in 1..groups.len() {
        let name = groups[at].name.clone();
        let mut number = 2;
        while groups[..at].iter().any(|group| group.name == groups[at].name) {
            groups[at].name = format!("{name}-{number}");
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pool;

    #[test]
    fn threads_of_a_pool_have_one_name() {
        for (thread, name) in
            [("worker-12", "worker"), ("kworker/3:1", "kworker"), ("nginx", "nginx"), ("42", "42")]
        {
            assert_eq!(pool(thread), name);
        }
    }
}
