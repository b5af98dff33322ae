// SPDX-License-Identifier: MIT OR Apache-2.0
//! `turbolane scan`: which functions of programs and libraries can raise the licence level.
//!
//! Reads files, folders, or the executable memory of a process ([`input`]), and writes marks for
//! `turbolane run` ([`marks`]). Names that a stripped file lacks come from its debug file
//! ([`names`]). Of folders and processes with several files a summary is shown,
//! with the services that map each file ([`users`]). Changes nothing, needs root only for other
//! users' processes.

mod debuginfod;
mod input;
mod mapping;
mod marks;
mod names;
mod root;
mod users;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use report::json_line;
use report::problem::Problem;
use report::scan::Scan;
use scan::{Options, Sort};

use crate::failure::{FOUND, Failure, print, show};
use crate::output_file;
use debuginfod::Debuginfod;
use input::How;
pub(crate) use mapping::map;
pub(crate) use names::scan_file;

/// Find the functions that can raise the licence level
///
/// Reads ELF programs, libraries, objects and archives, and reports for each function the licence
/// level that its instructions request, the density of heavy code in its loops, and whether it
/// leaves dirty upper halves. Executes none of the code. Works on stripped files too. Of folders
/// and processes, shows the files that matter first: those with most functions of level 2, with the
/// running services that map them. Exits with 1 if a function of --level or above was found,
/// otherwise with 0.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ScanArgs {
    /// Programs, libraries, objects, archives, wheels, and folders of them
    #[arg(value_name = "FILE|DIR", required_unless_present = "pid")]
    paths: Vec<PathBuf>,
    /// Scan the files that running processes have mapped as code, each file once; the arguments
    /// FILE|DIR are scanned before them
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(num_args = 1.., value_delimiter = ',')]
    pid: Vec<u32>,
    /// Find FILE|DIR in this root, such as an unpacked container image: links and absolute paths
    /// lead to where they would lead for a program in it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// With --pid: also scan code that comes from no file, such as the output of JIT compilers
    #[arg(long, requires = "pid")]
    jit: bool,
    /// Ask the servers in DEBUGINFOD_URLS for the names of stripped files' functions, where no
    /// debug file is installed; needs elfutils' debuginfod-find
    #[arg(long)]
    debuginfod: bool,
    /// Lowest licence level of the functions that are listed
    ///
    /// 0 all wide instructions, 1 heavy AVX2 or light AVX-512, 2 heavy AVX-512, 3 AMX.
    #[arg(long, value_name = "LEVEL", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=3))]
    level: u8,
    /// Functions listed per file, or files in the summary of a folder or process; 0 for all
    /// [default: 20; with --json, --json-lines or --marks all functions]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Order of the functions
    #[arg(long, value_enum, default_value_t = SortArg::Level)]
    sort: SortArg,
    /// Of folders and processes: list the functions of each file instead of a summary
    #[arg(long, conflicts_with_all = ["json", "json_lines"])]
    details: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print a line of JSON for each file; does not include what was passed over
    #[arg(long, conflicts_with = "json")]
    json_lines: bool,
    /// Write the functions as marks to a file, for `turbolane run --marks`
    ///
    /// Where a function has no instruction that a mark can sit on cheaply, the functions that call
    /// it are marked, if all of them are known. A comment says why a function is not marked.
    #[arg(long, value_name = "FILE")]
    marks: Option<PathBuf>,
    /// Also write a page: the files, with how many of their functions can be marked and which
    /// running services map them, and the functions of each (200 of each file, or --top)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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
  turbolane scan --details --top 5 /opt/app      the same, with functions
  turbolane scan --root /mnt/image /usr/lib      of an unpacked container
  turbolane scan --json-lines /usr | jq .path    files as documents
  turbolane scan --html wide.html /opt/app       a page with all of it
  turbolane scan --level 2 --marks wide.marks libfoo.so
  sudo turbolane run --marks wide.marks -- ./server";

