// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which licence level a process's code can ask for at most, for power scores (rule 5 of
//! policy/score.h).
//!
//! **Problem.** A power score blames the task that runs for the level that its core has. With SMT
//! that may be the sibling's (DIM 5.2, 7.2).
//!
//! **Idea.** What no instruction of a process's files asks for, the process did not ask for. Only
//! processes that have been blamed are looked at, and from then on once in a second, since they may
//! load libraries: until the new ones are scanned, nothing is known of the process. One with
//! executable memory of its own making, with a virtual machine, or with a file that cannot be
//! scanned, may ask for anything.
//!
//! **Limits.** Whatever a process may do counts, whether it does it or not: the C library has light
//! 512-bit code, so that most programs may ask for level 1. For a second after a library is loaded
//! the verdict is that of before. Not seen are code that the scanner does not find, a library that
//! is changed in place while it is mapped, private pages of a file that a process changes, and what
//! the kernel executes for it. A program that wants to can hide its code so, as it can by a hint.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use policy::{LEVEL_MAX, Score};

use super::levels::{Levels, be_polite};
use super::maps::{Id, Mapped, folder, open_found};
use super::mounts::{Mounts, Overlays};

/// [`Score::code`] of processes.
pub(crate) type Codes = BTreeMap<u32, u8>;

/// It may ask for anything, or is not known.
const ANY: u8 = 0;
/// A process with more files of code is not looked through.
const FILES_MAX: usize = 500;
/// Files and processes that are remembered.
const LEVELS_MAX: usize = 20_000;
const PROCESSES_MAX: usize = 20_000;

/// A thread that looks through processes; it ends when this is dropped.
pub(crate) struct Judge {
    questions: Sender<BTreeSet<u32>>,
    answers: Receiver<Codes>,
    is_busy: bool,
    ends: Arc<AtomicBool>,
}

impl Judge {
    /// Starts it.
    pub(crate) fn start() -> io::Result<Self> {
        let (questions, asked) = mpsc::channel::<BTreeSet<u32>>();
        let (answer, answers) = mpsc::channel();
        let ends = Arc::new(AtomicBool::new(false));
        let ending = Arc::clone(&ends);
        thread::Builder::new().name("turbolane-code".into()).spawn(move || {
            be_polite();
            let mut known = Known::default();
            while let Ok(blamed) = asked.recv() {
                let looked = catch_unwind(AssertUnwindSafe(|| known.look(&blamed, &ending)));
                // After a mistake of the scanner's nothing is known of anyone.
                let codes = looked.unwrap_or_else(|_| std::mem::take(&mut known).forgotten());
                if answer.send(codes).is_err() {
                    break;
                }
            }
        })?;
        Ok(Judge { questions, answers, is_busy: false, ends })
    }

    /// Whether it can be asked.
    pub(crate) fn is_free(&self) -> bool {
        !self.is_busy
    }

    /// Asks for these processes.
    pub(crate) fn ask(&mut self, blamed: BTreeSet<u32>) {
        self.is_busy = true;
        _ = self.questions.send(blamed); // without the thread it stays busy
    }

