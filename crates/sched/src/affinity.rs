// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity mode: core specialisation without a scheduler of ours, for kernels without sched_ext.
//!
//! Idea: hinted threads move themselves. The daemon says on the hint board which CPUs are wide, and
//! the library narrows a thread's affinity mask to wide CPUs at the begin of a section and to
//! scalar ones at its end (`turbolane`, src/affinity.rs). What is left to do here is to choose the
//! CPUs, to give out slots, and to see to it that all masks are what they were when this ends,
//! however it ends ([`keeper`]).
//!
//! Limits, against the scheduler: only hints are known, no marks and no traps; tasks that give no
//! hints run anywhere, on wide CPUs too; a move costs about 15 us; `--wide-cpus auto` stays at one
//! core and `--tiers` at one class, since the demand is not measured.

mod handover;
mod keeper;
mod masks;

use std::io;
use std::path::Path;
use std::sync::Arc;

use cpumodel::{CpuSet, Topology};
use policy::Split;
use report::problem::Problem;
use turbolane_hint::page::MODE_AFFINITY;

use crate::clocks;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::hints::{Board, HintServer, cannot_serve};
use crate::layout;
use crate::scx_lane::topology;
use keeper::Keeper;

/// Affinity mode in force. Dropping it gives all threads their masks back; the hint server, which
/// takes in new ones, is dropped before.
pub struct AffinityLane {
    board: Arc<Board>,
    topology: Topology,
    config: Config,
    wide: CpuSet,
    _keeper: Keeper,
}

impl AffinityLane {
    /// Chooses the wide CPUs and serves hints.
    pub fn start(config: Config) -> Result<(AffinityLane, HintServer)> {
        Self::start_at(Path::new(turbolane_hint::protocol::SOCKET), config)
    }

    fn start_at(socket: &Path, config: Config) -> Result<(AffinityLane, HintServer)> {
        let topology = topology()?;
        let wide_cores = wide_cores(&topology, &config)?;
        let failed = |what| move |e: io::Error| Error::failed(what, e);
        let (board, fd) = Board::memfd().map_err(failed("cannot get memory for hints"))?;
        board.set_rest_below(config.rest_below_ns);
        board.set_lacks(clocks::published(&clocks::of(&hw::cpu::read_cpu(&hw::Live))));
        board.publish(MODE_AFFINITY, layout::nr_cpus(&topology) as u32);
        board.set_flags(&flags(&topology, &wide_cores));
        let board = Arc::new(board);
        let keeper = Keeper::start(&board).map_err(failed("cannot start the keeper of masks"))?;
        let (recorder, areas) = (keeper.recorder(), keeper.recorder());
        let new_areas = Box::new(move |numbers: &[u32]| {
            numbers.iter().map(|&number| areas.new_area(number)).collect()
        });
        let server =
            HintServer::start(socket, fd, new_areas, Box::new(move |r| recorder.record(r)))
                .map_err(cannot_serve)?;
        let wide = layout::cpus_of(&topology, &wide_cores);
        Ok((AffinityLane { board, topology, config, wide, _keeper: keeper }, server))
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Wide CPUs, and the other online ones.
    pub fn cpus(&self) -> (CpuSet, CpuSet) {
        (self.wide, self.topology.online() - self.wide)
    }

    /// Changes to these settings: all of them, or none and an error. Threads follow at their next
    /// section.
    pub fn reconfigure(&mut self, config: Config) -> Result<()> {
        let wide_cores = wide_cores(&self.topology, &config)?;
        self.board.set_flags(&flags(&self.topology, &wide_cores));
        self.board.set_rest_below(config.rest_below_ns);
        self.wide = layout::cpus_of(&self.topology, &wide_cores);
        self.config = config;
        Ok(())
    }
}

/// Refuses marks, which affinity mode cannot watch.
pub fn refuse_marks(config: &Config) -> Result<()> {
    if config.marks.is_empty() { Ok(()) } else { Err(cannot_mark()) }
}

/// Refuses rules for tasks, which only a scheduler can follow.
pub fn refuse_scope(config: &Config) -> Result<()> {
    if config.scope.is_empty() {
        return Ok(());
    }
    Err(Error::Unsupported(Problem::new(
        "cannot follow wide-tasks, scalar-tasks or leave-alone in affinity mode",
        "without the sched_ext scheduler only threads that give hints are moved",
        "boot a kernel with sched_ext, or leave these settings out",
    )))
}

/// Why there are no marks in affinity mode.
pub(crate) fn cannot_mark() -> Error {
    Error::Unsupported(Problem::new(
        "cannot watch marked functions in affinity mode",
        "without the sched_ext scheduler only hints of the program itself are known",
        "boot a kernel with sched_ext, or build the program with libturbolane",
    ))
}

/// The wide cores under these settings, or why they cannot be met.
fn wide_cores(topology: &Topology, config: &Config) -> Result<Vec<usize>> {
    refuse_marks(config)?;
    refuse_scope(config)?;
    layout::wide_cores(topology, &config.wide_cpus)
}

/// The page's `cpu[]`.
fn flags(topology: &Topology, wide_cores: &[usize]) -> Vec<u8> {
    let split = Split::one_class(wide_cores.len() as u32);
    let classes = layout::classes(topology, wide_cores, &split);
    let nr_scalar = classes.iter().filter(|class| **class == 0).count();
    let flags = |class: &u8| policy::cpu_flags(u32::from(*class), nr_scalar as u32);
    classes.iter().map(flags).collect()
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
