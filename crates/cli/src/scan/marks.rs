// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the functions that were found as marks.
//!
//! Not every function can be marked: a uprobe sits cheaply on few instructions (`sched::marks` says
//! which and why), and `turbolane run` refuses others. So each is tried here, as for the oldest
//! kernel, and one that would be refused is written as a comment with the reason. By name where the
//! name finds it, by offset where not.

use std::fs;
use std::path::{Path, PathBuf};

use report::problem::Problem;
use report::scan::{Confidence, File, Function, Scan};
use sched::config::{Mark, MarkSite};
use sched::marks::{Emulation, MarkError, ResolvedMark, lasting_path, resolve_all};

use crate::failure::Failure;

const HEAD: &str = "\
# Functions that can raise the licence level, found by turbolane scan.
# Use: sudo turbolane run --marks THIS-FILE. Remove what your program never runs.
";

/// Writes the file.
pub(super) fn write(path: &Path, scan: &Scan) -> Result<(), Failure> {
    let text: String = HEAD.to_string() + &scan.files.iter().map(lines).collect::<String>();
    fs::write(path, text).map_err(|error| {
        let what = format!("cannot write the marks to {}", path.display());
        Failure::failed(Problem::new(what, error.to_string(), "name another file"))
    })
}

fn lines(file: &File) -> String {
    let markable = file
        .listed
        .iter()
        .filter(|function| function.license_level > 0 && function.confidence != Confidence::Low);
    let functions: Vec<&Function> = markable.collect();
    if functions.is_empty() {
        return String::new();
    }
    let mut text = format!("\n# {}\n", file.path);
    if functions.iter().any(|function| function.file_offset.is_none()) || file.kind == "object" {
        text += "# neither a program nor a library: nothing in it can be marked\n";
        return text;
    }
    let library = lasting_path(Path::new(&file.path)).unwrap_or_else(|_| PathBuf::from(&file.path));
    let named = marks(&library, &functions, |function| {
        function.symbol.as_deref().and_then(MarkSite::of_name)
    });
    let placed = marks(&library, &functions, |_| None);
    let try_all = |marks: &[Mark]| resolve_all(marks, Emulation { nop5: false }, false);
    let tried = try_all(&named).into_iter().zip(try_all(&placed));
    for ((function, (named, placed)), results) in
        functions.iter().zip(named.iter().zip(&placed)).zip(tried)
    {
        text += &line(function, named, placed, results);
    }
    text
}

type Tried = Result<ResolvedMark, MarkError>;

fn line(function: &Function, named: &Mark, placed: &Mark, results: (Tried, Tried)) -> String {
    match results {
        (Ok(found), _) if Some(found.entry_offset) == function.file_offset => format!("{named}\n"),
        (_, Ok(_)) => format!("{placed}{}\n", comment(function)),
        (_, Err(error)) => format!("# {placed}{}: {error}\n", comment(function)),
    }
}

fn comment(function: &Function) -> String {
    function.name.as_ref().map_or(String::new(), |name| format!("  # {name}"))
}

/// A mark for each function, at its offset where `site` gives no other.
fn marks(
    library: &Path,
    functions: &[&Function],
    site: impl Fn(&Function) -> Option<MarkSite>,
) -> Vec<Mark> {
    let mark = |function: &&Function| Mark {
        file: library.to_path_buf(),
        site: site(function).unwrap_or(MarkSite::Offset(function.file_offset.unwrap_or_default())),
        level: function.license_level.into(),
        filter: None,
    };
    functions.iter().map(mark).collect()
}
