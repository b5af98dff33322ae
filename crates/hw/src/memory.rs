// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executable memory of other processes: from which files it comes, and what lies in the rest.
//!
//! Reading only. A process whose memory may not be read says "permission denied": it takes the
//! rights of ptrace (the same user, no capabilities that we lack, Yama's setting).

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Memory of one mapping that is read at most: compilers reserve more than they fill.
const READ_MAX_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;
/// Four million functions with names of 40 letters; the largest programs have some 100,000.
const PERF_MAP_MAX_BYTES: u64 = 256 << 20;

/// A part of a process's memory from which instructions can be fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address of its first byte.
    pub start: u64,
    /// After its last byte.
    pub end: u64,
    /// Offset of its first byte in its file; 0 without a file.
    pub offset: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where executable memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, by its name when it was mapped, and its device and inode.
    File {
        /// Its path; a deleted file's ends in " (deleted)".
        path: PathBuf,
        /// Which file: `device inode`.
        identity: String,
    },
    /// Written by the program itself, or by its just-in-time compiler.
    Written,
    /// The kernel's: vdso, vsyscall.
    Kernel,
}

/// The executable mappings of a process, by address.
///
/// # Errors
/// "Not found" if there is no such process, "permission denied" if it may not be looked at.
pub fn executable_mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    // Of a process that may not be looked at, old kernels show an empty list; so does a zombie.
    if maps.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    Ok(maps.lines().filter_map(mapping_of).collect())
}

/// `start-end perms offset device inode path` (proc_pid_maps(5)).
fn mapping_of(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ')?;
        rest = after.trim_start();
        Some(field)
    };
    let (range, rights, offset) = (field()?, field()?, field()?);
    let device = field()?;
    let (inode, path) = rest.split_once(' ').unwrap_or((rest, ""));
    let path = path.trim_start();
    let (start, end) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let origin = match path {
        "[vdso]" | "[vsyscall]" | "[uprobes]" => Origin::Kernel,
        _ if inode == "0" || path.starts_with("/memfd:") || path.starts_with("/dev/zero") => {
            Origin::Written
        }
        _ => Origin::File { path: path.into(), identity: format!("{device} {inode}") },
    };
    let is_executable = rights.as_bytes().get(2) == Some(&b'x');
    let (start, end, offset) = (address(start)?, address(end)?, address(offset)?);
    is_executable.then_some(Mapping { start, end, offset, origin })
}

/// The file of a mapping, also if it was deleted or lies in another mount namespace.
///
/// # Errors
/// When it cannot be opened by either of two paths.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<File> {
    // By the mapping itself, which takes rights that by the name does not.
    let link = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.start, mapping.end);
    File::open(link).or_else(|error| match &mapping.origin {
        Origin::File { path, .. } => {
            let below = path.strip_prefix("/").map_err(|_| error)?;
            File::open(PathBuf::from(format!("/proc/{pid}/root")).join(below))
        }
        _ => Err(error),
    })
}

