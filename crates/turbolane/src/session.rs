// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frequency, threads and measurement of one program: what the C ABI calls a session.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use pstate::{Control, Options};

use crate::monitor::Monitor;
use crate::targets;
use crate::threads::{Activity, Request, ThreadError, Threads, own_tid};

/// TURBO's library (slide 10): thread registry, thread control, topology and performance monitor.
///
/// ```no_run
/// let session = turbolane::Session::open(&pstate::Options::default())?;
/// println!("{}", session.control().choice().why);
/// session.threads().register("worker", 1)?;
/// let section = session.monitor().region("resize")?;
/// session.request(turbolane::Request::Boost)?;
/// session.monitor().begin(section);
/// // ... the critical section ...
/// session.monitor().end(section)?;
/// session.request(turbolane::Request::Restore)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session {
    control: Control,
    threads: Threads,
    monitor: Monitor,
}

impl Session {
    /// Opens frequency control, with empty registry and monitor.
    pub fn open(options: &Options) -> Result<Self, pstate::Error> {
        let control = Control::open_for_threads(options, &targets::are_taken)?;
        let threads = Threads::under(&control);
        Ok(Session { control, threads, monitor: Monitor::new() })
    }

    /// P-states and topology.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The registered threads.
    pub fn threads(&self) -> &Threads {
        &self.threads
    }

    /// Regions and counters.
    pub fn monitor(&self) -> &Monitor {
        &self.monitor
    }

    /// Makes a request for the core of the calling thread, which is registered. (Boosted locks take
    /// a session too, as a `locks::CpuFrequency`, and their threads need not be registered.)
    pub fn request(&self, request: Request) -> Result<(), ThreadError> {
        self.threads.request(&self.control, own_tid(), request)
    }

    /// Makes a thread that is registered as long as it runs.
    pub fn spawn<T: Send + 'static>(
        self: &Arc<Self>,
        name: &str,
        role: u32,
        body: impl FnOnce(&Session, &Activity) -> T + Send + 'static,
    ) -> io::Result<JoinHandle<Result<T, ThreadError>>> {
        let (session, name) = (Arc::clone(self), name.to_string());
        std::thread::Builder::new().name(name.clone()).spawn(move || {
            let activity = session.threads.register(&name, role)?;
            let _leave = Leave(&session);
            Ok(body(&session, &activity))
        })
    }

    /// Restores everything; see [`Control::close`].
    pub fn close(self) -> pstate::Restored {
        self.end()
    }

    /// The same for those who share it: later requests are refused.
    pub(crate) fn end(&self) -> pstate::Restored {
        self.threads.leave_all(&self.control);
        self.control.restore_all()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

/// Unregisters the thread when its body ends, by a panic too.
struct Leave<'a>(&'a Session);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // No one to report to; the control's close restores what could not be.
        let _ = self.0.threads.unregister(&self.0.control, own_tid());
    }
}
