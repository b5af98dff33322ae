// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model does what it says, on machines where the answer is known.

use super::*;

fn fx() -> PstateModel {
    PstateModel::built_in("fx-8120").unwrap().unwrap()
}

fn of(model: &PstateModel, strategy: Strategy, cycles: f64) -> Outcome {
    simulate(model, strategy, cycles, 8, Reading::default()).unwrap()
}

/// A spinner's section runs at base; the hand-over is all that it pays.
#[test]
fn spinning_pays_the_hand_over() {
    let out = of(&fx(), Strategy::Spin, 1e6);
    assert!((out.section_khz - 3_100_000.0).abs() < 1.0);
    assert!((out.effective_khz - 3_100_000.0 * 1e6 / 1.002e6).abs() < 1.0);
    assert!((out.cpu_ns - 8.0 * out.period_ns).abs() < 1e-6);
}

/// Long sections run at turbo under every other strategy, and nearly all of it is effective.
#[test]
fn long_sections_reach_turbo() {
    for (strategy, name) in &Strategy::ALL[1..] {
        let out = of(&fx(), *strategy, 1e9);
        assert!(out.effective_khz > 3_990_000.0, "{name}: {out:?}");
        assert!(out.effective_khz <= out.section_khz + 1.0 && out.section_khz < 4_000_001.0);
    }
}

/// Energy follows who is awake at which voltage: a spinner's is the package at base, and for long
/// sections those who sleep need least, those who wait slowly less than those who spin, as on TURBO
/// 9.
#[test]
fn energy_follows_who_waits_how() {
    let spin = of(&fx(), Strategy::Spin, 1e6);
    let watts = spin.energy_nj.unwrap() / spin.period_ns;
    assert!((watts - 125.0).abs() < 1e-9, "{watts} W, all cores at base");
    let [spin, futex, owner, delegate] =
        [Strategy::Spin, Strategy::Futex, Strategy::Owner, Strategy::Delegate]
            .map(|strategy| of(&fx(), strategy, 1e8).energy_nj.unwrap());
    assert!(futex < owner && owner < delegate && delegate < spin);
    let short = |strategy| of(&fx(), strategy, 1e3).energy_nj.unwrap();
    assert!(
        short(Strategy::Delegate) > short(Strategy::Spin),
        "nobody gets slow, one more is busy"
    );
    let intel = PstateModel::built_in("core-i7-4770").unwrap().unwrap();
    assert_eq!(of(&intel, Strategy::Spin, 1e6).energy_nj, None);
}

/// A sleeper uses CPU time for its own section only.
#[test]
fn sleepers_save_cpu_time() {
    let (spin, futex) = (of(&fx(), Strategy::Spin, 1e7), of(&fx(), Strategy::Futex, 1e7));
    assert!(futex.cpu_ns < spin.cpu_ns / 8.0);
}

/// The C-state is the deepest whose residency fits the sleep: short sections do not pay the deep
/// one's exit.
#[test]
fn the_length_of_a_sleep_decides_its_depth() {
    let (short, long) = (of(&fx(), Strategy::Futex, 1e4), of(&fx(), Strategy::Futex, 1e6));
    let wake = |out: Outcome, cycles: f64| out.held_ns - cycles / 4.0;
    assert!((wake(short, 1e4) - 6_000.0).abs() < 1.0, "{short:?}");
    assert!((wake(long, 1e6) - 105_000.0).abs() < 1.0, "{long:?}");
}

/// Costs of nothing leave a break-even of nothing; without a gain there is none.
#[test]
fn a_break_even_moves_with_its_costs() {
    let mut model = fx();
    let even =
        |model: &PstateModel, strategy| break_even_cycles(model, strategy, 8, Reading::default());
    let before = even(&model, Strategy::Migrate).unwrap();
    model.migration_ns.value *= 2;
    let after = even(&model, Strategy::Migrate).unwrap();
    assert!((after / before - 2.0).abs() < 0.01, "{before} {after}");
    model.turbo_khz.value = model.base_khz.value;
    assert_eq!(even(&model, Strategy::Migrate), None);
}

/// A package with one clock for all has no strategies by hand, and one thread never waits.
#[test]
fn what_a_machine_cannot_do_is_not_simulated() {
    let intel = PstateModel::built_in("core-i7-4770").unwrap().unwrap();
    for strategy in [Strategy::Owner, Strategy::Delegate, Strategy::Migrate] {
        assert_eq!(simulate(&intel, strategy, 1e6, 8, Reading::default()), None);
    }
    assert_eq!(simulate(&intel, Strategy::Spin, 1e6, 1, Reading::default()), None);
}

/// The same input, the same bits.
#[test]
fn a_run_depends_on_nothing_else() {
    for (strategy, _) in Strategy::ALL {
        assert_eq!(of(&fx(), strategy, 123_456.0), of(&fx(), strategy, 123_456.0));
    }
}

/// Prints what data/README.md states, and how much depends on what TURBO leaves open.
#[test]
fn readings_differ_as_data_readme_says() {
    let even = |strategy, reading| break_even_cycles(&fx(), strategy, 8, reading).unwrap().round();
    let readings = [
        Reading::default(),
        Reading { ramp_jumps: true, ..Reading::default() },
        Reading { entry_counts: false, ..Reading::default() },
    ];
    for strategy in [Strategy::Owner, Strategy::Delegate, Strategy::Migrate, Strategy::Futex] {
        println!("{}: {:?}", strategy.name(), readings.map(|reading| even(strategy, reading)));
    }
    let intel = PstateModel::built_in("core-i7-4770").unwrap().unwrap();
    println!("futex, Intel: {:?}", break_even_cycles(&intel, Strategy::Futex, 8, readings[0]));
    let owner = readings.map(|reading| even(Strategy::Owner, reading));
    assert!(owner[2] < owner[0] && owner[0] < owner[1]);
}
