// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lib.restore_failures`: programs that change P-states and end by return, panic, abort or
//! SIGKILL, 250 each; those after which a setting is not as it was count. On a folder that serves
//! as a machine, and in guests: on a real cpufreq core, and on registers
//! (`boost.restore_failures`). Nothing is retried; a setting that comes back more than 20 s after
//! the end counts as not restored.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::guest::modprobe;
use crate::measure::{Figure, publish};
use crate::pstate_end::{ENDS, left_changed, settings};
use crate::tests::pstate::load;

/// Programs per kind of end.
const ROUNDS: usize = 250;
/// The machine: governors, a shared clock and a turbo switch.
const MACHINE: &str = "acpi-cpufreq-fx-8120";

/// On this machine.
pub fn fake_tree() -> Result<()> {
    let folder = Folder::new()?;
    pstate::fake::build(MACHINE, &folder.0)?;
    measure("lib-restore", "lib.restore_failures", &folder.0)
}

/// In a guest.
pub fn guest() -> Result<()> {
    load(2)?;
    measure("lib-restore-guest", "lib.restore_failures.guest", Path::new("/"))
}

/// In a guest whose CPUs have registers for P-states and no driver.
pub fn registers() -> Result<()> {
    modprobe("msr")?;
    measure("boost-restore", "boost.restore_failures", Path::new("/"))
}

fn measure(bench: &str, name: &str, root: &Path) -> Result<()> {
    let before = settings(root)?;
    let mut failures = 0;
    for round in 0..ROUNDS {
        for end in ENDS {
            let left = left_changed(root, end, &before)?;
            if !left.is_empty() {
                failures += 1;
                eprintln!("round {round}: {}", left.join("; "));
            }
        }
    }
    publish(bench, &[Figure::count(name, failures, (ROUNDS * ENDS.len()) as u64)])
}

/// A folder that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("turbolane-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover in the temporary folder harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
