// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module (`kmod/`): finding, loading and removing it, and its control device.
//!
//! Changes the machine. CPUs that a [`Device`] has armed are disarmed when it is dropped, and by
//! the kernel if its process is killed; the module itself stays until [`unload`].
//!
//! The structures are those of `kmod/uapi/turbolane_trap.h`, and a test compares their sizes with
//! the numbers of the calls, which contain them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpumodel::CpuSet;

use crate::{Live, Source};

/// The module's name, and its device's.
pub const NAME: &str = "turbolane_trap";

/// The ABI that this was written for.
pub const ABI_VERSION: u32 = 4;

const DEVICE: &str = "/dev/turbolane_trap";
const MODULE: &str = "/sys/module/turbolane_trap";

/// Where packages put modules that do not come with the kernel, below `/lib/modules/RELEASE`: DKMS
/// on Debian, DKMS elsewhere, `make modules_install`.
const FOLDERS: [&str; 4] = ["updates/dkms", "updates", "extra", "weak-updates"];

/// File name suffixes of modules that the kernel may be built for.
const SUFFIXES: [&str; 3] = ["ko", "ko.xz", "ko.zst"];

/// For `finit_module`: the file is compressed (`linux/module.h`).
const MODULE_INIT_COMPRESSED_FILE: libc::c_int = 4;

/// udev makes the device a moment after the module is loaded.
const DEVICE_WAIT: Duration = Duration::from_secs(5);

/// What the device says of itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// [`ABI_VERSION`] of the module.
    pub abi_version: u32,
    /// Number of CPUs that are armed.
    pub cpus_armed: u32,
    /// What the kernel has enabled.
    pub xcr0_full: u64,
    /// What armed CPUs withhold.
    pub xcr0_withheld: u64,
    /// How often a file that was read became unread again.
    pub files_unread: u64,
    reserved: [u64; 3],
}

#[repr(C)]
struct Arm {
    cpus_ptr: u64,
    cpus_words: u32,
    reserved: u32,
}

#[repr(C)]
struct Site {
    fd: i32,
    reserved: u32,
    offset_bytes: u64,
}

/// Steps of looking through a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStep {
    /// Before its first byte is read.
    Begin = 0,
    /// After its last site was added, if everything was understood.
    End = 1,
}

#[repr(C)]
struct Read {
    fd: i32,
    step: u32,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: what traps decides.
    None = 0,
    /// It uses wide code: no period of grace.
    Wide = 1,
    /// Light use only: it is never steered.
    Light = 2,
}

#[repr(C)]
struct Learn {
    pid: i32,
    verdict: u32,
}

/// Events on a CPU since the module was loaded; the header says what each is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "documented at the definition, which these are copies of")]
pub struct CpuCounters {
    pub traps: u64,
    pub traps_heavy: u64,
    pub traps_light: u64,
    pub traps_other: u64,
    pub xrstor_faults: u64,
    pub steered: u64,
    pub rate_limited: u64,
    pub reductions: u64,
    pub full_by_switch: u64,
    pub full_by_fpu: u64,
    pub full_by_trap: u64,
    pub full_by_disarm: u64,
    pub parked: u64,
    pub live_returns: u64,
    pub grace_returns: u64,
    pub no_memory: u64,
    pub violations: u64,
    pub level_rises: u64,
    pub unread_returns: u64,
    pub full_by_code: u64,
    pub glances: u64,
}

#[repr(C)]
#[derive(Default)]
struct GetCpu {
    cpu: u32,
    reserved: u32,
    counters: CpuCounters,
}

/// Events of a task since it first trapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounters {
    tid: i32,
    /// [`Verdict`] of its process.
    pub verdict: u32,
    /// All traps.
    pub traps: u64,
    /// At or above the level that is wide.
    pub traps_heavy: u64,
    /// Below it.
    pub traps_light: u64,
    /// Events sent to the scheduler.
    pub steered: u64,
    /// Address of the last trap.
    pub last_ip: u64,
}

