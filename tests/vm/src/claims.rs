// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a test on a dim-silicon machine has seen, to be compared with the machine's own log when
//! the guest is gone: xtask's `silicon/claims.rs` does that.

use std::arch::asm;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Serialize;

/// The port that marks a moment in the machine's log.
const MARK: u16 = 0xee;

/// One quantity between two marks.
#[derive(Serialize)]
struct Claim {
    what: &'static str,
    cpu: usize,
    from: u8,
    to: u8,
    seen: f64,
    within_pct: f64,
}

/// All that a test claims, and its marks.
pub struct Claims {
    all: Vec<Claim>,
    marks: u8,
}

impl Claims {
    /// Asks the kernel for the port.
    pub fn new() -> Result<Self> {
        // SAFETY: allows this thread to write to one port.
        let done = unsafe { libc::ioperm(MARK.into(), 1, 1) };
        ensure!(done == 0, "ioperm: {}", std::io::Error::last_os_error());
        Ok(Claims { all: Vec::new(), marks: 0 })
    }

    /// Marks this moment; the number of the mark.
    pub fn mark(&mut self) -> u8 {
        self.marks += 1;
        // SAFETY: the machine writes a line to its log, nothing else.
        unsafe { asm!("out dx, al", in("dx") MARK, in("al") self.marks, options(nostack)) };
        self.marks
    }

    /// The package used so much energy between two marks.
    pub fn energy_uj(&mut self, (from, to): (u8, u8), seen: f64, within_pct: f64) {
        self.all.push(Claim { what: "energy_uj", cpu: 0, from, to, seen, within_pct });
    }

    /// This was the clock of a CPU between two marks.
    pub fn clock_khz(&mut self, cpu: usize, (from, to): (u8, u8), seen: f64, within_pct: f64) {
        self.all.push(Claim { what: "clock_khz", cpu, from, to, seen, within_pct });
    }

    /// Leaves them for xtask.
    pub fn write(self) -> Result<()> {
        let out = std::env::var("TURBOLANE_OUT").unwrap_or_else(|_| "/out".into());
        let path = Path::new(&out).join("claims.json");
        let text = serde_json::to_string(&self.all)?;
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}
