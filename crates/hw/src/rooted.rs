// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine below a folder: `/sys` is `ROOT/sys`. The live machine for root `/`; else a tree that
//! serves as a test machine, or another machine's files brought here.
//!
//! Registers of the CPU are those of no CPU (zeros): what a folder cannot hold is not known.

use std::io;
use std::path::{Path, PathBuf};

use crate::{Cpuid, Live, Source};

/// Files of a machine below a folder.
#[derive(Clone, Debug)]
pub struct Rooted {
    root: PathBuf,
}

impl Rooted {
    /// The machine below `root`.
    pub fn new(root: &Path) -> Self {
        Rooted { root: root.to_path_buf() }
    }

    /// Where a file of the machine lies on this one.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn name(&self, path: &str) -> String {
        self.place(path).to_string_lossy().into_owned()
    }
}

impl Source for Rooted {
    fn read(&self, path: &str) -> io::Result<String> {
        Live.read(&self.name(path))
    }

    fn exists(&self, path: &str) -> bool {
        Live.exists(&self.name(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Live.list(&self.name(dir))
    }

    fn cpuid(&self, _leaf: u32, _subleaf: u32) -> Cpuid {
        Cpuid::default()
    }

    fn xcr0(&self) -> Option<u64> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Absolute paths stay below the root.
    #[test]
    fn paths_stay_below_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/version"), "ours\n").unwrap();
        let machine = Rooted::new(root.path());
        assert_eq!(machine.read("/proc/version").unwrap(), "ours\n");
        assert!(machine.exists("/proc/version") && !machine.exists("/proc/cpuinfo"));
        assert_eq!(machine.list("/proc").unwrap(), ["version"]);
    }
}
