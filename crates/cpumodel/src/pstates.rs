// SPDX-License-Identifier: MIT OR Apache-2.0
//! P-states and C-states of a machine, and what it costs to change them: `data/pstates/*.toml`,
//! built in.
//!
//! The files of `data/cpus` describe licence levels; these describe machines that have none, or
//! whose licences do not matter, for models of frequency under software's control (TURBO). Every
//! number has its source next to it, and how sure it is.

use serde::Deserialize;

use crate::{DataError, Sureness};

/// Version of the files' format.
const SCHEMA: u32 = 1;
const EXAMPLE: &str = "compare with crates/cpumodel/data/pstates/fx-8120.toml";

/// Id and text of each built-in file.
pub const PSTATE_FILES: [(&str, &str); 2] = [
    ("fx-8120", include_str!("../data/pstates/fx-8120.toml")),
    ("core-i7-4770", include_str!("../data/pstates/core-i7-4770.toml")),
];

/// A number and where it is from.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The number, in the unit of the key.
    pub value: u64,
    /// Document and place.
    pub source: String,
    /// As in `data/cpus`: verified, derived, second-hand, recalled, assumed.
    pub sureness: String,
}

/// The P-states by number.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Clocks, fastest first; the base, the turbo and the slowest are among them.
    pub khz: Vec<u64>,
    /// Document and place.
    pub source: String,
    /// As in [`Figure::sureness`].
    pub sureness: String,
}

impl Table {
    /// Whether it falls from the first of these clocks over the second to the third.
    fn fits(&self, [turbo, base, slow]: [u64; 3]) -> bool {
        self.khz.first() == Some(&turbo)
            && self.khz.last() == Some(&slow)
            && self.khz.contains(&base)
            && self.khz.is_sorted_by(|fast, slow| fast > slow)
    }
}

/// What a change of the P-state by software costs, in cycles of the base frequency.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The system call.
    pub call_cycles: u64,
    /// The register write, which holds the core up.
    pub write_cycles: u64,
    /// Until the clock is there; the core runs on.
    pub transition_cycles: u64,
    /// Document and place.
    pub source: String,
}

/// The changes of a machine whose cores can be boosted one by one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Changes {
    /// A waiter slows down.
    pub base_to_slow: Change,
    /// A waiter becomes the owner.
    pub slow_to_turbo: Change,
    /// The owner has released.
    pub turbo_to_base: Change,
}

/// A C-state.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// Its name.
    pub name: String,
    /// From the wake-up to the first instruction.
    pub exit_ns: Figure,
    /// It is entered for sleeps that are at least so long.
    pub residency_ns: Figure,
}

/// What a core waits for that does not follow its clock.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// A load that every cache misses.
    pub load_ns: Figure,
    /// What it costs in addition if the TLB misses too.
    pub walk_ns: Figure,
}

/// Power by clock and voltage.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorePower {
    /// Modules of two cores, each with a voltage and a clock of its own.
    pub modules: Figure,
    /// Voltage at the slowest P-state, mV.
    pub slow_mv: Figure,
    /// Voltage at the base frequency, mV.
    pub base_mv: Figure,
    /// Voltage at turbo, mV.
    pub turbo_mv: Figure,
    /// All cores busy at the base frequency, mW.
    pub busy_mw: Figure,
    /// Of that: what does not follow clocks.
    pub package_mw: Figure,
    /// What a CPU does next to a busy sibling, in thousandths of what it does alone.
    pub shared_permille: Figure,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PstateModel {
    schema: u32,
    /// Id, as the file's name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Clock of a core that no one boosts or slows, while others are busy.
    pub base_khz: Figure,
    /// Clock of the owner of a lock while the others sleep, or spin slowly.
    pub turbo_khz: Figure,
    /// The slowest P-state.
    pub slow_khz: Figure,
    /// All P-states; `None` where no one asked.
    pub table: Option<Table>,
    /// Threads of the paper's experiment.
    pub threads: Figure,
    /// From a release to a spinning waiter that sees it.
    pub handover_cycles: Figure,
    /// To another core and back.
    pub migration_ns: Figure,
    /// From a release to a sleeping waiter that runs, on a core that does not sleep deeply.
    pub wake_ns: Figure,
    /// Software's changes; `None` where the whole package has one clock.
    pub change: Option<Changes>,
    /// C-states, shallow ones first.
    pub idle: Vec<Idle>,
    /// `None` where no one asked.
    pub memory: Option<Memory>,
    /// `None` where no one asked.
    pub power: Option<CorePower>,
}

impl PstateModel {
    /// The machine that a file's text describes.
    pub fn from_toml(text: &str) -> Result<PstateModel, DataError> {
        let model: PstateModel =
            toml::from_str(text).map_err(|error| DataError::from_toml(text, &error, EXAMPLE))?;
        let refuse = |what: String| Err(DataError::new(text, 0..0, what, EXAMPLE));
        if model.schema != SCHEMA {
            return refuse(format!("schema {} is not known", model.schema));
        }
        let [slow, base, turbo] =
            [&model.slow_khz, &model.base_khz, &model.turbo_khz].map(|figure| figure.value);
        if slow == 0 || slow >= base || base >= turbo {
            return refuse("the clocks do not rise from slow over base to turbo".into());
        }
        if model.table.as_ref().is_some_and(|table| !table.fits([turbo, base, slow])) {
            return refuse("the P-states do not fall from turbo over base to slow".into());
        }
        if !model.idle.is_sorted_by_key(|idle| idle.residency_ns.value) || model.idle.is_empty() {
            return refuse("list at least one C-state, shallow ones first".into());
        }
        if model.power.as_ref().is_some_and(|power| power.modules.value == 0) {
            return refuse("a machine has at least one module".into());
        }
        let of_table = model.table.iter().map(|table| &table.sureness);
        for sureness in model.figures().map(|figure| &figure.sureness).chain(of_table) {
            if !Sureness::ALL.iter().any(|(_, name)| name == sureness) {
                return refuse(format!("sureness \"{sureness}\" is not known"));
            }
        }
        Ok(model)
    }

