// SPDX-License-Identifier: MIT OR Apache-2.0
//! Affinity mode: core specialisation without a scheduler of ours, for kernels without sched_ext.
//!
//! Idea: hinted threads move themselves. The daemon says on the hint page which CPUs are wide, and
//! the library narrows a thread's affinity mask to wide CPUs at the begin of a section and to
//! scalar ones at its end (`turbolane`, src/affinity.rs). What is left to do here is to choose the
//! CPUs, to give out slots, and to see to it that all masks are what they were when this ends,
//! however it ends ([`keeper`]).
//!
//! Limits, against the scheduler: only hints are known, no marks and no traps; tasks that give no
//! hints run anywhere, on wide CPUs too; a move costs about 15 us; `--wide-cpus auto` stays at one
//! core, since nobody measures the demand.

mod keeper;

use std::io;
use std::path::Path;
use std::sync::Arc;

use machine::{CpuSet, Topology};
use turbolane::page::MODE_AFFINITY;

use crate::config::Config;
use crate::error::{Error, Result};
use crate::hints::{HintServer, Page};
use crate::layout;
use crate::scx_lane::{refuse_all_wide, topology};
use keeper::Keeper;

/// Affinity mode in force. Dropping it gives all threads their masks back; the hint server, which
/// takes in new ones, is dropped before.
pub struct AffinityLane {
    page: Arc<Page>,
    topology: Topology,
    config: Config,
    wide: CpuSet,
    _keeper: Keeper,
}

impl AffinityLane {
    /// Chooses the wide CPUs and serves hints.
    pub fn start(config: Config) -> Result<(AffinityLane, HintServer)> {
        Self::start_at(Path::new(turbolane::protocol::SOCKET), config)
    }

    fn start_at(socket: &Path, config: Config) -> Result<(AffinityLane, HintServer)> {
        let topology = topology()?;
        let classes = classes(&topology, &config)?;
        let failed = |what| move |e: io::Error| Error::failed(what, e);
        let (page, fd) = Page::memfd().map_err(failed("there is no memory for hints"))?;
        page.publish(MODE_AFFINITY, layout::nr_cpus(&topology) as u32);
        page.set_flags(&flags(&topology, &classes));
        let page = Arc::new(page);
        let keeper =
            Keeper::start(&page).map_err(failed("the keeper of masks cannot be started"))?;
        let recorder = keeper.recorder();
        let server =
            HintServer::start(socket, Arc::clone(&page), fd, Box::new(move |r| recorder.record(r)))
                .map_err(failed("hints cannot be served"))?;
        let wide = layout::wide_cpus(&classes);
        Ok((AffinityLane { page, topology, config, wide, _keeper: keeper }, server))
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
        let classes = classes(&self.topology, &config)?;
        self.page.set_flags(&flags(&self.topology, &classes));
        self.wide = layout::wide_cpus(&classes);
        self.config = config;
        Ok(())
    }
}

/// Class of every CPU under these settings, or why they cannot be met.
fn classes(topology: &Topology, config: &Config) -> Result<Vec<u8>> {
    if let Some(mark) = config.marks.first() {
        return Err(Error::Unsupported(format!(
            "{mark} cannot be watched: affinity mode only knows what hints tell. Leave the marks \
             out, or use --mode scx on a kernel with sched_ext."
        )));
    }
    let wide_cores = layout::wide_cores(topology, &config.wide_cpus)?;
    refuse_all_wide(topology, &config.wide_cpus)?;
    Ok(layout::classes(topology, &wide_cores, config.tiers))
}

/// The page's `cpu[]`. CPUs that are offline count as neither kind.
fn flags(topology: &Topology, classes: &[u8]) -> Vec<u8> {
    let online = topology.online();
    let is_scalar = |&(cpu, class): &(usize, &u8)| *class == 0 && online.contains(cpu);
    let nr_scalar = classes.iter().enumerate().filter(is_scalar).count();
    let flags = |class: &u8| policy::cpu_flags(u32::from(*class), nr_scalar as u32);
    classes.iter().map(flags).collect()
}

#[cfg(test)]
#[path = "affinity_tests.rs"]
mod tests;
