// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where programs ask what the CPU can do, for the trap module to let them see it; and which of them
//! have no wide code at all (`light.rs`).
//!
//! **Problem.** On a CPU that withholds AVX-512, `xgetbv` shows it withheld, and cannot be trapped.
//! A program that asks there decides for good that it has no AVX-512. The module shows everything
//! for a while after exec and after a file is mapped as code; who asks later than that needs a
//! probe ([`hw::trap::Device::add_site`]).
//!
//! **Idea.** Find each `xgetbv` in the files that processes have mapped. The opcode's three bytes
//! are searched for, which is cheap; whether a hit is an instruction and not the middle of another
//! is decided by decoding its function from the start, because a probe in the middle of an
//! instruction would destroy the program. Function starts come from the search table that every
//! linker writes for unwinding (`.eh_frame_hdr`), and from symbols.
//!
//! The kernel refuses probes on `xgetbv` itself. Any instruction will do that runs just before: the
//! nearest one in a straight line that can be probed, and each branch that leads behind it.
//!
//! ```text
//!      mov  %eax, %edx
//!      xor  %ecx, %ecx        <- site
//!   1: xgetbv
//!      ...
//!      jne  1b                <- site
//! ```
//!
//! `xsave` is found in the same way. It leaves out what is withheld, and the image may be restored
//! when it is not (kmod/live.c); so a site makes it complete. The dynamic linker's resolver of
//! symbols is left out: it runs at calls, where the registers concerned are dead, and often.
//!
//! **Limits.** Code in a file without unwind table and symbols is not decoded; what looks like an
//! `xgetbv` there is counted as unverified. Code that a program writes itself is not seen.

mod light;
mod maps;
mod site;
mod watch;

use std::io;
use std::path::{Path, PathBuf};

use scan::segments::Image;

pub use site::{Kind, Site};
pub use watch::{Added, Watch};

/// What a file was found to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Where to put probes, by offset.
    pub sites: Vec<Site>,
    /// Bytes that look like an instruction we look for, but cannot be shown to be one, or have
    /// nothing before them that can be probed.
    pub unverified: usize,
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
    find_in(&bytes).map_err(|why| DetectionError::NotElf { path: path.to_path_buf(), why })
}

/// As [`find`], in the file's bytes.
fn find_in(bytes: &[u8]) -> Result<Found, String> {
    let image = Image::parse(bytes)?;
    let mut found = Found::default();
    for segment in &image.segments {
        for at in site::candidates(segment.code) {
            match image.function_around(segment, at) {
                Some(function) => site::resolve(&function, at, &mut found),
                None => found.unverified += 1,
            }
        }
    }
    found.sites.sort_unstable();
    found.sites.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests;
