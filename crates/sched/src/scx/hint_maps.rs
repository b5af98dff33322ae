// SPDX-License-Identifier: MIT OR Apache-2.0
//! The memory that applications have mapped of a scheduler: its maps, and which thread a slot is.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_rs::libbpf_sys as sys;

use crate::hints::Area;

use super::call::test_run;

/// Assigns slots of the hint page to threads, from the hint server's thread.
pub struct SlotSetter(pub(super) OwnedFd);

impl SlotSetter {
    /// The slot `slot` is thread `tid`'s, of process `tgid` (initial PID namespace).
    pub fn set(&self, tid: u32, tgid: u32, slot: u32) -> io::Result<()> {
        let mut args = [0u8; 12];
        args[..4].copy_from_slice(&tid.to_ne_bytes());
        args[4..8].copy_from_slice(&tgid.to_ne_bytes());
        args[8..].copy_from_slice(&slot.to_ne_bytes());
        match test_run(self.0.as_fd(), &mut args)? {
            0 => Ok(()),
            err => Err(io::Error::from_raw_os_error(-err)),
        }
    }
}

/// What applications have mapped of a scheduler, or will.
pub struct HintMaps {
    /// Frozen.
    pub board: OwnedFd,
    /// A map of maps.
    pub(super) areas: OwnedFd,
}

impl HintMaps {
    /// The maps with these numbers, of a scheduler in another process.
    pub fn of_ids(board: u32, areas: u32) -> io::Result<Self> {
        Ok(HintMaps { board: map_of_id(board)?, areas: map_of_id(areas)? })
    }

    /// The numbers of board and areas, by which another process finds them.
    pub fn ids(&self) -> io::Result<[u32; 2]> {
        Ok([id_of_map(&self.board)?, id_of_map(&self.areas)?])
    }

    /// The area that has this number now.
    pub fn area(&self, number: u32) -> io::Result<Area> {
        let mut id = 0u32;
        // SAFETY: key and value are four bytes each, as the map has them: it gives the number of
        // the inner map.
        done(unsafe {
            let (key, value) = ((&raw const number).cast(), (&raw mut id).cast());
            sys::bpf_map_lookup_elem(self.areas.as_raw_fd(), key, value)
        })?;
        Area::from_fd(map_of_id(id)?)
    }

    /// New areas, which the scheduler finds by their numbers from then on. The kernel waits for
    /// programs that may see the old ones: once for all, from Linux 6.8 on.
    pub fn new_areas(&self, numbers: &[u32]) -> io::Result<Vec<Area>> {
        let fds = numbers.iter().map(|_| new_area()).collect::<io::Result<Vec<_>>>()?;
        let values: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        let mut count = numbers.len() as u32;
        // SAFETY: keys and values are four bytes each, as the map has them, and as many as the
        // count says.
        done(unsafe {
            let (keys, values) = (numbers.as_ptr().cast(), values.as_ptr().cast());
            let (map, no_opts) = (self.areas.as_raw_fd(), ptr::null());
            sys::bpf_map_update_batch(map, keys, values, &mut count, no_opts)
        })?;
        fds.into_iter().map(Area::from_fd).collect()
    }
}

/// A descriptor for the map with this number.
fn map_of_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: no memory of ours; a descriptor that comes back is new and ours.
    unsafe { Ok(OwnedFd::from_raw_fd(done(sys::bpf_map_get_fd_by_id(id))?)) }
}

fn id_of_map(map: &OwnedFd) -> io::Result<u32> {
    let mut info = sys::bpf_map_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the descriptor is a map's, and the kernel writes no more than `size` bytes.
    done(unsafe { sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info.id)
}

/// A map that an area is in.
fn new_area() -> io::Result<OwnedFd> {
    let opts = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as _,
        map_flags: sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let bytes = size_of::<turbolane_hint::page::Area>() as u32;
    // SAFETY: reads the name and the options; a descriptor that comes back is new and ours.
    unsafe {
        let (kind, name) = (sys::BPF_MAP_TYPE_ARRAY, c"hint_area".as_ptr());
        Ok(OwnedFd::from_raw_fd(done(sys::bpf_map_create(kind, name, 4, bytes, 1, &opts))?))
    }
}

/// Lets only programs write the map from now on.
pub(super) fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no memory of ours.
    done(unsafe { sys::bpf_map_freeze(map.as_raw_fd()) }).map(drop)
}

/// What libbpf has returned: a descriptor or nothing, or an error below 0.
fn done(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::from_raw_os_error(-returned)) } else { Ok(returned) }
}
