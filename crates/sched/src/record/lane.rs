// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a running scheduler of ours knows: the types of the tasks, the classes of the CPUs. It is
//! not queried: the recorder finds the scheduler's program in the kernel, and reads the maps that
//! it uses.

use std::ffi::OsStr;
use std::mem::offset_of;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use crate::bpf::types;

/// The callback of bpf/main.bpf.c by which the scheduler is known, and its maps, as the kernel cuts
/// them to 15 characters.
const PROGRAM: &str = "tl_running";
const TASKS: &str = "tasks";
const BSS: &str = ".bss";

/// The scheduler's maps.
pub(super) struct Lane {
    /// Its state of each task.
    pub tasks: MapHandle,
    /// The classes of the CPUs.
    pub classes: Classes,
}

impl Lane {
    /// The scheduler that runs, if it is ours, of this version.
    pub(super) fn find() -> Option<Self> {
        let options = ProgInfoQueryOptions::default().include_map_ids(true);
        let mut programs = ProgInfoIter::with_query_opts(options);
        let program = programs.find(|program| program.name == OsStr::new(PROGRAM))?;
        let maps: Vec<MapHandle> =
            program.map_ids.iter().filter_map(|id| MapHandle::from_map_id(*id).ok()).collect();
        let (tasks, others): (Vec<_>, Vec<_>) = maps
            .into_iter()
            .partition(|map| map.map_type() == MapType::TaskStorage && map.name() == TASKS);
        let ends_in_bss =
            |map: &MapHandle| map.name().to_str().is_some_and(|name| name.ends_with(BSS));
        let bss = others.into_iter().find(ends_in_bss)?;
        // Another version's fields lie elsewhere.
        let ours = bss.value_size() as usize == size_of::<types::bss>();
        let tasks = tasks.into_iter().next()?;
        ours.then_some(Lane { tasks, classes: Classes { bss, told: Vec::new() } })
    }
}

/// Watches the classes.
pub(super) struct Classes {
    bss: MapHandle,
    /// What was recorded last, by CPU.
    told: Vec<u8>,
}

impl Classes {
    /// CPUs whose class has changed since the last call, with their class; at the first call, all.
    pub(super) fn changed(&mut self, nr_cpus: usize) -> Vec<(usize, u8)> {
        let Ok(Some(bytes)) = self.bss.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else {
            return Vec::new();
        };
        let now: Vec<u8> = (0..nr_cpus).filter_map(|cpu| class_of(&bytes, cpu)).collect();
        let before = std::mem::replace(&mut self.told, now);
        let is_new = |&(cpu, class): &(usize, u8)| before.get(cpu) != Some(&class);
        self.told.iter().copied().enumerate().filter(is_new).collect()
    }
}

fn class_of(bss: &[u8], cpu: usize) -> Option<u8> {
    let at = offset_of!(types::bss, cpus)
        + cpu * size_of::<types::tl_cpu>()
        + offset_of!(types::tl_cpu, class);
    let class = u32::from_ne_bytes(bss.get(at..at + 4)?.try_into().ok()?);
    Some(class as u8)
}
