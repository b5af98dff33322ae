// SPDX-License-Identifier: MIT OR Apache-2.0
//! `./x vm`: the test machines by hand.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use testbed::{Cache, Emulator, Guest, Images, Silicon};

use crate::binaries::Binaries;
use crate::silicon;

/// Arguments of `./x vm`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Subcommand)]
enum Sub {
    /// Fetch and build the images that guests boot from, and print their path
    Build(KernelArgs),
    /// Build the kernel modules for the guests' kernel, and print their path
    Modules(KernelArgs),
    /// Boot a guest, run a command in it, and exit with the command's exit code
    Run(Box<RunArgs>),
}

#[derive(clap::Args)]
struct KernelArgs {
    /// Series of the kernel, as in testbed/versions.toml, e.g. 6.12 [default: the first one there]
    #[arg(long, value_name = "SERIES", default_value = "", hide_default_value = true)]
    kernel: String,
}

#[derive(clap::Args)]
struct RunArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Emulator: qemu, or bochs, which is slower and has AVX-512
    #[arg(long, default_value = "qemu")]
    emulator: Emulator,
    /// Boot it on a machine whose cores have clocks: by licence levels, if CPU has a
    /// CPU file, or by P-states that software sets (fx-8120). `others` further cores of the
    /// package are always active [default: all that the guest does not have]; `boosted=1` leaves
    /// the P-states above the base to the hardware; `seed` is the random seed
    #[arg(
        long,
        value_name = "CPU[,others=N][,boosted=0|1][,seed=N]",
        conflicts_with_all = ["icount", "icount_shift", "cpu", "emulator"]
    )]
    silicon: Option<String>,
    /// Write the log of that machine to this file; crates/silicon/src/truth.rs describes it
    #[arg(long, value_name = "FILE", requires = "silicon")]
    silicon_log: Option<PathBuf>,
    /// Boot a Debian with systemd and some services, and run the command as one of them
    #[arg(long, conflicts_with_all = ["silicon", "emulator"])]
    systemd: bool,
    /// Logical CPUs
    #[arg(long, default_value_t = 4)]
    cpus: u32,
    /// Sockets, cores and threads, e.g. "cores=2,threads=2"
    #[arg(long, default_value = "")]
    topology: String,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048)]
    memory: u32,
    /// Make the time stamp counter count the guest's instructions
    #[arg(long)]
    icount: bool,
    /// Like --icount, with 2^SHIFT ticks per instruction; 2 boots three times as fast
    #[arg(long, value_name = "SHIFT", conflicts_with = "icount")]
    icount_shift: Option<u8>,
    /// The CPU model, for QEMU's -cpu, or one of Bochs' models
    #[arg(long, default_value = "max")]
    cpu: String,
    /// Time limit for boot and command together, e.g. 90s or 5m
    #[arg(long, default_value = "120s", value_parser = duration)]
    limit: Duration,
    /// Add to the kernel command line
    #[arg(long, value_name = "ARGS", default_value = "")]
    append: String,
    /// Do not build `turbolane` and the tests' programs for the guest
    #[arg(long)]
    bare: bool,
    /// Copy a file or folder of this machine into the guest
    #[arg(long, value_name = "HOST:GUEST", value_parser = pair)]
    payload: Vec<(PathBuf, PathBuf)>,
    /// Do not report kernel log lines with this text
    #[arg(long, value_name = "TEXT")]
    allow_log: Vec<String>,
    /// Copy the files that the command leaves in /out to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the kernel log at the end
    #[arg(long)]
    dmesg: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let images = |args: &KernelArgs| testbed::prepare_series(&cache, &args.kernel);
    match &args.command {
        Sub::Build(args) => build(&images(args)?),
        Sub::Modules(args) => modules(&cache, &images(args)?),
        Sub::Run(args) => {
            let silicon = args.silicon.as_deref();
            let silicon = silicon.map(|text| silicon::machine(text, args.cpus, &args.topology));
            let silicon = silicon.transpose()?;
            let images = match args.systemd {
                true => testbed::prepare_with_systemd(&cache)?,
                false => images(&args.kernel)?,
            };
            run(&cache, &images, silicon, args)
        }
    }
}

fn build(images: &Images) -> Result<ExitCode> {
    println!("kernel     {}", images.kernel.image().display());
    println!("disk       {}", images.disk.display());
    println!("initramfs  {}", images.initramfs.display());
    Ok(ExitCode::SUCCESS)
}

fn modules(cache: &Cache, images: &Images) -> Result<ExitCode> {
    for module in crate::modules::build(cache, &images.kernel)? {
        println!("{}", module.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn run(
    cache: &Cache,
    images: &Images,
    silicon: Option<Silicon>,
    args: &RunArgs,
) -> Result<ExitCode> {
    let mut guest = Guest::new(cache, images)
        .emulator(args.emulator)
        .cpus(args.cpus)
        .topology(&args.topology)
        .memory_mib(args.memory)
        .cpu(&args.cpu)
        .icount_shift(args.icount_shift.or(args.icount.then_some(0)))
        .limit(args.limit)
        .kernel_args(&args.append)
        .systemd(args.systemd)
        .echo(true);
    if let Some(silicon) = silicon {
        guest = guest.silicon(silicon);
    }
    let binaries = if args.bare { Vec::new() } else { Binaries::build()?.payload };
    for (host, path) in binaries.iter().chain(&args.payload) {
        guest = guest.payload(host, path);
    }
    for text in &args.allow_log {
        guest = guest.allow_log(text);
    }
    let words: Vec<&str> = args.command.iter().map(String::as_str).collect();
    let outcome = guest.run(&words)?;
    if let testbed::End::Died(why) = &outcome.end {
        eprintln!("{why}");
    } else if args.dmesg {
        eprint!("{}", outcome.kernel_log);
    }
    eprint!("{}", outcome.hangs_at);
    for finding in &outcome.findings {
        eprintln!("kernel log, line {}: {}", finding.number, finding.line);
    }
    if let Some(folder) = &args.out {
        outcome.copy_out(folder)?;
    }
    if let (Some(to), Some(log)) = (&args.silicon_log, outcome.silicon_log()) {
        std::fs::copy(log, to)
            .with_context(|| format!("cannot copy the machine's log to {}", to.display()))?;
    }
    eprintln!("guest: {}", outcome.summary());
    let code = match outcome.exit_code() {
        0 if !outcome.findings.is_empty() => 1,
        code => u8::try_from(code).unwrap_or(u8::MAX),
    };
    Ok(ExitCode::from(code))
}

/// Reads a duration with its unit; a bare number is refused.
pub(crate) fn duration(text: &str) -> Result<Duration> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0)];
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .context("a duration needs its unit: 500ms, 90s or 5m")?;
    let number: f64 = number.parse().context("a duration is like 500ms, 90s or 5m")?;
    Duration::try_from_secs_f64(number * factor).context("not a duration")
}

fn pair(text: &str) -> Result<(PathBuf, PathBuf)> {
    let (host, guest) =
        text.split_once(':').context("give HOST:GUEST, e.g. ./tool:/usr/bin/tool")?;
    Ok((host.into(), guest.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(duration("5m").unwrap(), Duration::from_secs(300));
        for bad in ["5", "s", "-1s", "5h"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
