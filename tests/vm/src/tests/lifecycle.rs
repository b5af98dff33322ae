// SPDX-License-Identifier: MIT OR Apache-2.0
//! However a run ends, the kernel's scheduler is back and the reason is reported.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use libbpf_rs::query::ProgInfoIter;

use crate::guest::{scx_state, wait_for};
use crate::lane::{ENABLED, Lane, TURBOLANE, stat, turbolane};
use crate::load::{self, Role};
use crate::samples::Samples;

fn scx_is(state: &str) -> Result<()> {
    wait_for(&format!("sched_ext is not {state}"), Duration::from_secs(20), || scx_state() == state)
}

/// What the verifier may look at in all programs together, in instructions: 107,000 on Linux 7.3.
/// A start takes 3 s of an emulated machine for these, and 15 s for 600,000.
const VERIFIED_MOST: u32 = 150_000;

/// The verifier looks once at what is called from many places: else each look doubles the rest.
fn verifier_has_little_to_do() -> Result<()> {
    let ours = ProgInfoIter::default()
        .filter(|program| program.name.as_encoded_bytes().starts_with(b"tl_"));
    let verified: u32 = ours.map(|program| program.verified_insns).sum();
    eprintln!("the verifier looked at {verified} instructions");
    ensure!((1..=VERIFIED_MOST).contains(&verified), "the verifier looked at {verified}");
    Ok(())
}

/// Start, status, Ctrl-C; the exit code of a command is passed on.
pub fn start_and_stop() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "3"])?;
    scx_is("enabled")?;
    verifier_has_little_to_do()?;
    let status = turbolane(&["ctl", "status"])?;
    ensure!(status.contains("scx") && status.contains("1-3"), "status: {status}");
    let end = lane.stop()?;
    ensure!(end.code == 130 || end.code == 0, "Ctrl-C gave {end:?}");
    for code in [0, 7] {
        let status = Command::new(TURBOLANE)
            .args([
                "run",
                "--mode",
                "scx",
                "--wide-cpus",
                "1",
                "--",
                "sh",
                "-c",
                &format!("exit {code}"),
            ])
            .stdin(Stdio::null())
            .status()?;
        ensure!(status.code() == Some(code), "exit {code} became {status}");
        scx_is("disabled")?;
    }
    // The command is scalar, so it leaves its mark in the scalar time.
    let counted = Command::new(TURBOLANE)
        .args(["run", "--mode", "scx", "--wide-cpus", "1", "--", TURBOLANE, "stats", "--json"])
        .stdin(Stdio::null())
        .output()?;
    let counted: serde_json::Value = serde_json::from_slice(&counted.stdout)?;
    ensure!(stat(&counted, "scalar_runs")? > 0, "the command is not scalar: {counted}");
    ensure!(!Path::new("/run/turbolane/ctl.sock").exists(), "the control socket was left behind");
    Ok(())
}

/// kill -9 of the loader under load: the kernel's scheduler takes over, and a new run starts.
pub fn kill_9() -> Result<()> {
    for _ in 0..3 {
        let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
        let samples = Samples::shared();
        let workers = std::thread::spawn(move || {
            load::run(
                samples,
                Duration::ZERO,
                Duration::from_secs(3),
                &[(Role::WideHog, 3), (Role::ScalarHog, 3)],
            )
        });
        std::thread::sleep(Duration::from_secs(1));
        lane.signal(libc::SIGKILL);
        ensure!(lane.wait()?.code == 128 + libc::SIGKILL, "it survived kill -9");
        scx_is("disabled")?;
        workers.join().expect("the load does not panic")?;
    }
    Ok(())
}

/// Kills of the loader, and the moments at which they came.
pub struct Kills {
    /// All of them.
    pub kills: u32,
    /// After which the kernel's own scheduler was not back, or which the loader survived.
    pub failed: u32,
    /// While the kernel had the lane's scheduler enabled.
    pub while_enabled: u32,
}

