// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose clocks count: a CPU file that the user names, else the built-in file of this CPU.
//!
//! What is at stake at most is the drop of the worst level with all cores active. A CPU that no
//! file describes has unknown clocks, unless it is one without licence levels. So does one whose
//! file has no clock for any level above 0: a simulation assumes some and lists them, advice must
//! not.

use std::path::PathBuf;

use cpumodel::{CpuModel, Platform};
use hw::Facts;
use hw::cpu::Vendor;
use report::advise::{Cpu, LevelClock, Verdict, Worth};
use report::problem::Problem;

use crate::doctor::FALL_KHZ;
use crate::failure::Failure;
use crate::sim::input;

const ELSEWHERE: &str = "to judge another machine from here: turbolane advise --machine xeon-gold-6130 \
    (turbolane sim lists the CPUs there are)";
const MEASURE: &str = "measure it on a quiet machine: turbolane probe --machine-file here.toml, then turbolane advise \
    --machine here.toml";

/// The CPU that is judged.
pub(super) struct Judged {
    pub model: Option<CpuModel>,
    pub cpu: Cpu,
}

/// The CPU that `--machine` names, or this one.
pub(super) fn judged(machine: Option<&PathBuf>, facts: &Facts) -> Result<Judged, Failure> {
    let name = match facts.cpu.name.as_str() {
        "" => facts.cpu.vendor_id.as_str(),
        name => name,
    };
    let Some(machine) = machine else {
        let model = CpuModel::of_brand(&facts.cpu.name).filter(|_| has_levels(facts));
        return Ok(describe(name, model, "table", false));
    };
    let id = machine.to_string_lossy();
    let model = input::model(&id)?;
    if !model.knows_what_levels_cost() {
        return Err(Failure::failed(Problem::new(
            format!("cannot judge {}", model.name),
            "its file has no clock for any licence level above 0",
            "measure one: turbolane probe --machine-file here.toml on such a machine",
        )));
    }
    let (is_built_in, is_other) =
        (CpuModel::built_in(&id).is_some(), !model.name.starts_with(name));
    let basis = if is_built_in { "table" } else { "machine file" };
    Ok(describe(&model.name.clone(), Some(model), basis, is_other))
}

fn describe(name: &str, model: Option<CpuModel>, basis: &str, is_other: bool) -> Judged {
    let mut cpu = Cpu {
        name: name.to_owned(),
        basis: None,
        is_other,
        clocks: Vec::new(),
        held_ns: None,
        worst_drop_pct: None,
    };
    if let Some(model) = &model {
        let platform = Platform::new(model);
        let khz = |level| platform.clock_khz(level, platform.nr_cores);
        let clock = |license_level| LevelClock { license_level, clock_khz: khz(license_level) };
        let worst_khz = (0..platform.nr_levels() as u8).map(khz).min().unwrap_or(0);
        let drop_khz = khz(0).saturating_sub(worst_khz);
        cpu.basis = Some(basis.to_owned());
        cpu.clocks = (0..platform.nr_levels() as u8).map(clock).collect();
        cpu.held_ns = model.transition.relax_ns.as_ref().map(|time| time.value.0);
        cpu.worst_drop_pct = Some(100.0 * f64::from(drop_khz) / f64::from(khz(0).max(1)));
    }
    Judged { model, cpu }
}

fn has_levels(facts: &Facts) -> bool {
    facts.cpu.vendor == Vendor::Intel && facts.cpu.features.highest_license_level() > 0
}

/// What the CPU alone decides: that there is nothing to win on it, or that it is not known.
pub(super) fn verdict(judged: &Judged, facts: &Facts) -> Option<Verdict> {
    let Some(model) = &judged.model else {
        if facts.cpu.vendor != Vendor::Intel {
            let why = "no licence levels: only Intel CPUs lower their clock for the kind of code and keep it low";
            return Some(Verdict::new(Worth::No, why, ELSEWHERE));
        }
        if !has_levels(facts) {
            let why = "programs can use neither AVX2 nor AVX-512 here, so nothing raises the licence level";
            return Some(Verdict::new(Worth::No, why, ELSEWHERE));
        }
        let why = match facts.cpu.hypervisor {
            Some(_) => "a virtual machine that hides which CPU it runs on: no table has its clocks",
            None => "no table has the clocks of this CPU",
        };
        return Some(Verdict::new(Worth::Unknown, why, format!("{MEASURE}; {ELSEWHERE}")));
    };
    let platform = Platform::new(model);
    let khz = |level: u8| platform.clock_khz(level, platform.nr_cores);
    let falls = (1..platform.nr_levels() as u8)
        .any(|level| f64::from(khz(0).saturating_sub(khz(level))) >= FALL_KHZ);
    (!falls).then(|| {
        let why = "no level of this CPU has a lower clock, with all cores active";
        Verdict::new(Worth::No, why, ELSEWHERE)
    })
}

#[cfg(test)]
mod tests {
    use hw::Recorded;

    use super::*;

    fn facts(machine: &str) -> Facts {
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        Facts::read(&Recorded::open(&PathBuf::from(machines).join(machine)).unwrap()).unwrap()
    }

    fn worth(machine: &str, named: Option<&str>) -> Option<Worth> {
        let facts = facts(machine);
        let judged = judged(named.map(PathBuf::from).as_ref(), &facts).unwrap();
        verdict(&judged, &facts).map(|verdict| verdict.worth)
    }

    /// AMD has nothing to win; a hidden CPU is not known; with a named CPU the load decides.
    #[test]
    fn the_cpu_decides_where_it_can() {
        assert_eq!(worth("epyc-genoa", None), Some(Worth::No));
        assert_eq!(worth("sapphire-rapids-vm", None), Some(Worth::Unknown));
        assert_eq!(worth("epyc-genoa", Some("xeon-gold-6130")), None);
    }

    /// A CPU whose levels all run at one clock has nothing to win, whoever names it.
    #[test]
    fn levels_without_a_drop_win_nothing() {
        let mut model = CpuModel::built_in("xeon-gold-6130").unwrap().unwrap();
        model.levels.truncate(1);
        let judged = describe("flat", Some(model), "table", true);
        let found = verdict(&judged, &facts("epyc-genoa")).unwrap();
        assert_eq!(found.worth, Worth::No);
        assert_eq!(judged.cpu.worst_drop_pct, Some(0.0));
    }

    /// The stake is the worst level's: 2.8 to 1.9 GHz (DIM 2 Table 1).
    #[test]
    fn the_worst_level_is_at_stake() {
        let judged = judged(Some(&"xeon-gold-6130".into()), &facts("epyc-genoa")).unwrap();
        assert!((judged.cpu.worst_drop_pct.unwrap() - 32.14).abs() < 0.01, "{:?}", judged.cpu);
        assert_eq!(judged.cpu.clocks.len(), 3);
    }
}
