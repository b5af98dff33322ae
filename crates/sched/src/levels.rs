// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counters of licence levels, which `bpf/levels.bpf.h` reads at each switch: opened here, one
//! group for each CPU, and put into its map.
//!
//! What keeps them from being opened (no such counters, no PMU, no right) is said; the
//! caller decides what it means.

use std::fs::File;
use std::os::fd::AsRawFd;

use hw::levels::{LEVELS, LevelCounters, why_not};
use libbpf_rs::{MapCore, MapFlags, MapMut, OpenMapMut};

use crate::error::{Error, Result};

/// The counters of the CPUs that are online.
pub(crate) struct Opened(Vec<(usize, [File; LEVELS])>);

/// Opens them, or says why not.
pub(crate) fn open(nr_cpus: usize) -> std::result::Result<Opened, String> {
    LevelCounters::of_this_machine(&hw::Live)?;
    let mut opened = Vec::new();
    for cpu in 0..nr_cpus {
        match hw::levels::open(cpu as u32) {
            Ok(counters) => opened.push((cpu, counters)),
            // It is offline, unless none is there at all.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) && !opened.is_empty() => {}
            Err(error) => return Err(why_not(&error)),
        }
    }
    Ok(Opened(opened))
}

/// Gives the map its size, before it is made.
pub(crate) fn make_room(map: &mut OpenMapMut<'_>, nr_cpus: usize) -> Result<()> {
    map.set_max_entries((nr_cpus * LEVELS) as u32)
        .map_err(|e| Error::failed("cannot prepare the map of licence counters", e))
}

/// Lets the programs read them. From then on the map holds them.
pub(crate) fn put(map: &MapMut<'_>, counters: Opened) -> Result<()> {
    for (cpu, counters) in counters.0 {
        for (level, counter) in counters.iter().enumerate() {
            let (at, fd) = ((cpu * LEVELS + level) as u32, counter.as_raw_fd());
            map.update(&at.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).map_err(|e| {
                Error::failed(format!("cannot read licence levels on CPU {cpu}"), format!("{e:#}"))
            })?;
        }
    }
    Ok(())
}
