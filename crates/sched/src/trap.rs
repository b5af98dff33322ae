// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module as part of a run: loaded for it, armed on the scalar CPUs, removed after it.
//!
//! The module must be there before the scheduler is loaded, whose program listens to its event, and
//! can go only when that program is gone: fields of [`crate::scx_lane::ScxLane`] are in that order.
//! What is armed follows the CPU classes. If this process is killed, the kernel closes the device
//! and so disarms every CPU; the module stays loaded then, and does nothing.
//!
//! A thread looks for programs that ask what the CPU can do, and for those that have no wide code
//! ([`crate::questions`]).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cpumodel::CpuSet;
use hw::trap::{self, Device};
use report::problem::Problem;

use crate::config::{Components, Config};
use crate::error::{Error, Result};
use crate::questions::Watch;

/// How often processes are looked at for files that are new. A program that is started has the
/// full XCR0 for a while anyway; this is for libraries that are loaded later.
const LOOK: Duration = Duration::from_secs(1);

/// How long the end of a run waits for a look that goes on. A scan of a large file takes longer.
const STOP_LIMIT: Duration = Duration::from_millis(200);

/// The module in use.
pub struct Trap {
    device: Option<Arc<Device>>,
    watcher: Option<Watcher>,
    armed: CpuSet,
    /// We loaded it, so we remove it.
    ours: bool,
}

impl Trap {
    /// Makes the module ready, with nothing armed and settings as they were; `None` if the run is
    /// to do without.
    pub fn prepare(config: &Config) -> Result<Option<Self>> {
        let components = match config.trap {
            Components::None => return Ok(None),
            other => other.to_string(),
        };
        let ours = !trap::is_loaded();
        if ours {
            load(&components)?;
        }
        // From here on the module is removed again, whatever fails.
        let mut this = Trap { device: None, watcher: None, armed: CpuSet::new(), ours };
        let loaded = trap::setting("components").unwrap_or_default();
        if loaded != components {
            return Err(Error::BadInput(Problem::new(
                format!("cannot use --trap {components}"),
                format!("the trap module is loaded with components={loaded}"),
                format!("remove it (rmmod {}), or run with --trap {loaded}", trap::NAME),
            )));
        }
        let device = Device::open().map_err(|e| Error::failed("the trap module's device", e))?;
        this.device = Some(Arc::new(device));
        Ok(Some(this))
    }

    /// Disarms, and leaves the module to the next one who uses it. Whether it is theirs to remove.
    pub fn yield_module(mut self) -> bool {
        std::mem::take(&mut self.ours)
    }

    /// The module is ours to remove from now on.
    pub fn own_module(&mut self) {
        self.ours = true;
    }

    /// Puts the settings into force that can change.
    pub fn set_settings(&self, config: &Config) -> Result<()> {
        for (name, value) in
            [("mode", config.trap_mode.to_string()), ("wide_level", config.trap_level.to_string())]
        {
            trap::set_setting(name, &value).map_err(|e| {
                Error::failed(format!("the trap module does not take {name}={value}"), e)
            })?;
        }
        Ok(())
    }

    /// Arms these CPUs and no others.
    pub fn follow(&mut self, armed: &CpuSet) -> Result<()> {
        let Some(device) = &self.device else { return Ok(()) };
        if *armed != self.armed {
            device.arm(armed).map_err(|e| arm_error(armed, &e))?;
            self.armed = *armed;
        }
        if self.watcher.is_none() {
            self.watcher = Some(watch(Arc::clone(device))?);
        }
        Ok(())
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        if let Some(device) = &self.device {
            // First of all: whatever is slow below, nothing is withheld meanwhile.
            _ = device.arm(&CpuSet::new());
        }
        drop(self.watcher.take());
        self.device = None;
        if self.ours {
            // Someone else may use it by now; then it stays, with nothing armed.
            _ = trap::unload();
        }
    }
}

