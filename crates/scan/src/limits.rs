// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scan may take, and how it is stopped.
//!
//! **Problem.** A user who may run a program chooses the file that is scanned for it. Gigabytes of
//! code, or code that is slow to analyse, would keep the scanner busy, and a daemon that waits for
//! the scanner would not end.
//!
//! **Idea.** A [`Limits`] says how large the input may be, how much work may be done, and which
//! flag stops the scan. All loops over code pay into one [`Meter`] before they decode, and end when
//! it refuses. The unit of work is a byte that is decoded once, about 4 ns; screening costs an
//! eighth of it. Work, and not time, is what is limited: so the same file is refused on every
//! machine, and a test can show it. For a limit in time the caller sets the flag.
//!
//! **Limits.** A function is analysed without a look at the flag: at most
//! [`crate::PIECE_MAX_BYTES`] at a time, whose graph is bounded (`flow.rs`, `loops.rs`). Source
//! lines are looked up by a library that cannot be stopped; a caller that scans files chosen by
//! others leaves them out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::ScanError;

/// A longer function is swept in pieces of this length: it bounds the memory of a sweep.
pub const PIECE_MAX_BYTES: u64 = 16 << 20;

/// What a scan may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// Length of the file, bytes.
    pub file_bytes: u64,
    /// Bytes of the file that are not in holes or pages of zeros: what [`crate::read_file`] keeps
    /// in memory.
    pub data_bytes: u64,
    /// Executable code, bytes.
    pub code_bytes: u64,
    /// What compressed symbols may unpack to, bytes. Less for a short file: no more than its
    /// length, or 16 MiB.
    pub unpacked_bytes: u64,
    /// Work, in bytes of code that are decoded once.
    pub work_bytes: u64,
    /// Whether source lines are looked up.
    pub lines: bool,
    /// Stops the scan when it becomes true.
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Limits<'_> {
    /// For files that the user names: beyond any program that there is, and within the memory of
    /// any machine.
    fn default() -> Self {
        Limits {
            file_bytes: 64 << 30,
            data_bytes: 16 << 30,
            code_bytes: 4 << 30,
            unpacked_bytes: 64 << 20,
            work_bytes: u64::MAX,
            lines: true,
            stop: None,
        }
    }
}

impl<'a> Limits<'a> {
    /// For files that others chose: the largest libraries pass (code of 200 MB in those of PyTorch
    /// and Chromium), and none takes more than some seconds. The flag stops it earlier.
    #[must_use]
    pub fn strict(stop: &'a AtomicBool) -> Self {
        Limits {
            file_bytes: 4 << 30,
            data_bytes: 1 << 30,
            code_bytes: 512 << 20,
            unpacked_bytes: 16 << 20,
            work_bytes: 2 << 30,
            lines: false,
            stop: Some(stop),
        }
    }

    /// Refuses what is longer than its limit.
    pub(crate) fn check(what: &'static str, bytes: u64, limit: u64) -> Result<(), ScanError> {
        if bytes > limit {
            return Err(ScanError::TooBig { what, bytes, limit });
        }
        Ok(())
    }

    pub(crate) fn check_stop(&self) -> Result<(), ScanError> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(ScanError::Stopped),
            false => Ok(()),
        }
    }
}

/// A scan that can be stopped shares its CPU with other work, and yields after so many bytes, about
/// 65 us. A scheduler that preempts no one at wakeups would let it wait to the end of a slice.
const YIELD_BYTES: u64 = 16 << 10;

/// The work that is left of a scan; threads share it.
#[derive(Debug)]
pub struct Meter<'a> {
    limits: Limits<'a>,
    spent: AtomicU64,
}

impl<'a> Meter<'a> {
    /// Nothing is spent yet.
    #[must_use]
    pub fn new(limits: &Limits<'a>) -> Self {
        Meter { limits: *limits, spent: AtomicU64::new(0) }
    }

    /// To be called before `bytes` of code are decoded.
    ///
    /// # Errors
    /// When the scan is to stop, or no work is left.
    pub fn spend(&self, bytes: u64) -> Result<(), ScanError> {
        self.limits.check_stop()?;
        let before = self.spent.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limits.work_bytes {
            return Err(ScanError::TooMuchWork { limit: self.limits.work_bytes });
        }
        if self.limits.stop.is_some() && before / YIELD_BYTES != (before + bytes) / YIELD_BYTES {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Work that was done so far.
    #[must_use]
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }
}
