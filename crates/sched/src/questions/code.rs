// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which licence level a process's code can ask for at most, for power scores (rule 5 of
//! policy/score.h).
//!
//! **Problem.** A power score blames the task that runs for the level that its core has. With SMT
//! that may be the sibling's (DIM 5.2, 7.2).
//!
//! **Idea.** What no instruction of a process's files asks for, the process did not ask for. Only
//! processes that have been blamed are looked at, and from then on once in a second, since they may
//! load libraries. A process with executable memory of its own making, or of a file that cannot be
//! scanned, may ask for anything.
//!
//! **Limits.** Whatever a process may do counts, whether it does it or not: the C library has light
//! 512-bit code, so that most programs may ask for level 1. A library that is loaded later counts a
//! second later.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use policy::{LEVEL_MAX, Score};

use super::files::may_block;
use super::levels::Levels;
use super::maps::{Id, Mapped, Mapping, folder};

/// [`Score::code`] of processes.
pub(crate) type Codes = BTreeMap<u32, u8>;

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
            let mut known = Known::default();
            while let Ok(blamed) = asked.recv() {
                if answer.send(known.look(&blamed, &ending)).is_err() {
                    break;
                }
            }
        })?;
        Ok(Judge { questions, answers, is_busy: false, ends })
    }

    /// Asks for these processes, unless an answer is due: whether it has asked.
    pub(crate) fn ask(&mut self, blamed: BTreeSet<u32>) -> bool {
        let asks = !self.is_busy && self.questions.send(blamed).is_ok();
        self.is_busy |= asks;
        asks
    }

    /// The answer, if it has come: of all that were asked for and can be answered, and of those
    /// from before that have changed.
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
    processes: BTreeMap<u32, (Mapped, u8)>,
}

impl Known {
    fn look(&mut self, blamed: &BTreeSet<u32>, stop: &AtomicBool) -> Codes {
        let all: BTreeSet<u32> = blamed.iter().chain(self.processes.keys()).copied().collect();
        let mut codes = Codes::new();
        for pid in all {
            let Some(mapped) = Mapped::read(&folder(pid)) else {
                self.processes.remove(&pid);
                continue;
            };
            match self.processes.get(&pid) {
                Some((known, code)) if *known == mapped => {
                    if blamed.contains(&pid) {
                        codes.insert(pid, *code);
                    }
                }
                _ => codes.extend(self.judge(pid, mapped, stop).map(|code| (pid, code))),
            }
        }
        codes
    }

    /// `None`: not yet, or it maps something else meanwhile.
    fn judge(&mut self, pid: u32, mapped: Mapped, stop: &AtomicBool) -> Option<u8> {
        let process = folder(pid);
        let code = self.code(&process, &mapped, stop)?;
        let is_the_same = Mapped::read(&process).is_some_and(|now| now == mapped);
        is_the_same.then(|| {
            self.processes.insert(pid, (mapped, code));
            code
        })
    }

    /// `None`: not yet.
    fn code(&mut self, process: &Path, mapped: &Mapped, stop: &AtomicBool) -> Option<u8> {
        const ANY: u8 = 0;
        if mapped.others || mapped.files.is_empty() {
            return Some(ANY);
        }
        let mut highest = 0;
        for mapping in &mapped.files {
            if may_block(process, &mapping.id.0) {
                return Some(ANY);
            }
            let file = mapping.open(process).ok()?;
            let id = version(mapping, &file)?;
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
fn version(mapping: &Mapping, file: &File) -> Option<Id> {
    let meta = file.metadata().ok()?;
    let (device, inode) = &mapping.id;
    let time = format!("{}.{}", meta.mtime(), meta.mtime_nsec());
    Some((format!("{device} {} {time}", meta.len()), *inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    static GO: AtomicBool = AtomicBool::new(false);

    fn own() -> Option<(Mapped, Vec<Id>)> {
        let process = Path::new("/proc/self");
        let mapped = Mapped::read(process)?;
        // Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE, and a local file system.
        let version = |mapping: &Mapping| {
            let file = mapping.open(process).ok().filter(|_| !may_block(process, &mapping.id.0))?;
            version(mapping, &file)
        };
        let ids = mapped.files.iter().map(version).collect::<Option<_>>()?;
        Some((mapped, ids))
    }

    /// The highest level of all files counts; what cannot be said of one, cannot be said.
    #[test]
    fn the_highest_file_counts() {
        let Some((mapped, ids)) = own() else { return };
        let process = Path::new("/proc/self");
        let mut known = Known::default();
        for id in &ids {
            known.levels.set(id.clone(), Some(0));
        }
        assert_eq!(known.code(process, &mapped, &GO), Some(Score::code_of(0)));
        known.levels.set(ids[0].clone(), Some(2));
        assert_eq!(known.code(process, &mapped, &GO), Some(Score::code_of(2)));
        known.levels.set(ids[1].clone(), None);
        assert_eq!(known.code(process, &mapped, &GO), Some(0));
    }

    /// Code of its own making, and none at all, may be anything.
    #[test]
    fn what_is_not_known_may_be_anything() {
        let Some((mapped, ids)) = own() else { return };
        let process = Path::new("/proc/self");
        let mut known = Known::default();
        for id in &ids {
            known.levels.set(id.clone(), Some(0));
        }
        for mapped in [Mapped { others: true, ..mapped }, Mapped::default()] {
            assert_eq!(known.code(process, &mapped, &GO), Some(0), "{mapped:?}");
        }
    }

    /// Asked for, answered once more; not asked for, only if something is new; gone, forgotten.
    #[test]
    fn answers_are_for_who_is_blamed() {
        let Some((_, ids)) = own() else { return };
        let mut known = Known::default();
        for id in &ids {
            known.levels.set(id.clone(), Some(1));
        }
        let pid = std::process::id();
        let blamed = BTreeSet::from([pid, u32::MAX]);
        let code = Codes::from([(pid, Score::code_of(1))]);
        assert_eq!(known.look(&blamed, &GO), code);
        assert_eq!(known.look(&blamed, &GO), code);
        assert_eq!(known.look(&BTreeSet::new(), &GO), Codes::new());
        known.processes.insert(u32::MAX, (Mapped::default(), 1));
        known.look(&BTreeSet::new(), &GO);
        assert_eq!(known.processes.len(), 1);
    }
}
