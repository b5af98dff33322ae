// SPDX-License-Identifier: MIT OR Apache-2.0
//! The licence model against the measured rows of Downs 2020, and its properties.

use proptest::prelude::*;

use super::*;

/// Skylake-SP class, Downs 2020.
const TIMES: Times = Times { throttle_ns: 9_000, halt_ns: 11_000, relax_ns: 670_000 };

/// Runs expiries up to and including `until_ns`; what changed: (time, phase, level).
fn run(core: &mut CoreLicense, until_ns: u64) -> Vec<(u64, Phase, u8)> {
    let mut seen = Vec::new();
    while core.deadline_ns() <= until_ns {
        let now_ns = core.deadline_ns();
        if core.expire(now_ns, &TIMES) {
            seen.push((now_ns, core.phase(), core.level()));
        }
    }
    seen
}

/// A burst of light 512-bit code of 100 us: 9 us throttled, 11 us halted, the low clock for
/// 670 us after the last wide instruction, 11 us halted again (Downs 2020: "~9 us throttle, then
/// ~11 us halt, then low clock"; "~650 us low clock, 680 us in total").
#[test]
fn one_burst_takes_its_measured_course() {
    let mut core = CoreLicense::default();
    assert!(core.set_demand(1, 0, &TIMES));
    assert!(core.is_throttled(1) && !core.is_throttled(0));
    let mut seen = run(&mut core, 100_000);
    assert!(!core.set_demand(0, 100_000, &TIMES));
    seen.extend(run(&mut core, u64::MAX - 1));
    assert_eq!(
        seen,
        [
            (9_000, Phase::Halted, 0),
            (20_000, Phase::Steady, 1),
            (770_000, Phase::Halted, 1),
            (781_000, Phase::Steady, 0),
        ]
    );
    assert_eq!(core.deadline_ns(), u64::MAX);
}

/// Bursts 760 us apart make two halts each and are not attenuated; bursts closer together than
/// the relax time keep the level without any halt (Downs 2020: "none at 760 us period").
#[test]
fn bursts_are_held_together_or_apart() {
    let halts = |period_ns: u64| {
        let mut core = CoreLicense::default();
        let mut halts = 0;
        for i in 0..100 {
            halts += count_halts(run(&mut core, i * period_ns));
            core.set_demand(1, i * period_ns, &TIMES);
            halts += count_halts(run(&mut core, i * period_ns + 30_000));
            core.set_demand(0, i * period_ns + 30_000, &TIMES);
        }
        halts
    };
    assert_eq!(halts(760_000), 199);
    assert_eq!(halts(600_000), 1);
}

fn count_halts(seen: Vec<(u64, Phase, u8)>) -> usize {
    seen.iter().filter(|(_, phase, _)| *phase == Phase::Halted).count()
}

/// From level 0 to 2 the clock changes twice (DIM 4.1), also if level 2 is asked for while level 1
/// is waited for; from 1 to 2, and all the way down, once.
#[test]
fn each_level_on_the_way_up_halts() {
    let mut core = CoreLicense::default();
    core.set_demand(1, 0, &TIMES);
    core.set_demand(2, 5_000, &TIMES);
    let up = run(&mut core, 50_000);
    assert_eq!(up, [(9_000, Phase::Halted, 0), (31_000, Phase::Steady, 2)]);
    core.set_demand(0, 50_000, &TIMES);
    let down = run(&mut core, u64::MAX - 1);
    assert_eq!(down, [(720_000, Phase::Halted, 2), (731_000, Phase::Steady, 0)]);
    core.set_demand(1, 1_000_000, &TIMES);
    run(&mut core, 1_020_000);
    core.set_demand(2, 1_030_000, &TIMES);
    let higher = run(&mut core, 1_060_000);
    assert_eq!(higher, [(1_039_000, Phase::Halted, 1), (1_050_000, Phase::Steady, 2)]);
}

/// Level 2 falls to level 1 while code of level 1 goes on, and to 0 when that has ended too.
#[test]
fn each_level_has_its_own_hold() {
    let mut core = CoreLicense::default();
    core.set_demand(2, 0, &TIMES);
    run(&mut core, 50_000);
    assert_eq!(core.level(), 2);
    core.set_demand(1, 50_000, &TIMES);
    run(&mut core, 1_000_000);
    assert_eq!(core.level(), 1);
    core.set_demand(0, 1_000_000, &TIMES);
    let seen = run(&mut core, u64::MAX - 1);
    assert_eq!(seen.last(), Some(&(1_681_000, Phase::Steady, 0)));
}

/// A forced change does not wait for the hold, stops at the demand, and is refused while a change
/// is in progress.
#[test]
fn a_level_can_be_released() {
    let mut core = CoreLicense::default();
    core.set_demand(2, 0, &TIMES);
    assert!(!core.release(0, 1_000, &TIMES), "throttled");
    run(&mut core, 50_000);
    core.set_demand(1, 50_000, &TIMES);
    assert!(core.release(0, 60_000, &TIMES));
    assert!(!core.release(0, 61_000, &TIMES), "halted");
    assert_eq!(run(&mut core, 71_000), [(71_000, Phase::Steady, 1)]);
    assert!(!core.release(1, 72_000, &TIMES), "there already");
}

