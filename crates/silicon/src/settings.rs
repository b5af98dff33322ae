// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which machine: `CPU[,KEY=VALUE...]`, checked before anything boots.
//!
//! | key | meaning | without it |
//! |---|---|---|
//! | `others` | cores of the package that the guest does not have and that are always active | all others |
//! | `boosted` | 1: the hardware has the boosted P-states, 0: software; only where there are some | 0 |
//! | `seed` | what RDRAND and RDSEED give | 1 |
//!
//! CPU is a CPU file, whose licence levels set the clocks, or a P-state file,
//! where software does (`pstates.rs`).
//!
//! The guest's cores are a slice of one package. Its other cores are busy unless `others` says
//! less: the clocks of a loaded server are those where licences cost most, and its papers' figures
//! come from such (SFMA 4: 2.8, 2.4 and 1.9 GHz on a Gold 6130).

use cpumodel::{CpuModel, InsnClass, PSTATE_FILES, Platform, PstateModel, built_in_cpus};

use crate::pstates;

/// CPUs that the machine takes. Bochs takes 254; its firmware's tables and the local times of a
/// single host thread make more than this useless.
pub const MAX_CPUS: u32 = 64;

/// A machine, described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Name of the CPU file.
    pub cpu: String,
    /// Always active cores besides the guest's; all of the package's others if not given.
    pub others: Option<u32>,
    /// Whether the hardware has the boosted P-states, for a CPU whose P-states software sets.
    pub is_boosted_by_hardware: bool,
    /// Seed of the emulator's random numbers.
    pub seed: u32,
}

/// Why there is no such machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No CPU file of that name.
    #[error("no CPU is called \"{0}\"; there are: {1}")]
    UnknownCpu(String, String),
    /// Not `KEY=VALUE` with a key from the table.
    #[error(
        "\"{0}\" is no setting of the machine; there are others=CORES, boosted=0 or 1, and seed=NUMBER"
    )]
    UnknownKey(String),
    /// `boosted` for a CPU that has no boosted P-states of its own.
    #[error("boosted={0}: {1}")]
    Boosted(u32, String),
    /// More CPUs than can be emulated.
    #[error("{0} CPUs are more than the machine takes ({MAX_CPUS}); give fewer")]
    TooManyCpus(u32),
    /// The guest wants more cores than the package has.
    #[error("{cpus} CPUs with {threads} per core are {cores} cores; a {cpu} has {has}")]
    TooManyCores {
        /// CPUs wanted.
        cpus: u32,
        /// CPUs per core wanted.
        threads: u32,
        /// Cores wanted.
        cores: u32,
        /// The CPU file.
        cpu: String,
        /// Cores of its package.
        has: u32,
    },
    /// The CPU file's cores have fewer threads.
    #[error("{threads} CPUs per core: a {cpu} has {has}")]
    TooManyThreads {
        /// CPUs per core wanted.
        threads: u32,
        /// The CPU file.
        cpu: String,
        /// CPUs per core there.
        has: u32,
    },
    /// CPUs that do not fill their cores, or none.
    #[error("{cpus} CPUs do not make complete cores of {threads}")]
    Odd {
        /// CPUs wanted.
        cpus: u32,
        /// CPUs per core wanted.
        threads: u32,
    },
    /// `others` and the guest's cores exceed the package.
    #[error("others={others}: beside the guest's {cores} cores a {cpu} has {left}")]
    TooManyOthers {
        /// Other cores wanted.
        others: u32,
        /// The guest's cores.
        cores: u32,
        /// The CPU file.
        cpu: String,
        /// Cores that are left.
        left: u32,
    },
}

impl Settings {
    /// Reads `CPU[,KEY=VALUE...]`.
    ///
    /// # Errors
    /// When there is no such CPU or key, or a value is no number.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        let mut parts = text.split(',');
        let cpu = parts.next().unwrap_or_default().to_owned();
        let has_pstates = pstates_of(&cpu).is_some();
        if !has_pstates && !built_in_cpus().any(|(known, _)| known == cpu) {
            let pstates = PSTATE_FILES.iter().map(|(id, _)| *id);
            let pstates = pstates.filter(|id| pstates_of(id).is_some());
            let known: Vec<&str> = built_in_cpus().map(|(id, _)| id).chain(pstates).collect();
            return Err(SettingsError::UnknownCpu(cpu, known.join(", ")));
        }
        let mut settings = Settings { cpu, others: None, is_boosted_by_hardware: false, seed: 1 };
        for part in parts {
            let unknown = || SettingsError::UnknownKey(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let value: u32 = value.parse().map_err(|_| unknown())?;
            match key {
                "others" => settings.others = Some(value),
                "boosted" if !has_pstates => {
                    let why = format!("software sets no P-states of a {}", settings.cpu);
                    return Err(SettingsError::Boosted(value, why));
                }
                "boosted" if value > 1 => {
                    let why = "0 leaves them to software, 1 to the hardware".to_owned();
                    return Err(SettingsError::Boosted(value, why));
                }
                "boosted" => settings.is_boosted_by_hardware = value == 1,
                "seed" => settings.seed = value,
                _ => return Err(unknown()),
            }
        }
        Ok(settings)
    }

    /// The P-states that software sets; `None` for a CPU whose licence levels set the clocks.
    #[must_use]
    pub fn pstates(&self) -> Option<PstateModel> {
        pstates_of(&self.cpu)
    }

