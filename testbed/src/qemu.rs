// SPDX-License-Identifier: MIT OR Apache-2.0
//! QEMU's command line.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::files::Files;
use crate::guest::Guest;
use crate::process::Group;
use crate::{emulator, hang};

/// Of the kernel command line, beside `emulator::KERNEL_ARGS`.
///
/// | parameter | why |
/// |---|---|
/// | `panic=-1` | a panic reboots at once, and `-no-reboot` turns that into an exit |
/// | `tsc=nowatchdog` | Linux 7.3 compares two CPUs' counters by having both spin until the other has looked, without interrupts. With one thread for all vCPUs a turn of that takes a round of all of them, and while it went on guests were found locked up, whoever the waiting CPU held a lock for |
const KERNEL_ARGS: &str = "panic=-1 tsc=nowatchdog";

/// Has the root's systemd start the unit that `guest/init` writes, and no login on the console:
/// without udev systemd would wait for its device.
const SYSTEMD_ARGS: &str = "systemd.wants=guest.service systemd.getty_auto=no";

const PROGRAM: &str = "qemu-system-x86_64";

/// The virtio-serial ports that `guest/init` looks for, each with the file
/// that it fills on the host.
const PORTS: [&str; 5] = ["ctl", "stdout", "stderr", "dmesg", "out"];

/// Starts the emulator.
pub(crate) fn start(guest: &Guest, files: &Files) -> Result<Group> {
    let complaints = File::create(files.complaints()).context("cannot write to the cache")?;
    let mut command = Command::new(PROGRAM);
    machine(&mut command, guest);
    devices(&mut command, guest, files);
    // The monitor's commands come in, and nobody reads what it answers.
    command.args(["-monitor", "stdio"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(complaints);
    Group::spawn(&mut command)
}

fn machine(command: &mut Command, guest: &Guest) {
    command.args(["-no-user-config", "-nodefaults", "-no-reboot"]);
    command.args(["-display", "none", "-machine", "pc,usb=off"]);
    // With one thread per vCPU, QEMU 7.2 crashes about every sixth boot: a CPU
    // runs into the int3 that another one is patching over.
    command.args(["-accel", "tcg,thread=single", "-cpu", &guest.cpu]);
    let mut smp = guest.cpus.to_string();
    if let Some(topology) = &guest.topology {
        smp = format!("{smp},{topology}");
    }
    command.args(["-smp", &smp, "-m", &guest.memory_mib.to_string()]);
    if let Some(shift) = guest.icount_shift {
        // With sleep=off an idle guest jumps to its next timer. A CPU has all the time up to then,
        // and those after it what it leaves: before QEMU 8.1 one that never waits starves them.
        // So tests that count instructions keep such programs on the last CPU.
        command.args(["-icount", &format!("shift={shift},sleep=off")]);
    }
}

fn devices(command: &mut Command, guest: &Guest, files: &Files) {
    let more = guest.kernel_args.as_deref().unwrap_or_default();
    let common = emulator::KERNEL_ARGS;
    let systemd = if guest.has_systemd { SYSTEMD_ARGS } else { "" };
    let args = format!("{common} {KERNEL_ARGS} {} {systemd} {more}", hang::KERNEL_ARGS);
    let images = &guest.images;
    command.arg("-kernel").arg(images.kernel.image());
    command.arg("-initrd").arg(files.initramfs());
    command.args(["-append", &args]);
    let disk = option_path(&images.disk);
    command.args(["-drive", &format!("if=none,id=disk,format=raw,readonly=on,file={disk}")]);
    command.args(["-device", "virtio-blk-pci,drive=disk"]);
    let console = option_path(&files.console());
    command.args(["-chardev", &format!("file,id=console,path={console}")]);
    command.args(["-serial", "chardev:console"]);
    command.args(["-device", "virtio-serial-pci"]);
    for name in PORTS {
        let path = option_path(&files.dir.join(name));
        command.args(["-chardev", &format!("file,id={name},path={path}")]);
        command.args(["-device", &format!("virtserialport,chardev={name},name=tl.{name}")]);
    }
}

/// A path as a value in an option list, where a comma is written twice.
fn option_path(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}
