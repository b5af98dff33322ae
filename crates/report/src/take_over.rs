// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scheduler sends to the one that takes over from it, over the control socket.
//!
//! Maps are named by their numbers in the kernel (`bpf_map_info.id`): they live as long as the
//! predecessor does, and a user who may replace a scheduler may open them.

use serde::{Deserialize, Serialize};

/// What its successor has to know before it loads its programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predecessor {
    /// Its process.
    pub pid: u32,
    /// Layout of board and areas (`bpf/hint_page.h`).
    pub hint_abi: u32,
    /// Number of the map that the board is in.
    pub board: u32,
    /// Number of the map of areas.
    pub areas: u32,
}

/// What a scheduler hands over at the moment in which it goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedOver {
    /// CLOCK_MONOTONIC when it began to go.
    pub since_ns: u64,
    /// It has loaded the trap module, and leaves it to its successor to remove it.
    pub owns_module: bool,
    /// Slots of the hint page, and whose they are.
    pub slots: GivenSlots,
}

/// The slots that threads have been given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenSlots {
    /// Tells the areas of one scheduler from those of another.
    pub run_id: u32,
    /// The processes that have areas.
    pub processes: Vec<ProcessSlots>,
}

/// The areas of a process under one effective user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSlots {
    /// The process, in the scheduler's PID namespace.
    pub tgid: u32,
    /// When it started, in clock ticks since the boot: numbers are used again.
    pub start_ticks: u64,
    /// Its effective user.
    pub uid: u32,
    /// Numbers of its areas.
    pub areas: Vec<u32>,
    /// Its threads: number, start in clock ticks, slot.
    pub threads: Vec<(u32, u64, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::{MAX_LINE_BYTES, Reply};
    use crate::{Document, json_line};

    /// All slots in use, with the largest numbers that Linux gives to threads: a line.
    #[test]
    fn all_slots_fit_into_a_line() {
        let (areas, slots_per_area) = (4096u32, 64u32);
        let processes = (0..areas)
            .map(|area| ProcessSlots {
                tgid: 4_194_304,
                start_ticks: 99_999_999_999, // 31 years
                uid: u32::MAX,
                areas: vec![area],
                threads: (0..slots_per_area)
                    .map(|at| (4_194_304, 99_999_999_999, area * slots_per_area + at))
                    .collect(),
            })
            .collect();
        let slots = GivenSlots { run_id: u32::MAX, processes };
        let reply = Reply::HandedOver(Box::new(HandedOver {
            since_ns: u64::MAX,
            owns_module: false,
            slots,
        }));
        let bytes = json_line(&Document::new(reply)).len() as u64 + 1;
        assert!(bytes <= MAX_LINE_BYTES, "{bytes}");
    }
}
