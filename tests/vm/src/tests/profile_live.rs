// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane profile --pid` on the test PMU: what it says of loads whose need is known, and that
//! no process stays stopped, however the profiler ends.

use std::fs;
use std::process::{Child as Process, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hw::task::{task_alive, task_stopped};
use serde_json::Value;

use crate::fake_pmu::{FakePmu, Turns, Unit};
use crate::guest::{Child, set_affinity, spin, thread_time, wait_for, work};
use crate::lane::TURBOLANE;

const CPU: usize = 2;

/// Long beside the turns that CPUs take in an emulator, which executes one at a time: to read
/// another CPU's counters takes one, in which the load goes on.
const RELAX: Duration = Duration::from_millis(50);
const GRANT: Duration = Duration::from_micros(500);

/// The CPU's file, with this PMU's times: a level is granted after half of throttle and halt
/// together, so that waking up has its time.
fn machine_file() -> Result<String> {
    let text = include_str!("../../../../crates/cpumodel/data/cpus/xeon-gold-6130.toml");
    let mut changed = text.to_string();
    for (from, to) in [
        ("throttle_ns = { value = 9_300", "throttle_ns = { value = 500_000"),
        ("halt_ns = { value = 10_000", "halt_ns = { value = 500_000"),
        ("relax_ns = { value = 670_000", "relax_ns = { value = 50_000_000"),
    ] {
        ensure!(text.contains(from), "the CPU file has no {from}");
        changed = changed.replace(from, to);
    }
    let path = "/tmp/slow-licence.toml";
    fs::write(path, changed)?;
    Ok(path.into())
}

/// For so long, by the load's own CPU time: a pause takes none of it.
fn for_own_time(time: Duration, mut what: impl FnMut() -> Result<()>) -> Result<()> {
    let start = thread_time();
    while thread_time() - start < time {
        what()?;
    }
    Ok(())
}

fn scalar() -> Result<()> {
    work(500);
    Ok(())
}

/// Executes an instruction of level 2 all the time; once; for as long as a level is held; never.
/// Then scalar code follows for three times as long, and so on.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Steady,
    Sparse,
    Bursts,
    Scalar,
}

fn load(kind: Kind) -> Result<Child> {
    Child::fork(move || {
        let forever = || -> Result<()> {
            set_affinity(0, &[CPU])?;
            if matches!(kind, Kind::Scalar) {
                loop {
                    scalar()?;
                }
            }
            let unit = Unit::open()?;
            let wide = || Ok(unit.execute(2)?);
            loop {
                wide()?;
                if matches!(kind, Kind::Bursts) {
                    for_own_time(RELAX, wide)?;
                }
                if !matches!(kind, Kind::Steady) {
                    for_own_time(3 * RELAX, scalar)?;
                }
            }
        };
        if let Err(error) = forever() {
            eprintln!("load: {error:#}");
        }
    })
}

