// SPDX-License-Identifier: MIT OR Apache-2.0
//! The settings of a run as flags, which `run` and `enable` have in common, and a settings file
//! below them.
//!
//! A flag has a default, so its value does not show whether the user gave it. [`Chosen`] keeps the
//! names of the flags that were on the command line: only these take precedence over a file.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Args, Command, FromArgMatches};
use report::problem::Problem;
use sched::config::{
    Components, Config, Goal, GoalKind, Mark, Mode, Remigrate, Scope, Scores, Selectors, TrapMode,
    Unclassified, WideCpus, WideSelectors,
};
use sched::parse::duration_ns;
use sched::settings::{SETTINGS, goal_every, level, slice};
use sched::settings_file::{self, FileError, IGNORE_GROUP_LIMITS, METRICS, Settings};

use crate::failure::Failure;
use crate::mark_files;

const LANE: &str = "Wide and scalar CPUs";
const DETECTION: &str = "What is wide, and until when";
const REFUSALS: &str = "Refusals";
const MONITORING: &str = "Monitoring";

#[derive(Args)]
struct SettingArgs {
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
    /// Lower-level code gets its own cores, where it runs faster, as long as it and higher-level
    /// code can each keep complete cores busy. The number of cores follows the load. In affinity
    /// mode, which does not measure demand, there is one class.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, hide_default_value = true)]
    #[arg(require_equals = true, default_missing_value = "true", value_name = "true|false")]
    #[arg(hide_possible_values = true, help_heading = LANE)]
    tiers: bool,

    /// A figure of the application decides whether wide code is separated: a file with a number, or
    /// command:COMMAND
    ///
    /// The scheduler alternates between separating wide code and standing by, a few seconds each,
    /// for 40 to 100 readings. If separation is measurably better it is kept, otherwise the
    /// scheduler stands by. This is repeated after 5 minutes, then more rarely. The first number in
    /// the text is used. It must describe about the time since the previous reading, or less. A
    /// command must end within that time, and runs with the rights of turbolane. Needs --wide-cpus
    /// auto.
    #[arg(long, value_name = "FILE|command:COMMAND", default_value_t = Config::default().goal)]
    #[arg(hide_default_value = true, help_heading = LANE)]
    goal: Goal,

    /// What the figure of --goal means
    ///
    /// higher: higher is better, such as requests per second. lower: lower is better, such as a
    /// response time. counter: a running total, where faster growth is better.
    #[arg(long, default_value_t = Config::default().goal_kind, help_heading = LANE)]
    #[arg(value_parser = words::<GoalKind>(&["higher", "lower", "counter"]))]
    goal_kind: GoalKind,

