// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks as a run looks them up: by what its kernel emulates and its settings allow.

use super::{Emulation, ResolvedMark, places, resolve, resolve_all};
use crate::config::{Config, Mark};
use crate::error::{Error, Result};

/// How marks are looked up.
#[derive(Clone, Copy)]
pub struct MarkRules {
    /// What the kernel can emulate.
    pub emulation: Emulation,
    /// Whether marks may single-step.
    pub force: bool,
}

/// A marked function, and the marks that name it.
pub struct SameSite {
    /// Where it is.
    pub site: ResolvedMark,
    /// Those that are placed.
    pub marks: Vec<Mark>,
}

impl MarkRules {
    /// Those of a run with these settings.
    pub fn of(config: &Config, emulation: Emulation) -> Self {
        MarkRules { emulation, force: config.force_single_step }
    }

    /// The site of a mark that is to be placed.
    pub fn resolve(self, mark: &Mark) -> Result<ResolvedMark> {
        resolve(mark, self.emulation, self.force)
            .map_err(|e| Error::BadInput(e.problem(format!("cannot mark {mark}"))))
    }

    /// The sites of all marks of a run.
    pub fn places(self, marks: &[Mark]) -> Result<Vec<ResolvedMark>> {
        places(marks, self.emulation, self.force).map_err(Error::BadInput)
    }

    /// Which of these marks name the same function as `mark`.
    pub fn same_site(self, mark: &Mark, mut marks: Vec<Mark>) -> Result<SameSite> {
        let site = resolve(mark, self.emulation, true)
            .map_err(|e| Error::BadInput(e.problem(format!("cannot remove the mark {mark}"))))?;
        let mut resolved = resolve_all(&marks, self.emulation, true).into_iter();
        marks.retain(|_| {
            let found = resolved.next().and_then(std::result::Result::ok);
            found.is_some_and(|found| found.is_same_site(&site))
        });
        Ok(SameSite { site, marks })
    }
}

impl ResolvedMark {
    /// Whether both are probes at the same function.
    pub fn is_same_site(&self, other: &ResolvedMark) -> bool {
        self.path == other.path && self.entry_offset == other.entry_offset
    }
}
