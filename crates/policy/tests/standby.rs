// SPDX-License-Identifier: MIT OR Apache-2.0
//! What levels cost the code beside, and whether wide code is kept apart for it.

use policy::{
    Event, Exposure, KernelUse, LEVEL_HOLD_NS, Losses, NR_PARTIES, PARTY_PLAIN, Standby,
    StandbyInput, StandbyState, StandbyWhy, Task, party,
};
use proptest::prelude::*;

const PERIOD_NS: u64 = 50_000_000;
const NR_CPUS: u32 = 16;
/// What levels 1, 2, 3 of a Gold 6130 lack with all cores active.
const LACKS_Q10: [u32; 3] = [146, 329, 329];

/// Scalar code after a section is exposed to its level as long as that is held, and no longer;
/// raised once.
#[test]
fn a_level_is_held_after_its_section() {
    let (mut core, mut losses) = (Exposure::default(), Losses::default());
    let begin_ns = 1_000_000;
    assert!(core.turns(0, 2, begin_ns), "it is raised");
    assert!(!core.turns(0, 1, begin_ns + 10), "the sibling finds it high enough");
    core.turns(1, 0, begin_ns + 20);
    let end_ns = begin_ns + 50_000;
    core.turns(2, 0, end_ns);
    // half of it within the hold, half after it
    core.ran(&mut losses, 0, false, 2 * LEVEL_HOLD_NS, end_ns + 2 * LEVEL_HOLD_NS);
    assert_eq!(losses.exposed_ns, [0, LEVEL_HOLD_NS, 0]);
    assert_eq!((losses.run_ns, losses.shared_ns), (2 * LEVEL_HOLD_NS, 0));
    assert!(core.turns(0, 1, end_ns + 3 * LEVEL_HOLD_NS), "it has fallen");
}

/// While wide code runs, its sibling is exposed, however long ago it began; code of the same level
/// is not, and code of a lower one loses the difference.
#[test]
fn siblings_are_exposed_to_the_difference() {
    let mut core = Exposure::default();
    core.turns(0, 2, 1);
    let lost = |level| {
        let mut losses = Losses::default();
        core.ran(&mut losses, level, true, 1000, 5_000_000_000);
        assert_eq!(losses.shared_ns, 1000);
        losses.exposed_ns.map(|ns| ns as i64)
    };
    assert_eq!(lost(0), [0, 1000, 0]);
    assert_eq!(lost(1), [-1000, 1000, 0]);
    assert_eq!(lost(2), [0; 3]);
    assert_eq!(lost(3), [0; 3]);
}

/// Sections that were not noticed expose as much as they hold, in all no more than there was; a
/// program's number of them is bounded.
#[test]
fn missed_sections_count() {
    let mut core = Exposure::default();
    let (now_ns, span_ns) = (20_000_000, 4_000_000);
    assert_eq!(core.missed(1, 2, span_ns, now_ns), 2, "apart enough to raise the level each");
    assert_eq!(core.until_ns, [now_ns + 2 * LEVEL_HOLD_NS, 0, 0]);
    assert_eq!(core.missed(2, 100, span_ns, now_ns), 0, "it is held already");
    assert_eq!(core.until_ns, [now_ns + span_ns, now_ns + span_ns, 0]);
    assert_eq!(Exposure::nr_missed(3, true, span_ns), 2, "one was noticed");
    assert_eq!(Exposure::nr_missed(0, true, span_ns), 0);
    assert_eq!(Exposure::nr_missed(u32::MAX, false, span_ns), 4001);
}

/// Who has wide code is of the party of its highest level, who says so of the first one at least;
/// who had some long ago is of none.
#[test]
fn parties() {
    let cfg = Default::default();
    let mut task = Task::new(&cfg, policy::TYPE_SCALAR, 0, 0);
    assert_eq!(party(&task, 0), PARTY_PLAIN);
    assert_eq!(party(&task, 1), 1);
    task.ran(1_000_000, 2);
    task.ran(1_000_000, 1);
    task.ran(100_000_000, 0);
    assert_eq!([party(&task, 0), party(&task, 1), party(&task, 3)], [2, 2, 3], "a hundredth");
    (0..4).for_each(|_| task.ran(99_000_000, 1));
    assert_eq!(party(&task, 0), 2, "the level before");
    (0..4).for_each(|_| task.ran(99_000_000, 1));
    assert_eq!(party(&task, 0), 1);
    (0..100).for_each(|_| task.ran(100_000_000, 0));
    assert_eq!(party(&task, 0), PARTY_PLAIN, "long ago");
    task.event(&cfg, Event::HintBegin, 1, 0);
    task.event(&cfg, Event::HintEnd, 0, 1);
    assert_eq!(party(&task, 0), 1);
}

