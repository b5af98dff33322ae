// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel offers: sched_ext, BTF, BPF, uprobes, modules, and what we may use of it.

use std::fmt;
use std::io;

use cpumodel::CpuSet;

use crate::Source;
use crate::source::{lines_with, word};

/// A kernel release such as `7.3.4+deb13-cloud-amd64`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// As `uname -r` prints it.
    pub text: String,
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
}

impl Release {
    /// Reads `text`; numbers that cannot be read are 0.
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let mut numbers =
            text.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
        let (major, minor) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Release { text: text.to_string(), major, minor }
    }

    /// True for this release and every later one.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kernel's extensible scheduler class, as `/sys/kernel/sched_ext` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedExt {
    /// `disabled`, `enabling`, `enabled`, `disabling`.
    pub state: String,
    /// Name of the scheduler that runs; `None` if none does.
    pub ops: Option<String>,
    /// How often a scheduler was loaded since boot; `None` before 6.13.
    pub enable_seq: Option<u64>,
}

/// What this process is allowed to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Effective user is root.
    pub root: bool,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// CPUs that it may run on, and what it starts; `None` if the kernel does not say.
    pub cpus: Option<CpuSet>,
}

/// Capability numbers of `include/uapi/linux/capability.h` that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Load kernel modules.
    SysModule = 16,
    /// Everything that has no capability of its own.
    SysAdmin = 21,
    /// Set affinity of foreign tasks.
    SysNice = 23,
    /// Performance counters and probes.
    Perfmon = 38,
    /// Load BPF programs.
    Bpf = 39,
}

impl Rights {
    /// True if the capability is effective.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities >> capability as u32 & 1 == 1
    }

    /// True if a scheduler and its probes can be loaded. CAP_SYS_ADMIN stands for CAP_BPF and
    /// CAP_PERFMON, as it does in the kernel.
    pub fn can_load_bpf(&self) -> bool {
        self.has(Capability::SysAdmin) || self.has(Capability::Bpf) && self.has(Capability::Perfmon)
    }
}

/// Whether kernel modules can be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules {
    /// The kernel was built with module support.
    pub supported: bool,
    /// `kernel.modules_disabled`, or `nomodule` on the kernel's command line.
    pub disabled: bool,
    /// Only signed modules load; `None` if the kernel does not say.
    pub signatures_enforced: Option<bool>,
    /// The lockdown mode: `none`, `integrity`, `confidentiality`; `None` if the kernel has none
    /// or hides it.
    pub lockdown: Option<String>,
    /// Files to build a module against this kernel are installed.
    pub build_files: bool,
    /// The trap module is installed for this kernel.
    pub trap_installed: bool,
    /// The kernel is built with PREEMPT_RT, on which the trap module does not load.
    pub realtime: bool,
}

/// What the kernel offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its release.
    pub release: Release,
    /// It carries type information (BTF), which BPF programs need to find its fields.
    pub btf: bool,
    /// Its sched_ext; `None` if it was built without.
    pub sched_ext: Option<SchedExt>,
    /// CPUs that its command line took out of the scheduling domains (`isolcpus=`, without or with
    /// the flag `domain`; with `nohz` or `managed_irq` alone there are none).
    pub isolated: CpuSet,
    /// It can place uprobes (functions marked by `--mark`).
    pub uprobes: bool,
    /// Who may load BPF without CAP_BPF: `kernel.unprivileged_bpf_disabled` is 0.
    pub unprivileged_bpf: Option<bool>,
    /// Kernel modules.
    pub modules: Modules,
}

/// Reads what the kernel offers.
pub fn read_kernel(source: &dyn Source) -> Kernel {
    let release = Release::parse(&text(source, "/proc/sys/kernel/osrelease").unwrap_or_default());
    Kernel {
        btf: source.exists("/sys/kernel/btf/vmlinux"),
        sched_ext: read_sched_ext(source),
        isolated: text(source, "/sys/devices/system/cpu/isolated")
            .and_then(|list| list.parse().ok())
            .unwrap_or_default(),
        uprobes: source.exists("/sys/bus/event_source/devices/uprobe/type"),
        unprivileged_bpf: text(source, "/proc/sys/kernel/unprivileged_bpf_disabled")
            .map(|value| value == "0"),
        modules: read_modules(source, &release),
        release,
    }
}

/// What this process may do.
pub fn read_rights(source: &dyn Source) -> Rights {
    let status = source
        .read_part("/proc/self/status", &lines_with(&["Uid:", "CapEff:", "Cpus_allowed_list:"]))
        .unwrap_or_default();
    let field = |name: &str, index: usize| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().nth(index)
    };
    Rights {
        root: field("Uid:", 1) == Some("0"),
        capabilities: field("CapEff:", 0)
            .and_then(|hex| u64::from_str_radix(hex, 16).ok())
            .unwrap_or(0),
        cpus: field("Cpus_allowed_list:", 0).and_then(|list| list.parse().ok()),
    }
}

fn read_sched_ext(source: &dyn Source) -> Option<SchedExt> {
    let state = text(source, "/sys/kernel/sched_ext/state")?;
    let ops = text(source, "/sys/kernel/sched_ext/root/ops").filter(|ops| !ops.is_empty());
    let enable_seq =
        text(source, "/sys/kernel/sched_ext/enable_seq").and_then(|count| count.parse().ok());
    Some(SchedExt { state, ops, enable_seq })
}

