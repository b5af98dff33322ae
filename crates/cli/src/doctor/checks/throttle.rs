// SPDX-License-Identifier: MIT OR Apache-2.0
//! The check of throttle reasons: what CPUs have that count no licence levels.

use cpumodel::CpuSet;
use hw::Facts;
use hw::plr::{Absent, Plr, is_expected};
use report::doctor::Check;

use super::{Seen, no, ok, unknown, warn};
use crate::doctor::count;
use crate::sample::shown;

/// Lockdown refuses debugfs to root, too, and logs that.
const LOG: &str = "the kernel's log may say why: dmesg";

/// Says what the reasons are now. Only of a CPU that should have them, or has.
pub(super) fn check(facts: &Facts, plr: &Result<Plr, Absent>) -> Option<Check> {
    let seen = match plr {
        Ok(plr) => present(plr),
        Err(_) if !is_expected(&facts.cpu) => return None,
        Err(Absent::Denied) => {
            unknown("only root may read debugfs", "run turbolane doctor as root")
        }
        Err(Absent::Missing) => no(
            "none: there is no file /sys/kernel/debug/tpmi-*/plr/domain*/status",
            "modprobe intel_plr_tpmi, and mount debugfs; a virtual machine has none",
        ),
    };
    Some(seen.check(
        "throttle-reasons",
        "Throttle reasons",
        "on CPUs without licence counters they show which CPUs were limited by the class of their \
         code, and which by power or heat",
    ))
}

fn present(plr: &Plr) -> Seen {
    let cpus = plr.cpus();
    let causes = Plr::causes(&cpus);
    let limits: Vec<String> = causes
        .iter()
        .map(|(cause, (cpus, names))| {
            let list: CpuSet = cpus.iter().map(|cpu| *cpu as usize).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("CPUs {list} by {} ({})", shown(*cause).word(), names.join(", "))
        })
        .collect();
    let limits = match limits.is_empty() {
        true => "no CPU was limited".to_owned(),
        false => limits.join("; "),
    };
    let domains = count(plr.domains.len(), "power domain");
    let text = format!(
        "{domains}, {}; since they were cleared: {limits} (read as the driver's source documents \
         them, not tried on hardware)",
        count(cpus.len(), "CPU")
    );
    match plr.unread.first() {
        None => ok(text),
        Some(unread) if plr.domains.is_empty() => unknown(format!("cannot be read: {unread}"), LOG),
        Some(unread) => warn(format!("{text}; not read: {unread}"), LOG),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hw::Recorded;
    use report::doctor::Status;

    use super::*;

    fn recorded(machine: &str) -> Recorded {
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        Recorded::open(&Path::new(machines).join(machine)).unwrap()
    }

    fn found(machine: &str) -> Option<Check> {
        let source = recorded(machine);
        check(&Facts::read(&source).unwrap(), &Plr::read(&source))
    }

    /// They are missed only on CPUs that should have them.
    #[test]
    fn other_cpus_are_not_checked() {
        assert_eq!(found("granite-rapids").unwrap().status, Status::Ok);
        let facts = Facts::read(&recorded("granite-rapids")).unwrap();
        assert_eq!(check(&facts, &Err(Absent::Missing)).unwrap().status, Status::No);
        assert_eq!(found("sapphire-rapids-vm"), None);
        assert_eq!(found("skylake-sp"), None);
        assert_eq!(found("epyc-genoa"), None);
    }

    /// A user who may not look, and a file that means nothing, are each reported as that.
    #[test]
    fn unreadable_reasons_are_no_answer() {
        let facts = Facts::read(&recorded("granite-rapids")).unwrap();
        let denied = check(&facts, &Err(Absent::Denied)).unwrap();
        assert_eq!(denied.status, Status::Unknown);
        let broken = Plr { unread: vec!["/d: line 1: nonsense".into()], ..Plr::default() };
        let check = check(&facts, &Ok(broken)).unwrap();
        assert_eq!(check.status, Status::Unknown);
        assert!(check.seen.contains("line 1: nonsense"), "{check:?}");
    }
}
