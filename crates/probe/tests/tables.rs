// SPDX-License-Identifier: MIT OR Apache-2.0
//! The probe on simulated CPUs of `crates/cpumodel/data/cpus` gives their tables back.

use std::collections::BTreeMap;

use cpumodel::{CPU_FILES, CpuModel, Khz, Ns, Platform, Sourced, Sureness};
use probe::{End, Kernel, Noise, Plan, Simulated, analyse, run};
use report::probe::raw::Cell;
use report::probe::{CountedFrom, ProbeReport, Row};

fn model(id: &str) -> CpuModel {
    CpuModel::built_in(id).unwrap().unwrap()
}

/// So many rounds of these kernels, dense and sparse.
fn measure(
    machine: &mut Simulated,
    kernels: &[(&str, u32)],
    active: u32,
    rounds: usize,
) -> ProbeReport {
    let cell = |(kernel, one_in): &(&str, u32)| Cell {
        kernel: kernel.to_string(),
        one_in: *one_in,
        active,
    };
    let plan = Plan { cells: kernels.iter().map(cell).collect(), seed: 1, max_rounds: rounds };
    let recording = run(machine, &plan, &mut |_, _| true);
    let mut report = analyse(&recording.header, &recording.traces);
    // Not to be read in a failure's message.
    report.rows.iter_mut().for_each(|row| row.course.clear());
    report
}

fn off_pct(found: f64, truth: f64) -> f64 {
    100.0 * (found / truth - 1.0).abs()
}

/// A shared machine as that of docs/experiments/web-bursts.md: its counter advances in steps of 10
/// ns, an eighth of the block's shorter slices, and the first microsecond of each block is slow.
const COARSE: Noise = Noise { counter_step_ns: 10.0, cold_ns: 1_200.0, ..Noise::SHARED };

/// Every CPU file, one and all cores active, on a shared machine with a neighbour: the clock of
/// each class is that of the turbo table within half a bin, dense and sparse.
#[test]
fn turbo_tables_come_back() {
    let kernels = [("scalar", 1), ("256-fma", 1), ("512-int", 80), ("512-fma", 1)];
    for (id, _) in CPU_FILES {
        let quieter = Noise { busy_ns: 8e6, ..Noise::SHARED };
        let mut machine = Simulated::new(&model(id), quieter, 11);
        for active in [1, machine.platform().nr_cores as u32] {
            let report = measure(&mut machine, &kernels, active, 12);
            assert_eq!(report.rows.len(), kernels.len(), "{id}");
            for row in &report.rows {
                let kernel = Kernel::named(&row.cell.kernel).unwrap();
                let level = machine.level(kernel, row.cell.one_in);
                let truth = f64::from(machine.platform().clock_khz(level, active as usize));
                let found = row.steady_khz.unwrap_or_else(|| panic!("{id}: {row:?}")).value;
                assert!(
                    (found - truth).abs() < 50_000.0,
                    "{id}, {active} active, {:?}: {found} for {truth}",
                    row.cell
                );
            }
        }
    }
}

/// Worst errors of one row against the machine, in percent, by name.
fn errors(machine: &Simulated, row: &Row) -> BTreeMap<&'static str, f64> {
    let platform = machine.platform();
    let active = row.cell.active as usize;
    let level = machine.level(Kernel::named(&row.cell.kernel).unwrap(), row.cell.one_in);
    let core = dvfs::Core::new(platform, active);
    let times = platform.times;
    let all = [
        ("steady", row.steady_khz, f64::from(platform.clock_khz(level, active))),
        ("throttle", row.throttle_ns, times.throttle_ns as f64),
        ("fraction", row.throttle_frac, platform.throttle_frac),
        ("halt", row.halt_ns, times.halts_ns(0, level) as f64),
        ("cost", row.lower_cost_ns, core.lower_cost_ns(0, level)),
        ("relax", row.relax_from_last_ns, times.relax_ns as f64),
        ("raise", row.raise_halt_ns, times.halt_ns as f64),
    ];
    let off = |(name, found, truth): (&'static str, Option<report::probe::Estimate>, f64)| {
        (name, found.map_or(f64::INFINITY, |found| off_pct(found.value, truth)))
    };
    all.into_iter().map(off).collect()
}

