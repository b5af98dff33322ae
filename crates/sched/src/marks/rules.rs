// SPDX-License-Identifier: MIT OR Apache-2.0
//! Marks as a run looks them up: by what its kernel emulates and its settings allow.

use super::{Emulation, MarkError, ResolvedMark, places, resolve, resolve_all};
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

    /// The sites of these marks as far as they have one, in their order; each file is read once.
    pub fn sites(self, marks: &[Mark]) -> Vec<std::result::Result<ResolvedMark, MarkError>> {
        resolve_all(marks, self.emulation, self.force)
    }

    /// Those of these marks that name the same function as `mark`. A mark is one of them even if
    /// its file has no such function any more.
    pub fn same_site(self, mark: &Mark, mut marks: Vec<Mark>) -> Result<Vec<Mark>> {
        let site = match resolve(mark, self.emulation, true) {
            Ok(site) => site,
            Err(_) if marks.contains(mark) => return Ok(vec![mark.clone()]),
            Err(error) => {
                let what = format!("cannot remove the mark {mark}");
                return Err(Error::BadInput(error.problem(what)));
            }
        };
        let mut resolved = resolve_all(&marks, self.emulation, true).into_iter();
        marks.retain(|_| {
            let found = resolved.next().and_then(std::result::Result::ok);
            found.is_some_and(|found| found.is_same_site(&site))
        });
        Ok(marks)
    }
}

impl ResolvedMark {
    /// Whether both are probes at the same function.
    pub fn is_same_site(&self, other: &ResolvedMark) -> bool {
        self.path == other.path && self.entry_offset == other.entry_offset
    }
}
