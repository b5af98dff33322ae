// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane record`: who ran where and when, and inside of which marked functions, into a file.
//!
//! Order: read the arguments, look at the machine, refuse what cannot work, load the recorder, and
//! only then make the file.

mod import;
mod session;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use hw::Facts;
use report::problem::Problem;
use sched::config::Mark;
use sched::marks::{Emulation, MarkError, ResolvedMark, places, resolve};
use sched::parse::{ParseError, duration_ns};
use sched::record::{Options, Section, Whom};
use trace::Info;

use crate::doctor::{open, read_facts};
use crate::failure::Failure;
use crate::mark_files;

/// Record which task runs where and when, and its calls of marked functions
///
/// Records context switches, wake-ups, migrations, forks and exits of CMD and its children, of a
/// running process, or of the entire machine; the calls of marked functions; traps, if the trap
/// module is loaded; and the type that the scheduler of `turbolane run` gives each task, if it
/// runs. Read the file with `turbolane trace`, even while it is being written. However the
/// recording ends, it leaves nothing loaded in the kernel.
///
/// If the CPU counts its cycles at each licence level (Skylake-SP to Ice Lake), they are recorded
/// per task: the counters are read at every switch and, by a timer on every CPU, every millisecond
/// while a task runs. The time that a task spent at a level is then exact to the cycle, and its
/// position to a millisecond.
///
/// With --perf-script, converts licence levels that perf has sampled, here or elsewhere, to a
/// recording.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
#[command(group = ArgGroup::new("whom").required(true)
    .args(["system", "pid", "command", "perf_script"]))]
pub(crate) struct RecordArgs {
    /// File to write
    ///
    /// An existing recording of that name is replaced; any other file is not.
    #[arg(long, short, value_name = "FILE", default_value = "turbolane.trace")]
    output: PathBuf,

    /// Record every task, until Ctrl-C
    #[arg(long)]
    system: bool,

    /// Record this process and all its descendants, until it ends or Ctrl-C
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Import the licence levels from the output of perf script; - is standard input
    ///
    /// Samples of core_power.lvl0_turbo_license, lvl1 and lvl2, which Skylake-SP to Ice Lake count.
    /// Other events in the text are skipped and reported. The text may come from another machine.
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = [
        "duration", "marks", "mark_files", "force_single_step", "syscalls", "stalls", "buffer",
        "machine", "hints",
    ])]
    perf_script: Option<PathBuf>,

    /// Stop recording after this time; CMD continues, and turbolane waits for it
    #[arg(long, value_name = "DURATION", value_parser = limit)]
    duration: Option<Duration>,

    /// Record the calls of a function; repeatable
    ///
    /// FILE:FUNCTION or FILE:+0xOFFSET, followed by @LEVEL and ,min-argN=VALUE, as for `turbolane
    /// run`.
    #[arg(long = "mark", value_name = "FILE:FUNCTION[@LEVEL][,min-argN=VALUE]")]
    marks: Vec<Mark>,

    /// Record the functions that a file lists, such as `turbolane scan --marks` writes; repeatable
    #[arg(long = "marks", value_name = "FILE")]
    mark_files: Vec<PathBuf>,

    /// Record the sections of programs with hints; repeatable
    ///
    /// FILE contains tl_wide_begin and tl_wide_end (tl_scalar_for ends sections too): the
    /// libturbolane.so that the programs load, or a program that the library is linked into. The
    /// level that a program gives is not recorded: @LEVEL after FILE applies to all sections.
    #[arg(long, value_name = "FILE[@LEVEL]", value_parser = hinted)]
    hints: Vec<Hinted>,

    /// Accept marks that the kernel must single-step (about 4.6 us per call instead of 0.5 us)
    #[arg(long)]
    force_single_step: bool,

    /// Record system calls too
    #[arg(long)]
    syscalls: bool,

    /// Also record when a CPU executes nothing for 8 ms or more
    ///
    /// This happens if the host of a virtual machine runs something else; `turbolane trace --check`
    /// excludes that time. Costs a timer on every CPU, idle or not, 250 times a second.
    #[arg(long)]
    stalls: bool,

    /// Size of each CPU's buffer: a power of two of KiB or MiB
    ///
    /// Events that do not fit are lost; their number is reported. The default is 8 MiB, or less on
    /// machines with more than 128 CPUs.
    #[arg(long, value_name = "SIZE", value_parser = buffer_bytes)]
    buffer: Option<usize>,

    /// Print only errors
    #[arg(long, short)]
    quiet: bool,

    /// Only look whether a recorded machine could; for tests
    #[arg(long, value_name = "DIR", hide = true)]
    machine: Option<PathBuf>,

    /// Command to run and record; turbolane exits with its exit code
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Examples:
  sudo turbolane record -- make -j8
      record which task ran where during the build, into turbolane.trace
  sudo turbolane record --marks wide.marks --pid $(pidof -s nginx)
      also record the functions that `turbolane scan --marks` found, until Ctrl-C
  sudo turbolane record --system --duration 10s -o machine.trace
      all tasks for ten seconds
  sudo perf record -a -c 1000003 -e core_power.lvl0_turbo_license,\
