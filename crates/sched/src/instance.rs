// SPDX-License-Identifier: MIT OR Apache-2.0
//! One scheduler at a time: a lock file that the kernel releases when its holder ends, however
//! it ends, so that a stale file means nothing.
//!
//! The file is root's alone: whoever can open it, if only for reading, can hold the lock, and so
//! keep every run from starting.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use report::problem::Problem;

use crate::error::{Error, Result};

/// Where sockets and the lock live.
pub const RUN_DIR: &str = "/run/turbolane";

/// From one look at the lock to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// Held while this process is the one instance.
pub struct Instance {
    _lock: File,
}

impl Instance {
    /// Become the one instance, or say who is.
    pub fn acquire() -> Result<Self> {
        Self::acquire_in(Path::new(RUN_DIR))
    }

    /// The same, after the one that goes; waits for it for so long.
    pub fn acquire_within(limit: Duration) -> Result<Self> {
        let start = Instant::now();
        loop {
            match Self::acquire() {
                Err(Error::BadInput(_)) if start.elapsed() < limit => thread::sleep(PAUSE),
                done => return done,
            }
        }
    }

    fn acquire_in(dir: &Path) -> Result<Self> {
        let failed = |e| Error::failed(format!("cannot use {}", dir.display()), e);
        // Not by the umask: in a folder that others may write they could replace the sockets.
        fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed)?;
        let path = dir.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut lock = options.open(&path).map_err(failed)?;
        // One that an older version left is open to readers.
        lock.set_permissions(Permissions::from_mode(0o600)).map_err(failed)?;
        // SAFETY: a plain system call on a descriptor that we own.
        if unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let mut pid = String::new();
            let _ = lock.read_to_string(&mut pid);
            return Err(Error::BadInput(Problem::new(
                "cannot start a second turbolane",
                format!("one runs here already, as process {}", pid.trim()),
                "stop it first, or change its settings by turbolane ctl set",
            )));
        }
        lock.set_len(0).and_then(|()| lock.rewind()).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        Ok(Instance { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No one else can open the lock, and so hold it; also where an older version has left one.
    #[test]
    fn the_lock_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let _instance = Instance::acquire_in(dir.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    /// The second is refused and the error says who the first is; after the first ends, it may.
    #[test]
    fn only_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = Instance::acquire_in(dir.path()).unwrap();
        let refusal = Instance::acquire_in(dir.path()).err().unwrap().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        drop(first);
        Instance::acquire_in(dir.path()).unwrap();
    }
}