    /// The answer, if it has come: of all that were asked for, and of those from before that have
    /// changed.
    pub(crate) fn answer(&mut self) -> Option<Codes> {
        let answer = self.answers.try_recv().ok()?;
        self.is_busy = false;
        Some(answer)
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// What is known of processes.
#[derive(Default)]
struct Known {
    levels: Levels,
    hasher: RandomState,
    /// What each has mapped, as a hash, and what follows from that; `None`: it is not known yet.
    processes: BTreeMap<u32, Option<(u64, u8)>>,
}

impl Known {
    fn look(&mut self, blamed: &BTreeSet<u32>, stop: &AtomicBool) -> Codes {
        if self.levels.nr() >= LEVELS_MAX {
            self.levels.forget();
        }
        let overlays = Overlays::now();
        let all: BTreeSet<u32> = self.processes.keys().chain(blamed).copied().collect();
        let mut codes = Codes::new();
        for pid in all.into_iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
            let Some(mapped) = Mapped::read(&folder(pid)) else {
                self.processes.remove(&pid);
                continue;
            };
            let now = self.hasher.hash_one(&mapped);
            match self.processes.get(&pid) {
                Some(Some((hash, code))) if *hash == now => {
                    if blamed.contains(&pid) {
                        codes.insert(pid, *code);
                    }
                }
                None if self.processes.len() >= PROCESSES_MAX => {}
                _ => {
                    let code = self.judge(pid, &mapped, &overlays, stop);
                    self.processes.insert(pid, code.map(|code| (now, code)));
                    codes.insert(pid, code.unwrap_or(ANY));
                }
            }
        }
        codes
    }

    /// Nothing is known any more: what to say of those of whom something was.
    fn forgotten(self) -> Codes {
        self.processes.into_keys().map(|pid| (pid, ANY)).collect()
    }

    /// `None`: not yet, or it maps something else meanwhile.
    fn judge(
        &mut self,
        pid: u32,
        mapped: &Mapped,
        overlays: &Overlays,
        stop: &AtomicBool,
    ) -> Option<u8> {
        let process = folder(pid);
        let code = self.code(&process, mapped, overlays, stop)?;
        Mapped::read(&process).is_some_and(|now| now == *mapped).then_some(code)
    }

    /// `None`: not yet.
    fn code(
        &mut self,
        process: &Path,
        mapped: &Mapped,
        overlays: &Overlays,
        stop: &AtomicBool,
    ) -> Option<u8> {
        if mapped.others || mapped.files.is_empty() || mapped.files.len() > FILES_MAX {
            return Some(ANY);
        }
        let Some(mounts) = Mounts::of(process, overlays) else { return Some(ANY) };
        let mut highest = 0;
        for mapping in &mapped.files {
            // Gone since: it maps something else.
            let found = mapping.find(process).ok()?;
            if !mounts.have(&found) {
                return Some(ANY);
            }
            let Ok(file) = open_found(&found) else { return Some(ANY) };
            let id = version(&file)?;
            match self.levels.level(&id, stop, || Ok(file)) {
                Some(level) => highest = highest.max(level),
                None if self.levels.is_known(&id) => return Some(ANY),
                None => return None,
            }
        }
        Some(Score::code_of(u32::from(highest).min(LEVEL_MAX)))
    }
}

/// A file as it is now: nobody reports a change of its contents.
fn version(file: &File) -> Option<Id> {
    let meta = file.metadata().ok()?;
    let (changed, part) = (meta.ctime(), meta.ctime_nsec());
    Some((format!("{} {} {changed}.{part}", meta.dev(), meta.len()), meta.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    /// What this process maps, if its files may be opened: that takes CAP_SYS_ADMIN or
    /// CAP_CHECKPOINT_RESTORE, and a local file system.
    fn own() -> Option<(Mapped, Vec<Id>)> {
        let process = Path::new("/proc/self");
        let mapped = Mapped::read(process)?;
        let mounts = Mounts::of(process, &Overlays::now())?;
        let version =
            |found: File| mounts.have(&found).then(|| version(&open_found(&found).ok()?))?;
        let ids = mapped.files.iter().map(|file| version(file.find(process).ok()?));
        let ids = ids.collect::<Option<_>>();
        if ids.is_none() {
            eprintln!("skipped: this process may not open what it has mapped");
        }
        Some((mapped, ids?))
    }

    /// All of its files have this level.
    fn knows(ids: &[Id], level: u8) -> Known {
        let mut known = Known::default();
        for id in ids {
            known.levels.set(id.clone(), Some(level));
        }
        known
    }

    fn code(known: &mut Known, mapped: &Mapped) -> Option<u8> {
        known.code(Path::new("/proc/self"), mapped, &Overlays::now(), &GO)
    }

    /// The highest level of all files counts; what cannot be said of one, cannot be said.
    #[test]
    fn the_highest_file_counts() {
        let Some((mapped, ids)) = own() else { return };
        let mut known = knows(&ids, 0);
        assert_eq!(code(&mut known, &mapped), Some(Score::code_of(0)));
        known.levels.set(ids[0].clone(), Some(2));
        assert_eq!(code(&mut known, &mapped), Some(Score::code_of(2)));
        known.levels.set(ids[1].clone(), None);
        assert_eq!(code(&mut known, &mapped), Some(ANY));
    }

    /// Code of its own making, none at all, and too many files may be anything.
    #[test]
    fn what_is_not_known_may_be_anything() {
        let Some((mapped, ids)) = own() else { return };
        let mut known = knows(&ids, 0);
        let many = mapped.files.iter().cycle().take(FILES_MAX + 1).cloned().collect();
        for mapped in [
            Mapped { others: true, ..mapped.clone() },
            Mapped { files: many, others: false },
            Mapped::default(),
        ] {
            assert_eq!(code(&mut known, &mapped), Some(ANY), "{} files", mapped.files.len());
        }
    }

    /// Asked for, answered once more; not asked for, only if something is new; gone, forgotten.
    #[test]
    fn answers_are_for_who_is_blamed() {
        let Some((_, ids)) = own() else { return };
        let mut known = knows(&ids, 1);
        let pid = std::process::id();
        let blamed = BTreeSet::from([pid, u32::MAX]);
        let code = Codes::from([(pid, Score::code_of(1))]);
        assert_eq!(known.look(&blamed, &GO), code);
        assert_eq!(known.look(&blamed, &GO), code);
        assert_eq!(known.look(&BTreeSet::new(), &GO), Codes::new());
        known.processes.insert(u32::MAX, Some((0, 1)));
        known.look(&BTreeSet::new(), &GO);
        assert_eq!(known.processes.len(), 1);
        assert_eq!(known.forgotten(), Codes::from([(pid, ANY)]));
    }

    /// A process that maps more, which has not been scanned yet, may ask for anything until then.
    #[test]
    fn a_verdict_does_not_outlive_what_it_is_of() {
        let Some((_, ids)) = own() else { return };
        let mut known = knows(&ids, 1);
        let pid = std::process::id();
        known.processes.insert(pid, Some((0, Score::code_of(1))));
        known.levels.forget();
        known.levels.without_time();
        assert_eq!(known.look(&BTreeSet::new(), &GO), Codes::from([(pid, ANY)]));
        assert_eq!(known.processes[&pid], None, "it is looked at again");
    }
}
