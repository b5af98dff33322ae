// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that have no wide code, so that whatever traps in them is light use.
//!
//! **Problem.** Light use traps too: on CPUs with AVX-512VL the C library clears memory with
//! 512-bit stores in every program. The kernel does not know what follows such a trap, so a long
//! `memset` at the end of a period of grace looks like the middle of wide work, and is steered.
//!
//! **Idea.** Most programs cannot do wide work: no file they have mapped as code holds an
//! instruction of the wide level. The scanner finds this out ([`scan::scan_file_within`]) and
//! reports it to the module ([`hw::trap::Verdict::Light`]). The module drops the verdict when the
//! process maps more code, until a library that is loaded later has been scanned too.
//!
//! Only this direction is reported. A file with wide code does not mean that its user runs it: x265
//! has AVX-512 in it and leaves it alone.
//!
//! **Limits.** A process with executable memory of its own making (JIT), or of a file that was
//! deleted or cannot be scanned, is never called light. Scanning takes a tenth of a CPU at most
//! ([`Share`]), at the lowest priority: after a start on a machine with many programs it takes a
//! while until all are known.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hw::trap::{Device, Verdict};
use rayon::{ThreadPool, ThreadPoolBuilder};
use scan::{Limits, Options, Sort, scan_file_within};

use super::files::{Files, read_bounded};
use super::maps::{Id, Mapped, Mapping, folder};

/// Part of the time in which files are scanned: 1 of so many.
const SHARE: u32 = 10;
/// Time for scanning that may be saved up: after a quiet hour a new program is scanned at once.
const SAVED_MAX: Duration = Duration::from_millis(200);
/// What is known of files, and so of processes.
#[derive(Default)]
pub struct Light {
    /// The highest licence level of any instruction; `None`: it cannot be said.
    levels: HashMap<Id, Option<u8>>,
    share: Share,
    /// One thread of low priority; made when it is needed first.
    scanner: Option<ThreadPool>,
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
        self.levels.clear();
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
                    .level(&file.id, stop, || file.open(process))
                    .is_some_and(|level| level < wide_level)
        };
        !mapped.others && !mapped.files.is_empty() && mapped.files.iter().all(&mut is_below)
    }

    /// The file's level; `None` if it cannot be said, or not yet.
    fn level(
        &mut self,
        id: &Id,
        stop: &AtomicBool,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Option<u8> {
        if let Some(known) = self.levels.get(id) {
            return *known;
        }
        if !self.share.has_time() {
            return None;
        }
        let file = open().ok()?;
        let begun = Instant::now();
        let bytes = read_bounded(&file, &file.metadata().ok()?)?;
        let level = self.scan(&bytes, stop);
        self.share.spend(begun.elapsed());
        if stop.load(Ordering::Relaxed) {
            return None; // not known yet
        }
        self.levels.insert(id.clone(), level);
        level
    }

    fn scan(&mut self, bytes: &[u8], stop: &AtomicBool) -> Option<u8> {
        if self.scanner.is_none() {
            self.scanner = scanner().ok();
        }
        self.scanner.as_ref()?.install(|| level_of("", bytes, stop))
    }
}

/// The highest licence level of any instruction in a file, guesses included: what may be code
/// counts. `None` if it takes more work than the scanner gives a file that others chose.
fn level_of(path: &str, bytes: &[u8], stop: &AtomicBool) -> Option<u8> {
    let all = Options { level: 0, top: None, sort: Sort::Level };
    let file = scan_file_within(path, bytes, &all, &Limits::strict(stop)).ok();
    let file = file.filter(|file| file.partial.is_empty())?;
    Some(file.listed.iter().map(|function| function.license_level).max().unwrap_or(0))
}

fn scanner() -> Result<ThreadPool, rayon::ThreadPoolBuildError> {
    let politely = |_| {
        // SAFETY: concerns the calling thread only; if it is refused, it is just less polite.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    };
    ThreadPoolBuilder::new()
        .num_threads(1)
        .thread_name(|_| "turbolane-scan".into())
        .start_handler(politely)
        .build()
}

/// `None`: the process has ended.
fn lives<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        answer => answer.map(Some),
    }
}

