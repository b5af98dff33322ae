// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recordings of loads whose behaviour is known: who ran, who called what, who was woken; and that
//! they can be read while they are written.

use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::guest::{nr_cpus, wait_for, work};
use crate::lane::{Lane, turbolane};
use crate::probe_site;
use crate::recorder;

/// The load's pairs of workers, and the rounds of each: a marked call, and a wait for the other
/// one.
const PAIRS: usize = 4;
const ROUNDS: u64 = 100;
/// A unit of work, long beside probes and switches; and how many a worker does inside of the marked
/// function and outside, in a round.
const UNIT: u64 = 100_000;
const WORKERS: [(&str, u64, u64); 2] = [("mostly-marked", 3, 1), ("seldom-marked", 1, 3)];

/// What `vmtests record-load` does: pairs of threads that pass a token on, with a marked call each
/// time.
pub fn load() -> Result<()> {
    let mut threads = Vec::new();
    for _ in 0..PAIRS {
        let (there, get_there) = sync_channel::<()>(1);
        let (back, get_back) = sync_channel::<()>(1);
        back.send(())?;
        for ((name, marked, plain), (to, from)) in
            WORKERS.into_iter().zip([(there, get_back), (back, get_there)])
        {
            let round = move |_| {
                let got = from.recv();
                probe_site::marked(|| {
                    work(marked * UNIT);
                });
                work(plain * UNIT);
                // The other one may have done its last round.
                _ = to.send(());
                got.is_ok()
            };
            let thread = std::thread::Builder::new().name(name.into());
            threads.push(thread.spawn(move || (0..ROUNDS).all(round))?);
        }
    }
    for thread in threads {
        let whole = thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
        ensure!(whole, "a worker was left alone");
    }
    Ok(())
}

/// What a decision may take here, without the stalls that the recorder sees.
const MOMENT: &str = "30ms";

fn summary(file: &str) -> Result<Value> {
    Ok(serde_json::from_str(&turbolane(&["trace", file, "--json"])?)?)
}

fn count(summary: &Value, key: &str) -> Result<u64> {
    summary[key].as_u64().with_context(|| format!("no {key} in {summary}"))
}

fn sum(tasks: &[Value], key: &str) -> u64 {
    tasks.iter().filter_map(|task| task[key].as_u64()).sum()
}

/// What the kernel may leave out of a recording: a program that is preempted, which those of a
/// task's begin, end and names can be, and that another task on the same CPU runs into, is not run
/// a second time. The kernel counts it, the recorder tells it. Seen once in about thirty recordings
/// on an emulated machine.
const LEFT_OUT_MAX: u64 = 2;

/// A recording of the load by itself, and how many events it lacks.
fn record_load(file: &str) -> Result<(Value, u64)> {
    let mark = probe_site::mark();
    let args = ["-o", file, "--mark", &mark, "--", "vmtests", "record-load"];
    let code = recorder::start(&args)?.wait()?;
    ensure!(code.success(), "turbolane record ended with {code}");
    let summary = summary(file)?;
    let lost = count(&summary, "lost_events")?;
    println!("{lost} events lost");
    ensure!(lost <= LEFT_OUT_MAX, "too many: {summary}");
    Ok((summary, lost))
}

