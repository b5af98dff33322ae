// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of running services, for people.

use hw::services::{groups_of, unit_of};
use hw::{Live, task};

/// The unit of a process, or its name where it is in none.
pub(crate) fn service_of(pid: u32) -> String {
    let groups = groups_of(&Live, pid);
    let unit = groups.iter().find_map(|group| unit_of(group));
    unit.map_or_else(|| task::name(pid).unwrap_or_else(|_| format!("process {pid}")), str::to_owned)
}