/// A part of the time that may be used up. What a file takes is known only afterwards; it is paid
/// back before the next.
struct Share {
    saved_ns: i64,
    at: Instant,
}

impl Default for Share {
    fn default() -> Self {
        Share { saved_ns: nanoseconds(SAVED_MAX), at: Instant::now() }
    }
}

impl Share {
    fn has_time(&mut self) -> bool {
        let now = Instant::now();
        let earned = nanoseconds((now - self.at) / SHARE);
        self.saved_ns = (self.saved_ns + earned).min(nanoseconds(SAVED_MAX));
        self.at = now;
        self.saved_ns > 0
    }

    fn spend(&mut self, time: Duration) {
        self.saved_ns -= nanoseconds(time);
        // The time of the work itself earns nothing.
        self.at = Instant::now();
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::files::Known;
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);
    const SAVED_MAX_NS: i64 = SAVED_MAX.as_nanos() as i64;

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
        light.levels.insert(id.clone(), Some(1));
        let process = Path::new("/proc/self");
        assert!(light.is_light(process, &own, &files, 2, &GO));
        assert!(!light.is_light(process, &own, &files, 1, &GO));
        assert!(
            !light.is_light(process, &own, &Files::default(), 2, &GO),
            "a file that is not known"
        );
        assert!(!light.is_light(process, &own, &with(false).1, 2, &GO), "a file that is not read");
        light.levels.insert(id, None);
        assert!(!light.is_light(process, &own, &files, 2, &GO), "what cannot be scanned");
    }

    /// Code of its own making, no code at all, and files that are gone are never light.
    #[test]
    fn what_is_not_known_is_not_light() {
        let mut light = Light::default();
        let process = Path::new("/proc/self");
        let (one, files) = with(true);
        assert!(!light.is_light(process, &one, &files, 3, &GO), "nothing is mapped there");
        light.levels.insert(one.files[0].id.clone(), Some(0));
        assert!(light.is_light(process, &one, &files, 3, &GO));
        for mapped in [Mapped { others: true, ..one }, Mapped::default()] {
            assert!(!light.is_light(process, &mapped, &files, 3, &GO), "{mapped:?}");
        }
    }

    /// The C library is below heavy AVX-512; text is nothing that can be said.
    #[test]
    fn files_are_scanned_once() {
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"];
        let libc = libc.map(Path::new).into_iter().find(|path| path.exists()).expect("a C library");
        let (id, other) = (("fe:00".to_owned(), 1), ("fe:00".to_owned(), 2));
        let mut light = Light::default();
        assert!(light.level(&id, &GO, || File::open(libc)).is_some_and(|level| level < 2));
        light.share.saved_ns = i64::MIN / 2;
        let known = light.level(&id, &GO, || panic!("it is known"));
        assert!(known.is_some_and(|level| level < 2), "known, and so costs no time");
        assert_eq!(light.level(&other, &GO, || panic!("there is no time")), None);
        assert_eq!(light.levels.len(), 1);
        assert_eq!(level_of("text", b"no code", &GO), None);
    }

    /// A scan that is stopped says nothing of the file, which is looked at again later.
    #[test]
    fn stopped_scans_are_not_kept() {
        let own = std::env::current_exe().unwrap();
        let id = ("fe:00".to_owned(), 1);
        let mut light = Light::default();
        let stop = AtomicBool::new(true);
        assert_eq!(light.level(&id, &stop, || File::open(&own)), None);
        assert!(light.levels.is_empty());
    }

    /// Whoever takes long pays with a pause, and pauses do not add up for ever.
    #[test]
    fn time_is_paid_back() {
        let mut share = Share::default();
        assert!(share.has_time());
        share.spend(Duration::from_secs(3));
        assert!(!share.has_time());
        share.at -= Duration::from_secs(20);
        assert!(!share.has_time(), "20 s earn 2");
        share.at -= Duration::from_secs(9);
        assert!(share.has_time());
        share.at -= Duration::from_secs(3600);
        share.has_time();
        assert_eq!(share.saved_ns, SAVED_MAX_NS);
    }
}
