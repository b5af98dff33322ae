// SPDX-License-Identifier: MIT OR Apache-2.0
//! A local user as attacker of the trap module and of what looks at programs for it. Each attack is
//! made as user `nobody`; afterwards the machine goes on, no other user's program has changed, and
//! the kernel's log is clean.

use std::ffi::CString;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hw::trap::Device;
use sched::questions::Watch;

use super::trap::all_cpus;
use crate::guest::{Child, install, nr_cpus, set_affinity, wait_for};
use crate::trap::Trap;

const NOBODY: u32 = 65534;

/// Asks what the CPU has: it has an `xgetbv`.
const ASKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/asks-static"));

type Attack = (&'static str, fn(&Trap) -> Result<()>);

/// What a local user can do with files that are executed.
pub fn by_files() -> Result<()> {
    each(&[
        ("unmounts the file system of a program", unmounted),
        ("lets a name lead to another file", swapped),
        ("maps what is no program", odd_files),
        ("makes and deletes programs", many_files),
    ])
}

/// What a local user can do with the device.
pub fn by_device() -> Result<()> {
    each(&[("calls the device", device_calls)])
}

/// What a local user can do by being quick.
pub fn by_races() -> Result<()> {
    each(&[("starts, ends and changes all the time", races)])
}

fn each(attacks: &[Attack]) -> Result<()> {
    install("/tmp/asks", ASKS)?;
    fs::set_permissions("/tmp", fs::Permissions::from_mode(0o1777))?;
    for (name, attack) in attacks {
        println!("nobody {name}");
        let trap = Trap::on(&all_cpus(), "mode=grace grace_ns=10000 withhold_unread=0")?;
        attack(&trap).with_context(|| format!("nobody {name}"))?;
        trap.off()?;
        log_is_clean().with_context(|| format!("nobody {name}"))?;
    }
    Ok(())
}

fn log_is_clean() -> Result<()> {
    let log = String::from_utf8_lossy(&Command::new("dmesg").output()?.stdout).into_owned();
    for word in ["BUG", "WARNING", "Busy inodes", "Oops", "Call Trace", "general protection"] {
        if let Some(line) = log.lines().find(|line| line.contains(word)) {
            bail!("the kernel's log: {line}");
        }
    }
    Ok(())
}

/// A process of user nobody; what it finds wrong it prints.
fn as_nobody(body: impl FnOnce() -> Result<()>) -> Result<Child> {
    fork(|| {
        // SAFETY: no memory involved.
        let dropped = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setgid(NOBODY) == 0
                && libc::setuid(NOBODY) == 0
                // A process that changed its user does not own its folder in /proc.
                && libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
        };
        ensure!(dropped, "still root");
        body()
    })
}

/// A process that prints what it finds wrong, and ends with 1 then.
fn fork(body: impl FnOnce() -> Result<()>) -> Result<Child> {
    Child::fork(|| {
        if let Err(error) = body() {
            println!("child: {error:#}");
            // SAFETY: ends the child alone.
            unsafe { libc::_exit(1) };
        }
    })
}

fn check(result: i32, what: &str) -> Result<()> {
    ensure!(result == 0, "{what}: {}", std::io::Error::last_os_error());
    Ok(())
}

fn mount_tmpfs(on: &str) -> Result<()> {
    let (kind, on) = (CString::new("tmpfs")?, CString::new(on)?);
    // SAFETY: strings that end.
    let result = unsafe {
        libc::mount(kind.as_ptr(), on.as_ptr(), kind.as_ptr(), libc::MS_NOSUID, std::ptr::null())
    };
    check(result, "mount")
}

fn unmount(on: &str, flags: i32) -> Result<()> {
    let on = CString::new(on)?;
    // SAFETY: a string that ends.
    check(unsafe { libc::umount2(on.as_ptr(), flags) }, "umount")
}

