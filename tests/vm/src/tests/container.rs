// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command in a container: a root with nothing in it but the command, as in
//! dist/container/Containerfile, with the mounts that docs/containers.md names.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::guest::{Child, spin, wait_for};
use crate::lane::{Lane, stat, stats, turbolane};
use crate::load;
use crate::probe_site;

const ROOT: &str = "/tmp/image";
/// Where the lane of the host has its socket, and so that of the container.
const RUN: &str = "/run/turbolane";

/// What starts a command of the image: namespaces of its own but for processes, as with `hostPID`.
const ENTER: [&str; 8] =
    ["unshare", "--mount", "--uts", "--ipc", "--cgroup", "chroot", ROOT, "/turbolane"];

/// Advice on each node, and a lane whose programs run outside of the container.
pub fn everything() -> Result<()> {
    make_root()?;
    advises().context("advise in a container")?;
    runs().context("a lane in a container")
}

fn make_root() -> Result<()> {
    for folder in ["", "/proc", "/sys", RUN] {
        fs::create_dir_all(format!("{ROOT}{folder}"))?;
    }
    fs::create_dir_all(RUN)?;
    fs::copy("/usr/bin/turbolane", format!("{ROOT}/turbolane"))?;
    for folder in ["/proc", "/sys", RUN] {
        let status = Command::new("mount")
            .args(["--rbind", folder, &format!("{ROOT}{folder}")])
            .status()
            .context("mount")?;
        ensure!(status.success(), "{folder} is not mounted");
    }
    Ok(())
}

/// An answer a second, until its reader goes away.
fn advises() -> Result<()> {
    let mut advise = Command::new(ENTER[0])
        .args(&ENTER[1..])
        .args(["advise", "--json", "--every", "1s"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(advise.stdout.take().context("a pipe")?).lines();
    for answer in 0..2 {
        let line = lines.next().with_context(|| format!("no answer {answer}"))??;
        let advice: Value = serde_json::from_str(&line)?;
        ensure!(advice["cpu"].is_object() && advice["verdict"].is_object(), "{advice}");
    }
    drop(lines);
    let mut ended = None;
    wait_for("it goes on without a reader", Duration::from_secs(60), || {
        ended = advise.try_wait().ok().flatten();
        ended.is_some()
    })?;
    ensure!(ended.is_some_and(|status| status.success()), "it ended with {ended:?}");
    Ok(())
}

/// Commands and hints of the host reach it, and so do marks of a file in another root.
fn runs() -> Result<()> {
    let mark = probe_site::mark();
    let mark = format!("/proc/{}/root{mark}", std::process::id());
    let lane = Lane::start_by(&ENTER, &["--mode", "scx", "--wide-cpus", "1", "--mark", &mark])?;
    let status: Value = serde_json::from_str(&turbolane(&["ctl", "status", "--json"])?)?;
    ensure!(status["mode"] == "scx", "{status}");
    let mut program = Child::fork(|| {
        load::connect();
        for _ in 0..20 {
            let _ = turbolane::wide_begin(2);
            spin(Duration::from_millis(5));
            let _ = turbolane::wide_end();
            probe_site::marked(|| spin(Duration::from_millis(5)));
        }
    })?;
    ensure!(program.wait()? == 0, "the program failed");
    let counted = stats()?;
    ensure!(stat(&counted, "hint_events")? >= 20, "hints do not arrive: {counted}");
    ensure!(stat(&counted, "mark_events")? >= 40, "marks are not hit: {counted}");
    lane.stop().map(drop)
}
