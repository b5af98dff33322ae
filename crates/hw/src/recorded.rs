// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of machines, so that everything above this crate can be tried on machines that
//! are not available. The idea, and the proof that it works, is intel/pepc's emulation data.
//!
//! A recording is a folder with two text files, small enough to read in a diff:
//!
//! ```text
//! files.txt   # a comment
//!             /sys/devices/system/cpu/online = 0-3       one line of text
//!             /proc/self/status:                         more lines: each after a tab
//!             <tab>Uid: 0 0 0 0
//!             /sys/kernel/btf/vmlinux exists             there, contents not recorded
//!             /sys/kernel/security/lockdown denied       there, not readable by the recorder
//! cpuid.txt   # leaf subleaf = eax ebx ecx edx, hexadecimal
//!             00000001 00 = 00050654 00100800 7ffefbff bfebfbff
//!             xcr0 = 2e7
//! ```
//!
//! [`record`] runs whatever reads a machine and writes down each answer it got. So a recording
//! holds exactly what is read, never more, and a path that is missing from it was missing there.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use crate::source::{Cpuid, Source};

const FILES: &str = "files.txt";
const CPUID: &str = "cpuid.txt";

/// What is known of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Text(String),
    Exists,
    Denied,
}

/// A machine from a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    entries: BTreeMap<String, Entry>,
    cpuid: BTreeMap<(u32, u32), Cpuid>,
    xcr0: Option<u64>,
}

/// Why a folder is no recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// A file of the recording cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A line means nothing.
    #[error("{file}:{line}: {why}")]
    BadLine {
        /// Name of the file.
        file: &'static str,
        /// Line number, from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
}

impl Recorded {
    /// Reads the recording in folder `dir`.
    pub fn open(dir: &Path) -> Result<Self, RecordingError> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path)
                .map_err(|source| RecordingError::Io { path: path.display().to_string(), source })
        };
        Self::parse(&read(FILES)?, &read(CPUID)?)
    }

    /// Reads a recording from the text of its two files.
    pub fn parse(files: &str, cpuid: &str) -> Result<Self, RecordingError> {
        let mut recorded = Recorded { entries: parse_files(files)?, ..Recorded::default() };
        recorded.parse_cpuid(cpuid)?;
        Ok(recorded)
    }

    fn parse_cpuid(&mut self, text: &str) -> Result<(), RecordingError> {
        for (index, line) in text.lines().enumerate() {
            let bad = |why| RecordingError::BadLine { file: CPUID, line: index + 1, why };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| bad("no \"=\""))?;
            let hex = |text: &str| {
                u64::from_str_radix(text, 16).map_err(|_| bad("not a hexadecimal number"))
            };
            let numbers =
                value.split_whitespace().map(hex).collect::<Result<Vec<u64>, RecordingError>>()?;
            let key: Vec<&str> = key.split_whitespace().collect();
            match (key.as_slice(), numbers.as_slice()) {
                (["xcr0"], &[xcr0]) => self.xcr0 = Some(xcr0),
                (&[leaf, subleaf], &[a, b, c, d]) => {
                    let [eax, ebx, ecx, edx] = [a, b, c, d].map(|register| register as u32);
                    let key = (hex(leaf)? as u32, hex(subleaf)? as u32);
                    self.cpuid.insert(key, Cpuid { eax, ebx, ecx, edx });
                }
                _ => {
                    return Err(bad("neither \"LEAF SUBLEAF = EAX EBX ECX EDX\" nor \"xcr0 = N\""));
                }
            }
        }
        Ok(())
    }

    fn files_text(&self) -> String {
        let mut text = String::new();
        for (path, entry) in &self.entries {
            match entry {
                Entry::Exists => _ = writeln!(text, "{path} exists"),
                Entry::Denied => _ = writeln!(text, "{path} denied"),
                Entry::Text(content) if content.lines().count() <= 1 => {
                    let line = format!("{path} = {}", content.trim_end_matches('\n'));
                    _ = writeln!(text, "{}", line.trim_end());
                }
                Entry::Text(content) => {
                    _ = writeln!(text, "{path}:");
                    for line in content.lines() {
                        _ = writeln!(text, "\t{line}");
                    }
                }
            }
        }
        text
    }

    fn cpuid_text(&self) -> String {
        let mut text = String::from("# leaf subleaf = eax ebx ecx edx\n");
        for ((leaf, subleaf), Cpuid { eax, ebx, ecx, edx }) in &self.cpuid {
            _ = writeln!(
                text,
                "{leaf:08x} {subleaf:02x} = {eax:08x} {ebx:08x} {ecx:08x} {edx:08x}"
            );
        }
        if let Some(xcr0) = self.xcr0 {
            _ = writeln!(text, "xcr0 = {xcr0:x}");
        }
        text
    }

    /// Writes the recording into folder `dir`, which is made if it is missing.
    pub fn save(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join(FILES), self.files_text())?;
        fs::write(dir.join(CPUID), self.cpuid_text())
    }
}

