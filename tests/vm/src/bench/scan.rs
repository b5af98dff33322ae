// SPDX-License-Identifier: MIT OR Apache-2.0
//! Group `scan`: the scanner's speed beside objdump's, its agreement with objdump, and how many
//! wide instructions it can attribute to functions, before and after `strip`; and for how many of
//! the functions of level 2 it writes marks that need no single-stepping. On this machine, no
//! guest.
//!
//! Speed is code per second of CPU time on one thread: what else runs on the machine does not
//! count, as long as it leaves the caches and the sibling alone. objdump is measured in the same
//! run, one pass per library, also in CPU time.
//!
//! The libraries come from Debian's and Python's archives, by package name, as this machine reaches
//! them, and stay in the cache. One that cannot be had is left out, and said so; without any the
//! benchmark fails.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ::scan::{Options, Width, scan_file, widths};
use anyhow::{Context, Result, bail, ensure};
use hw::cpu_time::children_ns;
use report::scan::Marks;

use crate::guest::thread_time;
use crate::lane::beside;
use crate::measure::{Figure, median, publish};

/// Repetitions of a scan.
const N: usize = 7;

/// Package, whether it is Python's, and how the library's name begins; stable names first.
const LIBRARIES: [(&str, &str, bool, &str); 5] = [
    ("libcrypto", "libssl3", false, "libcrypto.so"),
    ("libx265", "libx265-199", false, "libx265.so"),
    ("openblas", "libopenblas0-pthread", false, "libopenblasp-r"),
    ("numpy", "numpy", true, "_multiarray_umath"),
    ("onnxruntime", "onnxruntime", true, "onnxruntime_pybind11_state"),
];

/// What one library measured.
struct Measured {
    name: &'static str,
    /// Each repetition's, MB/s.
    ours: Vec<f64>,
    objdump: f64,
    mismatches: u64,
    compared: u64,
    coverage_pct: f64,
    stripped_pct: f64,
    /// Functions of level 2, by how a mark reaches them.
    marks: Marks,
}

/// Measure and publish.
pub fn run() -> Result<()> {
    let folder = cache()?;
    let mut all = Vec::new();
    for (name, package, is_python, file) in LIBRARIES {
        match library(&folder, package, is_python, file) {
            Ok(path) => all.push(measure(name, &path, &folder)?),
            Err(error) => println!("left out {name}: {error:#}"),
        }
    }
    ensure!(!all.is_empty(), "none of the libraries could be had");
    let mut figures = Vec::new();
    for one in &all {
        let speed =
            Figure::of(&format!("scan.mb_per_s.{}", one.name), "MB/s", "higher", &one.ours)?;
        let times: Vec<f64> = one.ours.iter().map(|rate| rate / one.objdump).collect();
        figures.push(speed.against("objdump", one.objdump));
        let name = format!("scan.speedup_vs_objdump.{}", one.name);
        figures.push(Figure::of(&name, "x", "higher", &times)?);
        figures.push(coverage(
            &format!("scan.function_coverage_pct.{}", one.name),
            &[one.coverage_pct],
        )?);
        let name = format!("scan.function_coverage_stripped_pct.{}", one.name);
        figures.push(coverage(&name, &[one.stripped_pct])?);
        let name = format!("scan.markable_pct.{}", one.name);
        let Marks { functions, at_entry, inside, by_callers, .. } = one.marks;
        println!(
            "{name}: {} of {functions} functions of level 2 ({at_entry} at their entry, {inside} \
            inside, {by_callers} by callers)",
            one.marks.reached()
        );
        figures.push(coverage(&name, &[one.marks.markable_pct])?);
    }
    summarise(&all, &mut figures)?;
    publish("scan", &figures)
}

