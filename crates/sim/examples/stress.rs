// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the load of `sim.events_per_s` for a number of events, to be profiled, and prints its
//! outcome, to be compared: same CPUs and events, same outcome.
//!
//! ```text
//!   stress CPUS EVENTS
//!   valgrind --tool=callgrind stress 64 500000     instructions, by function
//! ```

use std::process::ExitCode;

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let [nr_cpus @ 4..=1024, nr_events] = numbers[..] else {
        eprintln!("usage: stress CPUS EVENTS, with 4 to 1,024 CPUs, a power of two");
        return ExitCode::from(2);
    };
    let mut engine = sim::stress::engine(nr_cpus as usize);
    while engine.nr_events() < nr_events {
        let until_ns = engine.now_ns() + 1_000_000;
        if let Err(error) = sim::stress::run_until(&mut engine, until_ns) {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    }
    println!("{} events\n{:?}", engine.nr_events(), engine.outcome());
    ExitCode::SUCCESS
}
