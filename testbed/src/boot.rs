// SPDX-License-Identifier: MIT OR Apache-2.0
//! One guest run: start, follow, collect.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::Guest;
use crate::outcome::{End, Outcome};
use crate::process::{Scratch, last_lines, output};
use crate::qemu::{self, Files};
use crate::{initramfs, logscan};

/// A boot takes 4 to 8 s; one that has not reached the command after this time
/// hangs, as boots under emulation rarely do.
const BOOT_LIMIT: Duration = Duration::from_secs(90);

/// The same when instructions are counted, and a boot takes 25 s.
const COUNTED_BOOT_LIMIT: Duration = Duration::from_secs(240);

/// How often the guest's output is looked for.
const POLL: Duration = Duration::from_millis(10);

/// Boots the guest; once more if it dies before the command has started,
/// which is the emulator's doing and never the command's.
pub(crate) fn run(guest: &Guest, script: &str) -> Result<Outcome> {
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
    let files = Files(scratch.path());
    let base = &guest.images.initramfs;
    initramfs::with_payload(base, &guest.payload, script, &files.initramfs())?;
    let start = Instant::now();
    let (end, boot_s) = follow(guest, &files, start)?;
    let total_s = start.elapsed().as_secs_f64();
    let kernel_log = match &end {
        End::Exited(_) => text(&files.port("dmesg")),
        _ => text(&files.console()),
    };
    let out_dir = scratch.path().join("returned");
    if matches!(end, End::Exited(_)) {
        unpack(&files.port("out"), &out_dir)?;
    }
    Ok(Outcome {
        stdout: text(&files.port("stdout")),
        stderr: text(&files.port("stderr")),
        findings: logscan::scan(&kernel_log, &guest.allowed),
        kernel_log,
        end,
        boot_s,
        total_s,
        retries: 0,
        out_dir,
        _scratch: scratch,
    })
}

/// Runs the emulator to its end. Returns how it ended, and when the command
/// started.
fn follow(guest: &Guest, files: &Files, start: Instant) -> Result<(End, Option<f64>)> {
    let mut qemu = qemu::start(guest, files)?;
    let mut stdout = Tail::new(files.port("stdout"));
    let mut stderr = Tail::new(files.port("stderr"));
    let boot_limit = if guest.icount_shift.is_some() { COUNTED_BOOT_LIMIT } else { BOOT_LIMIT };
    let mut boot_s = None;
    loop {
        let ended = qemu.try_wait()?;
        if guest.echo {
            stdout.copy_to(&mut io::stdout())?;
            stderr.copy_to(&mut io::stderr())?;
        }
        let control = text(&files.port("ctl"));
        if boot_s.is_none() && control.starts_with("start\n") {
            boot_s = Some(start.elapsed().as_secs_f64());
        }
        if ended.is_some() {
            return Ok((verdict(&control, files), boot_s));
        }
        if start.elapsed() > guest.limit {
            return Ok((End::TimedOut, boot_s));
        }
        if boot_s.is_none() && start.elapsed() > boot_limit {
            let why = format!("the boot hung\n{}", last_words(files));
            return Ok((End::Died(why), None));
        }
        std::thread::sleep(POLL);
    }
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

/// A file that another process appends to, read as far as it goes.
struct Tail {
    path: PathBuf,
    file: Option<File>,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None }
    }

    fn copy_to(&mut self, out: &mut dyn Write) -> Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let mut new = Vec::new();
        file.read_to_end(&mut new).context("cannot read the guest's output")?;
        out.write_all(&new).and_then(|()| out.flush()).context("cannot pass on the guest's output")
    }
}

/// A file's text; nothing if the guest never wrote it.
fn text(path: &Path) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
