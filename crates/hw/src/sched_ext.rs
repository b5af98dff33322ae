// SPDX-License-Identifier: MIT OR Apache-2.0
//! The live state of sched_ext, for the program that loads a scheduler.

use std::fs;
use std::path::Path;

const ROOT: &str = "/sys/kernel/sched_ext";

fn read(name: &str) -> Option<String> {
    fs::read_to_string(format!("{ROOT}/{name}")).ok().map(|text| text.trim().to_owned())
}

/// `disabled`, `enabling`, `enabled`, `disabling`; `None` on a kernel without sched_ext.
pub fn state() -> Option<String> {
    read("state")
}

/// Name of the scheduler that runs.
pub fn running() -> Option<String> {
    read("root/ops").filter(|name| !name.is_empty())
}

/// Count of CPU hotplug events, by which the kernel knows that a scheduler was built for
/// another set of CPUs; 0 (not checked) where the kernel does not say.
pub fn hotplug_seq() -> u64 {
    read("hotplug_seq").and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Whether the trap module is loaded and describes its event.
pub fn has_trap_module() -> bool {
    Path::new("/sys/kernel/btf/turbolane_trap").exists()
}
