// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why cores did not reach the clock that they asked for: performance limit reasons (PLR).
//!
//! Granite Rapids and later have no counters of licence levels ([`crate::license`]). They keep
//! flags instead, which the driver intel_plr_tpmi shows as text, one file per power domain:
//!
//! ```text
//! /sys/kernel/debug/tpmi-0000:00:03.1/plr/domain0/status
//!     cpus FREQUENCY POWER                       the domain: coarse reasons only
//!     cpu0 FREQUENCY FREQUENCY_CDYN2             a CPU: coarse and fine reasons
//!     cpu1 none
//! ```
//!
//! A flag stays set until 0 is written to the file, which clears the flags of all CPUs in it, for
//! everyone who reads them. So a reason says *that*, not *when* or for how long: only one that is
//! new between two readings belongs to the time between them.
//!
//! **Which reason is a licence.** Intel says of FREQUENCY_CDYNn that the clock was limited by "TRL
//! index n": CPUs have six tables of turbo limits, and n is the number of the table. Which code has
//! which table is not documented. CDYN1 and up are taken for classes of code above scalar code, and
//! CDYN0 for the limit that scalar code has too. That is inferred from the order of the tables, and
//! from a published reading of a Xeon 6986P-C under AES and AVX load, with CDYN1 and CDYN2.
//!
//! Sources: Linux, drivers/platform/x86/intel/plr_tpmi.c (commit 008bec8ffe6e); Intel, "Perf Limit
//! Reasons TPMI Register Interface" and "SST TPMI Interface", in the repository
//! intel/tpmi_power_management (commit a49fe45aac93); the reading: README of the tool plr-tpmi. Not
//! tried on hardware.
//!
//! **Limits.** Flags belong to a core, or to a module of E-cores: all its CPUs show the same ones.
//! Only root can read debugfs, and in lockdown not even root. What the driver shows of a CPU that
//! is offline is not relied on.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Result as IoResult, Write};
use std::path::Path;

use crate::Source;
use crate::cpu::{Cpu, Vendor};

/// Where the kernel mounts debugfs.
pub const DEBUGFS: &str = "/sys/kernel/debug";
/// Models of family 6 that should have reasons: Granite Rapids, Granite Rapids-D, Sierra Forest,
/// Clearwater Forest (Linux, arch/x86/include/asm/intel-family.h).
const MODELS: [u32; 4] = [173, 174, 175, 221];
/// What a set of CPUs holds: machines with more are refused before.
const CPUS_MAX: usize = cpumodel::MAX_CPUS;
/// A register has 64 flags.
const REASONS_MAX: usize = 64;
/// The longest name of the driver has 27 characters.
const NAME_MAX: usize = 40;

/// What limits a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The class of code: what licence levels are on older CPUs.
    License,
    /// A limit that holds for scalar code, too: turbo limits, a requested P-state.
    Frequency,
    /// Power, or current.
    Power,
    /// Temperature, or a signal of the board that stands for it (PROCHOT).
    Heat,
    /// Anything else.
    Other,
}

impl Cause {
    /// Of a reason by its name; names that are not known yet go by their first word.
    pub fn of(reason: &str) -> Self {
        if let Some(class) = reason.strip_prefix("FREQUENCY_CDYN") {
            return if class == "0" { Cause::Frequency } else { Cause::License };
        }
        match reason.split('_').next().unwrap_or_default() {
            "FREQUENCY" => Cause::Frequency,
            "POWER" | "CURRENT" => Cause::Power,
            // PLATFORM is a signal of the board: PROCHOT, or a hot voltage regulator
            "THERMAL" | "PLATFORM" => Cause::Heat,
            _ => Cause::Other,
        }
    }
}

/// Reasons that are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reasons(BTreeSet<String>);

impl Reasons {
    fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let words: Vec<&str> = words.take(REASONS_MAX + 1).collect();
        match words.as_slice() {
            [] => Err("no reason, and not \"none\" either".into()),
            ["none"] => Ok(Reasons::default()),
            words if words.len() > REASONS_MAX => Err(format!("more than {REASONS_MAX} reasons")),
            words => words.iter().copied().map(name).collect::<Result<_, _>>().map(Reasons),
        }
    }

    /// Nothing limits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are not in `before`.
    pub fn since(&self, before: &Reasons) -> Reasons {
        Reasons(self.0.difference(&before.0).cloned().collect())
    }

    /// The names, without a coarse one ("POWER") where a fine one ("POWER_FAST_RAPL") says more.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let has_finer = |name: &str| {
            let mut others = self.0.iter();
            others.any(|other| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')))
        };
        self.0.iter().map(String::as_str).filter(move |name| !has_finer(name))
    }

    /// What limits.
    pub fn causes(&self) -> BTreeSet<Cause> {
        self.names().map(Cause::of).collect()
    }
}

