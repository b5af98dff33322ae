// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane run`: core specialisation, until Ctrl-C or until a command ends.
//!
//! Order: read the settings, look at the machine, refuse what cannot work ([`preflight`]), and
//! only then take over ([`supervise`]). Up to that point nothing has changed.

mod preflight;
mod supervise;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use sched::config::{
    Components, Config, Mark, Mode, Remigrate, Scores, TrapMode, Unclassified, WideCpus,
};
use sched::parse::duration_ns;
use sched::scx::Fault;
use sched::settings::{level, slice};

use crate::doctor::{open, read_facts};
use crate::failure::{Failure, print};
use crate::mark_files;
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
    /// CPUs that wide code runs on
    ///
    /// auto: as many cores as the load needs, and none while separating wide code would cost more
    /// than it saves (in affinity mode, which does not measure demand: one core). N: that many
    /// cores, the last ones of each node in turn; 0 for none. A list (2-3,6) or one CPU (cpu:3):
    /// these CPUs and their SMT siblings, since all CPUs of a core share one licence. At least one
    /// core must be left for scalar code.
    #[arg(long, value_name = "LIST|N|auto", default_value_t = Config::default().wide_cpus)]
    #[arg(help_heading = LANE)]
    wide_cpus: WideCpus,

    /// Split the wide CPUs by licence level where that pays, instead of using one class for all
    ///
    /// Code of a lower level gets cores of its own, on which it runs faster, while both this code
    /// and code of a higher level can keep complete cores busy. The number of cores follows the
    /// load. In affinity mode, which does not measure demand, there is one class.
    #[arg(long, help_heading = LANE)]
    tiers: bool,

    /// Scheduler or affinity masks; auto: the scheduler if the kernel has sched_ext
    #[arg(long, default_value_t = Config::default().mode, help_heading = LANE)]
    #[arg(value_parser = words::<Mode>(&["scx", "affinity", "auto"]))]
    mode: Mode,

    /// Mark a function as wide code; repeatable
    ///
    /// FILE:FUNCTION or FILE:+0xOFFSET, followed by @LEVEL (1 heavy AVX2 or light AVX-512, 2 heavy
    /// AVX-512, 3 AMX; default 1). A task is wide from the entry of the function to its return.
    ///
    /// With ,min-argN=VALUE after it, calls whose integer argument N (1 to 6) is below VALUE are
    /// ignored: dot@2,min-arg3=64 ignores short vectors. The lower 32 bits of the argument are
    /// compared as an unsigned number. Make sure that ignored calls really contain no wide code.
    #[arg(long = "mark", value_name = "FILE:FUNCTION[@LEVEL][,min-argN=VALUE]")]
    #[arg(help_heading = DETECTION)]
    marks: Vec<Mark>,

    /// Mark the functions that a file lists, such as `turbolane scan --marks` writes; repeatable
    ///
    /// One mark per line, in the syntax of --mark; a # begins a comment.
    #[arg(long = "marks", value_name = "FILE", help_heading = DETECTION)]
    mark_files: Vec<PathBuf>,

    /// Accept marks that the kernel must single-step (about 4.6 us per call instead of 0.5 us)
    #[arg(long, help_heading = DETECTION)]
    force_single_step: bool,

    /// Withhold these instructions on scalar CPUs, so that their use traps and the task moves
    ///
    /// Finds wide code in programs without hints. Loads the kernel module turbolane_trap for the
    /// duration of the run. avx512: mask and 512-bit registers; avx: these and the 256-bit
    /// registers; amx: tiles.
    #[arg(long, default_value_t = Config::default().trap, help_heading = DETECTION)]
    #[arg(value_parser = words::<Components>(&["none", "avx512", "avx", "amx"]))]
    trap: Components,

    /// What happens when an instruction traps
    ///
    /// grace: heavy code moves; light code may stay for a millisecond. steer: every task that traps
    /// moves. count: no task moves; `turbolane stats` shows the traps.
    #[arg(long, default_value_t = Config::default().trap_mode, help_heading = DETECTION)]
    #[arg(value_parser = words::<TrapMode>(&["count", "grace", "steer"]))]
    trap_mode: TrapMode,

    /// Lowest licence level at which a trapped instruction counts as wide
    ///
    /// 1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3 AMX.
    #[arg(long, value_name = "LEVEL", default_value_t = Config::default().trap_level)]
    #[arg(value_parser = level, help_heading = DETECTION)]
    trap_level: u32,

    /// Identify wide tasks by power scores, computed from the CPU's licence level counters
    ///
    /// Finds programs without hints, and needs no traps: a task that runs while the licence level
    /// rises, or runs long at a level, is taken to be the cause. Uses three counters of each CPU.
    /// auto: on if the CPU has the counters and neither --mark nor --trap is given.
    #[arg(long, default_value_t = Config::default().scores, help_heading = DETECTION)]
    #[arg(value_parser = words::<Scores>(&["auto", "on", "off"]))]
    scores: Scores,

    /// Give CMD a C library without AVX-512
    ///
    /// glibc uses AVX-512 for every memset, which causes traps but gains nothing. This option sets
    /// GLIBC_TUNABLES for CMD, so that glibc uses AVX2; the program's own code still sees AVX-512.
    #[arg(long, requires = "command")]
    plain_glibc: bool,

    /// Type of tasks that nothing has classified
    ///
    /// default: they share all CPUs. scalar: they are kept off wide CPUs that have wide work. CMD and
    /// its children are scalar in both cases.
    #[arg(long, default_value_t = Config::default().unclassified, help_heading = DETECTION)]
    #[arg(value_parser = words::<Unclassified>(&["default", "scalar"]))]
    unclassified: Unclassified,

    /// What ends a wide period
    ///
    /// A comma-separated list: hint, uprobe-return (both always on), syscall-entry, syscall-return,
    /// context-switch, timeout:DURATION. With gap, hint and uprobe-return do not end it at once: the
    /// task stays on its CPU for --rest-below at most, unless the scalar code after such a section has
    /// mostly lasted longer. For programs that call wide functions in quick succession.
    #[arg(long, value_name = "LIST", default_value_t = Config::default().remigrate)]
    #[arg(help_heading = DETECTION)]
    remigrate: Remigrate,

    /// Longest time that a task without an open section stays wide after its last event; 0ms: forever
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration_ns)]
    #[arg(help_heading = DETECTION)]
    wide_timeout: u64,

    /// A thread that announces a scalar phase shorter than this stays on its CPU; 0ms: it always moves
    #[arg(long, value_name = "DURATION", default_value = "15us", value_parser = duration_ns)]
    #[arg(help_heading = DETECTION)]
    rest_below: u64,

    /// Time that a scalar or unclassified task may run before others get their turn
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = slice)]
    #[arg(help_heading = LANE)]
    slice: u64,

    /// The same for wide tasks
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = slice)]
    #[arg(help_heading = LANE)]
    slice_wide: u64,

    /// Run even if control groups use settings that this kernel lets no scheduler honour
    ///
    /// The scheduler honours cpu.weight if the kernel has CONFIG_EXT_GROUP_SCHED, and cpu.max from
    /// Linux 6.17 on. On other kernels it would drop them, so the run refuses to start if a group
    /// uses them.
    #[arg(long, help_heading = REFUSALS)]
    ignore_cgroup_limits: bool,

    /// Print a line of statistics per interval, to standard error
    #[arg(long, value_name = "INTERVAL", value_parser = interval, help_heading = OUTPUT)]
    stats: Option<Duration>,

    /// Print the statistics as JSON, one document per line
    #[arg(long, requires = "stats", help_heading = OUTPUT)]
    json: bool,

    /// Write how long CMD took to a file, as JSON
    ///
    /// Its elapsed time and CPU time, excluding the time to load and unload the scheduler, and the CPU
    /// time that turbolane used meanwhile.
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

