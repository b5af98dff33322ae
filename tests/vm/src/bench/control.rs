// SPDX-License-Identifier: MIT OR Apache-2.0
//! `lane.ctl_answer_ms`: from connecting to the reply, while 20 monitors are connected.
//! `lane.stop_ms`: from Ctrl-C to the end of the process, with the same monitors. The slowest of
//! each counts.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::lane::Lane;
use crate::measure::{Figure, publish};
use crate::tests::control::Monitor;

const MONITORS: usize = 20;
const ANSWERS: usize = 200;
const STOPS: usize = 5;

/// Measure and publish.
pub fn run() -> Result<()> {
    let (mut answers_ms, mut stops_ms) = (Vec::new(), Vec::new());
    for _ in 0..STOPS {
        let lane = Lane::start(&["--mode", "scx", "--wide-cpus", "2-3"])?;
        let monitors = (0..MONITORS).map(|_| Monitor::connect()).collect::<Result<Vec<_>>>()?;
        for _ in 0..ANSWERS / STOPS {
            let start = Instant::now();
            Monitor::connect()?;
            answers_ms.push(ms(start.elapsed()));
        }
        let start = Instant::now();
        lane.signal(libc::SIGINT);
        lane.wait()?;
        stops_ms.push(ms(start.elapsed()));
        drop(monitors);
    }
    publish(
        "control",
        &[slowest("lane.ctl_answer_ms", &answers_ms)?, slowest("lane.stop_ms", &stops_ms)?],
    )
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn slowest(name: &str, values_ms: &[f64]) -> Result<Figure> {
    let figure = Figure::of(name, "ms", "lower", values_ms)?;
    println!("{name}: median {:.1} ms", figure.value);
    Ok(Figure { value: figure.max, ..figure })
}