    /// How often the figure of --goal is read
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = goal_every)]
    #[arg(help_heading = LANE)]
    goal_every: u64,

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
    ///
    /// An offset is for one build of the file: ,build-id=ID refuses it in others. Without it the
    /// file must show that a function begins there.
    #[arg(long = "mark", value_name = "FILE:FUNCTION[@LEVEL][,min-argN=VALUE]")]
    #[arg(help_heading = DETECTION)]
    marks: Vec<Mark>,

    /// Mark the functions that a file lists, such as `turbolane scan --marks` writes; repeatable
    ///
    /// One mark per line, in the syntax of --mark; a # begins a comment.
    #[arg(long = "marks", value_name = "FILE", help_heading = DETECTION)]
    mark_files: Vec<PathBuf>,

    /// Accept marks that the kernel must single-step (about 4.6 us per call instead of 0.5 us)
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, hide_default_value = true)]
    #[arg(require_equals = true, default_missing_value = "true", value_name = "true|false")]
    #[arg(hide_possible_values = true, help_heading = DETECTION)]
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

    /// Type of tasks that nothing has classified
    ///
    /// default: they share all CPUs. scalar: they are kept off wide CPUs that have wide work. CMD
    /// and its children are scalar in both cases.
    #[arg(long, default_value_t = Config::default().unclassified, help_heading = DETECTION)]
    #[arg(value_parser = words::<Unclassified>(&["default", "scalar"]))]
    unclassified: Unclassified,

    /// Treat these tasks as wide all the time: unit:NAME, cgroup:/PATH or comm:NAME, each with an
    /// optional @LEVEL
    ///
    /// Several are separated by commas; the level is 1 to 3 (default 2). A unit or control group
    /// includes all groups below it; of several rules the one of the innermost group counts. A
    /// unit is one of the system, not of a user, and may start later. comm is the kernel's name of
    /// a task, and counts only for tasks in no group with a rule. Wide tasks run on wide CPUs only.
    #[arg(long, value_name = "LIST", default_value_t = Config::default().scope.wide)]
    #[arg(hide_default_value = true, help_heading = DETECTION)]
    wide_tasks: WideSelectors,

    /// Treat these tasks as scalar all the time: unit:NAME or cgroup:/PATH
    ///
    /// Their hints, marks, traps and scores are ignored. Like all scalar tasks they run on a wide
    /// CPU only while it has nothing else to run.
    #[arg(long, value_name = "LIST", default_value_t = Config::default().scope.scalar)]
    #[arg(hide_default_value = true, help_heading = DETECTION)]
    scalar_tasks: Selectors,

    /// Leave these tasks alone: unit:NAME or cgroup:/PATH
    ///
    /// Their hints, marks, traps and scores are ignored, and they share all CPUs as tasks without
    /// wide code do.
    #[arg(long, value_name = "LIST", default_value_t = Config::default().scope.alone)]
    #[arg(hide_default_value = true, help_heading = DETECTION)]
    leave_alone: Selectors,

    /// What ends a wide period
    ///
    /// A comma-separated list: hint, uprobe-return (both always on), syscall-entry, syscall-return,
    /// context-switch, timeout:DURATION. last-syscall: the system call after which a section ends;
    /// each task learns which call that is. gap: hint and uprobe-return do not end the period at
    /// once; the task stays on its CPU for at most --rest-below, unless the scalar code after such
    /// a section has mostly lasted longer. gap is for programs that call wide functions in quick
    /// succession.
    #[arg(long, value_name = "LIST", default_value_t = Config::default().remigrate)]
    #[arg(help_heading = DETECTION)]
    remigrate: Remigrate,

    /// Longest time that a task without an open section stays wide after its last event; 0ms:
    /// forever
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration_ns)]
    #[arg(help_heading = DETECTION)]
    wide_timeout: u64,

    /// A thread that announces a scalar phase shorter than this stays on its CPU; 0ms: it always
    /// moves
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

    /// Run even if control groups use settings that no scheduler can honour on this kernel
    ///
    /// The scheduler honours cpu.weight if the kernel has CONFIG_EXT_GROUP_SCHED, and cpu.max from
    /// Linux 6.17 on. On other kernels it would drop them, so the run refuses to start if a group
    /// uses them.
    #[arg(long, default_value_t = false, action = ArgAction::Set)]
    #[arg(num_args = 0..=1, hide_default_value = true)]
    #[arg(require_equals = true, default_missing_value = "true", value_name = "true|false")]
    #[arg(hide_possible_values = true, help_heading = REFUSALS)]
    ignore_cgroup_limits: bool,

    /// Write metrics for Prometheus to a file every 10 s
    ///
    /// The file is for the textfile collector of node_exporter, which reads names that end in
    /// .prom; on Debian its folder is /var/lib/prometheus/node-exporter. It is replaced by renaming
    /// and removed at the end of the run. No network port is opened. See also `turbolane stats
    /// --openmetrics`.
    #[arg(long, value_name = "FILE", help_heading = MONITORING)]
    metrics: Option<PathBuf>,
}

/// The settings that the user chose on the command line.
pub(crate) struct Chosen {
    args: SettingArgs,
    /// Flags on the command line, without the dashes.
    given: BTreeSet<String>,
}

