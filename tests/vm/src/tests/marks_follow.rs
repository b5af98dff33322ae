// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks whose file is replaced, as an upgrade of a library does it: no probe may be placed where
//! the function was in another version, and the function is watched where it is now.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::guest::wait_for;
use crate::lane::{Lane, stat, stats, status_becomes, turbolane};
use crate::probe_site::{self, ANOTHER, SYMBOL};

/// The file that is marked.
const PROGRAM: &str = "/tmp/followed";
/// The lane looks at files every five seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// Long enough for many calls.
const MOMENT: Duration = Duration::from_millis(300);

/// Code of the program: the function that has the marked name in the version that is built.
const SECTION: &str = "section";
/// The other one.
const OTHER: &str = "another";

/// Calls one of the functions again and again.
pub fn call_until_end(code: &str) -> Result<()> {
    loop {
        probe_site::call(code == OTHER);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A process of the program, until it is dropped.
struct Caller(Child);

impl Caller {
    fn start(code: &str) -> Result<Self> {
        let child = Command::new(PROGRAM).args(["follow-calls", code]).spawn();
        Ok(Caller(child.context(PROGRAM)?))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        // It may have ended, which shows in what is counted.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Versions of the program: as it was built, with the functions' names exchanged, and without the
/// marked name.
struct Versions {
    built: Vec<u8>,
    exchanged: Vec<u8>,
    without: Vec<u8>,
}

impl Versions {
    fn make() -> Result<Self> {
        let built = fs::read("/proc/self/exe")?;
        let gone = SYMBOL.replace("section", "sibling");
        let without = renamed(&built, SYMBOL, &gone);
        let exchanged = renamed(&renamed(&without, ANOTHER, SYMBOL), &gone, ANOTHER);
        ensure!(built != exchanged && built != without, "the names are not in the file");
        Ok(Versions { built, exchanged, without })
    }
}

fn renamed(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for at in 0..bytes.len() - from.len() {
        if bytes[at..].starts_with(from.as_bytes()) {
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
        }
    }
    bytes
}

/// As a package manager does it.
fn install(bytes: &[u8]) -> Result<()> {
    let new = format!("{PROGRAM}.new");
    fs::write(&new, bytes)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755))?;
    Ok(fs::rename(new, PROGRAM)?)
}

fn events() -> Result<u64> {
    stat(&stats()?, "mark_events")
}

/// Whether calls of this code are seen.
fn is_seen(code: &str) -> Result<bool> {
    let _caller = Caller::start(code)?;
    grow()
}

fn grow() -> Result<bool> {
    let before = events()?;
    std::thread::sleep(MOMENT);
    Ok(events()? > before)
}

/// The file is replaced while the lane is paused, while it is at work, and by a version that has
/// no such function.
pub fn follows_the_file() -> Result<()> {
    let versions = Versions::make()?;
    install(&versions.built)?;
    let mark = format!("{PROGRAM}:{SYMBOL}");
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark])?;
    ensure!(is_seen(SECTION)? && !is_seen(OTHER)?, "the first version is not watched");

    let old = Caller::start(SECTION)?;
    turbolane(&["ctl", "pause", "10min"])?;
    install(&versions.exchanged)?;
    turbolane(&["ctl", "resume"])?;
    drop(old);
    ensure!(!is_seen(SECTION)?, "after a pause: a probe where the function was before");
    ensure!(is_seen(OTHER)?, "after a pause: no probe where the function is");

    let old = Caller::start(OTHER)?;
    ensure!(grow()?, "the second version is not watched");
    install(&versions.built)?;
    wait_for("the new version to be watched", LIMIT, || {
        lane.stderr().matches("was replaced").count() == 2
    })
    .with_context(|| lane.stderr())?;
    ensure!(grow()?, "programs with the old version are no longer watched");
    drop(old);
    ensure!(is_seen(SECTION)? && !is_seen(OTHER)?, "the third version is not watched");

    install(&versions.without)?;
    status_becomes("lost")?;
    ensure!(!is_seen(SECTION)? && !is_seen(OTHER)?, "a version without the function is watched");
    ensure!(stat(&stats()?, "marks_lost")? == 1, "the lost mark is not counted");
    turbolane(&["ctl", "pause", "1s"])?;
    turbolane(&["ctl", "resume"])?;
    install(&versions.built)?;
    wait_for("the mark to be placed again", LIMIT, || {
        stats().and_then(|stats| stat(&stats, "marks_lost")).is_ok_and(|lost| lost == 0)
    })?;
    ensure!(is_seen(SECTION)?, "the version with the function is not watched");

    fs::remove_file(PROGRAM)?;
    status_becomes("lost")?;
    turbolane(&["ctl", "mark", "remove", &mark])?;
    ensure!(stat(&stats()?, "marks_lost")? == 0, "the mark is still there");
    lane.stop().map(drop)
}