fn command(pid: i32, machine: &str, samples: u32) -> Command {
    let mut command = Command::new(TURBOLANE);
    let samples = samples.to_string();
    let interval = format!("{}ms", 2 * RELAX.as_millis());
    command.args(["profile", "--pid", &pid.to_string(), "--machine", machine, "--json"]);
    command.args(["--samples", &samples, "--interval", &interval]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Everything that profiles of live processes promise.
pub fn everything() -> Result<()> {
    let machine = machine_file()?;
    no_pmu_fails(&machine)?;
    let pmu = FakePmu::load(GRANT, RELAX)?;
    bad_input_fails(&machine)?;
    needs_are_told(&machine)?;
    a_process_that_ends(&machine)?;
    interrupted(&machine)?;
    killed(&machine)?;
    suspended(&machine)?;
    pmu.unload()
}

/// Exit code and standard error of a profile that must not work.
fn refusal(mut command: Command) -> Result<(Option<i32>, String)> {
    let done = command.output()?;
    Ok((done.status.code(), String::from_utf8_lossy(&done.stderr).replace('\n', " ")))
}

fn fails(command: Command, code: i32, why: &str) -> Result<()> {
    let told = refusal(command)?;
    let text = told.1.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(told.0 == Some(code) && text.contains(why), "not {code}, {why}: {told:?}");
    Ok(())
}

fn no_pmu_fails(machine: &str) -> Result<()> {
    let load = load(Kind::Scalar)?;
    fails(command(load.pid, machine, 10), 77, "the kernel has no counters here")
}

/// Nobody, the first process, the kernel's threads, one that is stopped; no rights; samples too
/// close.
fn bad_input_fails(machine: &str) -> Result<()> {
    fails(command(4_194_000, machine, 10), 2, "there is no such process")?;
    fails(command(1, machine, 10), 2, "the first process cannot be stopped")?;
    fails(command(2, machine, 10), 2, "it is a kernel thread")?;
    let load = load(Kind::Scalar)?;
    let mut close = Command::new(TURBOLANE);
    close.args(["profile", "--pid", &load.pid.to_string(), "--machine", machine]);
    fails(close, 2, "would end the hold")?;
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid", "65534", "--clear-groups", TURBOLANE, "profile", "--pid"]);
    nobody.arg(load.pid.to_string());
    ensure!(refusal(nobody)?.0 == Some(77), "without rights");
    // SAFETY: our own child.
    unsafe { libc::kill(load.pid, libc::SIGSTOP) };
    wait_for("it does not stop", Duration::from_secs(20), || is_stopped(load.pid))?;
    fails(command(load.pid, machine, 10), 2, "it is stopped")?;
    ensure!(is_stopped(load.pid), "it was let go on");
    Ok(())
}

fn is_stopped(pid: i32) -> bool {
    task_stopped(pid as u32).unwrap_or(false)
}

/// The process runs, and gets something done.
fn goes_on(pid: i32) -> Result<()> {
    wait_for("it stays stopped", Duration::from_secs(20), || !is_stopped(pid))?;
    let stat = || fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    let before = stat();
    wait_for("it does not run", Duration::from_secs(20), || stat() != before)?;
    ensure!(task_alive(pid as u32), "it is dead");
    Ok(())
}

fn profile(kind: Kind, machine: &str, samples: u32) -> Result<Value> {
    let load = load(kind)?;
    // Past its start, which is scalar.
    std::thread::sleep(2 * RELAX);
    let done = command(load.pid, machine, samples).output()?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{kind:?}: {}: {stderr}", done.status);
    goes_on(load.pid)?;
    let report: Value = serde_json::from_slice(&done.stdout)?;
    println!("{kind:?}: {report}");
    ensure!(report["samples"] == samples, "{kind:?}: {report}");
    Ok(report)
}

fn number(report: &Value, key: &str) -> Result<f64> {
    report[key].as_f64().with_context(|| format!("no {key} in {report}"))
}

/// Who needs its level all the time, who hardly ever does, who does for half of the time that it
/// has it, and who has none. The bounds are wide: some samples, and a moment to wake up.
fn needs_are_told(machine: &str) -> Result<()> {
    let steady = profile(Kind::Steady, machine, 30)?;
    ensure!(number(&steady, "reduced_pct")? > 90.0, "{steady}");
    ensure!(number(&steady, "avoidable_pct")? < 10.0, "{steady}");
    let sparse = profile(Kind::Sparse, machine, 50)?;
    // The level is held for 50 of 150 ms.
    ensure!((10.0..60.0).contains(&number(&sparse, "reduced_pct")?), "{sparse}");
    ensure!(number(&sparse, "avoidable_pct")? > 70.0, "{sparse}");
    // With long turns the load goes on for milliseconds after its level was read, until it stops,
    // and a burst may end meanwhile: 54 to 80 % avoidable in nine profiles, and 44 to 60 % with
    // short turns.
    let turns = Turns::begin()?;
    let bursts = profile(Kind::Bursts, machine, 80)?;
    drop(turns);
    // And for 100 of 200 ms.
    ensure!((25.0..75.0).contains(&number(&bursts, "reduced_pct")?), "{bursts}");
    ensure!((25.0..75.0).contains(&number(&bursts, "avoidable_pct")?), "{bursts}");
    let scalar = profile(Kind::Scalar, machine, 15)?;
    ensure!(number(&scalar, "reduced_pct")? == 0.0, "{scalar}");
    ensure!(scalar["avoidable_pct"].is_null(), "{scalar}");
    Ok(())
}

/// One that ends meanwhile: what was seen until then is told.
fn a_process_that_ends(machine: &str) -> Result<()> {
    let short = Child::fork(|| {
        _ = set_affinity(0, &[CPU]);
        spin(Duration::from_millis(1_500));
    })?;
    let done = command(short.pid, machine, 100_000).output()?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success() && stderr.contains("the process ended after"), "{stderr}");
    let report: Value = serde_json::from_slice(&done.stdout)?;
    ensure!(report["samples"].as_u64() > Some(0), "{report}");
    Ok(())
}

/// A profiler at the moment at which it has stopped its load.
fn in_a_pause(load: &Child, machine: &str) -> Result<Process> {
    let mut profiler = command(load.pid, machine, 100_000).spawn()?;
    let start = Instant::now();
    while !is_stopped(load.pid) {
        if start.elapsed() > Duration::from_secs(60) || profiler.try_wait()?.is_some() {
            _ = profiler.kill();
            let output = profiler.wait_with_output()?;
            bail!("no pause: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(profiler)
}

fn send(process: &Process, signal: i32) {
    // SAFETY: our own child, not yet waited for.
    unsafe { libc::kill(process.id() as i32, signal) };
}

/// Ctrl-C: what was seen is told, and the load runs.
fn interrupted(machine: &str) -> Result<()> {
    let load = load(Kind::Steady)?;
    let profiler = in_a_pause(&load, machine)?;
    send(&profiler, libc::SIGINT);
    let done = profiler.wait_with_output()?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success() && stderr.contains("it was interrupted after"), "{stderr}");
    let report: Value = serde_json::from_slice(&done.stdout)?;
    ensure!(report["samples"].as_u64() > Some(0), "{report}");
    goes_on(load.pid)
}

/// kill -9 in a pause, five times: the load runs, and nobody is left of the profiler.
fn killed(machine: &str) -> Result<()> {
    let load = load(Kind::Steady)?;
    for _ in 0..5 {
        let mut profiler = in_a_pause(&load, machine)?;
        profiler.kill()?;
        profiler.wait()?;
        goes_on(load.pid)?;
    }
    wait_for("somebody is left of the profiler", Duration::from_secs(20), || {
        let found = Command::new("pgrep").args(["-x", TURBOLANE]).output();
        found.is_ok_and(|found| found.stdout.is_empty())
    })
}

/// Ctrl-Z in a pause: the load goes on without the profiler.
fn suspended(machine: &str) -> Result<()> {
    let load = load(Kind::Steady)?;
    let mut profiler = in_a_pause(&load, machine)?;
    send(&profiler, libc::SIGSTOP);
    goes_on(load.pid)?;
    profiler.kill()?;
    profiler.wait()?;
    goes_on(load.pid)
}