/// A name as the driver prints them, those of later drivers too.
fn name(word: &str) -> Result<String, String> {
    let is_usual = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || "_()".contains(c);
    match word.len() <= NAME_MAX && word.chars().all(is_usual) {
        true => Ok(word.to_owned()),
        false => {
            let shown: String = word.chars().take(NAME_MAX).collect();
            Err(format!("{shown:?} is not the name of a reason"))
        }
    }
}

/// The file of a power domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its path.
    pub path: String,
    /// Of the domain itself.
    pub all: Reasons,
    /// By CPU.
    pub cpus: BTreeMap<u32, Reasons>,
}

impl Domain {
    fn parse(path: &str, text: &str) -> Result<Self, String> {
        let mut found =
            Domain { path: path.into(), all: Reasons::default(), cpus: BTreeMap::new() };
        if !text.ends_with('\n') {
            return Err("it ends within a line".into());
        }
        for (index, line) in text.lines().enumerate() {
            let bad = |why: String| format!("line {}: {why}", index + 1);
            if index > CPUS_MAX {
                return Err(bad(format!("more than {CPUS_MAX} CPUs")));
            }
            let mut words = line.split_ascii_whitespace().peekable();
            let head = words.next().unwrap_or_default();
            let reasons = match (index, words.peek()) {
                // as the driver prints a domain in which only flags above its first 32 are set
                (0, None) => Reasons::default(),
                _ => Reasons::parse(words).map_err(bad)?,
            };
            match (index, head.strip_prefix("cpu")) {
                (0, Some("s")) => found.all = reasons,
                (1.., Some(number)) => {
                    let cpu = number.parse().ok().filter(|cpu| (*cpu as usize) < CPUS_MAX);
                    let is_new = cpu.map(|cpu: u32| found.cpus.insert(cpu, reasons).is_none());
                    match is_new {
                        Some(true) => {}
                        Some(false) => return Err(bad("a CPU that was there already".into())),
                        None => return Err(bad("it begins with no CPU".into())),
                    }
                }
                _ => return Err(bad("it begins with neither \"cpus\" nor a CPU".into())),
            }
        }
        Ok(found)
    }
}

/// Whether this CPU is known to keep reasons, so that they can be missed.
pub fn is_expected(cpu: &Cpu) -> bool {
    cpu.vendor == Vendor::Intel && cpu.family == 6 && MODELS.contains(&cpu.model)
}

/// Why there is nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// No driver shows reasons, or debugfs is not mounted.
    Missing,
    /// This user may not read debugfs.
    Denied,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Absent::Missing => "there is no file /sys/kernel/debug/tpmi-*/plr/domain*/status",
            Absent::Denied => "only root may read /sys/kernel/debug",
        })
    }
}

/// The reasons of a machine at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plr {
    /// The files that could be read.
    pub domains: Vec<Domain>,
    /// The others, each with the reason.
    pub unread: Vec<String>,
}

impl Plr {
    /// Reads all domains of all packages. The driver asks each core, for a millisecond at most.
    pub fn read(source: &dyn Source) -> Result<Self, Absent> {
        let mut found = Plr::default();
        let is_denied = |kind: ErrorKind| kind == ErrorKind::PermissionDenied;
        let devices = source.list_from(DEBUGFS, "tpmi-").map_err(|error| {
            if is_denied(error.kind()) { Absent::Denied } else { Absent::Missing }
        })?;
        for device in devices {
            let plr = format!("{DEBUGFS}/{device}/plr");
            for domain in source.list_from(&plr, "domain").unwrap_or_default() {
                let path = format!("{plr}/{domain}/status");
                let text = source.read(&path).map_err(|error| error.to_string());
                match text.and_then(|text| Domain::parse(&path, &text)) {
                    Ok(domain) => found.domains.push(domain),
                    Err(why) => found.unread.push(format!("{path}: {why}")),
                }
            }
        }
        match found.domains.is_empty() && found.unread.is_empty() {
            true => Err(Absent::Missing),
            false => Ok(found),
        }
    }

    /// Reasons by CPU.
    pub fn cpus(&self) -> BTreeMap<u32, Reasons> {
        let mut all: BTreeMap<u32, Reasons> = BTreeMap::new();
        for (cpu, reasons) in self.domains.iter().flat_map(|domain| &domain.cpus) {
            all.entry(*cpu).or_default().0.extend(reasons.0.iter().cloned());
        }
        all
    }

