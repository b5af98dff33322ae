// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run takes over from another one while programs give hints: none is lost, and whatever fails
//! leaves the first one at work.

use std::fs;
use std::io::BufReader;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use report::ctl::{self, Reply, Request, SOCKET};
use serde_json::Value;

use crate::guest::{cpu, scx_state, spin, wait_for};
use crate::lane::{ENABLED, Lane, read, stat, stats, turbolane};
use crate::probe_site;

const FIRST_WIDE_CPU: usize = 2;
/// A run with two wide CPUs.
pub const ARGS: [&str; 4] = ["--mode", "scx", "--wide-cpus", "2-3"];
const LIMIT: Duration = Duration::from_secs(240);

/// What threads with sections have counted.
#[derive(Default)]
pub struct Sections {
    /// Sections that ended on a wide CPU.
    kept: AtomicU64,
    /// Sections.
    begun: AtomicU64,
    ends: AtomicBool,
}

impl Sections {
    /// A thread with a section after the other, until the end of this process.
    pub fn start(&'static self) {
        std::thread::spawn(move || {
            while !self.ends.load(Relaxed) {
                let _ = turbolane::wide_begin(2);
                spin(Duration::from_millis(1));
                let here = cpu();
                let _ = turbolane::wide_end();
                self.begun.fetch_add(1, Relaxed);
                self.kept.fetch_add(u64::from(here >= FIRST_WIDE_CPU), Relaxed);
                spin(Duration::from_millis(1));
            }
        });
    }

    /// Waits until no thread keeps still because the scheduler was away at its last look: that is
    /// for 15 sections (`UNMOVED_SECTIONS` in crates/hint/src/thread.rs).
    fn pass_unmoved(&self) -> Result<()> {
        let before = self.begun.load(Relaxed);
        wait_for("no sections", LIMIT, || self.begun.load(Relaxed) > before + 16)
    }

    /// Nearly all sections of the next moment end on a wide CPU.
    pub fn are_kept(&self, when: &str) -> Result<()> {
        let before = (self.kept.load(Relaxed), self.begun.load(Relaxed));
        wait_for("no sections", LIMIT, || self.begun.load(Relaxed) > before.1 + 40)?;
        let (kept, begun) =
            (self.kept.load(Relaxed) - before.0, self.begun.load(Relaxed) - before.1);
        ensure!(kept * 10 >= begun * 9, "{when}: {kept} of {begun} sections ended on a wide CPU");
        Ok(())
    }
}

/// The process that answers requests.
fn who_runs() -> Option<u64> {
    let status: Value =
        serde_json::from_str(&turbolane(&["ctl", "status", "--json"]).ok()?).ok()?;
    status["pid"].as_u64()
}

/// Waits until `next` has taken over, and for the end of `before`, which is a good one.
pub fn wait_until_taken(next: &Lane, before: Lane) -> Result<()> {
    wait_for("nobody has taken over", LIMIT, || who_runs() == Some(next.pid() as u64))
        .with_context(|| next.stderr())?;
    let end = before.wait()?;
    ensure!(end.code == 0, "the run that was there ended with {end:?}");
    ensure!(end.stderr.contains(&format!("process {} has taken over", next.pid())), "{end:?}");
    Ok(())
}

/// Twice a run takes over from the one before. Threads that gave hints to the first one give
/// them to the last one, in the same slots; one that comes later is served too.
pub fn hints_are_kept() -> Result<()> {
    let sections: &'static Sections = Box::leak(Box::default());
    let mut lane = Lane::start(&ARGS)?;
    sections.start();
    sections.are_kept("at first")?;
    for round in 0..2 {
        let enabled: u64 = read(ENABLED).trim().parse()?;
        let next = Lane::spawn(&[&ARGS[..], &["--take-over"]].concat())?;
        wait_until_taken(&next, lane)?;
        lane = next;
        let enabled_now: u64 = read(ENABLED).trim().parse()?;
        ensure!(enabled_now == enabled + 1, "{} schedulers were enabled", enabled_now - enabled);
        sections.are_kept(&format!("after take-over {round}"))?;
        ensure!(stat(&stats()?, "hint_events")? > 0, "the new scheduler has seen no hints");
        if round == 0 {
            // of a process that has an area
            sections.start();
            sections.are_kept("with one thread more")?;
        }
    }
    sections.ends.store(true, Relaxed);
    let end = lane.stop()?;
    ensure!(end.code == 0, "Ctrl-C gave {end:?}");
    ensure!(!Path::new(SOCKET).exists(), "the control socket was left behind");
    Ok(())
}

