// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine that Bochs shows, and its start.
//!
//! ```text
//!   floppy       the sector that enters the kernel, which is in memory: see pvh.rs
//!   ata0 master  CD: the read-only root, a squashfs
//!   ata1 master  disk "text": the streams, see files.rs
//!   ata1 slave   disk "out": the tar of /out
//!   com1         the kernel's console
//!   com2         control lines
//! ```

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::build::Bochs;
use super::pvh;
use crate::emulator;
use crate::files::{Files, REGION_SECTORS};
use crate::guest::Guest;
use crate::process::Group;

/// Of the kernel command line, beside `emulator::KERNEL_ARGS`.
///
/// | parameter | why |
/// |---|---|
/// | `tsc=reliable tsc_early_khz` | the clock of `IPS`; without it `sleep 1` takes 35 s |
/// | `no_timer_check` | the check fails by chance |
/// | `no5lvl` | Bochs 3.0 panics when it leaves SMM with five levels of page tables |
/// | `panic=0` | a panic stays: a reboot would boot the same kernel again |
const KERNEL_ARGS: &str = "panic=0 no_timer_check no5lvl tsc=reliable";

/// More of it for a dim-silicon machine: MONITOR and MWAIT of Bochs wake CPUs needlessly, and a CPU
/// that is awake is one that lowers the others' clocks.
const SILICON_ARGS: &str = "idle=halt";

/// Instructions in a second of guest time: what one host CPU does in about a
/// second, and the frequency of the time stamp counter.
const IPS: u32 = 100_000_000;

/// Instructions before the next CPU has its turn. Less costs speed, more makes
/// spinning CPUs wait.
const QUANTUM: u32 = 16;

/// Of a dim-silicon machine, which orders CPUs by their times: the longest trace.
const SILICON_QUANTUM: u32 = 32;

/// Time of day at which a dim-silicon machine starts, in seconds: the same for all runs.
const SILICON_TIME0_S: u32 = 1_767_225_600;

/// The model of `Guest::cpu` "max": AVX-512 and XSAVES. `sapphire_rapids` has
/// AMX too.
const CPU_MODEL: &str = "corei7_skylake_x";

/// Size of the blocks that its memory is of. Each has a name that is compared with those of all
/// others: with the default of 128 KiB, a machine with 2 GiB starts 3 s later.
const BLOCK_KIB: u32 = 4096;

/// What processors of Bochs have and do wrong: with AMD's FMA4, which glibc uses where it is there,
/// exp(2) is wrong.
const WRONG_FEATURES: &str = "fma4";

/// Geometry of our disks, in sectors of 512 bytes.
const HEADS: u64 = 16;
const SECTORS_PER_TRACK: u64 = 63;

/// Of a floppy disk.
const FLOPPY_BYTES: usize = 2880 * 512;

/// Cylinders of the two disks. The guest tells them apart by their sizes.
const TEXT_CYLINDERS: u64 = 3 * REGION_SECTORS / (HEADS * SECTORS_PER_TRACK);
const OUT_CYLINDERS: u64 = 4 * REGION_SECTORS / (HEADS * SECTORS_PER_TRACK);