impl Args for Chosen {
    fn augment_args(command: Command) -> Command {
        SettingArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        SettingArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let ids = matches.ids().map(clap::Id::as_str).filter(|id| is_given(id));
        let given = ids.map(|id| id.replace('_', "-")).collect();
        Ok(Chosen { args: SettingArgs::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Chosen {
    /// The settings of the file, if there is one, and those of the command line over them, with all
    /// marks.
    pub(crate) fn settings(&self, file: Option<&Path>) -> Result<Settings, Failure> {
        let mut settings = self.over(file.map_or(Ok(Settings::default()), read)?);
        settings.config = with_listed_marks(&settings)?;
        Ok(settings)
    }

    /// Whether the command line chooses any setting.
    pub(crate) fn is_any_given(&self) -> bool {
        let args = SettingArgs::augment_args(Command::new(""));
        args.get_arguments().any(|arg| self.is_given(&arg.get_id().as_str().replace('_', "-")))
    }

    /// These settings, with those of the command line over them.
    pub(crate) fn over(&self, mut settings: Settings) -> Settings {
        let flags = self.args.config();
        for setting in SETTINGS.iter().filter(|setting| self.is_given(setting.key)) {
            let value = setting.get(&flags);
            setting.set(&mut settings.config, &value).expect("a setting reads what it prints");
        }
        // ids of the two fields
        if self.is_given("marks") || self.is_given("mark-files") {
            settings.config.marks = flags.marks;
            settings.mark_files = self.args.mark_files.clone();
        }
        if self.is_given(IGNORE_GROUP_LIMITS) {
            settings.ignore_group_limits = self.args.ignore_cgroup_limits;
        }
        if self.is_given(METRICS) {
            settings.metrics.clone_from(&self.args.metrics);
        }
        settings
    }

    fn is_given(&self, flag: &str) -> bool {
        self.given.contains(flag)
    }
}

/// The scheduler's settings, with the marks of the files of marks after those that are named one by
/// one.
pub(crate) fn with_listed_marks(settings: &Settings) -> Result<Config, Failure> {
    let mut config = settings.config.clone();
    config.marks.extend(mark_files::read(&settings.mark_files)?);
    Ok(config)
}

/// Reads a settings file, without the files of marks that it names.
pub(crate) fn read(path: &Path) -> Result<Settings, Failure> {
    let text = fs::read_to_string(path).map_err(|error| {
        let what = format!("cannot read the settings in {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), "check the path of --config"))
    })?;
    settings_file::parse(&text).map_err(|FileError { line, column, error }| {
        let place = format!("line {line}, column {column}");
        let what = format!("cannot use the settings in {}, {place}", path.display());
        Failure::failed(Problem::new(what, error.why, error.next))
    })
}

/// A parser for a setting that is one of a few words; completions and help list them.
fn words<T>(values: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err = sched::parse::ParseError> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values).try_map(|word| word.parse::<T>())
}

impl SettingArgs {
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
            scope: Scope {
                wide: self.wide_tasks.clone(),
                scalar: self.scalar_tasks.clone(),
                alone: self.leave_alone.clone(),
            },
            marks: self.marks.clone(),
            force_single_step: self.force_single_step,
            trap: self.trap,
            trap_mode: self.trap_mode,
            trap_level: self.trap_level,
            scores: self.scores,
            goal: self.goal.clone(),
            goal_kind: self.goal_kind,
            goal_every_ns: self.goal_every,
            mode: self.mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_command() -> Command {
        SettingArgs::augment_args(Command::new("run"))
    }

    /// A run without flags is a run with the library's defaults.
    #[test]
    fn defaults_are_those_of_the_library() {
        let matches = run_command().get_matches_from(["run"]);
        let config = SettingArgs::from_arg_matches(&matches).unwrap().config();
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

    fn chosen(args: &[&str]) -> Chosen {
        let command = Chosen::augment_args(Command::new("run"));
        let matches = command.get_matches_from(["run"].iter().chain(args));
        Chosen::from_arg_matches(&matches).unwrap()
    }

    /// A flag takes precedence over the file, also one whose value is the default; the file's other
    /// settings hold.
    #[test]
    fn flags_take_precedence_over_the_file() {
        let file = "wide-cpus = 2\ntiers = true\nslice = '3ms'\nmark = 'a:f'\nmarks = 'list'\n\
                    ignore-cgroup-limits = true\nmetrics = '/a.prom'\n";
        let over = |args: &[&str]| chosen(args).over(settings_file::parse(file).unwrap());
        let same = over(&[]);
        assert_eq!((same.config.slice_ns, same.config.tiers), (3_000_000, true));
        assert!(same.ignore_group_limits);
        assert_eq!(same.mark_files, [Path::new("list")]);
        assert_eq!(same.metrics.as_deref(), Some(Path::new("/a.prom")));
        let elsewhere = over(&["--metrics", "/b.prom"]);
        assert_eq!(elsewhere.metrics.as_deref(), Some(Path::new("/b.prom")));
        let changed = over(&[
            "--slice",
            "5ms",
            "--tiers=false",
            "--ignore-cgroup-limits=false",
            "--mark",
            "b:g",
        ]);
        assert_eq!((changed.config.slice_ns, changed.config.tiers), (5_000_000, false));
        assert_eq!(changed.config.wide_cpus, WideCpus::Cores(2));
        assert!(!changed.ignore_group_limits);
        assert_eq!(changed.config.marks, ["b:g".parse().unwrap()]);
        assert!(changed.mark_files.is_empty());
    }

    /// Only flags on the command line are choices.
    #[test]
    fn choices_are_what_is_on_the_command_line() {
        assert!(!chosen(&[]).is_any_given());
        for args in [
            ["--slice", "5ms"].as_slice(),
            &["--tiers"],
            &["--marks", "f"],
            &["--metrics", "a.prom"],
            &["--mark", "a:f"],
        ] {
            assert!(chosen(args).is_any_given(), "{args:?}");
        }
    }
}
