// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that have no wide code, so that whatever traps in them is light use.
//!
//! **Problem.** Light use traps too: on CPUs with AVX-512VL the C library clears memory with
//! 512-bit stores in every program. The kernel does not know what follows such a trap, so a long
//! `memset` at the end of a period of grace looks like the middle of wide work, and is steered.
//!
//! **Idea.** Most programs cannot do wide work: no file they have mapped as code holds an
//! instruction of the wide level. The scanner finds this out ([`Levels`]) and
//! reports it to the module ([`hw::trap::Verdict::Light`]). The module drops the verdict when the
//! process maps more code, until a library that is loaded later has been scanned too.
//!
//! Only this direction is reported. A file with wide code does not mean that its user runs it: x265
//! has AVX-512 in it and leaves it alone.
//!
//! **Limits.** A process with executable memory of its own making (JIT), or of a file that was
//! deleted or cannot be scanned, is never called light. Scanning takes a tenth of a CPU at most
//! ([`Levels`]), at the lowest priority: after a start on a machine with many programs it takes a
//! while until all are known.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use hw::trap::{Device, Verdict};

use super::files::Files;
use super::levels::Levels;
use super::maps::{Mapped, Mapping, folder};

/// What is known of files, and so of processes.
#[derive(Default)]
pub struct Light {
    levels: Levels,
}

impl Light {
    /// Reports to the module whether a process with these mappings can use code of `wide_level` at
    /// all, if that is new.
    ///
    /// # Errors
    /// When the module does not answer. A process that has just ended is no error.
    pub(super) fn judge(
        &mut self,
        pid: u32,
        mapped: &Mapped,
        files: &Files,
        device: &Device,
        wide_level: u8,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        let process = folder(pid);
        let pid = pid.cast_signed();
        let Some(known) = lives(device.task_counters(pid))? else { return Ok(()) };
        if known.verdict == Verdict::Wide as u32 {
            return Ok(()); // it has proved that
        }
        let was_light = known.verdict == Verdict::Light as u32;
        match (was_light, self.is_light(&process, mapped, files, wide_level, stop)) {
            (false, true) => {
                lives(device.learn(pid, Verdict::Light))?;
                // What it maps from now on the module sees; this is for what it has mapped
                // meanwhile.
                if Mapped::read(&process).is_none_or(|now| now != *mapped) {
                    lives(device.learn(pid, Verdict::None))?;
                }
            }
            (true, false) => _ = lives(device.learn(pid, Verdict::None))?,
            _ => {}
        }
        Ok(())
    }

    /// Files may have changed.
    pub(super) fn forget(&mut self) {
        self.levels.forget();
    }

    fn is_light(
        &mut self,
        process: &Path,
        mapped: &Mapped,
        files: &Files,
        wide_level: u8,
        stop: &AtomicBool,
    ) -> bool {
        // Of a file that is not read no one hears when it changes.
        let mut is_below = |file: &Mapping| {
            files.get(file).is_some_and(|known| known.read)
                && self
                    .levels
                    .level(&file.id, stop, || file.open(process))
                    .is_some_and(|level| level < wide_level)
        };
        !mapped.others && !mapped.files.is_empty() && mapped.files.iter().all(&mut is_below)
    }
}

/// `None`: the process has ended.
fn lives<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        answer => answer.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Known;
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    /// A process with one mapped file, which was read or not.
    fn with(read: bool) -> (Mapped, Files) {
        let mapped = Mapped::parse("1000-2000 r-xp 00000000 fe:00 11 /usr/bin/a\n");
        let mut files = Files::default();
        files.set(&mapped.files[0], Known { read });
        (mapped, files)
    }

    /// A process without wide code is light at the level that its code stays below, and not beyond.
    #[test]
    fn level_decides() {
        let mut light = Light::default();
        let (own, files) = with(true);
        let id = own.files[0].id.clone();
        light.levels.set(id.clone(), Some(1));
        let process = Path::new("/proc/self");
        assert!(light.is_light(process, &own, &files, 2, &GO));
        assert!(!light.is_light(process, &own, &files, 1, &GO));
        assert!(
            !light.is_light(process, &own, &Files::default(), 2, &GO),
            "a file that is not known"
        );
        assert!(!light.is_light(process, &own, &with(false).1, 2, &GO), "a file that is not read");
        light.levels.set(id, None);
        assert!(!light.is_light(process, &own, &files, 2, &GO), "what cannot be scanned");
    }

    /// Code of its own making, no code at all, and files that are gone are never light.
    #[test]
    fn what_is_not_known_is_not_light() {
        let mut light = Light::default();
        let process = Path::new("/proc/self");
        let (one, files) = with(true);
        assert!(!light.is_light(process, &one, &files, 3, &GO), "nothing is mapped there");
        light.levels.set(one.files[0].id.clone(), Some(0));
        assert!(light.is_light(process, &one, &files, 3, &GO));
        for mapped in [Mapped { others: true, ..one }, Mapped::default()] {
            assert!(!light.is_light(process, &mapped, &files, 3, &GO), "{mapped:?}");
        }
    }
}