    /// The emulator's model of the processor: its vendor, its instructions. AMX is only where it
    /// has a level of its own: elsewhere the CPU file says nothing of it.
    #[must_use]
    pub fn processor(&self) -> &'static str {
        if self.pstates().is_some() {
            return "zambezi";
        }
        let platform = Platform::new(&self.levels());
        let level = |class| platform.level_of(class, platform.dense_per_cycle);
        match level(InsnClass::Amx) > level(InsnClass::Heavy512) {
            true => "sapphire_rapids",
            false => "corei7_skylake_x",
        }
    }

    /// The base clock.
    #[must_use]
    pub(crate) fn base_khz(&self) -> Option<u32> {
        match self.pstates() {
            Some(model) => u32::try_from(model.base_khz.value).ok(),
            None => Some(self.levels().levels.first()?.base.as_ref()?.value.0),
        }
    }

    fn levels(&self) -> CpuModel {
        CpuModel::built_in(&self.cpu)
            .expect("parse() looked it up")
            .expect("built-in CPU files are tested")
    }

    /// The CPU without gaps, and the number of always active cores besides the guest's.
    ///
    /// # Errors
    /// When the machine cannot have so many CPUs or cores.
    pub fn platform(&self, cpus: u32, threads: u32) -> Result<(Platform, u32), SettingsError> {
        if cpus > MAX_CPUS {
            return Err(SettingsError::TooManyCpus(cpus));
        }
        if cpus == 0 || threads == 0 || !cpus.is_multiple_of(threads) {
            return Err(SettingsError::Odd { cpus, threads });
        }
        let platform = match self.pstates() {
            Some(model) => pstates::platform(&model, threads, self.is_boosted_by_hardware),
            None => Platform::new(&self.levels()),
        };
        let cpu = self.cpu.clone();
        let (cores, has) = (cpus / threads, platform.nr_cores as u32);
        if threads > platform.threads_per_core as u32 {
            let has = platform.threads_per_core as u32;
            return Err(SettingsError::TooManyThreads { threads, cpu, has });
        }
        if cores > has {
            return Err(SettingsError::TooManyCores { cpus, threads, cores, cpu, has });
        }
        let left = has - cores;
        let others = self.others.unwrap_or(left);
        if others > left {
            return Err(SettingsError::TooManyOthers { others, cores, cpu, left });
        }
        Ok((platform, others))
    }
}

/// The machine of that name, if it is one whose P-states software sets core by core.
fn pstates_of(id: &str) -> Option<PstateModel> {
    let model = PstateModel::built_in(id)?.expect("built-in files are tested");
    (model.change.is_some() && model.table.is_some()).then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gives_a_machine() {
        let settings = Settings::parse("xeon-gold-6130,others=2,seed=7").unwrap();
        let want = Settings {
            cpu: "xeon-gold-6130".into(),
            others: Some(2),
            is_boosted_by_hardware: false,
            seed: 7,
        };
        assert_eq!(settings, want);
        let (platform, others) = settings.platform(4, 2).unwrap();
        assert_eq!((platform.nr_cores, others), (16, 2));
        let all = Settings::parse("xeon-gold-6130").unwrap();
        assert_eq!(all.platform(4, 1).unwrap().1, 12);
        let modules = Settings::parse("fx-8120,boosted=1").unwrap();
        assert_eq!(modules.platform(8, 2).unwrap().0.nr_cores, 4);
        assert_eq!(modules.platform(8, 1).unwrap().0.nr_cores, 8);
    }

    #[test]
    fn processors_have_what_the_file_has_clocks_for() {
        for (cpu, processor) in [
            ("xeon-gold-6130", "corei7_skylake_x"),
            ("xeon-6980p", "sapphire_rapids"),
            ("fx-8120", "zambezi"),
        ] {
            assert_eq!(Settings::parse(cpu).unwrap().processor(), processor);
        }
    }

    #[test]
    fn bad_input_fails() {
        for (text, cpus, threads, part) in [
            ("pentium", 1, 1, "there are: xeon-gold-6130, "),
            ("", 1, 1, "no CPU is called \"\""),
            ("xeon-gold-6130,cores=3", 1, 1, "no setting"),
            ("pentium", 1, 1, ", fx-8120"),
            ("core-i7-4770", 1, 1, "no CPU is called"),
            ("xeon-gold-6130,boosted=1", 1, 1, "sets no P-states of a xeon-gold-6130"),
            ("fx-8120,boosted=2", 1, 1, "1 to the hardware"),
            ("fx-8120", 10, 1, "10 cores; a fx-8120 has 8"),
            ("xeon-gold-6130,seed=x", 1, 1, "no setting"),
            ("xeon-gold-6130,", 1, 1, "no setting"),
            ("xeon-6980p", 65, 1, "more than the machine takes"),
            ("xeon-gold-6130", 17, 1, "17 cores; a xeon-gold-6130 has 16"),
            ("xeon-gold-6130", 3, 2, "complete cores"),
            ("xeon-gold-6130", 0, 1, "complete cores"),
            ("xeon-gold-6130", 4, 4, "has 2"),
            ("xeon-w-2104", 2, 2, "has 1"),
            ("xeon-gold-6130,others=13", 4, 1, "has 12"),
        ] {
            let failed = Settings::parse(text).and_then(|s| s.platform(cpus, threads).map(drop));
            let message = failed.unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
