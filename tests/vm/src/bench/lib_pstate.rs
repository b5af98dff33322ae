// SPDX-License-Identifier: MIT OR Apache-2.0
//! What programs leave changed that set P-states and end by return, panic, abort or SIGKILL, 250
//! each. Those after which something is not as it was count. Nothing is retried; what comes back
//! more than 20 s after the end counts as not restored.
//!
//! | figure | machine | what is looked at |
//! |---|---|---|
//! | `lib.restore_failures` | a folder that serves as one | settings |
//! | `lib.restore_failures.guest` | a guest with a cpufreq core and a driver without hardware | settings |
//! | `boost.restore_failures` | an FX-8120 without a driver | registers |
//! | `boost.restore_failures.limits`, `.setspeed`, `.intel` | a Xeon Gold 6130 with its driver | settings and registers |
//! | `boost.restore_failures.hint` | as `lib.restore_failures.guest`, with the lane | settings, and the clock of the next program there |

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pstate::Way;

use crate::guest::{modprobe, nr_cpus, set_affinity};
use crate::lane::Lane;
use crate::measure::{Figure, publish};
use crate::pstate_end::{CPU, ENDS, End, left_changed, left_slow, settings};
use crate::silicon::ask_for_full_clock;
use crate::tests::pstate::{load, write};

/// Programs per kind of end.
const ROUNDS: usize = 250;
/// The machine: governors, a shared clock and a turbo switch.
const MACHINE: &str = "acpi-cpufreq-fx-8120";

/// On this machine.
pub fn fake_tree() -> Result<()> {
    let folder = Folder::new()?;
    pstate::fake::build(MACHINE, &folder.0)?;
    measure("lib-restore", "lib.restore_failures", &folder.0, None)
}

/// In a guest.
pub fn guest() -> Result<()> {
    load(2)?;
    measure("lib-restore-guest", "lib.restore_failures.guest", Path::new("/"), None)
}

/// In a guest whose CPUs have registers for P-states and no driver.
pub fn registers() -> Result<()> {
    modprobe("msr")?;
    measure("boost-restore", "boost.restore_failures", Path::new("/"), None)
}

/// In a guest with Intel's registers and their driver: limits.
pub fn limits() -> Result<()> {
    intel("limits", Way::Limits)
}

/// The same by the governor `userspace`.
pub fn setspeed() -> Result<()> {
    modprobe("cpufreq_userspace")?;
    intel("setspeed", Way::Setspeed)
}

/// The same by the registers.
pub fn intel_registers() -> Result<()> {
    intel("intel", Way::Msr)
}

/// The registers hold still while the governor asks for one clock only.
fn intel(name: &str, way: Way) -> Result<()> {
    modprobe("msr")?;
    (0..nr_cpus()).try_for_each(ask_for_full_clock)?;
    let is_ratio = |path: &PathBuf| path.to_string_lossy().ends_with("msr@199");
    ensure!(settings(Path::new("/"))?.keys().any(is_ratio), "IA32_PERF_CTL cannot be read");
    let figure = format!("boost.restore_failures.{name}");
    measure(&format!("boost-restore-{name}"), &figure, Path::new("/"), Some(way))
}

/// In a guest whose scheduler takes threads' requests.
pub fn hint() -> Result<()> {
    load(1)?;
    for cpu in 0..nr_cpus() as u32 {
        write(cpu, "scaling_governor", "schedutil")?;
    }
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3"])?;
    set_affinity(0, &[CPU as usize])?;
    let figure = "boost.restore_failures.hint";
    count("boost-restore-hint", figure, &settings(Path::new("/"))?, left_slow)?;
    lane.stop().map(drop)
}

fn measure(bench: &str, name: &str, root: &Path, way: Option<Way>) -> Result<()> {
    let left = |end: End, before: &BTreeMap<_, _>| left_changed(root, way, end, before);
    count(bench, name, &settings(root)?, left)
}

fn count(
    bench: &str,
    name: &str,
    before: &BTreeMap<PathBuf, String>,
    left: impl Fn(End, &BTreeMap<PathBuf, String>) -> Result<Vec<String>>,
) -> Result<()> {
    let mut failures = 0;
    for round in 0..ROUNDS {
        for end in ENDS {
            let left = left(end, before)?;
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