fn load(components: &str) -> Result<()> {
    let Some(file) = trap::find() else {
        return Err(Error::Unsupported(Problem::new(
            format!("cannot use --trap {components}"),
            format!("the kernel module {} is not installed for this kernel", trap::NAME),
            "install it by DKMS (docs/kernel-module.md), or run with --trap none",
        )));
    };
    trap::load(&file, &format!("components={components}"))
        .map_err(|error| Error::Unsupported(refused(&file, components, &error)))
}

/// Why the kernel does not take the module, and what helps.
fn refused(file: &Path, components: &str, error: &io::Error) -> Problem {
    const DMESG: &str = "see dmesg for the kernel's reason; nothing was changed";
    /// DKMS signs with the machine's own key, which the firmware has to know.
    const SIGN: &str = "enrol the key that DKMS signs with (mokutil --import /var/lib/dkms/mok.pub) and restart, see \
                        \"Install it\" in docs/kernel-module.md; nothing was changed";
    let (why, next) = match error.raw_os_error() {
        Some(libc::ENODEV) => (format!("this CPU has no {components} to withhold"), DMESG),
        // EPERM: the kernel is locked down.
        Some(libc::EKEYREJECTED | libc::EPERM) => {
            ("the kernel takes only modules that are signed with a key it knows".into(), SIGN)
        }
        Some(libc::ENOEXEC) => ("it was built for another kernel; build it again".into(), DMESG),
        Some(libc::EOPNOTSUPP) => (
            "this kernel saves registers in places that the module does not know, or is built with PREEMPT_RT, CFI \
             or LTO"
                .into(),
            DMESG,
        ),
        Some(libc::ENOENT) => ("this kernel lacks a function that it must follow".into(), DMESG),
        _ => (error.to_string(), DMESG),
    };
    Problem::new(format!("cannot load {}", file.display()), why, next)
}

fn arm_error(cpus: &CpuSet, error: &io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EBUSY) => Error::BadInput(Problem::new(
            format!("cannot arm CPUs {cpus}"),
            "another program has CPUs armed by the trap module",
            "end it first; nothing was changed",
        )),
        _ => Error::failed(format!("the trap module does not arm CPUs {cpus}"), error),
    }
}

/// The thread that looks for programs; it is to end when this is dropped.
struct Watcher {
    stop: Option<Sender<()>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        let start = Instant::now();
        while !thread.is_finished() && start.elapsed() < STOP_LIMIT {
            thread::sleep(Duration::from_millis(5));
        }
        // A panic in it has been printed; the module must go all the same. A thread that hangs in a
        // file of someone else's is left to the end of the process, which closes the device.
        if thread.is_finished() {
            _ = thread.join();
        }
    }
}

fn watch(device: Arc<Device>) -> Result<Watcher> {
    let (stop, stopped) = mpsc::channel::<()>();
    let ends = Arc::new(AtomicBool::new(false));
    let ending = Arc::clone(&ends);
    let thread = thread::Builder::new().name("turbolane-look".into()).spawn(move || {
        let mut watch = Watch::new();
        // At once: until they are read, nothing is withheld from the processes that are there.
        let mut wait = Duration::ZERO;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            watch.look_until(&device, &ending);
            wait = LOOK;
        }
    });
    let thread = thread.map_err(|e| Error::failed("a thread cannot be started", e))?;
    Ok(Watcher { stop: Some(stop), ends, thread: Some(thread) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module that is refused for its signature has a next step of its own; any other is left to
    /// dmesg.
    #[test]
    fn what_helps_against_a_refusal() {
        let next = |code: i32| {
            let error = io::Error::from_raw_os_error(code);
            refused(Path::new("/lib/turbolane_trap.ko"), "avx512", &error).next
        };
        for code in [libc::EKEYREJECTED, libc::EPERM] {
            assert!(next(code).contains("mokutil --import /var/lib/dkms/mok.pub"), "{code}");
            assert!(next(code).contains("docs/kernel-module.md"), "{code}");
        }
        for code in [libc::ENODEV, libc::ENOEXEC, libc::ENOENT, libc::EINVAL] {
            assert!(next(code).starts_with("see dmesg"), "{code}");
        }
    }
}