/// DIM 7.1: a delay takes the place of the relax time, at once and until it is taken back; 0 and
/// for ever too.
#[test]
fn a_delay_can_be_set() {
    let falls_ns = |hold_ns: Option<u64>, set_at_ns: u64| {
        let mut core = CoreLicense::default();
        core.set_demand(2, 0, &TIMES);
        run(&mut core, 50_000);
        core.set_demand(0, 50_000, &TIMES);
        run(&mut core, set_at_ns);
        core.set_delay(hold_ns, set_at_ns, &TIMES);
        run(&mut core, 10_000_000).first().map(|(at_ns, ..)| *at_ns)
    };
    assert_eq!(falls_ns(Some(180_000), 60_000), Some(230_000));
    assert_eq!(falls_ns(Some(180_000), 400_000), Some(400_000), "it has passed already");
    assert_eq!(falls_ns(Some(0), 60_000), Some(60_000));
    assert_eq!(falls_ns(Some(1_000_000), 60_000), Some(1_050_000));
    assert_eq!(falls_ns(Some(u64::MAX), 60_000), None);
    assert_eq!(falls_ns(None, 60_000), Some(720_000));
}

/// DIM 7.1: a forced change waits for the change in progress and for the code that still runs, and
/// is void when the level is asked for again.
#[test]
fn a_change_can_be_forced() {
    let mut core = CoreLicense::default();
    core.set_demand(2, 0, &TIMES);
    core.set_demand(0, 1_000, &TIMES);
    assert!(!core.force(0, 2_000, &TIMES), "throttled");
    let seen = run(&mut core, 100_000);
    assert_eq!(
        seen[1..],
        [(31_000, Phase::Steady, 2), (31_000, Phase::Halted, 2), (42_000, Phase::Steady, 0)]
    );
    // Level 1 goes on after level 2, and ends later.
    core.set_demand(2, 100_000, &TIMES);
    run(&mut core, 150_000);
    core.set_demand(1, 150_000, &TIMES);
    assert!(core.force(0, 160_000, &TIMES));
    assert_eq!(run(&mut core, 200_000), [(171_000, Phase::Steady, 1)]);
    core.set_demand(0, 200_000, &TIMES);
    assert_eq!(run(&mut core, 300_000), [(200_000, Phase::Halted, 1), (211_000, Phase::Steady, 0)]);
    // Asked for again before the grant: the next hold is as long as ever.
    core.set_demand(2, 300_000, &TIMES);
    core.set_demand(0, 301_000, &TIMES);
    core.force(0, 302_000, &TIMES);
    core.set_demand(2, 303_000, &TIMES);
    core.set_demand(0, 304_000, &TIMES);
    assert_eq!(run(&mut core, 900_000).len(), 2);
    assert_eq!((core.level(), core.deadline_ns()), (2, 974_000));
}

/// A request remains though its code ended before the grant.
#[test]
fn a_request_stands() {
    let mut core = CoreLicense::default();
    core.set_demand(2, 0, &TIMES);
    core.set_demand(0, 1_000, &TIMES);
    run(&mut core, 31_000);
    assert_eq!(core.level(), 2);
    run(&mut core, 1_000_000);
    assert_eq!(core.level(), 0);
}

proptest! {
    /// Whatever is asked when: code of a level runs unthrottled only at that level or above; the
    /// granted level was asked for within relax time and two transitions; and when nothing is
    /// asked for any more the core ends at level 0.
    #[test]
    fn levels_follow_demand(asks in prop::collection::vec((0u8..4, 1u64..900_000), 1..60)) {
        let mut core = CoreLicense::default();
        let mut now_ns = 0;
        let mut last_ns = [0u64; 4];
        for (demand, wait_ns) in asks {
            core.set_demand(demand, now_ns, &TIMES);
            for last_ns in &mut last_ns[..=demand as usize] {
                *last_ns = now_ns + wait_ns;
            }
            let until_ns = now_ns + wait_ns;
            while core.deadline_ns() <= until_ns {
                let at_ns = core.deadline_ns();
                core.expire(at_ns, &TIMES);
                prop_assert!(core.deadline_ns() >= at_ns, "time does not go back");
                prop_assert!(core.level() >= demand || core.phase() != Phase::Steady);
            }
            now_ns = until_ns;
            let slack_ns = TIMES.relax_ns + 2 * (TIMES.throttle_ns + TIMES.halts_ns(0, 3));
            prop_assert!(now_ns <= last_ns[core.level() as usize] + slack_ns);
        }
        core.set_demand(0, now_ns, &TIMES);
        run(&mut core, u64::MAX - 1);
        prop_assert_eq!((core.level(), core.phase()), (0, Phase::Steady));
    }
}
