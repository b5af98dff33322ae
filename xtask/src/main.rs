// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's own tool: tests, benchmarks and the test machines. Called
//! through `./x`, which first installs what is missing.

mod bench;
mod binaries;
mod book;
mod crates;
mod demo;
mod format;
mod lab;
mod modules;
mod package;
mod python;
mod quick;
mod repo;
mod results;
mod silicon;
mod size;
mod suite;
mod test;
mod tidy;
mod unit;
mod vm;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "x", bin_name = "./x", about = "Turbolane's own tool")]
struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Show Turbolane on this machine, then on an emulated one whose clocks wide code lowers
    Demo(demo::Args),
    /// Run all checks and tests
    Test(test::Args),
    /// Run a group of benchmarks
    Bench(bench::Args),
    /// Build everything in release mode and print where it is
    Build,
    /// Build the packages (Debian, DKMS, RPM, Python) and the tarball
    Package,
    /// Build the documents as a book of HTML pages
    Book,
    /// Format all Rust and C sources
    Fmt,
    /// Check the tree's own rules
    Tidy,
    /// Simulate the papers' experiments and compare the results with the published figures
    #[command(disable_help_flag = true)]
    Papers {
        /// Papers and options, see `./x papers --help`
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Run the papers' experiments on the dim-silicon machine
    Silicon(silicon::experiment::Args),
    /// Build or boot the test machines
    Vm(vm::Args),
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<ExitCode> {
    testbed::end_children_on_signals()?;
    match &args.command {
        Sub::Demo(args) => demo::main(args),
        Sub::Test(args) => test::main(args),
        Sub::Bench(args) => bench::main(args),
        Sub::Build => build(),
        Sub::Package => package::main(),
        Sub::Book => book::main(),
        Sub::Fmt => format::main(),
        Sub::Tidy => tidy::main(),
        Sub::Papers { args } => papers(args),
        Sub::Silicon(args) => silicon::experiment::main(args),
        Sub::Vm(args) => vm::main(args),
    }
}

/// The program of crates/papers, in release mode: it simulates for some seconds.
fn papers(args: &[String]) -> Result<ExitCode> {
    let mut command = repo::cargo();
    command.args(["run", "--quiet", "--release", "-p", "papers", "--"]).args(args);
    let status = command.status().context("cannot run cargo")?;
    Ok(ExitCode::from(status.code().map_or(2, |code| code as u8)))
}

fn build() -> Result<ExitCode> {
    for (file, _) in binaries::Binaries::build()?.payload {
        println!("{}", file.display());
    }
    Ok(ExitCode::SUCCESS)
}
