// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of processes' code, put where power scores look (bpf/score.bpf.h).

use std::io;

use libbpf_rs::{MapCore, MapFlags};

use super::Scheduler;
use super::call::visit_tasks;
use crate::error::{Error, Result};
use crate::questions::Codes;

/// Processes at once: `TL_CODE_LEVELS_MAX` of bpf/lane.h.
const AT_ONCE: usize = 4096;

impl Scheduler {
    /// Whether tasks have power scores.
    pub fn has_scores(&self) -> bool {
        !self.score_links.is_empty()
    }

    /// The tasks of these processes have this code. Those that have called exec meanwhile are
    /// looked at again.
    pub(crate) fn know_code(&self, codes: &Codes) -> Result<()> {
        let failed = |e: io::Error| Error::failed("cannot use what is known of processes", e);
        let all: Vec<(u32, u8)> = codes.iter().map(|(&pid, &code)| (pid, code)).collect();
        for part in all.chunks(AT_ONCE) {
            self.know(part).map_err(failed)?;
        }
        Ok(())
    }

    fn know(&self, codes: &[(u32, u8)]) -> io::Result<()> {
        let table = &self.skel.maps.code_levels;
        let put = |&(pid, code): &(u32, u8)| {
            table.update(&pid.to_ne_bytes(), &u32::from(code).to_ne_bytes(), MapFlags::ANY)
        };
        let mut done = codes.iter().try_for_each(put).map_err(io::Error::other);
        if done.is_ok() {
            done = visit_tasks(&self.skel.progs.tl_know_code);
        }
        for (pid, _) in codes {
            _ = table.delete(&pid.to_ne_bytes()); // one that was not put is not there
        }
        done
    }
}
