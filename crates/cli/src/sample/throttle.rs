// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throttle reasons ([`hw::plr`]) around a sampling: which CPUs were limited meanwhile, and by
//! what.
//!
//! The reasons are read before and after, and only what is new counts. They are cleared before only
//! if the user asks for it: others may read them too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cpumodel::CpuSet;
use hw::Source;
use hw::plr::{self, Absent, Cause, Plr, Reasons};
use report::problem::Problem;
use report::sample::{Limited, ThrottleReasons};

use crate::failure::Failure;

/// Busy samples of a CPU, and those in wide code.
pub(super) type Counts = BTreeMap<u32, (u64, u64)>;

/// The reasons before a sampling.
pub(super) struct Throttle {
    before: Plr,
    is_cleared: bool,
}

impl Throttle {
    /// Reads the reasons, and clears them first if `clear` says so. None where there are none; an
    /// error where they cannot be cleared as asked.
    pub(super) fn begin(source: &dyn Source, clear: bool) -> Result<Option<Self>, Failure> {
        let before = match Plr::read(source) {
            Ok(before) => before,
            Err(why) if clear => return Err(cannot_clear(why.to_string(), Some(why))),
            Err(_) => return Ok(None),
        };
        if !clear {
            return Ok(Some(Throttle { before, is_cleared: false }));
        }
        clear_all(&before)?;
        // what comes back at once is a limit that holds now
        let cleared = before.domains.into_iter().map(|mut domain| {
            domain.cpus.values_mut().for_each(|reasons| *reasons = Reasons::default());
            domain
        });
        let before = Plr { domains: cleared.collect(), unread: before.unread };
        Ok(Some(Throttle { before, is_cleared: true }))
    }

    /// Reads them again.
    pub(super) fn end(self, source: &dyn Source) -> Around {
        let after = Plr::read(source)
            .unwrap_or_else(|why| Plr { unread: vec![why.to_string()], ..Plr::default() });
        Around { before: self.before, after, is_cleared: self.is_cleared }
    }
}

/// Clears all files, or reports which one was not and how many were: that is not undone.
fn clear_all(before: &Plr) -> Result<(), Failure> {
    if let Some(unread) = before.unread.first() {
        return Err(cannot_clear(unread.clone(), None));
    }
    for (cleared, domain) in before.domains.iter().enumerate() {
        plr::clear(Path::new(&domain.path)).map_err(|error| {
            let so_far = match cleared {
                0 => String::new(),
                _ => format!("; {cleared} of {} files are cleared", before.domains.len()),
            };
            cannot_clear(format!("{}: {error}{so_far}", domain.path), None)
        })?;
    }
    Ok(())
}

/// The reasons before and after a sampling.
pub(super) struct Around {
    before: Plr,
    after: Plr,
    is_cleared: bool,
}

fn cannot_clear(why: String, absent: Option<Absent>) -> Failure {
    let next = match absent {
        Some(Absent::Missing) => {
            "leave out --clear-throttle-reasons; turbolane doctor says what this CPU has"
        }
        Some(Absent::Denied) => "run it as root, or leave out --clear-throttle-reasons",
        None => "leave out --clear-throttle-reasons; the kernel's log may say why: dmesg",
    };
    Failure::unsupported(Problem::new("cannot clear the throttle reasons", why, next))
}

impl Around {
    /// What limited the CPUs, and how many of their samples there are.
    pub(super) fn report(&self, counts: &Counts) -> ThrottleReasons {
        let (earlier, later) = (self.before.cpus(), self.after.cpus());
        let (mut new, mut old) = (BTreeMap::new(), BTreeMap::new());
        for (cpu, reasons) in &later {
            // without an earlier reading nothing is known to be new
            let fresh = earlier.get(cpu).map(|earlier| reasons.since(earlier)).unwrap_or_default();
            old.insert(*cpu, reasons.since(&fresh));
            new.insert(*cpu, fresh);
        }
        let (new, old) = (Plr::causes(&new), Plr::causes(&old));
        let causes: BTreeSet<Cause> = new.keys().chain(old.keys()).copied().collect();
        let limited = causes.into_iter().map(|cause| {
            let (cpus, reasons) = new.get(&cause).cloned().unwrap_or_default();
            let had = old.get(&cause).map(|had| list(&had.0)).unwrap_or_default();
            let counts = cpus.iter().filter_map(|cpu| counts.get(cpu));
            let (busy, wide) = counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
            Limited {
                cause: shown(cause),
                cpus: list(&cpus).to_string(),
                reasons: reasons.into_iter().collect(),
                busy,
                wide,
                set_before: (had - list(&cpus)).to_string(),
            }
        });
        let mut unread = self.after.unread.clone();
        let before = self.before.unread.iter().filter(|why| !self.after.unread.contains(why));
        unread.extend(before.cloned());
        ThrottleReasons {
            cpus: later.len() as u32,
            cleared: self.is_cleared,
            limited: limited.collect(),
            unread,
        }
    }
}

fn list(cpus: &[u32]) -> CpuSet {
    cpus.iter().map(|cpu| *cpu as usize).collect()
}

