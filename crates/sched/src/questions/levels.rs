// SPDX-License-Identifier: MIT OR Apache-2.0
//! The highest licence level that a file's code asks for, found by the scanner once.
//!
//! Scanning takes a tenth of a CPU at most ([`Share`]), at the lowest priority: after a start on a
//! machine with many programs it takes a while until all are known.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};
use scan::{Limits, Options, Sort, scan_file_within};

use super::files::read_bounded;
use super::maps::Id;

/// Part of the time in which files are scanned: 1 of so many.
const SHARE: u32 = 10;
/// Time for scanning that may be saved up: after a quiet hour a new program is scanned at once.
const SAVED_MAX: Duration = Duration::from_millis(200);

/// What is known of files.
#[derive(Default)]
pub(super) struct Levels {
    /// The highest licence level of any instruction; `None`: it cannot be said.
    known: HashMap<Id, Option<u8>>,
    share: Share,
    /// One thread of low priority; made when it is needed first.
    scanner: Option<ThreadPool>,
}

impl Levels {
    /// Files may have changed.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// It has scanned so much that it will scan nothing for long.
    #[cfg(test)]
    pub(super) fn without_time(&mut self) {
        self.share.saved_ns = i64::MIN / 2;
    }

    #[cfg(test)]
    pub(super) fn set(&mut self, id: Id, level: Option<u8>) {
        self.known.insert(id, level);
    }

    /// Files that are known.
    pub(super) fn nr(&self) -> usize {
        self.known.len()
    }

    /// Whether all has been said that can be said.
    pub(super) fn is_known(&self, id: &Id) -> bool {
        self.known.contains_key(id)
    }

    /// The file's level; `None` if it cannot be said, or not yet.
    pub(super) fn level(
        &mut self,
        id: &Id,
        stop: &AtomicBool,
        open: impl FnOnce() -> io::Result<File>,
    ) -> Option<u8> {
        if let Some(known) = self.known.get(id) {
            return *known;
        }
        if !self.share.has_time() {
            return None;
        }
        let file = open().ok()?;
        let begun = Instant::now();
        let bytes = read_bounded(&file, &file.metadata().ok()?);
        let level = bytes.and_then(|bytes| self.scan(&bytes, stop));
        self.share.spend(begun.elapsed());
        if stop.load(Ordering::Relaxed) {
            return None; // not known yet
        }
        self.known.insert(id.clone(), level);
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

/// The calling thread has the lowest priority from now on.
pub(super) fn be_polite() {
    // SAFETY: concerns the calling thread only; if it is refused, it is just less polite.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

fn scanner() -> Result<ThreadPool, rayon::ThreadPoolBuildError> {
    ThreadPoolBuilder::new()
        .num_threads(1)
        .thread_name(|_| "turbolane-scan".into())
        .start_handler(|_| be_polite())
        .build()
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
    use std::path::Path;

    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);
    const SAVED_MAX_NS: i64 = SAVED_MAX.as_nanos() as i64;

    /// The C library is below heavy AVX-512; text is nothing that can be said.
    #[test]
    fn files_are_scanned_once() {
        let libc = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6"];
        let libc = libc.map(Path::new).into_iter().find(|path| path.exists()).expect("a C library");
        let (id, other) = (("fe:00".to_owned(), 1), ("fe:00".to_owned(), 2));
        let mut levels = Levels::default();
        assert!(levels.level(&id, &GO, || File::open(libc)).is_some_and(|level| level < 2));
        levels.share.saved_ns = i64::MIN / 2;
        let known = levels.level(&id, &GO, || panic!("it is known"));
        assert!(known.is_some_and(|level| level < 2), "known, and so costs no time");
        assert_eq!(levels.level(&other, &GO, || panic!("there is no time")), None);
        assert_eq!(levels.known.len(), 1);
        assert_eq!(level_of("text", b"no code", &GO), None);
    }

    /// A scan that is stopped says nothing of the file, which is looked at again later.
    #[test]
    fn stopped_scans_are_not_kept() {
        let own = std::env::current_exe().unwrap();
        let id = ("fe:00".to_owned(), 1);
        let mut levels = Levels::default();
        let stop = AtomicBool::new(true);
        assert_eq!(levels.level(&id, &stop, || File::open(&own)), None);
        assert!(levels.known.is_empty());
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