/// A load that loses these shares of its CPU time, in 1/1000: exposed to level 2 while all CPUs
/// take everything, and by migrations while wide code is apart. Half of the CPU time is of either
/// party.
#[derive(Clone, Copy, Debug)]
struct Load {
    exposed_milli: u64,
    moves_milli: u64,
    wide: bool,
}

impl Load {
    fn input(self, apart: bool) -> StandbyInput {
        let run_ns = u64::from(NR_CPUS) * PERIOD_NS / 4;
        let mut losses = Losses { run_ns, ..Default::default() };
        if apart {
            losses.moves = run_ns * self.moves_milli / 1000 / 6_000;
        } else {
            losses.exposed_ns[1] = run_ns * self.exposed_milli / 1000 * 1024 / 329;
        }
        let plain = Losses { run_ns, ..Default::default() };
        StandbyInput {
            elapsed_ns: PERIOD_NS,
            losses: [
                if self.wide { losses } else { plain },
                if self.wide { losses } else { Losses::default() },
                Losses::default(),
                Losses::default(),
            ],
            lacks_q10: LACKS_Q10,
            nr_cpus: NR_CPUS,
            ..Default::default()
        }
    }
}

/// A step of a load; its state before.
fn step(standby: &mut Standby, load: Load) -> StandbyState {
    let state = standby.state();
    standby.update(&load.input(state == StandbyState::Apart));
    state
}

/// So many steps.
fn run(standby: &mut Standby, load: Load, steps: usize) {
    for _ in 0..steps {
        step(standby, load);
    }
}

/// The share of so many seconds in each state: looking, apart, standing by.
fn shares(standby: &mut Standby, load: Load, seconds: u64) -> [f64; 3] {
    let mut spent = [0.0; 3];
    let steps = seconds * 1_000_000_000 / PERIOD_NS;
    for _ in 0..steps {
        let state = step(standby, load);
        let index = match state {
            StandbyState::Looking => 0,
            StandbyState::Apart => 1,
            StandbyState::StandingBy => 2,
        };
        spent[index] += 1.0 / steps as f64;
    }
    spent
}

/// Where it pays, wide code is apart all the time but for looks; where it does not, hardly ever.
#[test]
fn does_what_pays() {
    let pays = Load { exposed_milli: 100, moves_milli: 20, wide: true };
    let [_, apart, _] = shares(&mut Standby::default(), pays, 600);
    assert!(apart > 0.98, "{apart}");
    let costs = Load { exposed_milli: 20, moves_milli: 80, wide: true };
    let mut standby = Standby::default();
    let [looking, apart, standing_by] = shares(&mut standby, costs, 600);
    assert!(standing_by > 0.96 && apart < 0.03, "{looking} {apart} {standing_by}");
    assert_eq!(standby.why(), Some(StandbyWhy::CostsMore));
}

/// Nothing is tried where there is nothing to win, and the reason is said.
#[test]
fn tries_nothing_for_nothing() {
    let nothing_lost = Load { exposed_milli: 5, moves_milli: 0, wide: true };
    let nothing_wide = Load { exposed_milli: 0, moves_milli: 0, wide: false };
    for (load, why) in
        [(nothing_lost, StandbyWhy::NothingLost), (nothing_wide, StandbyWhy::NothingWide)]
    {
        let mut standby = Standby::default();
        let [looking, apart, _] = shares(&mut standby, load, 600);
        assert_eq!((apart, standby.why()), (0.0, Some(why)));
        assert!(looking < 0.03, "{looking}");
    }
    let mut standby = Standby::default();
    for _ in 0..30 {
        let load = Load { exposed_milli: 300, moves_milli: 0, wide: true };
        standby.update(&StandbyInput { lacks_q10: [0; 3], ..load.input(false) });
    }
    assert_eq!(standby.why(), Some(StandbyWhy::NoLevels));
}

/// Sections so frequent that a move for each costs more than the clock are not worth an attempt.
#[test]
fn sections_have_their_price() {
    let load = Load { exposed_milli: 30, moves_milli: 0, wide: true };
    let mut standby = Standby::default();
    for _ in 0..30 {
        let mut input = load.input(false);
        input.losses[1].sections = input.losses[1].run_ns / 90_000;
        standby.update(&input);
    }
    assert_eq!((standby.nr_attempts, standby.why()), (0, Some(StandbyWhy::NothingLost)));
}

