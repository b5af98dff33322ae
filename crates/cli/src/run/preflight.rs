// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses a run that cannot work, before anything is changed.
//!
//! First what the user can mend at once (settings that do not fit the machine, marks that are not
//! there; exit code 2), then what the machine, the kernel or the user's rights do not allow (77).

use hw::Facts;
use machine::CpuSet;
use report::problem::Problem;
use report::text::wrap;
use sched::config::{Components, Config, Mode, WideCpus};
use sched::marks::{Emulation, ResolvedMark, resolve};

use crate::failure::Failure;
use crate::obstacles::{rights_obstacle, scx_obstacle, trap_obstacle};

/// What a run would do.
#[derive(Debug)]
pub(super) struct Plan {
    /// `scx` or `affinity`.
    pub mode: Mode,
    /// The wide CPUs at the start; `None` if the load decides.
    wide_cpus: Option<CpuSet>,
    online: CpuSet,
    marks: Vec<ResolvedMark>,
    /// What the user should know although it is no error.
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan as text of at most `width` columns.
    pub(super) fn text(&self, width: usize) -> String {
        let mut text = wrap("mode         ", &self.mode.to_string(), width);
        let wide = match &self.wide_cpus {
            None if self.mode == Mode::Affinity => {
                "auto: one core, since affinity mode measures no demand".to_string()
            }
            None => "auto: as many whole cores as the load needs".to_string(),
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
        for note in &self.notes {
            text += &wrap("note         ", note, width);
        }
        text
    }
}

fn describe(mark: &ResolvedMark) -> String {
    let cost = if mark.single_step { ", single-stepped" } else { "" };
    let name = mark.symbol.as_deref().unwrap_or("function");
    format!(
        "{}: {name}@{} at +{:#x}, on {}{cost}",
        mark.path.display(),
        mark.level,
        mark.offset,
        mark.instruction
    )
}

/// The plan for `config` on this machine, or why there is none.
pub(super) fn check(config: &Config, facts: &Facts) -> Result<Plan, Failure> {
    let wide_cpus = wide_cpus(&config.wide_cpus, facts).map_err(Failure::failed)?;
    let marks = resolve_marks(config, facts)?;
    if let Some(obstacle) = rights_obstacle(facts) {
        return Err(obstacle.into_failure());
    }
    let mut notes = Vec::new();
    let mode = choose_mode(config.mode, facts, &mut notes)?;
    if mode == Mode::Affinity && !config.marks.is_empty() {
        return Err(Failure::unsupported(Problem::new(
            "cannot watch marked functions in affinity mode",
            "without the sched_ext scheduler only hints of the program itself are known",
            "boot a kernel with sched_ext, or build the program with libturbolane",
        )));
    }
    check_trap(config, mode, facts, &mut notes)?;
    if facts.topology.cores().len() == 1 {
        notes.push("this machine has one core, so wide and scalar code share it".into());
    }
    Ok(Plan { mode, wide_cpus, online: facts.topology.online(), marks, notes })
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
    if let Some(problem) = trap_obstacle(config.trap, facts) {
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

fn choose_mode(asked: Mode, facts: &Facts, notes: &mut Vec<String>) -> Result<Mode, Failure> {
    match (asked, scx_obstacle(facts)) {
        (Mode::Affinity, _) => Ok(Mode::Affinity),
        (_, None) => Ok(Mode::Scx),
        (Mode::Auto, Some(obstacle)) if obstacle.affinity_helps => {
            notes.push(format!("affinity mode, since {}", obstacle.problem.why));
            Ok(Mode::Affinity)
        }
        (_, Some(obstacle)) => Err(obstacle.into_failure()),
    }
}

/// The wide CPUs as whole cores; `None` for auto.
fn wide_cpus(choice: &WideCpus, facts: &Facts) -> Result<Option<CpuSet>, Problem> {
    let topology = &facts.topology;
    let online = topology.online();
    let what = format!("cannot use --wide-cpus {choice}");
    let wide = match choice {
        WideCpus::Auto => return Ok(None),
        WideCpus::Cores(cores) if *cores > topology.cores().len() => {
            let why = format!("this machine has {} cores", topology.cores().len());
            return Err(Problem::new(what, why, "choose fewer, or auto"));
        }
        WideCpus::Cores(cores) => topology.last_cores(*cores),
        WideCpus::List(cpus) => {
            let absent = *cpus - online;
            if !absent.is_empty() {
                let why = format!("{} not online; online are {online}", cpus_are(&absent));
                return Err(Problem::new(
                    what,
                    why,
                    "choose among the CPUs that are online, or auto",
                ));
            }
            topology.whole_cores(cpus)
        }
    };
    if wide == online {
        let grown = match choice {
            WideCpus::List(cpus) if *cpus != wide => ", their siblings included",
            _ => "",
        };
        let why = format!("these are all CPUs{grown}: no scalar CPU would be left");
        return Err(Problem::new(what, why, "leave at least one core to scalar code"));
    }
    Ok(Some(wide))
}

fn cpus_are(cpus: &CpuSet) -> String {
    if cpus.len() == 1 { format!("CPU {cpus} is") } else { format!("CPUs {cpus} are") }
}

fn resolve_marks(config: &Config, facts: &Facts) -> Result<Vec<ResolvedMark>, Failure> {
    let emulation = Emulation::of(&facts.kernel.release);
    let mut marks = Vec::new();
    for mark in &config.marks {
        let resolved = resolve(mark, emulation, config.force_single_step).map_err(|error| {
            let what = format!("cannot mark {mark}");
            Failure::failed(Problem::new(what, error.to_string(), error.next()))
        })?;
        marks.push(resolved);
    }
    Ok(marks)
}