/// `_IOC` of `asm-generic/ioctl.h`: direction (1 = write, 2 = read), size, 'T', number.
const fn ioctl_number(direction: u64, number: u64, size: usize) -> u64 {
    direction << 30 | (size as u64) << 16 | (b'T' as u64) << 8 | number
}

const INFO: u64 = ioctl_number(2, 0xc0, size_of::<Info>());
const ARM: u64 = ioctl_number(1, 0xc1, size_of::<Arm>());
const SITE: u64 = ioctl_number(1, 0xc2, size_of::<Site>());
const LEARN: u64 = ioctl_number(1, 0xc3, size_of::<Learn>());
const GET_CPU: u64 = ioctl_number(3, 0xc4, size_of::<GetCpu>());
const READ: u64 = ioctl_number(1, 0xc6, size_of::<Read>());
const GET_TASK: u64 = ioctl_number(3, 0xc5, size_of::<TaskCounters>());

/// The module's file for the running kernel, if it is installed.
pub fn find() -> Option<PathBuf> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    file(&Live, release.trim()).map(PathBuf::from)
}

/// The module's file for the kernel of this release.
pub(crate) fn file(source: &dyn Source, release: &str) -> Option<String> {
    FOLDERS
        .iter()
        .flat_map(|folder| SUFFIXES.iter().map(move |suffix| (folder, suffix)))
        .map(|(folder, suffix)| format!("/lib/modules/{release}/{folder}/{NAME}.{suffix}"))
        .find(|file| source.exists(file))
}

/// Whether the module is loaded.
pub fn is_loaded() -> bool {
    Path::new(MODULE).exists()
}

/// A setting of the loaded module, as text.
pub fn setting(name: &str) -> io::Result<String> {
    let text = fs::read_to_string(format!("{MODULE}/parameters/{name}"))?;
    Ok(text.trim().to_owned())
}

/// Changes a setting of the loaded module; a value that it refuses is an error.
pub fn set_setting(name: &str, value: &str) -> io::Result<()> {
    fs::write(format!("{MODULE}/parameters/{name}"), value)
}

/// Loads the module with parameters like `components=avx512 grace_ns=500000`.
///
/// The kernel's reason for a refusal is in its log; the error has only its number: `ENODEV` for
/// a component that the CPU lacks, `EKEYREJECTED` or `EPERM` if signatures are enforced, `ENOEXEC`
/// for another kernel's module, `EEXIST` if it is loaded already.
pub fn load(file: &Path, parameters: &str) -> io::Result<()> {
    let module = File::open(file)?;
    let parameters = std::ffi::CString::new(parameters)?;
    let flags = match file.extension() {
        Some(extension) if extension != "ko" => MODULE_INIT_COMPRESSED_FILE,
        _ => 0,
    };
    // SAFETY: a file descriptor that is open, a string that ends, and flags.
    let result = unsafe {
        libc::syscall(libc::SYS_finit_module, module.as_raw_fd(), parameters.as_ptr(), flags)
    };
    check(result)
}

