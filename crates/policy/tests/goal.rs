// SPDX-License-Identifier: MIT OR Apache-2.0
//! The application's own figure decides: experiments on figures of which it is known what keeping
//! wide code apart does to them.

use fastrand::Rng;
use policy::{Goal, GoalFound, GoalInput, Standby, StandbyInput, StandbyState, StandbyWhy};

const POLL_NS: u64 = 50_000_000;
const EVERY_NS: u64 = 1_000_000_000;
const POLLS_PER_SAMPLE: u64 = EVERY_NS / POLL_NS;

/// What the application sees.
struct Moment {
    /// Since the start.
    at_s: f64,
    /// Since the side was changed.
    side_s: f64,
    apart: bool,
}

/// An experiment that goes on.
#[derive(Default)]
struct Run {
    goal: Goal,
    polls: u64,
    changed_at: u64,
    /// Polls with wide code kept apart.
    apart: u64,
}

impl Run {
    /// So many seconds with such a figure; `None`: there is none.
    fn go_on(&mut self, secs: u64, lower: bool, figure: &mut dyn FnMut(Moment) -> Option<f64>) {
        for _ in 0..secs * POLLS_PER_SAMPLE {
            self.polls += 1;
            self.apart += u64::from(self.goal.apart());
            let seconds = |polls: u64| polls as f64 * POLL_NS as f64 / 1e9;
            let moment = Moment {
                at_s: seconds(self.polls),
                side_s: seconds(self.polls - self.changed_at),
                apart: self.goal.apart(),
            };
            let sampled = self.polls.is_multiple_of(POLLS_PER_SAMPLE);
            let value = if sampled { figure(moment) } else { None };
            let changed = self.goal.update(&GoalInput {
                elapsed_ns: POLL_NS,
                every_ns: EVERY_NS,
                value: value.unwrap_or_default() as u64,
                has_value: value.is_some().into(),
                lower: lower.into(),
            });
            if changed {
                self.changed_at = self.polls;
            }
        }
    }

    /// Until the first measurement has ended: what it found.
    fn find(&mut self, lower: bool, mut figure: impl FnMut(Moment) -> Option<f64>) -> GoalFound {
        for _ in 0..200 {
            self.go_on(1, lower, &mut figure);
            if self.goal.found() != GoalFound::NothingYet {
                break;
            }
        }
        self.goal.found()
    }
}