core_power.lvl1_turbo_license,core_power.lvl2_turbo_license -- sleep 10
  sudo perf script --header | turbolane record --perf-script - -o levels.trace
      licence levels by task and CPU, on a machine that counts them
  turbolane trace machine.trace
      show what was recorded";

/// Where programs say that wide code begins and ends.
#[derive(Clone, Debug)]
struct Hinted {
    begin: Mark,
    end: Mark,
    /// Ends sections too; older libraries and programs that do not call it lack it.
    scalar_for: Mark,
}

/// Reads `--hints`.
fn hinted(text: &str) -> Result<Hinted, ParseError> {
    let (file, level) = text
        .rsplit_once('@')
        .map_or((text, String::new()), |(file, level)| (file, format!("@{level}")));
    let mark = |function: &str| format!("{file}:{function}{level}").parse::<Mark>();
    let begin = mark("tl_wide_begin")?;
    if begin.filter.is_some() {
        let why = "a section begins and ends whatever its arguments are".into();
        return Err(ParseError { why, next: "leave min-arg out".into() });
    }
    Ok(Hinted { begin, end: mark("tl_wide_end")?, scalar_for: mark("tl_scalar_for")? })
}

/// Reads `--duration`.
fn limit(text: &str) -> Result<Duration, ParseError> {
    duration_ns(text).map(Duration::from_nanos)
}

/// Reads `--buffer`.
fn buffer_bytes(text: &str) -> Result<usize, ParseError> {
    let unit = |unit: &str, shift: u32| {
        let number: usize = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(1 << shift)
    };
    let next = "write a power of two from 4KiB to 1GiB, such as 16MiB";
    let refuse = |why: &str| ParseError { why: format!("\"{text}\" {why}"), next: next.into() };
    let bytes = unit("KiB", 10).or_else(|| unit("MiB", 20)).or_else(|| unit("GiB", 30));
    let bytes = bytes.ok_or_else(|| refuse("is no size"))?;
    match bytes {
        0x1000..=0x4000_0000 if bytes.is_power_of_two() => Ok(bytes),
        _ => Err(refuse("is not a size that the kernel's buffers can have")),
    }
}