fn parse_files(text: &str) -> Result<BTreeMap<String, Entry>, RecordingError> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    let mut open: Option<String> = None;
    for (index, line) in text.lines().enumerate() {
        let bad = |why| RecordingError::BadLine { file: FILES, line: index + 1, why };
        if let Some(content) = line.strip_prefix('\t') {
            let path = open.as_ref().ok_or_else(|| bad("text that belongs to no file"))?;
            if let Some(Entry::Text(text)) = entries.get_mut(path) {
                text.push_str(content);
                text.push('\n');
            }
            continue;
        }
        open = None;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let (path, entry) = if let Some((path, value)) = line.split_once(" =") {
            let value = value.strip_prefix(' ').unwrap_or(value);
            (path, Entry::Text(format!("{value}\n")))
        } else if let Some(path) = line.strip_suffix(" exists") {
            (path, Entry::Exists)
        } else if let Some(path) = line.strip_suffix(" denied") {
            (path, Entry::Denied)
        } else if let Some(path) = line.strip_suffix(':') {
            open = Some(path.to_string());
            (path, Entry::Text(String::new()))
        } else {
            return Err(bad(
                "none of \"PATH = TEXT\", \"PATH:\", \"PATH exists\", \"PATH denied\"",
            ));
        };
        if !path.starts_with('/') {
            return Err(bad("a path that does not start with \"/\""));
        }
        entries.insert(path.to_string(), entry);
    }
    Ok(entries)
}

