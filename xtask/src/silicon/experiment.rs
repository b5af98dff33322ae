// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x silicon [EXPERIMENT]`: the papers' experiments on the dim-silicon machine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::ValueEnum;
use silicon::{Log, Machine, Settings};

use crate::binaries::Binaries;
use crate::lab::Lab;
use crate::results::BenchResult;
use crate::silicon::picture::{self, Band};
use crate::silicon::point::Bench;
use crate::silicon::rows::{self, Experiment, Rows};
use crate::silicon::{batch, machine, nginx, results};

/// The CPU, all of its cores active: the clocks that SFMA 4 gives are 2.8, 2.4 and 1.9 GHz.
const CPU: &str = "xeon-gold-6130";

/// Which experiment.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// A web server with TLS on four CPUs: what AVX-512 costs, and what is won back
    Nginx,
    /// The same on twelve CPUs (SFMA 4)
    #[value(name = "nginx-12")]
    Nginx12,
    /// gzip beside openssl speed (SYSTOR 4.2): what either of them wins and loses
    Batch,
}

/// Arguments of `./x silicon`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Which one; without it, they are listed
    experiment: Option<Which>,
    /// Requests of each point of a web server; more take longer, and spread less [default: 75 for
    /// each CPU]
    #[arg(long, value_parser = clap::value_parser!(u32).range(50..))]
    requests: Option<u32>,
    /// Time of each point of batch work in the guest, milliseconds; about 80 ms of the host for
    /// each
    #[arg(long, default_value_t = batch::MS, value_parser = clap::value_parser!(u32).range(20..))]
    ms: u32,
    /// Rows with fixed numbers of wide CPUs, too
    #[arg(long)]
    sizes: bool,
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

impl Args {
    fn planned(&self, which: Which) -> Experiment {
        match which {
            Which::Nginx => nginx::planned(&nginx::SMALL, self.requests, self.sizes),
            Which::Nginx12 => nginx::planned(&nginx::TWELVE, self.requests, self.sizes),
            Which::Batch => batch::planned(self.ms, self.sizes),
        }
    }
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let Some(which) = args.experiment else {
        print!("{}", list());
        return Ok(ExitCode::SUCCESS);
    };
    let lab = Lab::usual(Binaries::build()?)?;
    let rows = measure(&lab, args.planned(which), args.again)?;
    print!("{}", rows.table());
    if let Some(path) = &args.picture {
        std::fs::write(path, page(&rows)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        let report = crate::results::report(super::GROUP, &lab, figures(which, &rows))?;
        crate::results::write(&report, path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each experiment.
fn list() -> String {
    let known = Which::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let line = |value: clap::builder::PossibleValue| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        format!("{:<12} {help}\n", value.get_name())
    };
    known.map(line).collect()
}

fn figures(which: Which, rows: &Rows) -> Vec<BenchResult> {
    let mut figures = match which {
        Which::Nginx => results::nginx(rows, nginx::SMALL.figures),
        Which::Nginx12 => results::nginx(rows, nginx::TWELVE.figures),
        Which::Batch => results::batch(rows),
    };
    figures.extend(results::worst(&[rows]));
    figures.push(results::sim_error(&[rows]));
    figures
}

/// The rows of an experiment, measured now or kept.
pub(crate) fn measure(lab: &Lab, experiment: Experiment, again: bool) -> Result<Rows> {
    let cpus = experiment.cpus;
    let bench = Bench::new(lab, machine(CPU, cpus, "")?, cpus, experiment.name)?;
    rows::measure(&bench, experiment, again)
}

/// Clock and level of each core in each row.
fn page(rows: &Rows) -> Result<String> {
    let read = |path: &PathBuf| -> Result<Log> {
        let text = std::fs::read_to_string(path).context("the log of a point")?;
        Ok(Log::parse(&text)?)
    };
    let logs = rows.rows.iter().map(|row| read(&row.kept.log)).collect::<Result<Vec<Log>>>()?;
    let bands = rows.rows.iter().zip(&logs).map(|(row, log)| {
        let of =
            |load: &rows::Load| format!("{} {:.0} {}/s", load.name, row.per_s(load), load.unit);
        let loads: Vec<String> = rows.loads.iter().map(of).collect();
        Band { heading: format!("{}: {}", loads.join(", "), row.meaning), log }
    });
    let machine = Machine::new(&Settings::parse(CPU)?, rows.cpus, 1)?;
    let names: Vec<&str> = rows.loads.iter().map(|load| load.name).collect();
    let heading = format!("{} on an emulated Xeon Gold 6130", names.join(" and "));
    let about = "Debian's kernel and programs on a machine whose clocks and licence levels are a model. A server \
        has all CPUs but CPU 0, where its client is; batch work is on all.";
    let bands: Vec<Band<'_>> = bands.collect();
    Ok(picture::page(&heading, about, &bands, machine.clocks(), rows.cpus as usize))
}

/// The web server's experiment, ready to be shown.
pub(crate) struct Shown {
    pub(crate) table: String,
    pub(crate) picture: String,
}

/// The demo's rows of the web server's experiment.
pub(crate) fn demo(binaries: Binaries, again: bool) -> Result<Shown> {
    let lab = Lab::usual(binaries)?;
    let mut experiment = nginx::planned(&nginx::SMALL, None, false);
    experiment.rows.retain(|row| nginx::DEMO.contains(&row.point.name.as_str()));
    let rows = measure(&lab, experiment, again)?;
    Ok(Shown { table: rows.table(), picture: page(&rows)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_listed() {
        let list = list();
        assert_eq!(list.lines().count(), Which::value_variants().len());
        assert!(list.starts_with("nginx        A web server"));
    }

    #[test]
    fn the_demos_rows_are_rows_of_the_experiment() {
        let rows = nginx::planned(&nginx::SMALL, None, false).rows;
        let names: Vec<&str> = rows.iter().map(|row| row.point.name.as_str()).collect();
        assert!(nginx::DEMO.iter().all(|row| names.contains(row)));
    }
}
