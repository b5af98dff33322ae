// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batch work beside wide code of other processes (SYSTOR 4.2, THESIS 5), as one point of an
//! experiment: gzip compresses files while `openssl speed` encrypts by ChaCha20-Poly1305. Nothing
//! here waits for anything: a process with less CPU time or a lower clock does less.
//!
//! ```text
//! vmtests batch CODE MILLISECONDS[+WARM_UP] [ARGUMENT OF turbolane run...]
//! ```
//!
//! CODE is the form of OpenSSL's ciphers (`openssl.rs`). With arguments the load runs under
//! `turbolane run`. What both loads did, and how much CPU time they had, goes to `point.json`.
//!
//! **Where they run.** On all CPUs, of which each gets one process of either load to begin with.
//! With CPU 0 left out, which then idled, processes did not stay two to a CPU: an openssl had one
//! for itself during an entire point (docs/experiments/silicon.md).
//!
//! **What is counted.** gzip reads a small file again and again: what it has read is what it has
//! compressed, but for one file (`/proc/PID/io`). `openssl speed` counts the blocks that it
//! encrypts until SIGALRM comes and goes on to the next size of blocks: so the signals, sent with
//! the marks, begin and end the count of the last size.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::{nr_cpus, set_affinity, wait_for};
use crate::openssl::Code;
use crate::point::{Done, Running, Scheduler, mark, with_warm_up};
use crate::silicon::ask_for_full_clock;

const DIR: &str = "/tmp/batch";
/// Of the file that is compressed: 0.9 ms of a CPU, so that what a gzip has begun with does not
/// matter.
const FILE_BYTES: usize = 8 * 1024;
/// How often a gzip reads it, so that it does not end: 7 s of a CPU.
const FILES: usize = 8_000;
/// Sizes of blocks that `openssl speed` goes through, the last of which is counted, and how large
/// that is.
const SIZES: usize = 6;
const BLOCK_BYTES: f64 = 16_384.0;
/// For all processes to run where they were put, before they may go elsewhere.
const SPREAD: Duration = Duration::from_millis(20);
/// Before the first mark if nothing was said, with everything running: many times what a lane needs
/// to see who is wide.
const WARM_UP: Duration = Duration::from_millis(80);
/// For a process to go on to the next size.
const NEXT_LIMIT: Duration = Duration::from_secs(20);

/// `openssl speed`, which writes what it does to a file.
struct Encrypting {
    process: Running,
    log: PathBuf,
}

/// One point: see the head of this file.
pub fn point(code: &str, ms: &str, run: &[&str]) -> Result<()> {
    let (ms, warm_up_ms) = with_warm_up(ms).context("MILLISECONDS[+WARM_UP]")?;
    let time = Duration::from_millis(ms as u64);
    let warm_up = warm_up_ms.map_or(WARM_UP, |ms| Duration::from_millis(ms as u64));
    let code = Code::parse(code)?;
    let cpus: Vec<usize> = (0..nr_cpus()).collect();
    cpus.iter().try_for_each(|&cpu| ask_for_full_clock(cpu))?;
    fs::create_dir_all(DIR)?;
    fs::write(format!("{DIR}/text"), text())?;
    let scheduler = Scheduler::start(run)?;
    // As many processes of each load as CPUs, as in SYSTOR 4.2; by its fair share the wide code
    // needs half of the CPUs.
    let encrypting = cpus.iter().map(|&cpu| Encrypting::start(&code, cpu));
    let encrypting = encrypting.collect::<Result<Vec<_>>>()?;
    encrypting.iter().try_for_each(|one| one.go_on_to(SIZES - 1))?;
    let mut zipping = cpus.iter().map(|&cpu| zip(cpu)).collect::<Result<Vec<_>>>()?;
    sleep(SPREAD);
    let processes = encrypting.iter().map(|one| &one.process).chain(&zipping);
    for process in processes {
        set_affinity(process.pid() as i32, &cpus)?;
    }
    sleep(warm_up);
    let (before, start) = (Counts::read(&zipping, &encrypting)?, Instant::now());
    encrypting.iter().for_each(Encrypting::next);
    mark(1)?;
    sleep(time);
    mark(2)?;
    encrypting.iter().for_each(Encrypting::next);
    let (after, seconds) = (Counts::read(&zipping, &encrypting)?, start.elapsed().as_secs_f64());
    for gzip in &mut zipping {
        ensure!(gzip.is_alive()?, "a gzip ended before the time was over");
    }
    drop(zipping);
    let blocks = encrypting.iter().map(Encrypting::counted).sum::<Result<f64>>()?;
    let done = |load, bytes: f64, cpu_s| Done { load, done: bytes / 1e6, cpu_s: Some(cpu_s) };
    let loads = [
        done("gzip", after.gzip_bytes - before.gzip_bytes, after.gzip_s - before.gzip_s),
        done("openssl", blocks * BLOCK_BYTES, after.openssl_s - before.openssl_s),
    ];
    scheduler.end(&loads, seconds)
}

/// What the kernel has counted up to a moment.
struct Counts {
    gzip_bytes: f64,
    /// CPU time, s.
    gzip_s: f64,
    openssl_s: f64,
}