impl Source for Recorded {
    fn read(&self, path: &str) -> io::Result<String> {
        match self.entries.get(path) {
            Some(Entry::Text(text)) => Ok(text.clone()),
            Some(Entry::Denied) => Err(io::ErrorKind::PermissionDenied.into()),
            Some(Entry::Exists) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn exists(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.entries.contains_key(path)
            || self
                .entries
                .range(below.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&below))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        if self.entries.get(dir) == Some(&Entry::Denied) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let prefix = format!("{dir}/");
        let mut names: Vec<String> = self
            .entries
            .range(prefix.clone()..)
            .take_while(|(path, _)| path.starts_with(&prefix))
            .filter_map(|(path, _)| path[prefix.len()..].split('/').next())
            .map(str::to_string)
            .collect();
        names.dedup();
        names.sort();
        names.dedup();
        if names.is_empty() && !self.entries.contains_key(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(names)
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> Cpuid {
        self.cpuid.get(&(leaf, subleaf)).copied().unwrap_or_default()
    }

    fn xcr0(&self) -> Option<u64> {
        self.xcr0
    }
}

/// A source that writes down what another one answers.
struct Recorder<'a> {
    source: &'a dyn Source,
    made: RefCell<Recorded>,
}

impl Recorder<'_> {
    fn note(&self, path: &str, answer: &io::Result<String>) {
        let entry = match answer {
            Ok(text) => Entry::Text(text.clone()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Entry::Denied,
            Err(_) => return,
        };
        self.made.borrow_mut().entries.insert(path.to_string(), entry);
    }

    /// Writes down the names in a folder, or that it may not be read.
    fn note_names(&self, dir: &str, names: &io::Result<Vec<String>>) {
        let entries = &mut self.made.borrow_mut().entries;
        match names {
            Ok(names) => {
                for name in names {
                    entries.entry(format!("{dir}/{name}")).or_insert(Entry::Exists);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                entries.insert(dir.to_string(), Entry::Denied);
            }
            Err(_) => {}
        }
    }
}

impl Source for Recorder<'_> {
    fn read(&self, path: &str) -> io::Result<String> {
        let answer = self.source.read(path);
        self.note(path, &answer);
        answer
    }

    fn read_part(&self, path: &str, part: &dyn Fn(&str) -> String) -> io::Result<String> {
        let answer = self.source.read_part(path, part);
        self.note(path, &answer);
        answer
    }

    fn exists(&self, path: &str) -> bool {
        let there = self.source.exists(path);
        if there {
            let entries = &mut self.made.borrow_mut().entries;
            entries.entry(path.to_string()).or_insert(Entry::Exists);
        }
        there
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let names = self.source.list(dir);
        self.note_names(dir, &names);
        names
    }

    fn list_from(&self, dir: &str, prefix: &str) -> io::Result<Vec<String>> {
        let names = self.source.list_from(dir, prefix);
        self.note_names(dir, &names);
        names
    }

    fn cpuid(&self, leaf: u32, subleaf: u32) -> Cpuid {
        let answer = self.source.cpuid(leaf, subleaf);
        if answer != Cpuid::default() {
            self.made.borrow_mut().cpuid.insert((leaf, subleaf), answer);
        }
        answer
    }

    fn xcr0(&self) -> Option<u64> {
        let answer = self.source.xcr0();
        self.made.borrow_mut().xcr0 = answer;
        answer
    }
}

/// Runs `read` on `source` and returns a recording of everything it asked.
pub fn record(source: &dyn Source, read: impl FnOnce(&dyn Source)) -> Recorded {
    let recorder = Recorder { source, made: RefCell::default() };
    read(&recorder);
    let mut made = recorder.made.into_inner();
    drop_folders(&mut made.entries);
    made
}

/// A folder needs no line of its own in addition to those of the files below it.
fn drop_folders(entries: &mut BTreeMap<String, Entry>) {
    let paths: Vec<String> = entries.keys().cloned().collect();
    entries.retain(|path, entry| {
        let below = format!("{path}/");
        let next = paths.partition_point(|other| other < &below);
        *entry != Entry::Exists || !paths.get(next).is_some_and(|other| other.starts_with(&below))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::lines_with;

    const FILES_TXT: &str = "# a comment\n\
        /proc/self/status:\n\tUid:\t0\t0\t0\t0\n\tCapEff:\tff\n\
        /sys/a/empty =\n\
        /sys/a/list = 0-3,8\n\
        /sys/btf exists\n\
        /sys/lock denied\n";
    const CPUID_TXT: &str = "# leaf subleaf = eax ebx ecx edx\n00000007 01 = 00000000 00000010 00000000 00000000\nxcr0 = e7\n";

    fn sample() -> Recorded {
        Recorded::parse(FILES_TXT, CPUID_TXT).unwrap()
    }

    /// Each kind of line answers as the file it stands for did.
    #[test]
    fn answers_from_its_lines() {
        let machine = sample();
        assert_eq!(machine.read("/sys/a/list").unwrap(), "0-3,8\n");
        assert_eq!(machine.read("/sys/a/empty").unwrap(), "\n");
        assert_eq!(machine.read("/proc/self/status").unwrap().lines().count(), 2);
        assert_eq!(machine.read("/sys/lock").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(machine.read("/sys/no").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(
            machine.exists("/sys/btf") && machine.exists("/sys/a") && !machine.exists("/sys/no")
        );
        assert_eq!(machine.list("/sys/a").unwrap(), ["empty", "list"]);
        assert!(machine.list("/sys/no").is_err());
        assert_eq!(machine.cpuid(7, 1).ebx, 0x10);
        assert_eq!(machine.cpuid(7, 0), Cpuid::default());
        assert_eq!(machine.xcr0(), Some(0xe7));
    }

    /// A recording of a recording answers the same, after a trip through the disk too.
    #[test]
    fn recording_survives_the_disk() {
        let machine = sample();
        let copy = record(&machine, |source| {
            for path in ["/sys/a/empty", "/sys/a/list", "/sys/lock", "/sys/no"] {
                _ = source.read(path);
            }
            assert!(source.exists("/sys/btf"));
            _ = source.read_part("/proc/self/status", &lines_with(&["Uid:", "CapEff:"]));
            _ = source.list("/sys/a");
            _ = (source.cpuid(7, 1), source.cpuid(7, 0), source.xcr0());
        });
        assert_eq!(copy, machine);
        let dir = tempfile::tempdir().unwrap();
        copy.save(dir.path()).unwrap();
        assert_eq!(Recorded::open(dir.path()).unwrap(), machine);
    }

    /// Only the lines that were asked for are recorded.
    #[test]
    fn keeps_only_the_lines_asked_for() {
        let copy = record(&sample(), |source| {
            _ = source.read_part("/proc/self/status", &lines_with(&["CapEff:"]));
        });
        assert_eq!(copy.read("/proc/self/status").unwrap(), "CapEff:\tff\n");
    }

    /// A broken line is refused with its file and number.
    #[test]
    fn broken_lines_fail() {
        let refusal = |files, cpuid| Recorded::parse(files, cpuid).unwrap_err().to_string();
        assert!(refusal("/a = 1\nwhat", "").starts_with("files.txt:2: none of"));
        assert!(refusal("\tlost", "").starts_with("files.txt:1: text that belongs"));
        assert!(refusal("relative = 1", "").contains("does not start"));
        assert!(refusal("", "1 0 = 1 2 3").starts_with("cpuid.txt:1: neither"));
        assert!(refusal("", "1 0 = x").contains("hexadecimal"));
        let missing = Recorded::open(Path::new("/no/such/folder")).unwrap_err().to_string();
        assert!(missing.starts_with("/no/such/folder/files.txt: "));
    }
}
