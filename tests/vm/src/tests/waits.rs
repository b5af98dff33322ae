// SPDX-License-Identifier: MIT OR Apache-2.0
//! No task waits for long, whatever its weight and however many others there are: a local user cannot make the
//! kernel's watchdog (10 s) end the scheduler. And CPUs of two caches share their load.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::guest::scx_state;
use crate::hogs::{Hog, Hogs};
use crate::lane::Lane;

/// The user `nobody`.
const NOBODY: u32 = 65534;
/// Far above the 2 s that `./x bench vm` measures against, far below the watchdog's 10: a guest on a busy machine
/// stands still now and then.
const BOUND: Duration = Duration::from_secs(7);

/// 30 busy tasks and one of nice 19: all scalar and bound to one CPU, by an ordinary user; all wide on a lane of one
/// core; nobody classified.
pub fn a_light_task_beside_thirty() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let kinds = [
        ("scalar", Hog { scalar: true, cpus: vec![0], uid: NOBODY, ..Hog::default() }),
        ("wide", Hog { wide: true, ..Hog::default() }),
        ("default", Hog { cpus: vec![1, 2], uid: NOBODY, ..Hog::default() }),
    ];
    for (name, hog) in kinds {
        let mut hogs = vec![hog.clone(); 30];
        hogs.push(Hog { nice: 19, ..hog });
        let hogs = Hogs::start(&hogs)?;
        std::thread::sleep(Duration::from_secs(15));
        ensure!(scx_state() == "enabled", "{name}: the scheduler is gone: {}", lane.stderr());
        ensure!(hogs.longest() < BOUND, "{name}: {}", hogs.who_waited());
    }
    lane.stop().map(drop)
}

/// Some hundred hogs of all weights, bound and free, wide and not.
pub fn hundreds_of_all_weights() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "cpu:3"])?;
    let hogs = Hogs::start(&every_kind(200))?;
    std::thread::sleep(Duration::from_secs(20));
    ensure!(scx_state() == "enabled", "the scheduler is gone: {}", lane.stderr());
    ensure!(hogs.longest() < BOUND, "{}", hogs.who_waited());
    drop(hogs);
    lane.stop().map(drop)
}

/// So many hogs of every weight and kind: of twenty two bound to each CPU, one wide, one scalar, the rest not classified.
/// Few give hints, since each is a process, and processes have areas of slots of their own.
pub fn every_kind(nr: usize) -> Vec<Hog> {
    (0..nr)
        .map(|i| Hog {
            nice: [-20, -10, 0, 0, 5, 10, 19][i % 7],
            cpus: if i % 10 < 4 { vec![i % 10] } else { vec![] },
            wide: i % 20 == 9,
            scalar: i % 20 == 13,
            uid: 0,
        })
        .collect()
}

/// Two caches with two CPUs each, and 18 and 6 equal tasks that begin there: in the end each gets about the same. Without
/// help between caches it stays at 2 to 3 times as much.
pub fn caches_share_their_load() -> Result<()> {
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "0"])?;
    let ratio = imbalance()?;
    ensure!(
        ratio < 1.3,
        "the luckiest of 24 equal tasks got {ratio:.2} times what the last one got"
    );
    lane.stop().map(drop)
}

/// CPU time of the task that got most over that of the one that got least, of 24 hogs of which 18 begin on one
/// cache and 6 on the other, then may run on all four CPUs; over 20 s.
pub fn imbalance() -> Result<f64> {
    let hogs = Hogs::start_then_free(&[(18, vec![0, 1]), (6, vec![2, 3])])?;
    std::thread::sleep(Duration::from_secs(2));
    let before = hogs.used();
    std::thread::sleep(Duration::from_secs(20));
    let got: Vec<f64> = hogs
        .used()
        .iter()
        .zip(&before)
        .map(|(after, before)| (*after - *before).as_secs_f64())
        .collect();
    let most = got.iter().copied().fold(0.0, f64::max);
    let least = got.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(most / least)
}
