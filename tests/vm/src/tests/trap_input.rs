// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trap module refuses what it cannot do, and nothing has changed then.

use std::io::Error;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cpumodel::CpuSet;
use hw::trap::{self, Device};

use crate::guest::set_affinity;
use crate::trap::{Trap, components, load, load_beside, set, sites, unload, xcr0};

/// The kernel's number for a refusal.
fn refusal<T>(result: std::io::Result<T>, what: &str) -> Result<i32> {
    let error = result.err().with_context(|| format!("{what} was accepted"))?;
    error.raw_os_error().with_context(|| format!("{what}: {error}"))
}

fn load_refused(parameters: &str) -> Result<i32> {
    let file = trap::find().context("the guest has no turbolane_trap.ko")?;
    let number = refusal(trap::load(&file, parameters), parameters)?;
    ensure!(!trap::is_loaded(), "refused, but loaded: {parameters}");
    Ok(number)
}

/// Components that the CPU lacks, or that do not exist, and settings out of range.
pub fn parameters_fail() -> Result<()> {
    set_affinity(0, &[0])?;
    let before = xcr0();
    let lacking = if components() == "avx" { "avx512" } else { "nothing" };
    ensure!(load_refused(&format!("components={lacking}"))? == libc::ENODEV, "{lacking}");
    ensure!(load_refused("components=avx,everything")? == libc::ENODEV, "everything");
    ensure!(load_refused("components=")? == libc::EINVAL, "no components");
    for bad in ["mode=panic", "grace_ns=0", "grace_ns=2000000000", "wide_level=4", "hold_ns=x"] {
        load_refused(&format!("components=avx {bad}"))?;
    }
    let trap = Trap::loaded("")?;
    for (name, value) in [("mode", "fast"), ("grace_ns", "9"), ("wide_level", "0")] {
        ensure!(set(name, value).is_err(), "{name}={value} was accepted");
    }
    ensure!(set("components", "amx").is_err(), "components can be changed while loaded");
    ensure!(xcr0() == before, "XCR0 changed");
    trap.off()
}

/// Somebody has a function of the kernel's FPU code for himself: refused, with the reason in the
/// log, and accepted when he is gone.
pub fn taken_fail() -> Result<()> {
    set_affinity(0, &[0])?;
    let before = xcr0();
    load_beside("turbolane_xcheck", "taken=restore_fpregs_from_fpstate")?;
    let parameters = format!("components={}", components());
    ensure!(load_refused(&parameters)? == libc::EBUSY, "a taken function");
    let log = String::from_utf8(Command::new("dmesg").output()?.stdout)?;
    ensure!(
        log.contains("-16; a BPF program or a live patch has it"),
        "the log has no reason:\n{log}"
    );
    ensure!(xcr0() == before, "XCR0 changed");
    sites::unload()?;
    Trap::on(&[0], "")?.off()
}

/// CPUs that do not exist, two users at once, calls of the wrong kind.
pub fn device_fail() -> Result<()> {
    set_affinity(0, &[0])?;
    let before = xcr0();
    let trap = Trap::loaded("")?;
    let far: CpuSet = [0, 900].into_iter().collect();
    ensure!(refusal(trap.device().arm(&far), "CPU 900")? == libc::ENODEV, "CPU 900");
    ensure!(xcr0() == before, "a refused set armed CPU 0");
    trap.arm(&[1])?;
    let other = Device::open()?;
    let one: CpuSet = [0].into_iter().collect();
    ensure!(refusal(other.arm(&one), "a second user")? == libc::EBUSY, "a second user");
    ensure!(other.info()?.cpus_armed == 1, "the refused user armed a CPU");
    ensure!(refusal(other.cpu_counters(9999), "CPU 9999")? == libc::ENODEV, "CPU 9999");
    ensure!(refusal(other.task_counters(4_194_000), "no task")? == libc::ESRCH, "no task");
    ensure!(
        refusal(other.learn(4_194_000, trap::Verdict::Wide), "no process")? == libc::ESRCH,
        "no process"
    );
    let text = std::fs::File::open("/proc/version")?;
    refusal(other.add_site(&text, 0), "a place in /proc")?;
    drop(other);
    ensure!(trap.device().info()?.cpus_armed == 1, "closing the second user disarmed the first");
    trap.off()
}

/// Loaded twice, unloaded while in use; and a killed user leaves nothing armed.
pub fn in_use_fail() -> Result<()> {
    let trap = Trap::on(&[0, 1], "")?;
    let file = trap::find().context("no module")?;
    let parameters = format!("components={}", components());
    ensure!(refusal(trap::load(&file, &parameters), "a second load")? == libc::EEXIST, "twice");
    let busy = refusal(trap::unload(), "unloading while open")?;
    ensure!(busy == libc::EAGAIN, "unloading while open: {}", Error::from_raw_os_error(busy));
    trap.off()?;
    load(&parameters)?;
    let mut child = crate::guest::Child::fork(|| {
        let device = Device::open().expect("the module is loaded");
        device.arm(&[0, 1].into_iter().collect()).expect("CPUs exist");
        // SAFETY: no memory involved.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    })?;
    ensure!(child.wait()? == 128 + libc::SIGKILL, "it was not killed");
    ensure!(Device::open()?.info()?.cpus_armed == 0, "CPUs are armed by a dead process");
    unload()
}
