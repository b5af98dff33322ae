// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses a run that cannot work, before anything is changed.
//!
//! First what the user can fix at once (settings that do not fit the machine, marks that are not
//! there; exit code 2), then what the machine, the kernel or the user's rights do not allow (77).

use cpumodel::CpuSet;
use hw::Facts;
use report::problem::Problem;
use report::text::wrap;
use sched::config::{Components, Config, MinArg, Mode, Scores, WideCpus};
use sched::groups::Support;
use sched::marks::{Emulation, ResolvedMark, places};
use sched::obstacles::{self, choose_mode};
use sched::{affinity, layout, scores};

use crate::failure::Failure;

/// What a run would do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// `scx` or `affinity`.
    pub mode: Mode,
    /// The wide CPUs at the start; `None` if the load decides.
    wide_cpus: Option<CpuSet>,
    online: CpuSet,
    marks: Vec<ResolvedMark>,
    has_scores: bool,
    /// What the user should know although it is no error.
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan as text of at most `width` columns.
    pub(crate) fn text(&self, width: usize) -> String {
        let mut text = wrap("mode         ", &self.mode.to_string(), width);
        let wide = match &self.wide_cpus {
            None if self.mode == Mode::Affinity => "auto: one core".to_string(),
            None => "auto: as many cores as the load needs".to_string(),
            Some(wide) if wide.is_empty() => "none".to_string(),
            Some(wide) => wide.to_string(),
        };
        text += &wrap("wide CPUs    ", &wide, width);
        if let Some(wide) = self.wide_cpus {
            text += &wrap("scalar CPUs  ", &(self.online - wide).to_string(), width);
        }
        for mark in &self.marks {
            text += &wrap("mark         ", &describe(mark), width);
        }
        if self.has_scores {
            text += &wrap("scores       ", "from the counters of licence levels", width);
        }
        for note in &self.notes {
            text += &wrap("note         ", note, width);
        }
        text
    }
}

fn describe(mark: &ResolvedMark) -> String {
    let cost = if mark.single_step { ", single-stepped" } else { "" };
    let name = mark.symbol.as_deref().unwrap_or("function");
    let calls = mark.filter.map_or(String::new(), |MinArg { arg, least }| {
        format!(", calls with argument {arg} of at least {least}")
    });
    format!(
        "{}: {name}@{} at +{:#x}, on {}{cost}{calls}",
        mark.path.display(),
        mark.level,
        mark.offset,
        mark.instruction
    )
}

/// The plan for `config` on this machine, or why there is none.
pub(crate) fn check(config: &Config, facts: &Facts) -> Result<Plan, Failure> {
    let topology = &facts.topology;
    let wide_cores = layout::wide_cores(topology, &config.wide_cpus)?;
    check_scope(config)?;
    let is_auto = config.wide_cpus == WideCpus::Auto;
    let marks = resolve_marks(config, facts)?;
    let choice = choose_mode(config.mode, &facts.kernel, &facts.rights)?;
    let mut notes = Vec::new();
    if let Some(obstacle) = choice.instead_of_scx {
        notes.push(format!("affinity mode, since {}", obstacle.problem.why));
    }
    if choice.mode == Mode::Affinity {
        affinity::refuse_marks(config)?;
        affinity::refuse_scope(config)?;
        if is_auto {
            notes.push("wide CPUs stay at one core: affinity mode measures no demand".into());
        }
        if config.tiers {
            notes.push("wide CPUs are one class: affinity mode measures no demand".into());
        }
    }
    sched::goal::check(config, choice.mode).map_err(Failure::failed)?;
    check_trap(config, choice.mode, facts, &mut notes)?;
    let has_scores = check_scores(config, choice.mode, facts)?;
    if topology.cores().len() == 1 {
        notes.push("this machine has one core, so wide and scalar code share it".into());
    }
    Ok(Plan {
        mode: choice.mode,
        wide_cpus: (!is_auto).then(|| layout::cpus_of(topology, &wide_cores)),
        online: topology.online(),
        marks,
        has_scores,
        notes,
    })
}

