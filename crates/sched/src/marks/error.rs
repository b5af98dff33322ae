// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a mark cannot be placed, and what to do about it.

use std::io;
use std::path::PathBuf;

use report::problem::Problem;

use crate::config::BuildId;

/// Why a mark cannot be placed. The message says why, [`MarkError::next`] what to do.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // fields are named as their messages use them
pub enum MarkError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// The file is not an x86-64 ELF program or library.
    #[error("{} is not an x86-64 ELF program or library: {why}", path.display())]
    NotElf { path: PathBuf, why: String },
    /// No symbol of that name.
    #[error("{} has no function \"{name}\"{}", path.display(), stripped_note(*.stripped))]
    NoSymbol { path: PathBuf, name: String, near: Vec<String>, stripped: bool },
    /// The file uses the symbol of another one.
    #[error("{} only imports \"{name}\", another library defines it", path.display())]
    Imported { path: PathBuf, name: String },
    /// Several functions carry the name.
    #[error("{} has {} functions \"{name}\"", path.display(), offsets.len())]
    Ambiguous { path: PathBuf, name: String, offsets: Vec<u64> },
    /// The symbol is data, a section, or thread-local.
    #[error("\"{name}\" in {} is not a function but {kind}", path.display())]
    NotAFunction { path: PathBuf, name: String, kind: &'static str },
    /// The symbol chooses the function at load time (STT_GNU_IFUNC).
    #[error("\"{name}\" in {} is chosen when the library is loaded: its symbol is the resolver (IFUNC), not the function",
        path.display())]
    Indirect { path: PathBuf, name: String },
    /// The place is outside of every executable segment.
    #[error("offset {offset:#x} of {} is not executable", path.display())]
    NotExecutable { path: PathBuf, offset: u64 },
    /// The place is inside a function.
    #[error("offset {offset:#x} of {} is not the entry of a function but inside \"{function}\"",
        path.display())]
    NotAnEntry { path: PathBuf, offset: u64, function: String, entry_offset: u64 },
    /// The file is another build than the one that the offset is for.
    #[error("{} is not the build {} that the offset is for{}", path.display(), meant.digits(), found_build(.found.as_ref()))]
    OtherBuild { path: PathBuf, meant: BuildId, found: Option<BuildId> },
    /// Nothing says that a function begins there.
    #[error("nothing in {} shows that a function begins at offset {offset:#x}", path.display())]
    UnknownEntry { path: PathBuf, offset: u64, build_id: Option<BuildId> },
    /// The bytes are no instruction.
    #[error("offset {offset:#x} of {} holds no valid instruction", path.display())]
    NotCode { path: PathBuf, offset: u64 },
    /// Every site would have to be single-stepped.
    #[error("\"{function}\" in {} starts with {instruction}, and none of its first instructions \
        can be probed without single-stepping (about 4.6 us per call instead of 0.5 us)",
        path.display())]
    SingleStep { path: PathBuf, function: String, instruction: String },
    /// Between the entry and the cheap site the argument's register is written.
    #[error("\"{function}\" in {} overwrites argument {arg} before {instruction}, the first instruction \
        that can be probed without single-stepping", path.display())]
    LostArgument { path: PathBuf, function: String, arg: u32, instruction: String },
}

fn found_build(found: Option<&BuildId>) -> String {
    found.map_or_else(|| ", and has no build id".into(), |id| format!(", but {}", id.digits()))
}

fn stripped_note(stripped: bool) -> &'static str {
    if stripped { " among its exported symbols, and it is stripped of all others" } else { "" }
}

impl MarkError {
    /// The whole of it, when `what` is not possible for it.
    pub fn problem(&self, what: impl Into<String>) -> Problem {
        Problem::new(what, self.to_string(), self.next())
    }

    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            MarkError::File { .. } => "check the path; the file must be readable".into(),
            MarkError::NotElf { .. } => {
                "name the program or shared library that holds the function".into()
            }
            MarkError::NoSymbol { near, stripped, .. } => no_symbol_next(near, *stripped),
            MarkError::Imported { .. } => {
                "name the library that defines it: `ldd FILE` lists the candidates".into()
            }
            MarkError::Ambiguous { offsets, .. } => {
                let list: Vec<String> = offsets.iter().map(|at| format!("+{at:#x}")).collect();
                format!("choose one by its offset: {}", list.join(", "))
            }
            MarkError::NotAFunction { .. } => "name a function".into(),
            MarkError::Indirect { name, .. } => {
                format!("mark the variants that it chooses from (`nm FILE | grep {name}`)")
            }
            MarkError::NotExecutable { .. } => {
                "give the file offset of a function, not its address (`readelf -lW FILE`)".into()
            }
            MarkError::NotAnEntry { function, entry_offset, .. } => {
                format!("mark {function} or +{entry_offset:#x}")
            }
            MarkError::OtherBuild { .. } => {
                "find the function in this build: turbolane scan --marks writes its marks".into()
            }
            MarkError::UnknownEntry { build_id: Some(id), .. } => format!(
                "if it does in the build that is there now, add ,build-id={}; turbolane scan --marks \
                 writes marks with it",
                id.digits()
            ),
            MarkError::UnknownEntry { build_id: None, .. } => {
                "mark a function that has a name; the file has no build id that could show that \
                 the offset is right"
                    .into()
            }
            MarkError::NotCode { .. } => "check the offset".into(),
            MarkError::SingleStep { .. } => {
                "mark a function that calls it, or accept the cost with --force-single-step".into()
            }
            MarkError::LostArgument { .. } => {
                "leave min-arg out, or probe the entry with --force-single-step (about 4.6 us per call)".into()
            }
        }
    }
}

fn no_symbol_next(near: &[String], stripped: bool) -> String {
    match (near, stripped) {
        ([], false) => "`nm FILE` and `nm -D FILE` list its functions".into(),
        ([], true) => {
            "`nm -D FILE` lists its functions; mark others by offset, FILE:+0x1234".into()
        }
        (near, _) => format!("did you mean {}?", near.join(" or ")),
    }
}
