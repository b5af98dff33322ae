// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine sleeps and wakes up while CPUs are armed.
//!
//! The guest hibernates to a compressed disk in its own memory and resumes at once (`test_resume`):
//! tasks are frozen, CPUs taken away, the boot CPU's state saved, memory and then that state
//! brought back. That is all that suspending does to the module; suspend to memory itself does not
//! return in QEMU.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::{set_affinity, spin};
use crate::trap::stress::Stress;
use crate::trap::{Trap, xcr0};

const CONSOLE: &str = "/sys/bus/virtio/drivers/virtio_console";

/// Registers are held over hibernation, and the same CPUs withhold the same when it is over.
pub fn hibernation() -> Result<()> {
    let disk = swap_disk().context("a disk for the image")?;
    let trap = Trap::on(&[0, 1, 2], "mode=steer hold_ns=500000")?;
    let withheld = trap.device().info()?.xcr0_withheld;
    let stress = Stress::start(12, Duration::from_secs(20))?;
    std::thread::sleep(Duration::from_millis(500));
    let traps = trap.sum(|counters| counters.traps)?;
    fs::write("/sys/power/resume", disk)?;
    fs::write("/sys/power/disk", "test_resume")?;
    let slept = fs::write("/sys/power/state", "disk");
    reconnect()?;
    slept.context("the machine does not hibernate")?;
    // The kernel that made the image forgot that it has saved it, or it is not the one that was
    // brought back.
    let log = Command::new("dmesg").output()?.stdout;
    let log = String::from_utf8_lossy(&log);
    let resumed = log.contains("Normal pages needed") && !log.contains("Image saving");
    ensure!(resumed, "the machine did not resume from an image");

    stress.finish()?;
    ensure!(trap.sum(|counters| counters.traps)? > traps, "nothing trapped since");
    ensure!(trap.sum(|counters| counters.violations)? == 0, "the rule was broken");
    for (cpu, is_armed) in [(0, true), (1, true), (2, true), (3, false)] {
        set_affinity(0, &[cpu])?;
        spin(Duration::from_millis(60));
        ensure!((xcr0() & withheld == 0) == is_armed, "CPU {cpu} shows {:#x}", xcr0());
    }
    trap.off()
}

/// Swap on memory that is compressed; its device's number. What hibernates and resumes without a
/// reboot has read the image before that memory is overwritten.
fn swap_disk() -> Result<String> {
    let run = |command: &str| -> Result<()> {
        let status = Command::new("sh").args(["-ec", command]).stdout(Stdio::null()).status()?;
        ensure!(status.success(), "{command}: {status}");
        Ok(())
    };
    run("modprobe zram; echo 700M >/sys/block/zram0/disksize")?;
    run("mkswap /dev/zram0; swapon /dev/zram0")?;
    fs::write("/sys/power/image_size", "100000000")?;
    Ok(fs::read_to_string("/sys/block/zram0/dev")?.trim().into())
}

/// QEMU's serial ports, which carry our output, are dead behind a resume. Their driver finds them
/// again; init's two pumps end at the first line that they cannot pass on, and others take their
/// place.
fn reconnect() -> Result<()> {
    let entries = fs::read_dir(CONSOLE)?.flatten().map(|entry| entry.file_name());
    let mut devices = entries.filter(|name| name.to_string_lossy().starts_with("virtio"));
    let device = devices.next().context("no virtio console")?;
    for what in ["unbind", "bind"] {
        fs::write(format!("{CONSOLE}/{what}"), device.as_encoded_bytes())?;
    }
    for (stream, number) in [("stdout", 1), ("stderr", 2)] {
        let pipe = format!("/proc/1/root/{stream}");
        ensure!(fs::metadata(&pipe)?.file_type().is_fifo(), "{pipe} is no pipe");
        // The old pump reads this, fails and ends, if it has not already: then opening the pipe
        // only to write would wait for a reader.
        let own = format!("/proc/self/fd/{number}");
        let mut both_ends = fs::OpenOptions::new().read(true).write(true).open(own)?;
        writeln!(both_ends)?;
        std::thread::sleep(Duration::from_millis(500));
        let port = port_of(stream).with_context(|| format!("no port for {stream}"))?;
        let port = fs::OpenOptions::new().write(true).open(port)?;
        // It ends with the last who writes to the pipe, and init reaps it.
        Command::new("cat").stdin(fs::File::open(&pipe)?).stdout(port).spawn()?;
    }
    Ok(())
}

fn port_of(stream: &str) -> Option<String> {
    fs::read_dir("/sys/class/virtio-ports").ok()?.flatten().find_map(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).ok()?;
        let is_it = name.trim() == format!("tl.{stream}");
        is_it.then(|| format!("/dev/{}", entry.file_name().to_string_lossy()))
    })
}