/// A note if what has this affinity may run on no CPU that is wide at the start: its wide code
/// could not go there, for affinity masks are kept. `whose` names the affinity in the note.
pub(crate) fn affinity_note(
    config: &Config,
    facts: &Facts,
    whose: &str,
    affinity: CpuSet,
) -> Option<String> {
    let topology = &facts.topology;
    let cores = layout::wide_cores(topology, &config.wide_cpus).ok()?;
    let wide = layout::cpus_of(topology, &cores);
    let allowed = affinity & topology.online();
    let last = allowed.highest()?;
    if wide.is_empty() || allowed.intersects(&wide) {
        return None;
    }
    Some(format!(
        "{whose}, {allowed}, contains no wide CPU (at the start these are {wide}): its wide code \
         stays on CPUs where it slows other code; --wide-cpus cpu:{last} selects one that it may use"
    ))
}

/// Refuses a run that would drop settings of control groups which are in force on this machine; a
/// note if the user accepts that.
pub(crate) fn group_note(mode: Mode, ignore: bool) -> Result<Option<String>, Failure> {
    if mode != Mode::Scx {
        return Ok(None);
    }
    let Some(problem) = Support::of_this_kernel().lost(&hw::cgroups::in_force()) else {
        return Ok(None);
    };
    if ignore {
        return Ok(Some(format!("{}: {}", problem.what, problem.why)));
    }
    Err(Failure::unsupported(problem))
}

/// Refuses rules that contradict each other.
fn check_scope(config: &Config) -> Result<(), Failure> {
    sched::scope::check(&config.scope).map_err(|error| {
        Failure::failed(Problem::new("cannot run with these rules", error.why, error.next))
    })
}

/// Whether the trap module can do what is asked of it.
fn check_trap(
    config: &Config,
    mode: Mode,
    facts: &Facts,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    if config.trap == Components::None {
        return Ok(());
    }
    if mode == Mode::Affinity {
        return Err(Failure::unsupported(Problem::new(
            format!("cannot use --trap {} in affinity mode", config.trap),
            "only the sched_ext scheduler can move a task that trapped",
            "boot a kernel with sched_ext, or leave --trap out",
        )));
    }
    if let Some(problem) = obstacles::of_trap(config.trap, facts) {
        return Err(Failure::unsupported(problem));
    }
    if config.trap == Components::Avx && config.trap_level > 1 {
        notes.push("heavy AVX2 is level 1: --trap-level 1 makes it move".into());
    }
    if facts.cpu.hypervisor.is_some() {
        notes.push("in a virtual machine each change of XCR0 goes through the hypervisor".into());
    }
    Ok(())
}

/// Whether power scores will be fed.
fn check_scores(config: &Config, mode: Mode, facts: &Facts) -> Result<bool, Failure> {
    if mode == Mode::Affinity && config.scores == Scores::On {
        return Err(Failure::unsupported(Problem::new(
            "cannot use --scores on in affinity mode",
            "only the sched_ext scheduler keeps power scores",
            "boot a kernel with sched_ext, or leave --scores out",
        )));
    }
    Ok(mode == Mode::Scx && scores::are_fed(config, facts).map_err(Failure::unsupported)?)
}

fn resolve_marks(config: &Config, facts: &Facts) -> Result<Vec<ResolvedMark>, Failure> {
    let emulation = Emulation::of(&facts.kernel.release);
    places(&config.marks, emulation, config.force_single_step).map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hw::Recorded;

    use super::*;

    /// The note is given exactly when no allowed CPU is wide, and what it proposes is allowed.
    #[test]
    fn affinities_without_a_wide_cpu_are_noted() {
        let machines = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/machines");
        let recorded = Recorded::open(&Path::new(machines).join("skylake-sp")).unwrap();
        let facts = Facts::read(&recorded).unwrap();
        let note = |wide: &str, affinity: &str| {
            let config = Config { wide_cpus: wide.parse().unwrap(), ..Config::default() };
            affinity_note(&config, &facts, "its affinity", affinity.parse().unwrap())
        };
        let found = note("30-31", "0-15").unwrap();
        assert!(found.starts_with("its affinity, 0-15, contains no wide CPU"), "{found}");
        assert!(found.contains("--wide-cpus cpu:15 "), "{found}");
        assert_eq!(note("30-31", "0-15,62"), None);
        assert_eq!(note("0", "0"), None);
    }
}
