// SPDX-License-Identifier: MIT OR Apache-2.0
//! Installs the package on a machine, uses it, purges it, and says what differs.
//!
//! The machine is a guest that boots systemd from a Debian root on which the package has never been
//! (`testbed::prepare_with_systemd`), with a kernel that has sched_ext. So the service really
//! starts and schedules, is upgraded while it runs, hangs and is restarted, and is purged while it
//! runs. A file is compared by its kind, mode, owner and contents; not compared are logs, what
//! systemd and Prometheus keep, dpkg's backup of its own list, and the linker's auxiliary cache,
//! which are written at each installation and hold times. Compared as well are systemd's units, our
//! modules, the kernel's scheduler, the settings in /proc/sys/kernel, and the affinity masks of
//! processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use testbed::{Cache, End, Guest};

/// Takes the folder with the package.
const SESSION: &str = include_str!("purge.sh");

/// Where the package is in the guest.
const FOLDER: &str = "/package";

/// Between the two states.
const DIVIDER: &str = "== after the purge ==";

/// How lines of purge.sh begin that are no files.
const UNIT: &str = "unit ";
const SCHEDULER: &str = "scheduler ";
const SETTING: &str = "kernel.";
const MASK: &str = "Cpus_allowed_list:";
const KINDS: [&str; 6] = [UNIT, "loaded ", "module ", SCHEDULER, SETTING, MASK];

/// Boot and session took 100 s on a machine that did nothing else; on a slower one the stage,
/// with the package's build, took 570 s.
const LIMIT: Duration = Duration::from_secs(900);

/// What purging the package leaves that was not there before, or takes away.
pub(super) fn differences(deb: &Path) -> Result<Vec<String>> {
    let cache = Cache::open()?;
    let images = testbed::prepare_with_systemd(&cache)?;
    let outcome = Guest::new(&cache, &images)
        .systemd(true)
        // Started by hand, when there is something to see.
        .kernel_args("systemd.mask=prometheus.service")
        .payload(deb, format!("{FOLDER}/turbolane.deb"))
        .limit(LIMIT)
        .run(&["sh", "-c", SESSION, "sh", FOLDER])?;
    ensure!(
        outcome.end == End::Exited(0),
        "the package does not install, work or purge ({:?}):\n{}",
        outcome.end,
        testbed::last_lines(&outcome.stderr, 30)
    );
    let mut found = compare(&outcome.stdout)?;
    found.extend(outcome.findings.iter().map(|finding| format!("kernel log: {}", finding.line)));
    Ok(found)
}

fn compare(text: &str) -> Result<Vec<String>> {
    let (before, after) = text.split_once(DIVIDER).context("the session was cut off")?;
    let (before, after) = (state(before), state(after));
    ensure!(before.len() > 1000, "the state before has only {} files", before.len());
    for kind in [UNIT, SCHEDULER, SETTING, MASK] {
        let has = before.keys().any(|key| key.starts_with(kind));
        ensure!(has, "the state before has no line that begins with {kind}");
    }
    let mut found = Vec::new();
    for (path, what) in &after {
        match before.get(path) {
            None => found.push(format!("{path} is new: {what}")),
            Some(was) if was != what => found.push(format!("{path} was {was}, is {what}")),
            Some(_) => {}
        }
    }
    let gone = before.keys().filter(|path| !after.contains_key(*path));
    found.extend(gone.map(|path| format!("{path} is gone")));
    Ok(found)
}

/// Lines of a path or one of [`KINDS`], a tab, and what it is. What dpkg prints is between them.
fn state(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter(|line| line.starts_with('/') || KINDS.iter().any(|kind| line.starts_with(kind)))
        .filter_map(|line| line.split_once('\t'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that is new, gone or changed is one difference each.
    #[test]
    fn every_kind_of_difference_is_found() {
        let many: String = (0..1001).map(|at| format!("/same/{at}\tf 644 0 0 1\n")).collect();
        let kinds = "scheduler disabled\t\nunit a.service\tstatic\nkernel.a\t1 \nCpus_allowed_list:\t0-1\t\n";
        let many = many + kinds;
        let before = format!("{many}/a\tf 644 0 0 11\n/b\tl 777 0 0 to\n");
        let same = format!("{before}{DIVIDER}\n{before}");
        assert_eq!(compare(&same).unwrap(), Vec::<String>::new());
        let other = format!("{before}{DIVIDER}\n{many}/a\tf 600 0 0 11\n/c\td 755 0 0\n");
        assert_eq!(
            compare(&other).unwrap(),
            ["/a was f 644 0 0 11, is f 600 0 0 11", "/c is new: d 755 0 0", "/b is gone"]
        );
        let set = before.replace("kernel.a\t1 ", "kernel.a\t2 ");
        let changed = compare(&format!("{before}{DIVIDER}\n{set}")).unwrap();
        assert_eq!(changed, ["kernel.a was 1 , is 2 "]);
        assert!(compare(&before).is_err());
        let blind = many.replace(kinds, "");
        assert!(compare(&format!("{blind}{DIVIDER}\n{blind}")).is_err());
    }
}
