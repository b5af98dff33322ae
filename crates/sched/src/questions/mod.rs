// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where programs ask what the CPU can do, for the trap module to let them see it; which of them
//! have no wide code at all (`light.rs`); and, for power scores, which level a program's code can
//! ask for at most (`code.rs`).
//!
//! **Problem.** On a CPU that withholds AVX-512, `xgetbv` shows it withheld, and cannot be trapped.
//! A program that asks there decides for good that it has no AVX-512. The module shows everything
//! for a while after exec and after a file is mapped as code; a program that asks later needs a
//! probe ([`hw::trap::Device::add_site`]).
//!
//! **Idea.** Find each `xgetbv` in the files that processes have mapped. The opcode's three bytes
//! are searched for, which is cheap; whether a hit is an instruction and not the middle of another
//! is decided by decoding its function from the start, because a probe in the middle of an
//! instruction would destroy the program. Function starts come from the search table that every
//! linker writes for unwinding (`.eh_frame_hdr`), and from symbols.
//!
//! The kernel refuses probes on `xgetbv` itself. Any instruction will do that runs just before: the
//! nearest one in a straight line that can be probed, and each branch that leads past it.
//!
//! ```text
//!      mov  %eax, %edx
//!      xor  %ecx, %ecx        <- site
//!   1: xgetbv
//!      ...
//!      jne  1b                <- site
//! ```
//!
//! `xsave` and `xrstor` are found by the same search. The one leaves out what is withheld, the
//! other leaves it unchanged, and neither faults (kmod/live.c); so a site at each makes them
//! complete. The dynamic linker's resolver of symbols is left out unless AVX is withheld: it runs
//! at calls, where the other registers concerned are dead, and often.
//!
//! A file that was looked through is *read*. The module withholds nothing from a process with other
//! code: of its own making, or of a file that was not understood (`files.rs`; kmod/read.c).
//!
//! **Limits.** Code in a file without unwind table and symbols is not decoded; what looks like an
//! `xgetbv` there is counted as unverified. What looks like an `xsave` or `xrstor` there makes the
//! file unread.

mod code;
mod files;
mod levels;
mod light;
mod maps;
mod mounts;
mod site;
mod watch;

use std::io;
use std::path::{Path, PathBuf};

use scan::segments::Image;
use scan::{Limits, Meter};

pub(crate) use code::{Codes, Judge};
pub use files::Added;
pub use site::{Kind, Saves, Site};
pub use watch::Watch;

/// What a file was found to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Where to put probes, by offset.
    pub sites: Vec<Site>,
    /// Bytes that look like an instruction we look for, but cannot be shown to be one, or have
    /// nothing before them that can be probed.
    pub unverified: usize,
    /// Of these, what looks like a save or restore of registers.
    pub unread: usize,
}

impl Found {
    /// Counts a place that is left alone; `saves`: it looks like a save or restore.
    fn leave(&mut self, saves: bool) {
        self.unverified += 1;
        self.unread += usize::from(saves);
    }
}

/// Why a file has not been looked through.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // fields are named as their messages use them
pub enum DetectionError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// It is no x86-64 ELF file.
    #[error("{} is not an x86-64 ELF program or library: {why}", path.display())]
    NotElf { path: PathBuf, why: String },
}

/// Looks through a program or library.
///
/// # Errors
/// When the file cannot be read, or is no ELF file for this kind of CPU.
pub fn find(path: &Path) -> Result<Found, DetectionError> {
    let bytes = std::fs::read(path)
        .map_err(|source| DetectionError::File { path: path.to_path_buf(), source })?;
    find_in(&bytes, Saves::ExceptResolvers, &Limits::default())
        .map_err(|why| DetectionError::NotElf { path: path.to_path_buf(), why })
}

/// Far more than any library has. The kernel module takes 65,536 of all files together, which one
/// alone is not to use up.
const SITES_MAX: usize = 4096;

/// As [`find`], in the file's bytes and within limits: each function is decoded once, and every
/// other step is paid for.
fn find_in(bytes: &[u8], which: Saves, limits: &Limits<'_>) -> Result<Found, String> {
    let meter = Meter::new(limits);
    let image = Image::parse(bytes)?;
    let mut found = Found::default();
    for segment in &image.segments {
        // The last function, as they come in order.
        let mut decoded: Option<(usize, Option<site::Body>)> = None;
        for at in site::candidates(segment.code) {
            meter.spend(1).map_err(|error| error.to_string())?;
            let Some(function) = image.function_around(segment, at.0) else {
                found.leave(at.1);
                continue;
            };
            if decoded.as_ref().is_none_or(|(start, _)| *start != function.start) {
                let cost = function.code.len() as u64;
                meter.spend(cost).map_err(|error| error.to_string())?;
                decoded = Some((function.start, site::Body::decode(&function)));
            }
            match decoded.as_ref().and_then(|(_, body)| body.as_ref()) {
                Some(body) => site::resolve(&function, body, at, which, &meter, &mut found)
                    .map_err(|error| error.to_string())?,
                None => found.leave(at.1),
            }
            if found.sites.len() > SITES_MAX {
                return Err(format!("it needs more than {SITES_MAX} probes"));
            }
        }
    }
    found.sites.sort_unstable();
    found.sites.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests;
