// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x demo`: what Turbolane sees on this machine, then Turbolane at work in a
//! small emulated one.

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result};
use testbed::{Cache, Guest};

use crate::binaries::Binaries;

pub(crate) fn main() -> Result<ExitCode> {
    let binaries = Binaries::build()?;
    println!("== turbolane doctor, on this machine ==");
    // Its exit code says what it found; the demo goes on whatever that is.
    Command::new(binaries.program("turbolane")?)
        .arg("doctor")
        .status()
        .context("cannot start turbolane")?;

    let cache = Cache::open()?;
    let images = testbed::prepare(&cache)?;
    println!("\n== in an emulated machine with 4 CPUs; booting takes about 6 s ==");
    let mut guest = Guest::new(&cache, &images).cpus(4).limit(Duration::from_secs(300)).echo(true);
    for (host, place) in &binaries.payload {
        guest = guest.payload(host, place);
    }
    let outcome = guest.run(&["vmtests", "demo"])?;
    for finding in &outcome.findings {
        eprintln!("kernel log, line {}: {}", finding.number, finding.line);
    }
    eprintln!("guest: {}", outcome.summary());
    Ok(ExitCode::from(u8::from(!outcome.is_clean())))
}