/// A party that is slowed is a reason to stop, whatever the other wins; so is one that is robbed of
/// busy CPUs, unless it waits less.
#[test]
fn harms_no_party() {
    let judged = |harm: fn(&mut StandbyInput)| {
        let load = Load { exposed_milli: 150, moves_milli: 0, wide: true };
        let mut standby = Standby::default();
        for _ in 0..60 {
            let apart = standby.state() == StandbyState::Apart;
            let mut input = load.input(apart);
            for losses in &mut input.losses {
                losses.run_ns *= 2; // all CPUs are busy
                losses.wait_ns = losses.run_ns;
            }
            input.sees = 1;
            if apart {
                harm(&mut input);
            }
            standby.update(&input);
        }
        standby.state()
    };
    assert_eq!(judged(|_| {}), StandbyState::Apart);
    let slowed = judged(|input| input.losses[1].exposed_ns[0] = input.losses[1].run_ns / 4);
    assert_eq!(slowed, StandbyState::Apart, "less than before is no harm");
    fn slow(input: &mut StandbyInput) {
        input.losses[1].shared_ns = input.losses[1].run_ns / 4;
    }
    assert_eq!(judged(slow), StandbyState::StandingBy);
    let with_traps = judged(|input| {
        slow(input);
        input.sees = 0;
    });
    assert_eq!(with_traps, StandbyState::Apart, "what it lost before is not known");
    let one_level_is_slowed = judged(|input| {
        // Level 1 wins little, as a third of the wide code: level 2 has the others.
        let wide = input.losses[1];
        for (party, part) in [(1, 1), (2, 2)] {
            input.losses[party].run_ns = wide.run_ns * part / 3;
            input.losses[party].wait_ns = wide.wait_ns * part / 3;
        }
        input.losses[1].shared_ns = input.losses[1].run_ns / 2;
    });
    assert_eq!(one_level_is_slowed, StandbyState::StandingBy);
    fn rob(input: &mut StandbyInput) {
        input.losses[1].run_ns += input.losses[PARTY_PLAIN].run_ns / 3;
        input.losses[PARTY_PLAIN].run_ns -= input.losses[PARTY_PLAIN].run_ns / 3;
    }
    let robbed = judged(|input| {
        rob(input);
        input.losses[PARTY_PLAIN].wait_ns = 2 * input.losses[PARTY_PLAIN].run_ns;
    });
    assert_eq!(robbed, StandbyState::StandingBy);
    let needs_less = judged(|input| {
        rob(input);
        input.losses[PARTY_PLAIN].wait_ns = input.losses[PARTY_PLAIN].run_ns / 2;
    });
    assert_eq!(needs_less, StandbyState::Apart);
}

/// What a party had under the kernel's own scheduler is what it must not lose, though under ours it
/// has less before anything is kept apart.
#[test]
fn the_kernel_is_the_measure() {
    let state_after = |wide_share: u64| {
        let load = Load { exposed_milli: 150, moves_milli: 0, wide: true };
        let mut standby = Standby::default();
        for _ in 0..60 {
            let mut input = load.input(standby.state() == StandbyState::Apart);
            let all_ns = u64::from(NR_CPUS) * PERIOD_NS;
            input.losses[PARTY_PLAIN].run_ns = all_ns * 2 / 3;
            input.losses[1].run_ns = all_ns / 3;
            input.losses.iter_mut().for_each(|losses| losses.wait_ns = losses.run_ns);
            input.kernel_ns = 1_000_000_000;
            let kernel_ns = u64::from(NR_CPUS) * input.kernel_ns;
            for (party, share) in [(PARTY_PLAIN, 100 - wide_share), (1, wide_share)] {
                let run_ns = kernel_ns * share / 100;
                input.kernel[party] = KernelUse { run_ns, wait_ns: run_ns / 2, moves: 0 };
            }
            standby.update(&input);
        }
        standby.state()
    };
    assert_eq!(state_after(33), StandbyState::Apart, "they have what they had");
    assert_eq!(state_after(50), StandbyState::StandingBy, "wide tasks had half of the CPUs");
}