/// A program from a file system that goes while the run goes on: unmounted, detached while the
/// program runs, or with the namespace of a container.
fn unmounted(trap: &Trap) -> Result<()> {
    fs::create_dir_all("/tmp/container")?;
    for how in ["unmounted", "detached", "with its namespace"] {
        let (mut ready, mut go) = ([0; 2], [0; 2]);
        for pipe in [&mut ready, &mut go] {
            // SAFETY: room for two descriptors.
            check(unsafe { libc::pipe(pipe.as_mut_ptr()) }, "pipe")?;
        }
        // The guest's root is a chroot, in which nobody gets no user namespace: root plays the
        // container's runtime.
        let mut child = fork(|| {
            // SAFETY: no memory involved.
            check(unsafe { libc::unshare(libc::CLONE_NEWNS) }, "unshare")?;
            mount_tmpfs("/tmp/container")?;
            install("/tmp/container/asks", ASKS)?;
            let mut program = Command::new("/tmp/container/asks");
            let mut program = program.args(["late", "60000"]).uid(NOBODY).gid(NOBODY).spawn()?;
            std::thread::sleep(Duration::from_millis(300));
            let pid = program.id();
            // SAFETY: one number.
            unsafe { libc::write(ready[1], (&raw const pid).cast(), 4) };
            // SAFETY: one byte.
            unsafe { libc::read(go[0], [0_u8].as_mut_ptr().cast(), 1) };
            if how == "detached" {
                unmount("/tmp/container", libc::MNT_DETACH)?;
            }
            program.kill()?;
            program.wait()?;
            if how == "unmounted" {
                // What is busy for a moment after the program's end is not for long.
                wait_for("unmounting", Duration::from_secs(10), || {
                    unmount("/tmp/container", 0).is_ok()
                })?;
            }
            Ok(())
        })?;
        let mut pid = 0_u32;
        // A child that fails ends the pipe.
        // SAFETY: ours, and used by the child alone.
        unsafe { libc::close(ready[1]) };
        // SAFETY: one number.
        ensure!(
            // SAFETY: four bytes into a number of four bytes.
            unsafe { libc::read(ready[0], (&raw mut pid).cast(), 4) } == 4,
            "{how}: no program"
        );
        let added = Watch::new().look_at(pid, trap.device());
        ensure!(added.xgetbv_sites > 0, "{how}: the program has no site: {added:?}");
        // SAFETY: one byte.
        unsafe { libc::write(go[1], [1_u8].as_ptr().cast(), 1) };
        ensure!(child.wait()? == 0, "{how}: the attacker failed");
        for fd in [ready[0], go[0], go[1]] {
            // SAFETY: ours.
            unsafe { libc::close(fd) };
        }
        log_is_clean().context(how)?;
    }
    Ok(())
}

/// The file that a program's path names is another one by the time it is looked at. What gets sites
/// is what runs.
fn swapped(trap: &Trap) -> Result<()> {
    let place = "/tmp/swapped";
    fs::create_dir_all(place)?;
    let (path, other) = (format!("{place}/program"), format!("{place}/other"));
    install(&path, ASKS)?;
    // No program at all: whoever looks at the path learns nothing of what runs.
    fs::write(&other, vec![0x90; 1 << 16])?;
    let mut program = Command::new(&path).args(["late", "60000"]).spawn()?;
    std::thread::sleep(Duration::from_millis(300));
    fs::rename(&other, &path)?;
    let added = Watch::new().look_at(program.id(), trap.device());
    program.kill()?;
    program.wait()?;
    ensure!(added.xgetbv_sites > 0, "the file of the name was looked at: {added:?}");
    Ok(())
}

