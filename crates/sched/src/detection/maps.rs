// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a process has mapped as code.

use std::fs;
use std::path::{Path, PathBuf};

/// Executable mappings of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mapped {
    /// Files, as the process sees them, ascending, each once.
    pub(super) files: Vec<String>,
    /// There is executable memory of no file, or of one that was deleted.
    pub(super) others: bool,
}

impl Mapped {
    /// Of the process with this folder in /proc; `None` if it has ended.
    pub(super) fn read(process: &Path) -> Option<Self> {
        // Names need not be UTF-8; such a file is not found, and so is not known.
        let maps = fs::read(process.join("maps")).ok()?;
        Some(Self::parse(&String::from_utf8_lossy(&maps)))
    }

    fn parse(maps: &str) -> Self {
        let mut mapped = Mapped::default();
        for line in maps.lines() {
            // address protection offset device inode name
            let is_code = line.split(' ').nth(1).is_some_and(|protection| protection.contains('x'));
            if !is_code {
                continue;
            }
            match name(line) {
                // The kernel's own, which has no vector code; [uprobes]: copies of probed instructions.
                "[vdso]" | "[vsyscall]" | "[uprobes]" => {}
                path if path.starts_with('/') && !path.ends_with(" (deleted)") => {
                    mapped.files.push(path.into());
                }
                _ => mapped.others = true,
            }
        }
        mapped.files.sort_unstable();
        mapped.files.dedup();
        mapped
    }
}

/// What follows the five fields and the blanks behind them; may hold blanks itself.
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

/// A path as the process sees it, in a container of its own.
pub(super) fn in_root(root: &Path, path: &str) -> PathBuf {
    let mut whole = root.as_os_str().to_owned();
    whole.push(path);
    PathBuf::from(whole)
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

    #[test]
    fn only_files_mapped_as_code() {
        let mapped = Mapped::parse(FILES);
        assert_eq!(mapped.files, ["/usr/bin/a", "/usr/lib/with space.so"]);
        assert!(!mapped.others);
    }

    /// Code that no file accounts for is noticed.
    #[test]
    fn other_code_is_noticed() {
        for line in [
            "7f0000004000-7f0000005000 r-xp 00000000 fe:00 14 /tmp/gone (deleted)",
            "7f0000004000-7f0000005000 rwxp 00000000 00:00 0 ",
            "7f0000004000-7f0000005000 rwxp 00000000 00:00 0                          [heap]",
            "7f0000004000-7f0000005000 r-xp 00000000 00:01 9    /memfd:jit (deleted)",
        ] {
            let mapped = Mapped::parse(&format!("{FILES}{line}\n"));
            assert!(mapped.others && mapped.files.len() == 2, "{line}");
        }
    }
}
