// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x demo`: what Turbolane sees on this machine, then what it wins on a machine whose cores have
//! clocks that wide code lowers.

use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::repo;
use crate::silicon::experiment;

/// Arguments of `./x demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure everything again, even if an earlier call has measured it
    #[arg(long)]
    again: bool,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let binaries = Binaries::build()?;
    println!("== turbolane doctor, on this machine ==");
    // Its exit code says what it found; the demo goes on whatever that is.
    Command::new(binaries.program("turbolane")?)
        .arg("doctor")
        .status()
        .context("cannot start turbolane")?;

    println!(
        "\n== on an emulated Xeon Gold 6130: nginx sends a compressed page over TLS ==\n\
         The clocks of its cores and their licence levels are a model (Bochs and crates/cpumodel).\n\
         Everything else is real: Debian's kernel, nginx, OpenSSL and wrk, and Turbolane's scheduler.\n\
         Four boots; about four minutes on two CPUs."
    );
    let rows = experiment::demo(binaries, args.again)?;
    println!("\n{}", rows.table);
    let picture = repo::logs()?.join("demo.html");
    std::fs::write(&picture, rows.picture)
        .with_context(|| format!("cannot write {}", picture.display()))?;
    println!("Clock and level of each core over time: {}", picture.display());
    Ok(ExitCode::SUCCESS)
}