impl Counts {
    fn read(zipping: &[Running], encrypting: &[Encrypting]) -> Result<Self> {
        Ok(Counts {
            gzip_bytes: zipping.iter().map(bytes_read).sum::<Result<f64>>()?,
            gzip_s: zipping.iter().map(cpu_s).sum::<Result<f64>>()?,
            openssl_s: encrypting.iter().map(|one| cpu_s(&one.process)).sum::<Result<f64>>()?,
        })
    }
}

/// CPU time of a process with one thread.
fn cpu_s(process: &Running) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{}/schedstat", process.pid()))?;
    let ns = stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    Ok(ns.context("the kernel does not count CPU time")? / 1e9)
}

/// What a log file may look like.
fn text() -> String {
    let lines = (0u64..).map(|i| format!("line {i}: {:x}\n", i * 2_654_435_761));
    let mut text = String::new();
    for line in lines {
        if text.len() + line.len() > FILE_BYTES {
            break;
        }
        text += &line;
    }
    text
}

/// A command of the load, bound to a CPU.
fn command(program: &str, cpu: usize) -> Command {
    let mut command = Command::new(program);
    command.current_dir(DIR).stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: one system call between fork and exec, on memory that this process had before.
    unsafe { command.pre_exec(move || set_affinity(0, &[cpu]).map_err(std::io::Error::other)) };
    command
}

fn zip(cpu: usize) -> Result<Running> {
    let mut gzip = command("gzip", cpu);
    gzip.arg("--stdout").args(std::iter::repeat_n("text", FILES));
    Running::spawn(&mut gzip)
}

fn bytes_read(process: &Running) -> Result<f64> {
    let io = fs::read_to_string(format!("/proc/{}/io", process.pid()))?;
    rchar(&io).context("the kernel does not count what a process reads")
}

fn rchar(io: &str) -> Option<f64> {
    io.lines().find_map(|line| line.strip_prefix("rchar: "))?.trim().parse().ok()
}

impl Encrypting {
    fn start(code: &Code, cpu: usize) -> Result<Self> {
        let log = PathBuf::from(format!("{DIR}/openssl-{cpu}.log"));
        let mut openssl = command("openssl", cpu);
        // It ends by our signals, long before its time. All of its blocks are one message for
        // OpenSSL 3.5, whose Poly1305 goes on by 256-bit code after the first of them: with
        // ChaCha20's light 512-bit code that asks for level 1, where a web server's records ask for
        // level 2.
        openssl.args(["speed", "-seconds", "1000", "-aead", "-evp", "chacha20-poly1305"]);
        openssl.envs(code.environment()).stderr(fs::File::create(&log)?);
        Ok(Encrypting { process: Running::spawn(&mut openssl)?, log })
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends the size that it is at.
    fn next(&self) {
        self.process.signal(libc::SIGALRM);
    }

    /// Has it go on until it is at the size of this number.
    fn go_on_to(&self, size: usize) -> Result<()> {
        for at in 1..=size {
            wait_for("openssl speed does not go on", NEXT_LIMIT, || sizes_begun(&self.log()) == at)
                .with_context(|| self.log())?;
            if at < size {
                self.next();
            }
        }
        Ok(())
    }

    /// Blocks of the last size, once it says so.
    fn counted(&self) -> Result<f64> {
        let mut blocks = None;
        let done = wait_for("openssl speed does not end", NEXT_LIMIT, || {
            blocks = blocks_counted(&self.log());
            blocks.is_some()
        });
        done.with_context(|| self.log())?;
        blocks.with_context(|| format!("no count of blocks in: {}", self.log()))
    }
}

/// Sizes that it has begun with; lines are of the form `Doing ChaCha20-Poly1305 ops for 1000s on
/// 16384 size blocks: 5123 ChaCha20-Poly1305 ops in 0.31s`.
fn sizes_begun(log: &str) -> usize {
    log.lines().filter(|line| line.starts_with("Doing ")).count()
}

/// Blocks of the last size.
fn blocks_counted(log: &str) -> Option<f64> {
    let line = log.lines().find(|line| line.contains(" on 16384 size blocks: "))?;
    let (_, counted) = line.split_once("blocks: ")?;
    // A number that is followed by something was written to its end.
    counted.split_once(' ')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "Doing ChaCha20-Poly1305 ops for 9s on 8192 size blocks: 155584 ChaCha20-Poly1305 ops in 0.30s\n\
        Doing ChaCha20-Poly1305 ops for 9s on 16384 size blocks: ";

    #[test]
    fn counts_are_read_when_they_are_whole() {
        assert_eq!(sizes_begun(LOG), 2);
        assert_eq!(blocks_counted(LOG), None);
        assert_eq!(blocks_counted(&format!("{LOG}73")), None);
        assert_eq!(blocks_counted(&format!("{LOG}73635 ChaCha20-Poly1305 ops in")), Some(73_635.0));
    }

    #[test]
    fn what_was_read_is_found() {
        assert_eq!(rchar("rchar: 1234\nwchar: 5\n"), Some(1234.0));
        assert_eq!(rchar(""), None);
    }

    #[test]
    fn the_file_has_its_size() {
        let bytes = text().len();
        assert!(bytes <= FILE_BYTES && bytes > FILE_BYTES - 40);
    }
}
