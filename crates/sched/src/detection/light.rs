// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that have no wide code, so that whatever traps in them is light use.
//!
//! **Problem.** Light use traps too: on CPUs with AVX-512VL the C library clears memory with 512-bit
//! stores in every program. What is behind such a trap is not known in the kernel, so a long
//! `memset` at the end of a period of grace looks like the middle of wide work, and is steered.
//!
//! **Idea.** Most programs cannot do wide work: no file they have mapped as code holds an
//! instruction of the wide level. The scanner knows ([`scan::scan_file`]), and the module is told
//! ([`hw::trap::Verdict::Light`]). It forgets this when the process maps more code, so a library that is
//! loaded later is looked at before anything is believed again.
//!
//! Only the one direction is told. That a file has wide code does not say that its user runs it: x265
//! has AVX-512 in it and leaves it alone.
//!
//! **Limits.** A process with executable memory of its own making (JIT), or of a file that was deleted
//! or cannot be scanned, is never called light. Scanning takes a tenth of a CPU at most ([`Share`]), at the
//! lowest priority: after a start on a machine with many programs it takes a while until all are known.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hw::trap::{Device, Verdict};
use rayon::{ThreadPool, ThreadPoolBuilder};
use scan::{Options, Sort, scan_file};

use super::maps::{Mapped, folder, in_root};

/// Part of the time in which files are scanned: 1 of so many.
const SHARE: u32 = 10;
/// Time for scanning that may be saved up: after a quiet hour a new program is scanned at once.
const SAVED_MAX: Duration = Duration::from_millis(200);
/// Files that are remembered; far more than machines have programs.
const FILES_MAX: usize = 100_000;

/// A file as it was when it was scanned: device, inode, and when it was changed last.
type Version = (u64, u64, i64, i64);

/// What is known of files, and so of processes.
#[derive(Default)]
pub struct Light {
    /// The highest licence level of any instruction; `None`: it cannot be said.
    levels: HashMap<Version, Option<u8>>,
    share: Share,
    /// One thread of low priority; made when it is needed first.
    scanner: Option<ThreadPool>,
}

impl Light {
    /// Tells the module whether a process with these mappings can use code of `wide_level` at all, if that is
    /// new.
    ///
    /// # Errors
    /// When the module does not answer. A process that has just ended is no error.
    pub(super) fn judge(
        &mut self,
        pid: u32,
        mapped: &Mapped,
        device: &Device,
        wide_level: u8,
    ) -> io::Result<()> {
        let process = folder(pid);
        let pid = pid.cast_signed();
        let Some(known) = lives(device.task_counters(pid))? else { return Ok(()) };
        if known.verdict == Verdict::Wide as u32 {
            return Ok(()); // it has proved that
        }
        let was_light = known.verdict == Verdict::Light as u32;
        match (was_light, self.is_light(&process, mapped, wide_level)) {
            (false, true) => {
                lives(device.learn(pid, Verdict::Light))?;
                // What it maps from now on the module sees; this is for what it has mapped meanwhile.
                if Mapped::read(&process).is_none_or(|now| now != *mapped) {
                    lives(device.learn(pid, Verdict::None))?;
                }
            }
            (true, false) => _ = lives(device.learn(pid, Verdict::None))?,
            _ => {}
        }
        Ok(())
    }

    fn is_light(&mut self, process: &Path, mapped: &Mapped, wide_level: u8) -> bool {
        let root = process.join("root");
        let mut is_below = |path: &String| {
            self.level(&in_root(&root, path)).is_some_and(|level| level < wide_level)
        };
        !mapped.others && !mapped.files.is_empty() && mapped.files.iter().all(&mut is_below)
    }

    /// The file's level; `None` if it cannot be said, or not yet.
    fn level(&mut self, path: &Path) -> Option<u8> {
        let found = version(&fs::metadata(path).ok().filter(Metadata::is_file)?);
        if let Some(known) = self.levels.get(&found) {
            return *known;
        }
        if !self.share.has_time() {
            return None;
        }
        let file = File::open(path).ok()?;
        let version = version(&file.metadata().ok()?);
        let begun = Instant::now();
        let level = self.scan(file, path);
        self.share.spend(begun.elapsed());
        if self.levels.len() >= FILES_MAX {
            self.levels.clear();
        }
        self.levels.insert(version, level);
        level
    }

    fn scan(&mut self, mut file: File, path: &Path) -> Option<u8> {
        if self.scanner.is_none() {
            self.scanner = scanner().ok();
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        self.scanner.as_ref()?.install(|| level_of(&path.to_string_lossy(), &bytes))
    }
}

/// The highest licence level of any instruction in a file, guesses included: what may be code counts.
fn level_of(path: &str, bytes: &[u8]) -> Option<u8> {
    let all = Options { level: 0, top: None, sort: Sort::Level };
    let file = scan_file(path, bytes, &all).ok().filter(|file| file.partial.is_empty())?;
    Some(file.listed.iter().map(|function| function.license_level).max().unwrap_or(0))
}

fn version(meta: &Metadata) -> Version {
    (meta.dev(), meta.ino(), meta.ctime(), meta.ctime_nsec())
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
    use super::*;

    const SAVED_MAX_NS: i64 = SAVED_MAX.as_nanos() as i64;

    /// A process without wide code is light at the level that its code stays below, and not beyond.
    #[test]
    fn level_decides() {
        let mut light = Light::default();
        let own = Mapped { files: vec!["/proc/self/exe".into()], others: false };
        let path = std::fs::read_link("/proc/self/exe").unwrap();
        let version = version(&path.metadata().unwrap());
        light.levels.insert(version, Some(1));
        let process = Path::new("/proc/self");
        assert!(light.is_light(process, &own, 2));
        assert!(!light.is_light(process, &own, 1));
        light.levels.insert(version, None);
        assert!(!light.is_light(process, &own, 2), "what cannot be scanned");
    }

    /// Code of its own making, no code at all, and files that are gone are never light.
    #[test]
    fn what_is_not_known_is_not_light() {
        let mut light = Light::default();
        let process = Path::new("/proc/self");
        for (files, others) in [(vec!["/bin/true"], true), (vec![], false), (vec!["/gone"], false)]
        {
            let files = files.into_iter().map(String::from).collect();
            let mapped = Mapped { files, others };
            assert!(!light.is_light(process, &mapped, 3), "{mapped:?}");
        }
    }

    /// The C library is below heavy AVX-512; text is nothing that can be said.
    #[test]
    fn files_are_scanned_once() {
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"];
        let libc = libc.map(Path::new).into_iter().find(|path| path.exists()).expect("a C library");
        let mut light = Light::default();
        assert!(light.level(libc).is_some_and(|level| level < 2));
        light.share.saved_ns = i64::MIN / 2;
        assert!(light.level(libc).is_some_and(|level| level < 2), "known, and so costs no time");
        assert_eq!(light.level(Path::new("/etc/passwd")), None, "there is no time");
        assert_eq!(light.levels.len(), 1);
        assert_eq!(level_of("text", b"no code"), None);
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
