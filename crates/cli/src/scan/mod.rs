// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane scan`: which functions of programs and libraries can raise the licence level.
//!
//! Reads files, folders, or the executable memory of a process ([`input`]), and writes marks for
//! `turbolane run` ([`marks`]). Changes nothing, needs root only for other users' processes.

mod input;
mod marks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use report::json_line;
use scan::{Options, Sort};

use crate::failure::{FOUND, Failure, show};
pub(crate) use input::map;

/// Find the functions that can raise the licence level
///
/// Reads ELF programs, libraries, objects and archives, and reports for each function the licence
/// level that its instructions request, the density of heavy code in its loops, and whether it
/// leaves dirty upper halves. Executes none of the code. Works on stripped files too. Exits with 1
/// if a function of --level or above was found, otherwise with 0.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ScanArgs {
    /// Programs, libraries, objects, archives, and folders of them
    #[arg(value_name = "FILE|DIR", required_unless_present = "pid")]
    paths: Vec<PathBuf>,
    /// Scan the files that running processes have mapped as code, each file once; the arguments
    /// FILE|DIR are scanned before them
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(num_args = 1.., value_delimiter = ',')]
    pid: Vec<u32>,
    /// With --pid: also scan code that comes from no file, such as the output of JIT compilers
    #[arg(long, requires = "pid")]
    jit: bool,
    /// Lowest licence level of the functions that are listed
    ///
    /// 0 all wide instructions, 1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3 AMX.
    #[arg(long, value_name = "LEVEL", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    level: u8,
    /// Functions listed per file; 0 for all [default: 20; with --json or --marks all]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Order of the functions
    #[arg(long, value_enum, default_value_t = SortArg::Level)]
    sort: SortArg,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the functions as marks to a file, for `turbolane run --marks`
    #[arg(long, value_name = "FILE")]
    marks: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Columns:
  LEVEL     licence level that the most demanding instruction requests
  LASTING   the same, but counting heavy instructions only where they can be dense
            enough: one in eight instructions, which is one in two cycles at
            four instructions per cycle. Light AVX-512, scatters and AMX need no
            density.
  DENSITY   share of heavy instructions in the densest loop; in brackets that of
            the function, if no loop has heavy instructions
  HEAVY512  FP, integer multiplication, scatter with 512 bits; HEAVY256 with 256
Notes in brackets: AMX, VNNI, scatter, gather; no vzeroupper (the function can
return with a dirty upper half, which is correct for one that returns a vector);
SSE with dirty upper half; confidence, if the file does not state where the
function is.

A listed function may never be called: programs select code for the CPU they run
on, and code that never runs does no harm.

Examples:
  turbolane scan /usr/lib/x86_64-linux-gnu/libcrypto.so.3
  turbolane scan --level 2 --top 0 ./server      all heavy AVX-512, AMX
  turbolane scan --sort density libx265.so.199   where it is densest
  turbolane scan --pid $(pidof java) --jit       also their compiled code
  turbolane scan --level 2 /opt/app              all programs in a folder
  turbolane scan --level 2 --marks wide.marks libfoo.so
  sudo turbolane run --marks wide.marks -- ./server";

/// Functions listed in text if nothing else is asked for.
const TOP: usize = 20;

#[derive(Clone, Copy, ValueEnum)]
enum SortArg {
    /// Lasting level, level, heavy instructions
    Level,
    /// Heavy instructions
    Heavy,
    /// Density
    Density,
    /// Address
    Address,
    /// Name
    Name,
}

impl ScanArgs {
    fn options(&self) -> Options {
        let all = self.json || self.marks.is_some();
        let top = self.top.unwrap_or(if all { 0 } else { TOP });
        let sort = match self.sort {
            SortArg::Level => Sort::Level,
            SortArg::Heavy => Sort::Heavy,
            SortArg::Density => Sort::Density,
            SortArg::Address => Sort::Address,
            SortArg::Name => Sort::Name,
        };
        Options { level: self.level, top: (top > 0).then_some(top), sort }
    }
}

/// Scans, and prints what was found.
pub(crate) fn main(args: &ScanArgs) -> Result<ExitCode, Failure> {
    let options = args.options();
    let mut scan = report::scan::Scan::new(args.level);
    for path in &args.paths {
        input::scan_path(path, &options, &mut scan)?;
    }
    input::scan_processes(&args.pid, args.jit, &options, &mut scan)?;
    if let Some(path) = &args.marks {
        marks::write(path, &scan)?;
    }
    show(args.json, || json_line(&scan), |width| scan.text(width))?;
    Ok(if scan.found() > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}
