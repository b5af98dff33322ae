// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where facts about a machine come from: the machine itself, or a recording of one.

use std::fs;
use std::io;

/// The registers that one CPUID leaf returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpuid {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// Read-only access to a machine. Paths are absolute, `/proc` and `/sys` included.
///
/// The trait is kept this narrow so that a recording can hold everything that was ever asked.
pub trait Source {
    /// The text of a file.
    fn read(&self, path: &str) -> io::Result<String>;

    /// What `part` keeps of a file's text. A recording holds no more than that: the rest of a
    /// file like `/proc/self/status` is no one's business. `part` must keep what it has kept.
    fn read_part(&self, path: &str, part: &dyn Fn(&str) -> String) -> io::Result<String> {
        Ok(part(&self.read(path)?))
    }

    /// True if there is a file or folder at `path`, readable or not.
    fn exists(&self, path: &str) -> bool;

    /// Names of the entries of a folder, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// The names in a folder that start with `prefix`, sorted. A recording holds no more than
    /// those.
    fn list_from(&self, dir: &str, prefix: &str) -> io::Result<Vec<String>> {
        let mut names = self.list(dir)?;
        names.retain(|name| name.starts_with(prefix));
        Ok(names)
    }

    /// A CPUID leaf as the CPU that runs us answers it; zeros for a leaf beyond the last.
    fn cpuid(&self, leaf: u32, subleaf: u32) -> Cpuid;

    /// XCR0: the register states that the kernel has switched on. `None` without XSAVE.
    fn xcr0(&self) -> Option<u64>;
}

/// For [`Source::read_part`]: the lines that start with one of `prefixes`.
pub(crate) fn lines_with(prefixes: &'static [&'static str]) -> impl Fn(&str) -> String {
    move |text| {
        text.lines()
            .filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix)))
            .map(|line| format!("{line}\n"))
            .collect()
    }
}

/// For [`Source::read_part`]: `word` if the text has it between blanks, else nothing.
pub(crate) fn word(word: &'static str) -> impl Fn(&str) -> String {
    move |text| {
        let found = text.split_whitespace().find(|other| *other == word);
        format!("{}\n", found.unwrap_or_default())
    }
}

/// The machine this program runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Live;

impl Source for Live {
    fn read(&self, path: &str) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        fs::symlink_metadata(path).is_ok()
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(dir)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<String>>>()?;
        names.sort();
        Ok(names)
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> Cpuid {
        // Intel answers a leaf beyond the last with the data of the last one: ask for the last.
        let first_of_range = leaf & 0xffff_0000;
        if leaf > raw_cpuid(first_of_range, 0).eax {
            return Cpuid::default();
        }
        raw_cpuid(leaf, subleaf)
    }

    fn xcr0(&self) -> Option<u64> {
        const OSXSAVE: u32 = 1 << 27;
        if self.cpuid(1, 0).ecx & OSXSAVE == 0 {
            return None;
        }
        Some(crate::xcr0::of_this_machine())
    }
}

#[allow(unused_unsafe)] // the intrinsic is a safe function from Rust 1.94 on
fn raw_cpuid(leaf: u32, subleaf: u32) -> Cpuid {
    // SAFETY: every x86-64 CPU has CPUID, and it changes nothing but the returned registers.
    let answer = unsafe { std::arch::x86_64::__cpuid_count(leaf, subleaf) };
    Cpuid { eax: answer.eax, ebx: answer.ebx, ecx: answer.ecx, edx: answer.edx }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The live source answers for whatever machine the tests run on.
    #[test]
    fn live_machine_answers() {
        let names = Live.list("/sys/devices/system/cpu").unwrap();
        assert!(names.contains(&"cpu0".to_string()) && names.is_sorted());
        assert!(Live.exists("/proc/self/status") && !Live.exists("/proc/no-such-file"));
        let status = Live.read_part("/proc/self/status", &lines_with(&["Uid:"])).unwrap();
        assert_eq!(status.lines().count(), 1);
        assert!(Live.cpuid(0, 0).eax >= 1, "a CPU without leaf 1");
        assert_eq!(Live.cpuid(0x0fff_ffff, 0), Cpuid::default());
    }
}
