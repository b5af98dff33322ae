// SPDX-License-Identifier: MIT OR Apache-2.0
//! What each method of setting a P-state must do; `choice.rs` lists the methods and chooses one.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use hw::{Rooted, Source};

use crate::error::Error;
use crate::journal::Journal;
use crate::speeds::Speeds;

/// A method of setting P-states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Way {
    /// Nothing can be set.
    None = 0,
    /// cpufreq, governor `userspace`.
    Setspeed = 1,
    /// cpufreq, limits under the governor that is there.
    Limits = 2,
    /// Model-specific registers.
    Msr = 3,
    /// A model in the machine's place, by its id or file.
    Simulated = 4,
    /// A scheduler that passes threads' requests to the governor.
    Scheduler = 5,
}

impl Way {
    /// As in messages and on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Way::None => "none",
            Way::Setspeed => "setspeed",
            Way::Limits => "limits",
            Way::Msr => "msr",
            Way::Simulated => "simulated",
            Way::Scheduler => "scheduler",
        }
    }
}

/// CPUs whose P-state is one setting.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Linux's numbers, ascending.
    pub cpus: Vec<u32>,
    /// What can be set.
    pub speeds: Speeds,
}

/// One method on one machine. `unit` is an index into what was found; whoever calls holds its lock.
pub(crate) trait Backend: Send + Sync {
    /// Takes the unit over; what is changed is in the journal.
    fn prepare(&self, journal: &Journal, unit: usize) -> Result<(), Error>;

    /// Sets a frequency that [`Speeds::check`] has passed. `surely`: reads it back.
    fn set(&self, journal: &Journal, unit: usize, khz: u32, surely: bool) -> Result<(), Error>;

    /// What was set reads back as soon as it is written, not after a worker's turn.
    fn reads_back_at_once(&self) -> bool {
        true
    }

    /// What runs without requests, see [`crate::Control::restore`].
    fn rest(&self, journal: &Journal, unit: usize) -> Result<(), Error>;

    /// Hands the unit back, as it was found.
    fn release(&self, journal: &Journal, unit: usize) -> Result<(), Error>;

    /// Turbo on all CPUs: sets it if asked to, returns whether it is on.
    fn turbo(&self, journal: &Journal, on: Option<bool>) -> Result<bool, Error>;
}

/// What was found.
pub(crate) struct Found {
    pub backend: Box<dyn Backend>,
    pub units: Vec<Unit>,
    pub what: String,
}

/// A machine below a root, and what this process may write there.
pub(crate) struct Machine {
    pub source: Rooted,
}

impl Machine {
    pub fn new(root: &Path) -> Self {
        Machine { source: Rooted::new(root) }
    }

    /// Where a file of the machine lies on this one.
    pub fn place(&self, path: &str) -> PathBuf {
        self.source.place(path)
    }

    /// The trimmed text of a file.
    pub fn text(&self, path: &str) -> Option<String> {
        self.source.read(path).ok().map(|text| text.trim().to_string())
    }

    /// The number in a file.
    pub fn number(&self, path: &str) -> Option<u32> {
        self.text(path)?.parse().ok()
    }

    /// This process may write the file; else why not.
    pub fn writable(&self, path: &str) -> Result<(), String> {
        let whole = self.place(path);
        let place = CString::new(whole.as_os_str().as_encoded_bytes()).unwrap_or_default();
        // SAFETY: a path that ends in a zero byte.
        match unsafe { libc::access(place.as_ptr(), libc::R_OK | libc::W_OK) } {
            0 => Ok(()),
            _ => Err(format!("{path}: {}", std::io::Error::last_os_error())),
        }
    }
}

/// Whether a scheduler takes targets of this process's threads; else why not. Asked only if the
/// method is otherwise usable.
pub type TakesTargets<'a> = &'a dyn Fn() -> Result<(), String>;
