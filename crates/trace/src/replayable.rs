// SPDX-License-Identifier: MIT OR Apache-2.0
//! Between the periods of a timeline's file (`report::timeline`) and the timeline that `dvfs`
//! replays: the same in two forms, because the one is written for other programs and the other is
//! made to be fast.

use dvfs::{Moment, Timeline, Work};
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
        let moments: Vec<Moment> = period.moments.iter().map(|&moment| of_moment(moment)).collect();
        timeline.push(work, &moments);
    }
    timeline
}

fn of_moment(moment: timeline::Moment) -> Moment {
    match moment {
        timeline::Moment::Request => Moment::Request,
        timeline::Moment::Force => Moment::Force,
        timeline::Moment::DelayNs(delay_ns) => Moment::DelayNs(delay_ns),
        timeline::Moment::Switch(level) => Moment::Switch(level),
    }
}

/// The periods of a timeline, as a trace has them.
pub fn periods_of(timeline: &Timeline) -> impl Iterator<Item = Period> {
    timeline.periods().iter().map(|period| {
        let moments = timeline.moments(period).iter().map(|&moment| to_mark(moment)).collect();
        match period.work {
            Work::Idle { time_ns } => {
                Period { idle_ns: Some(time_ns), moments, ..Period::default() }
            }
            Work::Code { level, cycles, sensitive_frac } => Period {
                level,
                cycles: Some(cycles),
                sensitive_frac: (sensitive_frac < 1.0).then_some(sensitive_frac),
                moments,
                ..Period::default()
            },
        }
    })
}

fn to_mark(moment: Moment) -> timeline::Moment {
    match moment {
        Moment::Request => timeline::Moment::Request,
        Moment::Force => timeline::Moment::Force,
        Moment::DelayNs(delay_ns) => timeline::Moment::DelayNs(delay_ns),
        Moment::Switch(level) => timeline::Moment::Switch(level),
    }
}
