// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs: services by names for people, and the code that processes map.
//!
//! Without root only the user's own processes can be looked at.

use std::io::{self, ErrorKind};

use hw::activity::processes;
use hw::memory::{Mapping, executable_mappings};
use hw::services::{groups_of, unit_of};
use hw::{Live, task};
use report::scan::Processes;

/// The unit of a process, or its name where it is in none.
pub(crate) fn service_of(pid: u32) -> String {
    let groups = groups_of(&Live, pid);
    let unit = groups.iter().find_map(|group| unit_of(group));
    unit.map_or_else(|| task::name(pid).unwrap_or_else(|_| format!("process {pid}")), str::to_owned)
}

/// Shows the executable mappings of each process but this one, as far as it may be looked at; fails
/// where /proc shows no process.
pub(crate) fn each_process(mut look: impl FnMut(u32, Vec<Mapping>)) -> io::Result<Processes> {
    let mut seen = Processes::default();
    for pid in processes(&Live)? {
        if pid == std::process::id() || task::is_kernel_thread(pid).unwrap_or(true) {
            continue;
        }
        match executable_mappings(pid) {
            Ok(mappings) => {
                seen.looked_at += 1;
                look(pid, mappings);
            }
            Err(error) => {
                seen.refused += u32::from(error.kind() == ErrorKind::PermissionDenied);
            }
        }
    }
    Ok(seen)
}