/// Of normal distribution, nearly: twelve uniform ones.
fn noise(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

/// A figure of about 100,000 with such a gain and such noise.
fn figure(gain: f64, noisy: f64, rng: &mut Rng) -> impl FnMut(Moment) -> Option<f64> {
    move |moment| {
        let gain = if moment.apart { 1.0 + gain } else { 1.0 };
        Some(1e5 * gain * (1.0 + noisy * noise(rng)))
    }
}

/// A gain and a loss of 3 % in noise of 1 % are found within a minute and a half, with their size.
#[test]
fn finds_gains_and_losses() {
    let mut rng = Rng::with_seed(1);
    for (gain, found) in [(0.03, GoalFound::Better), (-0.03, GoalFound::Worse)] {
        for lower in [false, true] {
            let mut run = Run::default();
            let sign = if lower { -1.0 } else { 1.0 };
            assert_eq!(run.find(lower, figure(sign * gain, 0.01, &mut rng)), found);
            assert!(run.polls < 90 * POLLS_PER_SAMPLE, "{} polls", run.polls);
            let (seen, error) = run.goal.gain_frac().unwrap();
            assert!((seen - gain).abs() < 0.015 && error < 0.01, "{seen} +- {error}");
            assert_eq!(run.goal.apart(), found == GoalFound::Better);
        }
    }
}

/// Where there is no difference it is left as it is, nearly always; and a loss is never taken for a
/// gain, however noisy.
#[test]
fn noise_is_not_taken_for_a_gain() {
    let mut rng = Rng::with_seed(2);
    let mut taken = |gain: f64, noisy: f64| {
        let better = |_: &i32| {
            Run::default().find(false, figure(gain, noisy, &mut rng)) == GoalFound::Better
        };
        (0..1000).filter(better).count()
    };
    let wrong = [0.001, 0.05, 0.5].map(|noisy| taken(0.0, noisy));
    assert!(wrong.iter().all(|&of_1000| of_1000 < 80), "{wrong:?}");
    let worse = [0.01, 0.03].map(|noisy| taken(-0.03, noisy));
    assert!(worse[0] == 0 && worse[1] < 5, "{worse:?}");
}

/// A load that doubles while it is measured favours neither side.
#[test]
fn a_trend_is_no_gain() {
    let mut rng = Rng::with_seed(3);
    for slope in [-0.005, 0.01] {
        let mut run = Run::default();
        let found = run.find(false, |moment| {
            Some(1e5 * (1.0 + slope * moment.at_s) * (1.0 + 0.005 * noise(&mut rng)))
        });
        assert_eq!(found, GoalFound::NoDifference, "{slope}");
    }
}

/// What happens in the first moments of a side does not count.
#[test]
fn the_change_itself_does_not_count() {
    let mut rng = Rng::with_seed(4);
    let mut run = Run::default();
    let found = run.find(false, |moment| {
        let slow = if moment.apart && moment.side_s < 1.6 { 0.2 } else { 1.0 };
        let gain = if moment.apart { 1.05 } else { 1.0 };
        Some(1e5 * slow * gain * (1.0 + 0.01 * noise(&mut rng)))
    });
    assert_eq!(found, GoalFound::Better);
}

/// A figure that never changes, zero included, shows nothing.
#[test]
fn constants_show_nothing() {
    for value in [0.0, 1e5, 2e12] {
        let mut run = Run::default();
        assert_eq!(run.find(false, |_| Some(value)), GoalFound::Constant);
        assert!(!run.goal.apart());
    }
}

/// Without a figure nothing is tried; where it stops coming what was found no longer holds; and it
/// is measured again when it comes again.
#[test]
fn without_a_figure_it_stands_by() {
    let mut run = Run::default();
    run.go_on(100, false, &mut |_| None);
    assert_eq!((run.goal.found(), run.apart), (GoalFound::Silent, 0));

    let mut rng = Rng::with_seed(5);
    let mut better = figure(0.05, 0.01, &mut rng);
    run.go_on(100, false, &mut better);
    assert!(run.goal.apart() && run.goal.found() == GoalFound::Better);
    run.go_on(4, false, &mut |_| None);
    assert!(run.goal.apart(), "a few that are missing are no reason");
    run.go_on(4, false, &mut |_| None);
    assert!(!run.goal.apart() && run.goal.found() == GoalFound::Silent);
    run.go_on(100, false, &mut better);
    assert!(run.goal.apart() && run.goal.found() == GoalFound::Better);
}

/// What was found is tried anew after 5 minutes, then after 10, ...; so little of the time is spent
/// on what is worse. If it is no longer so, the next measurement says that.
#[test]
fn what_was_found_is_tried_anew_and_more_rarely() {
    let mut rng = Rng::with_seed(6);
    let mut run = Run::default();
    run.go_on(6 * 3600, false, &mut figure(-0.05, 0.005, &mut rng));
    let part = run.apart as f64 / run.polls as f64;
    assert!((0.002..0.01).contains(&part), "apart for {part} of six hours");
    assert_eq!(run.goal.found(), GoalFound::Worse);
    run.go_on(2 * 3600, false, &mut figure(0.05, 0.005, &mut rng));
    assert!(run.goal.apart() && run.goal.found() == GoalFound::Better);
}

/// The decision to keep wide code apart follows it, whatever clocks and moves say, without looks.
#[test]
fn the_decision_follows() {
    let mut standby = Standby::default();
    let input = StandbyInput { elapsed_ns: POLL_NS, nr_cpus: 4, ..StandbyInput::default() };
    assert!(!standby.update(&input.follow(false)));
    assert_eq!(standby.why(), Some(StandbyWhy::Goal));
    assert!(standby.is_away() && !standby.keeps_marks());
    assert!(standby.update(&input.follow(true)));
    for _ in 0..1000 {
        assert!(!standby.update(&input.follow(true)), "nothing else is asked");
        assert_eq!(standby.state(), StandbyState::Apart);
    }
    assert!(standby.update(&input.follow(false)) && standby.is_away());
}