const LANE: &str = "Wide and scalar CPUs";
const DETECTION: &str = "What is wide, and until when";
const REFUSALS: &str = "Refusals";
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
}

/// A parser for a setting that is one of a few words; completions and help list them.
fn words<T>(values: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = sched::parse::ParseError> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values).try_map(|word| word.parse::<T>())
}

impl RunArgs {
    /// The settings, with the marks of files after those of the command line.
    fn full_config(&self) -> Result<Config, Failure> {
        let mut config = self.config();
        config.marks.extend(mark_files::read(&self.mark_files)?);
        Ok(config)
    }

    fn config(&self) -> Config {
        Config {
            wide_cpus: self.wide_cpus.clone(),
            tiers: self.tiers,
            remigrate: self.remigrate,
            slice_ns: self.slice,
            slice_wide_ns: self.slice_wide,
            wide_timeout_ns: self.wide_timeout,
            rest_below_ns: self.rest_below,
            unclassified: self.unclassified,
            marks: self.marks.clone(),
            force_single_step: self.force_single_step,
            trap: self.trap,
            trap_mode: self.trap_mode,
            trap_level: self.trap_level,
            scores: self.scores,
            mode: self.mode,
        }
    }

    fn fault(&self) -> Fault {
        match self.fault {
            None => Fault::None,
            Some(FaultArg::Error) => Fault::Error,
            Some(FaultArg::Stall) => Fault::Stall,
            Some(FaultArg::NoSessions) => Fault::NoSessions,
        }
    }
}