/// Functions listed in text if nothing else is asked for.
const TOP: usize = 20;
/// Functions of a file in a page: 20 kB.
const PAGE_TOP: usize = 200;

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
    /// Folders and processes may have many files, which a summary puts in order.
    fn is_of_many(&self) -> bool {
        let is_folder = |paths: Vec<PathBuf>| paths.iter().any(|path| path.is_dir());
        !self.pid.is_empty() || self.paths().is_ok_and(is_folder)
    }

    /// Where the files and folders are.
    fn paths(&self) -> Result<Vec<PathBuf>, Failure> {
        let Some(root) = &self.root else { return Ok(self.paths.clone()) };
        let found = |path: &PathBuf| {
            root::resolve(root, path).map_err(|error| {
                let what = format!("cannot scan {} in {}", path.display(), root.display());
                let next = "check both paths; the second is that of a folder";
                Failure::failed(Problem::new(what, error.to_string(), next))
            })
        };
        self.paths.iter().map(found).collect()
    }

    fn is_json(&self) -> bool {
        self.json || self.json_lines
    }

    /// Rows of a table.
    fn top(&self) -> Option<usize> {
        let all = self.is_json() || self.marks.is_some();
        let top = self.top.unwrap_or(if all { 0 } else { TOP });
        (top > 0).then_some(top)
    }

    fn options(&self) -> Options {
        let sort = match self.sort {
            SortArg::Level => Sort::Level,
            SortArg::Heavy => Sort::Heavy,
            SortArg::Density => Sort::Density,
            SortArg::Address => Sort::Address,
            SortArg::Name => Sort::Name,
        };
        // a summary counts functions, so it needs all; so does a page
        let is_counted =
            self.html.is_some() || self.is_of_many() && !self.is_json() && !self.details;
        Options { level: self.level, top: if is_counted { None } else { self.top() }, sort }
    }
}

/// Scans, and prints what was found.
pub(crate) fn main(args: &ScanArgs) -> Result<ExitCode, Failure> {
    args.html.as_deref().map_or(Ok(()), output_file::check_before)?;
    let servers = args.debuginfod.then(Debuginfod::new).transpose()?;
    let how = How { options: args.options(), servers };
    let mut scan = Scan::new(args.level);
    for path in &args.paths()? {
        input::scan_path(path, &how, &mut scan)?;
    }
    input::scan_processes(&args.pid, args.jit, &how, &mut scan)?;
    if let Some(path) = &args.marks {
        marks::write(path, &mut scan)?;
    }
    let is_summary = args.is_of_many() && !args.details && scan.files.len() > 1;
    if is_summary || args.html.is_some() || args.is_json() && args.is_of_many() {
        users::add(&mut scan);
    }
    if let Some(path) = &args.html {
        write_page(args, path, &mut scan)?;
    }
    if args.json_lines {
        print(&scan.json_lines())?;
    } else {
        if !args.json && !is_summary {
            truncate(&mut scan, args.top());
        }
        show(args.json, || json_line(&scan), |width| text(args, &scan, is_summary, width))?;
    }
    Ok(if scan.found() > 0 { ExitCode::from(FOUND) } else { ExitCode::SUCCESS })
}

/// Writes the page, and leaves as many functions as are asked for besides.
fn write_page(args: &ScanArgs, path: &Path, scan: &mut Scan) -> Result<(), Failure> {
    if args.marks.is_none() {
        marks::cover(scan);
    }
    let top = args.top.map_or(Some(PAGE_TOP), |_| args.top());
    output_file::write(path, scan.html(top))?;
    if args.is_json() {
        truncate(scan, args.top());
    }
    Ok(())
}

fn truncate(scan: &mut Scan, top: Option<usize>) {
    scan.files.iter_mut().for_each(|file| file.listed.truncate(top.unwrap_or(usize::MAX)));
}

fn text(args: &ScanArgs, scan: &Scan, is_summary: bool, width: usize) -> String {
    if is_summary {
        // all functions are listed for --marks, and yet few files for people
        return scan.summary_text(args.top.map_or(Some(TOP), |_| args.top()), width);
    }
    scan.text(width)
}
