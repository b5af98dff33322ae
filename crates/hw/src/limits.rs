// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much CPU time the process may use at all.
//!
//! A container with a quota has whole CPUs, and loses all of them for the rest of a period when its
//! time is used up. Measurements see that as gaps.
//!
//! Limits: only the process's own group and the top of its view are looked at; a quota of a group
//! in between, or outside of the container's view, is not seen.

use crate::Source;

/// CPUs that the group's quota comes to; `None` if there is none, or none is readable.
pub fn cpu_quota(source: &dyn Source) -> Option<f64> {
    let own = source.read("/proc/self/cgroup").ok().and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.trim().to_string();
        source.read(&format!("/sys/fs/cgroup{}/cpu.max", path.trim_end_matches('/'))).ok()
    });
    let top = || source.read("/sys/fs/cgroup/cpu.max").ok();
    if let Some(quota) = own.or_else(top).as_deref().and_then(unified) {
        return Some(quota);
    }
    // cgroup v1
    let number = |name: &str| -> Option<f64> {
        source.read(&format!("/sys/fs/cgroup/cpu/cpu.{name}")).ok()?.trim().parse().ok()
    };
    let (quota, period) = (number("cfs_quota_us")?, number("cfs_period_us")?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
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
}