    /// CPUs by what limits them, with the names of the reasons.
    pub fn causes(cpus: &BTreeMap<u32, Reasons>) -> BTreeMap<Cause, (Vec<u32>, BTreeSet<String>)> {
        let mut causes: BTreeMap<Cause, (Vec<u32>, BTreeSet<String>)> = BTreeMap::new();
        for (cpu, reasons) in cpus {
            for name in reasons.names() {
                let (cpus, names) = causes.entry(Cause::of(name)).or_default();
                if cpus.last() != Some(cpu) {
                    cpus.push(*cpu);
                }
                names.insert(name.to_owned());
            }
        }
        causes
    }
}

/// Clears the reasons of a domain, for all who read them: writes 0 to its file. Root only.
pub fn clear(file: &Path) -> IoResult<()> {
    OpenOptions::new().write(true).open(file)?.write_all(b"0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Live, Recorded, record};

    const ONE: &str = "/sys/kernel/debug/tpmi-0000:00:03.1/plr/domain0/status";
    const TWO: &str = "/sys/kernel/debug/tpmi-0000:80:03.1/plr/domain2/status";

    fn machine(files: &[(&str, &str)]) -> Recorded {
        let lines = files.iter().map(|(path, text)| {
            let text: String = text.lines().map(|line| format!("\t{line}\n")).collect();
            format!("{path}:\n{text}")
        });
        Recorded::parse(&lines.collect::<String>(), "").unwrap()
    }

    fn refusal(text: &str) -> String {
        let text = format!("cpus none\n{text}\n");
        Domain::parse("/d", &text).unwrap_err()
    }

    /// Two packages with two domains in all; each CPU is limited by what its line says, and a
    /// coarse reason counts only where no fine one does.
    #[test]
    fn packages_and_domains_are_read() {
        let found = Plr::read(&machine(&[
            (ONE, "cpus FREQUENCY POWER\ncpu0 FREQUENCY FREQUENCY_CDYN2\ncpu1 none"),
            (TWO, "cpus POWER\ncpu64 POWER FREQUENCY FREQUENCY_CDYN0\ncpu65 POWER POWER_FAST_RAPL"),
        ]));
        let found = found.unwrap();
        assert_eq!((found.domains.len(), found.unread.len()), (2, 0));
        let causes = Plr::causes(&found.cpus());
        let cpus = |cause| causes.get(&cause).map(|found| found.0.clone()).unwrap_or_default();
        assert_eq!(cpus(Cause::License), [0]);
        assert_eq!(cpus(Cause::Frequency), [64]);
        assert_eq!(cpus(Cause::Power), [64, 65]);
        let names: Vec<&String> = causes[&Cause::Power].1.iter().collect();
        assert_eq!(names, ["POWER", "POWER_FAST_RAPL"]);
    }

    /// Every name of the driver has its cause, and so have names that it has no word for.
    #[test]
    fn reasons_have_causes() {
        let of = |names: &[&str]| names.iter().map(|name| Cause::of(name)).collect::<BTreeSet<_>>();
        let only = |cause| BTreeSet::from([cause]);
        let license = ["FREQUENCY_CDYN1", "FREQUENCY_CDYN5", "FREQUENCY_CDYN12"];
        assert_eq!(of(&license), only(Cause::License));
        let frequency = ["FREQUENCY", "FREQUENCY_CDYN0", "FREQUENCY_FCT", "FREQUENCY_PCS_TRL"];
        assert_eq!(of(&frequency), only(Cause::Frequency));
        let power = ["POWER", "CURRENT", "CURRENT_MTPMAX", "POWER_PLATFORM_PL2_PCS"];
        assert_eq!(of(&power), only(Cause::Power));
        let heat = ["THERMAL", "THERMAL_PER_CORE", "PLATFORM", "PLATFORM_PROCHOT"];
        assert_eq!(of(&heat), only(Cause::Heat));
        let other = ["MCP", "RAS", "MISC_PCS_PSTATE", "QOS", "DFC_UFS", "UNKNOWN(22)"];
        assert_eq!(of(&other), only(Cause::Other));
    }

    /// What was set before is not new.
    #[test]
    fn new_reasons_are_those_between_two_readings() {
        let read = |line: &str| {
            Domain::parse("/d", &format!("cpus none\n{line}\n")).unwrap().cpus.remove(&0).unwrap()
        };
        let before = read("cpu0 POWER POWER_FAST_RAPL");
        let after = read("cpu0 POWER POWER_FAST_RAPL FREQUENCY FREQUENCY_CDYN1");
        assert_eq!(after.since(&before).names().collect::<Vec<_>>(), ["FREQUENCY_CDYN1"]);
        assert!(before.since(&after).is_empty());
    }

    /// A file that means nothing is reported with its line, and the other ones still count.
    #[test]
    fn broken_files_fail() {
        let found = Plr::read(&machine(&[(ONE, "cpus none\ncpu0 none"), (TWO, "cpux none")]));
        let found = found.unwrap();
        assert_eq!(found.domains.len(), 1);
        assert!(
            found.unread[0].starts_with(TWO) && found.unread[0].contains("line 1"),
            "{found:?}"
        );
        for (text, why) in [
            ("cpu0", "no reason"),
            ("", "no reason"),
            ("cpu0 none POWER", "is not the name"),
            ("cpu0 \u{1b}[31mRED", "is not the name"),
            ("cpu-1 none", "no CPU"),
            ("cpu99999999999999999999 none", "no CPU"),
            ("cpu1024 none", "no CPU"),
            ("cpu none", "no CPU"),
            ("cpus none", "no CPU"),
            ("core0 none", "neither"),
            ("cpu0 none\ncpu0 POWER", "already"),
        ] {
            assert!(refusal(text).contains(why), "{text:?}: {}", refusal(text));
        }
        assert!(Domain::parse("/d", "cpus none\ncpu0 FREQUENCY_CD").unwrap_err().contains("ends"));
        assert!(Domain::parse("/d", "").is_err() && Domain::parse("/d", "\n").is_err());
        assert!(Domain::parse("/d", "cpus\ncpu0 none\n").unwrap().all.is_empty());
    }

    /// Neither long lines nor many of them take more than what a machine can have.
    #[test]
    fn endless_files_fail() {
        assert!(refusal(&format!("cpu0 {}", "A ".repeat(100_000))).contains("more than 64"));
        let long = refusal(&format!("cpu0 {}", "A".repeat(100_000)));
        assert!(long.len() < 100, "{long}");
        let many: String = (0..CPUS_MAX).map(|cpu| format!("cpu{cpu} none\n")).collect();
        assert_eq!(
            Domain::parse("/d", &format!("cpus none\n{many}")).unwrap().cpus.len(),
            CPUS_MAX
        );
        let more = refusal(&format!("{many}cpu0 none"));
        assert!(more.contains("more than 1024 CPUs"), "{more}");
    }

    /// A user who may not look is not taken for a machine without the files, in a recording too.
    #[test]
    fn missing_and_denied_differ() {
        let nothing = Recorded::parse("/sys/kernel/debug/sched exists\n", "").unwrap();
        assert_eq!(Plr::read(&nothing), Err(Absent::Missing));
        let no_domain = "/sys/kernel/debug/tpmi-0000:00:03.1/mem_dump exists\n";
        assert_eq!(Plr::read(&Recorded::parse(no_domain, "").unwrap()), Err(Absent::Missing));
        let denied = Recorded::parse("/sys/kernel/debug denied\n", "").unwrap();
        let copy = record(&denied, |source| {
            assert_eq!(Plr::read(source), Err(Absent::Denied));
        });
        assert_eq!(copy, denied);
        let half = machine(&[(ONE, "cpus none")]);
        assert_eq!(Plr::read(&half).unwrap().cpus().len(), 0);
    }

    /// A recording has the reasons, and nothing else of debugfs.
    #[test]
    fn recordings_hold_reasons_only() {
        let text = format!("{ONE}:\n\tcpus POWER\n\tcpu0 POWER\n");
        let all = format!("{text}/sys/kernel/debug/sched/features = A B\n");
        let copy = record(&Recorded::parse(&all, "").unwrap(), |source| {
            assert!(Plr::read(source).is_ok());
        });
        assert_eq!(copy, Recorded::parse(&text, "").unwrap());
        // this machine answers the same from its recording, whatever it has
        let mut live = None;
        let copy = record(&Live, |source| live = Some(Plr::read(source)));
        assert_eq!(Plr::read(&copy).err(), live.unwrap().err());
    }

    /// Clearing writes a 0, and makes no file where there is none.
    #[test]
    fn clearing_writes_zero() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("status");
        assert!(clear(&file).is_err() && !file.exists());
        std::fs::write(&file, "x").unwrap();
        clear(&file).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "0");
    }
}