/// A command: every marked call is there, all switches pair, nothing is lost.
pub fn command() -> Result<()> {
    let file = "/tmp/command.trace";
    let (mut summary, mut lost) = record_load(file)?;
    if lost > 0 {
        (summary, lost) = record_load(file)?;
    }
    ensure!(lost == 0, "events are lost twice in a row: {summary}");
    ensure!(summary["complete"] == true, "the recording has no end: {summary}");
    for key in ["contradicting_switches", "unpaired_returns"] {
        ensure!(count(&summary, key)? == 0, "{key} is not 0: {summary}");
    }
    let calls = summary["marks"][0]["calls"].as_u64().unwrap_or(0);
    let expected = 2 * PAIRS as u64 * ROUNDS;
    ensure!(calls == expected, "{calls} marked calls recorded, {expected} made");
    let tasks = summary["tasks"].as_array().context("no tasks")?;
    let mut wide_and_plain = Vec::new();
    for (name, ..) in WORKERS {
        let named = |task: &&Value| task["name"] == name;
        let workers: Vec<Value> = tasks.iter().filter(named).cloned().collect();
        ensure!(workers.len() == PAIRS, "{} tasks are called {name}: {summary}", workers.len());
        ensure!(sum(&workers, "marks") == PAIRS as u64 * ROUNDS, "{name} lacks calls: {summary}");
        let (run, wide) = (sum(&workers, "run_ns"), sum(&workers, "wide_ns"));
        ensure!(wide < run, "{name} was marked for longer than it ran: {summary}");
        wide_and_plain.push((wide as f64, (run - wide) as f64));
    }
    // One has three times the other's work inside of marks, and a third outside; there probes,
    // system calls and switches come on top, which cost the more the slower the host is.
    let &[(mostly, beside_mostly), (seldom, beside_seldom)] = &wide_and_plain[..] else {
        bail!("two kinds of workers");
    };
    let (wide, plain) = (mostly / seldom, beside_seldom / beside_mostly);
    ensure!((2.0..4.5).contains(&wide), "{wide:.2}, not 3 times as long in marks: {summary}");
    ensure!(
        (1.2..4.5).contains(&plain),
        "{plain:.2}, not up to 3 times as long outside: {summary}"
    );
    let workers: Vec<Value> =
        tasks.iter().filter(|task| task["marks"].as_u64() > Some(0)).cloned().collect();
    // Each round has a wait for the other, unless the answer is there already.
    let (wakes, sleeps) = (sum(&workers, "wakes"), sum(&workers, "sleeps"));
    ensure!(sleeps > expected / 4, "only {sleeps} sleeps in {expected} rounds");
    ensure!(wakes.abs_diff(sleeps) <= 4 * PAIRS as u64, "{wakes} wake-ups, {sleeps} sleeps");
    let latencies = count(&summary["wake_latency"], "count")?;
    ensure!(latencies * 10 > wakes * 9, "{latencies} latencies of {wakes} wake-ups");
    exit_codes()
}

/// The command's exit code is passed on.
fn exit_codes() -> Result<()> {
    let code =
        recorder::start(&["-q", "-o", "/tmp/code.trace", "--", "sh", "-c", "exit 7"])?.wait()?;
    ensure!(code.code() == Some(7), "exit 7 became {code}");
    Ok(())
}

/// The whole machine under the lane: every CPU's time is accounted for, the lane's types and
/// classes are there, and the file is read while it grows.
pub fn system() -> Result<()> {
    let mark = probe_site::mark();
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3", "--mark", &mark])?;
    let file = "/tmp/system.trace";
    let mut recorder = recorder::start_system(file, &["--syscalls", "--stalls"])?;
    let mut load = Command::new("vmtests").arg("record-load").spawn()?;
    let mut early = 0;
    wait_for("the file does not grow", Duration::from_secs(60), || {
        let partial = summary(file).ok().filter(|partial| partial["complete"] == false);
        early = partial.and_then(|partial| partial["switches"].as_u64()).unwrap_or(0);
        early > 100
    })?;
    ensure!(load.wait()?.success(), "the load failed");
    recorder::end(&mut recorder)?;
    lane.stop()?;

    let summary = summary(file)?;
    ensure!(summary["complete"] == true, "after Ctrl-C the recording has no end");
    ensure!(count(&summary, "switches")? > early, "nothing was recorded after the first look");
    ensure!(count(&summary, "contradicting_switches")? == 0, "switches contradict: {summary}");
    ensure!(count(&summary, "lost_events")? <= LEFT_OUT_MAX, "events are lost: {summary}");
    ensure!(count(&summary, "syscalls")? > 0, "no system calls");
    let tasks = summary["tasks"].as_array().context("no tasks")?;
    let (ran, idle) = (sum(tasks, "run_ns"), count(&summary, "idle_ns")?);
    let all = count(&summary, "duration_ns")? * nr_cpus() as u64;
    // CPUs on which nothing at all happened are not accounted for.
    ensure!(ran + idle <= all && (ran + idle) * 10 > all * 9, "{ran} + {idle} of {all} ns");
    // The lane kept its promises, see MOMENT. Stalls of virtual CPUs are left out if they are
    // longer than 8 ms.
    let verdict = turbolane(&["trace", file, "--check", "--moment", MOMENT])?;
    ensure!(verdict.contains("kept") && verdict.contains("conservation"), "{verdict}");
    println!("{verdict}");
    Ok(())
}