/// kill -9 at moments spread over a run's start and life, by a fixed seed, while `more` says so of
/// the kills so far. After each the kernel's own scheduler has to be back; after the last a run
/// starts and stops as if nothing had been.
pub fn kill_at_any_moment(mut more: impl FnMut(u32) -> bool) -> Result<Kills> {
    const SEED: u64 = 0x7475_7262_6f31_3900;
    let lane_arguments = ["--mode", "scx", "--wide-cpus", "2-3"];
    let start = Instant::now();
    Lane::start(&lane_arguments)?.stop()?;
    let latest = start.elapsed().max(Duration::from_secs(1));
    println!("seed {SEED:#x}, kills within {latest:?} of the start");
    let (mut state, mut done) = (SEED, Kills { kills: 0, failed: 0, while_enabled: 0 });
    while more(done.kills) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let after = Duration::from_millis((state >> 33) % latest.as_millis() as u64);
        let lane = Lane::spawn(&lane_arguments)?;
        std::thread::sleep(after);
        done.while_enabled += u32::from(scx_state() == "enabled");
        lane.signal(libc::SIGKILL);
        let end = lane.wait()?;
        let is_gone = scx_is("disabled");
        if end.code != 128 + libc::SIGKILL || is_gone.is_err() {
            println!("kill {}, after {after:?}: {end:?}, {is_gone:?}", done.kills);
            done.failed += 1;
        }
        done.kills += 1;
    }
    println!("{} kills, {} while the scheduler was enabled", done.kills, done.while_enabled);
    let lane = Lane::start(&lane_arguments)?;
    turbolane(&["ctl", "status"])?;
    lane.stop()?;
    Ok(done)
}

/// As many kills as a minute allows.
pub fn kill_9_any_moment() -> Result<()> {
    const BUDGET: Duration = Duration::from_secs(60);
    let start = Instant::now();
    let done = kill_at_any_moment(|_| start.elapsed() < BUDGET)?;
    ensure!(done.failed == 0, "{} of {} kills failed", done.failed, done.kills);
    ensure!(done.kills > 1, "too slow a guest for two kills");
    Ok(())
}

/// The second loader is refused with a reason, and the first is not disturbed.
pub fn two_loaders_fail() -> Result<()> {
    let first = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let second = Lane::spawn(&["--mode", "scx", "--wide-cpus", "1"])?.wait()?;
    ensure!(second.code == 2, "the second loader: {second:?}");
    ensure!(second.stderr.contains("is loaded"), "no reason: {}", second.stderr);
    ensure!(scx_state() == "enabled", "the first scheduler is gone");
    turbolane(&["ctl", "status"])?;
    first.stop().map(drop)
}

/// An impossible state unloads the scheduler; the loader says so and fails.
pub fn bpf_error_fail() -> Result<()> {
    // On a busy host the fault strikes before the run has told that it is up.
    let lane = Lane::spawn(&["--mode", "scx", "--wide-cpus", "2-3", "--fault", "error"])?;
    let _load = load::start(Samples::shared(), &[(Role::DefaultHog, 1)])?;
    let end = lane.wait()?;
    ensure!(end.code == 2, "{end:?}");
    ensure!(end.stderr.contains("provoked on purpose"), "no reason: {}", end.stderr);
    scx_is("disabled")
}

/// A scheduler that serves nobody is thrown out by the kernel's watchdog.
pub fn stall_fail() -> Result<()> {
    let lane = Lane::spawn(&["--mode", "scx", "--wide-cpus", "2-3", "--fault", "stall"])?;
    std::thread::sleep(Duration::from_secs(20));
    let end = lane.wait()?;
    ensure!(end.code == 2, "{end:?}");
    ensure!(end.stderr.contains("stall"), "no reason: {}", end.stderr);
    scx_is("disabled")
}

/// What cannot be is refused with exit code 2 before anything is loaded.
pub fn bad_input_fail() -> Result<()> {
    fs::write("/tmp/no-elf", "hello")?;
    let cases: [(&[&str], &str); 8] = [
        (&["--wide-cpus", "77-78"], "CPUs 77-78 are not online"),
        (&["--wide-cpus", "0-3"], "all"),
        (&["--wide-cpus", "9"], "this machine has 4 cores"),
        (&["--wide-cpus", ","], "wide-cpus"),
        (&["--slice", "5"], "unit"),
        (&["--mark", "/nowhere:f"], "/nowhere"),
        (&["--mark", "/tmp/no-elf:f"], "ELF"),
        (
            &["--mark", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3:no_such_function"],
            "no_such_function",
        ),
    ];
    for (args, word) in cases {
        let enabled = fs::read_to_string(ENABLED)?;
        let end = Lane::spawn(&[&["--mode", "scx"], args].concat())?.wait()?;
        ensure!(end.code == 2, "{args:?}: {end:?}");
        ensure!(end.stderr.contains(word), "{args:?} does not tell \"{word}\": {}", end.stderr);
        ensure!(fs::read_to_string(ENABLED)? == enabled, "{args:?}: something was loaded");
    }
    let user = Command::new("setpriv")
        .args(["--reuid=65534", "--clear-groups", TURBOLANE, "run", "--mode", "scx"])
        .stdin(Stdio::null())
        .output()?;
    ensure!(user.status.code() == Some(77), "without root: {user:?}");
    Ok(())
}
