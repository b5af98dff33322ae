// SPDX-License-Identifier: MIT OR Apache-2.0
//! A test or benchmark: its name, the guest it needs, the function. What is printed is read by
//! xtask's `suite.rs`.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// One entry of a list.
#[derive(Clone, Copy, Serialize)]
pub struct Case {
    /// Unique in its list.
    pub name: &'static str,
    /// Benchmarks: the group of `./x bench GROUP`.
    pub group: &'static str,
    /// Benchmarks: runs on the developer's machine, not in a guest.
    pub host: bool,
    /// "qemu" or "bochs".
    pub emulator: &'static str,
    /// A dim-silicon machine, as `./x vm run --silicon` takes it, or empty.
    pub silicon: &'static str,
    /// CPUs of the guest.
    pub cpus: u32,
    /// QEMU's topology, empty for one core per CPU.
    pub topology: &'static str,
    /// Whether the time stamp counter must count instructions.
    pub icount: bool,
    /// The same with 2^shift ticks for each instruction.
    pub icount_shift: Option<u8>,
    /// Series of the guest's kernel, empty for the usual one.
    pub kernel: &'static str,
    /// Added to the kernel command line.
    pub kernel_args: &'static str,
    /// As QEMU's `-cpu` takes it, or a model of Bochs.
    pub cpu: &'static str,
    /// Wall-clock limit for boot and test.
    pub limit_s: u32,
    /// Kernel log lines that the test provokes on purpose.
    pub allow_log: &'static [&'static str],
    /// Other schedulers to put into the guest.
    pub peers: &'static [&'static str],
    /// Tests with the same word here run in one guest, one after the other; empty: in its own.
    pub shares: &'static str,
    #[serde(skip)]
    run: fn() -> Result<()>,
}

impl Case {
    /// A test on four CPUs.
    pub const fn new(name: &'static str, run: fn() -> Result<()>) -> Self {
        Case {
            name,
            group: "",
            host: false,
            emulator: "qemu",
            silicon: "",
            cpus: 4,
            topology: "",
            icount: false,
            icount_shift: None,
            kernel: "",
            kernel_args: "",
            cpu: "max",
            limit_s: 300,
            allow_log: &[],
            peers: &[],
            shares: "",
            run,
        }
    }

    /// A benchmark of group `vm`.
    pub const fn bench(name: &'static str, run: fn() -> Result<()>) -> Self {
        let mut case = Self::new(name, run);
        case.group = "vm";
        case
    }

    /// The same in a guest that it shares with others of this word: it is never skipped, and leaves
    /// a guest as it was.
    pub const fn shares(mut self, guest: &'static str) -> Self {
        self.shares = guest;
        self
    }

    /// The same in a usual guest: it takes little longer than a boot.
    pub const fn small(self) -> Self {
        self.shares("small")
    }

    /// The same in another group.
    pub const fn group(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// The same on the developer's machine.
    pub const fn host(mut self) -> Self {
        self.host = true;
        self
    }

    /// The same with this scheduler in the guest.
    pub const fn peers(mut self, peers: &'static [&'static str]) -> Self {
        self.peers = peers;
        self
    }

    /// The same with another number of CPUs.
    pub const fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// The same on another CPU.
    pub const fn cpu(mut self, cpu: &'static str) -> Self {
        self.cpu = cpu;
        self
    }

    /// The same in Bochs, which has AVX-512, on two CPUs: it is slow.
    pub const fn bochs(mut self) -> Self {
        self.emulator = "bochs";
        self.cpus = 2;
        self
    }

    /// The same in Bochs on a CPU with AMX.
    pub const fn bochs_amx(mut self) -> Self {
        self = self.bochs();
        self.cpu = "sapphire_rapids";
        self
    }

    /// The same on a machine with dim silicon.
    pub const fn silicon(mut self, machine: &'static str) -> Self {
        self = self.bochs();
        self.silicon = machine;
        self
    }

    /// The same on this topology.
    pub const fn topology(mut self, topology: &'static str) -> Self {
        self.topology = topology;
        self
    }

    /// The same on Debian 13's own kernel, of series 6.12.
    ///
    /// Without CMPXCHG16B: that kernel's allocator executes it all the time, and QEMU 7.2 now and
    /// then leaves rubbish in the flags behind it (seen: double faults and spurious single steps,
    /// with RAX in EFLAGS, one of them before the module was loaded).
    pub const fn kernel_6_12(mut self) -> Self {
        self.kernel = "6.12";
        self.cpu = "max,-cx16";
        self
    }

    /// The same with more on the kernel command line.
    pub const fn kernel_args(mut self, args: &'static str) -> Self {
        self.kernel_args = args;
        self
    }

    /// The same in virtual time: 4 ns for each instruction, so that what else the host does is not
    /// measured, and each CPU with all its ticks. QEMU runs the CPUs in turns, each until the next
    /// timer, and usually the ticks of all CPUs are due at the same moment: then a CPU has 80 ticks
    /// in a second instead of 250, and slices are three times too long.
    pub const fn virtual_time(mut self) -> Self {
        self.icount_shift = Some(2);
        self.kernel_args = "skew_tick=1";
        self
    }

    /// The same counting instructions.
    pub const fn icount(mut self) -> Self {
        self.icount = true;
        self
    }

    /// The same with another limit.
    pub const fn limit_s(mut self, limit_s: u32) -> Self {
        self.limit_s = limit_s;
        self
    }

    /// The same, expecting these lines in the kernel log.
    pub const fn allow_log(mut self, lines: &'static [&'static str]) -> Self {
        self.allow_log = lines;
        self
    }
}

/// Print the cases as JSON lines.
pub fn list(cases: &[Case]) -> Result<()> {
    for case in cases {
        println!("{}", serde_json::to_string(case)?);
    }
    Ok(())
}

/// Run the case of this name.
pub fn run(cases: &[Case], name: &str) -> Result<()> {
    crate::guest::calibrate();
    let case = cases.iter().find(|case| case.name == name);
    (case
        .with_context(|| {
            format!("there is no \"{name}\"; --list and --list-benches say what there is")
        })?
        .run)()
}

/// Runs these one after the other, each in a process of its own, and prints a line for each that
/// xtask's `suite.rs` reads: `together NAME SECONDS ok`, or `failed`.
pub fn together(names: &[&str]) -> Result<()> {
    let mut failed = Vec::new();
    for &name in names {
        let begin = Instant::now();
        let status = Command::new("/proc/self/exe").args(["run", name]).status()?;
        let word = if status.success() { "ok" } else { "failed" };
        println!("together {name} {:.1} {word}", begin.elapsed().as_secs_f64());
        if !status.success() {
            failed.push(name);
        }
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What shares a guest asks for the same one.
    #[test]
    fn cases_share_a_guest_that_suits_all() {
        let machine = |case: &Case| {
            let alike = Case { name: "", limit_s: 0, ..*case };
            serde_json::to_string(&alike).unwrap()
        };
        for case in crate::tests::ALL.iter().filter(|case| !case.shares.is_empty()) {
            let mut all = crate::tests::ALL.iter();
            let first = all.find(|other| other.shares == case.shares).unwrap();
            assert_eq!(machine(case), machine(first), "{} and {}", case.name, first.name);
        }
    }
}
