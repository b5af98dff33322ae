// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache folder: everything fetched or built for the test guests.
//!
//! An entry is named `STEP-KEY`, where the key is a hash of all that went into
//! it, so a changed input gives a new entry and an unchanged one costs nothing.
//! It is built under `tmp/` and renamed when complete: an interrupted step
//! leaves nothing that a later run could mistake for a result.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::progress::Step;

/// No guest runs this long.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// The folder that holds kernels, images and peers between runs.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens the user's cache: `$XDG_CACHE_HOME/turbolane`, or
    /// `~/.cache/turbolane`.
    ///
    /// # Errors
    /// When neither variable is set, or the folder cannot be made.
    pub fn open() -> Result<Self> {
        let base = match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(dir), _) if !dir.is_empty() => PathBuf::from(dir),
            (_, Some(home)) => Path::new(&home).join(".cache"),
            _ => bail!(
                "no place for the cache: neither XDG_CACHE_HOME nor HOME is set; set one of them"
            ),
        };
        Self::at(base.join("turbolane"))
    }

    /// Opens a cache at `root`, making the folder if need be.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn at(root: PathBuf) -> Result<Self> {
        for sub in ["tmp", "locks", "logs", "run"] {
            let dir = root.join(sub);
            fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(Self { root })
    }

    /// The folder itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the output of a step's commands goes.
    pub(crate) fn log(&self, step: &str) -> PathBuf {
        self.root.join("logs").join(format!("{step}.log"))
    }

    /// A fresh folder for one guest run, removed when dropped. Those of
    /// processes that were killed outright are removed a day later.
    pub(crate) fn run_dir(&self) -> Result<tempfile::TempDir> {
        let parent = self.root.join("run");
        for old in fs::read_dir(&parent).into_iter().flatten().flatten() {
            let age = old.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed());
            if matches!(age, Ok(Ok(age)) if age > STALE) {
                remove(&old.path())?;
            }
        }
        tempfile::Builder::new()
            .prefix("guest-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))
    }

    /// Where the entry of `step` with these inputs lies, built or not.
    pub(crate) fn entry(&self, step: &str, inputs: &[&str]) -> PathBuf {
        self.root.join(format!("{step}-{}", key(inputs)))
    }

    /// Returns the entry of `step` with these inputs; builds it first when it
    /// is missing. `build` gets a path that does not exist and must create it,
    /// as a file or a folder.
    pub(crate) fn get(
        &self,
        step: &str,
        inputs: &[&str],
        what: &str,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let entry = self.entry(step, inputs);
        if entry.exists() {
            return Ok(entry);
        }
        let _lock = Lock::take(&self.root.join("locks").join(step), what)?;
        if entry.exists() {
            return Ok(entry);
        }
        let tmp = self.root.join("tmp").join(step);
        remove(&tmp)?;
        let progress = Step::start(what);
        build(&tmp).with_context(|| format!("{what} failed"))?;
        fs::rename(&tmp, &entry)
            .with_context(|| format!("cannot move {} into place", entry.display()))?;
        progress.done();
        Ok(entry)
    }
}

/// An advisory lock: two sessions must not build the same entry twice, nor
/// clear each other's half-built files. The kernel drops it with the process.
struct Lock(#[expect(dead_code, reason = "held, not read: closing it unlocks")] File);

impl Lock {
    fn take(path: &Path, what: &str) -> Result<Self> {
        let file = File::create(path)
            .with_context(|| format!("cannot make the lock {}", path.display()))?;
        let flock = |operation| {
            // SAFETY: flock takes no pointers, and the descriptor is open.
            unsafe { libc::flock(file.as_raw_fd(), operation) == 0 }
        };
        if !flock(libc::LOCK_EX | libc::LOCK_NB) {
            let _waiting = Step::start(&format!("{what}: waiting for another process"));
            if !flock(libc::LOCK_EX) {
                let error = std::io::Error::last_os_error();
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(Self(file))
    }
}

/// Removes a half-built entry or a left-over, if there is one, but never walks into a mounted file system.
pub(crate) fn remove(path: &Path) -> Result<()> {
    let Ok(meta) = path.symlink_metadata() else {
        return Ok(());
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = mount_below(&mounts, path) {
        bail!("{mount} is a mount point inside the cache; unmount it, then try again");
    }
    let removed = if meta.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// The first mount point at or below `path` in a `mountinfo` text.
fn mount_below<'a>(mountinfo: &'a str, path: &Path) -> Option<&'a str> {
    mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|mount| Path::new(mount).starts_with(path))
}

/// FNV-1a over the inputs: stable between compilers, and nobody attacks it.
fn key(inputs: &[&str]) -> String {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for input in inputs {
        for byte in input.bytes().chain([0]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    let mut text = String::with_capacity(16);
    write!(text, "{hash:016x}").expect("writing to a String cannot fail");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_depends_on_every_input_and_their_borders() {
        assert_eq!(key(&["a", "b"]), key(&["a", "b"]));
        assert_ne!(key(&["a", "b"]), key(&["ab"]));
        assert_ne!(key(&["a", "b"]), key(&["b", "a"]));
    }

    #[test]
    fn built_once_then_found() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        let build = |path: &Path| Ok(fs::write(path, "x")?);
        let first = cache.get("step", &["1"], "test step", build).unwrap();
        let again = cache.get("step", &["1"], "test step", |_| bail!("built twice")).unwrap();
        assert_eq!(first, again);
    }

    #[test]
    fn failed_build_leaves_no_entry_and_can_be_repeated() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        let half = |path: &Path| -> Result<()> {
            fs::create_dir(path)?;
            fs::write(path.join("half"), "x")?;
            bail!("cut off")
        };
        assert!(cache.get("step", &["1"], "test step", half).is_err());
        assert!(!cache.entry("step", &["1"]).exists());
        let whole = |path: &Path| Ok(fs::create_dir(path)?);
        let entry = cache.get("step", &["1"], "test step", whole).unwrap();
        assert!(!entry.join("half").exists());
    }

    #[test]
    fn mounts_inside_are_seen() {
        let info = "22 1 0:21 / /proc rw - proc proc rw\n\
                    40 1 0:22 / /c/tmp/root/proc rw - proc proc rw\n";
        let path = Path::new("/c/tmp/root");
        assert_eq!(mount_below(info, path), Some("/c/tmp/root/proc"));
        assert_eq!(mount_below(info, Path::new("/c/tmp/other")), None);
    }
}
