// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps an eye on which files processes execute, and puts probes into new ones.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hw::trap::{self, Device};

use super::files::{Added, Files};
use super::light::Light;
use super::maps::{Mapped, folder, open_regular};

/// The files that have their probes, and what is known of processes. A probe belongs to a file, not
/// to a process: whoever maps it later has it too.
#[derive(Default)]
pub struct Watch {
    files: Files,
    light: Light,
}

impl Watch {
    /// Nothing seen yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at all processes. Cheap when there is nothing new: it reads their memory maps.
    pub fn look_at_all(&mut self, device: &Device) -> Added {
        self.look_until(device, &AtomicBool::new(false))
    }

    /// The same until `stop` becomes true, which ends a scan in progress too.
    pub fn look_until(&mut self, device: &Device, stop: &AtomicBool) -> Added {
        let names = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = names.filter_map(|name| name.file_name().to_str()?.parse().ok());
        self.look(pids, device, stop)
    }

    /// Looks at one process.
    pub fn look_at(&mut self, pid: u32, device: &Device) -> Added {
        self.look([pid], device, &AtomicBool::new(false))
    }

    fn look(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        device: &Device,
        stop: &AtomicBool,
    ) -> Added {
        let wanted = || !stop.load(Ordering::Relaxed);
        let mut added = Added::default();
        if self.files.follow(device) {
            self.light.forget();
        }
        // A process that has just ended has no maps, and that is no failure.
        let read = |pid| Some((pid, Mapped::read(&folder(pid))?));
        let processes: Vec<(u32, Mapped)> =
            pids.into_iter().take_while(|_| wanted()).filter_map(read).collect();
        // Probes first: they are what a program needs, and placed quickly.
        for (pid, mapped) in &processes {
            for mapping in mapped.files.iter().take_while(|_| wanted()) {
                added.add(self.files.look_at(&folder(*pid), mapping, device, stop));
            }
        }
        let wide_level = trap::setting("wide_level").ok().and_then(|level| level.parse().ok());
        let Some(wide_level) = wide_level else { return added };
        for (pid, mapped) in processes.iter().take_while(|_| wanted()) {
            // A module that does not answer decides by what traps, as it does without us.
            _ = self.light.judge(*pid, mapped, &self.files, device, wide_level, stop);
        }
        added
    }

    /// Looks at a program or library before anybody runs it.
    ///
    /// # Errors
    /// When it cannot be read, or is no program.
    pub fn look_at_file(&mut self, path: &Path, device: &Device) -> io::Result<Added> {
        let file = open_regular(path)?;
        let meta = file.metadata()?;
        let go = AtomicBool::new(false);
        // Not as the kernel names it in maps: a mapping of it is looked at once more, and known to
        // the module.
        self.files.look_through(&file, (format!("at {}", meta.dev()), meta.ino()), device, &go)
    }
}