/// Planted effects: relax times, throttles and halts of three kinds, with noise: each within 5 %,
/// and counted from the last wide instruction; one of them also by a coarse counter.
#[test]
fn planted_effects_come_back() {
    let known = |value: u64| {
        Some(Sourced { value: Ns(value), source: "planted".into(), sureness: Sureness::Assumed })
    };
    for (throttle_ns, halt_ns, relax_ns, noise) in [
        (9_300, 10_000, 670_000, Noise::SHARED),
        (20_000, 5_000, 2_000_000, Noise::SHARED),
        (5_000, 11_000, 350_000, Noise::SHARED),
        (9_300, 10_000, 670_000, COARSE),
    ] {
        let mut model = model("xeon-gold-6130");
        model.transition.throttle_ns = known(throttle_ns);
        model.transition.halt_ns = known(halt_ns);
        model.transition.relax_ns = known(relax_ns);
        let mut machine = Simulated::new(&model, noise, 23);
        let report = measure(&mut machine, &[("512-fma", 1), ("256-fma", 1)], 16, 26);
        for row in &report.rows {
            for (name, off_pct) in errors(&machine, row) {
                assert!(
                    off_pct <= 5.0,
                    "{} of {:?}: {off_pct:.1} % off; {row:?}",
                    name,
                    row.cell.kernel
                );
            }
            assert_eq!(row.counted_from, Some(CountedFrom::Last), "{row:?}");
        }
    }
}

/// A CPU without any effect: nothing is seen where nothing is, and each answer says so. Nor by a
/// coarse counter, where the clock in the block is that before it within 20 MHz.
#[test]
fn nothing_is_seen_where_nothing_is() {
    let mut model = model("xeon-gold-6130");
    let first = model.levels[0].clone();
    model.levels.iter_mut().for_each(|level| *level = first.clone());
    let zero = Some(Sourced { value: Ns(0), source: "x".into(), sureness: Sureness::Assumed });
    model.transition.throttle_ns = zero.clone();
    model.transition.halt_ns = zero;
    for noise in [Noise::SHARED, COARSE] {
        let mut machine = Simulated::new(&model, noise, 5);
        let report = measure(&mut machine, &[("scalar", 1), ("512-fma", 1), ("512-int", 1)], 4, 16);
        for row in report.rows {
            let effects = [row.throttle_ns, row.halt_ns, row.relax_from_last_ns, row.lower_cost_ns];
            assert_eq!(effects, [None; 4], "{:?}", row.notes);
            assert_eq!((row.break_even_ns, row.counted_from), (None, None));
            assert!(row.notes.len() >= 3, "{:?}", row.notes);
            let (before, steady) = (row.before_khz.unwrap().value, row.steady_khz.unwrap().value);
            assert!((before - steady).abs() < 20_000.0, "{before} {steady}, {:?}", row.cell);
        }
    }
}

/// Of a machine that is never quiet nothing is claimed; with a neighbour half of the time, the
/// clocks are those without it.
#[test]
fn neighbours_do_not_move_the_result() {
    // Short enough times that all seeds have many of both kinds.
    let busy = Noise { busy_frac: 0.5, busy_drop_khz: 300_000, busy_ns: 10e6, ..Noise::SHARED };
    let mut machine = Simulated::new(&model("xeon-gold-6130"), busy, 4);
    let report = measure(&mut machine, &[("512-fma", 1)], 1, 40);
    assert!(
        report.quiet < report.repetitions * 3 / 4,
        "the neighbour is seen: {} of {}",
        report.quiet,
        report.repetitions
    );
    let steady = report.rows[0].steady_khz.unwrap();
    let truth = Khz::of_mega(3_500).0;
    assert!((steady.value - f64::from(truth)).abs() < 20_000.0, "{steady:?}");
    let few = measure(&mut machine, &[("512-fma", 1)], 1, 2);
    assert_eq!(few.rows[0].steady_khz, None);
    assert!(few.rows[0].notes[0].contains("quiet repetitions"));
}

/// The same seed gives the same recording and report; it ends by itself when all is known.
#[test]
fn a_campaign_is_reproducible_and_ends() {
    let one = || {
        let mut machine = Simulated::new(&model("xeon-w-2104"), Noise::SHARED, 9);
        let cells = vec![Cell { kernel: "512-int".into(), one_in: 1, active: 1 }];
        let plan = Plan { cells, seed: 4, max_rounds: 400 };
        let recording = run(&mut machine, &plan, &mut |_, _| true);
        assert!(matches!(recording.end, End::Complete), "{:?}", recording.end);
        analyse(&recording.header, &recording.traces)
    };
    let report = one();
    assert_eq!(one(), report);
}