/// Parties get back the shares that they had under the kernel's scheduler, by what their time
/// counts. Here a party's share is what it would have by itself divided by what its time counts.
#[test]
fn shares_come_back() {
    // percent: of the wide party under the kernel's scheduler, and with equal weights
    for (before, by_itself) in [(47, 55), (60, 50), (50, 50)] {
        let load = Load { exposed_milli: 150, moves_milli: 0, wide: true };
        let all_ns = u64::from(NR_CPUS) * PERIOD_NS;
        let mut standby = Standby::default();
        let mut share = 0;
        for _ in 0..100 {
            let mut input = load.input(standby.state() == StandbyState::Apart);
            let counts = standby.shares.counts().map(|c| if c == 0 { 1024 } else { u64::from(c) });
            let wide = by_itself * counts[0];
            share = 100 * wide / (wide + (100 - by_itself) * counts[1]);
            input.losses[PARTY_PLAIN].run_ns = all_ns * (100 - share) / 100;
            input.losses[1].run_ns = all_ns * share / 100;
            input.losses.iter_mut().for_each(|losses| losses.wait_ns = losses.run_ns);
            input.kernel_ns = 1_000_000_000;
            let kernel_ns = u64::from(NR_CPUS) * input.kernel_ns;
            // Tasks without wide code come and end all the time: nobody knows of theirs.
            input.kernel[1].run_ns = kernel_ns * before / 100;
            input.kernel_run_ns = kernel_ns;
            standby.update(&input);
        }
        assert_eq!(standby.state(), StandbyState::Apart);
        assert!(share.abs_diff(before) <= 2, "{share} % instead of {before} %");
    }
}

/// A share that cannot be had: what the time counts stays bounded, the more so when nobody corrects
/// it any more.
#[test]
fn shares_out_of_reach() {
    let load = Load { exposed_milli: 150, moves_milli: 0, wide: true };
    let mut standby = Standby::default();
    let mut most = 0;
    for _ in 0..400 {
        let mut input = load.input(standby.state() == StandbyState::Apart);
        input.losses.iter_mut().for_each(|losses| losses.run_ns *= 2); // all CPUs are busy
        input.kernel_ns = 1_000_000_000;
        input.kernel_run_ns = u64::from(NR_CPUS) * input.kernel_ns;
        input.kernel[1].run_ns = input.kernel_run_ns * 48 / 100; // and it has a half
        standby.update(&input);
        most = most.max(standby.shares.counts_q10[1]);
    }
    assert!((1366..=2048).contains(&most), "{most}");
    assert_eq!(standby.shares.counts()[..2], [768, 1365]);
}

/// Nothing is known of a machine that was not busy, or is not: all time counts the same.
#[test]
fn idle_machines_have_no_shares() {
    let load = Load { exposed_milli: 150, moves_milli: 0, wide: true };
    for busy in [2, 4] {
        let mut standby = Standby::default();
        for _ in 0..60 {
            let mut input = load.input(standby.state() == StandbyState::Apart);
            input.losses[1].run_ns *= busy;
            input.kernel_ns = 1_000_000_000;
            input.kernel[1].run_ns = u64::from(NR_CPUS) * input.kernel_ns / 2;
            input.kernel_run_ns = input.kernel[1].run_ns;
            standby.update(&input);
        }
        assert_eq!(standby.state(), StandbyState::Apart);
        assert_eq!(standby.shares.counts_q10, [0; NR_PARTIES], "{:?}", standby.shares);
    }
}

/// Migrations of ours while it looks are no loss that could be won back: the kernel has fewer.
#[test]
fn its_own_moves_are_no_loss() {
    let lost = |kernel_moves: u64| {
        let load = Load { exposed_milli: 30, moves_milli: 0, wide: true };
        let mut standby = Standby::default();
        while standby.state() != StandbyState::Apart {
            let mut input = load.input(false);
            input.losses[PARTY_PLAIN].moves = input.losses[PARTY_PLAIN].run_ns / 60_000;
            input.kernel_ns = 1_000_000_000;
            let run_ns = input.kernel_ns;
            input.kernel[PARTY_PLAIN] =
                KernelUse { run_ns, wait_ns: 0, moves: run_ns / 60_000 * kernel_moves / 10 };
            standby.update(&input);
        }
        standby.lost_q10[PARTY_PLAIN]
    };
    let (few, some, many) = (lost(0), lost(5), lost(100));
    assert!(few + 45 < some && some + 45 < many, "{few} {some} {many}");
    assert!((130..=136).contains(&many), "a tenth, and 3 %: {many}");
}