/// The worst library stands for all; `min` and `max` are those of the libraries.
fn summarise(all: &[Measured], figures: &mut Vec<Figure>) -> Result<()> {
    let worst = |name: &str, unit, values: &[f64]| -> Result<Figure> {
        let figure = Figure::of(name, unit, "higher", values)?;
        Ok(Figure { value: figure.min, ..figure })
    };
    let of = |get: &dyn Fn(&Measured) -> f64| -> Vec<f64> { all.iter().map(get).collect() };
    let slowest = all.iter().min_by(|a, b| median(&a.ours).total_cmp(&median(&b.ours)));
    let baseline = slowest.map_or(0.0, |one| one.objdump);
    figures.push(
        worst("scan.mb_per_s", "MB/s", &of(&|one| median(&one.ours)))?.against("objdump", baseline),
    );
    figures.push(worst(
        "scan.speedup_vs_objdump",
        "x",
        &of(&|one| median(&one.ours) / one.objdump),
    )?);
    figures.push(worst("scan.function_coverage_pct", "%", &of(&|one| one.coverage_pct))?);
    figures.push(worst("scan.function_coverage_stripped_pct", "%", &of(&|one| one.stripped_pct))?);
    figures.push(worst("scan.markable_pct", "%", &of(&|one| one.marks.markable_pct))?);
    let (mismatches, compared) = (
        all.iter().map(|one| one.mismatches).sum::<u64>(),
        all.iter().map(|one| one.compared).sum(),
    );
    let figure = Figure::count("scan.width_mismatches_vs_objdump", mismatches, compared);
    figures.push(Figure { unit: "instructions", ..figure });
    Ok(())
}

fn coverage(name: &str, values: &[f64]) -> Result<Figure> {
    Figure::of(name, "%", "higher", values)
}

fn measure(name: &'static str, path: &Path, folder: &Path) -> Result<Measured> {
    let bytes = fs::read(path)?;
    let (ours, file) = ours(&bytes)?;
    let begun_ns = children_ns();
    let (mismatches, compared) = compare(path, &bytes)?;
    let objdump = mb_per_s(file.code_bytes, children_ns() - begun_ns);
    let stripped = folder.join("stripped");
    call(Command::new("strip").arg("-o").arg(&stripped).arg(path))?;
    let (_, without) = ours_once(&fs::read(&stripped)?)?;
    fs::remove_file(&stripped)?;
    let marks = marks(path, folder)?;
    let share = |pct: Option<f64>| pct.context("it has no wide instructions");
    Ok(Measured {
        name,
        ours,
        objdump,
        mismatches,
        compared,
        coverage_pct: share(file.coverage_pct)?,
        stripped_pct: share(without.coverage_pct)?,
        marks,
    })
}

/// How many functions of level 2 the file of marks names, and how many of them as marks; the others
/// are comments, with the reason.
fn marks(path: &Path, folder: &Path) -> Result<Marks> {
    let file = folder.join("marks");
    let mut scan = Command::new(beside()?);
    scan.args(["scan", "--json", "--level", "2", "--marks"]).arg(&file).arg(path);
    let output = scan.output().context("turbolane cannot be started")?;
    // 1: it has found functions of that level
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "turbolane scan failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::remove_file(&file)?;
    let scan: report::scan::Scan = serde_json::from_slice(&output.stdout)?;
    let marks = scan.files.into_iter().find_map(|file| file.marks);
    marks.with_context(|| format!("{} has no function of level 2", path.display()))
}

/// Rates in MB of code per second of CPU time, on one thread.
fn ours(bytes: &[u8]) -> Result<(Vec<f64>, report::scan::File)> {
    let (_, file) = ours_once(bytes)?; // fills tables and caches
    let rates = (0..N).map(|_| Ok(ours_once(bytes)?.0)).collect::<Result<Vec<f64>>>()?;
    Ok((rates, file))
}

fn ours_once(bytes: &[u8]) -> Result<(f64, report::scan::File)> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        let begun = thread_time();
        let file = scan_file("library", bytes, &Options::default())?;
        Ok((mb_per_s(file.code_bytes, (thread_time() - begun).as_nanos() as u64), file))
    })
}