/// The cause as reports have it.
pub(crate) fn shown(cause: Cause) -> report::sample::Cause {
    match cause {
        Cause::License => report::sample::Cause::License,
        Cause::Frequency => report::sample::Cause::Turbo,
        Cause::Power => report::sample::Cause::Power,
        Cause::Heat => report::sample::Cause::Heat,
        Cause::Other => report::sample::Cause::Other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use hw::Recorded;
    use hw::plr::{DEBUGFS, Domain, Plr, Reasons};
    use report::sample::Cause;

    use super::{Counts, Limited, Throttle, ThrottleReasons, clear_all};

    const FILE: &str = "tpmi-0000:00:03.1/plr/domain0/status";

    fn machine(lines: &str) -> Recorded {
        let lines: String = lines.lines().map(|line| format!("\t{line}\n")).collect();
        Recorded::parse(&format!("{DEBUGFS}/{FILE}:\n\tcpus none\n{lines}"), "").unwrap()
    }

    fn between(before: &str, after: &str) -> ThrottleReasons {
        let throttle = Throttle::begin(&machine(before), false).unwrap().unwrap();
        let counts = Counts::from([(0, (100, 10)), (1, (50, 0)), (2, (7, 7))]);
        throttle.end(&machine(after)).report(&counts)
    }

    fn of(found: &ThrottleReasons, cause: Cause) -> &Limited {
        found.limited.iter().find(|limited| limited.cause == cause).unwrap()
    }

    /// A CPU is limited by what is new on it, with its own samples; what was there before is kept
    /// apart, and two causes can limit one CPU.
    #[test]
    fn only_new_reasons_count() {
        let found = between(
            "cpu0 none\ncpu1 POWER\ncpu2 none",
            "cpu0 FREQUENCY FREQUENCY_CDYN2 THERMAL\ncpu1 POWER\ncpu2 FREQUENCY FREQUENCY_CDYN1",
        );
        let license = of(&found, Cause::License);
        assert_eq!((license.cpus.as_str(), license.busy, license.wide), ("0,2", 107, 17));
        assert_eq!(license.reasons, ["FREQUENCY_CDYN1", "FREQUENCY_CDYN2"]);
        assert_eq!(of(&found, Cause::Heat).cpus, "0");
        let power = of(&found, Cause::Power);
        assert_eq!((power.cpus.as_str(), power.set_before.as_str(), power.busy), ("", "1", 0));
        assert_eq!((found.cpus, found.limited.len()), (3, 3));
    }

    /// A coarse reason that was set before is no answer to a fine one that is new.
    #[test]
    fn new_fine_reasons_count_below_old_coarse_ones() {
        let found = between(
            "cpu0 FREQUENCY FREQUENCY_CDYN0",
            "cpu0 FREQUENCY FREQUENCY_CDYN0 FREQUENCY_CDYN1",
        );
        assert_eq!(of(&found, Cause::License).cpus, "0");
        assert_eq!(of(&found, Cause::Turbo).set_before, "0");
    }

    /// Files that were lost meanwhile, and CPUs that came, limit nothing.
    #[test]
    fn what_was_not_read_before_is_not_new() {
        let found = between("cpu0 none", "cpu0 none\ncpu5 POWER");
        assert_eq!(of(&found, Cause::Power).set_before, "5");
        let throttle = Throttle::begin(&machine("cpu0 none"), false).unwrap().unwrap();
        let gone = throttle.end(&Recorded::default()).report(&Counts::new());
        assert_eq!((gone.cpus, gone.limited.len(), gone.unread.len()), (0, 0, 1));
    }

    /// Without reasons there is nothing to compare; that is an error only if they are to be
    /// cleared.
    #[test]
    fn clearing_nothing_fails() {
        let none = Recorded::default();
        assert!(Throttle::begin(&none, false).unwrap().is_none());
        let error = Throttle::begin(&none, true).err().unwrap();
        assert!(error.why().contains("there is no file"), "{}", error.why());
        let denied = Recorded::parse(&format!("{DEBUGFS} denied\n"), "").unwrap();
        assert!(Throttle::begin(&denied, false).unwrap().is_none());
        let error = Throttle::begin(&denied, true).err().unwrap();
        assert!(error.why().contains("only root"), "{}", error.why());
    }

    fn domains(folder: &Path, files: [&str; 2]) -> Plr {
        let domains = files.map(|file| Domain {
            path: folder.join(file).to_string_lossy().into_owned(),
            all: Reasons::default(),
            cpus: BTreeMap::new(),
        });
        Plr { domains: domains.into(), unread: Vec::new() }
    }

    /// Every file is cleared; if one cannot be, it is said how many are, and a file that cannot be
    /// read keeps the others as they are.
    #[test]
    fn half_cleared_fails() {
        let folder = tempfile::tempdir().unwrap();
        let text = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
        for file in ["a", "b"] {
            std::fs::write(folder.path().join(file), "x").unwrap();
        }
        let unread = Plr { unread: vec!["c: no".into()], ..domains(folder.path(), ["a", "b"]) };
        assert_eq!(clear_all(&unread).err().unwrap().why(), "c: no");
        assert_eq!(text("a"), "x");
        let missing = clear_all(&domains(folder.path(), ["a", "missing"])).err().unwrap();
        assert!(missing.why().ends_with("; 1 of 2 files are cleared"), "{}", missing.why());
        assert!(clear_all(&domains(folder.path(), ["a", "b"])).is_ok());
        assert_eq!((text("a"), text("b")), ("0".into(), "0".into()));
    }
}
