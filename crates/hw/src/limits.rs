// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much CPU time the process may use at all.
//!
//! A container with a quota uses all of its CPUs, and loses all of them for the rest of a period
//! when its time is used up. Measurements see that as gaps.
//!
//! The tightest quota counts, be it the process's own group's or one's above it.
//!
//! Limits: a quota outside of the process's view, such as that of a container's parents, is not
//! seen.

use crate::Source;

/// CPUs that the tightest quota on the process comes to; `None` if there is none, or none is
/// readable.
pub fn cpu_quota(source: &dyn Source) -> Option<f64> {
    let groups = source.read("/proc/self/cgroup").unwrap_or_default();
    let v2 = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // cgroup v1: "1:cpu,cpuacct:/group"
    let v1 = groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "cpu").then_some(group)
    });
    let unified = up(v2)
        .filter_map(|group| unified(&source.read(&format!("/sys/fs/cgroup{group}/cpu.max")).ok()?));
    let legacy = up(v1).filter_map(|group| {
        let number = |name: &str| -> Option<f64> {
            source.read(&format!("/sys/fs/cgroup/cpu{group}/cpu.{name}")).ok()?.trim().parse().ok()
        };
        let (quota, period) = (number("cfs_quota_us")?, number("cfs_period_us")?);
        (quota > 0.0 && period > 0.0).then(|| quota / period)
    });
    unified.chain(legacy).min_by(f64::total_cmp)
}

/// A group's path and those of the groups above it, up to "": the top of the process's view, which
/// in a container is its own group.
fn up(group: Option<&str>) -> impl Iterator<Item = &str> {
    let own = group.unwrap_or_default().trim().trim_end_matches('/');
    std::iter::successors(Some(own), |path| Some(path.rsplit_once('/')?.0))
}

/// `QUOTA PERIOD` or `max PERIOD`, in us.
fn unified(text: &str) -> Option<f64> {
    let mut words = text.split_whitespace();
    let (quota, period): (f64, f64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms of the file: one and a half CPUs, no limit, nonsense.
    #[test]
    fn quotas_are_read() {
        assert_eq!(unified("150000 100000\n"), Some(1.5));
        assert_eq!(unified("max 100000\n"), None);
        assert_eq!(unified(""), None);
        assert_eq!(unified("5 0"), None);
    }

    fn quota(files: &str) -> Option<f64> {
        cpu_quota(&crate::Recorded::parse(files, "").unwrap())
    }

    /// The own group's quota is found in both versions of cgroups, where the group is seen by its
    /// path and where it is the top of the view.
    #[test]
    fn quotas_of_groups_are_found() {
        let own = "/proc/self/cgroup:\n\t3:cpuset:/\n\t1:cpu,cpuacct:/web\n\t0::/\n";
        let v1 = |group: &str| {
            format!(
                "/sys/fs/cgroup/cpu{group}/cpu.cfs_quota_us = 50000\n\
                 /sys/fs/cgroup/cpu{group}/cpu.cfs_period_us = 100000\n"
            )
        };
        assert_eq!(quota(&(own.to_string() + &v1("/web"))), Some(0.5));
        assert_eq!(quota(&(own.to_string() + &v1(""))), Some(0.5));
        assert_eq!(quota(own), None);
        let own = "/proc/self/cgroup = 0::/system.slice/web.service\n";
        let max = |group: &str| format!("{own}/sys/fs/cgroup{group}/cpu.max = 200000 100000\n");
        assert_eq!(quota(&max("/system.slice/web.service")), Some(2.0));
        assert_eq!(quota(&max("")), Some(2.0));
        let half = "/sys/fs/cgroup/system.slice/cpu.max = 50000 100000\n";
        assert_eq!(quota(&(max("/system.slice/web.service") + half)), Some(0.5));
        assert_eq!(quota(&max("").replace("200000", "max")), None);
    }
}
