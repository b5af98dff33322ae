// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server thread that stays on its CPU. It is there, or it was never started: starting it returns
//! an error if it may not run on that CPU.

use std::io;
use std::thread::JoinHandle;

use crate::sys::Affinity;

/// Starts a thread, on one CPU alone if one is named, and returns when it is there.
pub(crate) fn start(
    name: &str,
    cpu: Option<u32>,
    serve: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let no_such = || io::Error::new(io::ErrorKind::InvalidInput, "there can be no such CPU");
    let place = cpu.map(|cpu| Affinity::one(cpu).ok_or_else(no_such)).transpose()?;
    let (said, heard) = std::sync::mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
        let placed = place.map_or(Ok(()), |place| place.apply());
        let stays = placed.is_ok();
        // whoever started it may have gone: then no one wants to know
        let _ = said.send(placed);
        if stays {
            serve();
        }
    })?;
    heard.recv().map_err(io::Error::other)?.map(|()| thread)
}
