// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which machine: `CPU[,KEY=VALUE...]`, checked before anything boots.
//!
//! | key | meaning | without it |
//! |---|---|---|
//! | `others` | cores of the package that the guest does not have and that are always active | all others |
//! | `seed` | what RDRAND and RDSEED give | 1 |
//!
//! The guest's cores are a slice of one package. Its other cores are busy unless `others` says
//! less: the clocks of a loaded server are those where licences cost most, and its papers' figures
//! come from such (SFMA 4: 2.8, 2.4 and 1.9 GHz on a Gold 6130).

use machine::{CpuModel, Platform, built_in_cpus};

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
    #[error("\"{0}\" is no setting of the machine; there are others=CORES and seed=NUMBER")]
    UnknownKey(String),
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
        if !built_in_cpus().any(|(known, _)| known == cpu) {
            let known: Vec<&str> = built_in_cpus().map(|(id, _)| id).collect();
            return Err(SettingsError::UnknownCpu(cpu, known.join(", ")));
        }
        let mut settings = Settings { cpu, others: None, seed: 1 };
        for part in parts {
            let unknown = || SettingsError::UnknownKey(part.to_owned());
            let (key, value) = part.split_once('=').ok_or_else(unknown)?;
            let value: u32 = value.parse().map_err(|_| unknown())?;
            match key {
                "others" => settings.others = Some(value),
                "seed" => settings.seed = value,
                _ => return Err(unknown()),
            }
        }
        Ok(settings)
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
        let model = CpuModel::built_in(&self.cpu)
            .expect("parse() looked it up")
            .expect("built-in CPU files are tested");
        let platform = Platform::new(&model);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_gives_a_machine() {
        let settings = Settings::parse("xeon-gold-6130,others=2,seed=7").unwrap();
        assert_eq!(settings, Settings { cpu: "xeon-gold-6130".into(), others: Some(2), seed: 7 });
        let (platform, others) = settings.platform(4, 2).unwrap();
        assert_eq!((platform.nr_cores, others), (16, 2));
        let all = Settings::parse("xeon-gold-6130").unwrap();
        assert_eq!(all.platform(4, 1).unwrap().1, 12);
    }

    #[test]
    fn bad_input_fails() {
        for (text, cpus, threads, part) in [
            ("pentium", 1, 1, "there are: xeon-gold-6130, "),
            ("", 1, 1, "no CPU is called \"\""),
            ("xeon-gold-6130,cores=3", 1, 1, "no setting"),
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
