// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which load a command is about: processes, a unit, a control group, or a command and what it
//! starts.
//!
//! Of samples, a process is asked about once, when it is sampled first, so that what a service
//! starts meanwhile counts too.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;

use hw::activity::processes;
use hw::cgroups::unified_root;
use hw::services::{groups_of, has_systemd, is_below, is_of_unit, unit_of};
use hw::{Source, task};
use report::problem::Problem;

use crate::failure::Failure;
use crate::sample::Asked;

/// Ancestors that are looked at to find out whether a process belongs to a command.
const ANCESTORS_MAX: usize = 32;
/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// A load of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Pids(Vec<u32>),
    Unit(String),
    Group(String),
    Command(Vec<OsString>),
}

impl Target {
    /// For people.
    pub(crate) fn name(&self) -> String {
        match self {
            Target::Pids(pids) => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                format!("process {}", pids.join(", "))
            }
            Target::Unit(unit) => unit.clone(),
            Target::Group(group) => format!("control group {group}"),
            Target::Command(command) => {
                command.first().map_or(String::new(), |word| word.to_string_lossy().into_owned())
            }
        }
    }

    /// Refuses what is not there.
    pub(crate) fn check(&self, source: &dyn Source) -> Result<(), Failure> {
        match self {
            Target::Pids(pids) => pids.iter().try_for_each(|pid| check_pid(source, *pid)),
            Target::Unit(unit) => check_unit(source, unit),
            Target::Group(group) => check_group(source, group),
            Target::Command(_) => Ok(()),
        }
    }

    /// The folder of a unit's or a control group's tasks.
    pub(crate) fn folder(&self, source: &dyn Source) -> Result<PathBuf, Failure> {
        let path = match self {
            Target::Group(group) => group.clone(),
            Target::Unit(unit) => group_of_unit(source, unit)?,
            Target::Pids(_) | Target::Command(_) => {
                let next = "name its unit or control group";
                let why = "it has no control group of its own";
                return Err(Failure::failed(Problem::new(self.not_found(), why, next)));
            }
        };
        let root = unified_root().ok_or_else(|| {
            let why = "control groups of version 2 are not mounted here";
            let next = "boot with systemd.unified_cgroup_hierarchy=1, or give a command";
            Failure::unsupported(Problem::new(self.not_found(), why, next))
        })?;
        Ok(root.join(path.trim_start_matches('/')))
    }

    /// What failed, if it is not there.
    fn not_found(&self) -> String {
        match self {
            Target::Unit(unit) => format!("cannot find unit {unit}"),
            other => format!("cannot find {}", other.name()),
        }
    }

    /// Whether a process is asked about; `child` is the command's number.
    pub(crate) fn asked(&self, child: Option<u32>) -> Asked {
        let live = &hw::Live;
        match self.clone() {
            Target::Pids(pids) => {
                let pids: HashSet<u32> = pids.into_iter().collect();
                Box::new(move |pid| pids.contains(&pid))
            }
            Target::Unit(unit) => Box::new(move |pid| in_unit(live, pid, &unit)),
            Target::Group(group) => Box::new(move |pid| in_group(live, pid, &group)),
            Target::Command(_) => {
                Box::new(move |pid| child.is_some_and(|child| descends_from(pid, child)))
            }
        }
    }
}

/// Whether a process is this one, or was started by it or by what it has started.
fn descends_from(pid: u32, ancestor: u32) -> bool {
    let up = |pid: &u32| task::parent(*pid).ok().filter(|parent| *parent > 0);
    std::iter::successors(Some(pid), up).take(ANCESTORS_MAX).any(|pid| pid == ancestor)
}

/// A process with all that it has started, found before the first of them is ended.
pub(crate) fn descendants(ancestor: u32) -> Vec<u32> {
    let all = processes(&hw::Live).unwrap_or_default();
    all.into_iter().filter(|pid| descends_from(*pid, ancestor)).collect()
}

/// The name with its ending, as systemctl takes it.
pub(crate) fn unit(name: &str) -> String {
    let endings = [".service", ".scope", ".slice"];
    match endings.iter().any(|ending| name.ends_with(ending)) {
        true => name.to_owned(),
        false => format!("{name}.service"),
    }
}

/// The path as /proc/PID/cgroup has it.
pub(crate) fn group(path: &str) -> String {
    let below = path.strip_prefix(GROUPS).unwrap_or(path);
    format!("/{}", below.trim_matches('/'))
}

fn in_unit(source: &dyn Source, pid: u32, unit: &str) -> bool {
    groups_of(source, pid).iter().any(|group| is_of_unit(group, unit))
}

/// The control group of a unit, as /proc/PID/cgroup has it.
fn group_of_unit(source: &dyn Source, unit: &str) -> Result<String, Failure> {
    let of_unit = |group: String| {
        let mut names = group.split_inclusive('/');
        let mut path = String::new();
        names.find(|name| {
            path.push_str(name);
            name.trim_end_matches('/') == unit
        })?;
        Some(path.trim_end_matches('/').to_owned())
    };
    let pids = processes(source).unwrap_or_default();
    let groups = pids.into_iter().flat_map(|pid| groups_of(source, pid)).filter_map(of_unit);
    let groups: Vec<String> = groups.collect::<BTreeSet<_>>().into_iter().collect();
    match groups.as_slice() {
        [group] => Ok(group.clone()),
        [] => Err(Failure::failed(Problem::new(
            format!("cannot find unit {unit}"),
            "it has no running process",
            format!("start it: systemctl status {unit} says how it is"),
        ))),
        several => Err(Failure::failed(Problem::new(
            format!("there are several units {unit}"),
            format!("their control groups are {}", several.join(" and ")),
            "name one of these by --cgroup",
        ))),
    }
}

