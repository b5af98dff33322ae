// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane run`: core specialisation, until Ctrl-C or until a command ends.
//!
//! Order: read the settings, look at the machine, refuse what cannot work ([`preflight`]), and
//! only then take over ([`supervise`]). Up to that point nothing has changed.

mod journal;
pub(crate) mod metrics;
mod notify;
pub(crate) mod preflight;
pub(crate) mod settings;
mod standby;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use sched::config::{Components, Config};
use sched::obstacles::without_ours;
use sched::scx::Fault;

use self::settings::Chosen;
use crate::doctor::{open, read_facts};
use crate::failure::{Failure, print};
use crate::stats::{self, interval};
use crate::terminal;

/// Run wide code on its own CPUs, until Ctrl-C or until CMD ends
///
/// Loads the sched_ext scheduler or, if the kernel has no sched_ext, uses affinity masks. Wide code
/// is identified by hints that programs give through libturbolane, by the functions named by
/// --mark, by --trap or by --scores. Settings can be changed during the run: see `turbolane ctl`.
/// However the run ends, even by kill -9, the kernel's own scheduler takes over again.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    settings: Chosen,

    /// Read settings from a file, such as /etc/turbolane.toml
    ///
    /// Its keys are the names of the flags under "Wide and scalar CPUs", "What is wide, and until
    /// when" and "Refusals", without the dashes: slice-wide = "10ms". Flags take precedence over
    /// the file; marks on the command line replace the marks of the file. Without this option no
    /// file is read.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Give CMD a C library without AVX-512
    ///
    /// glibc uses AVX-512 for every memset, which causes traps but gains nothing. This option sets
    /// GLIBC_TUNABLES for CMD, so that glibc uses AVX2; the program's own code still sees AVX-512.
    #[arg(long, requires = "command")]
    plain_glibc: bool,

    /// Print a line of statistics per interval, to standard error
    #[arg(long, value_name = "INTERVAL", value_parser = interval, help_heading = OUTPUT)]
    stats: Option<Duration>,

    /// Print the statistics as JSON, one document per line
    #[arg(long, requires = "stats", help_heading = OUTPUT)]
    json: bool,

    /// Take over from the current run without stopping it first
    ///
    /// Loads everything while the other scheduler is still at work, and only then takes its place.
    /// Programs keep their connections for hints. If it fails, the other one continues. Settings
    /// are those of this command line and of --config, as for any run; changes by `turbolane ctl
    /// set` are not carried over, and counters begin at 0. `turbolane ctl upgrade` does this for a
    /// running service.
    #[arg(long, conflicts_with_all = ["command", "check"])]
    take_over: bool,

    /// Write how long CMD took to a file, as JSON
    ///
    /// Its elapsed time and CPU time, excluding the time to load and unload the scheduler, and the
    /// CPU time that turbolane used meanwhile.
    #[arg(long, value_name = "FILE", requires = "command", help_heading = OUTPUT)]
    times: Option<PathBuf>,

    /// Explain every statistic and exit
    #[arg(long, help_heading = OUTPUT)]
    help_stats: bool,

    /// Print only errors
    #[arg(long, short, help_heading = OUTPUT)]
    quiet: bool,

    /// Check settings and machine, print what would be done, and exit
    #[arg(long, help_heading = OUTPUT)]
    check: bool,

    /// With --check: look at a recorded machine instead of this one
    #[arg(long, value_name = "DIR", requires = "check", hide = true)]
    machine: Option<PathBuf>,

    /// Break the scheduler on purpose, for tests of what happens then
    #[arg(long, value_enum, hide = true)]
    fault: Option<FaultArg>,

    /// Command to run, as scalar; turbolane exits with its exit code
    ///
    /// CMD and its children are scalar from their first instruction, until a hint or a mark shows
    /// that a task is wide; all other tasks have the type given by --unclassified. Affinity mode
    /// does not classify tasks: there a thread's mask is unchanged until its first hint.
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const OUTPUT: &str = "Output";

const AFTER_HELP: &str = "\
Signals:
  Without CMD, Ctrl-C, SIGTERM and SIGHUP end the run with exit code 0.
  With CMD, the run ends when CMD ends. SIGTERM and SIGHUP are forwarded to CMD;
  the terminal sends it Ctrl-C. A second signal sends CMD SIGTERM, a third one ends
  the run without waiting.

Examples:
  sudo turbolane run --mark /usr/lib/libcrypto.so.3:EVP_EncryptUpdate@2
      until Ctrl-C; OpenSSL's encryption is wide code in every program
  sudo turbolane run --wide-cpus 2-3 --stats 1s -- ./server --threads 8
      CPUs 2 and 3 are wide while the server runs; one line of statistics per second
  turbolane run --check --wide-cpus 2-3
      check whether that would work here";

const GLIBC_NOTE: &str = "the C library of the command uses AVX-512 itself and traps; \
    --plain-glibc makes it use AVX2";

#[derive(Clone, Copy, ValueEnum)]
enum FaultArg {
    Error,
    Stall,
    NoSessions,
    Leaves,
}

impl RunArgs {
    fn fault(&self) -> Fault {
        match self.fault {
            None => Fault::None,
            Some(FaultArg::Error) => Fault::Error,
            Some(FaultArg::Stall) => Fault::Stall,
            Some(FaultArg::NoSessions) => Fault::NoSessions,
            Some(FaultArg::Leaves) => Fault::Leaves,
        }
    }
}

/// Checks, takes over, and gives back.
pub(crate) fn main(args: RunArgs) -> Result<ExitCode, Failure> {
    if args.help_stats {
        print(&stats::help())?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings = args.settings.settings(args.config.as_deref())?;
    let config = settings.config;
    let mut facts = read_facts(open(args.machine.as_ref())?.as_ref())?;
    if args.take_over {
        facts.kernel = without_ours(facts.kernel);
    }
    let mut plan = preflight::check(&config, &facts)?;
    if config.trap == Components::Avx512 && !args.command.is_empty() && !args.plain_glibc {
        plan.notes.push(GLIBC_NOTE.into());
    }
    if let (false, Some(own)) = (args.command.is_empty(), facts.rights.cpus) {
        let whose = "the command's affinity";
        plan.notes.extend(preflight::affinity_note(&config, &facts, whose, own));
    }
    if args.machine.is_none() {
        plan.notes.extend(preflight::group_note(plan.mode, settings.ignore_group_limits)?);
    }
    if let Some(path) = &settings.metrics {
        metrics::check(path)?;
        plan.notes.extend(metrics::name_note(path));
    }
    if args.check {
        print(&plan.text(terminal::width()))?;
        return Ok(ExitCode::SUCCESS);
    }
    supervise::run(supervise::Run {
        config: Config { mode: plan.mode, ..config },
        fault: args.fault(),
        take_over: args.take_over,
        command: args.command,
        plain_glibc: args.plain_glibc,
        times: args.times,
        metrics: settings.metrics,
        stats: args.stats,
        json: args.json,
        quiet: args.quiet,
        notes: plan.notes,
    })
}