/// Rate in MB/s of so many bytes in so much time.
fn mb_per_s(bytes: u64, taken_ns: u64) -> f64 {
    bytes as f64 * 1e3 / taken_ns as f64
}

/// Instructions whose widest register objdump prints otherwise, of how many that both decode.
fn compare(path: &Path, bytes: &[u8]) -> Result<(u64, u64)> {
    let mut objdump = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(path)
        .stdout(Stdio::piped())
        .spawn()
        .context("objdump (binutils) cannot be started")?;
    let output = objdump.stdout.take().context("it has an output")?;
    let mut theirs = HashMap::new();
    for line in BufReader::with_capacity(1 << 20, output).split(b'\n') {
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        if let Some((address, width)) = parsed(&text) {
            theirs.insert(address, width);
        }
    }
    ensure!(objdump.wait()?.success(), "objdump failed on {}", path.display());
    let (mut mismatches, mut compared) = (0, 0);
    widths(bytes, |address, ours| {
        if let Some(&width) = theirs.get(&address) {
            compared += 1;
            if width != ours {
                mismatches += 1;
                println!("{}: {address:#x}: {ours:?}, objdump {width:?}", path.display());
            }
        }
    })?;
    Ok((mismatches, compared))
}

/// `  address:<tab>instruction`; what objdump cannot decode is left out.
fn parsed(line: &str) -> Option<(u64, Width)> {
    let (address, text) = line.split_once(":\t")?;
    let address = u64::from_str_radix(address.trim_start(), 16).ok()?;
    if text.contains("(bad)") || text.starts_with('.') {
        return None;
    }
    let widest = [("%zmm", Width::Zmm), ("%ymm", Width::Ymm), ("%xmm", Width::Xmm)];
    let found = widest.into_iter().find(|(name, _)| text.contains(name));
    Some((address, found.map_or(Width::None, |(_, width)| width)))
}

/// Where fetched libraries stay.
fn cache() -> Result<PathBuf> {
    let home = || Some(Path::new(&std::env::var_os("HOME")?).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let folder = base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("turbolane/scan");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The library in its package, fetched if it is not there yet.
fn library(folder: &Path, package: &str, is_python: bool, file: &str) -> Result<PathBuf> {
    let unpacked = folder.join(package);
    if !unpacked.exists() {
        let fresh = folder.join(format!("{package}.new"));
        _ = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh)?;
        if is_python {
            fetch_wheel(&fresh, package)?
        } else {
            fetch_deb(&fresh, package)?
        }
        fs::rename(&fresh, &unpacked)?;
    }
    find(&unpacked, file)?.with_context(|| format!("{package} holds no {file}"))
}

fn fetch_deb(folder: &Path, package: &str) -> Result<()> {
    call(Command::new("apt-get").args(["-qq", "download", package]).current_dir(folder))?;
    let packed = find(folder, package)?.context("apt-get has left no file")?;
    call(Command::new("dpkg-deb").arg("-x").arg(packed).arg(folder))
}

fn fetch_wheel(folder: &Path, package: &str) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", package]);
    call(pip.current_dir(folder))?;
    let packed = find(folder, package)?.context("pip has left no file")?;
    call(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(packed).arg(folder))
}

/// The first file below whose name begins so, text left out.
fn find(folder: &Path, start: &str) -> Result<Option<PathBuf>> {
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::path);
        for entry in entries {
            if entry.file_type()?.is_dir() {
                open.push(entry.path());
            } else if entry.file_type()?.is_file() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let is_packed = [".so", ".deb", ".whl"].iter().any(|end| name.contains(end));
                if name.starts_with(start) && is_packed {
                    return Ok(Some(entry.path()));
                }
            }
        }
    }
    Ok(None)
}

fn call(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
