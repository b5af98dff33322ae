// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane sample`: who executes wide code, on any CPU.
//!
//! CPUs are sampled by the kernel's clock (`hw::sampling`), addresses become places in files (`observe.rs`), the files are
//! scanned, and samples in functions with wide code are added up (`attribute.rs`). Nothing is changed.

mod attribute;
mod observe;

use std::fmt::Write;
use std::fs::File;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use hw::sampling::Sampler;
use memmap2::Mmap;
use report::json_line;
use report::problem::Problem;
use report::sample::SampleReport;
use scan::{Options, Sort, scan_file};
use sched::parse::{ParseError, duration_ns};

use crate::failure::{FOUND, Failure, print, show};
use attribute::{Code, Observed, Wide};
use observe::{Observer, Sampled};

/// Show which tasks execute wide code, and what runs right after it
///
/// Samples what the CPUs execute, scans the files that the samples are in, and adds up the samples in functions with
/// wide code. Needs no licence counters, so it works on every CPU and in virtual machines. Needs root, or
/// kernel.perf_event_paranoid of at most 0. Changes nothing. Exits with 1 if wide code was seen.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct SampleArgs {
    /// Processes to search for wide code [default: all]
    #[arg(long, value_name = "PID", num_args = 1.., value_parser = clap::value_parser!(u32).range(1..))]
    pid: Vec<u32>,
    /// How long to sample, 60s at most
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = time)]
    time: Duration,
    /// Lowest licence level of a function that counts as wide
    ///
    /// 1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3 AMX.
    #[arg(long, value_name = "LEVEL", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=3))]
    level: u8,
    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

const AFTER_HELP: &str = "\
LEVEL and LASTING are those of turbolane scan. A sample in a function with wide code
shows that the CPU was in that function, not which instruction it executed: if only the
beginning of a function uses AVX-512, all its samples count as wide.

A victim is other code that was sampled on the same core within 1ms after wide code.
The samples do not show whether the clock was low then.

In a virtual machine the timer that takes samples can be 0.1 ms late. Wide sections
shorter than that lose some of their samples to the code after them.

folded: one line per call chain, outermost caller first, with its number of samples, in
the format that flame graph programs read. Frames are named by function if it has wide
code, otherwise by file. Callers are found by frame pointers, which many libraries omit.

Examples:
  sudo turbolane sample
  sudo turbolane sample --pid $(pidof nginx) --for 30s
  sudo turbolane sample --format folded | flamegraph.pl > wide.svg";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Tables
    Text,
    /// One line of JSON
    Json,
    /// Call chains
    Folded,
}

/// A sample takes 48 bytes: 3 MB per CPU and minute, and the call chains.
const LONGEST: Duration = Duration::from_secs(60);
/// Within 10 s of a busy CPU a share of 1 % is known to a tenth of itself (the square root of 100 samples).
const PERIOD: Duration = Duration::from_millis(1);
/// Rings have room for half a second.
const READ_EVERY: Duration = Duration::from_millis(50);

fn time(text: &str) -> Result<Duration, ParseError> {
    match Duration::from_nanos(duration_ns(text)?) {
        time if time >= READ_EVERY && time <= LONGEST => Ok(time),
        _ => Err(ParseError {
            why: "sampling takes 50ms to 60s".into(),
            next: "choose a time within that; sample again for more".into(),
        }),
    }
}

