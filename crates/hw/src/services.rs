// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which service a process belongs to.
//!
//! systemd puts each unit's processes into a control group of the unit's name, so a process's group
//! names its service, without a question to systemd:
//!
//! ```text
//!   0::/system.slice/nginx.service            -> nginx.service
//!   0::/user.slice/user-0.slice/session-4.scope -> session-4.scope
//! ```
//!
//! Reading only. Limits: inside a container the groups are the container's, and a process that has
//! left its unit's group is in the group that it went to. Of the first version of control groups
//! every hierarchy counts.

use crate::Source;

/// Endings of the units that hold processes.
const UNITS: [&str; 2] = [".service", ".scope"];

/// Whether this machine was booted by systemd (sd_booted(3)).
pub fn has_systemd(source: &dyn Source) -> bool {
    source.exists("/run/systemd/system")
}

/// The control groups that a process is in, one of each hierarchy; none if it has ended.
pub fn groups_of(source: &dyn Source, pid: u32) -> Vec<String> {
    let text = source.read(&format!("/proc/{pid}/cgroup")).unwrap_or_default();
    // HIERARCHY:CONTROLLERS:PATH, and a path may hold colons
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.map(str::to_owned).collect()
}

/// The unit that a group belongs to: the innermost service or scope.
pub fn unit_of(group: &str) -> Option<&str> {
    group.rsplit('/').find(|name| UNITS.iter().any(|ending| name.ends_with(ending)))
}

/// Whether a group is this one or below it; the path as in /proc/PID/cgroup.
pub fn is_below(group: &str, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    group.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a group is a unit's or below it; the unit with its ending.
pub fn is_of_unit(group: &str, unit: &str) -> bool {
    group.split('/').any(|name| name == unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    /// A unit is found by its group at every depth and in both versions of control groups; a
    /// session's processes are in its scope, and a container's groups below its service.
    #[test]
    fn groups_name_units() {
        let files = "/proc/7/cgroup:\n\t1:name=systemd:/system.slice/a.service\n\t0::/x:y\n";
        let machine = Recorded::parse(files, "").unwrap();
        assert_eq!(groups_of(&machine, 7), ["/system.slice/a.service", "/x:y"]);
        assert_eq!(groups_of(&machine, 8), Vec::<String>::new());
        let unit = |group| unit_of(group);
        assert_eq!(unit("/system.slice/nginx.service"), Some("nginx.service"));
        assert_eq!(unit("/a.service/b.scope/leaf"), Some("b.scope"));
        assert_eq!(unit("/user.slice/user-0.slice"), None);
        assert_eq!(unit("/"), None);
    }

    /// Names count as wholes: neither a longer name nor a part of a path is the group.
    #[test]
    fn groups_of_longer_names_are_others() {
        assert!(is_below("/a/b", "/a/b") && is_below("/a/b/c", "/a/b/") && is_below("/a", "/"));
        assert!(!is_below("/a/bc", "/a/b") && !is_below("/a", "/a/b"));
        assert!(is_of_unit("/system.slice/nginx.service/worker", "nginx.service"));
        assert!(!is_of_unit("/system.slice/my-nginx.service", "nginx.service"));
    }
}
