// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is scanned: files, folders, processes.
//!
//! Folders are walked without following symbolic links; a file with several names is
//! scanned once.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hw::memory::{self, Mapping, Origin};
use report::problem::Problem;
use report::scan::Scan;
use scan::{
    Limits, Options, ScanError, is_archive, is_zip, scan_archive, scan_memory, scan_zip_within,
};

use super::debuginfod::Debuginfod;
use super::mapping::map;
use super::names;
use crate::failure::Failure;

/// How files are scanned.
pub(super) struct How {
    pub options: Options,
    /// Who is asked for debug files.
    pub servers: Option<Debuginfod>,
}

/// Scans a file, or all that is ELF in a folder.
pub(super) fn scan_path(path: &Path, how: &How, scan: &mut Scan) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        let what = format!("cannot scan {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), "check the path"))
    };
    let metadata = fs::metadata(path).map_err(cannot)?;
    if metadata.is_dir() {
        return scan_folder(path, how, scan).map_err(cannot);
    }
    if !metadata.is_file() {
        return Err(cannot(io::Error::other("it is neither a file nor a folder")));
    }
    let map = map(&File::open(path).map_err(cannot)?).map_err(cannot)?;
    scan_bytes(path, &map, how, scan).map_err(|error| {
        let what = format!("cannot scan {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), next(&error)))
    })
}

fn next(error: &ScanError) -> &'static str {
    match error {
        ScanError::NotElf => "name a program, library, object or archive",
        ScanError::OtherCpu(_) => {
            "name a file for x86-64 or x86: other CPUs have no licence levels"
        }
        ScanError::Broken(_) => "get the file again; `readelf -a FILE` may say more",
        ScanError::NoCode => "name the program or library itself",
        ScanError::ThinArchive => "`ar t FILE` lists them",
        ScanError::Unreadable(_) => "check the path and its rights",
        ScanError::TooBig { .. } | ScanError::TooMuchWork { .. } => {
            "no program is that large: check what made the file"
        }
        ScanError::Stopped => "scan it again",
    }
}

fn scan_bytes(path: &Path, bytes: &[u8], how: &How, scan: &mut Scan) -> Result<(), ScanError> {
    let (name, options) = (path.display().to_string(), &how.options);
    if is_zip(bytes) {
        let limits = Limits::default();
        let files = scan_zip_within(&name, bytes, options, &limits, &mut scan.skipped)?;
        scan.files.extend(files);
    } else if is_archive(bytes) {
        let files = scan_archive(&name, bytes, options, &mut scan.skipped)?;
        scan.files.extend(files);
    } else {
        scan.files.push(names::scan_with(path, bytes, options, how.servers.as_ref())?);
    }
    Ok(())
}

fn scan_folder(folder: &Path, how: &How, scan: &mut Scan) -> io::Result<()> {
    fs::read_dir(folder)?;
    let mut open = vec![folder.to_path_buf()];
    let mut seen = HashSet::new();
    while let Some(folder) = open.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            scan.skipped.unreadable += 1;
            continue;
        };
        let mut paths: Vec<PathBuf> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        let mut below = Vec::new();
        for path in paths {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                below.push(path);
            } else if metadata.is_file() && seen.insert((metadata.dev(), metadata.ino())) {
                scan_found(&path, how, scan);
            }
        }
        open.extend(below.into_iter().rev());
    }
    Ok(())
}

/// What is found in a folder need not be code. Of zip files only wheels are opened: most others
/// have none.
fn scan_found(path: &Path, how: &How, scan: &mut Scan) {
    let Ok(map) = File::open(path).and_then(|file| map(&file)) else {
        scan.skipped.unreadable += 1;
        return;
    };
    if is_zip(&map) && path.extension().is_none_or(|extension| extension != "whl") {
        ScanError::NotElf.count(&mut scan.skipped);
    } else if let Err(error) = scan_bytes(path, &map, how, scan) {
        error.count(&mut scan.skipped);
    }
}

/// Scans the files that processes have mapped as code, each once, and with `jit` the code that
/// comes from none.
pub(super) fn scan_processes(
    pids: &[u32],
    jit: bool,
    how: &How,
    scan: &mut Scan,
) -> Result<(), Failure> {
    let mut seen = HashSet::new();
    for &pid in pids {
        let mappings =
            memory::executable_mappings(pid).map_err(|error| cannot_look(pid, &error))?;
        for mapping in &mappings {
            if let Origin::File { path, identity } = &mapping.origin
                && seen.insert(identity.clone())
            {
                scan_mapped(pid, mapping, path, how, scan);
            }
        }
        if jit {
            scan_written(pid, &mappings, how, scan)?;
        }
    }
    Ok(())
}

fn scan_written(pid: u32, mappings: &[Mapping], how: &How, scan: &mut Scan) -> Result<(), Failure> {
    let symbols = memory::perf_map(pid).map_or(Vec::new(), |text| scan::parse_perf_map(&text));
    for mapping in mappings.iter().filter(|mapping| mapping.origin == Origin::Written) {
        let bytes = memory::read_mapping(pid, mapping).map_err(|error| cannot_look(pid, &error))?;
        let name = format!("process {pid} at {:#x}", mapping.start);
        match scan_memory(&name, mapping.start, &bytes, &symbols, &how.options) {
            Ok(file) => scan.files.push(file),
            Err(error) => error.count(&mut scan.skipped),
        }
    }
    Ok(())
}

fn scan_mapped(pid: u32, mapping: &Mapping, path: &Path, how: &How, scan: &mut Scan) {
    let Ok(map) = memory::open_mapped(pid, mapping).and_then(|file| map(&file)) else {
        scan.skipped.unreadable += 1;
        return;
    };
    if let Err(error) = scan_bytes(path, &map, how, scan) {
        error.count(&mut scan.skipped);
    }
}

fn cannot_look(pid: u32, error: &io::Error) -> Failure {
    let what = format!("cannot scan process {pid}");
    match error.kind() {
        io::ErrorKind::NotFound => Failure::failed(Problem::new(
            what,
            "there is no such process, or it has ended",
            "check the number: `pgrep -l NAME` lists those of a name",
        )),
        io::ErrorKind::PermissionDenied => Failure::unsupported(Problem::new(
            what,
            "only its owner and root may read its memory",
            "run it with sudo, or scan the files it uses",
        )),
        _ => Failure::failed(Problem::new(what, error.to_string(), "is it still running?")),
    }
}