/// The bytes of a mapping, up to the first page that cannot be read, at most 1 GiB of them.
///
/// # Errors
/// When the memory may not be read.
pub fn read_mapping(pid: u32, mapping: &Mapping) -> io::Result<Vec<u8>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut bytes = Vec::new();
    let mut page = [0; PAGE_BYTES as usize];
    let mut at = mapping.start;
    while at < mapping.end && at - mapping.start < READ_MAX_BYTES {
        match memory.read_at(&mut page, at) {
            Ok(0) => break,
            Ok(count) => {
                bytes.extend_from_slice(&page[..count]);
                at += count as u64;
            }
            // A hole: reserved, never filled.
            Err(_) if !bytes.is_empty() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// What the process's just-in-time compiler has written for perf, if it has: its text.
///
/// Everybody may put something under that name in /tmp. It counts only as a regular file of the
/// process's user or of root, with at most 256 MiB.
#[must_use]
pub fn perf_map(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    let own: u32 = field("NSpid:")?.split_ascii_whitespace().next_back()?.parse().ok()?;
    // Real, effective, saved and file system's; files are made as the last.
    let user: u32 = field("Uid:")?.split_ascii_whitespace().next_back()?.parse().ok()?;
    let path = PathBuf::from(format!("/proc/{pid}/root/tmp/perf-{own}.map"));
    let bytes = read_of_user(&path, user, PERF_MAP_MAX_BYTES)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// All bytes of a regular file of this user or of root, if they are few enough. No link is
/// followed, and nothing is waited for: neither the other end of a pipe nor a lease.
fn read_of_user(path: &Path, user: u32, max_bytes: u64) -> Option<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || (meta.uid() != user && meta.uid() != 0) || meta.len() > max_bytes {
        return None;
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(max_bytes + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= max_bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files, compilers' memory and the kernel's pages are distinguished; what is not executable is
    /// left out.
    #[test]
    fn lines_are_told_apart() {
        let of = |line: &str| mapping_of(line).map(|mapping| mapping.origin);
        assert_eq!(
            of("7f00-7f10 r-xp 00001000 fe:01 42                         /a b/lib.so (deleted)"),
            Some(Origin::File {
                path: "/a b/lib.so (deleted)".into(),
                identity: "fe:01 42".into()
            })
        );
        assert_eq!(of("7f00-7f10 rwxp 00000000 00:00 0 "), Some(Origin::Written));
        assert_eq!(of("7f00-7f10 rwxp 00000000 00:00 0"), Some(Origin::Written));
        assert_eq!(
            of("7f00-7f10 r-xs 00000000 00:01 7  /memfd:doublemapper (deleted)"),
            Some(Origin::Written)
        );
        assert_eq!(of("7f00-7f10 r-xp 00000000 00:00 0    [vdso]"), Some(Origin::Kernel));
        assert_eq!(of("7f00-7f10 r--p 00000000 fe:01 42   /lib.so"), None);
        assert_eq!(of("rubbish"), None);
    }

    /// This process maps its own program, and its code reads as it is in memory.
    #[test]
    fn own_memory_is_read() {
        let pid = std::process::id();
        let mappings = executable_mappings(pid).unwrap();
        let here = own_memory_is_read as *const () as u64;
        let own =
            mappings.iter().find(|mapping| (mapping.start..mapping.end).contains(&here)).unwrap();
        assert!(matches!(own.origin, Origin::File { .. }));
        let bytes = read_mapping(pid, own).unwrap();
        // SAFETY: the code of a function of this program, of which 16 bytes are there.
        let code = unsafe { std::slice::from_raw_parts(here as *const u8, 16) };
        let at = (here - own.start) as usize;
        assert_eq!(&bytes[at..at + 16], code);
        assert!(open_mapped(pid, own).is_ok());
    }

    /// What someone else has put there is not read, and waits for no one: a pipe, a link, a device,
    /// a file of another user, one that is too long.
    #[test]
    fn what_is_no_perf_map_fails() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        // SAFETY: no arguments.
        let user = unsafe { libc::geteuid() };
        let read = |name: &str| read_of_user(&at(name), user, 8);
        fs::write(at("file"), "7f00 10").unwrap();
        assert_eq!(read("file").unwrap(), b"7f00 10");
        fs::write(at("long"), "7f00 10 f").unwrap();
        assert_eq!(read("long"), None);
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert_eq!(read("link"), None);
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        assert_eq!(read("pipe"), None);
        assert_eq!(read_of_user(Path::new("/dev/zero"), user, 8), None);
        assert_eq!(read("nothing"), None);
        if user == 0 {
            std::os::unix::fs::chown(at("file"), Some(65534), None).unwrap();
            assert_eq!(read("file"), None);
            assert!(read_of_user(&at("file"), 65534, 8).is_some(), "the process's own");
        }
    }

    /// A perf map of this process: as it is, and as a pipe that no one writes to.
    #[test]
    fn pipes_in_place_of_a_perf_map_fail() {
        let path = PathBuf::from(format!("/tmp/perf-{}.map", std::process::id()));
        fs::write(&path, "7f00 10 f\n").unwrap();
        assert_eq!(perf_map(std::process::id()).as_deref(), Some("7f00 10 f\n"));
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(perf_map(std::process::id())));
        let answer = receiver.recv_timeout(std::time::Duration::from_secs(60));
        fs::remove_file(&path).unwrap();
        assert_eq!(answer, Ok(None), "it waits for a writer");
    }

    /// A process that is not there is "not found".
    #[test]
    fn dead_processes_fail() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(executable_mappings(pid).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
