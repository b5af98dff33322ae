// SPDX-License-Identifier: MIT OR Apache-2.0
//! The power score: DIM's rules one by one, against the same in real numbers, and what placement
//! asks of it.

use policy::{LEVEL_MAX, Score};
use proptest::prelude::*;

const LONG_NS: u64 = Score::LONG_NS + 1;
const SHORT_NS: u64 = 50_000;

/// A score that long runs at this level have brought to its end.
fn settled(level: u32) -> Score {
    let mut score = Score::default();
    for _ in 0..64 {
        score.switch(level, level, LONG_NS);
    }
    score
}

/// Rule 1: a new task has asked for nothing.
#[test]
fn a_new_task_scores_nothing() {
    assert_eq!((Score::default().value(), Score::default().speaks_for()), (0.0, 0));
}

/// Rule 3: a short run that finds a level and leaves it says nothing, whatever the level.
#[test]
fn a_short_run_without_a_change_says_nothing() {
    for level in 0..=LEVEL_MAX {
        for mut score in [Score::default(), settled(1), settled(3)] {
            let before = score;
            assert!(!score.switch(level, level, SHORT_NS));
            assert!(!score.switch(level, level, Score::LONG_NS), "more than 1 ms, not 1 ms");
            assert_eq!(score, before);
        }
    }
}

/// Rule 4: a long run counts, with a change or without.
#[test]
fn a_long_run_counts() {
    let mut score = Score::default();
    assert!(score.switch(2, 2, LONG_NS));
    assert_eq!(score.score_q10, 410, "0.2 * 2 in 1/1024, rounded");
    assert!(score.switch(0, 1, LONG_NS));
    assert_eq!(score.score_q10, 533, "0.2 + 0.8 * 0.4");
    assert_eq!(score.nr_samples, 2);
}

/// Rule 4: a change in a short run counts if it leads away from the score, so that a task of level
/// 2 is not made one of level 1 by reaching 2 by way of 1.
#[test]
fn a_change_counts_only_beyond_the_score() {
    let mut wide = settled(2);
    assert!(!wide.switch(0, 1, SHORT_NS), "rises to 1, below the score");
    assert!(wide.switch(2, 1, SHORT_NS), "falls to 1, below the score");
    let mut scalar = settled(0);
    assert!(!scalar.switch(2, 1, SHORT_NS), "falls to 1, above the score");
    assert!(scalar.switch(0, 1, SHORT_NS), "rises to 1, above the score");
}

/// Rule 5: a level that its code cannot ask for is another's, however long the run; up to that
/// level it is scored as others are.
#[test]
fn a_level_above_its_code_is_anothers() {
    for level in 0..LEVEL_MAX {
        let mut score = Score { code: Score::code_of(level), ..Score::default() };
        for _ in 0..64 {
            assert!(!score.switch(0, level + 1, LONG_NS));
            assert!(!score.switch(level + 1, level + 1, LONG_NS));
        }
        assert_eq!((score.score_q10, score.nr_samples), (0, 0));
        for _ in 0..64 {
            score.switch(level, level, LONG_NS);
        }
        assert!(u32::from(score.score_q10).abs_diff(level << 10) <= 2, "{score:?}");
    }
}

/// Rule 5: a score that was made by others' levels is forgotten at the next switch, whatever that
/// says.
#[test]
fn a_score_above_its_code_is_void_at_once() {
    for level in 0..LEVEL_MAX {
        let mut score = Score { level: LEVEL_MAX as u8, ..settled(LEVEL_MAX) };
        score.code = Score::code_of(level);
        assert!(score.switch(LEVEL_MAX, LEVEL_MAX, SHORT_NS), "it is to be looked at");
        assert_eq!((score.value(), score.speaks_for()), (0.0, 0));
        assert!(!score.switch(LEVEL_MAX, LEVEL_MAX, SHORT_NS), "once");
    }
}

/// Code that cannot be judged, or that may ask for the highest level, changes nothing.
#[test]
fn unknown_code_is_scored_as_before() {
    for code in [Score::code_of(LEVEL_MAX), Score::code_of(LEVEL_MAX + 1), 0, 255] {
        let mut score = Score { code, ..Score::default() };
        assert!(score.switch(0, LEVEL_MAX, SHORT_NS));
        assert_eq!(score.score_q10 as u32, ((LEVEL_MAX << 10) + 2) / 5);
    }
    assert_eq!(Score::code_of(LEVEL_MAX + 1), 0);
}

