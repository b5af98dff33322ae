// SPDX-License-Identifier: MIT OR Apache-2.0
//! Folders that serve as test machines, from descriptions in `machines/`.
//!
//! A description holds one file per line, `PATH = TEXT`. `{cpu}` in a path makes one file for each
//! CPU of the line `cpus = LIST`, and the same number replaces `{cpu}` in the text. Two more forms
//! make files of registers, in the layout of `setting.rs`:
//!
//! ```text
//! msr 0x199 = 0x1800          in /dev/cpu/N/msr of each CPU
//! pci 0000:00:18.4 0x15c = 0x0009   in that device's configuration space
//! ```
//!
//! A folder does not react: a governor does not set frequencies there. What depends on the kernel
//! is tested in a guest (tests/vm).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cpumodel::CpuSet;

use crate::setting::plain_offset;

/// The descriptions by name.
pub const MACHINES: [(&str, &str); 6] = [
    ("acpi-cpufreq-i7-4770", include_str!("../machines/acpi-cpufreq-i7-4770.txt")),
    ("acpi-cpufreq-fx-8120", include_str!("../machines/acpi-cpufreq-fx-8120.txt")),
    ("intel-pstate-gold-6130", include_str!("../machines/intel-pstate-gold-6130.txt")),
    ("msr-i7-4770", include_str!("../machines/msr-i7-4770.txt")),
    ("msr-hwp", include_str!("../machines/msr-hwp.txt")),
    ("msr-fx-8120", include_str!("../machines/msr-fx-8120.txt")),
];

/// Makes the machine of this name in the empty folder `root`.
///
/// # Errors
/// When there is no such machine, its description is wrong, or the folder cannot be written.
pub fn build(name: &str, root: &Path) -> io::Result<()> {
    let found = MACHINES.iter().find(|(other, _)| *other == name);
    let (_, text) = found.ok_or_else(|| wrong(&format!("no machine {name}")))?;
    build_from(text, root)
}

/// Makes a machine from a description.
///
/// # Errors
/// As [`build`].
pub fn build_from(description: &str, root: &Path) -> io::Result<()> {
    let mut cpus = CpuSet::first(1);
    for line in description.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(" = ").ok_or_else(|| wrong(line))?;
        let words: Vec<&str> = key.split_whitespace().collect();
        match words.as_slice() {
            ["cpus"] => {
                cpus = value.parse().map_err(|_| wrong(line))?;
                write(&root.join("sys/devices/system/cpu/online"), value)?;
                write(&root.join("sys/devices/system/cpu/possible"), value)?;
            }
            ["msr", number] => {
                let (number, value) = (hex(number, line)?, hex(value, line)?);
                for cpu in &cpus {
                    let path = root.join(format!("dev/cpu/{cpu}/msr"));
                    open(&path)?.write_all_at(&value.to_le_bytes(), plain_offset(number as u32))?;
                }
            }
            ["pci", device, offset] => {
                let (offset, value) = (hex(offset, line)?, hex(value, line)?);
                let path = root.join(format!("sys/bus/pci/devices/{device}/config"));
                open(&path)?.write_all_at(&(value as u32).to_le_bytes(), offset)?;
            }
            [path] => {
                let each = if path.contains("{cpu}") { cpus } else { CpuSet::first(1) };
                for cpu in &each {
                    let fill = |text: &str| text.replace("{cpu}", &cpu.to_string());
                    write(&root.join(&fill(path)[1..]), &fill(value).replace("\\n", "\n"))?;
                }
            }
            _ => return Err(wrong(line)),
        }
    }
    Ok(())
}

/// All files of a machine and what they hold as far as it matters: of text the first line, since a
/// folder keeps what sysfs would not.
///
/// # Errors
/// When the folder cannot be read.
pub fn contents(root: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            all.extend(contents(&path)?);
            continue;
        }
        let mut bytes = fs::read(&path)?;
        let is_text = std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0'));
        if is_text && !path.ends_with("proc/cpuinfo") {
            bytes = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().to_vec();
        }
        all.push((path, bytes));
    }
    all.sort();
    Ok(all)
}

fn wrong(line: &str) -> io::Error {
    io::Error::other(format!("test machine: {line}"))
}

fn hex(text: &str, line: &str) -> io::Result<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| wrong(line))
}

fn open(path: &Path) -> io::Result<File> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, format!("{text}\n"))
}
