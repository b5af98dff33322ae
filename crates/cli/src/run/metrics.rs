// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--metrics FILE`: a run's metrics in a file that node_exporter's textfile collector reads.
//!
//! **Problem.** Prometheus fetches metrics over HTTP. A server in a process that runs as root and
//! may load BPF programs would be reachable from the network, and would have to parse what comes
//! from there.
//!
//! **Idea.** Machines that Prometheus watches have node_exporter, which offers the files of one
//! folder with its own metrics. So the run writes a file, and no port is opened. A file is always
//! complete: a new one is written beside it, under a name that the collector does not read, and
//! renamed.
//!
//! A thread writes, so that a file system that does not answer delays neither the supervising loop
//! nor the end of the run. The file is removed at the end, since metrics of a run that is over
//! would be taken for present ones. After `kill -9` it is left: its counters no longer grow, which
//! the alert `TurbolaneStalled` of dist/prometheus finds, and the next run replaces it.
//!
//! **Limits.** A file that is not one of ours is not replaced, so that a wrong path destroys
//! nothing.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use report::ctl::{Reply, Request};
use report::metrics::{Format, Scrape};
use report::problem::Problem;
use sched::lane::Lane;

use crate::failure::{Failure, tell, unwritable};
use crate::replacement::{folder_of, replacement};

/// Time between two files: Prometheus usually fetches every 15 s to a minute.
const PERIOD: Duration = Duration::from_secs(10);
/// The longest that the end of a run waits for the file's removal.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How our files begin.
const FIRST_WORDS: &[u8] = b"# HELP turbolane_";
/// The end of the names that the collector reads.
const READ_BY_COLLECTOR: &str = "prom";

/// Refuses a place where no file can be, or where another program's file is.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let folder = folder_of(path);
    let refused = |why: String, next: &str| {
        let what = format!("cannot write metrics to {}", path.display());
        Err(Failure::failed(Problem::new(what, why, next)))
    };
    if !folder.is_dir() {
        let why = format!("there is no folder {}", folder.display());
        return refused(
            why,
            "name the folder that node_exporter reads: --collector.textfile.directory",
        );
    }
    let mut first = [0; FIRST_WORDS.len()];
    match File::open(path).and_then(|mut file| file.read_exact(&mut first)) {
        Ok(()) if first == FIRST_WORDS => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => {
            refused(error.to_string(), "name another file")
        }
        _ => refused("a file is there that turbolane did not write".into(), "name another file"),
    }
}

/// A note if node_exporter would not read a file of this name.
pub(crate) fn name_note(path: &Path) -> Option<String> {
    let is_read = path.extension().is_some_and(|extension| extension == READ_BY_COLLECTOR);
    (!is_read).then(|| {
        format!("node_exporter reads only files whose names end in .prom, not {}", path.display())
    })
}

/// Refuses a place where this process can make no file. For a moment there is one.
pub(super) fn check_writable(path: &Path) -> Result<(), Failure> {
    check(path)?;
    replacement(path, b"").map(drop).map_err(|error| unwritable(path, &error))
}

/// The metrics of a run, written until this is dropped.
pub(super) struct Metrics {
    due: Instant,
    /// The latest text; a text is dropped while the one before it is not written.
    texts: Option<SyncSender<String>>,
    /// Disconnected when the file is removed.
    removed: Receiver<()>,
}

impl Metrics {
    /// Starts the thread. The caller holds the lane: at the end the file is removed, which must not
    /// be another run's.
    pub(super) fn start(path: &Path) -> Result<Self, Failure> {
        let (texts, written) = sync_channel(1);
        let (alive, removed) = channel();
        let path = path.to_owned();
        let work = move || {
            write_until_closed(&path, &written);
            drop(alive);
        };
        thread::Builder::new().name("metrics".into()).spawn(work).map_err(|error| {
            let next = "raise the limit on threads, or leave --metrics out";
            Failure::failed(Problem::new("cannot write metrics", error.to_string(), next))
        })?;
        Ok(Metrics { due: Instant::now(), texts: Some(texts), removed })
    }

    /// Has the present values written, if that is due.
    pub(super) fn write_if_due(&mut self, lane: &Lane) {
        let now = Instant::now();
        let (Some(texts), true) = (&self.texts, now >= self.due) else { return };
        self.due = now + PERIOD;
        if let Reply::Status(status) = lane.ask(Request::Status) {
            let version = env!("CARGO_PKG_VERSION").into();
            let scrape = Scrape { version, status, stats: lane.stats() };
            _ = texts.try_send(scrape.text(Format::Prometheus));
        }
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        self.texts = None;
        let waited = self.removed.recv_timeout(REMOVAL_TIMEOUT);
        if waited == Err(RecvTimeoutError::Timeout) {
            tell("the file of --metrics could not be removed in time");
        }
    }
}

/// Writes each text, and removes the file after the last one.
fn write_until_closed(path: &Path, texts: &Receiver<String>) {
    let mut is_failing = false;
    for text in texts {
        let result = write(path, &text);
        if let (Err(error), false) = (&result, is_failing) {
            tell(&format!("cannot write metrics to {}: {error}; trying again", path.display()));
        }
        is_failing = result.is_err();
    }
    // It may never have been written.
    _ = fs::remove_file(path);
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    replacement(path, text.as_bytes())?.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "# HELP turbolane_run_info x\n";

    fn why(path: &Path) -> String {
        check(path).unwrap_err().why().to_owned()
    }

    /// Our own file of an earlier run is replaced, and no other one.
    #[test]
    fn files_of_others_fail() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        check(&path).unwrap();
        fs::write(&path, OURS).unwrap();
        check(&path).unwrap();
        for other in ["", "# HELP", "root:x:0:0:root:/root:/bin/bash\n"] {
            fs::write(&path, other).unwrap();
            assert!(why(&path).contains("did not write"), "{other:?}");
        }
        assert!(why(folder.path()).contains("directory"));
        assert!(why(&folder.path().join("no/a.prom")).contains("there is no folder"));
        assert!(check_writable(&path).is_err());
        fs::remove_file(&path).unwrap();
        check_writable(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// The last text is in the file until the run ends; then nothing is left, also not of a new
    /// file.
    #[test]
    fn the_file_ends_with_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        let metrics = Metrics::start(&path).unwrap();
        assert!(!path.exists());
        metrics.texts.as_ref().unwrap().send(OURS.into()).unwrap();
        while fs::read_to_string(&path).unwrap_or_default() != OURS {
            thread::yield_now();
        }
        drop(metrics);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A folder that disappears is reported once, and a run goes on.
    #[test]
    fn a_lost_folder_is_survived() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.prom");
        let metrics = Metrics::start(&path).unwrap();
        folder.close().unwrap();
        let texts = metrics.texts.as_ref().unwrap();
        (0..3).for_each(|_| texts.send(OURS.into()).unwrap());
        drop(metrics);
        assert!(!path.exists());
    }

    /// Only names that the collector reads pass without a note.
    #[test]
    fn names_that_nothing_reads_are_noted() {
        assert_eq!(name_note(Path::new("/a/turbolane.prom")), None);
        assert!(name_note(Path::new("/a/turbolane.txt")).is_some());
        assert!(name_note(Path::new("/a/prom")).is_some());
    }
}