/// Samples of one level lead there, to two units, from wherever; ten of them nine tenths of the
/// way.
#[test]
fn it_converges() {
    for from in 0..=LEVEL_MAX {
        for to in 0..=LEVEL_MAX {
            let mut score = settled(from);
            let far = f64::from(from) - f64::from(to);
            for _ in 0..10 {
                score.switch(to, to, LONG_NS);
            }
            assert!((score.value() - f64::from(to)).abs() <= 0.11 * far.abs() + 0.005);
            for _ in 0..40 {
                score.switch(to, to, LONG_NS);
            }
            assert!(u32::from(score.score_q10).abs_diff(to << 10) <= 2, "{score:?}");
        }
    }
}

/// What it is believed to be follows a settled score, and is not changed by one sample that
/// disagrees.
#[test]
fn one_stray_sample_does_not_move_a_task() {
    for level in 0..=LEVEL_MAX {
        let score = settled(level);
        for believed in 0..=LEVEL_MAX as u8 {
            let score = Score { level: believed, ..score };
            assert_eq!(score.speaks_for(), level, "believed {believed}");
        }
        for stray in level.saturating_sub(2)..=(level + 2).min(LEVEL_MAX) {
            let mut score = Score { level: level as u8, ..score };
            score.switch(stray, stray, LONG_NS);
            assert_eq!(score.speaks_for(), level, "one sample of {stray}");
        }
    }
}

/// The rules in real numbers, as DIM writes them.
fn by_the_paper(score: f64, before: u32, now: u32, run_ns: u64) -> f64 {
    let level = f64::from(now);
    let decreases_below = now < before && level < score;
    let increases_above = now > before && level > score;
    if run_ns > 1_000_000 || decreases_below || increases_above {
        0.2 * level + 0.8 * score
    } else {
        score
    }
}

fn run() -> impl Strategy<Value = (u32, u32, u64)> {
    (0..=LEVEL_MAX, 0..=LEVEL_MAX, prop_oneof![1u64..1_000_001, 1_000_001u64..50_000_000])
}

proptest! {
    /// The integers do what the paper's formula does, to the rounding. Where the score and a level
    /// differ by less than that, the two may decide differently: the formula goes on from the
    /// integers' score.
    #[test]
    fn agrees_with_the_paper(runs in prop::collection::vec(run(), 1..200)) {
        let mut score = Score::default();
        for (before, now, run_ns) in runs {
            let expected = by_the_paper(score.value(), before, now, run_ns);
            score.switch(before, now, run_ns);
            prop_assert!((score.value() - expected).abs() <= 0.5 / 1024.0 + 1e-9);
        }
    }

    /// Whatever happens, a score stays between the lowest and the highest level, and so does what
    /// is believed; a level of nonsense counts as the highest.
    #[test]
    fn stays_in_range(
        runs in prop::collection::vec((0..9u32, 0..u32::MAX, 0..u64::MAX), 1..200),
        believed in 0..=LEVEL_MAX as u8,
    ) {
        let mut score = Score { level: believed, ..Score::default() };
        for (before, now, run_ns) in runs {
            score.switch(before, now, run_ns);
            prop_assert!(u32::from(score.score_q10) <= LEVEL_MAX << 10);
            prop_assert!(score.speaks_for() <= LEVEL_MAX);
        }
    }

    /// Belief does not swing: what a score leads to, it keeps. And it is the nearest level, or the
    /// one believed.
    #[test]
    fn belief_is_stable(
        score_q10 in 0..=(LEVEL_MAX << 10) as u16,
        believed in 0..=LEVEL_MAX as u8,
    ) {
        let mut score = Score { score_q10, level: believed, ..Score::default() };
        let level = score.speaks_for();
        score.level = level as u8;
        prop_assert_eq!(score.speaks_for(), level);
        prop_assert!((score.value() - f64::from(level)).abs() <= 0.75);
    }
}
