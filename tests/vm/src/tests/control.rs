// SPDX-License-Identifier: MIT OR Apache-2.0
//! The control socket of a real run: monitors that stay connected, a local user who attacks it, and
//! a stop that waits for none of them.

use std::fs;
use std::io::{BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use report::ctl::{self, Reply, Request, SOCKET};

use crate::guest::Child;
use crate::lane::{ENABLED, Lane, TURBOLANE, turbolane};
use crate::probe_site;

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// A client that stays connected.
pub struct Monitor {
    stream: UnixStream,
}

impl Monitor {
    /// Connects, and asks once.
    pub fn connect() -> Result<Self> {
        let stream = UnixStream::connect(SOCKET).context("the control socket")?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let monitor = Monitor { stream };
        monitor.ask()?;
        Ok(monitor)
    }

    /// Asks for the status.
    pub fn ask(&self) -> Result<()> {
        ctl::send(&mut &self.stream, &Request::Status)?;
        match ctl::receive(&mut BufReader::new(&self.stream))? {
            Some(Reply::Status(_)) => Ok(()),
            other => anyhow::bail!("asked for the status, got {other:?}"),
        }
    }
}

/// Twenty monitors stay connected, some clients stop in the middle; `ctl` is answered, the monitors
/// are when they ask again, and the stop comes.
pub fn many_clients() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let monitors = (0..20).map(|_| Monitor::connect()).collect::<Result<Vec<_>>>()?;
    let halves: Vec<UnixStream> =
        (0..50).map(|_| UnixStream::connect(SOCKET)).collect::<std::io::Result<_>>()?;
    for mut half in &halves {
        half.write_all(b"{\"schema\":1,")?;
    }
    // Of 3 s: it was cut off after 2.
    let mut command = Command::new(TURBOLANE)
        .args(["stats", "--monitor", "3s", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    turbolane(&["ctl", "set", "slice=4ms"])?;
    turbolane(&["top", "--once", "--json", "--interval", "7s"])?;
    for monitor in &monitors {
        monitor.ask().context("a monitor that was silent for seven seconds")?;
    }
    let end = lane.stop()?;
    ensure!(end.code == 0, "Ctrl-C gave {end:?}");
    ensure!(!Path::new(SOCKET).exists(), "the control socket was left behind");
    command.wait()?;
    let mut lines = BufReader::new(command.stdout.take().context("no output")?);
    for _ in 0..2 {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut lines, &mut line)?;
        ensure!(line.contains("interval_ns"), "the monitor stopped early: {line:?}");
    }
    Ok(())
}

/// A run takes over what differs in a file, and stays in place. A file that cannot be taken over
/// changes nothing: something in it is fixed while it runs, a mark is refused, or it has a mistake.
pub fn reloads() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--slice", "4ms"])?;
    let enabled = fs::read_to_string(ENABLED)?;
    let reload = |text: &str| {
        fs::write("/tmp/reload.toml", text)?;
        turbolane(&["ctl", "reload", "/tmp/reload.toml"])
    };
    let mark = probe_site::mark();
    let wanted = format!("mode = \"scx\"\nwide-cpus = \"1,3\"\ntiers = true\nmark = \"{mark}\"\n");
    let changed = reload(&wanted)?;
    for line in ["wide-cpus: 2-3 -> 1,3", "tiers: false -> true", "slice: 4ms -> 5ms", "mark added"]
    {
        ensure!(changed.contains(line), "no \"{line}\": {changed}");
    }
    ensure!(reload(&wanted)? == "nothing has changed\n", "the file is in force, and differs");
    let settings = turbolane(&["ctl", "get"])?;
    let status = turbolane(&["ctl", "status"])?;
    ensure!(status.contains(probe_site::SYMBOL), "no mark: {status}");
    for (text, why) in [
        (format!("{wanted}slice = \"3ms\"\nscores = \"off\"\n"), "scores = off"),
        (format!("{wanted}slice = \"3ms\"\n").replace("vmtests_wide", "no_such"), "no_such"),
        (format!("{wanted}slice = \"3ms\"\nwide-cpu = 2\n"), "line 6, column 1"),
    ] {
        let refused = reload(&text).err().context("it was accepted")?.to_string();
        ensure!(refused.contains(why), "no \"{why}\": {refused}");
        ensure!(turbolane(&["ctl", "get"])? == settings, "a refused file has changed something");
    }
    let removed = reload("mode = \"scx\"\nwide-cpus = \"1,3\"\n")?;
    ensure!(removed.contains("mark removed") && removed.contains("tiers: true"), "{removed}");
    ensure!(
        !turbolane(&["ctl", "status"])?.contains(probe_site::SYMBOL),
        "the mark is still there"
    );
    ensure!(fs::read_to_string(ENABLED)? == enabled, "the scheduler was replaced");
    lane.stop().map(drop)
}

/// What the user `nobody` can do to the sockets and files of a run: nothing, be it often or all at
/// once.
pub fn a_local_user_fails() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
    let mut attacker = Child::fork(|| {
        // SAFETY: changes the rights of this child alone.
        let dropped = unsafe { libc::setgid(NOBODY) == 0 && libc::setuid(NOBODY) == 0 };
        // SAFETY: ends this child.
        unsafe { libc::_exit(if dropped { attack() } else { 99 }) }
    })?;
    let monitor = Monitor::connect()?;
    for _ in 0..20 {
        monitor.ask().context("under attack")?;
    }
    let code = attacker.wait()?;
    ensure!(code == 0, "attack {code} succeeded");
    turbolane(&["ctl", "status"])?;
    let end = lane.stop()?;
    ensure!(end.code == 0, "Ctrl-C gave {end:?}");
    // The lock that the run held is root's alone: otherwise whoever can open it can hold it, and no
    // run starts.
    let mut squatter = Child::fork(|| {
        // SAFETY: changes the rights of this child alone, and ends it.
        unsafe {
            let dropped = libc::setgid(NOBODY) == 0 && libc::setuid(NOBODY) == 0;
            let opened = std::fs::File::open("/run/turbolane/lock").is_ok();
            libc::_exit(i32::from(!dropped || opened));
        }
    })?;
    ensure!(squatter.wait()? == 0, "nobody can open the lock, and so keep root from running");
    Ok(())
}

/// The number of the attack that succeeded; 0 for none.
fn attack() -> i32 {
    for _ in 0..2000 {
        match UnixStream::connect(SOCKET) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            _ => return 1,
        }
    }
    let folder = Path::new(SOCKET).parent().expect("a socket has a folder");
    for (number, done) in [
        std::fs::remove_file(SOCKET).is_ok(),
        std::fs::rename(SOCKET, folder.join("mine")).is_ok(),
        std::fs::write(folder.join("mine"), "x").is_ok(),
        std::fs::File::open(folder.join("lock")).is_ok(),
    ]
    .into_iter()
    .enumerate()
    {
        if done {
            return number as i32 + 2;
        }
    }
    0
}