    /// The built-in machine of that id; `None` if there is none. The error is a broken built-in
    /// file, which a test excludes.
    pub fn built_in(id: &str) -> Option<Result<PstateModel, DataError>> {
        let (_, text) = PSTATE_FILES.iter().find(|(known, _)| *known == id)?;
        Some(PstateModel::from_toml(text))
    }

    /// Power of a busy core at this clock, mW; `None` where no power is known. The square of the
    /// voltage times the clock; the voltage is on straight lines between the three that are known.
    pub fn core_mw(&self, khz: u64) -> Option<f64> {
        let power = self.power.as_ref()?;
        let cores_mw = power.busy_mw.value.saturating_sub(power.package_mw.value);
        let base_mw = cores_mw as f64 / (2 * power.modules.value) as f64;
        let volts_ratio = self.mv(power, khz) / power.base_mv.value as f64;
        Some(base_mw * volts_ratio * volts_ratio * khz as f64 / self.base_khz.value as f64)
    }

    /// The voltage at a clock.
    fn mv(&self, power: &CorePower, khz: u64) -> f64 {
        let base = (&self.base_khz, &power.base_mv);
        let other = match khz > self.base_khz.value {
            true => (&self.turbo_khz, &power.turbo_mv),
            false => (&self.slow_khz, &power.slow_mv),
        };
        let [(from_khz, from_mv), (to_khz, to_mv)] =
            [base, other].map(|(khz, mv)| (khz.value as f64, mv.value as f64));
        from_mv + (to_mv - from_mv) * (khz as f64 - from_khz) / (to_khz - from_khz)
    }

    fn figures(&self) -> impl Iterator<Item = &Figure> {
        let own = [
            &self.base_khz,
            &self.turbo_khz,
            &self.slow_khz,
            &self.threads,
            &self.handover_cycles,
            &self.migration_ns,
            &self.wake_ns,
        ];
        let idle = self.idle.iter().flat_map(|idle| [&idle.exit_ns, &idle.residency_ns]);
        let memory = self.memory.iter().flat_map(|memory| [&memory.load_ns, &memory.walk_ns]);
        let power = self.power.iter().flat_map(|power| {
            let volts = [&power.slow_mv, &power.base_mv, &power.turbo_mv];
            let watts = [&power.busy_mw, &power.package_mw];
            volts.into_iter().chain(watts).chain([&power.modules, &power.shared_permille])
        });
        own.into_iter().chain(idle).chain(memory).chain(power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_files_are_read() {
        for (id, text) in PSTATE_FILES {
            let model =
                PstateModel::from_toml(text).unwrap_or_else(|error| panic!("{id}: {error}"));
            assert_eq!(model.id, id);
        }
        assert!(PstateModel::built_in("fx-8120").unwrap().unwrap().change.is_some());
        assert!(PstateModel::built_in("fx-8121").is_none());
    }

    /// At the three known voltages and halfway between two of them.
    #[test]
    fn power_follows_voltage_and_clock() {
        let model = PstateModel::built_in("fx-8120").unwrap().unwrap();
        let near = |khz, want_mw: f64| {
            let mw = model.core_mw(khz).unwrap();
            assert!((mw / want_mw - 1.0).abs() < 1e-9, "{khz}: {mw}");
        };
        near(3_100_000, 12_500.0);
        near(4_000_000, 12_500.0 * (1.412_f64 / 1.25).powi(2) * 4.0 / 3.1);
        near(1_400_000, 12_500.0 * (0.9_f64 / 1.25).powi(2) * 1.4 / 3.1);
        near(2_250_000, 12_500.0 * (1.075_f64 / 1.25).powi(2) * 2.25 / 3.1);
        let intel = PstateModel::built_in("core-i7-4770").unwrap().unwrap();
        assert_eq!(intel.power.is_some(), intel.core_mw(1_000_000).is_some());
    }

    #[test]
    fn nonsense_is_refused_fails() {
        let good = PSTATE_FILES[0].1;
        let refused = |from: &str, to: &str| {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            PstateModel::from_toml(&text).unwrap_err().to_string()
        };
        assert!(refused("schema = 1", "schema = 2").contains("schema 2"));
        assert!(refused("value = 1_400_000", "value = 3_100_000").contains("do not rise"));
        assert!(refused("3_400_000, 3_100_000", "3_100_000, 3_400_000").contains("do not fall"));
        assert!(refused("\"verified\"", "\"certain\"").contains("\"certain\""));
        assert!(refused("call_cycles", "calls").contains("calls"));
        assert!(
            refused("residency_ns = { value = 0", "residency_ns = { value = 300_000")
                .contains("shallow")
        );
    }
}
