// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lib.target_instructions`: guest instructions, of all CPUs, from a thread's request for
//! another speed to its return, through the scheduler: a store, a system call, the governor. That
//! includes what the governor schedutil's own thread executes, since the test driver is one that
//! cannot be switched from the scheduler. Baseline: the same request by cpufreq's limits.
//! `lib.target_again_instructions`: a request for the speed that is set already.

use std::time::Duration;

use anyhow::{Result, ensure};
use pstate::{Options, Way};
use turbolane::threads::own_tid;
use turbolane::{Request, Session};

use crate::guest::{spin, tsc};
use crate::lane::Lane;
use crate::measure::{Figure, median, publish};
use crate::tests::pstate::load;

const ROUNDS: usize = 300;
/// At first what is set is read back, and threads are registered.
const WARM_UP: usize = 10;
const PAUSE: Duration = Duration::from_micros(300);
const CPU: u32 = 1;

/// Requests by this way: new ones, and such as stand already.
fn requests(way: Way) -> Result<(Vec<f64>, Vec<f64>)> {
    let session = Session::open(&Options { way: Some(way), ..Options::default() })?;
    ensure!(session.control().choice().way == way, "{:?}", session.control().choice());
    session.threads().register("main", 0)?;
    session.threads().migrate(session.control(), own_tid(), CPU)?;
    let counted = |request| -> Result<f64> {
        let start = tsc();
        session.request(request)?;
        Ok((tsc() - start) as f64)
    };
    let (mut new, mut again) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        std::thread::sleep(PAUSE);
        spin(PAUSE);
        let request = if round % 2 == 0 { Request::Slow } else { Request::Boost };
        new.push(counted(request)?);
        again.push(counted(request)?);
    }
    Ok((new.split_off(WARM_UP), again.split_off(WARM_UP)))
}

/// Measure and publish.
pub fn run() -> Result<()> {
    load(1)?;
    let (limits, limits_again) = requests(Way::Limits)?;
    let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "1"])?;
    let (targets, again) = requests(Way::Scheduler)?;
    lane.stop()?;
    let figure = |name, values: &[f64], peer: &[f64]| -> Result<Figure> {
        let figure = Figure::of(name, "instructions", "lower", values)?;
        Ok(figure.against("limits, sysfs", median(peer)))
    };
    publish(
        "lib-targets",
        &[
            figure("lib.target_instructions", &targets, &limits)?,
            figure("lib.target_again_instructions", &again, &limits_again)?,
        ],
    )
}