/// A run that cannot start leaves the one that there is at work. One that ends with its command is
/// not taken over, and nobody takes over from nobody.
pub fn failures_change_nothing() -> Result<()> {
    let refusal = |args: &[&str]| -> Result<String> {
        let refused = turbolane(&[&["run", "--take-over"], args].concat());
        Ok(refused.err().context("it has taken over")?.to_string())
    };
    let nobody = refusal(&[])?;
    ensure!(nobody.contains("no turbolane runs on this machine"), "{nobody}");
    let lane = Lane::start(&ARGS)?;
    let enabled = read(ENABLED);
    for (args, why) in [
        (["--mark", "/no/such:f"], "/no/such"),
        (["--wide-cpus", "0-3"], "scalar"),
        (["--mode", "affinity"], "affinity"),
    ] {
        let refused = refusal(&args)?;
        ensure!(refused.contains(why), "no \"{why}\": {refused}");
    }
    let not_a_service = turbolane(&["ctl", "upgrade"]).err().context("it was upgraded")?;
    ensure!(not_a_service.to_string().contains("run --take-over"), "{not_a_service}");
    ensure!(who_runs() == Some(lane.pid() as u64) && read(ENABLED) == enabled, "it was replaced");
    lane.stop()?;
    let lane = Lane::start(&[&ARGS[..], &["--", "sleep", "1000"]].concat())?;
    let has_command = refusal(&[])?;
    ensure!(has_command.contains("ends with its command"), "{has_command}");
    ensure!(who_runs() == Some(lane.pid() as u64), "it was replaced");
    lane.signal(libc::SIGTERM);
    lane.wait().map(drop)
}

/// A successor that ends when it has got the machine: the run takes it back and goes on, also for
/// the threads that have slots.
pub fn failed_successor() -> Result<()> {
    let sections: &'static Sections = Box::leak(Box::default());
    let lane = Lane::start(&ARGS)?;
    sections.start();
    sections.are_kept("at first")?;
    let mut successor = Command::new("sleep").arg("1000").spawn()?;
    let stream = UnixStream::connect(SOCKET)?;
    let mut replies = BufReader::new(stream.try_clone()?);
    let mut ask = |request: &Request| -> Result<Reply> {
        ctl::send(&mut &stream, request)?;
        ctl::receive(&mut replies)?.context("no reply")
    };
    let about = ask(&Request::PrepareTakeOver)?;
    ensure!(matches!(about, Reply::Predecessor(_)), "{about:?}");
    let handed = ask(&Request::TakeOver { pid: successor.id() })?;
    ensure!(matches!(handed, Reply::HandedOver(_)), "{handed:?}");
    ensure!(scx_state() == "disabled", "its scheduler is still there");
    ensure!(who_runs().is_none(), "it answers as if it had one");
    successor.kill()?;
    successor.wait()?;
    wait_for("it does not take the machine back", LIMIT, || {
        who_runs() == Some(lane.pid() as u64) && scx_state() == "enabled"
    })
    .with_context(|| lane.stderr())?;
    ensure!(lane.stderr().contains("has failed to take over"), "{}", lane.stderr());
    sections.pass_unmoved()?;
    sections.are_kept("after the failure")?;
    sections.ends.store(true, Relaxed);
    lane.stop().map(drop)
}

/// A service starts its successor itself, and the service manager hears of it. A version that does
/// not start leaves it at work. Marks are placed again.
pub fn service_is_upgraded() -> Result<()> {
    let manager = "/tmp/manager.sock";
    let socket = UnixDatagram::bind(manager)?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    let notify = format!("NOTIFY_SOCKET={manager}");
    let program = "/tmp/installed-turbolane";
    let found = String::from_utf8(
        Command::new("sh").args(["-c", "command -v turbolane"]).output()?.stdout,
    )?;
    fs::copy(found.trim(), program)?;
    let mark = probe_site::mark();
    let args = [&ARGS[..], &["--mark", &mark]].concat();
    let lane = Lane::start_by(&["env", &notify, program], &args)?;
    // A program that is no good is installed in its place.
    let good = "/tmp/good-turbolane";
    fs::rename(program, good)?;
    fs::write(program, "#!/bin/sh\nexit 3\n")?;
    fs::set_permissions(program, fs::metadata(good)?.permissions())?;
    let failed = turbolane(&["ctl", "upgrade"]).err().context("a broken version took over")?;
    ensure!(failed.to_string().contains("has not taken over"), "{failed}");
    ensure!(who_runs() == Some(lane.pid() as u64), "the running version is gone");
    fs::rename(good, program)?;
    let shown = turbolane(&["ctl", "upgrade"])?;
    let successor = who_runs().context("nobody runs")?;
    ensure!(successor != lane.pid() as u64, "it still runs: {shown}");
    ensure!(shown.contains(probe_site::SYMBOL), "no mark: {shown}");
    let end = lane.wait()?;
    ensure!(end.code == 0, "the run that was there ended with {end:?}");
    let mut text = [0; 256];
    let mut messages = Vec::new();
    let named = format!("MAINPID={successor}");
    while !messages.contains(&named) {
        let bytes = socket.recv(&mut text).with_context(|| format!("no {named}: {messages:?}"))?;
        messages.push(String::from_utf8_lossy(&text[..bytes]).into_owned());
    }
    ensure!(!messages.iter().any(|m| m.contains("STOPPING")), "the service stops: {messages:?}");
    // SAFETY: a process of ours; the signal ends its run.
    unsafe { libc::kill(successor as i32, libc::SIGINT) };
    wait_for("the successor does not end", LIMIT, || scx_state() == "disabled")?;
    Ok(())
}
