// SPDX-License-Identifier: MIT OR Apache-2.0
//! One guest run: start, follow, collect.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bochs::Bochs;
use crate::emulator::Emulator;
use crate::files::Files;
use crate::guest::Guest;
use crate::outcome::{End, Outcome};
use crate::process::{Group, Scratch, last_lines, output};
use crate::{bochs, hang, initramfs, logscan, qemu};

/// A boot takes 4 to 8 s; one that has not reached the command after this time
/// hangs, as boots under emulation rarely do.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// The same when instructions are counted, and a boot takes 25 s.
const COUNTED_BOOT_LIMIT: Duration = Duration::from_secs(240);

/// How often the guest's output is looked for.
const POLL: Duration = Duration::from_millis(10);

/// Bochs needs 10 s for a dim-silicon machine, and 45 s for four CPUs without.
const BOCHS_BOOT_LIMIT: Duration = Duration::from_secs(240);

/// The list of some hundred tasks goes through a serial port at the speed of the emulator.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What the kernel's console says last. A guest in Bochs cannot leave after it.
const PANIC: &str = "end Kernel panic";

impl Guest {
    /// Boots, runs `command` (found in the guest's PATH, standard input
    /// closed), collects everything, and powers off.
    ///
    /// A command that fails is no error here: see [`Outcome::end`].
    ///
    /// # Errors
    /// When the guest cannot be prepared or the emulator cannot be started.
    pub fn run(&self, command: &[&str]) -> Result<Outcome> {
        run(self, &self.script(command))
    }
}

/// Boots the guest; once more if it dies before the command has started,
/// which is the emulator's doing and never the command's.
fn run(guest: &Guest, script: &str) -> Result<Outcome> {
    let first = attempt(guest, script)?;
    if first.boot_s.is_some() || !matches!(first.end, End::Died(_)) {
        return Ok(first);
    }
    eprintln!("guest died before the command started ({:?}); booting again", first.end);
    let mut second = attempt(guest, script)?;
    second.retries = 1;
    Ok(second)
}

fn attempt(guest: &Guest, script: &str) -> Result<Outcome> {
    let scratch = Scratch::new(guest.cache.run_dir()?);
    let files = Files { dir: scratch.path(), emulator: guest.emulator };
    let (base, bochs) = base(guest)?;
    initramfs::with_payload(&base, guest, script, &files.initramfs())?;
    let start = Instant::now();
    let emulator = match &bochs {
        Some(bochs) => bochs::start(guest, bochs, &files)?,
        None => qemu::start(guest, &files)?,
    };
    let Followed { end, boot_s, command_cpu_s } = follow(guest, emulator, &files, start)?;
    let total_s = start.elapsed().as_secs_f64();
    let (kernel_log, hangs_at) = match &end {
        End::Exited(_) => (files.dmesg().text()?, String::new()),
        _ => {
            let console = text(&files.console());
            let (log, hangs_at) = hang::part(&console);
            (log.to_owned(), hangs_at)
        }
    };
    let out_dir = scratch.path().join("returned");
    if matches!(end, End::Exited(_)) {
        unpack(&files.out(), &out_dir)?;
    }
    Ok(Outcome {
        stdout: files.stdout().text()?,
        stderr: files.stderr().text()?,
        findings: logscan::scan(&kernel_log, &guest.allowed),
        kernel_log,
        hangs_at,
        end,
        boot_s,
        command_cpu_s,
        total_s,
        retries: 0,
        silicon_log: guest.silicon.as_ref().map(|_| files.silicon_log()),
        out_dir,
        _scratch: scratch,
    })
}

/// The part of the initramfs that is the same for all boots, and Bochs if that
/// is what the guest runs in; both are made when they are missing.
fn base(guest: &Guest) -> Result<(PathBuf, Option<Bochs>)> {
    let images = &guest.images;
    match guest.emulator {
        Emulator::Qemu => Ok((images.initramfs.clone(), None)),
        Emulator::Bochs => {
            let bochs = bochs::prepare(guest)?;
            let base = initramfs::prepare(&guest.cache, &images.kernel, &initramfs::BOCHS)?;
            Ok((base, Some(bochs)))
        }
    }
}

