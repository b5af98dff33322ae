// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks: functions that are wide code, found in their ELF file and probed by uprobes.
//!
//! **Problem.** A uprobe replaces the first byte of an instruction by `int3`. After the event
//! the kernel must still have that instruction executed. A few kinds it emulates; all others it
//! copies out of line and single-steps, two more exceptions: 4,600 ns per hit instead of 220 to
//! 470 (measured, kernel 6.18). A cipher function is called ten thousand times a second, so the
//! choice of the byte decides whether a mark costs 0.5 % or 5 % of a CPU. And the usual first
//! instruction today, `endbr64`, is one that must be stepped.
//!
//! **Idea.** The event need not fire at the very first instruction. Any instruction will do that
//! every call passes exactly once before anything wide. So walk on from the entry, over at most
//! [`MAX_SKIPPED`] instructions, to the first that the kernel emulates; in compiled code that is
//! nearly always a `push` right after `endbr64`.
//!
//! **One site for both probes.** The end of the function is seen by a return probe. It works by
//! replacing the return address, which it takes from where the stack pointer points when the
//! breakpoint is hit. So nothing that was skipped may have moved the stack pointer. An
//! instruction that is itself a `push` is fine: the breakpoint fires before it. With that rule
//! begin and end share one site, and one price.
//!
//! **What must hold for a skipped instruction**: it goes on to the next one (no jump, call, system
//! call), leaves the stack pointer alone, raises no licence level (it runs before the event, on a
//! scalar CPU), and no branch of the function leads to a place after the entry up to the site: else
//! the event would fire again in a loop, or be jumped over. Where an argument decides which calls
//! count (policy/mark.h), it must not write that argument's register either.
//!
//! **Limits.** Indirect branches cannot be seen; no compiler aims one at a prologue. Where
//! symbols have no size, the function is assumed to end where the next one begins. A function
//! reached only through an inlined copy has no entry to probe.

mod elf;
mod error;
mod list;
mod rules;
mod site;
mod version;

pub use elf::lasting_path;
pub use error::MarkError;
pub use list::parse_list;
pub use rules::MarkRules;
pub use site::MAX_SKIPPED;
pub use version::FileVersion;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use report::problem::Problem;

use crate::config::{BuildId, Mark, MarkSite, MinArg};

/// What the kernel that will place the probes can emulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// The 5-byte nop: kernel 6.18 and later.
    pub nop5: bool,
}

impl Emulation {
    /// What kernel `release` emulates.
    pub fn of(release: &hw::kernel::Release) -> Self {
        Emulation { nop5: release.at_least(6, 18) }
    }
}

/// A mark whose site in its file is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedMark {
    /// The mark.
    pub mark: Mark,
    /// The file as it was read: in another version the function may be elsewhere.
    pub version: FileVersion,
    /// The file, canonical: what the kernel identifies by inode has one name here.
    pub path: PathBuf,
    /// File offset for the entry probe and the return probe, bytes.
    pub offset: u64,
    /// File offset of the function's first instruction, bytes.
    pub entry_offset: u64,
    /// Licence level of the function's code, 1..=3.
    pub level: u32,
    /// Which of its calls count; `None`: all.
    pub filter: Option<MinArg>,
    /// Name of the function, if the file names it.
    pub symbol: Option<String>,
    /// The file's build, if it says so.
    pub build_id: Option<BuildId>,
    /// The instruction at `offset`: its mnemonic and bytes.
    pub instruction: String,
    /// Instructions between the entry and the site.
    pub skipped: usize,
    /// The kernel must single-step the instruction at the site (forced by the user).
    pub single_step: bool,
}

impl ResolvedMark {
    /// Opens its file, which must be the one that was read, and says by what path the kernel finds
    /// just this file while it is open, whatever becomes of its name.
    ///
    /// # Errors
    /// When the file is gone or another one.
    pub fn open(&self) -> io::Result<(File, PathBuf)> {
        let file = self.version.open(&self.path)?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok((file, path.into()))
    }

    /// Which calls count, as the programs in the kernel take it.
    pub fn rule(&self) -> policy::MarkRule {
        let (arg, least) = self.filter.map_or((0, 0), |MinArg { arg, least }| (arg, least));
        policy::MarkRule::new(self.level, arg, least)
    }
}