/// Pages of a file as code.
fn map_code(path: &str) -> Result<()> {
    let file = fs::File::open(path)?;
    // SAFETY: new memory that nobody uses.
    let at = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        )
    };
    ensure!(at != libc::MAP_FAILED, "{path}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Sparse files without an end, devices, text, mapped as code.
fn odd_files(trap: &Trap) -> Result<()> {
    let mut child = as_nobody(|| {
        let file = fs::File::create("/tmp/endless")?;
        file.set_len(1 << 38)?;
        drop(file);
        fs::write("/tmp/text", "no code")?;
        for path in ["/tmp/endless", "/tmp/text", "/dev/zero", "/etc/passwd"] {
            map_code(path)?;
        }
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    })?;
    std::thread::sleep(Duration::from_secs(1));
    let added = Watch::new().look_at(child.pid.cast_unsigned(), trap.device());
    // SAFETY: our own child.
    unsafe { libc::kill(child.pid, libc::SIGKILL) };
    child.wait()?;
    ensure!(added.failed >= 3, "odd files were read: {added:?}");
    fs::remove_file("/tmp/endless")?;
    Ok(())
}

/// Programs that come and go by the dozen leave nothing in the kernel.
fn many_files(trap: &Trap) -> Result<()> {
    let mut watch = Watch::new();
    for round in 0..2 {
        let mut child = as_nobody(|| {
            for nr in 0..40 {
                let path = format!("/tmp/many-{round}-{nr}");
                install(&path, ASKS)?;
                map_code(&path)?;
                fs::remove_file(&path)?;
            }
            std::thread::sleep(Duration::from_secs(600));
            Ok(())
        })?;
        std::thread::sleep(Duration::from_secs(2));
        let added = watch.look_at(child.pid.cast_unsigned(), trap.device());
        // SAFETY: our own child.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
        child.wait()?;
        ensure!(added.files > 10, "{added:?}");
    }
    Ok(())
}

/// Nobody cannot open the device, nor use a descriptor that he was given; and no argument harms.
fn device_calls(trap: &Trap) -> Result<()> {
    let given = Device::open()?;
    let mut child = as_nobody(|| {
        ensure!(Device::open().is_err(), "nobody opened the device");
        ensure!(given.info().is_err(), "nobody used the device");
        ensure!(given.arm(&[0].into_iter().collect()).is_err(), "nobody armed a CPU");
        ensure!(fs::write("/sys/module/turbolane_trap/parameters/mode", "steer").is_err());
        Ok(())
    })?;
    ensure!(child.wait()? == 0, "nobody can do too much");
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/turbolane_trap")?;
    for seed in 0..20_000_u64 {
        let mixed = crate::trap::vectors::mix(seed);
        // Any direction, size and number near ours, with bad and good addresses.
        let number = (mixed & 0xffff_0000) | 0x5400 | (0xbe + (mixed >> 32) % 12);
        let room = [mixed; 64];
        let address = [0, 1, mixed, room.as_ptr() as u64][(mixed >> 40) as usize % 4];
        if number & 0xff == 0xc1 || mixed >> 40 & 3 == 3 && number >> 30 & 2 != 0 {
            continue; // arms CPUs at random, or writes to what is not to be written
        }
        // SAFETY: the kernel checks addresses, which is what is tested.
        unsafe { libc::ioctl(device.as_raw_fd(), number, address) };
    }
    ensure!(trap.device().info()?.cpus_armed as usize == nr_cpus(), "a bad call disarmed CPUs");
    Ok(())
}

/// Programs that start, fork, end, map and protect code, while sites come and go and CPUs are armed
/// and disarmed.
fn races(trap: &Trap) -> Result<()> {
    let mut children = Vec::new();
    for nr in 0..6 {
        children.push(as_nobody(move || {
            loop {
                set_affinity(0, &[nr % nr_cpus()])?;
                match nr % 3 {
                    // Refused while it is open for writing.
                    0 => _ = Command::new("/tmp/asks").output(),
                    1 => _ = Child::fork(|| _ = map_code("/tmp/asks"))?.wait()?,
                    _ => protect_and_move()?,
                }
            }
        })?);
    }
    let mut watch = Watch::new();
    for round in 0..15 {
        watch.look_at_all(trap.device());
        // Whoever opens it for writing makes it unread; every second time it is deleted, too.
        drop(fs::OpenOptions::new().write(true).open("/tmp/asks"));
        if round % 2 == 0 {
            install("/tmp/asks.new", ASKS)?;
            fs::rename("/tmp/asks.new", "/tmp/asks")?;
        }
        trap.arm([&[0, 1, 2, 3][..], &[0, 2], &[]][round % 3])?;
        let other = Device::open()?;
        watch_of(&other);
    }
    for child in &children {
        // SAFETY: our own children.
        unsafe { libc::kill(child.pid, libc::SIGKILL) };
    }
    for child in &mut children {
        let end = child.wait()?;
        ensure!(end == 128 + libc::SIGKILL, "a child ended by itself: {end}");
    }
    Ok(())
}

/// A second session that has the same files for a moment.
fn watch_of(device: &Device) {
    // It may be gone, or open for writing.
    _ = Watch::new().look_at_file(Path::new("/tmp/asks"), device);
}

/// Memory that becomes executable, is moved, and goes.
fn protect_and_move() -> Result<()> {
    const BYTES: usize = 1 << 16;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: memory that nobody else uses.
    unsafe {
        let at = libc::mmap(std::ptr::null_mut(), BYTES, rw, flags, -1, 0);
        check(libc::mprotect(at, BYTES / 2, libc::PROT_READ | libc::PROT_EXEC), "mprotect")?;
        let moved = libc::mremap(at, BYTES / 2, BYTES, libc::MREMAP_MAYMOVE);
        ensure!(moved != libc::MAP_FAILED, "mremap");
        check(libc::munmap(moved, BYTES), "munmap")?;
        if moved != at {
            libc::munmap(at.add(BYTES / 2), BYTES / 2);
        }
    }
    Ok(())
}
