// SPDX-License-Identifier: MIT OR Apache-2.0
//! Paths in another root, such as an unpacked container image.
//!
//! Links in it lead to where they would lead for a program whose root it is: an absolute one starts
//! there, and none leads out. The kernel resolves them so (openat2(2), RESOLVE_IN_ROOT, Linux 5.6).

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The path here of a file that has this path in the root.
pub(super) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let folder = File::open(root)?;
    let name = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: zeros are a valid value of this structure of numbers.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_IN_ROOT;
    // SAFETY: the name ends with 0, and the kernel reads as many bytes of `how` as it has.
    let found = unsafe {
        let size = size_of_val(&how);
        libc::syscall(libc::SYS_openat2, folder.as_raw_fd(), name.as_ptr(), &raw const how, size)
    };
    if found < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and no one else has it.
    let found = unsafe { OwnedFd::from_raw_fd(found as i32) };
    fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Absolute and upward links stay in the root.
    #[test]
    fn links_stay_in_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/liba.so.1"), "a").unwrap();
        symlink("/usr/lib", root.join("lib")).unwrap();
        symlink("../../../../usr/lib/liba.so.1", root.join("usr/lib/liba.so")).unwrap();
        for path in ["/lib/liba.so", "usr/lib/liba.so", "/../../lib/liba.so.1"] {
            let found = resolve(&root, Path::new(path)).unwrap();
            assert_eq!(found, root.join("usr/lib/liba.so.1"), "{path}");
        }
        assert_eq!(resolve(&root, Path::new("/")).unwrap(), root);
    }

    /// What the root has not is not found, even if this system has it.
    #[test]
    fn other_files_fail() {
        let root = tempfile::tempdir().unwrap();
        let missing = resolve(root.path(), Path::new("/proc/self/exe")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(resolve(Path::new("/no/such/root"), Path::new("/")).is_err());
    }
}
