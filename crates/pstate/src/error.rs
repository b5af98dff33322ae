// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why something was refused. `Copy` and without allocation: a boost in a lock may fail too.

use std::fmt;

use cpumodel::PSTATE_FILES;

/// Where a setting lies, as a text in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    len: u8,
    bytes: [u8; Place::MAX],
}

impl Place {
    /// Longest path below the root that a setting can have, its zero byte included. The longest in
    /// use, `sys/devices/system/cpu/cpufreq/policy1023/scaling_available_governors`, has 72.
    pub(crate) const MAX: usize = 80;

    pub(crate) fn new(path: &str) -> Self {
        let kept = &path.as_bytes()[..path.len().min(Place::MAX)];
        let mut bytes = [0; Place::MAX];
        bytes[..kept.len()].copy_from_slice(kept);
        Place { len: kept.len() as u8, bytes }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len as usize]).unwrap_or("?")
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Why nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nothing on this machine controls P-states for us; [`crate::Choice`] says why.
    NoBackend,
    /// The CPU is not online, or no frequency control covers it.
    NoCpu(u32),
    /// This method takes requests for threads, not for CPUs.
    ByThread,
    /// The frequency is not one of the CPU's.
    OffTable {
        /// What was requested.
        asked_khz: u32,
        /// The nearest settable frequency below, 0 if there is none.
        below_khz: u32,
        /// The nearest settable frequency above, 0 if there is none.
        above_khz: u32,
    },
    /// A write was accepted but did not read back: a lock bit, or hardware or firmware that
    /// overrides it. What was written has been undone.
    NotKept(Place),
    /// Another program has changed the governor since we did: the frequency is under its control.
    Taken(Place),
    /// A limit that another program has set does not allow it: `scaling_min_freq` or
    /// `scaling_max_freq`.
    Limited(Place),
    /// This machine has no switch for turbo, or it is held by the firmware.
    NoTurboSwitch,
    /// A system call failed with this errno.
    System(i32, Place),
    /// No model of a machine has that name, and no file there describes one.
    NoModel,
    /// The caller is a forked child of the process that opened the control.
    NotOwner,
    /// The control was closed.
    Closed,
    /// A descriptor or path that opening needs cannot be had: errno.
    Open(i32),
    /// The watchdog, without which nothing is changed, cannot be started: errno.
    Watchdog(i32),
}

impl Error {
    /// The errno value that the C ABI returns, positive.
    pub fn errno(self) -> i32 {
        match self {
            Error::NoBackend | Error::NoTurboSwitch => libc::ENODEV,
            Error::NoModel => libc::ENOENT,
            Error::NoCpu(_) => libc::ENXIO,
            Error::ByThread => libc::EOPNOTSUPP,
            Error::OffTable { .. } => libc::ERANGE,
            Error::NotKept(_) => libc::EIO,
            Error::Taken(_) | Error::Limited(_) => libc::EBUSY,
            Error::NotOwner => libc::ECHILD,
            Error::Closed => libc::ESHUTDOWN,
            Error::System(errno, _) | Error::Open(errno) | Error::Watchdog(errno) => errno,
        }
    }
}

/// The system's text for an errno.
fn reason(errno: i32) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Error::NoBackend => write!(
                f,
                "this user has no P-state control on this machine; the control's choice says why"
            ),
            Error::NoCpu(cpu) => {
                write!(f, "CPU {cpu} is not online or has no frequency control")
            }
            Error::ByThread => write!(
                f,
                "the scheduler takes requests for threads, not for CPUs: use a registered thread"
            ),
            Error::OffTable { asked_khz, below_khz, above_khz } => {
                write!(f, "{asked_khz} kHz is not a P-state of this CPU; nearest: ")?;
                match (below_khz, above_khz) {
                    (0, above) => write!(f, "{above} kHz, the lowest"),
                    (below, 0) => write!(f, "{below} kHz, the highest"),
                    (below, above) => write!(f, "{below} and {above} kHz"),
                }
            }
            Error::NotKept(place) => write!(
                f,
                "{place:?} took a value but did not keep it: the firmware locks it, or another \
                 program writes it too; the old value was restored"
            ),
            Error::Taken(place) => write!(
                f,
                "{place:?} was changed by another tool: stop that tool (tuned, \
                 power-profiles-daemon, cpupower), then open the control again"
            ),
            Error::Limited(place) => write!(
                f,
                "the limit {place:?}, which another program has set, does not allow this: lift it first"
            ),
            Error::NoTurboSwitch => write!(f, "this machine has no switch for turbo"),
            Error::NoModel => write!(
                f,
                "there is no built-in machine model of that name, and no such model file; built in: {}",
                PSTATE_FILES.map(|(id, _)| id).join(", ")
            ),
            Error::System(errno, place) => write!(f, "{place:?}: {}", reason(errno)),
            Error::NotOwner => {
                write!(f, "frequency control was opened by the parent process: open it in this one")
            }
            Error::Closed => write!(f, "frequency control was closed"),
            Error::Open(errno) => write!(f, "cannot open frequency control: {}", reason(errno)),
            Error::Watchdog(errno) => write!(
                f,
                "cannot start the watchdog that restores P-states if this program dies ({}); \
                 nothing is changed without it",
                reason(errno)
            ),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A refused frequency names its neighbours, at the ends of the table too.
    #[test]
    fn off_table_names_the_nearest() {
        let text = |below_khz, above_khz| {
            Error::OffTable { asked_khz: 7, below_khz, above_khz }.to_string()
        };
        assert!(text(5, 9).ends_with("nearest: 5 and 9 kHz"));
        assert!(text(0, 9).ends_with("9 kHz, the lowest"));
        assert!(text(5, 0).ends_with("5 kHz, the highest"));
    }

    /// System errors name the file and the system's reason.
    #[test]
    fn system_errors_name_the_file() {
        let error = Error::System(libc::EACCES, Place::new("dev/cpu/0/msr"));
        assert!(error.to_string().starts_with("dev/cpu/0/msr: Permission denied"));
        assert_eq!(error.errno(), libc::EACCES);
    }
}
