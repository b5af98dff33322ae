// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cache folder: everything fetched or built for the test guests.
//!
//! An entry is named `STEP-KEY`, where the key is a hash of all that went into
//! it, so a changed input gives a new entry and an unchanged one costs nothing.
//! It is built under `tmp/` and renamed when complete: an interrupted step
//! leaves nothing that a later run could mistake for a result.
//!
//! What no run has used for [`UNUSED`] goes when an entry of its step is built anew: it belongs to
//! versions that are no longer checked out anywhere. The time of an entry is that of its last use.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::progress::Step;

/// No guest runs this long.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// No run that is under way has begun so long ago.
const UNUSED: Duration = Duration::from_secs(30 * 24 * 3600);

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
        remove_older(&parent, "guest-", STALE)?;
        tempfile::Builder::new()
            .prefix("guest-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot make a folder in {}", parent.display()))
    }

    /// The entry of `step` with these inputs, if it has been built.
    pub(crate) fn find(&self, step: &str, inputs: &[&str]) -> Option<PathBuf> {
        Some(self.entry(step, inputs)).filter(|entry| is_found(entry))
    }

    /// Where the entry of `step` with these inputs lies, built or not.
    fn entry(&self, step: &str, inputs: &[&str]) -> PathBuf {
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
        if is_found(&entry) {
            return Ok(entry);
        }
        let _lock = Lock::take(&self.root.join("locks").join(step), what)?;
        if is_found(&entry) {
            return Ok(entry);
        }
        let tmp = self.root.join("tmp").join(step);
        remove(&tmp)?;
        let progress = Step::start(what);
        build(&tmp).with_context(|| format!("{what} failed"))?;
        fs::rename(&tmp, &entry)
            .with_context(|| format!("cannot move {} into place", entry.display()))?;
        progress.done();
        remove_older(&self.root, &format!("{step}-"), UNUSED)?;
        Ok(entry)
    }
}

/// Whether the entry is there, which is used then.
fn is_found(entry: &Path) -> bool {
    // Who may not set its time may read it all the same.
    File::open(entry).map(|file| file.set_modified(SystemTime::now())).is_ok()
}

/// Removes what begins with `prefix` in a folder and has not changed for `age`.
fn remove_older(folder: &Path, prefix: &str, age: Duration) -> Result<()> {
    for old in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = old.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(prefix));
        // Step `a` is not to remove entries of step `a-b`.
        let is_ours = rest.is_some_and(|rest| !rest.contains('-'));
        let changed = old.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed());
        if is_ours && matches!(changed, Ok(Ok(ago)) if ago > age) {
            remove(&old.path())?;
        }
    }
    Ok(())
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

/// Removes a half-built entry or a left-over, if there is one, but never walks into a mounted file
/// system.
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

/// The key of a single input that need not be text, such as a library's bytes.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(fnv(FNV_START, bytes.iter().copied()))
}

fn key(inputs: &[&str]) -> String {
    let bytes = inputs.iter().flat_map(|input| input.bytes().chain([0]));
    hex(fnv(FNV_START, bytes))
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: stable between compilers, and nobody attacks it.
fn fnv(start: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn hex(hash: u64) -> String {
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

    /// An entry goes when it has not been used for long and another of its step is built; one that
    /// is used stays.
    #[test]
    fn what_nobody_uses_goes() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().to_owned()).unwrap();
        let get = |step: &str, input: &str| {
            cache.get(step, &[input], "test step", |path| Ok(fs::create_dir(path)?)).unwrap()
        };
        let long_ago = SystemTime::now() - UNUSED - Duration::from_secs(60);
        let age = |entry: &Path| File::open(entry).unwrap().set_modified(long_ago).unwrap();
        let (unused, used, other) = (get("step", "1"), get("step", "2"), get("step-b", "1"));
        [&unused, &used, &other].into_iter().for_each(|entry| age(entry));
        get("step", "2");
        assert!(unused.exists(), "nothing was built");
        get("step", "3");
        assert!(!unused.exists() && used.exists() && other.exists());
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