/// What was seen of an emulator from outside.
struct Followed {
    end: End,
    boot_s: Option<f64>,
    command_cpu_s: Option<f64>,
}

/// Follows the emulator to its end.
fn follow(guest: &Guest, mut emulator: Group, files: &Files, start: Instant) -> Result<Followed> {
    let (mut stdout, mut stderr) = (files.stdout(), files.stderr());
    let boot_limit = match guest.emulator {
        Emulator::Bochs => BOCHS_BOOT_LIMIT,
        Emulator::Qemu if guest.icount_shift.is_some() => COUNTED_BOOT_LIMIT,
        Emulator::Qemu => BOOT_LIMIT,
    };
    let (mut boot_s, mut boot_cpu_s, mut cpu_s) = (None, None, None);
    let followed = |end, boot_s, boot_cpu_s: Option<f64>, cpu_s: Option<f64>| {
        let command_cpu_s = boot_cpu_s.zip(cpu_s).map(|(from, to)| to - from);
        Ok(Followed { end, boot_s, command_cpu_s })
    };
    loop {
        cpu_s = emulator.cpu_s().or(cpu_s);
        let ended = emulator.try_wait()?.is_some() || panicked(files);
        if guest.echo {
            pass_on(&stdout.read_new()?, &mut io::stdout())?;
            pass_on(&stderr.read_new()?, &mut io::stderr())?;
        }
        let control = text(&files.control());
        if boot_s.is_none() && control.starts_with("start\n") {
            boot_s = Some(start.elapsed().as_secs_f64());
            boot_cpu_s = cpu_s;
        }
        if ended {
            return followed(verdict(&control, files), boot_s, boot_cpu_s, cpu_s);
        }
        if start.elapsed() > guest.limit {
            if guest.emulator == Emulator::Qemu {
                ask_where_it_hangs(&mut emulator)?;
            }
            return followed(End::TimedOut, boot_s, boot_cpu_s, cpu_s);
        }
        if boot_s.is_none() && start.elapsed() > boot_limit {
            let why = format!("the boot hung\n{}", last_words(files));
            return followed(End::Died(why), None, None, None);
        }
        std::thread::sleep(POLL);
    }
}

/// Has the guest say on its console what its CPUs and tasks do, which ends it.
fn ask_where_it_hangs(emulator: &mut Group) -> Result<()> {
    emulator.tell(hang::INTERRUPT)?;
    let start = Instant::now();
    while emulator.try_wait()?.is_none() && start.elapsed() < ANSWER_LIMIT {
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// What the guest's last control line says.
fn verdict(control: &str, files: &Files) -> End {
    let last = control.lines().last().unwrap_or_default();
    let code = last.strip_prefix("exit ").and_then(|code| code.parse().ok());
    if let (Some(code), true) = (code, control.ends_with('\n')) {
        return End::Exited(code);
    }
    let why = match last.strip_prefix("fail ") {
        Some(reason) => reason.to_owned(),
        None => format!("it stopped without a word\n{}", last_words(files)),
    };
    End::Died(why)
}

/// The ends of the console and of the emulator's own messages.
fn last_words(files: &Files) -> String {
    let console = text(&files.console());
    let complaints = text(&files.complaints());
    format!("{}\n{}", last_lines(&complaints, 5), last_lines(&console, 45))
}

fn unpack(tar: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to).with_context(|| format!("cannot make {}", to.display()))?;
    output(
        Command::new("tar")
            .args(["--extract", "--no-same-owner", "--file"])
            .arg(tar)
            .arg("--directory")
            .arg(to),
    )
    .context("cannot unpack what the guest left in /out")?;
    Ok(())
}

/// Whether the kernel has said its last words and cannot leave by itself.
fn panicked(files: &Files) -> bool {
    files.emulator == Emulator::Bochs && text(&files.console()).contains(PANIC)
}

fn pass_on(bytes: &[u8], out: &mut dyn Write) -> Result<()> {
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot pass on the guest's output")
}

/// A file's text; nothing if the guest never wrote it. A serial port ends lines
/// its own way.
fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace("\r\n", "\n")
}
