// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server thread that stays on its CPU. It is there, or it was never started: starting it returns
//! an error if it may not run on that CPU. A forked child has no such thread, and does not wait for
//! its end.

use std::io;
use std::thread::{JoinHandle, ThreadId};

use crate::sys::Affinity;

/// A thread of the process that started it.
#[derive(Debug)]
pub(crate) struct Placed {
    thread: JoinHandle<()>,
    process: u32,
}

impl Placed {
    /// Which thread it is.
    pub fn id(&self) -> ThreadId {
        self.thread.thread().id()
    }

    /// Waits for its end; in a forked child there is nothing to wait for.
    pub fn join(self) {
        if self.process == std::process::id() {
            // one that panicked has said so on stderr
            let _ = self.thread.join();
        } else {
            // Dropping it would detach a thread of the child's own that has got its memory.
            std::mem::forget(self.thread);
        }
    }
}

/// Starts a thread, on one CPU alone if one is named, and returns when it is there.
pub(crate) fn start(
    name: &str,
    cpu: Option<u32>,
    serve: impl FnOnce() + Send + 'static,
) -> io::Result<Placed> {
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
    let process = std::process::id();
    heard.recv().map_err(io::Error::other)?.map(|()| Placed { thread, process })
}
