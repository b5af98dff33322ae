// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the periods of a timeline's file (`report::timeline`) and the timeline that `dvfs`
//! replays: the same in two forms, because the one is written for other programs and the other is
//! made to be fast.

use dvfs::{Mark, Timeline, Work};
use report::timeline::{self, Period};

/// The periods of a trace as a timeline.
pub fn timeline_of(periods: &[Period]) -> Timeline {
    let mut timeline = Timeline::default();
    for period in periods {
        let work = match (period.cycles, period.idle_ns) {
            (None, idle_ns) => Work::Idle { time_ns: idle_ns.unwrap_or(0) },
            (Some(cycles), _) => Work::Code {
                level: period.level,
                cycles,
                sensitive_frac: period.sensitive_frac.unwrap_or(1.0),
            },
        };
        let marks: Vec<Mark> = period.marks.iter().map(|&mark| of_mark(mark)).collect();
        timeline.push(work, &marks);
    }
    timeline
}

fn of_mark(mark: timeline::Mark) -> Mark {
    match mark {
        timeline::Mark::Request => Mark::Request,
        timeline::Mark::Force => Mark::Force,
        timeline::Mark::DelayNs(delay_ns) => Mark::DelayNs(delay_ns),
        timeline::Mark::Switch(level) => Mark::Switch(level),
    }
}

/// The periods of a timeline, as a trace has them.
pub fn periods_of(timeline: &Timeline) -> impl Iterator<Item = Period> {
    timeline.periods().iter().map(|period| {
        let marks = timeline.marks(period).iter().map(|&mark| to_mark(mark)).collect();
        match period.work {
            Work::Idle { time_ns } => Period { idle_ns: Some(time_ns), marks, ..Period::default() },
            Work::Code { level, cycles, sensitive_frac } => Period {
                level,
                cycles: Some(cycles),
                sensitive_frac: (sensitive_frac < 1.0).then_some(sensitive_frac),
                marks,
                ..Period::default()
            },
        }
    })
}

fn to_mark(mark: Mark) -> timeline::Mark {
    match mark {
        Mark::Request => timeline::Mark::Request,
        Mark::Force => timeline::Mark::Force,
        Mark::DelayNs(delay_ns) => timeline::Mark::DelayNs(delay_ns),
        Mark::Switch(level) => timeline::Mark::Switch(level),
    }
}