/// Finds the site of `mark`. With `force_single_step` a function without a cheap site is probed
/// at its entry; without, it is refused with [`MarkError::SingleStep`].
pub fn resolve(
    mark: &Mark,
    emulation: Emulation,
    force_single_step: bool,
) -> Result<ResolvedMark, MarkError> {
    let file = elf::ElfFile::open(&mark.file)?;
    let image = file.parse()?;
    resolve_in(&file, &image, mark, emulation, force_single_step)
}

/// The same as [`resolve`] for many, in their order; each file is read once. A scanner's list of
/// marks has hundreds in one library.
pub fn resolve_all(
    marks: &[Mark],
    emulation: Emulation,
    force_single_step: bool,
) -> Vec<Result<ResolvedMark, MarkError>> {
    let mut resolved: Vec<Option<Result<ResolvedMark, MarkError>>> =
        marks.iter().map(|_| None).collect();
    for first in 0..marks.len() {
        let path = &marks[first].file;
        if resolved[first].is_some() {
            continue;
        }
        let file = elf::ElfFile::open(path);
        let image = file.as_ref().ok().and_then(|file| file.parse().ok());
        for at in (first..marks.len()).filter(|&at| marks[at].file == *path) {
            resolved[at] = Some(match (&file, &image) {
                (Ok(file), Some(image)) => {
                    resolve_in(file, image, &marks[at], emulation, force_single_step)
                }
                // Once more, for its own error.
                _ => resolve(&marks[at], emulation, force_single_step),
            });
        }
    }
    resolved.into_iter().map(|one| one.expect("each has a file")).collect()
}

/// Places for all of these marks; else a problem with the first that has none.
pub fn places(
    marks: &[Mark],
    emulation: Emulation,
    force_single_step: bool,
) -> Result<Vec<ResolvedMark>, Problem> {
    let resolved = resolve_all(marks, emulation, force_single_step);
    let placed = |(mark, resolved): (&Mark, Result<_, MarkError>)| {
        resolved.map_err(|error| error.problem(format!("cannot mark {mark}")))
    };
    marks.iter().zip(resolved).map(placed).collect()
}

fn resolve_in(
    file: &elf::ElfFile,
    image: &elf::Image<'_>,
    mark: &Mark,
    emulation: Emulation,
    force_single_step: bool,
) -> Result<ResolvedMark, MarkError> {
    let function = match &mark.site {
        MarkSite::Symbol(name) => image.function_named(name)?,
        MarkSite::Offset(offset) => image.function_at(*offset, mark.build_id.as_ref())?,
    };
    let entry = site::entry(function.code)
        .ok_or_else(|| MarkError::NotCode { path: file.given.clone(), offset: function.offset })?;
    let kept = mark.filter.map(|filter| site::argument_register(filter.arg));
    let (found, single_step) = match site::cheap_site(function.code, emulation, kept) {
        Some(found) => (found, false),
        None if force_single_step => (entry, true),
        None => return Err(no_site(file, mark, function.code, emulation, entry.instruction)),
    };
    Ok(ResolvedMark {
        mark: mark.clone(),
        version: file.version,
        offset: function.offset + found.at as u64,
        entry_offset: function.offset,
        level: mark.level,
        filter: mark.filter,
        symbol: function.name,
        build_id: image.build_id(),
        instruction: found.instruction,
        skipped: found.skipped,
        single_step,
        path: file.path.clone(),
    })
}

/// Why a function has no site: because of the argument, if it has one for a mark without a filter.
fn no_site(
    file: &elf::ElfFile,
    mark: &Mark,
    code: &[u8],
    emulation: Emulation,
    first_instruction: String,
) -> MarkError {
    let (path, function) = (file.given.clone(), mark.site.to_string());
    match (mark.filter, site::cheap_site(code, emulation, None)) {
        (Some(MinArg { arg, .. }), Some(site)) => {
            MarkError::LostArgument { path, function, arg, instruction: site.instruction }
        }
        _ => MarkError::SingleStep { path, function, instruction: first_instruction },
    }
}

#[cfg(test)]
mod tests;
