// SPDX-License-Identifier: MIT OR Apache-2.0
//! The journal learns when a lane begins or ceases to separate wide code: it decides that by
//! itself, and an operator who finds a service slower at some hour looks for what has changed then.

use std::time::{Duration, Instant};

use report::ctl::{Reply, Request};
use sched::lane::Lane;

use super::journal::{Event, Journal};

/// From one look to the next: a lane that changes its mind each second is not worth a line each.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether the lane stood by at the last look.
#[derive(Default)]
pub(super) struct Standby {
    stands_by: bool,
    due: Option<Instant>,
}

impl Standby {
    /// Reports what has changed since the last look, if another is due.
    pub(super) fn report_if_changed(&mut self, lane: &Lane, journal: &Journal) {
        let now = Instant::now();
        // Not at the start, when automatic sizing has not looked yet.
        let due = *self.due.get_or_insert(now + PAUSE);
        if now < due {
            return;
        }
        self.due = Some(now + PAUSE);
        // First this: a lane that another version takes over from says nothing; the event waits.
        let Reply::Status(status) = lane.ask(Request::Status) else { return };
        let Some(event) = self.change(lane.stats().standing_by == Some(1)) else { return };
        let reason = status.standby.unwrap_or_else(|| "separated, as requested".into());
        journal.report(event, &reason, &[("REASON", &reason), ("WIDE_CPUS", &status.wide_cpus)]);
    }

    /// The event, if the state is another one than it was.
    fn change(&mut self, stands_by: bool) -> Option<Event> {
        let stood_by = std::mem::replace(&mut self.stands_by, stands_by);
        match (stood_by, stands_by) {
            (false, true) => Some(Event::StandingBy),
            (true, false) => Some(Event::Separating),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One event for each change.
    #[test]
    fn changes_are_events() {
        let mut standby = Standby::default();
        let looks = [false, true, true, false, false, true];
        let events: Vec<_> = looks.into_iter().map(|stands_by| standby.change(stands_by)).collect();
        let (by, on) = (Some(Event::StandingBy), Some(Event::Separating));
        assert_eq!(events, [None, by, None, on, None, by]);
    }
}
