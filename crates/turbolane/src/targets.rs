// SPDX-License-Identifier: MIT OR Apache-2.0
//! The performance that a thread requests, if the lane's scheduler takes requests
//! (`pstate::Way::Scheduler`).
//!
//! Problem: P-states belong to CPUs, need root, and stay set when the thread that requested them
//! moves or ends.
//!
//! Idea: the thread's target is in its slot of the hint page. The scheduler passes it to the
//! frequency governor of the CPU that the thread runs on, and of the next one when it moves
//! (bpf/target.bpf.h, policy/target.h).
//!
//! In force: a thread that makes a request for itself then rings, by a system call that changes
//! nothing, and the scheduler reads the target. A request for another thread is seen at its next
//! tick or switch. A target that is already set costs a few loads.
//!
//! Ends: with the thread, an exec, or the lane, whichever is first, without any action. A lane that
//! begins later knows of no target: it gets the thread's next request.
//!
//! Limits: real-time and deadline threads are not the lane's to schedule, and their targets are not
//! seen.

use std::sync::atomic::Ordering::Relaxed;

use pstate::Control;
use turbolane_hint::inside::{Unnoticed, served, slot_at_hand};
use turbolane_hint::page::{Board, MODE_AFFINITY, Slot};

use crate::request::Request;

/// No target: the default.
pub(crate) const NONE: u32 = 0;

/// A thread's slot, to ask in; by whichever thread of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    board: &'static Board,
    slot: &'static Slot,
}

impl Place {
    /// The calling thread's; a scheduler is looked for as at a section.
    pub fn of_this_thread() -> Option<Place> {
        let (page, slot) = served(false)?;
        Some(Place { board: page, slot }).filter(|place| place.is_read())
    }

    /// A scheduler reads it and passes it to the governor.
    pub fn is_read(self) -> bool {
        self.board.is_active() && self.board.header.takes_targets.load(Relaxed) != 0
    }

    /// Something is asked for in it.
    pub fn asks(self) -> bool {
        self.is_read() && self.slot.target_q10.load(Relaxed) != NONE
    }

    /// Asks for another target, which is in force at once if the slot is the calling thread's.
    pub fn ask(self, target_q10: u32) {
        if self.slot.target_q10.swap(target_q10, Relaxed) == target_q10 {
            return;
        }
        let is_own = slot_at_hand().is_some_and(|(_, own)| std::ptr::eq(own, self.slot));
        if is_own && self.is_read() {
            ring();
        }
    }
}

/// What a thread on this CPU has to ask for.
pub(crate) fn of(control: &Control, cpu: u32, request: Request) -> Result<u32, pstate::Error> {
    control.check_open()?;
    let khz = match request {
        Request::Restore => return Ok(NONE),
        Request::Boost => control.speeds(cpu)?.turbo_khz,
        Request::Slow => control.speeds(cpu)?.slow_khz,
        Request::Khz(khz) => khz,
    };
    control.target_q10(cpu, khz)
}

/// Makes the request for the calling thread, registered or not. Failures are not reported.
pub(crate) fn ask(control: &Control, cpu: u32, request: Request) {
    if request == Request::Restore {
        // Also after a session that was closed meanwhile.
        if let Some((page, slot)) = slot_at_hand() {
            Place { board: page, slot }.ask(NONE);
        }
    } else if let Ok(target_q10) = of(control, cpu, request)
        && let Some(place) = Place::of_this_thread()
    {
        place.ask(target_q10);
    }
}

/// Whether a scheduler takes targets of this process's threads; else why not. The calling thread is
/// served from then on.
pub(crate) fn are_taken() -> Result<(), String> {
    let Some((page, _)) = served(true) else {
        return Err("no lane serves this program (turbolane run does, as long as it runs)".into());
    };
    if page.header.mode.load(Relaxed) == MODE_AFFINITY {
        return Err("the lane works by affinity, without a scheduler that takes requests".into());
    }
    if page.header.takes_targets.load(Relaxed) == 0 {
        return Err(
            "the lane's scheduler takes no targets: its kernel has no scx_bpf_cpuperf_set".into()
        );
    }
    Ok(())
}

/// Makes the scheduler read the calling thread's slot. If none listens, or a filter refuses the
/// call, this is not a failure: there is a tick.
fn ring() {
    let _unnoticed = Unnoticed::new();
    // SAFETY: asks for a number, without memory.
    unsafe { libc::syscall(libc::SYS_sched_get_priority_min, libc::SCHED_OTHER) };
}