fn in_group(source: &dyn Source, pid: u32, path: &str) -> bool {
    groups_of(source, pid).iter().any(|group| is_below(group, path))
}

fn check_pid(source: &dyn Source, pid: u32) -> Result<(), Failure> {
    if hw::activity::has_process(source, pid) {
        return Ok(());
    }
    let next = "check the number: pgrep -l NAME lists those of a name";
    let what = format!("cannot find process {pid}");
    Err(Failure::failed(Problem::new(what, "there is no such process", next)))
}

fn check_unit(source: &dyn Source, unit: &str) -> Result<(), Failure> {
    let what = format!("cannot find unit {unit}");
    if !has_systemd(source) {
        let why = "systemd does not run here, so there are no units";
        let next = "name processes or a control group: --pid PID, --cgroup PATH";
        return Err(Failure::failed(Problem::new(what, why, next)));
    }
    let pids = processes(source).unwrap_or_default();
    if pids.iter().any(|pid| in_unit(source, *pid, unit)) {
        return Ok(());
    }
    let stem = unit.split('.').next().unwrap_or(unit);
    let groups = pids.iter().flat_map(|pid| groups_of(source, *pid));
    let mut near: Vec<String> = groups
        .filter_map(|group| Some(unit_of(&group)?.to_owned()))
        .filter(|other| other.contains(stem))
        .collect();
    near.sort_unstable();
    near.dedup();
    let next = match near.as_slice() {
        [] => format!("start it: systemctl status {unit} says how it is"),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    Err(Failure::failed(Problem::new(what, "it has no running process", next)))
}

fn check_group(source: &dyn Source, path: &str) -> Result<(), Failure> {
    let pids = processes(source).unwrap_or_default();
    if pids.iter().any(|pid| in_group(source, *pid, path)) {
        return Ok(());
    }
    let what = format!("cannot find control group {path}");
    let next = format!("name its folder below {GROUPS}; cat /proc/PID/cgroup shows a process's");
    Err(Failure::failed(Problem::new(what, "no process is in it or below it", next)))
}

#[cfg(test)]
mod tests {
    use hw::Recorded;

    use super::*;

    fn machine(with_systemd: bool) -> Recorded {
        let systemd = if with_systemd { "/run/systemd/system exists\n" } else { "" };
        let files = "/proc/7/cgroup = 0::/system.slice/nginx.service\n/proc/7/task exists\n\
                     /proc/9/cgroup = 0::/pods/a/b\n";
        Recorded::parse(&format!("{systemd}{files}"), "").unwrap()
    }

    /// Names are completed and paths are taken with or without the mount point.
    #[test]
    fn names_are_completed() {
        assert_eq!(["nginx", "a.scope"].map(unit), ["nginx.service", "a.scope"]);
        assert_eq!(["/sys/fs/cgroup/a/b/", "a/b", "/"].map(group), ["/a/b", "/a/b", "/"]);
    }

    /// What is there is accepted.
    #[test]
    fn what_runs_is_accepted() {
        let machine = machine(true);
        let targets = [
            Target::Pids(vec![7]),
            Target::Unit("nginx.service".into()),
            Target::Group("/pods/a".into()),
            Target::Command(vec!["true".into()]),
        ];
        for target in targets {
            assert!(target.check(&machine).is_ok(), "{target:?}");
        }
        assert!(in_unit(&machine, 7, "nginx.service") && !in_unit(&machine, 9, "nginx.service"));
    }

    /// A unit's folder is that of its whole group; one name in two places is asked about.
    #[test]
    fn the_group_of_a_unit_is_found() {
        let files = "/proc/7/cgroup = 0::/system.slice/a.service/worker\n\
                     /proc/8/cgroup = 0::/system.slice/a.service\n\
                     /proc/9/cgroup = 0::/system.slice/b.service\n\
                     /proc/10/cgroup = 0::/user.slice/b.service\n\
                     /proc/11/cgroup = 0::/system.slice/my-c.service\n";
        let machine = Recorded::parse(files, "").unwrap();
        assert_eq!(group_of_unit(&machine, "a.service").unwrap(), "/system.slice/a.service");
        let why = |unit| group_of_unit(&machine, unit).unwrap_err().why().to_owned();
        assert_eq!(
            why("b.service"),
            "their control groups are /system.slice/b.service and /user.slice/b.service"
        );
        assert!(why("c.service").contains("no running process"));
        assert!(Target::Pids(vec![7]).folder(&machine).is_err());
    }

    /// What is not there is refused with the reason.
    #[test]
    fn what_is_not_there_fails() {
        let why = |target: Target, with_systemd| {
            target.check(&machine(with_systemd)).unwrap_err().why().to_owned()
        };
        let unit = || Target::Unit("ngin.service".into());
        assert!(why(unit(), true).contains("no running process"));
        assert!(why(unit(), false).contains("systemd does not run"));
        assert!(why(Target::Group("/pods/ab".into()), true).contains("no process is in it"));
        assert!(why(Target::Pids(vec![8]), true).contains("no such process"));
    }
}