/// Removes the module. `EWOULDBLOCK` while its device is open or a scheduler listens to it.
pub fn unload() -> io::Result<()> {
    let name = std::ffi::CString::new(NAME)?;
    // SAFETY: a string that ends, and flags.
    check(unsafe { libc::syscall(libc::SYS_delete_module, name.as_ptr(), libc::O_NONBLOCK) })
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// The control device. What it has changed ends with it.
#[derive(Debug)]
pub struct Device {
    file: File,
}

impl Device {
    /// Opens the device of the loaded module, which may need a moment to appear.
    pub fn open() -> io::Result<Self> {
        let start = Instant::now();
        let file = loop {
            match OpenOptions::new().read(true).write(true).open(DEVICE) {
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && is_loaded()
                        && start.elapsed() < DEVICE_WAIT =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => break other?,
            }
        };
        let device = Device { file };
        let version = device.info()?.abi_version;
        if version != ABI_VERSION {
            let what = format!(
                "the loaded {NAME} speaks ABI version {version}, this program {ABI_VERSION}"
            );
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        Ok(device)
    }

    /// What the module can withhold, and how many CPUs do.
    pub fn info(&self) -> io::Result<Info> {
        let mut info = Info::default();
        self.call(INFO, &mut info)?;
        Ok(info)
    }

    /// Arms these CPUs and disarms all others. `EBUSY` if another open device has CPUs armed;
    /// `ENODEV` for a CPU that cannot exist.
    pub fn arm(&self, cpus: &CpuSet) -> io::Result<()> {
        let words = cpus.words();
        let mut arm = Arm {
            cpus_ptr: words.as_ptr() as u64,
            cpus_words: u32::try_from(words.len()).unwrap_or(u32::MAX),
            reserved: 0,
        };
        self.call(ARM, &mut arm)
    }

    /// Gives whoever executes the instruction at this offset of the file the full XCR0 for a
    /// while.
    pub fn add_site(&self, file: &File, offset_bytes: u64) -> io::Result<()> {
        self.call(SITE, &mut Site { fd: file.as_raw_fd(), reserved: 0, offset_bytes })
    }

    /// A file is being looked through for the places that need a site. Only processes all of whose
    /// code was read are withheld anything. `EALREADY`: it was read before; `ETXTBSY`: it is open
    /// for writing; `ESTALE` at the end: it may have changed since the beginning.
    pub fn read_step(&self, file: &File, step: ReadStep) -> io::Result<()> {
        self.call(READ, &mut Read { fd: file.as_raw_fd(), step: step as u32 })
    }

    /// Passes the module what is known of a process.
    pub fn learn(&self, pid: i32, verdict: Verdict) -> io::Result<()> {
        self.call(LEARN, &mut Learn { pid, verdict: verdict as u32 })
    }

    /// The counters of a CPU.
    pub fn cpu_counters(&self, cpu: u32) -> io::Result<CpuCounters> {
        let mut get = GetCpu { cpu, ..GetCpu::default() };
        self.call(GET_CPU, &mut get)?;
        Ok(get.counters)
    }

    /// The counters of a task; zeros if it never trapped.
    pub fn task_counters(&self, tid: i32) -> io::Result<TaskCounters> {
        let mut get = TaskCounters { tid, ..TaskCounters::default() };
        self.call(GET_TASK, &mut get)?;
        Ok(get)
    }

    fn call<T>(&self, number: u64, argument: &mut T) -> io::Result<()> {
        // SAFETY: each number is used with the structure whose size is part of it, and the
        // kernel reads or writes no more than that.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), number, argument) };
        check(result.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the calls as a C compiler makes them from the header: their sizes are the
    /// sizes of its structures.
    #[test]
    fn numbers_are_those_of_the_header() {
        let dir = tempfile::tempdir().unwrap();
        let (source, program) = (dir.path().join("numbers.c"), dir.path().join("numbers"));
        let names = ["INFO", "ARM", "SITE", "LEARN", "READ", "GET_CPU", "GET_TASK"];
        let prints = names.map(|name| format!("printf(\"%lu\\n\", (long)TLT_IOC_{name});"));
        let header = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kmod/uapi/turbolane_trap.h");
        let text = format!(
            "#include <stdio.h>\n#include \"{header}\"\nint main(void) {{ {} return TLT_ABI_VERSION != {ABI_VERSION}; }}",
            prints.join(" ")
        );
        fs::write(&source, text).unwrap();
        let built = std::process::Command::new("cc").arg("-o").args([&program, &source]).status();
        assert!(built.unwrap().success());
        let run = std::process::Command::new(&program).output().unwrap();
        assert!(run.status.success(), "another ABI version");
        let numbers =
            [INFO, ARM, SITE, LEARN, READ, GET_CPU, GET_TASK].map(|number| number.to_string());
        let printed = String::from_utf8(run.stdout).unwrap();
        assert_eq!(printed.lines().collect::<Vec<_>>(), numbers);
    }

    /// Without the module there is no device, and no wait for one.
    #[test]
    fn no_module_is_not_found() {
        if !is_loaded() {
            assert_eq!(Device::open().unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
}
