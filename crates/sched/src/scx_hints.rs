// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hints of a run in scx mode: the server gets its memory from the scheduler, and reports to it
//! which thread has which slot.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use report::take_over::GivenSlots;
use turbolane_hint::protocol::SOCKET;

use crate::error::{Error, Result};
use crate::hints::{Area, HintServer, OnRegister, cannot_serve};
use crate::scx::HintMaps;
use crate::scx_lane::ScxLane;

/// Serves hints for this scheduler; `given` is what another server has given out before.
pub(crate) fn serve_hints(lane: &ScxLane, given: Option<&GivenSlots>) -> Result<HintServer> {
    lane.publish()?;
    let (path, on_register) = (Path::new(SOCKET), on_register(lane)?);
    let (board, maps) = (lane.hint_maps()?.board, lane.hint_maps()?);
    let new_areas = Box::new(move |numbers: &[u32]| maps.new_areas(numbers));
    let server = match given {
        Some(given) => {
            let areas = areas_of(given, &lane.hint_maps()?)?;
            HintServer::go_on(path, board, new_areas, on_register, given, areas)
        }
        None => HintServer::start(path, board, new_areas, on_register),
    };
    server.map_err(cannot_serve)
}

/// The areas that were given out.
fn areas_of(given: &GivenSlots, maps: &HintMaps) -> Result<HashMap<u32, Area>> {
    let numbers = given.processes.iter().flat_map(|process| &process.areas);
    let areas = numbers.map(|&number| Ok((number, maps.area(number)?)));
    areas.collect::<io::Result<_>>().map_err(no_maps)
}

fn no_maps(error: io::Error) -> Error {
    Error::failed("cannot take over the memory for hints", error)
}

/// Reports each thread that gets a slot to the scheduler.
pub(crate) fn on_register(lane: &ScxLane) -> Result<OnRegister> {
    let slots = lane.slot_setter()?;
    Ok(Box::new(move |registration| {
        slots.set(registration.tid, registration.tgid, registration.slot)
    }))
}