/// Checks, records, and says what was recorded.
pub(crate) fn main(args: RecordArgs) -> Result<ExitCode, Failure> {
    if let Some(from) = &args.perf_script {
        import::run(from, &args.output, args.quiet)?;
        return Ok(ExitCode::SUCCESS);
    }
    let facts = read_facts(open(args.machine.as_ref())?.as_ref())?;
    let mut wanted = args.marks.clone();
    wanted.extend(mark_files::read(&args.mark_files)?);
    let marks = resolved(&wanted, &args, &facts)?;
    let sections = sections(&args, &facts)?;
    let has_probes = !marks.is_empty() || !sections.is_empty();
    if let Some(problem) = sched::obstacles::of_recording(has_probes, &facts) {
        return Err(Failure::unsupported(problem));
    }
    if args.machine.is_some() {
        crate::failure::print("it can be recorded there\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let whom = match (args.pid, args.system) {
        (Some(pid), _) => Whom::Process(pid),
        (None, true) => Whom::Everybody,
        (None, false) => Whom::Command,
    };
    if let Whom::Process(pid) = whom
        && !hw::task::task_alive(pid)
    {
        let next = "give the number of a running process: see pidof, pgrep";
        let what = format!("cannot record process {pid}");
        return Err(Failure::failed(Problem::new(what, "there is no such process", next)));
    }
    let options = Options {
        whom,
        syscalls: args.syscalls,
        stalls: args.stalls,
        marks,
        sections,
        buffer_bytes: args.buffer,
    };
    let info = info(&args, &facts);
    let session = session::Session {
        options,
        info,
        output: args.output,
        command: args.command,
        limit: args.duration,
        quiet: args.quiet,
    };
    session.run()
}

fn sections(args: &RecordArgs, facts: &Facts) -> Result<Vec<Section>, Failure> {
    let emulation = Emulation::of(&facts.kernel.release);
    let section = |hinted: &Hinted| {
        let mut places = resolved(&[hinted.begin.clone(), hinted.end.clone()], args, facts)?;
        match resolve(&hinted.scalar_for, emulation, args.force_single_step) {
            Ok(place) => places.push(place),
            Err(MarkError::NoSymbol { .. }) => {}
            Err(error) => {
                let what = format!("cannot mark {}", hinted.scalar_for);
                return Err(Failure::failed(error.problem(what)));
            }
        }
        let begin = places.remove(0);
        Ok(Section { begin, ends: places })
    };
    args.hints.iter().map(section).collect()
}

/// Where marks are in their files.
fn resolved(
    marks: &[Mark],
    args: &RecordArgs,
    facts: &Facts,
) -> Result<Vec<ResolvedMark>, Failure> {
    let emulation = Emulation::of(&facts.kernel.release);
    places(marks, emulation, args.force_single_step).map_err(Failure::failed)
}

fn info(args: &RecordArgs, facts: &Facts) -> Info {
    let target = match (args.pid, args.system) {
        (Some(pid), _) => format!("process {pid}"),
        (None, true) => "the entire machine".into(),
        (None, false) => {
            let words = args.command.iter().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        }
    };
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Info {
        recorder: format!("turbolane {}", env!("CARGO_PKG_VERSION")),
        kernel: facts.kernel.release.to_string(),
        processor: some_name(&facts.cpu.name),
        target,
        cpus: facts.topology.online().to_string(),
        start_wall_ns: wall.as_nanos() as u64,
        ..Info::default()
    }
}

fn some_name(name: &str) -> String {
    if name.is_empty() { "unknown processor".into() } else { name.into() }
}

/// Licence levels: how they come into the recording, or why not.
fn about_levels(levels: Result<(), &str>) -> String {
    match levels {
        Ok(()) => "cycles at each level, read at every switch and every millisecond".into(),
        Err(why) => format!("no licence levels: {why}; wide time comes from marks only"),
    }
}

/// Makes the file, in the place of an older recording or of nothing.
fn create(path: &Path) -> Result<File, Failure> {
    let what = || format!("cannot write {}", path.display());
    if let Ok(mut old) = File::open(path) {
        let mut magic = [0; 8];
        let is_file = old.metadata().is_ok_and(|metadata| metadata.is_file());
        let is_ours = old.read_exact(&mut magic).is_ok() && trace::is_trace(&magic);
        let is_empty = old.metadata().is_ok_and(|metadata| metadata.len() == 0);
        if is_file && !is_ours && !is_empty {
            let why = "it exists and is not a recording";
            return Err(Failure::failed(Problem::new(what(), why, "choose another name with -o")));
        }
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    options.open(path).map_err(|error| {
        Failure::failed(Problem::new(what(), error.to_string(), "choose another place with -o"))
    })
}

/// Says something to the user; standard output belongs to the command.
fn tell(text: &str) {
    _ = writeln!(std::io::stderr(), "turbolane: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Buffers are powers of two with a unit.
    #[test]
    fn buffers_have_sizes() {
        assert_eq!(buffer_bytes("64KiB"), Ok(64 << 10));
        assert_eq!(buffer_bytes("16MiB"), Ok(16 << 20));
    }

    /// Others are refused, overflow included.
    #[test]
    fn bad_buffers_fail() {
        for text in ["", "16", "3MiB", "2KiB", "2GiB", "99999999999999999999GiB", "16MB", "-1MiB"] {
            assert!(buffer_bytes(text).is_err(), "{text}");
        }
    }

    /// A file that is no recording is not overwritten; an empty one and a recording are.
    #[test]
    fn other_files_are_kept_fail() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        std::fs::write(&path, "important notes").unwrap();
        create(&path).unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "important notes");
        std::fs::write(&path, "").unwrap();
        let file = create(&path).unwrap();
        trace::Writer::new(file, &Info::default()).unwrap();
        create(&path).unwrap();
    }
}