fn read_modules(source: &dyn Source, release: &Release) -> Modules {
    let nomodule = source
        .read_part("/proc/cmdline", &word("nomodule"))
        .is_ok_and(|found| found.trim() == "nomodule");
    let disabled = text(source, "/proc/sys/kernel/modules_disabled").as_deref() == Some("1");
    Modules {
        supported: source.exists("/proc/modules"),
        disabled: disabled || nomodule,
        signatures_enforced: text(source, "/sys/module/module/parameters/sig_enforce")
            .map(|value| value == "Y"),
        lockdown: text(source, "/sys/kernel/security/lockdown").as_deref().and_then(selected),
        build_files: source.exists(&format!("/lib/modules/{}/build", release.text)),
        trap_installed: crate::trap::file(source, &release.text).is_some(),
        realtime: text(source, "/sys/kernel/realtime").as_deref() == Some("1"),
    }
}

/// The chosen word of a list such as `none [integrity] confidentiality`.
fn selected(list: &str) -> Option<String> {
    let word = list.split_whitespace().find(|word| word.starts_with('['))?;
    Some(word.trim_matches(['[', ']']).to_string())
}

fn text(source: &dyn Source, path: &str) -> Option<String> {
    let answer: io::Result<String> = source.read(path);
    answer.ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorded;

    fn machine(files: &str) -> Recorded {
        Recorded::parse(files, "").unwrap()
    }

    /// Releases of every style compare by their first two numbers.
    #[test]
    fn releases_compare_by_number() {
        for (text, major, minor) in
            [("7.3.4+deb13-cloud-amd64", 7, 3), ("6.12", 6, 12), ("6.18.44-x", 6, 18), ("", 0, 0)]
        {
            let release = Release::parse(text);
            assert_eq!((release.major, release.minor), (major, minor), "{text}");
        }
        assert!(Release::parse("6.12.0").at_least(6, 12) && !Release::parse("6.9").at_least(6, 12));
    }

    /// A loaded scheduler, an idle class, and no class at all are distinguished.
    #[test]
    fn sched_ext_states() {
        let read = |files: &str| read_kernel(&machine(files)).sched_ext;
        assert_eq!(read(""), None);
        let idle = read("/sys/kernel/sched_ext/state = disabled").unwrap();
        assert_eq!((idle.ops, idle.enable_seq), (None, None));
        let busy = read(
            "/sys/kernel/sched_ext/state = enabled\n/sys/kernel/sched_ext/enable_seq = 3\n\
             /sys/kernel/sched_ext/root/ops = layered_1.0",
        );
        let busy = busy.unwrap();
        assert_eq!((busy.ops.as_deref(), busy.enable_seq), (Some("layered_1.0"), Some(3)));
    }

    /// The effective user and capabilities decide, not the real ones.
    #[test]
    fn rights_are_the_effective_ones() {
        let status = |uid: &str, caps: &str| {
            machine(&format!("/proc/self/status:\n\tUid:\t{uid}\n\tCapEff:\t{caps}\n"))
        };
        let root = read_rights(&status("1000\t0\t0\t0", "000001ffffffffff"));
        assert!(root.root && root.can_load_bpf() && root.has(Capability::SysModule));
        let user = read_rights(&status("0\t1000\t0\t0", "0"));
        assert!(!user.root && !user.can_load_bpf());
        assert!(read_rights(&status("1\t1\t1\t1", "c000000000")).can_load_bpf());
        assert!(!read_rights(&status("1\t1\t1\t1", "8000000000")).can_load_bpf());
    }

    /// The CPUs are those of the list; a kernel that has none says nothing.
    #[test]
    fn rights_to_cpus() {
        let of =
            |line: &str| read_rights(&machine(&format!("/proc/self/status:\n\t{line}\n"))).cpus;
        assert_eq!(of("Cpus_allowed_list:\t0-3,8"), Some("0-3,8".parse().unwrap()));
        assert_eq!(of("Cpus_allowed_list:\t?"), None);
        assert_eq!(of("CapEff:\t0"), None);
    }

    /// Each method of forbidding modules is seen.
    #[test]
    fn modules_can_be_forbidden_in_many_ways() {
        let read = |files: &str| read_kernel(&machine(files)).modules;
        assert!(!read("").supported);
        assert!(read("/proc/cmdline = quiet nomodule ro").disabled);
        assert!(read("/proc/sys/kernel/modules_disabled = 1").disabled);
        let lockdown = read("/sys/kernel/security/lockdown = none [integrity] confidentiality");
        assert_eq!(lockdown.lockdown.as_deref(), Some("integrity"));
        assert_eq!(
            read("/sys/module/module/parameters/sig_enforce = Y").signatures_enforced,
            Some(true)
        );
        assert!(read("/sys/kernel/realtime = 1").realtime && !read("").realtime);
        assert!(
            read("/proc/sys/kernel/osrelease = 7.3.4\n/lib/modules/7.3.4/build exists").build_files
        );
    }
}
