// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x silicon [EXPERIMENT]`: the papers' experiments on the dim-silicon machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::binaries::Binaries;
use crate::lab::Lab;
use crate::silicon::point::Bench;
use crate::silicon::{machine, nginx, results};

/// Arguments of `./x silicon`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which one; without it, they are listed
    #[arg(value_parser = ["nginx"])]
    experiment: Option<String>,
    /// Requests of each point; more take longer, and spread less
    #[arg(long, default_value_t = nginx::REQUESTS, value_parser = clap::value_parser!(u32).range(50..))]
    requests: u32,
    /// Measure every point again, also those that were kept
    #[arg(long)]
    again: bool,
    /// Write the results to this file too, as ./x bench does
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with clock and level of each core over time
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.experiment.is_none() {
        println!("nginx  a web server with TLS (SFMA 4): what AVX-512 costs, and what is won back");
        return Ok(ExitCode::SUCCESS);
    }
    let lab = Lab::usual(Binaries::build()?)?;
    let rows = nginx::rows(&bench(&lab)?, &nginx::ROWS, args.requests, args.again)?;
    print!("{}", nginx::table(&rows));
    if let Some(path) = &args.picture {
        std::fs::write(path, nginx::picture(&rows)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        crate::results::report(super::GROUP, &lab, results::nginx(&rows))?.write(path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Where nginx's points are measured.
pub(crate) fn bench(lab: &Lab) -> Result<Bench<'_>> {
    Bench::new(lab, machine(nginx::CPU, nginx::CPUS, "")?, nginx::CPUS, "nginx")
}

/// The web server's experiment, ready to be shown.
pub(crate) struct Shown {
    pub(crate) table: String,
    pub(crate) picture: String,
}

/// The demo's rows of the web server's experiment.
pub(crate) fn demo(binaries: Binaries, again: bool) -> Result<Shown> {
    let lab = Lab::usual(binaries)?;
    let rows = nginx::rows(&bench(&lab)?, nginx::DEMO, nginx::REQUESTS, again)?;
    Ok(Shown { table: nginx::table(&rows), picture: nginx::picture(&rows)? })
}
