// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has mapped as code.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Device and inode, as the kernel names them in a process's maps.
pub(super) type Id = (String, u64);

/// A file that is mapped as code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mapping {
    /// Device and inode.
    pub(super) id: Id,
    /// Of one of its mappings, as /proc/PID/map_files names it.
    range: String,
}

impl Mapping {
    /// The mapped file itself, whatever its name leads to by now. An error if it is not a regular
    /// file, or is mapped there no longer.
    pub(super) fn open(&self, process: &Path) -> io::Result<File> {
        open_regular(&process.join("map_files").join(&self.range))
    }

    /// The same, found and held without any effect on the file system that it is on.
    pub(super) fn find(&self, process: &Path) -> io::Result<File> {
        find(&process.join("map_files").join(&self.range))
    }
}

/// Opens a file for reading, if it is a regular one; nothing else is touched. `path` may be a link.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    open_found(&find(path)?)
}

fn find(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)
}

/// Opens what was found for reading, if it is a regular file.
pub(super) fn open_found(found: &File) -> io::Result<File> {
    if !found.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd()))
}

/// How mappings of a virtual machine's CPUs are named.
const VIRTUAL_CPU: &str = "anon_inode:kvm-vcpu";

/// Executable mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Mapped {
    /// Files, by device and inode, each once.
    pub(super) files: Vec<Mapping>,
    /// There is executable memory of no file, or a virtual machine.
    pub(super) others: bool,
}

impl Mapped {
    /// Of the process with this folder in /proc; `None` if it has ended.
    pub(super) fn read(process: &Path) -> Option<Self> {
        // Names need not be UTF-8, and are not used.
        let maps = fs::read(process.join("maps")).ok()?;
        Some(Self::parse(&String::from_utf8_lossy(&maps)))
    }

    pub(super) fn parse(maps: &str) -> Self {
        let mut mapped = Mapped::default();
        for line in maps.lines() {
            // address protection offset device inode name
            let mut fields = line.split(' ');
            let range = fields.next().unwrap_or_default();
            if !fields.next().is_some_and(|protection| protection.contains('x')) {
                // A virtual machine's code is in no executable mapping.
                mapped.others |= name(line).starts_with(VIRTUAL_CPU);
                continue;
            }
            let device = fields.nth(1).unwrap_or_default();
            let inode = fields.next().and_then(|inode| inode.parse().ok()).unwrap_or(0);
            match name(line) {
                // The kernel's own, which has no vector code; [uprobes]: copies of probed
                // instructions.
                "[vdso]" | "[vsyscall]" | "[uprobes]" => {}
                _ if inode != 0 => mapped
                    .files
                    .push(Mapping { id: (device.into(), inode), range: without_zeros(range) }),
                _ => mapped.others = true,
            }
        }
        mapped.files.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        mapped.files.dedup_by(|a, b| a.id == b.id);
        mapped
    }
}

/// A range of maps, which has eight digits at least, as map_files has it.
fn without_zeros(range: &str) -> String {
    let short = |address: &str| {
        let digits = address.trim_start_matches('0');
        if digits.is_empty() { "0".to_owned() } else { digits.to_owned() }
    };
    let (start, end) = range.split_once('-').unwrap_or_default();
    format!("{}-{}", short(start), short(end))
}

/// What follows the five fields and the blanks after them; may hold blanks itself.
fn name(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.split_once(' ').map_or("", |(_, rest)| rest);
    }
    rest.trim_start()
}

/// The folder of a process in /proc.
pub(super) fn folder(pid: u32) -> PathBuf {
    Path::new("/proc").join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: &str = "\
        400000-401000 r--p 00000000 fe:00 11 /usr/bin/a\n\
        401000-402000 r-xp 00001000 fe:00 11 /usr/bin/a\n\
        7f0000000000-7f0000001000 r-xp 00000000 fe:00 12    /usr/lib/with space.so\n\
        7f0000002000-7f0000003000 rw-p 00000000 fe:00 13 /usr/lib/data\n\
        7f0000005000-7f0000006000 rw-p 00000000 00:00 0 \n\
        7f0000007000-7f0000008000 --xp 00000000 00:00 0                          [uprobes]\n\
        7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]\n";

    fn names(mapped: &Mapped) -> Vec<(&str, u64, &str)> {
        mapped
            .files
            .iter()
            .map(|file| (file.id.0.as_str(), file.id.1, file.range.as_str()))
            .collect()
    }

    #[test]
    fn only_files_mapped_as_code() {
        let mapped = Mapped::parse(FILES);
        let expected = [("fe:00", 11, "401000-402000"), ("fe:00", 12, "7f0000000000-7f0000001000")];
        assert_eq!(names(&mapped), expected);
        assert!(!mapped.others);
    }

    /// What has no name any more, or never had one, is a file as well.
    #[test]
    fn names_do_not_matter() {
        for name in ["/tmp/gone (deleted)", "/memfd:jit (deleted)", "/usr/bin/\\012/new"] {
            let line = format!("00001000-00002000 r-xp 00000000 00:01 9    {name}\n");
            let mapped = Mapped::parse(&line);
            assert_eq!(names(&mapped), [("00:01", 9, "1000-2000")], "{name}");
        }
    }

    /// Code that no file accounts for is noticed.
    #[test]
    fn other_code_is_noticed() {
        for line in [
            "7f0000004000-7f0000005000 rwxp 00000000 00:00 0 ",
            "7f0000004000-7f0000005000 rwxp 00000000 00:00 0                          [heap]",
            "7f0000006000-7f0000009000 rw-s 00000000 00:10 9    anon_inode:kvm-vcpu:0",
        ] {
            let mapped = Mapped::parse(&format!("{FILES}{line}\n"));
            assert!(mapped.others && mapped.files.len() == 2, "{line}");
        }
    }

    /// A program whose path leads to another file by now is still the one that is opened.
    #[test]
    fn what_is_opened_is_what_is_mapped() {
        let Ok(own) = fs::metadata("/proc/self/exe") else { return };
        let process = Path::new("/proc/self");
        let mapped = Mapped::read(process).unwrap();
        use std::os::unix::fs::MetadataExt;
        let found = mapped.files.iter().find(|file| file.id.1 == own.ino()).expect("mapped");
        // Needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE.
        let Ok(file) = found.open(process) else { return };
        let opened = file.metadata().unwrap();
        assert_eq!((opened.dev(), opened.ino()), (own.dev(), own.ino()));
    }
}