/// Samples, and prints what was found.
pub(crate) fn main(args: &SampleArgs) -> Result<ExitCode, Failure> {
    for pid in &args.pid {
        let cannot = |error: std::io::Error| {
            let next = "check the number with ps";
            Failure::failed(Problem::new(
                format!("cannot sample process {pid}"),
                error.to_string(),
                next,
            ))
        };
        hw::task::name(*pid).map_err(cannot)?;
    }
    let topology =
        hw::topology(&hw::Live).map_err(|error| sched::obstacles::of_topology(&error))?;
    let mut observer = Observer::of(&args.pid);
    let cpus = topology.online();
    let numbers = cpus.iter().map(|cpu| cpu as u32);
    let mut sampler =
        Sampler::start(numbers, PERIOD.as_nanos() as u64).map_err(|error| refused(&error))?;
    let begun = Instant::now();
    while begun.elapsed() < args.time {
        std::thread::sleep(READ_EVERY.min(args.time.saturating_sub(begun.elapsed())));
        sampler.read(|sample| observer.see(&sample));
    }
    let time = begun.elapsed();
    let lost = sampler.lost();
    drop(sampler);
    let core = |cpu| topology.place(cpu).map_or(u32::MAX, |place| place.core as u32);
    let last = cpus.iter().last().unwrap_or(0);
    let mut unread = observer.unread;
    let files: Vec<Code> =
        observer.files.into_iter().map(|file| scanned(file, args.level)).collect();
    unread.extend(
        files.iter().filter_map(|code| Some(format!("{}: {}", code.path, code.unread.as_ref()?))),
    );
    let observed = Observed {
        seen: observer.seen,
        processes: observer.names,
        files,
        cores: (0..=last).map(core).collect(),
    };
    if args.format == Format::Folded {
        print(&folded(&observed, &observer.stacks))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = observed.judge(SampleReport {
        schema: SampleReport::SCHEMA,
        time_ns: time.as_nanos() as u64,
        period_ns: PERIOD.as_nanos() as u64,
        cpus: cpus.iter().count() as u32,
        lost,
        least_level: args.level,
        unread,
        ..SampleReport::default()
    });
    show(args.format == Format::Json, || json_line(&report), |width| report.text(width))?;
    Ok(if report.wide() > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

fn refused(error: &std::io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "this user may not look at all CPUs".to_owned(),
        Some(libc::EMFILE | libc::ENOMEM) => {
            format!("{error} (it takes a descriptor and 516 KiB per CPU)")
        }
        _ => format!("perf_event_open: {error}"),
    };
    let next = "run it as root, or set kernel.perf_event_paranoid=0; turbolane scan --pid needs no rights for your own processes";
    Failure::unsupported(Problem::new("cannot sample the CPUs", why, next))
}

/// The wide functions of a file.
fn scanned(sampled: Sampled, level: u8) -> Code {
    let Sampled { path, file } = sampled;
    // SAFETY: the bytes are only read. If the file is changed meanwhile, the scanner sees other bytes,
    // and takes any; if it is truncated, the program ends by SIGBUS, as scan does.
    let mapped = file.and_then(|file: File| unsafe { Mmap::map(&file) });
    let options = Options { level, top: None, sort: Sort::Address };
    let scanned = match &mapped {
        Ok(bytes) => scan_file(&path, bytes, &options).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match scanned {
        Err(why) => Code::unread(path, why),
        Ok(file) => Code::new(
            path,
            file.listed.into_iter().filter_map(|function| {
                let wide = Wide {
                    name: function.name,
                    size_bytes: function.size_bytes,
                    license_level: function.license_level,
                    sustained_level: function.sustained_level,
                };
                Some((function.file_offset?, wide))
            }),
        ),
    }
}

/// Call chains by name, as flame graph programs read them; neighbours in one file are one frame.
fn folded(
    observed: &Observed,
    stacks: &std::collections::HashMap<(usize, Vec<attribute::Place>), u64>,
) -> String {
    let mut by_text = std::collections::BTreeMap::new();
    for ((process, stack), samples) in stacks {
        let mut frames: Vec<String> = stack.iter().map(|place| observed.frame(*place)).collect();
        frames.dedup();
        // a semicolon ends a frame
        let name = observed.processes[*process].replace(';', ":");
        *by_text.entry(format!("{name};{}", frames.join(";"))).or_insert(0) += samples;
    }
    by_text.into_iter().fold(String::new(), |mut text, (chain, samples)| {
        let _ = writeln!(text, "{chain} {samples}");
        text
    })
}