/// A dense kernel whose clock is known within 80 MHz only, as on a busy machine, and is certainly
/// below scalar code's, is a level of the CPU file; one that could be anywhere leaves its class out
/// instead of claiming that it costs nothing. A sparse kernel's clock stands for no dense one.
#[test]
fn a_clock_that_is_not_sharp_is_not_taken_for_no_effect() {
    let mut machine = Simulated::new(&model("xeon-gold-6130"), Noise::SHARED, 7);
    let kernels = [("scalar", 1), ("512-fma", 1), ("512-fma", 80)];
    let mut report = measure(&mut machine, &kernels, 1, 12);
    let mut rules_with = |half_width_khz: f64| {
        let is_dense = |row: &&mut Row| row.cell.kernel == "512-fma" && row.cell.one_in == 1;
        let row = report.rows.iter_mut().find(is_dense).unwrap();
        let found = row.steady_khz.as_mut().unwrap();
        (found.low, found.high) = (found.value - half_width_khz, found.value + half_width_khz);
        let text = report::probe::machine_file(&report).unwrap();
        let model = CpuModel::from_toml(&text).unwrap();
        let rule = text.lines().find(|line| line.starts_with("heavy-512"));
        (model.levels.len(), rule.map(str::to_string))
    };
    let sharp = rules_with(10_000.0);
    assert!(sharp.0 > 1 && sharp.1.is_some(), "{sharp:?}");
    assert_eq!(rules_with(80_000.0), sharp);
    assert_eq!(rules_with(2_000_000.0).1, None);
}

/// A machine's cores are those of its CPU file, so that it simulates with as many CPUs: not with
/// the eight cores that stand for an unknown number.
#[test]
fn the_number_of_cpus_comes_back() {
    for (cores, threads, cpus) in [(Some(1), Some(2), 2), (Some(2), Some(1), 2), (None, None, 16)] {
        let mut probed = model("xeon-gold-6130");
        let known =
            |value: u32| Sourced { value, source: "this test".into(), sureness: Sureness::Assumed };
        (probed.nr_cores, probed.smt.threads_per_core) = (cores.map(known), threads.map(known));
        let mut machine = Simulated::new(&probed, Noise::SHARED, 7);
        let report = measure(&mut machine, &[("scalar", 1), ("512-fma", 1)], 1, 12);
        let file = report::probe::machine_file(&report).unwrap();
        let platform = Platform::new(&CpuModel::from_toml(&file).unwrap());
        assert_eq!(platform.nr_cores * platform.threads_per_core, cpus, "{file}");
        let assumed = platform.assumed.iter().any(|what| what == "8 cores");
        assert_eq!(assumed, cores.is_none(), "{:?}", platform.assumed);
    }
}

/// The head of a CPU file lists what the probe could not know, and has no heading for nothing.
#[test]
fn an_empty_list_has_no_heading() {
    const HEADING: &str = "What it could not know:";
    let mut machine = Simulated::new(&model("xeon-gold-6130"), Noise::NONE, 7);
    let mut report = measure(&mut machine, &[("scalar", 1), ("512-fma", 1)], 1, 12);
    let file = |report: &ProbeReport| report::probe::machine_file(report).unwrap();
    (report.unknown, report.partial) = (Vec::new(), None);
    assert!(!file(&report).contains(HEADING), "{}", file(&report));
    report.partial = Some("interrupted\nby a signal".into());
    let lines =
        "What it could not know:\n# - the measurement is partial: interrupted by a signal\n";
    assert!(file(&report).contains(lines), "{}", file(&report));
}

/// Times of a change stand in the CPU file where there is a level to change to; where no clock
/// falls, what the start of a block shows is no throttle.
#[test]
fn times_belong_to_levels() {
    let mut machine = Simulated::new(&model("xeon-gold-6130"), Noise::SHARED, 7);
    let mut report = measure(&mut machine, &[("scalar", 1), ("512-fma", 1)], 1, 12);
    let known = |report: &ProbeReport| {
        let text = report::probe::machine_file(report).unwrap();
        CpuModel::from_toml(&text).unwrap().transition.throttle_ns.is_some()
    };
    assert!(known(&report));
    let scalar_khz = report.rows[0].steady_khz;
    report.rows.iter_mut().for_each(|row| row.steady_khz = scalar_khz);
    assert!(report.rows.iter().any(|row| row.throttle_ns.is_some()) && !known(&report));
}