/// It begins standing by, and looks after a second; then ever more rarely. Where nothing wide was
/// found, probes stay, and what they see is looked at soon; else they are lifted.
#[test]
fn looks_become_rare() {
    let mut standby = Standby::default();
    assert!(standby.is_away() && !standby.keeps_marks());
    let nothing = Load { exposed_milli: 0, moves_milli: 0, wide: false };
    let mut pauses_s = Vec::new();
    let mut began = 0;
    for period in 1..20 * 200u64 {
        match (step(&mut standby, nothing), standby.state()) {
            (StandbyState::StandingBy, StandbyState::Looking) => {
                pauses_s.push((period - began) as f64 / 20.0);
            }
            (StandbyState::Looking, StandbyState::StandingBy) => began = period,
            _ => {}
        }
    }
    assert_eq!(pauses_s, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0]);
    assert!(standby.keeps_marks());
    let soon = (0..8 * 20).any(|_| {
        standby.update(&StandbyInput { news: 1, ..nothing.input(false) });
        standby.state() == StandbyState::Looking
    });
    assert!(soon, "an eighth of 64 s after the last look at most");
    let nothing_lost = Load { exposed_milli: 5, moves_milli: 0, wide: true };
    run(&mut standby, nothing_lost, 10);
    assert!(standby.is_away() && !standby.keeps_marks());
    for _ in 0..30 {
        standby.update(&StandbyInput { news: 1, ..nothing_lost.input(false) });
    }
    assert_eq!(
        standby.state(),
        StandbyState::StandingBy,
        "calls are no news where they cost nothing"
    );
}

/// Where threads have targets, which only our scheduler passes on, it stays; when they have gone it
/// goes at the next look.
#[test]
fn targets_keep_it() {
    let mut standby = Standby::default();
    let nothing = Load { exposed_milli: 0, moves_milli: 0, wide: false };
    standby.update(&StandbyInput { asks: 1, ..nothing.input(false) });
    assert_eq!((standby.state(), standby.is_away()), (StandbyState::StandingBy, false));
    run(&mut standby, nothing, 10);
    assert!(!standby.is_away());
    run(&mut standby, nothing, 20);
    assert!(standby.is_away());
}

fn load() -> impl Strategy<Value = Load> {
    (0u64..400, 0u64..400, prop::bool::weighted(0.8))
        .prop_map(|(exposed_milli, moves_milli, wide)| Load { exposed_milli, moves_milli, wide })
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    })]

    /// Whatever the loads do, and however often they change, attempts begin 8 s apart at least.
    #[test]
    fn never_flaps(
        loads in prop::collection::vec((load(), 1usize..100), 1..60),
        sees in any::<bool>(),
    ) {
        let mut standby = Standby::default();
        let (mut now_ns, mut last_ns, mut attempts) = (0u64, None, 0);
        for (load, periods) in loads {
            for _ in 0..periods {
                let apart = standby.state() == StandbyState::Apart;
                standby.update(&StandbyInput { sees: sees.into(), ..load.input(apart) });
                now_ns += PERIOD_NS;
                if standby.nr_attempts > attempts {
                    attempts = standby.nr_attempts;
                    let since_ns = now_ns - last_ns.replace(now_ns).unwrap_or(0);
                    prop_assert!(attempts == 1 || since_ns >= 8_000_000_000, "{since_ns}");
                }
            }
        }
    }

    /// A load that stays as it is costs, over ten minutes, no more than a hundredth of the worse
    /// choice's loss above the better one's.
    #[test]
    fn is_near_the_better_choice(load in load()) {
        let mut standby = Standby::default();
        let [looking, apart, standing_by] = shares(&mut standby, load, 600);
        let (off, on) = match load.wide {
            true => (load.exposed_milli as f64, load.moves_milli as f64),
            false => (0.0, 0.0),
        };
        let paid = (looking + standing_by) * off + apart * on;
        // what is within the margins may be chosen either way: 1 % to win, 1.5 % to lose
        let margin = 16.0;
        let most = off.min(on).max(0.0) + margin + 0.03 * off.max(on);
        prop_assert!(paid <= most, "{paid} {off} {on}");
    }

    /// No input makes it overflow or leave its states.
    #[test]
    fn survives_any_input(
        raw in prop::collection::vec(any::<[u64; 9]>(), 1..40),
        lacks in any::<[u32; 3]>(),
    ) {
        let mut standby = Standby::default();
        for r in raw {
            let losses = Losses {
                run_ns: r[0] >> 20,
                exposed_ns: [r[1] >> 20, r[2] >> 20, (r[3] >> 20).wrapping_neg()],
                shared_ns: r[4] >> 24,
                wait_ns: r[5] >> 20,
                moves: r[6] >> 32,
                raises: r[7] >> 32,
                sections: r[8] >> 32,
            };
            standby.update(&StandbyInput {
                elapsed_ns: r[8] >> 30,
                losses: [losses; NR_PARTIES],
                wide_wait_ns: r[0] >> 20,
                lacks_q10: lacks.map(|lacks| lacks % 1025),
                nr_cpus: 1 + (r[1] % 1024) as u32,
                ..Default::default()
            });
            prop_assert!(standby.at_most_q10 <= 1024);
            prop_assert!(standby.lost_q10.iter().all(|lost| *lost <= 1024));
        }
    }
}
