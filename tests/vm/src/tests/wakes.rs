// SPDX-License-Identifier: MIT OR Apache-2.0
//! A task that sleeps more than it runs does not wait for the slices of others when it wakes, bound
//! to a CPU or not; nor does one that comes back from a wide CPU. On the dim-silicon machine, whose
//! CPUs run at the same time: QEMU's that count instructions take turns of milliseconds.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::{Child, now_ns, scx_state, set_affinity, thread_time, work};
use crate::lane::Lane;

/// How long each load runs.
const TIME: Duration = Duration::from_millis(100);
const WORK: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_micros(200);

/// 100 us of work and 200 of sleep, bound to a CPU: alone; beside one that never sleeps and is
/// bound as well; and beside two for each CPU that are not. Then it is not bound either. A wakeup
/// that waits for a slice takes 10 or 20 ms.
pub fn tasks_that_sleep() -> Result<()> {
    set_affinity(0, &[0])?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:1"])?;
    let rounds = rounds_of_work();
    let alone = turns(rounds);
    let bound = beside(1, &[0], rounds)?;
    let free = beside(4, &[0, 1], rounds)?;
    set_affinity(0, &[0, 1])?;
    let anywhere = beside(4, &[0, 1], rounds)?;
    let state = scx_state();
    lane.stop()?;
    eprintln!(
        "turns in {TIME:?}: alone {alone}, beside a bound task {bound}, beside four {free}, not bound \
         {anywhere}"
    );
    ensure!(state == "enabled", "the scheduler is gone");
    // a third of the CPU is what it wants, a half and a third what it is due
    ensure!(alone > 100, "{alone} turns alone");
    ensure!(bound * 10 > alone * 7, "{bound} turns beside a bound task, {alone} alone");
    ensure!(free * 2 > alone, "{free} turns beside four tasks, {alone} alone");
    ensure!(anywhere * 2 > alone, "{anywhere} turns beside four tasks if not bound, {alone} alone");
    Ok(())
}

/// Sections of 20 us with as much scalar code between them, beside two tasks for each CPU that
/// never sleep. Who waits for a slice of theirs after each section has one in 10 or 20 ms.
pub fn tasks_that_come_back() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:1"])?;
    let rounds = rounds_of_work() / 5;
    let hogs = hogs(4, &[0, 1])?;
    let (begin_ns, mut sections) = (now_ns(), 0);
    while now_ns() - begin_ns < TIME.as_nanos() as u64 {
        turbolane::wide_begin(2)?;
        work(rounds);
        turbolane::wide_end()?;
        work(rounds);
        sections += 1;
    }
    drop(hogs);
    let state = scx_state();
    lane.stop()?;
    eprintln!("{sections} sections in {TIME:?}");
    ensure!(state == "enabled", "the scheduler is gone");
    ensure!(sections > 100, "{sections} sections");
    Ok(())
}

/// The median of some times: in one of about 25 it had 111 of 284 turns, in four more 165 to 253,
/// and soon all of them again.
fn beside(nr: usize, cpus: &[usize], rounds: u64) -> Result<u64> {
    let _hogs = hogs(nr, cpus)?;
    turns(rounds); // pays for what it had more than its share, bound to another queue
    let mut times = [(); 5].map(|()| turns(rounds));
    times.sort_unstable();
    Ok(times[2])
}

/// So many tasks that never sleep, at work.
fn hogs(nr: usize, cpus: &[usize]) -> Result<Vec<Child>> {
    let hog = |_| {
        Child::fork(|| {
            let _ = set_affinity(0, cpus);
            loop {
                work(2000);
            }
        })
    };
    let hogs = (0..nr).map(hog).collect::<Result<Vec<_>>>()?;
    std::thread::sleep(Duration::from_millis(20));
    Ok(hogs)
}

/// Rounds of work that take [`WORK`].
fn rounds_of_work() -> u64 {
    const ROUNDS: u64 = 100_000;
    let begin = thread_time();
    work(ROUNDS);
    let took = thread_time() - begin;
    ROUNDS * WORK.as_nanos() as u64 / took.as_nanos().max(1) as u64
}

/// How often this task works and sleeps.
fn turns(rounds: u64) -> u64 {
    let (begin_ns, mut turns) = (now_ns(), 0);
    while now_ns() - begin_ns < TIME.as_nanos() as u64 {
        work(rounds);
        std::thread::sleep(SLEEP);
        turns += 1;
    }
    turns
}