/// Starts the emulator.
pub(crate) fn start(guest: &Guest, bochs: &Bochs, files: &Files) -> Result<Group> {
    ensure!(guest.icount_shift.is_none(), "only QEMU counts instructions: leave out --icount");
    let kernel = write_boot(guest, files)?;
    disk(&files.text_disk(), TEXT_CYLINDERS)?;
    disk(&files.out(), OUT_CYLINDERS)?;
    let config = files.dir.join("bochsrc");
    fs::write(&config, settings(guest, bochs, files, kernel)?).context("cannot write bochsrc")?;
    let complaints = File::create(files.complaints()).context("cannot write to the cache")?;
    let mut command = Command::new(bochs.program());
    command.args(["-q", "-f"]).arg(&config).current_dir(files.dir);
    if let Some(silicon) = &guest.silicon {
        command.env("TURBOLANE_SILICON", &silicon.settings);
        command.env("TURBOLANE_SILICON_LOG", files.silicon_log());
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    Group::spawn(&mut command)
}

/// Writes what the machine boots from; returns the address of the kernel.
fn write_boot(guest: &Guest, files: &Files) -> Result<u64> {
    let kernel = pvh::Kernel::load(&guest.images.kernel.image())?;
    let tsc_khz = ips(guest) / 1000;
    let mut args = format!("{} {KERNEL_ARGS} tsc_early_khz={tsc_khz}", emulator::KERNEL_ARGS);
    let silicon = guest.silicon.as_ref().map(|_| SILICON_ARGS);
    for more in silicon.into_iter().chain(guest.kernel_args.as_deref()) {
        args += &format!(" {more}");
    }
    let initramfs = fs::metadata(files.initramfs()).context("no initramfs")?;
    let info = pvh::info(guest.memory_mib, initramfs.len(), &args)?;
    let mut floppy = vec![0; FLOPPY_BYTES];
    floppy[..512].copy_from_slice(&kernel.boot_sector());
    for (path, bytes) in
        [(files.floppy(), &floppy), (files.info(), &info), (files.kernel(), &kernel.bytes)]
    {
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(kernel.base)
}

fn disk(path: &Path, cylinders: u64) -> Result<()> {
    let bytes = cylinders * HEADS * SECTORS_PER_TRACK * 512;
    File::create(path)
        .and_then(|file| file.set_len(bytes))
        .with_context(|| format!("cannot make {}", path.display()))
}

/// Frequency of the time stamp counter.
fn ips(guest: &Guest) -> u32 {
    guest.silicon.as_ref().map_or(IPS, |silicon| silicon.tsc_khz * 1000)
}

/// The text of bochsrc.
fn settings(guest: &Guest, bochs: &Bochs, files: &Files, kernel: u64) -> Result<String> {
    let model = match &guest.silicon {
        _ if guest.cpu != "max" => &guest.cpu,
        Some(silicon) => &*silicon.processor,
        None => CPU_MODEL,
    };
    let count = cpus(guest)?;
    let memory_mib = guest.memory_mib;
    let ips = ips(guest);
    let (quantum, time0) = match guest.silicon {
        Some(_) => (SILICON_QUANTUM, SILICON_TIME0_S.to_string()),
        None => (QUANTUM, "local".to_owned()),
    };
    let show = |path: &Path| format!("\"{}\"", path.display());
    let memory = |number: u32, path: &Path, address: u64| {
        format!("optramimage{number}: file={}, address={address:#x}", show(path))
    };
    let disk = |path: &Path, cylinders: u64| {
        let geometry = format!("cylinders={cylinders}, heads={HEADS}, spt={SECTORS_PER_TRACK}");
        format!("type=disk, path={}, mode=flat, {geometry}", show(path))
    };
    let lines = [
        "config_interface: textconfig".to_owned(),
        "display_library: nogui".to_owned(),
        format!("memory: guest={memory_mib}, host={memory_mib}, block_size={BLOCK_KIB}"),
        format!("romimage: file={}", show(&bochs.firmware("BIOS-bochs-latest"))),
        format!("vgaromimage: file={}", show(&bochs.firmware("vgabios.bin"))),
        format!(
            "cpu: model={model}, count={count}, ips={ips}, quantum={quantum}, \
            reset_on_triple_fault=0, exclude_features={WRONG_FEATURES}"
        ),
        format!("clock: sync=none, time0={time0}"),
        "ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14".to_owned(),
        "ata1: enabled=1, ioaddr1=0x170, ioaddr2=0x370, irq=15".to_owned(),
        format!("floppya: 1_44={}, status=inserted", show(&files.floppy())),
        memory(1, &files.kernel(), kernel),
        memory(2, &files.initramfs(), pvh::INITRAMFS),
        memory(3, &files.info(), pvh::INFO),
        format!("ata0-master: type=cdrom, path={}, status=inserted", show(&guest.images.disk)),
        format!("ata1-master: {}", disk(&files.text_disk(), TEXT_CYLINDERS)),
        format!("ata1-slave: {}", disk(&files.out(), OUT_CYLINDERS)),
        "boot: floppy".to_owned(),
        format!("com1: enabled=1, mode=file, dev={}", show(&files.console())),
        format!("com2: enabled=1, mode=file, dev={}", show(&files.control())),
        format!("log: {}", show(&files.dir.join("bochs.log"))),
        "panic: action=fatal".to_owned(),
        "error: action=ignore".to_owned(),
        "info: action=ignore".to_owned(),
        "debug: action=ignore".to_owned(),
    ];
    Ok(lines.join("\n") + "\n")
}

/// CPUs as Bochs counts them: packages, cores in each, threads in each of those.
fn cpus(guest: &Guest) -> Result<String> {
    let mut count = [1; 3];
    let names = ["sockets", "cores", "threads"];
    for part in guest.topology.iter().flat_map(|text| text.split(',')) {
        let known = part.split_once('=').and_then(|(name, value)| {
            Some((names.iter().position(|known| *known == name)?, value.parse::<u32>().ok()?))
        });
        let (index, value) =
            known.with_context(|| format!("Bochs knows sockets, cores and threads, not {part}"))?;
        count[index] = value;
    }
    if guest.topology.is_none() {
        // The clocks of a dim-silicon machine are those of one package.
        count[usize::from(guest.silicon.is_some())] = guest.cpus;
    }
    let [sockets, cores, threads] = count;
    ensure!(guest.silicon.is_none() || sockets == 1, "a dim-silicon machine has one socket");
    ensure!(
        sockets * cores * threads == guest.cpus,
        "the topology has {} CPUs, but the guest is to have {}",
        sockets * cores * threads,
        guest.cpus
    );
    Ok(format!("{sockets}:{cores}:{threads}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_fit_their_disk() {
        let sectors = TEXT_CYLINDERS * HEADS * SECTORS_PER_TRACK;
        assert_eq!(sectors, 3 * REGION_SECTORS);
        assert_ne!(TEXT_CYLINDERS, OUT_CYLINDERS);
    }
}
