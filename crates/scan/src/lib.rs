// SPDX-License-Identifier: MIT OR Apache-2.0
//! Static scanner: which functions of a program can raise the licence level.
//!
//! **Problem.** Marks, hints and the trap module all need to know where wide code is, or profit
//! from it. A disassembler shows instructions, at 2 to 5 MB/s, and none says which function
//! matters.
//!
//! **Idea.** Find the functions ([`bounds`](mod@bounds), [`recover`](mod@recover)), step through
//! each once ([`sweep`](mod@sweep), with [`fast`](mod@fast) and [`memo`](mod@memo) for what is
//! common), and look closer only at those that have a vector of 256 bits or a tile: loops and
//! density, dirty upper halves ([`loops`](mod@loops), [`upper`](mod@upper)). Class and level of an
//! instruction come from `data/isa/classes.toml`.
//!
//! **Promises.** Bytes in, findings out: nothing here opens a file or looks at the machine. No
//! input makes it panic; time and memory grow linearly with the code (a function is cut into pieces
//! of [`PIECE_MAX_BYTES`], jump tables and loops of monstrous functions are left out, what
//! `.gnu_debugdata` unpacks to is limited), and a caller can limit both and stop a scan
//! ([`limits`](mod@limits)). Order and content of the result do not depend on the number of
//! threads.
//!
//! **Limits.** A static finding says what a function can do, not whether it runs. Registers and
//! memory are not tracked: a jump through a table may lead anywhere in its function. Code that a
//! program writes itself is seen only in a live process ([`scan_memory`]).

#![forbid(unsafe_code)]

mod analysis;
mod archive;
mod bits;
mod bounds;
mod callers;
mod debug;
mod facts;
mod fast;
mod file;
mod findings;
mod flow;
mod image;
mod layout;
mod limits;
mod lines;
mod loops;
mod memo;
mod memory;
mod near;
mod pieces;
mod read;
mod recover;
mod screen;
pub mod segments;
mod sweep;
mod symbols;
mod traits;
mod unwind;
mod upper;
mod widths;
mod xz;
mod zip;

use std::cmp::Reverse;

use report::scan::{Confidence, File, Function};

pub use archive::{is_archive, scan_archive, scan_archive_within};
pub use callers::{Callers, Reach, Start, Uncovered, callers};
pub use debug::{DebugLink, debug_link};
pub use file::{scan_file, scan_file_with_debug, scan_file_within};
pub use limits::{Limits, Meter, PIECE_MAX_BYTES};
pub use memory::{JitSymbol, parse_perf_map, scan_memory, scan_memory_within};
pub use read::{Bytes, read_file};
pub use traits::Width;
pub use widths::widths;
pub use zip::{is_zip, scan_zip_within};

/// Why a file has not been scanned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// It does not begin as ELF files do.
    #[error("it is not an ELF file")]
    NotElf,
    /// Its code is for another kind of CPU.
    #[error("its code is for another kind of CPU ({0})")]
    OtherCpu(String),
    /// It makes no sense.
    #[error("it is broken: {0}")]
    Broken(String),
    /// It has no code.
    #[error("it holds no code; the debugging half of a stripped file has none")]
    NoCode,
    /// It lists files, but does not hold them.
    #[error("it is a thin archive, which holds no members; scan the members")]
    ThinArchive,
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It is longer than the scan's [`Limits`] allow.
    #[error("{what} takes {bytes} bytes, and {limit} are the limit")]
    TooBig {
        /// Which part.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// What is allowed.
        limit: u64,
    },
    /// It takes more work than the scan's [`Limits`] allow.
    #[error("it takes more work than decoding {limit} bytes, which is the limit")]
    TooMuchWork {
        /// What is allowed.
        limit: u64,
    },
    /// The flag in its [`Limits`] was set.
    #[error("the scan was stopped")]
    Stopped,
}

/// What the functions in a result are ordered by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Level (sustained, then reached), then heavy instructions.
    #[default]
    Level,
    /// Heavy instructions of 256 and 512 bits.
    Heavy,
    /// Density.
    Density,
    /// Address.
    Address,
    /// Name.
    Name,
}

/// What is to be listed, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Least licence level of a function that is listed. 0 lists all functions with wide
    /// instructions.
    pub level: u8,
    /// Functions listed per file.
    pub top: Option<usize>,
    /// Their order.
    pub sort: Sort,
}

impl Default for Options {
    fn default() -> Self {
        Options { level: 1, top: None, sort: Sort::Level }
    }
}

impl Options {
    /// Leaves the functions of the level, ordered, and as many as wanted. Guesses do not count as
    /// found.
    fn arrange(&self, file: &mut File) {
        let functions = &mut file.listed;
        functions.retain(|function| function.license_level >= self.level);
        let is_found = |function: &&Function| function.confidence != Confidence::Low;
        file.found = functions.iter().filter(is_found).count() as u64;
        functions.sort_by(|a, b| (&a.section, a.address).cmp(&(&b.section, b.address)));
        let heavy = |function: &Function| {
            function.counts.heavy.ymm + function.counts.heavy.zmm + function.counts.tile
        };
        if self.sort == Sort::Name {
            for function in functions.iter_mut() {
                function.name = function.symbol.as_deref().map(symbols::demangle);
            }
        }
        let density = |function: &Function| function.heavy_frac.unwrap_or(0.0);
        match self.sort {
            Sort::Level => functions.sort_by_key(|function| {
                let levels = (function.sustained_level, function.license_level);
                (function.confidence == Confidence::Low, Reverse((levels, heavy(function))))
            }),
            Sort::Heavy => functions.sort_by_key(|function| Reverse(heavy(function))),
            Sort::Density => functions.sort_by(|a, b| density(b).total_cmp(&density(a))),
            Sort::Address => {}
            Sort::Name => functions
                .sort_by(|a, b| (a.name.is_none(), &a.name).cmp(&(b.name.is_none(), &b.name))),
        }
        functions.truncate(self.top.unwrap_or(usize::MAX));
        for function in functions {
            function.name = function.symbol.as_deref().map(symbols::demangle);
        }
    }
}
