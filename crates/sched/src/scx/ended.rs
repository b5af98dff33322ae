// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a scheduler ended, as the kernel left it in the programs' memory.

use crate::bpf::types;

/// `SCX_ECODE_ACT_RESTART`: the kernel asks for the scheduler to be loaded again.
const EXIT_CODE_RESTART: i64 = 1 << 48;
const EXIT_KIND_ERROR: u32 = 1024;

/// Why the scheduler is not there any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The kernel's `enum scx_exit_kind`; 64..1023 are orderly, 1024 and above errors.
    pub kind: u32,
    /// Exit code given with it.
    pub code: i64,
    /// The kernel's words for the kind.
    pub reason: String,
    /// Details.
    pub message: String,
}

impl Ended {
    /// CPUs came or went: load again with the new topology.
    pub fn wants_restart(&self) -> bool {
        self.code & EXIT_CODE_RESTART != 0
    }

    /// The scheduler was thrown out for an error.
    pub fn is_error(&self) -> bool {
        self.kind >= EXIT_KIND_ERROR
    }

    /// What the kernel has written, if it has.
    pub(super) fn of(exit: &types::tl_exit) -> Option<Ended> {
        (exit.kind != 0).then(|| Ended {
            kind: exit.kind,
            code: exit.code,
            reason: c_text(&exit.reason),
            message: c_text(&exit.message),
        })
    }
}

fn c_text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|b| **b != 0).map(|b| *b as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