/// Checks, takes over, and gives back.
pub(crate) fn main(args: RunArgs) -> Result<ExitCode, Failure> {
    if args.help_stats {
        print(&stats::help())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = args.full_config()?;
    let facts = read_facts(open(args.machine.as_ref())?.as_ref())?;
    let mut plan = preflight::check(&config, &facts)?;
    if config.trap == Components::Avx512 && !args.command.is_empty() && !args.plain_glibc {
        plan.notes.push(GLIBC_NOTE.into());
    }
    if !args.command.is_empty() {
        plan.notes.extend(preflight::affinity_note(&config, &facts));
    }
    if args.machine.is_none() {
        plan.notes.extend(preflight::group_note(plan.mode, args.ignore_cgroup_limits)?);
    }
    if args.check {
        print(&plan.text(terminal::width()))?;
        return Ok(ExitCode::SUCCESS);
    }
    supervise::run(supervise::Run {
        config: Config { mode: plan.mode, ..config },
        fault: args.fault(),
        command: args.command,
        plain_glibc: args.plain_glibc,
        times: args.times,
        stats: args.stats,
        json: args.json,
        quiet: args.quiet,
        notes: plan.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};
    use sched::settings::SETTINGS;

    fn run_command() -> Command {
        RunArgs::augment_args(Command::new("run"))
    }

    /// A run without flags is a run with the library's defaults.
    #[test]
    fn defaults_are_those_of_the_library() {
        let matches = run_command().get_matches_from(["run"]);
        let config = RunArgs::from_arg_matches(&matches).unwrap().config();
        for setting in SETTINGS {
            assert_eq!(setting.get(&config), setting.get(&Config::default()), "{}", setting.key);
        }
    }

    /// Every setting that `ctl` knows has a flag of its name, and the other way round.
    #[test]
    fn flags_and_settings_are_the_same() {
        let command = run_command();
        let mut flags: Vec<&str> = command
            .get_arguments()
            .filter(|arg| [LANE, DETECTION].map(Some).contains(&arg.get_help_heading()))
            .filter_map(|arg| arg.get_long())
            .filter(|flag| !["mark", "marks"].contains(flag))
            .collect();
        let mut settings: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
        flags.sort_unstable();
        settings.sort_unstable();
        assert_eq!(flags, settings);
    }
}
